"""The hash of a function's source: what it does, as far as it is written down."""

import hashlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

PLAIN = (int, float, str, bool, bytes, tuple, list, dict, type(None))


def python_of(function: Any) -> types.FunctionType:
    """The Python function of what may be compiled."""
    return getattr(function, "py_func", function)


def _text(function: types.FunctionType) -> str:
    """Its source, or where there is none (a session) its code."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = function.__code__
        return f"{code.co_code!r} {code.co_names} {[c for c in code.co_consts if isinstance(c, PLAIN)]}"


def _used(code: types.CodeType) -> Iterator[str]:
    """Names that a function's code and the functions inside it ask for."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _used(part)


def source_of(function: Any) -> str:
    """16 hexadecimal digits of the source of a function, of the functions of its module that it calls, however far, and
    of the plain values that it reads there or in what encloses it."""
    found: dict[str, str] = {}

    def visit(name: str, one: types.FunctionType) -> None:
        if name in found:
            return
        found[name] = _text(one)
        enclosed = inspect.getclosurevars(one).nonlocals
        for used, value in [
            *((n, one.__globals__.get(n)) for n in sorted(set(_used(one.__code__)))),
            *enclosed.items(),
        ]:
            inner = python_of(value)
            if isinstance(inner, types.FunctionType) and inner.__module__ == one.__module__:
                visit(f"{inner.__qualname__}", inner)
            elif isinstance(value, PLAIN) and value is not None:
                found[f"{name}.{used}"] = repr(value)
        found[f"{name} defaults"] = repr((one.__defaults__, one.__kwdefaults__))

    visit("", python_of(function))
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
