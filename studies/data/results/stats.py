"""Intervals over seeds."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Mean of a sample and its 95% t interval; unbounded with fewer than two values."""

    mean: float
    low: float
    high: float


def t_errors(freedom: Any, confidence: float = CONFIDENCE) -> Any:
    """Standard errors in half of a two-sided t interval, as Student's t has them with these degrees of freedom: a
    number or an array, inf for the normal distribution."""
    return stdtrit(freedom, (1 + confidence) / 2)


def interval(values: np.ndarray) -> Interval:
    """t interval of the mean of `values` along their last axis (..., n), nan left out; arrays (...) where there are
    leading axes. Paired differences go in as one value per seed."""
    values = np.asarray(values, dtype=np.float64)
    there = np.isfinite(values)
    n = there.sum(axis=-1)
    mean = np.where(n > 0, np.where(there, values, 0.0).sum(axis=-1) / np.maximum(n, 1), np.nan)
    squares = (np.where(there, values - mean[..., None], 0.0) ** 2).sum(axis=-1)
    freedom = np.maximum(n - 1, 1)
    half = t_errors(freedom) * np.sqrt(squares / freedom / np.maximum(n, 1))
    low, high = np.where(n > 1, mean - half, -np.inf), np.where(n > 1, mean + half, np.inf)
    ends: Any = (mean, low, high) if mean.ndim else (float(mean), float(low), float(high))
    return Interval(*ends)


def difference_interval(after: np.ndarray, before: np.ndarray) -> Interval:
    """Welch's 95% t interval of a difference of two means, of independent samples (n,) and (m,) with variances of
    their own; unbounded where one has fewer than two values."""
    after, before = (np.asarray(values, dtype=np.float64) for values in (after, before))
    mean = float(after.mean() - before.mean()) if after.size and before.size else np.nan
    if min(after.size, before.size) < 2:
        return Interval(mean, -np.inf, np.inf)
    parts = np.array([values.var(ddof=1) / values.size for values in (after, before)])
    if parts.sum() == 0:
        return Interval(mean, mean, mean)
    freedom = parts.sum() ** 2 / (parts**2 / (np.array([after.size, before.size]) - 1)).sum()
    half = float(t_errors(freedom) * np.sqrt(parts.sum()))
    return Interval(mean, mean - half, mean + half)


def pooled_interval(groups: list[np.ndarray], comparisons: int) -> Interval:
    """Mean of the groups' means (groups of n_g >= 2 values), with a t interval from the variance within groups, which
    is taken as common.

    comparisons: how many such intervals are to hold together with 95% confidence (Bonferroni).
    """
    means, freedom = [float(group.mean()) for group in groups], sum(group.size - 1 for group in groups)
    variance = sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom
    error = np.sqrt(variance * sum(1 / group.size for group in groups)) / len(groups)
    middle, half = float(np.mean(means)), float(t_errors(freedom, 1 - (1 - CONFIDENCE) / comparisons) * error)
    return Interval(middle, middle - half, middle + half)
