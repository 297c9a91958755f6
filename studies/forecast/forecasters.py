"""Forecasts without a simulator: the law's, and three plain ones that a simulator must beat to be worth its name.

law        one curve in rounds of effective batch through all known points (studies/forecast/law/curve.py)
still      nothing changes: a cell ends where the pilot's run that is nearest in rollouts a round ended
gain       other pairs' mean gain: the end of the pilot's baseline, and what the cell gains over the baseline on other
           pairs
sigmoid    a saturating curve in compute, fitted to the pilot's curves and read at the rollouts of the cell (Khatri et
           al. 2510.13786)

Each is a function of the evidence, the designs and a split, and gives a `CellForecast`. `QUICK` lists them.
"""

from collections.abc import Callable

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
from rftlab.studies.forecast.law.limits import spoils

RAW = label(BASELINE)
PARAMETERS = 3
"""Of the saturating curve."""


Forecaster = Callable[[Evidence, tuple[Design, ...], str], CellForecast]


def law(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """One curve against tau (studies/forecast/law/curve.py) through all known points but those of runs that a rate
    spoilt; where other pairs are known, the medians of its prior are theirs. nan without the base model, measured or
    guessed, or a point after round 0."""
    column, base = SPLITS.index(split), evidence.base(split)
    tried = evidence.tried(split)
    measured = [run for run in evidence.runs if np.isfinite(run.values[:, column]).any()]
    runs = [
        KnownRun(run.design, evidence.steps(run)[later], run.values[later, column])
        for run, one in zip(measured, tried, strict=True)
        if (later := (run.rounds > 0) & np.isfinite(run.values[:, column])).any() and not spoils(one, tried)
    ]
    if np.isnan(base) or not runs:
        return bare(np.full(len(cells), np.nan))
    prior = learn_prior([other_curve(other, column) for other in evidence.others])
    within = evidence.guessed_base[1:] if evidence.guessed_base else None
    return forecast(base, runs, evidence.noise, cells, prior=prior, base_within=within)


def other_curve(other: OtherPair, column: int) -> LawCurve:
    """The law's curve through the ends of another pair."""
    known = [
        KnownRun(design, np.array([float(design.rounds)]), np.array([end]))
        for design, end in zip(other.designs, other.ends[:, column], strict=True)
        if np.isfinite(end)
    ]
    return fit_curve(float(other.base[column]), known, other.noise.ratios)


def still(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """Several runs that are equally near count alike."""
    ends = np.array([run.values[-1, SPLITS.index(split)] for run in evidence.runs])
    spent = np.log([run.design.round_rollouts for run in evidence.runs])
    distances = np.abs(spent - np.log([[cell.round_rollouts] for cell in cells]))
    return bare(np.array([ends[np.isclose(row, row.min())].mean() for row in distances]))


def gain(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
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


def sigmoid(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
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


QUICK: dict[str, Forecaster] = {"law": law, "still": still, "gain": gain, "sigmoid": sigmoid}
"""By name, in the order of tables."""


def quick_forecasts(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> dict[str, CellForecast]:
    """What each says."""
    return {name: forecaster(evidence, cells, split) for name, forecaster in QUICK.items()}


def forecasts_at(
    evidence: Evidence, cells: tuple[Design, ...], rates: tuple[float | None, ...], split: str = "test"
) -> dict[str, CellForecast]:
    """`quick_forecasts` of cells that have a learning rate each; None: that of the known runs."""
    parts, order = [], []
    for rate in dict.fromkeys(rates):
        at = [i for i, one in enumerate(rates) if one == rate]
        parts.append(quick_forecasts(evidence._replace(learning_rate=rate), tuple(cells[i] for i in at), split))
        order += at
    places = np.argsort(order)
    return {name: _joined([part[name] for part in parts], places) for name in QUICK}


def _joined(parts: list[CellForecast], places: np.ndarray) -> CellForecast:
    values, low, high = (np.concatenate(column)[places] for column in list(zip(*parts, strict=True))[:3])
    draws = [part.draws for part in parts if part.draws is not None]
    return CellForecast(values, low, high, np.concatenate(draws, axis=1)[:, places] if draws else None)


def forecast_columns(forecasts: dict[str, CellForecast]) -> dict[str, np.ndarray]:
    """Columns of a table: each forecast by its name, and NAME_low and NAME_high of those that have an interval."""
    columns: dict[str, np.ndarray] = {}
    for name, one in forecasts.items():
        columns |= {name: one.values}
        if one.draws is not None:
            columns |= {f"{name}_low": one.low, f"{name}_high": one.high}
    return columns
