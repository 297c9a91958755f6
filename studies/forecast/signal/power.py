"""Seeds and test questions that a difference needs, and whether a difference that was measured is one.

Two things blur a Pass@1: the seed of the training run, with standard deviation sigma, and the test questions. With k
responses to each of n questions, whose pass rates have mean p and standard deviation s, the score of a question has
variance

    v = s^2 + (p (1-p) - s^2) / k

Two runs on different questions differ by chance with variance 2 v / n. On the same questions the pass rates cancel,
where the runs differ by as much on every question, and 2 (p (1-p) - s^2) / (k n) is left. That is a lower bound.
"""

from itertools import combinations
from math import ceil, comb, inf, nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.data.results.stats import mean, power, seeds_needed

CHANCE, LEVEL = 0.8, 0.05
"""Chance to find a difference that is there; chance to find one that is not."""
ROUNDING = 1e-12
"""A standard error of a Pass@1 below this is none: runs that are equal, as rounded ones may be."""
MAX_SPLITS = 200_000
"""Splits of the runs that a permutation test counts."""


class Questions(NamedTuple):
    """The knowledge of the test questions."""

    p: float
    """Pass@1."""
    spread: float
    """Standard deviation of pass rates over questions; 0 where it is not known, which is never too small an answer
    for the same questions."""
    responses: int
    """To each question."""

    def variance(self, same: bool) -> float:
        """Of the difference of two scores of one question, by chance: on the same question, or on two."""
        within = (self.p * (1 - self.p) - self.spread**2) / self.responses
        return 2 * (within if same else self.spread**2 + within)


def checked_questions(p: float, spread: float, responses: int) -> Questions:
    """The same, where it makes sense. Raises UserError where it does not."""
    check(0 < p < 1, f"p = {p:g}; allowed: more than 0, less than 1")
    most = sqrt(p * (1 - p))
    check(0 <= spread < most, f"spread = {spread:g}; allowed: 0 to below sqrt(p (1 - p)) = {most:.3g}")
    check_count("responses", responses)
    return Questions(p, spread, responses)


def questions_needed(questions: Questions, difference: float, same: bool) -> int:
    """Test questions at which a two-sided z test finds a difference of Pass@1 with chance CHANCE, were there no noise
    of seeds."""
    need = stats.norm.isf(LEVEL / 2) + stats.norm.ppf(CHANCE)
    return max(1, ceil(need**2 * questions.variance(same) / difference**2))


def sigma_of_difference(sigma: float, correlation: float) -> float:
    """Standard deviation of the difference of two runs with one seed: sigma sqrt(2 (1 - correlation))."""
    check(-1 <= correlation < 1, f"correlation = {correlation:g}; allowed: -1 to below 1")
    return sigma * sqrt(2 * (1 - correlation))


def smallest_difference(sigma: float, seeds: int, paired: bool) -> float:
    """The difference that so many seeds an arm find with chance CHANCE; sigma of a run, or paired of a difference."""
    low, high = 0.0, 1.0
    while power(seeds, high, paired, LEVEL) < CHANCE:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if power(seeds, middle, paired, LEVEL) < CHANCE else (low, middle)
    return high * sigma


class Difference(NamedTuple):
    """Runs b less runs a."""

    value: float
    low: float
    """The ends of the 95% interval; -inf and inf where the noise is unknown: one run a side, or runs that are all
    equal."""
    high: float
    p_value: float
    """Of a t test: Welch's, or of the pairs; nan where it cannot be made."""
    sigma: float
    """Standard deviation of a run, pooled; paired, of a difference."""
    permutation: float
    """Exact p-value over all ways to deal the runs to two sides, or all signs of the pairs; nan where it was not
    counted."""
    least: float
    """The smallest value that the permutation test can have with so few runs."""

    @property
    def seen(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def compare_runs(a: np.ndarray, b: np.ndarray, paired: bool, sigma: float | None = None) -> Difference:
    """Whether runs with Pass@1 a and b differ. paired: a[i] and b[i] have one seed. sigma: of a run, where it is
    known from elsewhere; then a z test, and paired it is that of a difference."""
    check(len(a) > 0 and len(b) > 0, f"{len(a)} runs against {len(b)}; allowed: one or more on each side")
    check(not paired or len(a) == len(b), f"{len(a)} runs against {len(b)}; allowed: as many on each side in pairs")
    value = float(b.mean() - a.mean())
    counted = (nan, nan) if min(len(a), len(b)) < 2 else _permuted(a, b, paired)
    if sigma is not None:
        check(sigma > 0, f"sigma = {sigma:g}; allowed: more than 0")
        error = sigma * sqrt(1 / len(a) if paired else 1 / len(a) + 1 / len(b))
        width = stats.norm.isf(LEVEL / 2) * error
        return Difference(
            value, value - width, value + width, float(2 * stats.norm.sf(abs(value) / error)), sigma, *counted
        )
    measured = mean(b - a) if paired else mean(b).less(mean(a))
    if not measured.error >= ROUNDING:
        return Difference(value, -inf, inf, nan, nan, *counted)
    _, low, high = measured.interval(1 - LEVEL)
    p_value = float(2 * stats.t.sf(abs(value) / measured.error, measured.freedom))
    degrees = [len(a) - 1, len(b) - 1]
    pooled = np.average([a.var(ddof=1), b.var(ddof=1)], weights=degrees)
    return Difference(value, low, high, p_value, float((b - a).std(ddof=1) if paired else sqrt(pooled)), *counted)


def _permuted(a: np.ndarray, b: np.ndarray, paired: bool) -> tuple[float, float]:
    """Exact two-sided p-value of the difference of means, and the smallest that there can be."""
    tiny = 1e-12
    if paired:
        if len(a) > 16:
            return nan, nan
        signs = 1 - 2 * ((np.arange(2 ** len(a))[:, None] >> np.arange(len(a))) & 1)
        differences = np.abs(signs @ (b - a)) / len(a)
        return float((differences >= abs((b - a).mean()) - tiny).mean()), 2 / 2 ** len(a)
    every = np.concatenate([a, b])
    if comb(len(every), len(b)) > MAX_SPLITS:
        return nan, nan
    chosen = np.array(list(combinations(range(len(every)), len(b))))
    sums = every[chosen].sum(axis=1)
    differences = np.abs(sums / len(b) - (every.sum() - sums) / len(a))
    least = (2 if len(a) == len(b) else 1) / len(chosen)
    return float((differences >= abs(b.mean() - a.mean()) - tiny).mean()), least


def seeds_for(difference: float, sigma: float, paired: bool) -> int:
    """Seeds an arm for a difference; sigma of a run, or paired of a difference. More than any run has is a
    UserError."""
    return seeds_needed(sigma, difference, paired, CHANCE, LEVEL)
