"""Score forecasts on all known runs. Nothing is fitted to the cells it is scored on.

`run_scores` writes what was known, what was held out, and how far off every forecast was, as tables and a figure.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from scipy import stats

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.diagnose.alarms import alarm_rates, show_rates
from rftlab.studies.analysis.public.store import runs as public_runs
from rftlab.studies.analysis.source import RunSource, free_source, is_free
from rftlab.studies.console.table import Table, number, say, write_numbers
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.finish import count_threads
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.forecast.calibrate import Progress, calibrated
from rftlab.studies.forecast.ending import ending_scores, show_ending_scores
from rftlab.studies.forecast.forecasters import QUICK, forecast_columns
from rftlab.studies.forecast.law.curve import LEVEL, CellForecast
from rftlab.studies.forecast.predict import all_forecasts, forecast_from, simulated_ends
from rftlab.studies.forecast.record import errors
from rftlab.studies.forecast.score.cases import Case, cases_named, check_split
from rftlab.studies.readers.run import ImportedRun
from rftlab.studies.report.chart import (
    GREY,
    IDENTITY,
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotSeries,
    dots,
    error_bars,
    rates,
)
from rftlab.studies.report.draw import save_chart
from rftlab.studies.report.figures import pretty

RESAMPLES = 4000
FEWEST = 3
"""Fewest designs for a rank correlation."""
SOURCES = ("forecast", "simulator", *QUICK)
"""The forecasts that are scored: the recommended forecast first, then each."""
INTERVALS = ("forecast", "simulator", "law", "curve")
"""Forecasts with intervals."""


def rank_agreement(values: np.ndarray, truth: np.ndarray) -> float:
    """Return Spearman's rank correlation; 0 where all values or all truths are alike, nan for fewer than three."""
    values, truth = np.asarray(values), np.asarray(truth)
    if len(truth) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(truth) == 0 else float(stats.spearmanr(values, truth).statistic)


def score_case(
    root: Path, case: Case, seed: int, threads: int, progress: Progress = noop, remark: Callable[[str], None] = print
) -> pd.DataFrame:
    """Return a row per split and held-out cell: truth (mean over seeds), source (whose forecast is recommended), each
    of SOURCES, NAME_low, NAME_high and NAME_covered (share of seeds within) of INTERVALS.

    The calibration is kept in the results folder `root`, as for any pair.
    """
    check_split(case)
    cells, simulated = tuple(case.cells.values()), {}
    if case.simulated:
        posterior = calibrated(root, case.pair, case.evidence, seed, threads, progress, remark)
        ends = simulated_ends(posterior, cells, threads)
        sizes = dict(zip(SPLITS, case.questions, strict=True))
        simulated = {part: forecast_from(posterior, cells, ends, sizes[part], seed, part) for part in case.truth}
    return pd.concat([_scored(case, part, cells, simulated.get(part)) for part in case.truth], ignore_index=True)


def _scored(case: Case, part: str, cells: tuple[Design, ...], simulated: CellForecast | None) -> pd.DataFrame:
    truth = case.truth[part][list(case.cells)]
    source, outside, forecasts = all_forecasts(case.evidence, cells, part, case.rates, simulated)
    table = pd.DataFrame({"pair": case.pair, "split": part, "cell": list(case.cells), "source": source})
    table = table.assign(outside=outside, truth=truth.mean().to_numpy(), **forecast_columns(forecasts))
    for name in INTERVALS:
        low, high = forecasts[name].low, forecasts[name].high
        inside = ((truth >= low) & (truth <= high)).where(truth.notna()).astype(float).mean().to_numpy()
        table[f"{name}_covered"] = np.where(np.isnan(low), np.nan, inside)
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per split and forecast of SOURCES that is there for all cells: mae, covered, spearman, regret, and
    excess, by how much its error exceeds that of the recommended forecast (95%).

    regret: Pass@1 of the best cell less that of the cell with the highest forecast. All are means over pairs. Intervals
    resample cells within pairs; nan where no pair has two.
    """
    rows = []
    for part, whole in table.groupby("split", sort=False):
        groups = [own.reset_index(drop=True) for _, own in whole.groupby("pair", sort=False)]
        rng = np.random.Generator(np.random.Philox(0))
        names = [name for name in SOURCES if whole[name].notna().all()]
        rows += [{"split": part, "forecast": name} | _summed(groups, name, rng) for name in names]
    return pd.DataFrame(rows)


def _summed(groups: list[pd.DataFrame], name: str, rng: np.random.Generator) -> dict[str, float]:
    off = [errors(own, name).to_numpy() for own in groups]
    more = [error - errors(own, "forecast").to_numpy() for error, own in zip(off, groups, strict=True)]
    drawn = np.mean([part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in more], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975]) if max(map(len, groups)) > 1 else (np.nan, np.nan)
    covered = [own[f"{name}_covered"].mean() if name in INTERVALS else np.nan for own in groups]
    return {
        "mae": float(np.mean([error.mean() for error in off])),
        "covered": float(np.mean(covered)),
        "spearman": float(np.mean([rank_agreement(own[name], own["truth"]) for own in groups])),
        "regret": float(np.mean([own["truth"].max() - own["truth"][own[name].idxmax()] for own in groups])),
        "excess": float(np.mean([part.mean() for part in more])),
        "excess_low": float(low),
        "excess_high": float(high),
    }


def show_scores(console: Console, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Print the errors per pair and over all pairs, in tables for each split."""
    for split, part in table.groupby("split", sort=False):
        say(console, f"mean absolute error of {split} Pass@1 on held-out cells", "italic")
        console.print(_by_pair(part))
        head = ("error", f"{LEVEL:.0%} covers", "Spearman", "regret", "error more than the forecast's (95%)")
        over = Table("", *head, title=f"{split}, over pairs")
        for row in summary[summary["split"] == split].itertuples():
            interval = "" if np.isnan(row.excess_low) else f" [{row.excess_low:+.3f}, {row.excess_high:+.3f}]"
            more = "" if row.forecast == "forecast" else f"{row.excess:+.3f}{interval}"
            covered = "" if np.isnan(row.covered) else f"{row.covered:.0%}"
            numbers = (f"{row.mae:.3f}", covered, number(row.spearman, 2), f"{row.regret:.3f}", more)
            over.add(row.forecast, *numbers)
        console.print(over)
    say(console, "forecast: the recommended one, whose it is: simulator, law or curve")


def _by_pair(part: pd.DataFrame) -> Table:
    """Return a table with a column for each pair, because there are fewer pairs than forecasts: six fit 80 columns."""
    pairs = {name: _pair_cells(own) for name, own in part.groupby("pair", sort=False)}
    table = Table("", *(name.replace(" ", "\n", 1).replace("-", "\n") for name in pairs))
    for name, *cells in zip(next(iter(pairs.values())), *(column.values() for column in pairs.values()), strict=True):
        if any(cells):
            table.add(name, *cells)
    return table


def _pair_cells(own: pd.DataFrame) -> dict[str, str]:
    """Return the cells of a pair's column by row: mean absolute errors, empty without a forecast."""
    return {
        "cells": str(len(own)),
        "whose": own["source"].iloc[0],
        **{name: number(float(errors(own, name).mean())) for name in SOURCES},
        f"{LEVEL:.0%} covers": f"{own['forecast_covered'].mean():.0%}",
        "Spearman": number(rank_agreement(own["forecast"], own["truth"]), 2),
    }


_OTHERS = {"sigmoid": ("saturating curve", MarkStyle(GREY, "", marker="x")),
           "gain": ("other pairs' gain", MarkStyle(GREY, "", marker="+", size=5))}  # fmt: skip


def score_figure(table: pd.DataFrame) -> Drawn:
    """Return a chart of forecast against truth and its numbers: a panel per pair, a row per split, 80% intervals, and
    in grey the saturating curve and other pairs' gains."""
    pairs = list(dict.fromkeys(table["pair"]))
    panels: list[Panel | None] = []
    for split, part in table.groupby("split", sort=False):
        for pair in pairs:
            own = part[part["pair"] == pair]
            if own.empty:
                panels.append(None)
                continue
            series = [PlotSeries(own["truth"], own[name], style, text) for name, (text, style) in _OTHERS.items()]
            forecast = PlotSeries(own["truth"], own["forecast"], dots(PALETTE[0]), "forecast, 80%")
            series.append(error_bars(forecast, own["forecast_low"], own["forecast_high"]))
            title = f"{pretty(pair)}, {own['source'].iloc[0]}\nMAE {errors(own, 'forecast').mean():.3f}"
            panels.append(
                Panel(title, rates(f"measured {split} Pass@1"), rates("forecast"), tuple(series), (IDENTITY,))
            )
    keys = (LegendKey("forecast, 80%", dots(PALETTE[0])), *(LegendKey(text, style) for text, style in _OTHERS.values()))
    size = (max(3.1 * len(pairs) + 0.3, 5.0), 3.6 * (len(panels) // len(pairs)) + 0.7)
    return Chart(tuple(panels), size, len(pairs), keys, square=True), table


def run_scores(
    console: Console,
    what: str,
    root: Path,
    seed: int,
    threads: int,
    quiet: bool,
    base: float | None = None,
    questions: int | None = None,
) -> None:
    """Score all cases, print tables, write files. base, questions: as `cases_named` takes them."""
    cases, slug = cases_named(what, root, base, questions)
    folder = folder_below(root, "score", slug)
    check_writable(folder)
    scored = len(cases)
    if what == "public" or is_free(what):
        names = sorted(set(public_runs()["source"]))
        sources = [free_source(what)] if is_free(what) else [RunSource("public", name) for name in names]
        runs = [(source.name, run) for source in sources for run in source.runs(root)]
        endings = ending_scores(runs)
        if len(endings):
            write_numbers(folder / "endings.csv", endings)
            show_ending_scores(console, endings)
        scored += len(endings) + score_alarms(console, runs, folder)
    apart = f"{what} has no two different designs of one model and task"
    check(scored > 0, f"{apart}, no curve of test Pass@1 and no run whose alarms can be judged")
    if not cases:
        return say(console, f"{apart}: no forecast of designs is scored")
    write_file(folder / "split.json", json.dumps([case.split for case in cases], indent=1).encode())
    announce(console, cases, quiet)
    tables = []
    for place, case in enumerate(cases, start=1):
        title = f"{case.pair}, {place} of {len(cases)}"
        with step_progress(console, title, quiet) as step:
            warn = partial(say, console, style="yellow")
            tables.append(score_case(root, case, seed, count_threads(threads), step, warn))
    table = pd.concat(tables, ignore_index=True)
    write_numbers(folder / "summary.csv", summary(table))
    figure, numbers = score_figure(table)
    show_scores(console, table, summary(table))
    say(console, f"scores: {save_chart(figure, folder, 'scores', numbers)}")


def score_alarms(console: Console, runs: list[tuple[str, ImportedRun]], folder: Path) -> int:
    """Print how often the alarms of diagnose are right, write alarms.csv, and return the largest number of runs on
    which an alarm was judged. A run of a collection counts to the source before the slash in its name."""
    named = [(run.name.partition("/")[0] if "/" in run.name else source, run) for source, run in runs]
    rates = alarm_rates(named)
    judged = int(rates[["failing", "healthy"]].sum(axis=1).max())
    if judged:
        write_numbers(folder / "alarms.csv", rates)
        show_rates(console, rates)
    return judged


def announce(console: Console, cases: list[Case], quiet: bool) -> None:
    """Print the guesses behind cases, and which work takes minutes, before it begins."""
    for case in cases:
        for text in case.remarks:
            say(console, f"{case.pair}: {text}", "dim")
    todo = sum(case.simulated for case in cases)
    if todo and not quiet:
        # No number of minutes is printed, because it depends on the rounds and designs of each case.
        text = f"{todo} calibration{'s' * (todo > 1)}, minutes each and longer for longer runs"
        say(console, f"{text}; what an earlier call finished is read")
