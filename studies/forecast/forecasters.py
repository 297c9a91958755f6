"""Forecasts without a simulator: the law's, the known curve's, and four plain ones.

law        one curve in rounds of effective batch through all known points (studies/forecast/law/curve.py)
curve      the known run, read where it had learned for as long (studies/forecast/reading.py)
steps      the same in its plain form: the nearest run at equal rate x rounds
still      nothing changes: a cell ends where the pilot's run that is nearest in rollouts a round ended
gain       other pairs' mean gain: the end of the pilot's baseline, and what the cell gains over the baseline on other
           pairs
sigmoid    a saturating curve in compute, fitted to the pilot's curves and read at the rollouts of the cell (Khatri et
           al. 2510.13786)

Each is a function of the evidence, the designs, a split and learning rates, and gives a `CellForecast`. `QUICK` lists
them.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.studies.data.paper.experiments import BASELINE, label
from rftlab.studies.forecast.evidence import Evidence, OtherPair
from rftlab.studies.forecast.law.curve import (
    CellForecast,
    KnownRun,
    LawCurve,
    bare,
    fit_curve,
    forecast,
    learn_prior,
)
from rftlab.studies.forecast.law.limits import round_updates, spoils
from rftlab.studies.forecast.reading import UPDATES, curve, rate_powers, rate_ratio, steps

RAW = label(BASELINE)
PARAMETERS = 3
"""Of the saturating curve."""


LearningRates = tuple[float | None, ...]
"""Learning rates of cells; None, and where none are given: that of the known runs."""
Forecaster = Callable[[Evidence, tuple[Design, ...], str, LearningRates], CellForecast]


def law(evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()) -> CellForecast:
    """One curve against tau (studies/forecast/law/curve.py) through all known points but those of runs that a rate
    spoilt; where other pairs are known, the medians of its prior are theirs. Rates and, of imported runs, updates count
    as in `curve`. nan without the base model, measured or guessed, or a point after round 0."""
    column, base = SPLITS.index(split), evidence.base(split)
    tried = evidence.tried(split)
    if np.isnan(base) or not tried:
        return bare(np.full(len(cells), np.nan))
    power, own = float(np.median(rate_powers(evidence, split))), evidence.runs[0].learning_rate

    def worth(design: Design, rate: float | None) -> float:
        """Rounds that a round is worth at the first run's rate, whose updates count as the law has them."""
        updates = round_updates(design) ** UPDATES / (design.epochs * sqrt(design.minibatches))
        return rate_ratio(rate, own) ** power * (updates if evidence.imported else 1.0)

    measured = [run for run in evidence.runs if np.isfinite(run.values[:, column]).any()]
    runs = [
        KnownRun(run.design, run.rounds[later] * worth(run.design, run.learning_rate), run.values[later, column])
        for run, one in zip(measured, tried, strict=True)
        if (later := (run.rounds > 0) & np.isfinite(run.values[:, column])).any() and not spoils(one, tried)
    ]
    if not runs:
        return bare(np.full(len(cells), np.nan))
    asked = zip(cells, rates or (None,) * len(cells), strict=True)
    rounds = np.array([cell.rounds * worth(cell, rate) for cell, rate in asked])
    prior = learn_prior([other_curve(other, column) for other in evidence.others])
    within = evidence.guessed_base[1:] if evidence.guessed_base else None
    return forecast(base, runs, evidence.noise, cells, prior=prior, base_within=within, rounds=rounds)


def other_curve(other: OtherPair, column: int) -> LawCurve:
    """The law's curve through the ends of another pair."""
    known = [
        KnownRun(design, np.array([float(design.rounds)]), np.array([end]))
        for design, end in zip(other.designs, other.ends[:, column], strict=True)
        if np.isfinite(end)
    ]
    return fit_curve(float(other.base[column]), known, other.noise.ratios)


def still(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """Several runs that are equally near count alike."""
    ends = np.array([run.values[-1, SPLITS.index(split)] for run in evidence.runs])
    spent = np.log([run.design.round_rollouts for run in evidence.runs])
    distances = np.abs(spent - np.log([[cell.round_rollouts] for cell in cells]))
    return bare(np.array([ends[np.isclose(row, row.min())].mean() for row in distances]))


def gain(evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()) -> CellForecast:
    """nan where the pilot has no run of the baseline, or no other pair has both it and the cell."""
    column = SPLITS.index(split)
    own = [run.values[-1, column] for run in evidence.runs if label(run.design) == RAW]
    gains = [[_gain(other, cell, column) for cell in cells] for other in evidence.others]
    if not own or not gains:
        return bare(np.full(len(cells), np.nan))
    return bare(np.clip(own[0] + np.mean(gains, axis=0), 0.0, 1.0))


def _gain(other: OtherPair, cell: Design, column: int) -> float:
    ends = {label(design): end for design, end in zip(other.designs, other.ends[:, column], strict=True)}
    return float(ends.get(label(cell), np.nan) - ends.get(RAW, np.nan))


def sigmoid(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """R0 + (A - R0) / (1 + (C_mid / C)^b) in the rollouts C, R0 the base model's; nan with fewer points than
    parameters, or without the base model."""
    points = [
        (at * run.design.round_rollouts, value)
        for run in evidence.runs
        for at, value in zip(run.rounds, run.values[:, SPLITS.index(split)], strict=True)
        if at > 0
    ]
    base = evidence.base(split)
    if len(points) < PARAMETERS or np.isnan(base):
        return bare(np.full(len(cells), np.nan))
    spent, reached = np.log([point[0] for point in points]), np.array([point[1] for point in points])

    def curve(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        return base + (expit(x[0]) - base) * expit(np.exp(x[1]) * (at - x[2]))

    starts = [(0.0, 0.0, middle) for middle in (spent.min(), np.median(spent), spent.max())]
    best = min(
        (least_squares(lambda x: curve(x, spent) - reached, start) for start in starts), key=lambda fit: fit.cost
    )
    return bare(curve(best.x, np.log([cell.rounds * cell.round_rollouts for cell in cells])))


QUICK: dict[str, Forecaster] = {
    "law": law, "curve": curve, "steps": steps, "still": still, "gain": gain, "sigmoid": sigmoid
}  # fmt: skip
"""By name, in the order of tables."""


def quick_forecasts(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> dict[str, CellForecast]:
    """The forecast of each."""
    return {name: forecaster(evidence, cells, split, rates) for name, forecaster in QUICK.items()}


def forecast_columns(forecasts: dict[str, CellForecast]) -> dict[str, np.ndarray]:
    """Columns of a table: each forecast by its name, and NAME_low and NAME_high of those that have an interval."""
    columns: dict[str, np.ndarray] = {}
    for name, one in forecasts.items():
        columns |= {name: one.values}
        if one.draws is not None:
            columns |= {f"{name}_low": one.low, f"{name}_high": one.high}
    return columns
