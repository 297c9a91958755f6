"""Build the parts of the page: sliders, numbers, pinned curves, text to copy, the tour."""

from collections.abc import Callable
from math import isfinite
from typing import Any

from nicegui import ui

from rftlab.sim.config import Simulation
from rftlab.studies.explore.chart import TITLES, Axis, ComparedCurve
from rftlab.studies.explore.choices import KNOBS, Choices, ExplorerKnob
from rftlab.studies.explore.copy_as import FORMS, text_as
from rftlab.studies.explore.jobs import Job
from rftlab.studies.explore.measures import RunCost, group_signal

TILES = {
    "signal": ("Gradient signal-to-noise", "|mean|² over the variance of a round's gradient, at the base policy"),
    "silent": ("Zero-variance groups", "contexts whose advantages are all zero: first rounds, last rounds"),
    "effective": ("Effective batch", "contexts of a round that teach anything, mean over the run"),
    "rollouts": ("Rollouts", "responses sampled in training"),
    "tokens": ("Tokens", "of these responses, at the data set's usual length"),
    "seconds": ("Time on the GPU", "of the whole run; a dry run's estimate, not measured"),
}
THROTTLE = 0.03
"""Least seconds between two messages of a slider that is dragged."""
GROUPS = {"design": "Design", "update": "Update", "problem": "Problem"}
STEPS = (
    (
        "controls",
        "rftlab check says what your own run is, and what to try next. Here you rehearse a change before you pay for "
        "it. Drag a slider, and the learning curve of the design follows: three seeds, test solid, train dashed.",
    ),
    ("chart-card", "Pin a curve under a name, and compare at equal rounds, rollouts or estimated seconds."),
    ("heat-card", "Fill the map to see where more prompts beat more rollouts; a cell shows its curve. Below: copy it."),
)
"""Steps of the tour: the CSS class that each points at, and its text."""


def labelled(tag: str, text: str) -> ui.label:
    """Add a text in an element of its own, and return its label."""
    with ui.element(tag):
        return ui.label(text)


def paragraph(text: str) -> ui.label:
    """Add a line in small letters, and return its label."""
    return ui.label(text).classes("hint")


def progress_bar(label: str) -> ui.linear_progress:
    """Add a progress bar that does not lag two seconds behind, as the library's does."""
    bar = ui.linear_progress(value=0, show_value=False).props("instant-feedback")
    bar.props["aria-label"] = label
    return bar


class KnobSlider:
    """Slider with its title, its value and its description."""

    def __init__(self, knob: ExplorerKnob, changed: Callable[[str, float], None]):
        self.knob, self.changed, self.stops = knob, changed, [0.0]
        with ui.element("div").classes("knob"):
            with ui.element("div").classes("knob-head"):
                ui.label(knob.title)
                self.shown = ui.label().classes("knob-value")
            # the browser's own slider, because the library's has its label on an element without the focus
            self.slider = ui.element("input")
            self.slider.props.update({"type": "range", "min": 0, "max": 1, "step": 1, "value": 0})
            self.slider.props.update({"id": f"knob-{knob.name}", "aria-label": knob.title})
            self.slider.props["aria-describedby"] = f"hint-{knob.name}"
            ui.label(knob.help).classes("hint").props["id"] = f"hint-{knob.name}"
        self.slider.on("input", self._moved, throttle=THROTTLE, js_handler="(event) => emit(event.target.value)")

    def show(self, choices: Choices, origin: Simulation) -> None:
        """Put the slider at the value of the choices."""
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
    """Add all sliders in their groups, and return them by name."""
    every = {}
    for group, title in GROUPS.items():
        with ui.element("fieldset").classes("group"):
            labelled("legend", title)
            for knob in KNOBS:
                if knob.group == group:
                    every[knob.name] = KnobSlider(knob, changed)
    return every


class NumberTiles:
    """Numbers beside a curve."""

    def __init__(self) -> None:
        self.values: dict[str, ui.label] = {}
        with ui.element("dl").classes("tiles"):
            for name, (title, description) in TILES.items():
                with ui.element("div").classes("tile"):
                    labelled("dt", title)
                    with ui.element("dd"):
                        self.values[name] = ui.label("…")
                        self.values[name].props["id"] = f"tile-{name}"
                        paragraph(description)

    def show(self, job: Job | None, cost: RunCost | None) -> None:
        """Show the numbers of a job."""
        first, last, effective = group_signal(job.snapshot(), job.run.design.batch_size) if job else (float("nan"),) * 3
        signal = job.signal if job and job.signal is not None else float("nan")
        texts = {
            "signal": "lost in noise" if signal <= 0 else number(signal, ".3g"),
            "silent": f"{number(first, '.0%')} → {number(last, '.0%')}",
            "effective": number(effective, ".3g"),
            "rollouts": large(cost.rollouts) if cost else "…",
            "tokens": large(cost.tokens) if cost else "…",
            "seconds": duration_text(cost.seconds) if cost else "…",
        }
        for name, text in texts.items():
            if self.values[name].text != text:
                self.values[name].text = text


def progress_text(job: Job) -> str:
    """Return the progress of a job's runs in words."""
    design = job.run.design
    what = f"{job.seeds} seeds of {design.rounds:,} rounds"
    if job.diverged:
        return f"{what}; seed {', '.join(map(str, sorted(job.diverged)))} diverged: the curve ends before"
    if job.ended >= job.seeds:
        return f"{what}, done"
    return f"{what}: {'stopped' if job.stop.is_set() else 'running'}, {job.share:.0%}"


def number(value: float, form: str, none: str = "…") -> str:
    """Return a number as text in a format, or `none` where it is not finite."""
    return format(value, form) if isfinite(value) else none


def large(value: float) -> str:
    """Return a large number as text with a unit: 512 k, 1.02 G."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration_text(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def spent(value: float, axis: Axis) -> str:
    """Return a place on an axis as text."""
    return duration_text(value) if axis == "seconds" else large(value) if axis == "rollouts" else f"{value:,.0f}"


class PinTable:
    """Table of curves at equal spending, with a button that removes a pinned one."""

    def __init__(self, remove: Callable[[int], None]):
        self.remove = remove
        self.place = ui.element("div").classes("scroll")
        self.place.props["tabindex"] = "0"
        self.place.props["role"] = "region"
        self.place.props["aria-label"] = "Compared curves"
        self.shown: object = None

    def show(self, at: float, rows: list[ComparedCurve], axis: Axis, pins: list[str]) -> None:
        """Show the table, if it has changed. at: place on the axis where the rows are compared."""
        if self.shown == (at, rows, axis, pins):
            return
        self.shown = (at, rows, axis, pins)
        self.place.clear()
        there = spent(at, axis)
        heads = ("curve", "reached", "test there", f"test at {there}", f"train at {there}")
        with self.place, ui.element("table").classes("pins"):
            with ui.element("caption").classes("hint"):
                ui.label(f"Pass@1 at equal {TITLES[axis]}: where the shortest curve ends")
            with ui.element("thead"), ui.element("tr"):
                for head in (*heads, "pin"):
                    labelled("th", head)
            with ui.element("tbody"):
                for row in rows:
                    rates = (number(value, ".3f", "–") for value in (row.end, row.equal, row.train))
                    pinned = pins.index(row.name) if row.name in pins else None
                    self._row((row.name, spent(row.reached, axis), *rates), pinned)

    def _row(self, values: tuple[str, ...], place: int | None) -> None:
        with ui.element("tr"):
            for value in values:
                labelled("td", value)
            with ui.element("td"):
                if place is not None:
                    button = ui.button("remove", on_click=lambda: self.remove(place)).props(
                        "flat dense no-caps size=sm"
                    )
                    button.props["aria-label"] = f"remove {values[0]}"


class CopyBox:
    """Box with the design as text for another tool."""

    def __init__(self) -> None:
        self.choices = Choices()
        with ui.element("div").classes("row"):
            self.form = ui.toggle(list(FORMS), value="rftlab run", on_change=self._tell).props(
                "no-caps unelevated dense"
            )
            self.form.props["aria-label"] = "Copy as"
            ui.button("Copy", on_click=self._copy).props("no-caps outline dense").props["id"] = "copy"
        with ui.element("pre").classes("copy").props("tabindex=0 aria-label='Text to copy' role=region"):
            self.text = ui.label()
            self.text.props["id"] = "copy-text"

    def show(self, choices: Choices) -> None:
        """Show the text of these choices."""
        self.choices = choices
        self._tell()

    def _tell(self) -> None:
        self.text.text = text_as(self.form.value or "rftlab run", self.choices)

    def _copy(self) -> None:
        ui.clipboard.write(self.text.text)
        ui.notify("copied")


class Tour:
    """Tour: a card with a text, and a frame around the part of the page that it describes."""

    def __init__(self) -> None:
        self.step = len(STEPS)
        with ui.element("div").classes("card tour").props("role=region aria-label=Tour id=tour-card") as self.card:
            self.text = ui.label().props("role=status id=tour-text")
            with ui.element("div").classes("row"):
                self.forward = ui.button("Next", on_click=self.next).props("no-caps outline dense id=tour-next")
                ui.button("Close", on_click=self.end).props("no-caps flat dense id=tour-end")
        self.card.set_visibility(False)

    def begin(self) -> None:
        """Show the first step."""
        self.step = 0
        self._show()

    def next(self) -> None:
        """Show the next step, or end after the last."""
        self.step += 1
        self._show()

    def end(self) -> None:
        """End the tour."""
        self.step = len(STEPS)
        self._show()

    def _show(self) -> None:
        ends = self.step >= len(STEPS)
        self.card.set_visibility(not ends)
        for place, (name, text) in enumerate(STEPS):
            ui.query(f".{name}").classes(**{"add" if place == self.step else "remove": "pointed"})
            if place == self.step:
                self.text.text = f"{place + 1} of {len(STEPS)}: {text}"
        self.forward.text = "Done" if self.step == len(STEPS) - 1 else "Next"
