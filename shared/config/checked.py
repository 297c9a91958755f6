"""Dataclasses of configurations, whose values are checked against the declared types of their fields."""

import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache, reduce
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from rftlab.shared.plumbing.errors import check, shown

Kind = TypeVar("Kind")
_WORDS: dict[Any, str] = {int: "a whole number", float: "a real number", bool: "True or False", str: "a text"}


@dataclass_transform(frozen_default=True)
def config(kind: type[Kind]) -> type[Kind]:
    """Make a class a frozen dataclass that raises UserError, before its `__post_init__`, for a value whose type differs
    from its field's: whole and real numbers, texts, switches, parts, and tuples of these."""
    own: Callable[[Any], None] = getattr(kind, "__post_init__", _nothing)

    def checked(self: Any) -> None:
        made: Any = type(self)
        for name, allowed in _hints(made).items():
            value = getattr(self, name)
            fits = any(_is(value, each) for each in allowed)
            words = ", ".join(dict.fromkeys(_said(each) for each in allowed))
            check(fits, f"{made.__name__}.{name} = {shown(value)}; allowed: {words}")
        own(self)

    kind.__post_init__ = checked  # type: ignore[attr-defined]
    return dataclass(frozen=True)(kind)


def identity(made: Any, later: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration as nested dictionaries, without the fields in `later` (part, name, value) that have the
    value given there. Such fields were added after runs were stored, and those runs keep their identity."""
    facts: dict[str, Any] = asdict(made)
    for part, values in later.items():
        place = reduce(dict.__getitem__, part.split("."), facts)
        for name, value in values.items():
            if place.get(name) == value:
                place.pop(name, None)
    return facts


def rule_of_numbers(name: str, choices: Any, *codes: str) -> Any:
    """Return a named tuple type for kernels that covers a union of configurations. Its fields are `kind`, whole numbers
    under the names `codes`, and the real numbers of every configuration under their names; each defaults to 0."""
    reals = dict.fromkeys(field.name for choice in get_args(choices) for field in fields(choice) if field.type is float)
    caller = sys._getframe(1).f_globals["__name__"]  # numba's cache looks the type up in the caller's module
    made: Any = namedtuple
    return made(name, ("kind", *codes, *reals), defaults=(0,) * (1 + len(codes)) + (0.0,) * len(reals), module=caller)


def _nothing(self: Any) -> None:
    """Do nothing, for classes without checks of their own."""


@cache
def _hints(kind: Any) -> dict[str, tuple]:
    """Return the types of the fields that can be checked here. A field of names is checked by the class itself."""
    hints = get_type_hints(kind)
    every = {field.name: get_args(hints[field.name]) or (hints[field.name],) for field in fields(kind)}
    every |= {name: (hints[name],) for name in every if get_origin(hints[name]) is tuple}
    return {name: kinds for name, kinds in every.items() if all(_known(each) for each in kinds)}


def _known(kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return get_args(kind)[-1:] == (Ellipsis,) and _known(get_args(kind)[0])
    return isinstance(kind, type) and kind is not Any  # from Python 3.11 on Any is a class


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is(part, get_args(kind)[0]) for part in value)
    if kind is int or kind is float:
        return isinstance(value, Integral if kind is int else Real) and (
            not isinstance(value, int) or abs(value) < 2**1000
        )  # within the range of a float
    if kind is bool:
        return isinstance(value, Integral) and value in (0, 1)
    return isinstance(value, kind)


def _said(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"a tuple, each {_said(get_args(kind)[0])}"
    return _WORDS.get(kind) or ("None" if kind is type(None) else kind.__name__)
