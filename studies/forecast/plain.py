"""Three plain ways to forecast a grid from a pilot, which a simulator must beat to be worth its name.

still      nothing changes: a cell ends where the pilot's run that is nearest in rollouts a round ended
gain       other pairs' mean gain: the end of the pilot's baseline, and what the cell gains over the baseline on other
           pairs
sigmoid    a saturating curve in compute, fitted to the pilot's curves and read at the rollouts of the cell (Khatri et
           al. 2510.13786)

Like every forecast here, each is a function of the evidence, the designs and a split, and gives a `CellForecast`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.studies.data.paper.experiments import BASELINE, label
from rftlab.studies.forecast.evidence import Evidence, OtherPair

RAW = label(BASELINE)
PARAMETERS = 3
"""Of the saturating curve."""
LEVEL = 0.8
"""Of intervals."""


class CellForecast(NamedTuple):
    """What a forecast says of cells after training: Pass@1 (cells,), nan where it has nothing to say."""

    values: np.ndarray
    low: np.ndarray
    """Of the central interval of single runs at LEVEL; nan where a forecast has none."""
    high: np.ndarray
    draws: np.ndarray | None = None
    """(draws, cells) over the questions of an evaluation, jointly; None where a forecast has none."""


Forecaster = Callable[[Evidence, tuple[Design, ...], str], CellForecast]


def bare(values: np.ndarray) -> CellForecast:
    """A forecast without an interval."""
    none = np.full(len(values), np.nan)
    return CellForecast(values, none, none)


def per_round(design: Design) -> int:
    """Rollouts of a round."""
    return design.batch_size * (design.rollouts + design.support_rollouts)


def still(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """Several runs that are equally near count alike."""
    ends = np.array([run.values[-1, SPLITS.index(split)] for run in evidence.runs])
    spent = np.log([per_round(run.design) for run in evidence.runs])
    found = []
    for cell in cells:
        distance = np.abs(spent - np.log(per_round(cell)))
        found.append(ends[np.isclose(distance, distance.min())].mean())
    return bare(np.array(found))


def gain(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """nan where the pilot has no run of the baseline, or no other pair has both it and the cell."""
    column = SPLITS.index(split)
    own = [run.values[-1, column] for run in evidence.runs if label(run.design) == RAW]
    gains = [[_gain_of(other, cell, column) for cell in cells] for other in evidence.others]
    if not own or not gains:
        return bare(np.full(len(cells), np.nan))
    return bare(np.clip(own[0] + np.mean(gains, axis=0), 0.0, 1.0))


def _gain_of(other: OtherPair, cell: Design, column: int) -> float:
    ends = {label(design): end for design, end in zip(other.designs, other.ends[:, column], strict=True)}
    return float(ends.get(label(cell), np.nan) - ends.get(RAW, np.nan))


def sigmoid(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """R0 + (A - R0) / (1 + (C_mid / C)^b) in the rollouts C, R0 the base model's; nan with fewer points than
    parameters, or without the base model."""
    points = [
        (at * per_round(run.design), value)
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
    return bare(curve(best.x, np.log([cell.rounds * per_round(cell) for cell in cells])))
