"""Sliders and switches. Each says what it is below itself, in the words of `--help`."""

from collections.abc import Callable
from typing import Any

from nicegui import ui

from rftlab.sim.config import Simulation
from rftlab.studies.explore.choices import Choices
from rftlab.studies.explore.knobs import KNOBS, ExplorerKnob

THROTTLE = 0.03
"""Seconds between two messages of a slider that is dragged."""
GROUPS = {"design": "Design", "update": "Update", "problem": "Problem"}


class KnobSlider:
    """One slider with its title, its value and its sentence."""

    def __init__(self, knob: ExplorerKnob, changed: Callable[[str, float], None]):
        self.knob, self.changed, self.stops = knob, changed, [0.0]
        with ui.element("div").classes("knob"):
            with ui.element("div").classes("knob-head"):
                ui.label(knob.title)
                self.shown = ui.label().classes("knob-value")
            self.slider = _range(f"knob-{knob.name}", knob.title, f"hint-{knob.name}")
            ui.label(knob.help).classes("hint").props["id"] = f"hint-{knob.name}"
        self.slider.on("input", self._moved, throttle=THROTTLE, js_handler="(event) => emit(event.target.value)")

    def show(self, choices: Choices, origin: Simulation) -> None:
        """Put the slider where the choices are."""
        value = choices.value(self.knob.name)
        self.stops = self.knob.stops_at(origin, value)
        self.slider.props["max"] = len(self.stops) - 1
        self.slider.props["value"] = self.stops.index(value)
        self._tell(value)
        self.slider.update()

    def _moved(self, event: Any) -> None:
        place = int(event.args) if str(event.args)[:9].isdecimal() and len(str(event.args)) < 9 else 0
        value = self.stops[min(place, len(self.stops) - 1)]
        self.slider.props["value"] = place
        self._tell(value)
        self.changed(self.knob.name, value)

    def _tell(self, value: float) -> None:
        self.shown.text = f"{value:,.0f}" if self.knob.whole else f"{value:.4g}"
        self.slider.props["aria-valuetext"] = self.shown.text


def sliders(changed: Callable[[str, float], None]) -> dict[str, KnobSlider]:
    """All sliders, in their groups."""
    found = {}
    for group, title in GROUPS.items():
        with ui.element("fieldset").classes("group"):
            with ui.element("legend"):
                ui.label(title)
            for knob in KNOBS:
                if knob.group == group:
                    found[knob.name] = KnobSlider(knob, changed)
    return found


def _range(name: str, title: str, described: str) -> ui.element:
    """The browser's own slider: the library's has its name where the focus does not go."""
    found = ui.element("input")
    found.props.update({"type": "range", "min": 0, "max": 1, "step": 1, "value": 0, "id": name})
    found.props.update({"aria-label": title, "aria-describedby": described})
    return found
