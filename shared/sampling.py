"""Allocate a round's rollouts to contexts, and choose the rollouts that are trained on."""

import itertools

import numpy as np

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.jit import jit

MAX = 4
"""Largest number of rollouts of a context, as a multiple of the mean."""


@jit
def allocate_into(p, mean, out):
    """Fill out (B,) with the numbers of rollouts of contexts with pass rates p (B,), nearly in proportion to sqrt(p
    (1-p)).

    They sum to B mean, and each lies between 1 and MAX mean. Each rollout in turn goes to the context that is furthest
    below its share; ties go to the first.
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
    """Return the numbers of rollouts (B,) of contexts with estimated pass rates p (B,), `mean` on average: more where
    rewards vary more."""
    p = np.asarray(p, dtype=np.float64)
    check(bool(((p >= 0) & (p <= 1)).all()), f"p = {p}; allowed: 0 to 1")
    check(mean >= 1, f"mean = {mean}; allowed: 1 or more")
    out = np.zeros(p.size, dtype=np.int64)
    allocate_into(p, mean, out)
    return out


@jit
def keep_shortest_into(lengths, start, stop, keep, selected):
    """Fill selected[start:stop] with True for the `keep` shortest of those responses; of equal ones the earlier is
    kept."""
    for i in range(start, stop):
        shorter = 0
        for j in range(start, stop):
            shorter += (lengths[j] < lengths[i]) | ((lengths[j] == lengths[i]) & (j < i))
        selected[i] = shorter < keep


def keep_shortest(lengths: np.ndarray, first: np.ndarray, keep: int) -> np.ndarray:
    """Return a mask (R,) of the `keep` shortest responses of each group; group g holds responses first[g] ..
    first[g+1]-1."""
    lengths, first = np.asarray(lengths, dtype=np.int64), np.asarray(first, dtype=np.int64)
    check(keep >= 1, f"keep = {keep}; allowed: 1 or more")
    selected = np.zeros(lengths.size, dtype=np.bool_)
    for start, stop in itertools.pairwise(first):
        keep_shortest_into(lengths, start, stop, keep, selected)
    return selected
