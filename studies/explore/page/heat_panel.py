"""The map over (B, K) on the page: a table of buttons, so that keys and screen readers have what a mouse has."""

from collections.abc import Callable

from nicegui import ui

from rftlab.studies.explore.heat import BATCHES, GROUPS, HeatCell, colours
from rftlab.studies.explore.jobs import HeatJob
from rftlab.studies.explore.page.panels import heading, paragraph


class HeatPanel:
    """The map, its bar, and the buttons that begin and stop it."""

    def __init__(self, fill: Callable[[], None], stop: Callable[[], None], show: Callable[[int, int], None]):
        self.buttons: dict[tuple[int, int], ui.button] = {}
        self.drawn: object = None
        heading("Test Pass@1 over batch size and rollouts")
        with ui.element("div").classes("row"):
            ui.button("Fill the map", on_click=fill).props("no-caps outline dense id=heat-fill")
            ui.button("Stop", on_click=stop).props("no-caps outline dense id=heat-stop aria-label='Stop the map'")
            self.status = ui.label("not begun").classes("status").props("role=status id=heat-status")
        self.bar = ui.linear_progress(value=0, show_value=False).props("aria-label='part of the map'")
        with ui.element("div").classes("scroll").props("tabindex=0 role=region aria-label='Map over B and K'"):
            self._table(show)
        paragraph("One seed, the last evaluation, everything else as the sliders say; a cell shows its curve.")

    def _table(self, show: Callable[[int, int], None]) -> None:
        with ui.element("table").classes("heat-map"):
            with ui.element("thead"), ui.element("tr"):
                for head in ("B \\ K", *map(str, GROUPS)):
                    with ui.element("th"):
                        ui.label(head)
            with ui.element("tbody"):
                for batch in BATCHES:
                    with ui.element("tr"):
                        with ui.element("th"):
                            ui.label(str(batch))
                        for group in GROUPS:
                            with ui.element("td"):
                                self._button(batch, group, show)

    def _button(self, batch: int, group: int, show: Callable[[int, int], None]) -> None:
        button = ui.button("", on_click=lambda: show(batch, group), color=None).props("flat dense no-caps")
        button.props["aria-label"] = f"B {batch}, K {group}"
        button.props["id"] = f"heat-{batch}-{group}"
        self.buttons[batch, group] = button

    def show(self, job: HeatJob | None) -> None:
        """What is known so far."""
        values = dict(job.values) if job else {}
        if job is None or self.drawn == (id(job), len(values), job.done):
            return
        self.drawn = (id(job), len(values), job.done)
        low, high = (min(values.values(), default=0.0), max(values.values(), default=1.0))
        for cell in job.cells:
            self._paint(cell, values.get((cell.batch, cell.group)), low, high)
        whole = sum(cell.run is not None for cell in job.cells)
        self.bar.value = len(values) / whole if whole else 1.0
        state = "stopped" if job.stop.is_set() and len(values) < whole else "done" if job.done else "filling"
        left = f", {len(job.cells) - whole} left out" if len(job.cells) > whole else ""
        self.status.text = job.failed or f"{len(values)} of {whole} cells{left}, {state}"

    def _paint(self, cell: HeatCell, value: float | None, low: float, high: float) -> None:
        button = self.buttons[cell.batch, cell.group]
        text = "" if value is None else f"{value:.2f}"
        back, ink = colours(value, low, high) if value is not None else ("transparent", "inherit")
        look = {"background-color": back, "color": ink}
        if button.text != text or button.style.get("background-color") != back:
            button.text = text
            button.style(f"background-color: {look['background-color']} !important; color: {look['color']} !important")
            told = f"{value:.3f}" if value is not None else cell.why or "not yet"
            button.props["aria-label"] = f"{cell.name}: {told}"
            button.update()
