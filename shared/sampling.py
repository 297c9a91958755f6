"""The rules that spend a round's rollouts, and choose those that are trained on."""

import itertools

import numpy as np

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.jit import jit

MAX = 4
"""A context gets at most this many times the mean number of rollouts."""


@jit
def allocate_into(p, mean, out):
    """Fill out (B,) with rollouts of contexts with pass rates p (B,): B mean in all, each from 1 to MAX mean, near
    sqrt(p (1-p)).

    One at a time to the context that is furthest below its part; ties go to the first.
    """
    n = p.shape[0]
    part = np.sqrt(p * (1.0 - p)) + 1e-9
    out[:] = 1
    for _ in range(n * (mean - 1)):
        best, need = 0, -1.0
        for i in range(n):
            if out[i] < MAX * mean and part[i] / out[i] > need:
                best, need = i, part[i] / out[i]
        out[best] += 1


def allocate(p: np.ndarray, mean: int) -> np.ndarray:
    """Rollouts (B,) of contexts with estimated pass rates p (B,), `mean` on average: more where rewards vary more."""
    p = np.asarray(p, dtype=np.float64)
    check(bool(((p >= 0) & (p <= 1)).all()), f"p = {p}; allowed: 0 to 1")
    check(mean >= 1, f"mean = {mean}; allowed: 1 or more")
    out = np.zeros(p.size, dtype=np.int64)
    allocate_into(p, mean, out)
    return out


@jit
def keep_shortest_into(lengths, start, stop, keep, selected):
    """Set selected[start:stop]: True for the `keep` shortest of those responses, the earlier one where two are
    equal."""
    for i in range(start, stop):
        shorter = 0
        for j in range(start, stop):
            shorter += (lengths[j] < lengths[i]) | ((lengths[j] == lengths[i]) & (j < i))
        selected[i] = shorter < keep


def keep_shortest(lengths: np.ndarray, first: np.ndarray, keep: int) -> np.ndarray:
    """Which responses (R,) of groups that lie at first[g] .. first[g+1]-1 are among the `keep` shortest of their
    group."""
    lengths, first = np.asarray(lengths, dtype=np.int64), np.asarray(first, dtype=np.int64)
    check(keep >= 1, f"keep = {keep}; allowed: 1 or more")
    selected = np.zeros(lengths.size, dtype=np.bool_)
    for start, stop in itertools.pairwise(first):
        keep_shortest_into(lengths, start, stop, keep, selected)
    return selected
