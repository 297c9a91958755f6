"""A moving average of each context's rewards, as baseline or as estimate of its difficulty. State is one plain array.

sums (n_contexts + 1, 2): discounted sum of rewards and number of rewards of each context; the last row is that of all
contexts together.
"""

import numpy as np

from rftlab.shared.plumbing.errors import check, check_labels
from rftlab.shared.plumbing.jit import jit


def empty_averages(n_contexts: int) -> np.ndarray:
    """No reward seen yet: (n_contexts + 1, 2)."""
    return np.zeros((n_contexts + 1, 2))


@jit
def add_into(sums, context, decay, rewards, start, stop):
    """A visit: older rewards keep `decay` of their weight, rewards[start:stop] come in with weight 1."""
    for row in (context, sums.shape[0] - 1):
        sums[row] *= decay
        for i in range(start, stop):
            sums[row, 0] += rewards[i]
        sums[row, 1] += stop - start


@jit
def average_of(sums, context):
    """Moving average of a context that was seen, else that of all contexts, else 0."""
    for row in (context, sums.shape[0] - 1):
        if sums[row, 1] > 0.0:
            return sums[row, 0] / sums[row, 1]
    return 0.0


@jit
def difficulty_of(sums, context):
    """Estimated pass rate: the average with one success and one failure added, 1/2 for a context that was never
    seen; penalties may not leave 0 .. 1."""
    return min(max((sums[context, 0] + 1.0) / (sums[context, 1] + 2.0), 0.0), 1.0)


def difficulty_within(sums: np.ndarray, context: int, low: float, high: float) -> float:
    """`difficulty_of` for rewards from `low` to `high`: where the average stands between them, 0 to 1.

    p (1 - p) (high - low)^2 is the largest variance that rewards of that mean and that range can have.
    """
    total, count = sums[context]
    return float(min(max(((total - count * low) / (high - low) + 1.0) / (count + 2.0), 0.0), 1.0))


def averages_of(sums: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Baselines (n,) of contexts (n,), before the rewards of this visit are added."""
    contexts = np.asarray(contexts, dtype=np.int64)
    check_labels("contexts", contexts, len(sums) - 1)
    return np.array([average_of(sums, context) for context in contexts], dtype=np.float64)


def add(sums: np.ndarray, contexts: np.ndarray, rewards: np.ndarray, decay: float) -> None:
    """One visit of each context (n,) with its rewards (n, K)."""
    contexts, rewards = np.asarray(contexts, dtype=np.int64), np.asarray(rewards, dtype=np.float64)
    check(
        rewards.ndim == 2 and rewards.shape[0] == contexts.size,
        f"rewards {rewards.shape} must have one row per context ({contexts.size})",
    )
    check(0 <= decay <= 1, f"decay = {decay}; allowed: 0 to 1")
    check_labels("contexts", contexts, len(sums) - 1)
    for context, row in zip(contexts, rewards, strict=True):
        add_into(sums, context, decay, row, 0, row.size)
