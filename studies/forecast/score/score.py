"""Scores of forecasts on all known runs. Nothing is fitted to the cells it is scored on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.callbacks import noop
from rftlab.studies.forecast.calibrate import Progress, calibrated
from rftlab.studies.forecast.forecasters import QUICK, forecast_columns, quick_forecasts
from rftlab.studies.forecast.law.curve import bare
from rftlab.studies.forecast.law.ranked import rank_agreement
from rftlab.studies.forecast.predict import Forecast, forecast_from, outside, recommended, simulated_ends
from rftlab.studies.forecast.score.cases import Case, check_split

RESAMPLES = 4000
SOURCES = ("forecast", "simulator", *QUICK)
"""The forecasts that are scored: the recommended forecast first, then each."""
INTERVALS = ("forecast", "simulator", "law", "curve")
"""Those with intervals."""


def score_case(
    root: Path, case: Case, seed: int, threads: int, progress: Progress = noop, remark: Callable[[str], None] = print
) -> pd.DataFrame:
    """A row per split and held-out cell: truth (mean over seeds), source (whose forecast is recommended), each of
    SOURCES, NAME_low, NAME_high and NAME_covered (share of seeds within) of INTERVALS.

    The calibration is kept in the results folder `root`, as that of any pair.
    """
    check_split(case)
    simulated = _simulated(root, case, seed, threads, progress, remark) if case.simulated else {}
    return pd.concat([_scored(case, part, simulated.get(part)) for part in case.truth], ignore_index=True)


def _simulated(
    root: Path, case: Case, seed: int, threads: int, progress: Progress, remark: Callable[[str], None]
) -> dict[str, Forecast]:
    posterior = calibrated(root, case.pair, case.evidence, seed, threads, progress, remark)
    cells = tuple(case.cells.values())
    ends = simulated_ends(posterior, cells, threads)
    sizes = dict(zip(SPLITS, case.questions, strict=True))
    return {part: forecast_from(posterior, cells, ends, sizes[part], seed, part) for part in case.truth}


def _scored(case: Case, part: str, simulated: Forecast | None) -> pd.DataFrame:
    truth, cells = case.truth[part][list(case.cells)], tuple(case.cells.values())
    rates = case.rates or (None,) * len(cells)
    forecasts = quick_forecasts(case.evidence, cells, part, rates)
    far = outside(case.evidence, cells, rates, part)
    chosen = recommended(simulated, forecasts["law"], far, forecasts["curve"] if case.evidence.imported else None)
    nothing = bare(np.full(len(cells), np.nan))
    ours = {"forecast": chosen.forecast, "simulator": simulated.forecast if simulated else nothing}
    forecasts = ours | forecasts
    table = pd.DataFrame({"pair": case.pair, "split": part, "cell": list(case.cells), "source": chosen.source})
    table["outside"] = far
    table = table.assign(truth=truth.mean().to_numpy(), **forecast_columns(forecasts))
    for name in INTERVALS:
        low, high = forecasts[name].low, forecasts[name].high
        inside = ((truth >= low) & (truth <= high)).where(truth.notna()).astype(float).mean().to_numpy()
        table[f"{name}_covered"] = np.where(np.isnan(low), np.nan, inside)
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row per split and forecast of SOURCES that is there for all cells: mae, covered, spearman, regret, and by how
    much its error exceeds the recommended forecast's (95%).

    regret: of the cell that it recommends, what the best cell has more; means over pairs. Intervals resample cells
    within pairs; nan where no pair has two.
    """
    rows = []
    for part, whole in table.groupby("split", sort=False):
        groups = [own.reset_index(drop=True) for _, own in whole.groupby("pair", sort=False)]
        rng = np.random.Generator(np.random.Philox(0))
        names = [name for name in SOURCES if whole[name].notna().all()]
        rows += [{"split": part, "forecast": name} | _summed(groups, name, rng) for name in names]
    return pd.DataFrame(rows)


def _summed(groups: list[pd.DataFrame], name: str, rng: np.random.Generator) -> dict[str, float]:
    errors = [(own[name] - own["truth"]).abs().to_numpy() for own in groups]
    more = [
        error - (own["forecast"] - own["truth"]).abs().to_numpy() for error, own in zip(errors, groups, strict=True)
    ]
    drawn = np.mean([part[rng.integers(0, len(part), (RESAMPLES, len(part)))].mean(axis=1) for part in more], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975]) if max(map(len, groups)) > 1 else (np.nan, np.nan)
    covered = [own[f"{name}_covered"].mean() if name in INTERVALS else np.nan for own in groups]
    return {
        "mae": float(np.mean([error.mean() for error in errors])),
        "covered": float(np.mean(covered)),
        "spearman": float(np.mean([rank_agreement(own[name], own["truth"]) for own in groups])),
        "regret": float(np.mean([own["truth"].max() - own["truth"][own[name].idxmax()] for own in groups])),
        "excess": float(np.mean([part.mean() for part in more])),
        "excess_low": float(low),
        "excess_high": float(high),
    }
