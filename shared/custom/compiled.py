"""A function of the user's that numba compiled, called for the groups of a batch from a compiled loop.

Compiled code says little of what goes wrong in it. So the caller asks one by one, from Python, about the first batch,
and about each batch that was not filled.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


@numba.njit(error_model="numpy", nogil=True)
def _drive(function, rewards, group, pool, pool_starts, out):
    """A compiled function of (rewards, pool) on groups; returns whether all is well: responses of a group lie together,
    and each has a finite number."""
    stop, before = 0, -1
    while stop < rewards.shape[0]:
        start, g = stop, group[stop]
        if g <= before:
            return False
        before = g
        while stop < rewards.shape[0] and group[stop] == g:
            stop += 1
        found = function(rewards[start:stop], pool[pool_starts[g] : pool_starts[g + 1]])
        if found.shape[0] != stop - start:
            return False
        for i in range(stop - start):
            if not np.isfinite(found[i]):
                return False
            out[start + i] = found[i]
    return True


def _pair(function: Any, with_pool: bool) -> Any:
    """A compiled function of rewards and pool."""
    if with_pool:
        return function

    @numba.njit(error_model="numpy", nogil=True)
    def pair(rewards, pool):
        return function(rewards)

    return pair


def locked(values: np.ndarray) -> np.ndarray:
    """A view that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


class Compiled:
    """A compiled function of one group."""

    def __init__(self, function: Callable, with_pool: bool):
        self.pair, self.usable = _pair(function, with_pool), True
        self.looked = False
        """Whether the first batch was asked about from Python."""

    def fill(self, rewards: np.ndarray, group: np.ndarray, pool: np.ndarray, starts: np.ndarray, out) -> bool:
        """Fill out (n,) as `OneByOne.fill`, from compiled code; returns whether that went well."""
        try:
            return self.usable and _drive(self.pair, locked(rewards), group, locked(pool), starts, out)
        except Exception:  # it raises from Python too, or is called from there from now on
            self.usable = False
            return False
