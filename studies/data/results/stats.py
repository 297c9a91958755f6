"""Compute numbers with their uncertainty: t intervals of means and of their differences, the number of seeds that a
difference needs, and the winner's curse of the best cell."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import integrate, stats
from scipy.special import stdtrit

from rftlab.shared.plumbing.errors import check

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """Number, or array of numbers, with a 95% interval; the interval is unbounded where no spread is known."""

    value: Any
    low: Any
    high: Any


NONE = Estimate(np.nan, np.nan, np.nan)
"""Missing number."""


class Mean(NamedTuple):
    """Mean with its standard error and the degrees of freedom behind it (inf where the error is known exactly); nan
    where they are not known."""

    value: Any
    error: Any = np.nan
    freedom: Any = np.nan

    def interval(self, confidence: float = CONFIDENCE) -> Estimate:
        """Return the two-sided t interval."""
        known = np.isfinite(self.error) & (np.asarray(self.freedom) > 0)
        half = np.where(known, t_errors(np.where(known, self.freedom, 1.0), confidence) * self.error, np.inf)
        ends: Any = (self.value, self.value - half, self.value + half)
        return Estimate(*(ends if half.ndim else map(float, ends)))

    @property
    def half(self) -> float:
        """Half-width of the 95% interval; nan where it is unbounded."""
        value, _, high = self.interval()
        return high - value if np.isfinite(high) else np.nan

    def less(self, other: "Mean") -> "Mean":
        """Return the difference to the mean of an independent sample."""
        return weighted_sum([self, other], [1, -1])


def weighted_sum(parts: Sequence[Mean], weights: Any) -> Mean:
    """Return the weighted sum of means of independent samples, with Welch's degrees of freedom, because each sample has
    a variance of its own."""
    values, errors, freedoms = np.array(parts, dtype=np.float64).T
    # Welch-Satterthwaite: (sum of squared errors)^2 over the sum of their squares by degrees of freedom
    squares = (np.asarray(weights) * errors) ** 2
    spread = (squares**2 / freedoms).sum()
    freedom = squares.sum() ** 2 / spread if spread > 0 else freedoms.min()
    return Mean(float(values @ weights), float(np.sqrt(squares.sum())), float(freedom))


def t_errors(freedom: Any, confidence: Any = CONFIDENCE) -> Any:
    """Return the half-width of a two-sided t interval in standard errors, for degrees of freedom that are a number or
    an array, inf for the normal distribution."""
    return stdtrit(freedom, (1 + confidence) / 2)


def mean(values: Any) -> Mean:
    """Return the mean of `values` along their last axis (..., n) without nan; arrays (...) where there are leading
    axes. The error is nan with fewer than two values."""
    values = np.asarray(values, dtype=np.float64)
    there = np.isfinite(values)
    n = there.sum(axis=-1)
    # not np.nanmean, which warns where all values are nan
    middle = np.where(n > 0, np.where(there, values, 0.0).sum(axis=-1) / np.maximum(n, 1), np.nan)
    squares = (np.where(there, values - middle[..., None], 0.0) ** 2).sum(axis=-1)
    freedom = np.maximum(n - 1, 1)
    error = np.where(n > 1, np.sqrt(squares / freedom / np.maximum(n, 1)), np.nan)
    return Mean(middle, error, n - 1) if middle.ndim else Mean(float(middle), float(error), float(n - 1))


def interval(values: Any) -> Estimate:
    """Return the t interval of the mean of `values` (..., n), as `mean` takes them; unbounded with fewer than two.
    Paired differences are given as one value per seed."""
    return mean(values).interval()


def pooled_interval(groups: list[np.ndarray], comparisons: int) -> Estimate:
    """Return the mean of the groups' means (groups of n_g >= 2 values), with a t interval from the variance within
    groups, which is taken as common.

    comparisons: number of such intervals that should hold together with 95% confidence (Bonferroni).
    """
    means, freedom = [float(group.mean()) for group in groups], sum(group.size - 1 for group in groups)
    variance = sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom
    error = np.sqrt(variance * sum(1 / group.size for group in groups)) / len(groups)
    return Mean(float(np.mean(means)), error, freedom).interval(1 - (1 - CONFIDENCE) / comparisons)


def binomial_error(value: float, n: float) -> float:
    """Return the standard error of a share (0 to 1) of n responses, positive for 0 and 1 too (Agresti and Coull
    1998)."""
    inner = np.clip(value, 2 / (n + 4), 1 - 2 / (n + 4))
    return float(np.sqrt(inner * (1 - inner) / n))


def weighted_quantiles(weights: np.ndarray, values: np.ndarray, parts: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return quantiles (parts,) of values (n,) with weights (n,) that sum to 1, linear between the values."""
    order = np.argsort(values)
    return np.interp(parts, np.cumsum(weights[order]), values[order])


def pooled_deviation(groups: list[np.ndarray]) -> Estimate:
    """Return the pooled standard deviation of groups of repeats (n_g >= 2 values), with its interval from the
    chi-squared distribution."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(((group - group.mean()) ** 2).sum() for group in groups)
    low, high = (np.sqrt(squares / stats.chi2.ppf((1 + sign * CONFIDENCE) / 2, freedom)) for sign in (1, -1))
    return Estimate(float(np.sqrt(squares / freedom)), float(low), float(high))


def power(seeds: int, effect: float, paired: bool = False, level: float = 0.05) -> float:
    """Return the chance that a two-sided t test finds a difference of `effect` standard deviations.

    Unpaired: `seeds` per arm, standard deviation of one run. Paired (common random numbers): standard deviation of a
    difference.
    """
    check(seeds >= 2, f"seeds = {seeds}; allowed: 2 or more")
    freedom = seeds - 1 if paired else 2 * (seeds - 1)
    shift = abs(effect) * np.sqrt(seeds if paired else seeds / 2)
    limit = t_errors(freedom, 1 - level)
    # the other tail by its mirror image: scipy's cdf is nan there for some shifts
    return float(stats.nct.sf(limit, freedom, shift) + stats.nct.sf(limit, freedom, -shift))


def seeds_needed(sigma: float, difference: float, paired: bool = False) -> int:
    """Return the fewest seeds per arm at which a t test at 5% finds `difference` with chance 0.8; sigma as in `power`.
    Raises UserError where more than MANY seeds are needed.

    The normal approximation 7.85 sigma^2/difference^2 (twice that unpaired) is one to three seeds too few.
    """
    check(
        sigma > 0 and difference != 0,
        f"sigma = {sigma}, difference = {difference}; allowed: sigma above 0, a difference other than 0",
    )
    low, seeds = 1, 2
    while power(seeds, difference / sigma, paired) < 0.8:
        low, seeds = seeds, 2 * seeds
        check(seeds <= MANY, f"difference = {difference:g} of sigma = {sigma:g}; allowed: one that {MANY} seeds show")
    while seeds - low > 1:  # bisection: power grows with the number of seeds
        middle = (low + seeds) // 2
        low, seeds = (middle, seeds) if power(middle, difference / sigma, paired) < 0.8 else (low, middle)
    return seeds


MANY = 1 << 20
"""Largest number of seeds; differences that need more are refused."""


@cache
def expected_maximum(n: int) -> float:
    """Return the expected largest of n independent standard normal numbers."""
    check(n >= 1, f"n = {n}; allowed: 1 or more")
    value, _ = integrate.quad(
        lambda x: x * n * stats.norm.pdf(x) * stats.norm.cdf(x) ** (n - 1),
        -12,
        12,
        epsabs=1e-13,
        epsrel=1e-12,
        limit=200,
    )
    return float(value)


def winners_curse(n: int, error: float, spread: float = 0.0) -> float:
    """Return how much the measured value of the best of n cells exceeds its true value on average.

    error: standard error of a cell's measurement; spread: standard deviation of the true values (normal). It is E[max]
    error^2/sqrt(error^2 + spread^2): all of E[max] error where the cells are equal, less where they differ.
    """
    total = float(np.hypot(error, spread))
    return 0.0 if total == 0 else expected_maximum(n) * error**2 / total
