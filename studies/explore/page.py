"""Build the page of the explorer, one for each visitor with a state of its own."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from nicegui import run, ui

from rftlab.shared.cards import CARDS, PRESETS
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.explore.chart import (
    AXES,
    Frames,
    ShownCurve,
    compare_at_equal,
    curve_chart,
    export_chart,
)
from rftlab.studies.explore.choices import (
    GPU_NAMES,
    PRESETS_BY_NAME,
    Choices,
    Scene,
    cell_choices,
    chosen_run,
    field_help,
    restored,
    to_address,
)
from rftlab.studies.explore.heat_panel import HeatPanel
from rftlab.studies.explore.jobs import Bench, Job
from rftlab.studies.explore.measures import NONE, RunCost, real_runs, run_cost, sources_in, start_names
from rftlab.studies.explore.panels import (
    CopyBox,
    NumberTiles,
    PinTable,
    Tour,
    labelled,
    paragraph,
    progress_bar,
    progress_text,
    sliders,
)

TICK = 0.02
"""Seconds between two updates of the page from running simulations."""
STYLE = (files("rftlab.studies") / "assets" / "explore.css").read_text(encoding="utf-8")
NOW = "now"
"""Name of the curve that follows the sliders."""


@dataclass
class Setting:
    """State that all pages of a server share: threads that simulate, and the folder of real runs."""

    bench: Bench
    results: Path | None = None
    """Results folder that was given, if any."""
    toured: bool = False
    """Whether a visitor has seen the tour."""


class ExplorerPage:
    """Page of one visitor."""

    def __init__(self, setting: Setting, query: str):
        self.setting, self.bench = setting, setting.bench
        self.real: list[ShownCurve] = []
        self.scene, complaint = restored(query)
        self.job: Job | None = None
        self.pinned: list[Job] = [self.bench.start(chosen_run(pin.choices)) for pin in self.scene.pins]
        self.frames = Frames()
        self._build()
        self.timer = ui.timer(TICK, self._tick)
        self._reset()
        if complaint:
            self.complain(complaint)
        elif not query and not setting.toured:
            self._begin_tour()

    def _build(self) -> None:
        ui.add_css(STYLE)
        ui.colors(primary="#0b5cad")
        self.dark = ui.dark_mode(self.scene.dark)
        with ui.element("div").classes("page"):
            self._head()
            self.tour = Tour()
            with ui.element("div").classes("columns"):
                with ui.element("section").classes("controls card").props("aria-label=Controls"):
                    self.sliders = sliders(self._moved)
                with ui.element("section").classes("results").props("aria-label=Results"):
                    self._results()

    def _head(self) -> None:
        with ui.element("div").classes("bar"):
            labelled("h1", "rftlab explore")
            with ui.element("div").classes("field"):
                self.start = ui.select(list(start_names()), label="Pair or calibration", value=self.scene.choices.start)
                paragraph(field_help(Choices, "start"))
            titles = {name: f"{name}: {CARDS[name].title}" for name in PRESETS}
            with ui.element("div").classes("field wide"):
                self.estimator = ui.select(
                    titles, label="Estimator", value=self.scene.choices.estimator, with_input=True
                )
                self.formula = paragraph("").props("id=formula")
            with ui.element("div").classes("field wide"):
                self.preset = ui.select(list(PRESETS_BY_NAME), label="Design of an experiment", clearable=True)
                paragraph("The sliders go where a cell of the paper's experiments has them.")
            dark = ui.switch("Dark", value=self.scene.dark)
            ui.button("Tour", on_click=self._begin_tour).props("no-caps flat dense id=tour")
        self.start.on_value_change(lambda event: self._chosen(start=event.value))
        self.estimator.on_value_change(lambda event: self._chosen(estimator=event.value))
        self.preset.on_value_change(lambda event: self._take(event.value))
        dark.on_value_change(lambda event: self._show(dark=bool(event.value)))

    def _results(self) -> None:
        self.error = ui.label().classes("error").props("role=alert id=error")
        with ui.element("div").classes("card chart-card"):
            with ui.element("div").classes("row"):
                ui.label("Equal")
                axis = ui.toggle(list(AXES), value=self.scene.axis).props("no-caps unelevated dense aria-label='Equal'")
                self.name = ui.input("Name").props("dense maxlength=80")
                ui.button("Pin", on_click=self._pin).props("no-caps outline dense id=pin")
                over = ui.select(list(sources_in(self.setting.results)), label="Real runs", value=self._over())
                ui.button("Stop", on_click=self._stop).props("no-caps outline dense id=stop")
            paragraph(f"{field_help(Scene, 'axis')} {field_help(Scene, 'over')}")
            self.chart = ui.echart(curve_chart([])).classes("chart")
            self.bar = progress_bar("part simulated")
            self.status = ui.label().classes("status").props("role=status id=status")
            self.table = PinTable(self._remove)
            with ui.element("div").classes("row"):
                for kind in ("png", "svg", "csv"):
                    ui.button(kind.upper(), on_click=partial(self._export, kind)).props(
                        f"no-caps flat dense id=export-{kind} aria-label='Export {kind.upper()}'"
                    )
        with ui.element("div").classes("card heat-card"):
            self.heat = HeatPanel(self.bench, self._fill, self._show_cell)
        with ui.element("div").classes("card"):
            labelled("h2", "Signal and cost of a round")
            self.tiles = NumberTiles()
            gpu = ui.select(list(GPU_NAMES), label="GPU", value=self.scene.gpu)
            paragraph(field_help(Scene, "gpu"))
            self.cost_text = paragraph("")
        with ui.element("div").classes("card"):
            labelled("h2", "Copy as")
            self.copy = CopyBox()
            labelled("h2", "Link")
            self.link = ui.link("this page, as it is", "?").props("id=link")
            paragraph("The address lasts as long as this server. The same page another day:")
            with ui.element("pre").classes("copy").props("tabindex=0 role=region aria-label='Command of this page'"):
                self.again = ui.label().props("id=again")
        over.on_value_change(lambda event: self._show(over=event.value))
        axis.on_value_change(lambda event: self._show(axis=event.value))
        gpu.on_value_change(lambda event: self._show(gpu=event.value))

    def _begin_tour(self) -> None:
        self.setting.toured = True
        self.tour.begin()

    def complain(self, text: str) -> None:
        """Show an error in one line."""
        self.error.text = text

    def _show(self, **parts: Any) -> None:
        """Show the same choices in another way."""
        self.scene = replace(self.scene, **parts)
        self._describe()

    def _chosen(self, **parts: str | None) -> None:
        """Take another pair or estimator with its own numbers; the sliders of the design stay."""
        given = {name: value for name, value in parts.items() if value}
        choices = self.scene.choices
        if given and any(getattr(choices, name) != value for name, value in given.items()):
            kept = tuple((name, value) for name, value in choices.moved if name in ("B", "K", "M", "rounds"))
            fresh = Choices(given.get("start", choices.start), given.get("estimator", choices.estimator), kept)
            self.scene = replace(self.scene, choices=fresh)
            self._reset()

    def _take(self, name: str | None) -> None:
        """Take the design of an experiment."""
        if name:
            self.scene = replace(self.scene, choices=cell_choices(self.scene.choices.start, PRESETS_BY_NAME[name]))
            self.estimator.value = self.scene.choices.estimator
            self._reset()

    def _reset(self) -> None:
        """Put all sliders at the values of the choices."""
        choices = self.scene.choices
        origin = choices.origin
        for slider in self.sliders.values():
            slider.show(choices, origin)
        self.formula.text = CARDS[choices.estimator].formula
        self._run()

    def _moved(self, name: str, value: float) -> None:
        self.scene = replace(self.scene, choices=self.scene.choices.moving(name, value))
        self._run()

    def _run(self) -> None:
        """Simulate the choices, and stop the run before."""
        self._stop()
        try:
            self.job = self.bench.start(chosen_run(self.scene.choices))
            self.complain("")
        except UserError as error:
            self.job = None
            self.complain(str(error))
        self.status.text = progress_text(self.job) if self.job else "nothing runs"
        self._describe()

    def _describe(self) -> None:
        """Update the texts that depend on the choices and need no simulation."""
        self.costs = {
            choices: self._cost(choices) for choices in (self.scene.choices, *(p.choices for p in self.scene.pins))
        }
        cost = self.costs[self.scene.choices]
        self.cost_text.text = cost.description if cost else ""
        self.copy.show(self.scene.choices)
        address = to_address(self.scene)
        self.link.props["href"] = f"?{address}"
        self.again.text = f"rftlab explore --state {shlex.quote(address)}"
        self.real = self._real()
        self.dark.value = self.scene.dark
        self.frames = Frames()
        self.timer.activate()

    def _over(self) -> str:
        """Return the scene's source of real runs, or `none` where it does not exist."""
        return self.scene.over if self.scene.over in sources_in(self.setting.results) else NONE

    def _real(self) -> list[ShownCurve]:
        """Return the real runs of the present design."""
        try:
            design = chosen_run(self.scene.choices).design
            shown = real_runs(self.scene.over, self.scene.choices.start, design, self.setting.results)
        except UserError as error:
            self.complain(str(error))
            return []
        cost = self.costs[self.scene.choices]
        return [one._replace(seconds=cost.round_seconds if cost else None) for one in shown]

    async def _export(self, kind: str) -> None:
        """Send the chart to the browser as a file."""
        curves = self._curves()
        if not curves:
            return self.complain("there is no curve yet")
        content = await run.io_bound(export_chart, curves, self.scene.axis, kind)
        ui.download.content(content, f"rftlab-explore.{kind}")

    def _cost(self, choices: Choices) -> RunCost | None:
        try:
            return run_cost(choices.start, chosen_run(choices), self.scene.gpu)
        except UserError:
            return None

    def _pin(self) -> None:
        try:
            if self.job is None:
                raise UserError("nothing runs that could be pinned")
            self.scene = self.scene.pinning(self.name.value or "")
        except UserError as error:
            return self.complain(str(error))
        self.pinned.append(self.job)
        self.name.value = ""
        self.job = self.bench.start(self.job.run)
        self._describe()

    def _remove(self, place: int) -> None:
        self.pinned.pop(place).stop.set()
        self.scene = self.scene.without(place)
        self._describe()

    def _stop(self) -> None:
        if self.job is not None:
            self.job.stop.set()

    def _fill(self) -> None:
        """Fill the map for the sliders' values."""
        try:
            self.heat.fill(self.scene, self._round_seconds)
        except UserError as error:
            self.complain(str(error))
        self.timer.activate()

    def _round_seconds(self, choices: Choices) -> float | None:
        cost = self._cost(choices)
        return cost.round_seconds if cost else None

    def _show_cell(self, choices: Choices) -> None:
        """Show the curve of a cell of the map."""
        self.scene = replace(self.scene, choices=choices)
        self.start.value, self.estimator.value = choices.start, choices.estimator
        self._reset()

    def leave(self) -> None:
        """Stop all jobs when the visitor has left."""
        self.heat.stop()
        for job in (self.job, *self.pinned):
            if job is not None:
                job.stop.set()

    def _jobs(self) -> list[tuple[str, Choices, Job]]:
        """Return names, choices and jobs of the shown curves, the present one first."""
        now = [(NOW, self.scene.choices, self.job)] if self.job else []
        pins = [(pin.name, pin.choices, job) for pin, job in zip(self.scene.pins, self.pinned, strict=True)]
        return [*now, *pins]

    def _curves(self) -> list[ShownCurve]:
        curves = []
        for name, choices, job in self._jobs():
            cost = self.costs.get(choices)
            seconds = cost.round_seconds if cost else None
            curves.append(ShownCurve(name, job.snapshot(), seconds, alone=name == NOW, design=job.run.design))
        return [shown for shown in curves if shown.seeds] + self.real

    def _tick(self) -> None:
        """Show the points that came since the last update."""
        jobs = [job for _, _, job in self._jobs()]
        done = [job.done for job in jobs]  # read before the curves, so that points in between are drawn the next time
        stages = [job.stage for job in jobs]
        curves = self._curves()
        points = [len(curve.round) for shown in curves for curve in shown.seeds]
        if self.frames.due((done, stages), points, time.monotonic()):
            self._draw(curves)
        whole = self.heat.show(self.scene)
        if all(done) and whole:
            self.timer.deactivate()

    def _draw(self, curves: list[ShownCurve]) -> None:
        options = curve_chart(curves, self.scene.axis, self.scene.dark)
        self.chart.options.clear()
        self.chart.options.update(options)
        self.chart.update()
        at, rows = compare_at_equal(curves, self.scene.axis)
        self.table.show(at, rows, self.scene.axis, [pin.name for pin in self.scene.pins])
        self.tiles.show(self.job, self.costs[self.scene.choices])
        job = self.job
        if job is not None:
            self.bar.value = job.share
            self.status.text = progress_text(job)
            if job.failed:
                self.complain(job.failed)


def pages(setting: Setting) -> Callable[[], None]:
    """Return the function that builds a page for each visitor."""

    def root() -> None:
        client = ui.context.client
        page = ExplorerPage(setting, client.request.url.query)
        client.on_delete(page.leave)

    return root
