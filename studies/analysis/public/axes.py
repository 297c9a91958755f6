"""Curves at a point of an axis, and the axis on which curves of different learning rates meet."""

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit, logit


def at(rows: pd.DataFrame, axis: str, x: float) -> np.ndarray:
    """Test Pass@1 of each run (n,) at x of the axis (round, rollouts, seconds), linear between evaluations; runs that
    do not reach from below x to above it are left out."""
    return values_at(curves_on(rows, axis), x)


def curves_on(rows: pd.DataFrame, axis: str) -> list[np.ndarray]:
    """Of each run, in the order of their names, places on the axis and test Pass@1 there (2, evaluations)."""
    ordered = rows.sort_values(axis)
    return [own[[axis, "value"]].to_numpy(np.float64).T for _, own in ordered.groupby("run_id")]


def values_at(curves: list[np.ndarray], x: float) -> np.ndarray:
    """As `at`, of curves that `curves_on` made: where one is read at many places."""
    return np.array([np.interp(x, where, value) for where, value in curves if where[0] <= x <= where[-1]])


def fit_sigmoid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Floor, ceiling, slope and log of the middle of a sigmoid in log x (n,) that is closest to y (n,); the best of
    six starts, floor and ceiling within [0, 1]."""
    logs = np.log(x)
    starts = [
        [logit(0.05), logit(0.9), slope, logs.mean() + shift] for slope in (0.7, 1.5, 3.0) for shift in (-1.0, 1.0)
    ]
    tries = (least_squares(lambda q: _sigmoid(q, logs) - y, start, max_nfev=2000) for start in starts)
    return min(tries, key=lambda fit: fit.cost).x


def sigmoid_at(fitted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of a fit at x (n,)."""
    return _sigmoid(fitted, np.log(x))


def _sigmoid(q: np.ndarray, logs: np.ndarray) -> np.ndarray:
    floor, ceiling = expit(q[0]), expit(q[1])
    return floor + (ceiling - floor) * expit(q[2] * (logs - q[3]))


def left_out_errors(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Root mean square error on each group (G,), sorted by its name, of the sigmoid fitted to the others."""
    errors = []
    for group in np.unique(groups):
        own = groups == group
        errors.append(np.sqrt(np.mean((sigmoid_at(fit_sigmoid(x[~own], y[~own]), x[own]) - y[own]) ** 2)))
    return np.array(errors)
