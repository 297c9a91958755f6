"""Call custom functions from compiled code, by address and once for a batch.

At the address is a Python function that gets the arrays, hands each group to the user's function and checks the result.
So the trainer, the simulator and a user's loop call the same function. No exception can pass through compiled code, so
a failure is kept for the calling thread, and `raising` raises it.

A Python function is called once for each distinct group (rewards are often 0 or 1, and groups small), or once for all
groups if it is registered as batched. A function that numba compiled is called from a compiled loop (groups.py).
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
"""Seconds that one call for a batch may take, checked after it returned; slow.py watches calls that do not return."""
_ADVANTAGE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)
_SURROGATE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)
_I64 = ir.IntType(64)


def _call(context, builder, signature, args, sizes):
    """Emit a call of the function at address args[0] with the lengths of some arrays and the addresses of the arrays'
    data."""
    made = [context.make_array(kind)(context, builder, a) for kind, a in zip(signature.args[1:], args[1:], strict=True)]
    numbers = [builder.extract_value(made[place].shape, 0) for place in sizes]
    addresses = [builder.ptrtoint(array.data, _I64) for array in made]
    kind = ir.FunctionType(ir.VoidType(), [_I64] * (len(numbers) + len(addresses)))
    builder.call(builder.inttoptr(args[0], kind.as_pointer()), [*numbers, *addresses])
    return context.get_dummy_value()


@intrinsic
def call_advantage(typingctx, address, rewards, group, pool, pool_starts, out):
    """Pass rewards (n,), group (n,), pool and pool_starts (G+1,), with the lengths n and G+1, to the function at an
    address, which fills out (n,)."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0, 3))

    return types.none(types.int64, rewards, group, pool, pool_starts, out), code


@intrinsic
def call_surrogate(typingctx, address, advantage, logp, old_logp, value, slope):
    """Pass advantage, logp and old_logp (T,) to the function at an address, which fills value and slope (T,)."""

    def code(context, builder, signature, args):
        return _call(context, builder, signature, args, (0,))

    return types.none(types.int64, advantage, logp, old_logp, value, slope), code


class _State(threading.local):
    """State of one thread: number of calls of custom functions, first failure, interrupt, and the round that errors
    name."""

    calls = 0
    failure: str | None = None
    interrupt: BaseException | None = None
    round: int | None = None


_state = _State()


@contextmanager
def raising(calls_per_round: int = 0, first_round: int = 0) -> Iterator[None]:
    """Raise UserError on leaving the block if a custom function failed in it. The message names the function, the
    group, and the round if calls_per_round tells it. An interrupt is raised as such."""
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
    """Name this round in errors of functions that are called inside the block."""
    _state.round = number
    try:
        yield
    finally:
        _state.round = None


def _guarded(call: Callable[..., None]) -> Callable[..., None]:
    """Wrap `call` as a callback that keeps the first failure and does nothing after it."""

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
        _state.calls = calls  # a function that calls another estimator resets the count

    return entry


@functools.lru_cache(maxsize=256)
def _array(address: int, n: int, number: Any = ctypes.c_double) -> np.ndarray:
    """Return the numbers at an address as an array, which is valid only during the call."""
    return np.ctypeslib.as_array((number * n).from_address(address)) if n else np.zeros(0)


def is_compiled(function: Callable) -> bool:
    """Whether numba compiled the function."""
    return hasattr(function, "py_func")


def takes_pool(function: Callable) -> bool:
    """Whether a custom advantage reads the baseline set besides the rewards: its second parameter is called pool or has
    no default."""
    return any(second.name == "pool" or second.default is second.empty for second in positional(function)[1:2])


def positional(function: Callable) -> list[inspect.Parameter]:
    """Return the parameters that a function takes by position. Raises ValueError or TypeError where Python does not
    know."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in inspect.signature(python_function(function)).parameters.values() if one.kind in kinds]


def _advantage_entry(name: str, function: Callable, batched: bool) -> Callable[..., None]:
    """Return the function that calls a custom advantage from compiled code. Its arguments are the number of responses,
    the number of edges of sets, and the addresses of rewards, group, pool, pool_starts, out."""
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
    """Return the function that calls a custom surrogate from compiled code. Its arguments are the number of tokens and
    the addresses of advantage, logp, old_logp, value, slope."""

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
    """Register a function under a name, in the place of any earlier one of that kind and name."""
    if kind == "advantage":
        entry: Any = _ADVANTAGE(_guarded(_advantage_entry(name, function, batched)))
    else:
        entry = _SURROGATE(_guarded(_surrogate_entry(name, function)))
    add(CustomFunction(kind, name, function, ctypes.cast(entry, ctypes.c_void_p).value or 0, entry, batched, of_batch))


def group_advantages(custom: CustomFunction, rewards: np.ndarray) -> np.ndarray:
    """Return advantages (K,) of one group whose baseline set is its own rewards (K,)."""
    arguments = [frozen(rewards[None] if custom.batched else rewards) for _ in range(1 + takes_pool(custom.function))]
    return custom.function(*arguments).reshape(rewards.shape)


def surrogate_at(address: int, *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and derivatives (T,) of the surrogate at an address, from advantage, logp and old_logp (T,). Raises
    UserError if the surrogate fails."""
    held = [np.ascontiguousarray(column, dtype=np.float64) for column in columns]
    value, slope = np.zeros_like(held[0]), np.zeros_like(held[0])
    with raising():
        _SURROGATE(address)(value.size, *(column.ctypes.data for column in (*held, value, slope)))
    return value, slope
