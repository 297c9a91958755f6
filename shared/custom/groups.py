"""The groups of a batch, handed to a Python function of the user's one by one, or together where it takes them so.

What lies in the batch belongs to compiled code and is soon written over, so functions get copies that they cannot write
to. Whether the numbers that came back are finite is asked once for the whole batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import UserError, blaming, check, said_by

KEPT = 2**15
"""Groups whose advantages are kept."""
FLOAT = np.dtype(np.float64)


class Spans(NamedTuple):
    """Where the groups of a batch lie: of each its label, its rewards, its baseline set."""

    label: list[int]
    first: list[int]
    last: list[int]
    pool_first: list[int]
    pool_last: list[int]


def spans_of(group: np.ndarray, starts: np.ndarray) -> Spans:
    """Spans of groups (n,) whose labels go upward; starts (G+1,) of their baseline sets."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [group.size]]) if group.size else np.zeros(1, int)
    label = group[edges[:-1]]
    return Spans(*(a.tolist() for a in (label, edges[:-1], edges[1:], starts[label], starts[label + 1])))


def frozen(values: np.ndarray) -> np.ndarray:
    """A copy whose parts cannot be written to."""
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def refused(found: Any, shape: tuple[int, ...], where: str) -> UserError | None:
    """What is wrong with what a function returned; None where it is float64 numbers of a shape."""
    if type(found) is not np.ndarray or found.dtype != FLOAT:
        kind = found.dtype if type(found) is np.ndarray else type(found).__name__
        return UserError(f"{where}returned {kind}; allowed: an array of float64")
    return None if found.shape == shape else UserError(f"{where}returned shape {found.shape}; allowed: {shape}")


def checked(found: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """What a function returned, if it is float64 numbers of a shape. Raises UserError."""
    failure = refused(found, shape, where)
    if failure is not None:
        raise failure
    return found


def check_finite(found: np.ndarray, where: str) -> np.ndarray:
    """The numbers, if they are finite. Raises UserError."""
    check(bool(np.isfinite(found).all()), f"{where}returned numbers that are not finite")
    return found


class OneByOne:
    """A function of one group, called once for each different group that it was given so far."""

    def __init__(self, function: Callable, with_pool: bool):
        self.function, self.with_pool = function, with_pool
        self.known: dict[Any, np.ndarray] = {}

    def fill(self, rewards: np.ndarray, pool: np.ndarray, spans: Spans, out: np.ndarray) -> None:
        """Fill out (n,) with the advantages of rewards (n,) against pool (m,). Raises UserError."""
        said, said_of_pool, known = rewards.tobytes(), pool.tobytes() if self.with_pool else b"", self.known
        for g, a, b, c, d in zip(*spans, strict=True):
            key: Any = said[8 * a : 8 * b]
            if self.with_pool:
                key = key, said_of_pool[8 * c : 8 * d]
            found = known.get(key)
            if found is None:
                found = self._ask(rewards[a:b], pool[c:d], g, spans, out)
                if len(known) < KEPT:
                    known[key] = found = found.copy()
            out[a:b] = found
        _check_groups(out, spans, len(spans.label))

    def _ask(self, rewards: np.ndarray, pool: np.ndarray, g: int, spans: Spans, out: np.ndarray) -> np.ndarray:
        where = f"PLACEgroup {g}: "
        try:
            found = self.function(rewards, pool) if self.with_pool else self.function(rewards)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failure: UserError | None = UserError(where + said_by(error))
        else:
            failure = refused(found, rewards.shape, where)
        if failure is not None:
            _check_groups(out, spans, spans.label.index(g))  # the first failure is the one that is told
            raise failure
        return found


class Together:
    """A function of stacked groups: rewards (G, K), pool (G, n). Called once for each size of groups and pools."""

    def __init__(self, function: Callable, with_pool: bool):
        self.function, self.with_pool = function, with_pool

    def fill(self, rewards: np.ndarray, pool: np.ndarray, spans: Spans, out: np.ndarray) -> None:
        """As `OneByOne.fill`."""
        first, last, pool_first, pool_last = (np.asarray(part, dtype=np.int64) for part in spans[1:])
        sizes = np.stack([last - first, pool_last - pool_first if self.with_pool else 0 * first])
        for size, n in sorted({tuple(column) for column in sizes.T.tolist()}):
            (members,) = np.nonzero((sizes[0] == size) & (sizes[1] == n))
            rows = first[members, None] + np.arange(size)
            arguments = [frozen(rewards[rows])]
            if self.with_pool:
                arguments.append(frozen(pool[pool_first[members, None] + np.arange(n)]))
            out[rows] = self._ask(arguments, f"PLACEgroups {spans.label[members[0]]} to {spans.label[members[-1]]}: ")
        _check_groups(out, spans, len(spans.label))

    def _ask(self, arguments: list[np.ndarray], where: str) -> np.ndarray:
        with blaming(where):
            found = self.function(*arguments)
        return checked(found, arguments[0].shape, where)


def _check_groups(out: np.ndarray, spans: Spans, n: int) -> None:
    """Raise UserError that names the first of the first n groups with a number that is not finite."""
    end = spans.last[n - 1] if n else 0
    if not np.isfinite(out[:end]).all():
        bad = np.flatnonzero(~np.isfinite(out[:end]))[0]
        g = next(label for label, last in zip(spans.label, spans.last, strict=True) if bad < last)
        check_finite(out[:end], f"PLACEgroup {g}: ")
