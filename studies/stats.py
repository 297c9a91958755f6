"""Intervals over seeds."""

from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Mean of a sample and its 95% t interval; unbounded with fewer than two values."""

    mean: float
    low: float
    high: float


def interval(values: np.ndarray, comparisons: int = 1) -> Interval:
    """t interval of the mean of `values` (n,). Paired differences go in as one value per seed.

    comparisons: how many intervals are to hold together with 95% confidence (Bonferroni).
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return Interval(np.nan, -np.inf, np.inf)
    mean = float(values.mean())
    if values.size == 1:
        return Interval(mean, -np.inf, np.inf)
    half = float(stats.t.ppf(1 - (1 - CONFIDENCE) / 2 / comparisons, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return Interval(mean, mean - half, mean + half)
