"""Parts of the page beside the sliders: numbers, pinned curves, text to copy."""

from collections.abc import Callable
from math import isfinite

from nicegui import ui

from rftlab.studies.explore.chart import TITLES, Axis
from rftlab.studies.explore.choices import Choices
from rftlab.studies.explore.comparison import EqualSpending
from rftlab.studies.explore.copy_as import FORMS, text_as
from rftlab.studies.explore.jobs import Job
from rftlab.studies.explore.measures import RunCost, groups_of

TILES = {
    "signal": ("Gradient signal-to-noise", "|mean|² over the variance of a round's gradient, at the base policy"),
    "silent": ("Silent groups", "contexts whose advantages are all zero: first rounds, last rounds"),
    "effective": ("Effective batch", "contexts of a round that teach anything, mean over the run"),
    "rollouts": ("Rollouts", "responses sampled in training"),
    "tokens": ("Tokens", "of these responses, at the data set's usual length"),
    "seconds": ("Time on the GPU", "of the whole run; a dry run's estimate, not measured"),
}


def heading(text: str, level: int = 2) -> None:
    """A heading."""
    with ui.element(f"h{level}"):
        ui.label(text)


def paragraph(text: str) -> ui.label:
    """A line in small letters."""
    return ui.label(text).classes("hint")


def progress_bar(label: str) -> ui.linear_progress:
    """A bar that does not lag two seconds behind, as the library's does."""
    bar = ui.linear_progress(value=0, show_value=False).props("instant-feedback")
    bar.props["aria-label"] = label
    return bar


class NumberTiles:
    """The numbers beside a curve."""

    def __init__(self) -> None:
        self.values: dict[str, ui.label] = {}
        with ui.element("dl").classes("tiles"):
            for name, (title, description) in TILES.items():
                with ui.element("div").classes("tile"):
                    with ui.element("dt"):
                        ui.label(title)
                    with ui.element("dd"):
                        self.values[name] = ui.label("…")
                        self.values[name].props["id"] = f"tile-{name}"
                        paragraph(description)

    def show(self, job: Job | None, cost: RunCost | None) -> None:
        """The numbers of what runs."""
        groups = groups_of(job.snapshot() if job else [], job.run.design.batch_size if job else 0)
        signal = job.signal.ratio if job and job.signal else float("nan")
        texts = {
            "signal": number(signal),
            "silent": f"{percent(groups.first)} → {percent(groups.last)}",
            "effective": number(groups.effective),
            "rollouts": large(cost.rollouts) if cost else "…",
            "tokens": large(cost.tokens) if cost else "…",
            "seconds": duration(cost.seconds) if cost else "…",
        }
        for name, text in texts.items():
            if self.values[name].text != text:
                self.values[name].text = text


def progress_of(job: Job) -> str:
    """How far the runs are, in words."""
    design = job.run.design
    what = f"{job.seeds} seeds of {design.rounds:,} rounds"
    if job.diverged:
        return f"{what}; seed {', '.join(map(str, sorted(job.diverged)))} diverged: the curve ends before"
    if job.ended >= job.seeds:
        return f"{what}, done"
    return f"{what}: {'stopped' if job.stop.is_set() else 'running'}, {job.share:.0%}"


def number(value: float) -> str:
    """Three digits; … for none."""
    return f"{value:.3g}" if isfinite(value) else "…"


def three(value: float) -> str:
    """Three decimals; – for none."""
    return f"{value:.3f}" if isfinite(value) else "–"


def percent(value: float) -> str:
    """Whole percents; … for none."""
    return f"{value:.0%}" if isfinite(value) else "…"


def large(value: float) -> str:
    """With a unit: 512 k, 1.02 G."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def spent(value: float, axis: Axis) -> str:
    """A place on an axis."""
    return duration(value) if axis == "seconds" else large(value) if axis == "rollouts" else f"{value:,.0f}"


class PinTable:
    """Curves at equal spending, with a button that takes a pinned one away."""

    def __init__(self, remove: Callable[[int], None]):
        self.remove = remove
        self.place = ui.element("div").classes("scroll")
        self.place.props["tabindex"] = "0"
        self.place.props["role"] = "region"
        self.place.props["aria-label"] = "Compared curves"
        self.shown: object = None

    def show(self, equal: EqualSpending, axis: Axis, pins: list[str]) -> None:
        """The table, if it is another one."""
        if self.shown == (equal, axis, pins):
            return
        self.shown = (equal, axis, pins)
        self.place.clear()
        there = spent(equal.at, axis)
        heads = ("curve", "reached", "test there", f"test at {there}", f"train at {there}")
        with self.place, ui.element("table").classes("pins"):
            with ui.element("caption").classes("hint"):
                ui.label(f"Pass@1 at equal {TITLES[axis]}: where the shortest curve ends")
            with ui.element("thead"), ui.element("tr"):
                for head in (*heads, "pin"):
                    with ui.element("th"):
                        ui.label(head)
            with ui.element("tbody"):
                for row in equal.rows:
                    values = (
                        row.name,
                        spent(row.reached, axis),
                        *(three(v) for v in (row.end, row.equal, row.train)),
                    )
                    self._row(values, pins.index(row.name) if row.name in pins else None)

    def _row(self, values: tuple[str, ...], place: int | None) -> None:
        with ui.element("tr"):
            for value in values:
                with ui.element("td"):
                    ui.label(value)
            with ui.element("td"):
                if place is not None:
                    button = ui.button("remove", on_click=lambda: self.remove(place)).props(
                        "flat dense no-caps size=sm"
                    )
                    button.props["aria-label"] = f"remove {values[0]}"


class CopyBox:
    """The design as text for another tool."""

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
        """The text of these choices."""
        self.choices = choices
        self._tell()

    def _tell(self) -> None:
        self.text.text = text_as(self.form.value or "rftlab run", self.choices)

    def _copy(self) -> None:
        ui.clipboard.write(self.text.text)
        ui.notify("copied")
