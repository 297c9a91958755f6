"""Three plain ways to forecast a grid from a pilot, which a simulator must beat to be worth its name.

still      nothing changes: a cell ends where the pilot's run that is nearest in rollouts a round ended
gain       other pairs' mean gain: the end of the pilot's baseline, and what the cell gains over the baseline on other
           pairs
sigmoid    a saturating curve in compute, fitted to the pilot's curves and read at the rollouts of the cell (Khatri et
           al. 2510.13786)
"""

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from rftlab.shared.design import Design
from rftlab.studies.forecast.evidence import Evidence

PLAIN = ("still", "gain", "sigmoid")
PARAMETERS = 3
"""Of the saturating curve."""


def per_round(design: Design) -> int:
    """Rollouts of a round."""
    return design.batch_size * (design.rollouts + design.support_rollouts)


def still(evidence: Evidence, cells: tuple[Design, ...]) -> np.ndarray:
    """Test Pass@1 (cells,); several runs that are equally near count alike."""
    ends = np.array([run.values[-1, 1] for run in evidence.runs])
    spent = np.log([per_round(run.design) for run in evidence.runs])
    found = []
    for cell in cells:
        distance = np.abs(spent - np.log(per_round(cell)))
        found.append(ends[np.isclose(distance, distance.min())].mean())
    return np.array(found)


def gain(baseline: float, others: list[tuple[float, np.ndarray]]) -> np.ndarray:
    """Test Pass@1 (cells,). baseline: the end of the pilot's baseline; others: of each other pair the end of the
    baseline, and of the cells (cells,)."""
    return np.clip(baseline + np.mean([ends - end for end, ends in others], axis=0), 0.0, 1.0)


def _base(evidence: Evidence) -> float:
    """Test Pass@1 of the base model; nan where it was not measured."""
    if evidence.facts.strict is not None:
        return evidence.facts.strict
    found = [run.values[0, 1] for run in evidence.runs if run.rounds[0] == 0]
    return float(np.mean(found)) if found else np.nan


def sigmoid(evidence: Evidence, cells: tuple[Design, ...]) -> np.ndarray:
    """Test Pass@1 (cells,): R0 + (A - R0) / (1 + (C_mid / C)^b) in the rollouts C, R0 the base model's; nan with
    fewer points than parameters, or without the base model."""
    points = [
        (at * per_round(run.design), value)
        for run in evidence.runs
        for at, value in zip(run.rounds, run.values[:, 1], strict=True)
        if at > 0
    ]
    if len(points) < PARAMETERS:
        return np.full(len(cells), np.nan)
    spent, reached = np.log([point[0] for point in points]), np.array([point[1] for point in points])
    base = _base(evidence)
    if np.isnan(base):
        return np.full(len(cells), np.nan)

    def curve(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        return base + (expit(x[0]) - base) * expit(np.exp(x[1]) * (at - x[2]))

    starts = [(0.0, 0.0, middle) for middle in (spent.min(), np.median(spent), spent.max())]
    best = min(
        (least_squares(lambda x: curve(x, spent) - reached, start) for start in starts), key=lambda fit: fit.cost
    )
    return curve(best.x, np.log([cell.rounds * per_round(cell) for cell in cells]))
