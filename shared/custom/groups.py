"""Hand the groups of a batch to a custom function: one by one, stacked, or from a compiled loop where numba compiled
it.

The arrays of a batch belong to compiled code, which soon overwrites them, so functions get copies that they cannot
write to. The results are checked for finite numbers once for the whole batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from rftlab.shared.plumbing.errors import UserError, blaming, check

KEPT = 2**15
"""Number of distinct groups whose advantages are kept for later calls."""
FLOAT = np.dtype(np.float64)


class Spans(NamedTuple):
    """Places of the groups of a batch: the label, the rewards and the baseline set of each."""

    label: list[int]
    first: list[int]
    last: list[int]
    pool_first: list[int]
    pool_last: list[int]


def spans_by_group(group: np.ndarray, starts: np.ndarray) -> Spans:
    """Return the spans of groups (n,) whose labels ascend; starts (G+1,) of their baseline sets."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [group.size]]) if group.size else np.zeros(1, int)
    label = group[edges[:-1]]
    return Spans(*(a.tolist() for a in (label, edges[:-1], edges[1:], starts[label], starts[label + 1])))


def frozen(values: np.ndarray) -> np.ndarray:
    """Return a copy of an array that cannot be written to."""
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def checked(returned: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Return the result of a custom function if it is a float64 array of that shape. Raises UserError otherwise."""
    if type(returned) is not np.ndarray or returned.dtype != FLOAT:
        kind = returned.dtype if type(returned) is np.ndarray else type(returned).__name__
        raise UserError(f"{where}returned {kind}; allowed: an array of float64")
    check(returned.shape == shape, f"{where}returned shape {returned.shape}; allowed: {shape}")
    return returned


def check_finite(values: np.ndarray, where: str) -> np.ndarray:
    """Return the values if all are finite. Raises UserError otherwise."""
    check(bool(np.isfinite(values).all()), f"{where}returned numbers that are not finite")
    return values


def answer(function: Callable, arguments: list[np.ndarray], where: str) -> np.ndarray:
    """Call a function and return its result, checked to have the shape of its first argument. Raises UserError
    otherwise."""
    with blaming(where):
        returned = function(*arguments)
    return checked(returned, arguments[0].shape, where)


class OneByOne:
    """A custom function of one group, called once for each distinct group so far."""

    def __init__(self, function: Callable, with_pool: bool):
        self.function, self.with_pool = function, with_pool
        self.known: dict[Any, np.ndarray] = {}

    def fill(self, rewards: np.ndarray, pool: np.ndarray, spans: Spans, out: np.ndarray) -> None:
        """Fill out (n,) with the advantages of rewards (n,) against pool (m,). Raises UserError if the function
        fails."""
        bits, pool_bits, known = rewards.tobytes(), pool.tobytes() if self.with_pool else b"", self.known
        for i, (g, a, b, c, d) in enumerate(zip(*spans, strict=True)):
            key: Any = bits[8 * a : 8 * b]
            if self.with_pool:
                key = key, pool_bits[8 * c : 8 * d]
            advantages = known.get(key)
            if advantages is None:
                arguments = [rewards[a:b], pool[c:d]] if self.with_pool else [rewards[a:b]]
                try:
                    advantages = answer(self.function, arguments, f"PLACEgroup {g}: ")
                except UserError:
                    _check_groups(out, spans, i)  # the first failure is reported
                    raise
                if len(known) < KEPT:
                    known[key] = advantages = advantages.copy()
            out[a:b] = advantages
        _check_groups(out, spans, len(spans.label))


class Together:
    """A custom function of stacked groups: rewards (G, K), pool (G, n). It is called once for each size of groups and
    pools."""

    def __init__(self, function: Callable, with_pool: bool):
        self.function, self.with_pool = function, with_pool

    def fill(self, rewards: np.ndarray, pool: np.ndarray, spans: Spans, out: np.ndarray) -> None:
        """Fill out (n,) as `OneByOne.fill` does."""
        first, last, pool_first, pool_last = (np.asarray(part, dtype=np.int64) for part in spans[1:])
        sizes = np.stack([last - first, pool_last - pool_first if self.with_pool else 0 * first])
        for size, n in sorted({tuple(column) for column in sizes.T.tolist()}):
            (members,) = np.nonzero((sizes[0] == size) & (sizes[1] == n))
            rows = first[members, None] + np.arange(size)
            arguments = [frozen(rewards[rows])]
            if self.with_pool:
                arguments.append(frozen(pool[pool_first[members, None] + np.arange(n)]))
            where = f"PLACEgroups {spans.label[members[0]]} to {spans.label[members[-1]]}: "
            out[rows] = answer(self.function, arguments, where)
        _check_groups(out, spans, len(spans.label))


def _check_groups(out: np.ndarray, spans: Spans, n: int) -> None:
    """Raise UserError that names the first of the first n groups whose advantages are not finite."""
    end = spans.last[n - 1] if n else 0
    if not np.isfinite(out[:end]).all():
        bad = np.flatnonzero(~np.isfinite(out[:end]))[0]
        g = next(label for label, last in zip(spans.label, spans.last, strict=True) if bad < last)
        check_finite(out[:end], f"PLACEgroup {g}: ")


@numba.njit(error_model="numpy", nogil=True)
def _drive(function, rewards, group, pool, pool_starts, out):
    """Call a compiled function of (rewards, pool) for each group. Return False where the responses of a group do not
    lie together, or a number is not finite."""
    stop, before = 0, -1
    while stop < rewards.shape[0]:
        start, g = stop, group[stop]
        if g <= before:
            return False
        before = g
        while stop < rewards.shape[0] and group[stop] == g:
            stop += 1
        advantages = function(rewards[start:stop], pool[pool_starts[g] : pool_starts[g + 1]])
        if advantages.shape[0] != stop - start:
            return False
        for i in range(stop - start):
            if not np.isfinite(advantages[i]):
                return False
            out[start + i] = advantages[i]
    return True


class FromCompiledLoop:
    """A custom function of one group that numba compiled. Compiled code reports little about errors, so the caller runs
    the function one group at a time from Python for the first batch, and for each batch where `fill` returns False."""

    def __init__(self, function: Any, with_pool: bool):
        self.usable, self.driven = True, function
        if not with_pool:
            self.driven = numba.njit(error_model="numpy", nogil=True)(lambda rewards, pool: function(rewards))

    def fill(self, rewards: np.ndarray, group: np.ndarray, pool: np.ndarray, starts: np.ndarray, out) -> bool:
        """Fill out (n,) with the advantages of rewards (n,) of groups (n,); return whether that succeeded."""
        views = [values.view() for values in (rewards, pool)]
        for view in views:
            view.flags.writeable = False
        try:
            return self.usable and _drive(self.driven, views[0], group, views[1], starts, out)
        except Exception:  # it raises from Python too, or is called from Python from now on
            self.usable = False
            return False
