"""Show imported runs as tables in the terminal and as one self-contained page: those of one collection, those that
`rftlab run` and `rftlab train` left in a folder, or levels side by side.

Texts of logs are never interpreted: they are printed without markup, and escaped in the page.
"""

from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.imported import figures
from rftlab.studies.analysis.imported.ends import (
    CommonDesign,
    Ends,
    advice_on,
    common,
    ends_table,
    measure_ends,
    shared_places,
)
from rftlab.studies.analysis.imported.figures import AXES, named
from rftlab.studies.analysis.imported.groups import MEASURES, RunGroups, measures_in, source_groups
from rftlab.studies.analysis.imported.own import own_runs
from rftlab.studies.analysis.source import RunSource, free_source
from rftlab.studies.console.table import Column, Table, number, say, write_numbers
from rftlab.studies.data.results.stats import Mean
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.readers.run import FACTS
from rftlab.studies.readers.show import TERMS, alike_runs
from rftlab.studies.report.report import Plan, draw_all, signed, template

MAX_DESIGNS, MAX_PLACES = 500, 100
"""Largest numbers of designs, and of models and tasks, on a page; larger pictures cannot be drawn."""
MAX_ROWS = 40
"""Largest number of rows of a table in the terminal; files and page have all."""


SEVERAL = "Levels of evidence side by side, whatever their designs"


class CollectionView(NamedTuple):
    """Numbers of a page on one level or several."""

    sides: list[RunGroups]
    axis: str
    rounds: int
    rollouts: int | None
    seconds: float | None
    ends: list[Ends]
    pairs: list[tuple[str, str, list[CommonDesign]]]
    """Names and common designs of each two levels."""


def collection_view(sides: list[RunGroups], axis: str) -> CollectionView:
    """Compute the numbers of a page. Raises UserError for an axis on which no run has a place, and for more designs,
    models or tasks than fit on a page."""
    designs = sum(len(side.groups) for side in sides)
    places = len({(side.name, group.place) for side in sides for group in side.groups})
    check(
        designs <= MAX_DESIGNS and places <= MAX_PLACES,
        f"{designs} designs on {places} models and tasks; allowed on a page: at most {MAX_DESIGNS} on {MAX_PLACES}; "
        "NAME/TASK and NAME#RUN are parts of a source",
    )
    rounds, rollouts, seconds = shared_places(sides)
    check(
        axis != "seconds" or seconds is not None,
        "axis = seconds: no log here tells the seconds of its evaluations; allowed: rounds, fraction, rollouts",
    )
    ends = {side.name: measure_ends(side, rounds, rollouts, seconds) for side in sides}
    pairs = [(a.name, b.name, common(ends[a.name], ends[b.name])) for a, b in combinations(sides, 2)]
    return CollectionView(sides, axis, rounds, rollouts, seconds, [one for own in ends.values() for one in own], pairs)


def write_view(console: Console, view: CollectionView, folder: Path, page: str, title: str, quiet: bool) -> Path:
    """Draw, write the page and its tables as CSV into the folder, and print the tables. Returns the page's path."""
    check_writable(folder)
    with step_progress(console, "drawing figures", quiet) as step:
        drawn = draw_all(folder_below(folder, "figures"), _plans(view), step)
    write_numbers(folder / "ends.csv", ends_table(view.ends))
    if view.pairs:
        write_numbers(folder / "common.csv", _common_table(view))
    text = template("imported.html.j2").render(_context(view, drawn, title))
    write_file(folder / page, text.encode())
    show_view(console, view)
    say(console, f"page: {folder / page}")
    return folder / page


def _plans(view: CollectionView) -> dict[str, Plan]:
    plans: dict[str, Plan] = {"ends": lambda: figures.ends_figure(view.ends, view.sides[0].measure)}
    for axis in dict.fromkeys((view.axis, "rollouts", "seconds")):
        if figures.has_curves(view.sides, axis):
            name = "curves" if axis == view.axis else f"curves-{axis}"
            plans[name] = partial(figures.curves_figure, view.sides, axis)
    for i, side in enumerate(view.sides, 1):
        if figures.logged(list(side.runs)):
            plans[f"training-{i}"] = partial(figures.training_figure, list(side.runs))
    return plans


def _context(view: CollectionView, drawn: dict[str, Markup], title: str) -> dict[str, Any]:
    return {
        "title": title,
        "view": view,
        "figures": drawn,
        "measure": named(view.sides[0].measure),
        "axis": AXES[view.axis],
        "terms": TERMS,
        "facts": FACTS,
        "designs": [(side, alike_runs(side.runs)) for side in view.sides],
        "facets": {
            "pair": {one.group.place: one.group.place for one in view.ends},
            "level": {side.name: side.name for side in view.sides},
        },
        "advice": advice_on(view.ends),
        "subtitle": SEVERAL if len(view.sides) > 1 else "Runs in rftlab's terms",
        "text": measured_text,
        "number": number,
        "left": left_to_compare,
        "about": {"axis": view.axis, "commit": commit(), **versions()},
    }


def left_to_compare(view: CollectionView) -> str:
    """Return the sentence for a page without a common design: what is left to compare."""
    spent = ", rollouts" if view.rollouts else " (rollouts need B and K of both)"
    timed = ", seconds" if view.seconds else ""
    return f"Left to compare: curves after as many rounds{spent}{timed}; gains; noise."


def measured_text(measured: Mean, sign: bool = False) -> str:
    """Return a number with half of its 95% interval where that is known; "" where there is no number."""
    if not np.isfinite(measured.value):
        return ""
    value = signed(measured.value) if sign else f"{measured.value:.3f}"
    return f"{value} ± {measured.half:.3f}" if np.isfinite(measured.half) else value


def _common_table(view: CollectionView) -> pd.DataFrame:
    columns = "first second first_design second_design first_task second_task unknown end end_half gain gain_half"
    rows = []
    for first, second, designs in view.pairs:
        for one in designs:
            a, b = one.first.group, one.second.group
            numbers = one.end.value, one.end.half, one.gain.value, one.gain.half
            rows.append((first, second, a.label, b.label, a.task, b.task, " ".join(one.unknown), *numbers))
    return pd.DataFrame(rows, columns=columns.split())


def show_view(console: Console, view: CollectionView) -> None:
    """Print the tables of a page."""
    for side in view.sides:
        console.print(Text(f"{side.name}: {side.source}, by {named(side.measure)}", style="dim"), soft_wrap=True)
    panels: dict[str, list[Ends]] = {}
    for one in view.ends:
        panels.setdefault(" · ".join(filter(None, (one.side, one.group.model, one.group.task))), []).append(one)
    for title, own in panels.items():
        table = _table(view, title)
        for one in own[:MAX_ROWS]:
            table.add(*_cells(one, view))
        console.print(table)
        if len(own) > MAX_ROWS:
            say(console, f"{len(own) - MAX_ROWS} more are in the page and in ends.csv", "dim")
    half = "±: half of a 95% interval over runs, or of one run over its answers, without the spread of training"
    say(console, f"{half}\nnoise: of one evaluation about a smooth curve", "dim")
    for pair in view.pairs:
        _show_common(console, view, *pair)


def _table(view: CollectionView, title: str) -> Table:
    at = f"at {view.rollouts:,} rollouts" if view.rollouts else f"at round {view.rounds}"
    at = f"at {view.seconds:,.0f} seconds" if view.axis == "seconds" else at
    columns = [
        Column(name, wrap="never") if name in ("end", "gain") else Column(name, least=5 if i else 11)
        for i, name in enumerate(("design", "runs", "rounds", "base", "end", "gain", at, "noise"))
    ]
    return Table(*columns, title=title, padding=(0, 1, 0, 0))


def _cells(one: Ends, view: CollectionView) -> list[str]:
    group = one.group
    texts = [group.label, str(len(group.runs)), str(group.last), number(one.base.value), measured_text(one.end)]
    at = one.at_seconds if view.axis == "seconds" else one.at_rollouts if view.rollouts else one.at_rounds
    values = (at, one.between_evaluations)
    return [*texts, measured_text(one.gain, True), *map(number, values)]


def _show_common(console: Console, view: CollectionView, first: str, second: str, designs: list[CommonDesign]) -> None:
    if not designs:
        say(console, f"{first} and {second} have no design in common.", "dim")
        say(console, left_to_compare(view), "dim")
        return
    names = ("first", "second", "end: second less first", "gain: second less first", "taken as equal")
    table = Table(*names, title=f"designs of {first} and of {second}", align="left")
    for one in designs[:MAX_ROWS]:
        labels = (_place(one.first), _place(one.second))
        unknown = ", ".join(TERMS[name] for name in one.unknown)
        table.add(*labels, measured_text(one.end, True), measured_text(one.gain, True), unknown)
    console.print(table)
    if any(one.first.group.task != one.second.group.task for one in designs):
        say(
            console, "tasks differ: levels of Pass@1 cannot be compared, and gains only as far as both have room", "dim"
        )


def _place(one: Ends) -> str:
    return " · ".join(filter(None, (one.group.label, one.group.task)))


OWN = RunSource("imported", "runs")
"""Source that stands for a folder's own runs, which were not imported."""


def report(console: Console, name: str | None, root: Path, quiet: bool) -> Path:
    """Write the page of imported, public or trained runs into root/report-imported-NAME, or without a name the page of
    the folder's own runs into root/report-runs. Returns its path. Raises UserError where there is nothing to draw."""
    source, title = OWN, f"Runs in {root.resolve().name}"
    if name is not None:
        source = free_source(name)
        title = source.name
    runs = own_runs(root) if name is None else source.runs(root)
    have = measures_in(source, runs)
    measure = next((measure for measure in MEASURES if measure in have), None)
    if measure is None:
        raise UserError(f"{title} has neither Pass@1 nor a mean reward after round 0; allowed: runs with one")
    side = source_groups(source, runs, measure, root)._replace(name=title)
    folder = folder_below(root, f"report-{source.place if name is None else source.slug}")
    return write_view(console, collection_view([side], "rounds"), folder, "report.html", title, quiet)
