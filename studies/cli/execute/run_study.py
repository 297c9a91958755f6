"""Run one study at one level and print its endpoints."""

from dataclasses import replace

from rich.box import HEAVY_HEAD
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.sim.config import Simulation
from rftlab.studies.cli.run import StudyCommand
from rftlab.studies.console.table import Table
from rftlab.studies.data.paper.experiments import Experiment
from rftlab.studies.data.results.endpoints import endpoint_table
from rftlab.studies.data.results.gains import gain_table
from rftlab.studies.data.results.language import cost_table, has_costs
from rftlab.studies.data.runs.finish import finish_points, threads_of
from rftlab.studies.data.runs.points import Point
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.store import open_store


def run_study(
    console: Console, command: StudyCommand, chosen: Experiment, start: Simulation | LLMRun, changed: list[str]
) -> None:
    """Run the cells of a study from `start`; `changed` names what is not the pair's own."""
    points = [
        Point(command.pair, replace(start, design=cell, seed=seed))
        for cell in chosen.cells
        for seed in range(command.seeds)
    ]
    finish_points(
        console, open_store(command.results), points, threads_of(command.threads), command.quiet, command.engine
    )
    results = collect(command.results, points)
    _show_endpoints(console, chosen, command.pair, results.curves, changed)
    console.print(gain_table(results.curves))
    if has_costs(results.curves):
        console.print(cost_table(results.curves))
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)


def _show_endpoints(console: Console, chosen: Experiment, pair_name: str, curves, changed: list[str]) -> None:
    names = ("cell", "split", "Pass@1", "95% interval", *(() if changed else ("published",)))
    title = f"{chosen.title}: {pair_name}"
    table = Table(*names, title=title, align="left", wrap="letters", box=HEAVY_HEAD)
    rows = endpoint_table(curves, [chosen], [pair_name])
    for row in rows[rows["experiment"] == chosen.name].itertuples():
        interval = "" if row.low != row.low else f"{row.low:.3f} to {row.high:.3f}"
        published = "" if row.published != row.published else f"{row.published:.2f}"
        table.add(row.cell, row.split, f"{row.mean:.3f}", interval, *(() if changed else (published,)))
    console.print(table)
    if changed and rows["published"].notna().any():
        console.print(
            f"published numbers are left out: not the pair's own are {', '.join(changed)}", markup=False, soft_wrap=True
        )
