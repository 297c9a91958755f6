"""Baseline sets, and their statistics.

The baseline set of a group is the rewards that give its mean and spread: those of its trained responses, of support
rollouts (sampled and scored, not trained on), and of the context's replay window. It feeds only the advantages of
trained responses.
"""

from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check, check_labels
from rftlab.shared.plumbing.jit import inner, kernel

LARGEST = 1e100
"""Largest absolute value of a reward. The squares of sums of such rewards are finite."""


class Pool(NamedTuple):
    """Baseline sets of G groups, packed: group g holds rewards[starts[g] .. starts[g+1]-1]."""

    rewards: np.ndarray
    starts: np.ndarray


def make_pool(n_groups: int, *parts: tuple[np.ndarray, np.ndarray]) -> Pool:
    """Return baseline sets from (rewards, group) pairs: trained responses first, then support rollouts.

    rewards, group: (n,) each; labels 0 .. n_groups-1 in any order; within a group the order of the parts is kept.
    """
    columns = [(np.asarray(rewards, dtype=np.float64), np.asarray(group, dtype=np.int64)) for rewards, group in parts]
    for rewards, group in columns:
        check(
            rewards.shape == group.shape,
            f"rewards {rewards.shape} and group {group.shape} must have one entry per response",
        )
    rewards, group = (np.concatenate(column) for column in zip(*columns, strict=True))
    check_labels("group", group, n_groups)
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))]).astype(np.int64)
    return Pool(rewards[np.argsort(group, kind="stable")], starts)


@kernel(inline="always")
def mean_between(values, start, stop):
    """Return the mean of values[start:stop], nan where there are none. The mean of equal values is exact."""
    part = values[start:stop]
    origin = part[0] if stop > start else 0.0
    total = 0.0
    for i in range(part.shape[0]):
        total += part[i] - origin
    return origin + total / part.shape[0]


@kernel(inline="always")
def deviation(values, start, stop, mean, ddof):
    """Return the standard deviation of values[start:stop] about their `mean_between`; nan where there are too few."""
    part = values[start:stop]
    squares = 0.0
    for i in range(part.shape[0]):
        squares += (part[i] - mean) ** 2
    return np.sqrt(squares / (part.shape[0] - ddof))


@kernel
def mean_and_std(values, start, stop, ddof):
    """Return `mean_between` and `deviation` of values[start:stop]."""
    mean = mean_between(values, start, stop)
    return mean, deviation(values, start, stop, mean, ddof)


@inner
def runner_up(values, start, stop):
    """Return the largest and the second largest of values[start:stop], which are equal where the top is tied."""
    best, second = -np.inf, -np.inf
    for i in range(start, stop):
        best, second = max(best, values[i]), max(second, min(best, values[i]))
    return best, second
