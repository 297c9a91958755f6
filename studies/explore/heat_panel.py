"""Show the map over (B, K) on the page, as a table of buttons, which keys and screen readers can use as well as a
mouse."""

from collections.abc import Callable

from nicegui import ui

from rftlab.studies.explore.chart import Axis
from rftlab.studies.explore.choices import Choices, Scene
from rftlab.studies.explore.jobs import (
    BATCHES,
    GROUPS,
    Bench,
    HeatCell,
    HeatJob,
    cell_colours,
    heat_cells,
    spent_in_all,
)
from rftlab.studies.explore.panels import labelled, paragraph, progress_bar, spent

FREE = ("B", "K", "rounds")
"""Sliders that may move without making a map outdated: its cells have their own B, K and rounds."""


class HeatPanel:
    """Panel with the map, its progress bar, and the buttons that begin and stop it."""

    def __init__(self, bench: Bench, fill: Callable[[], None], show: Callable[[Choices], None]):
        self.bench, self.filled = bench, Scene()
        self.job: HeatJob | None = None
        self.buttons: dict[tuple[int, int], ui.button] = {}
        self.drawn: object = None
        self.spent_text = ""
        labelled("h2", "Test Pass@1 over batch size and rollouts")
        with ui.element("div").classes("row"):
            ui.button("Fill the map", on_click=fill).props("no-caps outline dense id=heat-fill")
            ui.button("Stop", on_click=self.stop).props("no-caps outline dense id=heat-stop aria-label='Stop the map'")
            self.status = ui.label("not begun").classes("status").props("role=status id=heat-status")
        self.bar = progress_bar("part of the map")
        with ui.element("div").classes("scroll").props("tabindex=0 role=region aria-label='Map over B and K'"):
            self._table(show)
        paragraph(
            "One seed, the last evaluation, as many rounds, rollouts or seconds as the chart compares at, everything "
            "else as the sliders say. A cell shows its curve; an empty one says why."
        )

    def _table(self, show: Callable[[Choices], None]) -> None:
        with ui.element("table").classes("heat-map"):
            with ui.element("thead"), ui.element("tr"):
                for head in ("B \\ K", *map(str, GROUPS)):
                    labelled("th", head)
            with ui.element("tbody"):
                for batch in BATCHES:
                    with ui.element("tr"):
                        labelled("th", str(batch))
                        for group in GROUPS:
                            with ui.element("td"):
                                self._button(batch, group, show)

    def _button(self, batch: int, group: int, show: Callable[[Choices], None]) -> None:
        button = ui.button("", on_click=lambda: show(self._choices(batch, group)), color=None)
        button.props("flat dense no-caps")
        button.props["aria-label"] = f"B {batch}, K {group}"
        button.props["id"] = f"heat-{batch}-{group}"
        self.buttons[batch, group] = button

    def _choices(self, batch: int, group: int) -> Choices:
        """Return the choices of a cell, with the rounds of its run where it has one."""
        choices = self.filled.choices.moving("B", batch).moving("K", group)
        cells = self.job.cells if self.job else []
        runs = [cell.run for cell in cells if (cell.batch, cell.group) == (batch, group) and cell.run]
        return choices.moving("rounds", runs[0].design.rounds) if runs else choices

    def fill(self, scene: Scene, seconds: Callable[[Choices], float | None]) -> None:
        """Fill the map for a scene. Raises UserError where its choices are not allowed."""
        self.stop()
        axis: Axis = scene.axis
        self.spent_text = (
            f"{spent(spent_in_all(scene.choices, axis, seconds), axis)} {axis if axis != 'seconds' else ''}"
        )
        self.job, self.filled = self.bench.fill(heat_cells(scene.choices, axis, seconds)), scene

    def stop(self) -> None:
        """Stop filling the map."""
        if self.job is not None:
            self.job.stop.set()

    def show(self, scene: Scene) -> bool:
        """Show the known values, and whether they match the present choices. Returns whether the map is complete."""
        if self.job is None:
            self.filled = scene
            return True
        done = self.job.done  # read before the values, so that a cell that ends in between is drawn the next time
        old = self.filled.axis != scene.axis or _rest(self.filled.choices) != _rest(scene.choices)
        here = (int(scene.choices.value("B")), int(scene.choices.value("K")))
        state = (id(self.job), len(self.job.values), done, old, here)
        if self.drawn == state:
            return done
        self.drawn = state
        values = dict(self.job.values)
        low, high = (min(values.values(), default=0.0), max(values.values(), default=1.0))
        for cell in self.job.cells:
            value = values.get((cell.batch, cell.group))
            self._paint(cell, value, low, high)
            self._mark(self.buttons[cell.batch, cell.group], (cell.batch, cell.group) == here and not old)
        self._tell(self.job, len(values), done, old)
        return done

    def _tell(self, job: HeatJob, known: int, done: bool, old: bool) -> None:
        whole = sum(cell.run is not None for cell in job.cells)
        self.bar.value = known / whole if whole else 1.0
        state = "stopped" if job.stop.is_set() and known < whole else "done" if done else "filling"
        left = f", {len(job.cells) - whole} left out" if len(job.cells) > whole else ""
        asks = "; of other choices than the sliders have now: fill it again" if old else ""
        self.status.text = (
            job.failed or f"{known} of {whole} cells{left}, {state}, at {self.spent_text.strip()} each{asks}"
        )

    def _mark(self, button: ui.button, here: bool) -> None:
        """Draw a frame around the cell at the sliders' values, or remove it."""
        if here != ("here" in button.classes):
            button.classes(**{"add" if here else "remove": "here"})

    def _paint(self, cell: HeatCell, value: float | None, low: float, high: float) -> None:
        button = self.buttons[cell.batch, cell.group]
        text = "" if value is None else f"{value:.2f}"
        back, ink = cell_colours(value, low, high) if value is not None else ("transparent", "inherit")
        description = f"{cell.name}: {f'{value:.3f}' if value is not None else cell.why or 'not yet'}"
        if (button.text, button.props["aria-label"], button.style.get("background-color")) != (text, description, back):
            button.text = text
            button.style(f"background-color: {back} !important; color: {ink} !important")
            button.props["aria-label"] = button.props["title"] = description
            button.update()


def _rest(choices: Choices) -> Choices:
    """Return choices without the sliders that each cell of a map sets itself."""
    return Choices(choices.start, choices.estimator, tuple(one for one in choices.moved if one[0] not in FREE))
