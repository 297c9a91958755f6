"""A checksum of what a user's function is, so that a changed function never meets what another one has found.

It covers the source of the function and, wherever it lies in the user's own files, of all that its names lead to:
functions, classes, modules, and constants with their values. What is installed counts by its name alone. A function
typed into a session, whose source Python does not keep, counts by its code. What a function reads or imports when it is
called (files, services, the clock) is not seen.
"""

import dis
import functools
import hashlib
import inspect
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from rftlab.shared.errors import UserError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_BUNDLES = (tuple, list, set, frozenset, dict)


def python_of(function: Any) -> Any:
    """The Python function of what may be compiled by numba."""
    return getattr(function, "py_func", function)


def source_sha256(function: Any) -> str:
    """The checksum of a callable. Raises UserError for a class typed into a session, whose source cannot be read."""
    digest = hashlib.sha256()
    for part in _parts(function, {}):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Texts that say what a value is. seen: what was met on the way, by its id, which so stays its own."""
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif id(value) not in seen:
        seen[id(value)] = value
        yield from _parts_of_new(value, seen)


def _parts_of_new(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    if isinstance(value, _BUNDLES):
        yield from _parts_of_bundle(value, seen)
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value, seen)
    elif isinstance(value, functools.partial):
        yield from _parts((value.func, value.args, value.keywords), seen)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, value.__self__), seen)
    elif isinstance(value, re.Pattern):
        yield from _parts((value.pattern, value.flags), seen)
    elif isinstance(value, ModuleType):
        yield value.__name__ if _installed(value) else _file_text(value)
    elif isinstance(value, type):
        yield from _parts_of_class(value, seen)
    elif hasattr(type(value), "__array__"):
        yield from _parts_of_array(value, seen)
    else:
        yield from _parts_of_instance(value, seen)


def _parts_of_bundle(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    yield f"{type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        for pair in value.items():
            yield from _parts(pair, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted("".join(_parts(part, {})) for part in value)
    else:
        for part in value:
            yield from _parts(part, seen)


def _parts_of_function(function: FunctionType, seen: dict[int, Any]) -> Iterator[str]:
    if _installed(function):
        yield _name(function)
        return
    yield from _parts_of_code(function.__code__)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents, seen)
    for name in sorted(_globals_of(function.__code__) & function.__globals__.keys()):
        yield name
        yield from _parts(function.__globals__[name], seen)


def _parts_of_code(code: CodeType) -> Iterator[str]:
    """Its source; without one what it does, names, and constants, which may be code themselves."""
    try:
        yield inspect.getsource(code)
    except (OSError, IndexError):
        yield f"{code.co_code!r} {code.co_names}"
        for part in code.co_consts:
            yield from _parts_of_code(part) if isinstance(part, CodeType) else [repr(part)]


def _parts_of_class(value: type, seen: dict[int, Any]) -> Iterator[str]:
    """Its text, the classes that it is made from, and what the names in its methods lead to."""
    if _installed(value):
        yield _name(value)
        return
    yield _text(value)
    yield from _parts(value.__bases__, seen)
    for member in vars(value).values():
        inner = getattr(member, "__func__", getattr(member, "fget", member))  # of a static method, of a property
        if isinstance(inner, FunctionType):
            yield from _parts(inner, seen)


def _parts_of_array(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """An array, a tensor or a table by every number in it: how Python shows one leaves some out."""
    import numpy as np

    try:
        numbers = np.asarray(value)
    except Exception:  # as a tensor that lies elsewhere
        yield from _parts_of_instance(value, seen)
        return
    yield f"{_name(type(value))} {numbers.dtype} {numbers.shape}"
    for labels in (getattr(value, name, None) for name in ("index", "columns")):  # of a table
        if hasattr(type(labels), "__array__"):
            yield from _parts(labels, seen)
    if numbers.dtype.hasobject:
        yield from _parts(numbers.tolist(), seen)
    else:
        yield hashlib.sha256(numbers.tobytes()).hexdigest()


def _parts_of_instance(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """A wrapper by what it wraps, an object of the user's by its class and fields, another by how Python shows it
    unless that is its address."""
    kind = type(value)
    yield _name(kind)
    if hasattr(value, "__wrapped__"):
        yield from _parts(value.__wrapped__, seen)
    elif not _installed(kind):
        yield from _parts((kind, object.__getstate__(value)), seen)
    elif " at 0x" not in (shown := repr(value)):
        yield shown


def _globals_of(code: CodeType) -> set[str]:
    """Names that a code and those inside it look up in their module."""
    found = {str(step.argval) for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _text(value: type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError, IndexError):
        raise UserError(
            f"the source of the class {_name(value)} cannot be read; allowed: a class in a file, so that a run can say "
            "with which one it was made"
        ) from None


def _file_text(module: ModuleType) -> str:
    return Path(inspect.getfile(module)).read_text(encoding="utf-8", errors="surrogateescape")


def _installed(value: Any) -> bool:
    """Whether a function, class or module comes with Python or with a package, not from the user's own files."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    if home == "__main__":
        return False  # Python takes what was typed into a session for a part of the program that runs it
    if home.partition(".")[0] == "rftlab":
        return True
    try:
        path = Path(inspect.getfile(value)).resolve()
    except (TypeError, OSError):
        return True
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return "site-packages" in path.parts or any(path.is_relative_to(Path(place).resolve()) for place in places)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
