"""Estimators against the first of them, on the same problems and seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.box import HEAVY_HEAD
from rich.console import Console

from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Table, write_numbers
from rftlab.studies.data.results.stats import pooled_interval
from rftlab.studies.data.runs.finish import count_threads, finish_points
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.estimators.league.league import BUDGETS, league_points, scores
from rftlab.studies.estimators.league.rules import Rules
from rftlab.studies.forecast.signal.power import smallest_difference

FOLDER = "compare-estimators"


class Compared(NamedTuple):
    """An estimator at a budget, and its difference to the first; nan where a run diverged, or of the first itself."""

    budget: str
    name: str
    value: float
    """Mean test Pass@1."""
    difference: float
    low: float
    high: float
    smallest: float
    """The difference that so many seeds would find with chance 0.8, were each compared alone."""
    diverged: int


def difference_rows(scored: pd.DataFrame, names: Sequence[str]) -> list[Compared]:
    """What `rftlab.studies.estimators.league.league.scores` says of estimators and the first of them."""
    rows = []
    for budget in BUDGETS:
        wide = scored[scored["budget"] == budget].pivot(index=["pair", "seed"], columns="entrant", values="value")
        for name in names:
            numbers = _against(wide[name] - wide[names[0]], len(names) - 1) if name != names[0] else (np.nan,) * 4
            rows.append(Compared(budget, name, wide[name].mean(skipna=False), *numbers, int(wide[name].isna().sum())))
    return rows


def _against(differences: pd.Series, comparisons: int) -> tuple[float, float, float, float]:
    """Mean, interval and smallest difference of paired differences, with the variance within pairs of model and
    data."""
    if differences.isna().any():
        return (np.nan,) * 4
    groups = [part.to_numpy() for _, part in differences.groupby("pair")]
    centred = np.concatenate([group - group.mean() for group in groups])
    sigma = float(np.sqrt((centred**2).sum() / (centred.size - len(groups))))
    smallest = smallest_difference(sigma, centred.size, paired=True) if sigma > 0 else 0.0
    return (*pooled_interval(groups, comparisons), smallest)


def compare_estimators(
    console: Console, rules: Rules, names: Sequence[str], root: Path, threads: int, quiet: bool
) -> list[Compared]:
    """Finish the runs in the store `root`, print a table for each budget and write both to root/compare-estimators."""
    points, folder = league_points(rules, names), folder_below(open_store(root), FOLDER)
    finish_points(console, root, points, count_threads(threads), quiet)
    results = collect(root, points)
    rows = difference_rows(scores(rules, results.curves, names), names)
    folder.mkdir(exist_ok=True)
    name = f"{rules.batch_size}x{rules.rollouts}-{'-'.join(names)[:120]}.csv"
    write_numbers(folder / name, pd.DataFrame(rows))
    for budget in BUDGETS:
        _show(console, rules, [row for row in rows if row.budget == budget])
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    return rows


def _show(console: Console, rules: Rules, rows: list[Compared]) -> None:
    title = f"At equal {rows[0].budget}: {', '.join(rules.pairs)}, {rules.batch_size}x{rules.rollouts}"
    columns = ("estimator", "test Pass@1", f"minus {rows[0].name}", "95% interval", "says", "would find")
    table = Table(*columns, title=f"{title}, {rules.seeds} seeds", align="left", box=HEAVY_HEAD)
    for row in rows:
        known = np.isfinite(row.difference)
        cells = (
            row.name,
            f"{row.value:.3f}" if np.isfinite(row.value) else f"{row.diverged} diverged",
            f"{row.difference:+.3f}" if known else "",
            f"{row.low:+.3f} to {row.high:+.3f}" if known else "",
            _verdict(row) if known else "",
            f"{row.smallest:.3f}" if known else "",
        )
        table.add(*cells)
    console.print(table)


def _verdict(row: Compared) -> str:
    if row.low == row.high == 0:
        return "the same"
    return "better" if row.low > 0 else "worse" if row.high < 0 else "not told apart"
