"""Statistics of an evaluation: how sure a Pass@1 is, unbiased pass@k, how many seeds a difference needs, what picking the best adds."""

from functools import cache

import numpy as np
from scipy import integrate, stats
from scipy.special import gammaln

from rftlab.shared.errors import check


def sampling_error(p: float | np.ndarray, n: int) -> float | np.ndarray:
    """Standard error sqrt(p (1-p)/n) of Pass@1 from one response to each of n questions drawn from a population of pass rate p."""
    check(n >= 1, f"n = {n}; allowed: 1 or more")
    return np.sqrt(np.asarray(p) * (1 - np.asarray(p)) / n)


def fixed_set_error(rates: np.ndarray, responses: int = 1) -> float:
    """Standard error of Pass@1 on a FIXED set of questions with pass rates (n,), from so many responses to each.

    It is sqrt(sum p_i (1-p_i) / responses) / n, never above `sampling_error` of the mean rate, and far below where rates are near 0 or 1.
    """
    rates = np.asarray(rates, dtype=np.float64)
    return float(np.sqrt((rates * (1 - rates)).sum() / responses) / rates.size)


def pass_at_k(n: int | np.ndarray, correct: int | np.ndarray, k: int) -> np.ndarray:
    """Unbiased pass@k = 1 - C(n-c, k)/C(n, k) from c correct of n >= k responses to a question (Chen et al. 2021, 2107.03374).

    n and correct broadcast; averaging over questions is left to the caller.
    """
    n, correct = np.broadcast_arrays(np.asarray(n), np.asarray(correct))
    check(bool(1 <= k <= n.min()), f"k = {k}; allowed: 1 to n = {n.min()}")
    check(bool((correct >= 0).all() and (correct <= n).all()), "correct must lie in 0 .. n")
    wrong = n - correct
    missed = np.exp(_log_choose(np.maximum(wrong, k), k) - _log_choose(n, k))
    return np.where(correct == 0, 0.0, np.where(wrong < k, 1.0, 1.0 - missed))


def _log_choose(n: np.ndarray, k: int) -> np.ndarray:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def power(seeds: int, effect: float, paired: bool = False, level: float = 0.05) -> float:
    """Chance that a two-sided t test finds a difference of `effect` standard deviations.

    Unpaired: `seeds` per arm, standard deviation of one run. Paired (common random numbers): standard deviation of a difference.
    """
    check(seeds >= 2, f"seeds = {seeds}; allowed: 2 or more")
    freedom = seeds - 1 if paired else 2 * (seeds - 1)
    shift = abs(effect) * np.sqrt(seeds if paired else seeds / 2)
    limit = stats.t.ppf(1 - level / 2, freedom)
    return float(stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift))


def seeds_needed(sigma: float, difference: float, paired: bool = False, chance: float = 0.8, level: float = 0.05) -> int:
    """Fewest seeds per arm at which a t test finds `difference` with this chance; sigma as in `power`.

    The normal approximation 7.85 sigma^2/difference^2 (twice that unpaired) is one to three seeds too few.
    """
    check(sigma > 0 and difference != 0, f"sigma = {sigma}, difference = {difference}; allowed: sigma above 0, a difference other than 0")
    seeds = 2
    while power(seeds, difference / sigma, paired, level) < chance:
        seeds += 1
    return seeds


@cache
def expected_maximum(n: int) -> float:
    """E of the largest of n independent standard normals."""
    check(n >= 1, f"n = {n}; allowed: 1 or more")
    value, _ = integrate.quad(lambda x: x * n * stats.norm.pdf(x) * stats.norm.cdf(x) ** (n - 1), -12, 12, epsabs=1e-13, epsrel=1e-12, limit=200)
    return float(value)


def winners_curse(n: int, error: float, spread: float = 0.0) -> float:
    """By how much the measured value of the best of n cells exceeds its true value, on average.

    error: standard error of a cell's measurement; spread: standard deviation of the true values (normal). It is
    E[max] error^2/sqrt(error^2 + spread^2): all of E[max] error where the cells are equal, less where they differ.
    """
    total = float(np.hypot(error, spread))
    return expected_maximum(n) * error**2 / total if total > 0 else 0.0
