"""Compute statistics of an evaluation: standard errors of Pass@1, and unbiased pass@k."""

import numpy as np

from rftlab.shared.plumbing.errors import check


def sampling_error(p: float | np.ndarray, n: int) -> float | np.ndarray:
    """Return the standard error sqrt(p (1-p)/n) of Pass@1 from one response to each of n questions that are drawn from
    a population of pass rate p."""
    check(n >= 1, f"n = {n}; allowed: 1 or more")
    return np.sqrt(np.asarray(p) * (1 - np.asarray(p)) / n)


def fixed_set_error(rates: np.ndarray, responses: int = 1) -> float:
    """Return the standard error of Pass@1 on a FIXED set of questions with pass rates (n,), from so many responses to
    each.

    It is sqrt(sum p_i (1-p_i) / responses) / n, never above `sampling_error` of the mean rate, and far below
    where rates are near 0 or 1.
    """
    rates = np.asarray(rates, dtype=np.float64)
    return float(np.sqrt((rates * (1 - rates)).sum() / responses) / rates.size)


def measured_set_error(right: np.ndarray) -> float:
    """Return `fixed_set_error` of the mean of right (n, k), 0 or 1, where the pass rates are estimated from it.

    A measured rate's p (1 - p) is too small by (k-1)/k on average, so k - 1 responses count. With k = 1 the rate of a
    question cannot be estimated, and the result is `sampling_error`, which is never too small.
    """
    n, k = right.shape
    rates = right.mean(axis=1)
    return fixed_set_error(rates, k - 1) if k > 1 else float(sampling_error(rates.mean(), n))


def pass_at_k(n: int | np.ndarray, correct: int | np.ndarray, k: int) -> np.ndarray:
    """Return unbiased pass@k = 1 - C(n-c, k)/C(n, k) from c correct of n >= k responses to a question (2107.03374, eq.
    1).

    n and correct broadcast; averaging over questions is left to the caller.
    """
    n, correct = np.broadcast_arrays(np.asarray(n), np.asarray(correct))
    check(bool(1 <= k <= n.min()), f"k = {k}; allowed: 1 to n = {n.min()}")
    check(bool((correct >= 0).all() and (correct <= n).all()), "correct must lie in 0 .. n")
    missed = np.ones(n.shape)
    for j in range(k):
        missed *= np.maximum(0, n - correct - j) / (n - j)
    return 1.0 - missed
