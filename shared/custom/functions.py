"""Functions of the user's in the place of an advantage or a surrogate, and how compiled code calls them.

Compiled code calls an address, once for a batch: of a Python function that gets the arrays, hands each group to the
user's function and looks at what comes back. So the trainer, the simulator and a loop of one's own call the same. What
goes wrong is kept for the thread that called, because nothing can be raised through compiled code, and `check_own`
raises it.

A Python function is called once for each different group that it was given so far (rewards are often 0 or 1, groups
small), or for all groups at once where it says that it takes them so (groups.py); one that numba compiled is called
from a compiled loop.
"""

import ctypes
import hashlib
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.config.custom import OwnAdvantage, is_own
from rftlab.shared.config.surrogate import OwnSurrogate
from rftlab.shared.custom import watch
from rftlab.shared.custom.compiled import Compiled
from rftlab.shared.custom.groups import OneByOne, Together, check_finite, checked, frozen, spans_of
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, blaming, check, said_by
from rftlab.shared.plumbing.plugins import load_known
from rftlab.shared.plumbing.source import python_of, source_sha256

LIMIT = 10.0
"""Seconds that one call for a batch may take, looked at after it; watch.py looks at one that does not come back."""
KEPT_ARRAYS = 256
"""Addresses whose arrays are kept."""
_Address = ctypes.c_int64
_ADVANTAGE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[_Address] * 5)
_SURROGATE = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[_Address] * 5)


class OwnFunction(NamedTuple):
    """A registered function."""

    kind: str
    """advantage or surrogate."""
    name: str
    function: Callable
    address: int
    """Of the compiled code's way in."""
    entry: Any
    """What lies at the address; kept, so that it stays there."""
    batched: bool = False
    """Whether it takes stacked groups."""

    def of_group(self, rewards: np.ndarray) -> np.ndarray:
        """Advantages (K,) of one group whose baseline set is its own rewards (K,)."""
        arguments = [frozen(rewards[None] if self.batched else rewards) for _ in range(1 + takes_pool(self.function))]
        return self.function(*arguments).reshape(rewards.shape)


class _State(threading.local):
    """What a thread's calls have met."""

    calls = 0
    failure: str | None = None
    interrupt: BaseException | None = None
    round: int | None = None
    seconds = 0.0


_KNOWN: dict[tuple[str, str], OwnFunction] = {}
_SOURCES: dict[tuple[str, str], str] = {}
"""Identities as they were taken last."""
_state = _State()
_arrays: dict[tuple[int, int, type], np.ndarray] = {}


def begin() -> None:
    """Forget what went wrong and count calls from here."""
    _state.calls, _state.failure, _state.interrupt = 0, None, None


def seconds_inside() -> float:
    """Seconds that this thread has spent inside functions of the user's so far."""
    return _state.seconds


def check_own(calls_of_round: int = 0, first_round: int = 0) -> None:
    """Raise UserError where a function failed since `begin`: its name, the round where calls tell, the group."""
    failure, interrupt, number = _state.failure, _state.interrupt, _state.round
    if calls_of_round:
        number = first_round + (_state.calls - 1) // calls_of_round
    begin()
    if interrupt is not None:
        raise interrupt
    if failure is not None:
        place = "" if number is None else f"round {number}, "
        raise UserError(failure.replace("PLACE", place, 1))


@contextmanager
def at_round(number: int) -> Iterator[None]:
    """What fails here is said to be of this round."""
    _state.round = number
    try:
        yield
    finally:
        _state.round = None


def _guarded(call: Callable[..., None]) -> Callable[..., None]:
    """A way in that keeps the first failure, and does nothing after it."""

    def entry(*arguments: int) -> None:
        if _state.failure is not None:
            return
        calls = _state.calls = _state.calls + 1
        watch.enter(call.__name__)
        try:
            try:
                call(*arguments)
            finally:
                seconds = watch.leave()
                _state.seconds += seconds
            check(seconds <= LIMIT, f"PLACEtook {seconds:.0f} seconds; allowed: {LIMIT:.0f} for a batch")
        except KeyboardInterrupt as error:
            _state.failure, _state.interrupt = f"{call.__name__}: interrupted", error
        except BaseException as error:
            said = str(error) if isinstance(error, UserError) else f"PLACE{said_by(error)}"
            _state.failure = f"{call.__name__}: {' '.join(said.split())[:300]}"
        _state.calls = calls  # a function that calls another estimator begins to count anew

    return entry


def _array(address: int, n: int, number: Any = ctypes.c_double) -> np.ndarray:
    """The numbers at an address, which is only good during a call."""
    found = _arrays.get((address, n, number))
    if found is None:
        if len(_arrays) >= KEPT_ARRAYS:
            _arrays.clear()
        found = np.ctypeslib.as_array((number * n).from_address(address)) if n else np.zeros(0)
        _arrays[address, n, number] = found
    return found


def is_compiled(function: Callable) -> bool:
    """Whether numba compiled it."""
    return hasattr(function, "py_func")


def takes_pool(function: Callable) -> bool:
    """Whether an advantage reads the baseline set besides the rewards: it has a second parameter, and that is called
    pool or has no default."""
    return any(second.name == "pool" or second.default is second.empty for second in positional(function)[1:2])


def positional(function: Callable) -> list[inspect.Parameter]:
    """What a function may be given by place. Raises ValueError or TypeError where Python does not know."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in inspect.signature(python_of(function)).parameters.values() if one.kind in kinds]


def _advantage_entry(name: str, function: Callable, batched: bool) -> Callable[..., None]:
    """The way in of an advantage: numbers of responses and of edges of sets; addresses of rewards, group, pool,
    pool_starts, out."""
    compiled = Compiled(function, takes_pool(function)) if is_compiled(function) else None
    python = (Together if batched else OneByOne)(function, takes_pool(function))

    def call(n: int, n_edges: int, *addresses: int) -> None:
        rewards, out = _array(addresses[0], n), _array(addresses[4], n)
        group, starts = (_array(addresses[i], size, ctypes.c_int64) for i, size in ((1, n), (3, n_edges)))
        pool = _array(addresses[2], int(starts[-1]))
        if compiled is not None and compiled.looked and compiled.fill(rewards, group, pool, starts, out):
            return
        if bool((group[1:] >= group[:-1]).all()):
            python.fill(frozen(rewards), frozen(pool), spans_of(group, starts), out)
        else:
            order = np.argsort(group, kind="stable")
            found = np.empty(n)
            python.fill(frozen(rewards[order]), frozen(pool), spans_of(group[order], starts), found)
            out[order] = found
        if compiled is not None and not compiled.looked:
            compiled.looked = True
            again = np.empty(n)
            if compiled.fill(rewards, group, pool, starts, again):
                out[:] = again

    call.__name__ = f"advantage {name}"
    return call


def _surrogate_entry(name: str, function: Callable) -> Callable[..., None]:
    """The way in of a surrogate: number of tokens, addresses of advantage, logp, old_logp, value, slope."""

    def call(n: int, *addresses: int) -> None:
        advantage, logp, old_logp, value, slope = (_array(address, n) for address in addresses)
        with blaming("PLACE"):
            found = function(*map(frozen, (advantage, logp, old_logp)))
        check(isinstance(found, tuple) and len(found) == 2, "PLACEreturned no pair; allowed: (value, derivative)")
        for where, out, numbers in (("PLACEvalue: ", value, found[0]), ("PLACEderivative: ", slope, found[1])):
            out[:] = check_finite(checked(numbers, (n,), where), where)

    call.__name__ = f"surrogate {name}"
    return call


def register(kind: str, name: str, function: Callable, batched: bool = False) -> OwnFunction:
    """Make a function known under a name; another function of that name takes its place."""
    if kind == "advantage":
        entry: Any = _ADVANTAGE(_guarded(_advantage_entry(name, function, batched)))
    else:
        entry = _SURROGATE(_guarded(_surrogate_entry(name, function)))
    address = ctypes.cast(entry, ctypes.c_void_p).value or 0
    _KNOWN[kind, name] = known = OwnFunction(kind, name, function, address, entry, batched)
    _SOURCES.pop((kind, name), None)
    return known


def sealed(estimator: Estimator) -> Estimator:
    """The estimator with the identities that its functions have now. They are taken here and not under the decorator,
    where what stands below it in a file is not known yet."""
    parts = {field: getattr(estimator, field) for field in ("advantage", "surrogate")}
    own = {field: replace(part, source=_source_now(part)) for field, part in parts.items() if is_own(part)}
    return replace(estimator, **own) if own else estimator


def _source_now(part: OwnAdvantage | OwnSurrogate) -> str:
    known = registered(part)
    source = source_sha256(known.function, f"{known.kind} {known.name}")
    if known.batched:  # the same source says something else then
        source = hashlib.sha256(f"batched {source}".encode()).hexdigest()
    _SOURCES[known.kind, known.name] = source[:16]
    return source[:16]


def function_of(part: OwnAdvantage | OwnSurrogate) -> OwnFunction:
    """The function of a configuration. Raises UserError where it is not there, or is another one by now."""
    known = registered(part)
    same = part.source == (_SOURCES.get((known.kind, known.name)) or _source_now(part))
    same = same or part.source == _source_now(part)
    check(same, f"{known.kind} {part.name!r} is another function than the configuration's")
    return known


def registered(part: OwnAdvantage | OwnSurrogate) -> OwnFunction:
    """The function of that name. Raises UserError where there is none."""
    kind = "advantage" if isinstance(part, OwnAdvantage) else "surrogate"
    if (kind, part.name) not in _KNOWN:
        load_known()  # a process of its own has not read the files yet
    known = _KNOWN.get((kind, part.name))
    check(known is not None, f"{kind} {part.name!r} is not there; allowed: with --plugins and the file that has it")
    assert known is not None
    return known


def surrogate_at(address: int, *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and derivatives (T,) by the surrogate at an address, of advantage, logp and old_logp (T,). Raises
    UserError."""
    held = [np.ascontiguousarray(column, dtype=np.float64) for column in columns]
    value, slope = np.zeros_like(held[0]), np.zeros_like(held[0])
    begin()
    _SURROGATE(address)(value.size, *(column.ctypes.data for column in (*held, value, slope)))
    check_own()
    return value, slope
