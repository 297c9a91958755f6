"""Define functions in two versions: float32 with 16 lanes for the linear environment, float64 for the tabular one.

    @for_linear
    def softmax(logits, row, probs):
        '''What both do.'''

    @softmax.for_tabular
    def _(logits, row, probs): ...

The version is chosen by the types of arrays at compile time, so there is one code of the round, without a flag.
"""

import functools
from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload


def for_linear(linear: Callable) -> Any:
    """Return a function for compiled code alone, whose last array decides whether `linear` runs or the function
    decorated by `for_tabular`.

    A function that takes a plan first may have a third version, `for_one_token`, where the plan's answers have one
    token. The versions have the same arguments. A call from Python raises TypeError.
    """
    versions = {"linear": linear}

    def function(*args, **kwargs):
        raise TypeError(
            f"{linear.__module__}.{linear.__name__} is for compiled code; Python calls what `jit` or `entry` compiled"
        )

    @functools.wraps(linear)
    def version_for(*args):
        if "one token" in versions and _has_one_token(args[0]):
            return versions["one token"]
        return versions["linear" if _last_array(args).dtype == types.float32 else "tabular"]

    made: Any = functools.wraps(linear)(function)
    overload(made, jit_options={"error_model": "numpy"})(version_for)
    made.for_tabular = functools.partial(versions.__setitem__, "tabular")
    made.for_one_token = functools.partial(versions.__setitem__, "one token")
    return made


def _last_array(arguments) -> types.Array:
    return next(kind for kind in reversed(arguments) if isinstance(kind, types.Array))


def _has_one_token(plan_type) -> bool:
    return not isinstance(plan_type.types[plan_type.fields.index("token_starts")], types.Array)
