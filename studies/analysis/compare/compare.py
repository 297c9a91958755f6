"""Compare two or three levels side by side (`rftlab compare`), as tables in the terminal and as one self-contained page
with figures."""

from collections import Counter
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.errors import check_choice
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.compare import figures as compare_figures
from rftlab.studies.analysis.compare.agreement import (
    AGREE,
    DISAGREE,
    DRAWS,
    OPEN,
    SINGLE,
    UNDECIDED,
    Agreement,
    Best,
    ClaimRow,
    Side,
    agree,
    best,
    claim_verdicts,
    common_cells,
    compare_claims,
    resample,
)
from rftlab.studies.analysis.compare.figures import AXES, SPENT, shown_ends
from rftlab.studies.analysis.compare.levels import MEASURED, CurveSet, level_groups, load_levels
from rftlab.studies.analysis.imported import page
from rftlab.studies.analysis.imported.groups import common_measure, measures_in, source_groups
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.console.table import Column, Table, number, put, say, write_numbers
from rftlab.studies.data.paper.experiments import EXPERIMENTS, Experiment, label
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.report.report import Plan, draw_all, signed, template

SYMBOLS = {AGREE: "✓", DISAGREE: "✗", UNDECIDED: "?", SINGLE: "–"}
STYLES = dict(zip(SYMBOLS, ("green", "red", "yellow", "dim"), strict=True))
STATISTICS = {
    "error": "MAE",
    "gain_error": "MAE of the gain",
    "kendall": "Kendall's tau-b",
    "spearman": "Spearman's rho",
}


class Comparison(NamedTuple):
    """Comparison of levels: the agreement of their curves, their best designs and the signs of the claims."""

    levels: list[CurveSet]
    agreements: list[Agreement]
    best: list[Best]
    """Best designs of each level, among all its designs and among those that all levels share."""
    rows: list[ClaimRow]
    """Quantities of the claims with their sign at each level."""

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict on each claim."""
        return claim_verdicts(self.rows)


def compared(levels: list[CurveSet], seed: int, draws: int = DRAWS) -> Comparison:
    """Return the agreement, best designs and signs of claims of levels; equal arguments give equal numbers."""
    streams = np.random.default_rng(seed).spawn(len(levels))
    drawn = {own.name: resample(own, stream, draws) for own, stream in zip(levels, streams, strict=True)}
    pairs = list(combinations(levels, 2))
    agreements = [agreement for first, second in pairs for agreement in agree(first, second, drawn)]
    common, winners = common_cells(levels), []
    for own in levels:
        winners.append(best(own, drawn[own.name], own.cells))
        if 1 < len(common) < len(own.cells):
            winners.append(best(own, drawn[own.name], common))
    return Comparison(levels, agreements, winners, compare_claims(levels, drawn))


def compare(
    console: Console,
    sources: list[RunSource],
    root: Path,
    axis: str,
    seed: int,
    quiet: bool,
    **simulated: Any,
) -> Path:
    """Load or simulate the levels, print tables and write root/compare-NAMES/compare.html with its figures. Returns the
    page's path. Pairs of the paper are compared with their claims. With free sources, groups of runs are compared by
    the first common measure.

    seed: of the resampling. simulated: seeds, rounds and threads, as `load_levels` takes them. Raises UserError, before
    anything is simulated, where levels have no measure in common.
    """
    ours = [source for source in sources if not source.free]
    if ours == sources:
        open_store(root)
        levels = load_levels(console, ours, root, quiet, **simulated)
        return write_comparison(console, levels, root, axis, seed, quiet)
    check_choice("axis of imported runs", axis, tuple(page.AXES))
    imported = {source: source.runs(root) for source in sources if source.free}
    have = {source.name: measures_in(source, runs) for source, runs in imported.items()}
    have |= {source.name: set(MEASURED[: 2 if source.kind == "published" else 3]) for source in ours}
    measure = common_measure(have)
    if ours:  # they may be simulated now
        open_store(root)
    loaded = dict(zip(ours, load_levels(console, ours, root, quiet, **simulated), strict=True))
    sides = [
        source_groups(source, imported[source], measure, root) if source.free else level_groups(loaded[source], measure)
        for source in sources
    ]
    folder = folder_below(root, "compare-" + "-".join(source.slug for source in sources)[:180])
    title = " against ".join(source.name for source in sources)
    return page.write_view(console, page.collection_view(sides, axis), folder, "compare.html", title, quiet)


def write_comparison(console: Console, levels: list[CurveSet], root: Path, axis: str, seed: int, quiet: bool) -> Path:
    """Compare levels, print the tables, and write the page with its figures into root/compare-NAMES. Returns the page's
    path."""
    folder = folder_below(root, "compare-" + "-".join(own.name.replace(":", "-") for own in levels))
    check_writable(folder)
    with step_progress(console, "resampling", quiet):
        comparison = compared(levels, seed)
    with step_progress(console, "drawing figures", quiet) as step:
        figures = draw_all(folder_below(folder, "figures"), _plans(comparison, axis), step)
    told = [(*a[:4], name, *getattr(a, name)) for a in comparison.agreements for name in STATISTICS]
    columns = ["first", "second", "split", "cells", "statistic", *Estimate._fields]
    write_numbers(folder / "agreement.csv", pd.DataFrame(told, columns=columns))
    signs = [
        (row.claim, side.name, own.name, *side.measured, side.sign, row.verdict)
        for row in comparison.rows
        for own, side in zip(comparison.levels, row.sides, strict=True)
    ]
    columns = ["claim", "quantity", "level", *Estimate._fields, "sign", "verdict"]
    write_numbers(folder / "claims.csv", pd.DataFrame(signs, columns=columns))
    text = template("compare.html.j2").render(_context(comparison, figures, axis, seed))
    write_file(folder / "compare.html", text.encode())
    show(console, comparison)
    say(console, f"page: {folder / 'compare.html'}")
    return folder / "compare.html"


def _experiments(levels: list[CurveSet]) -> list[Experiment]:
    """Return the experiments of which at least two levels have a design."""
    return [
        e for e in EXPERIMENTS.values() if sum(bool(set(map(label, e.cells)) & set(own.cells)) for own in levels) > 1
    ]


def _plans(comparison: Comparison, axis: str) -> dict[str, Plan]:
    levels, plans = comparison.levels, {}
    drawn = [own for own in levels if len(own.curves)]
    pairs = [(first, second) for first, second in combinations(levels, 2) if common_cells([first, second])]
    if pairs:
        plans["agreement"] = lambda: compare_figures.scatter(pairs)
    for e in _experiments(levels):
        if drawn:
            plans[f"{e.name}-curves"] = partial(compare_figures.level_curves, e, levels, axis)
        if len(e.cells) > 1:
            plans[f"{e.name}-tradeoff"] = partial(compare_figures.level_tradeoff, e, levels, axis)
    return plans


def _context(comparison: Comparison, figures: dict[str, Markup], axis: str, seed: int) -> dict:
    verdicts = comparison.verdicts
    return {
        **comparison._asdict(),
        "statistics": STATISTICS,
        "verdicts": verdicts,
        "counts": {verdict: Counter(verdicts.values())[verdict] for verdict in SYMBOLS},
        "marks": SYMBOLS,
        "experiments": _experiments(comparison.levels),
        "figures": figures,
        "axis": AXES[axis],
        "ends": shown_ends(axis),
        "spent": axis in SPENT,
        "estimate": estimate_text,
        "short": short_label,
        "facets": {
            "experiment": {e.name: e.title for e in _experiments(comparison.levels)},
            "level": {own.name: own.title for own in comparison.levels},
            "split": {split: split for split in SPLITS},
        },
        "open": OPEN,
        "draws": DRAWS,
        "about": {"axis": axis, "seed of the resampling": seed, "commit": commit(), **versions()},
    }


def estimate_text(measured: Estimate, sign: bool = False) -> str:
    """Return a number with its interval as text; "" where there is none."""
    if not np.isfinite(measured.value):
        return ""
    text = signed if sign else "{:.3f}".format
    return f"{text(measured.value)} [{text(measured.low)}, {text(measured.high)}]"


def show(console: Console, comparison: Comparison) -> None:
    """Print the tables of a comparison: agreement, best designs and signs of claims."""
    for own in comparison.levels:
        console.print(Text(f"{own.name}: {own.source}", style="dim"), soft_wrap=True)
    _show_agreements(console, comparison.agreements)
    console.print(_winners(comparison))
    console.print(_signs(comparison))
    if alone := ", ".join(own.name for own in comparison.levels if own.seeds == 1):
        say(console, f"{alone}: one run of each design, so that no interval has the spread of training in it", "dim")
    counts = Counter(comparison.verdicts.values())
    console.print(
        Text("   ").join(
            Text(f"{SYMBOLS[verdict]} {verdict} {counts[verdict]}", style=style) for verdict, style in STYLES.items()
        )
    )


def _show_agreements(console: Console, agreements: list[Agreement]) -> None:
    """Print a table of agreement for each two levels, whose names are a line of their own."""
    if not agreements:
        console.print("the levels share no design")
    for first, second in dict.fromkeys((a.first, a.second) for a in agreements):
        table = Table("split", "designs", *STATISTICS.values(), wrap="never", collapse_padding=True)
        for a in agreements:
            if (a.first, a.second) == (first, second):
                estimates = (estimate_text(getattr(a, name)).replace(" [", "\n[") for name in STATISTICS)
                table.add(a.split, str(a.cells), *estimates)
        put(console, f"Pass@1 after training, {first} and {second}", table)


def _winners(comparison: Comparison) -> Table:
    columns = ("level", "designs", "best on test", "observed", "corrected", "ahead in draws")
    table = Table(*columns, wrap="never", collapse_padding=True, title="best designs")
    for b in comparison.best:
        numbers = (f"{b.observed:.3f}", number(b.corrected), "" if np.isnan(b.share) else f"{b.share:.0%}")
        table.add(Text(b.level), str(b.among), short_label(b.cell), *numbers)
    return table


def _signs(comparison: Comparison) -> Table:
    title = "claims and their signs; in brackets: the 95% interval holds 0"
    levels = (own.name.replace(":", ":\n") for own in comparison.levels)
    table = Table("claim", Column("quantity", align="left"), *levels, Column("", align="left"), title=title)
    last = ""
    for row in comparison.rows:
        claim, verdict = row.claim if row.claim != last else "", Text(SYMBOLS[row.verdict], STYLES[row.verdict])
        table.add(Text(claim), Text(row.name), *map(_side_text, row.sides), verdict)
        last = row.claim
    return table


def _side_text(side: Side) -> Text:
    if side.missing:
        return Text(side.missing, "dim")
    value = signed(side.measured.value)
    return Text(f"({value})", "dim") if side.sign == OPEN else Text(value)
