"""Calls of custom functions from compiled code: at an address, once for a batch.

At the address is a Python function that gets the arrays, hands each group to the user's function and looks at what
comes back. So the trainer, the simulator and a user's loop call the same function. Nothing can be raised through
compiled code, so what goes wrong is kept for the thread that called, and `raising` raises it.

A Python function is called once for each different group that it was given so far (rewards are often 0 or 1, groups
small), or for all groups at once where it says that it takes them so; one that numba compiled is called from a
compiled loop (groups.py).
"""

import ctypes
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rftlab.shared.custom import slow
from rftlab.shared.custom.groups import (
    FromCompiledLoop,
    OneByOne,
    Together,
    check_finite,
    checked,
    frozen,
    spans_by_group,
)
from rftlab.shared.custom.identity import python_function
from rftlab.shared.custom.registry import CustomFunction, add
from rftlab.shared.plumbing.errors import UserError, blaming, check, said_by

LIMIT = 10.0
"""Seconds that one call for a batch may take, looked at after it; slow.py looks at one that does not come back."""
_ADVANTAGE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)
_SURROGATE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)
_I64 = ir.IntType(64)


def _call(context, builder, signature, args, sizes):
    """Call args[0] with whole numbers and the addresses of the other arguments' data."""
    made = [context.make_array(kind)(context, builder, a) for kind, a in zip(signature.args[1:], args[1:], strict=True)]
    numbers = [builder.extract_value(made[place].shape, 0) for place in sizes]
    addresses = [builder.ptrtoint(array.data, _I64) for array in made]
    kind = ir.FunctionType(ir.VoidType(), [_I64] * (len(numbers) + len(addresses)))
    builder.call(builder.inttoptr(args[0], kind.as_pointer()), [*numbers, *addresses])
    return context.get_dummy_value()


@intrinsic
def call_advantage(typingctx, address, rewards, group, pool, pool_starts, out):
    """Hand rewards (n,), group (n,), pool and pool_starts (G+1,) to an address, which fills out (n,); G+1 is said
    too."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0, 3))

    return types.none(types.int64, rewards, group, pool, pool_starts, out), code


@intrinsic
def call_surrogate(typingctx, address, advantage, logp, old_logp, value, slope):
    """Hand advantage, logp and old_logp (T,) to an address, which fills value and slope (T,)."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0,))

    return types.none(types.int64, advantage, logp, old_logp, value, slope), code


class _State(threading.local):
    """The state of a thread's calls."""

    calls = 0
    failure: str | None = None
    interrupt: BaseException | None = None
    round: int | None = None


_state = _State()


@contextmanager
def raising(calls_per_round: int = 0, first_round: int = 0) -> Iterator[None]:
    """Raise UserError at the end where a function failed in here: its name, the round where the number of calls tells,
    the group. An interrupt stays one."""
    _state.calls, _state.failure, _state.interrupt = 0, None, None
    yield
    failure, interrupt, number = _state.failure, _state.interrupt, _state.round
    if calls_per_round:
        number = first_round + (_state.calls - 1) // calls_per_round
    _state.calls, _state.failure, _state.interrupt = 0, None, None
    if interrupt is not None:
        raise interrupt
    if failure is not None:
        place = "" if number is None else f"round {number}, "
        raise UserError(failure.replace("PLACE", place, 1))


@contextmanager
def at_round(number: int) -> Iterator[None]:
    """Name this round in errors of functions that are called inside."""
    _state.round = number
    try:
        yield
    finally:
        _state.round = None


def _guarded(call: Callable[..., None]) -> Callable[..., None]:
    """The callback at an address: it keeps the first failure, and does nothing after it."""

    def entry(*arguments: int) -> None:
        if _state.failure is not None:
            return
        calls = _state.calls = _state.calls + 1
        slow.enter(call.__name__)
        try:
            try:
                call(*arguments)
            finally:
                seconds = slow.leave()
            check(seconds <= LIMIT, f"PLACEtook {seconds:.0f} seconds; allowed: {LIMIT:.0f} for a batch")
        except KeyboardInterrupt as error:
            _state.failure, _state.interrupt = f"{call.__name__}: interrupted", error
        except BaseException as error:
            said = str(error) if isinstance(error, UserError) else f"PLACE{said_by(error)}"
            _state.failure = f"{call.__name__}: {' '.join(said.split())[:300]}"
        _state.calls = calls  # a function that calls another estimator begins to count anew

    return entry


@functools.lru_cache(maxsize=256)
def _array(address: int, n: int, number: Any = ctypes.c_double) -> np.ndarray:
    """The numbers at an address, which is only good during a call."""
    return np.ctypeslib.as_array((number * n).from_address(address)) if n else np.zeros(0)


def is_compiled(function: Callable) -> bool:
    """Whether numba compiled it."""
    return hasattr(function, "py_func")


def takes_pool(function: Callable) -> bool:
    """Whether an advantage reads the baseline set besides the rewards: it has a second parameter, and that is called
    pool or has no default."""
    return any(second.name == "pool" or second.default is second.empty for second in positional(function)[1:2])


def positional(function: Callable) -> list[inspect.Parameter]:
    """The arguments that a function may take by position. Raises ValueError or TypeError where Python does not know."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in inspect.signature(python_function(function)).parameters.values() if one.kind in kinds]


def _advantage_entry(name: str, function: Callable, batched: bool) -> Callable[..., None]:
    """Call a custom advantage from compiled code. The arguments are numbers of responses and of edges of sets;
    addresses of rewards, group, pool, pool_starts, out."""
    with_pool = takes_pool(function)
    compiled = FromCompiledLoop(function, with_pool) if is_compiled(function) else None
    python, is_first = (Together if batched else OneByOne)(function, with_pool), True

    def call(n: int, n_edges: int, *addresses: int) -> None:
        nonlocal is_first
        rewards, out = _array(addresses[0], n), _array(addresses[4], n)
        group, starts = (_array(addresses[i], size, ctypes.c_int64) for i, size in ((1, n), (3, n_edges)))
        pool = _array(addresses[2], int(starts[-1]))
        if compiled is not None and not is_first and compiled.fill(rewards, group, pool, starts, out):
            return
        order = slice(None) if bool((group[1:] >= group[:-1]).all()) else np.argsort(group, kind="stable")
        advantages = np.empty(n)
        python.fill(frozen(rewards[order]), frozen(pool), spans_by_group(group[order], starts), advantages)
        out[order] = advantages
        if compiled is not None and is_first:
            is_first = False
            if compiled.fill(rewards, group, pool, starts, advantages):
                out[:] = advantages

    call.__name__ = f"advantage {name}"
    return call


def _surrogate_entry(name: str, function: Callable) -> Callable[..., None]:
    """Call a custom surrogate from compiled code. The arguments are the number of tokens, addresses of advantage, logp,
    old_logp, value, slope."""

    def call(n: int, *addresses: int) -> None:
        advantage, logp, old_logp, value, slope = (_array(address, n) for address in addresses)
        with blaming("PLACE"):
            returned = function(*map(frozen, (advantage, logp, old_logp)))
        pair = isinstance(returned, tuple) and len(returned) == 2
        check(pair, "PLACEreturned no pair; allowed: (value, derivative)")
        for where, out, numbers in (("PLACEvalue: ", value, returned[0]), ("PLACEderivative: ", slope, returned[1])):
            out[:] = check_finite(checked(numbers, (n,), where), where)

    call.__name__ = f"surrogate {name}"
    return call


def register(kind: str, name: str, function: Callable, batched: bool = False, of_batch: bool = False) -> None:
    """Make a function known under a name; another function of that name goes."""
    if kind == "advantage":
        entry: Any = _ADVANTAGE(_guarded(_advantage_entry(name, function, batched)))
    else:
        entry = _SURROGATE(_guarded(_surrogate_entry(name, function)))
    add(CustomFunction(kind, name, function, ctypes.cast(entry, ctypes.c_void_p).value or 0, entry, batched, of_batch))


def group_advantages(custom: CustomFunction, rewards: np.ndarray) -> np.ndarray:
    """Advantages (K,) of one group whose baseline set is its own rewards (K,)."""
    arguments = [frozen(rewards[None] if custom.batched else rewards) for _ in range(1 + takes_pool(custom.function))]
    return custom.function(*arguments).reshape(rewards.shape)


def surrogate_at(address: int, *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and derivatives (T,) by the surrogate at an address, of advantage, logp and old_logp (T,). Raises
    UserError."""
    held = [np.ascontiguousarray(column, dtype=np.float64) for column in columns]
    value, slope = np.zeros_like(held[0]), np.zeros_like(held[0])
    with raising():
        _SURROGATE(address)(value.size, *(column.ctypes.data for column in (*held, value, slope)))
    return value, slope
