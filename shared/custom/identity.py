"""Compute the identity of a custom function: a checksum of everything that decides its results, so that results of one
version are never used for another.

It covers the code, defaults, closure and attributes of the function, and those of every user function, class and object
that its names refer to, with their present values. Objects count by what pickle would store. The text of every user
file that these files import is included. Installed packages count by name and version.

An object that cannot be followed completely makes the identity valid for this session alone, so that its results are
used in no other.
"""

import ast
import copyreg
import dis
import functools
import hashlib
import importlib.util
import os
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from rftlab.shared.plumbing.errors import plain

SESSION = "RFTLAB_SESSION"
"""Environment variable that holds the name of this session for processes started from here."""
_PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis), type(NotImplemented))
_SKIPPED = {"__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate_func__", "__annotations_cache__"}
_SKIPPED |= {"_abc_impl", "__builtins__", "__path__", "__cached__", "__loader__", "__spec__", "__firstlineno__"}
_OUTSIDE = {"exec", "eval", "compile", "__import__", "import_module", "globals", "vars", "locals", "modules", "open"}
_OUTSIDE |= {"read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "read_csv", "read_json"}
_OUTSIDE |= {"read_parquet", "environ", "getenv", "urlopen", "input", "run_path", "run_module"}
"""Names in a function's code that read things which exist only when it is called, such as files or variables."""
_ROOT = Path(__file__).resolve().parents[2]
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_INSTALLED += [_ROOT / name for name in ("shared", "sim", "llm", "studies", "rftlab")]


def python_function(function: Any) -> Any:
    """Return the Python function behind one that numba may have compiled."""
    return getattr(function, "py_func", function)


_told: set[str] = set()


def source_sha256(function: Any, what: str = "a function") -> str:
    """Return the identity of a callable, including the present values of everything it reads. A warning on standard
    error says once which parts could not be followed."""
    walk, digest = _Walk(), hashlib.sha256(sys.version.encode())
    for part in walk.parts(function):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    if walk.unknown:
        digest.update(os.environ.setdefault(SESSION, uuid.uuid4().hex).encode())
        line = f"rftlab: {what}: {walk.unknown} cannot be followed, so its results are not used in another session"
        if line not in _told:
            _told.add(line)
            print(plain(line), file=sys.stderr, flush=True)
    return digest.hexdigest()


class _Walk:
    """One walk over all objects that a function refers to."""

    seen: dict[int, tuple[int, Any]]
    files: set[Path]

    def __init__(self):
        self.seen = {}
        """Visited objects by id, each with its number. Holding the objects keeps their ids unique."""
        self.files = set()
        self.unknown = ""

    def lost(self, what: str) -> str:
        self.unknown = self.unknown or what
        return what

    def parts(self, value: Any) -> Iterator[str]:
        """Yield texts that describe a value completely."""
        if type(value) in _PLAIN:
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, bytes | bytearray):
            yield f"{type(value).__name__} {hashlib.sha256(value).hexdigest()}"
        elif id(value) in self.seen:
            yield f"again {self.seen[id(value)][0]}"
        else:
            self.seen[id(value)] = (len(self.seen), value)
            yield from self._new(value)

    def _new(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if kind in (tuple, list):
            yield f"{kind.__name__} {len(value)}"
            for part in value:
                yield from self.parts(part)
        elif kind in (dict, MappingProxyType):
            yield f"dict {len(value)}"
            for pair in list(value.items()):
                yield from self.parts(pair[0])
                yield from self.parts(pair[1])
        elif kind in (set, frozenset):
            yield f"{kind.__name__} {len(value)}"
            yield from sorted("\1".join(self.parts(part)) for part in value)
        elif kind is CodeType:
            yield from self._code(value)
        elif kind is FunctionType:
            yield from self._function(value)
        elif isinstance(value, ModuleType):
            yield from self._module(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif kind is MethodType:
            yield from self.parts((value.__func__, value.__self__))
        elif kind is property:
            yield from self.parts((value.fget, value.fset, value.fdel))
        elif kind in (staticmethod, classmethod):
            yield from self.parts((kind.__name__, value.__func__))
        elif kind is functools.cached_property:
            yield from self.parts(value.func)
        elif kind is CellType:
            yield from self.parts(_content(value))
        elif kind in (MemberDescriptorType, GetSetDescriptorType):
            yield value.__name__
        else:
            yield from self._object(value)

    def _code(self, code: CodeType) -> Iterator[str]:
        yield f"code {code.co_name} {code.co_code.hex()} {code.co_flags} {code.co_argcount} {code.co_kwonlyargcount}"
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        yield from self.parts((*names, code.co_consts, getattr(code, "co_exceptiontable", b"")))
        for name in _OUTSIDE.intersection(code.co_names):
            self.lost(f"{name} in {code.co_name}")

    def _function(self, function: FunctionType) -> Iterator[str]:
        if _installed(function.__code__.co_filename):
            yield _named(function)
            for cell in function.__closure__ or ():
                yield from self.parts(cell)
            return
        names = function.__globals__
        yield from self.parts(function.__code__)
        yield from self.parts((function.__defaults__, function.__kwdefaults__, function.__dict__))
        for cell in function.__closure__ or ():
            yield from self.parts(cell)
        for name in sorted(_names_looked_up(function.__code__) & names.keys() - _SKIPPED):
            yield name
            yield from self.parts(names[name])
        yield from self._text(Path(function.__code__.co_filename), names.get("__package__"))
        for name in _imported_by(function.__code__):
            yield from self._import(name, names.get("__package__"))

    def _module(self, module: ModuleType) -> Iterator[str]:
        """Yield the name of a module, and for a user's module its text and its present values."""
        path = getattr(module, "__file__", None)
        if module.__name__ in sys.builtin_module_names or (path and _installed(path)) or not _is_users_module(module):
            yield f"{module.__name__} {_version(module.__name__)}"
            return
        yield f"module {module.__name__}"
        if path:
            yield from self._text(Path(path), getattr(module, "__package__", None))
        for name, value in sorted(vars(module).items()):
            if name not in _SKIPPED:
                yield name
                yield from self.parts(value)

    def _text(self, path: Path, package: str | None) -> Iterator[str]:
        """Yield the text of a user's file, and of all files that it imports."""
        if path in self.files:
            return
        self.files.add(path)
        try:
            text = path.read_bytes()
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return  # code typed into a session has no file; its code objects count
        yield hashlib.sha256(text).hexdigest()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._import(alias.name, package)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                for name in (
                    base,
                    *(f"{base.rstrip('.')}.{alias.name}" if node.module else base + alias.name for alias in node.names),
                ):
                    yield from self._import(name, package)

    def _import(self, name: str, package: str | None) -> Iterator[str]:
        """Yield the text of the file that an import reads, if it is the user's."""
        try:
            name = importlib.util.resolve_name(name, package)
            module = sys.modules.get(name)
            path: str | None = getattr(
                module or importlib.util.find_spec(name), "__file__" if module else "origin", None
            )
        except (ImportError, ValueError, AttributeError):
            return
        if not path or path in ("built-in", "frozen") or _installed(path):
            return
        if not path.endswith(".py"):
            yield self.lost(f"the compiled module {name}")
        yield from self._text(Path(path), name if Path(path).stem == "__init__" else name.rpartition(".")[0])

    def _class(self, value: type) -> Iterator[str]:
        """Yield the parts of a user's class, and of its base classes."""
        if not _is_users(value):
            yield _named(value)
            return
        yield f"class {value.__qualname__}"
        yield from self.parts((type(value), value.__bases__))
        for name, member in list(vars(value).items()):
            if name not in _SKIPPED:
                yield name
                yield from self.parts(member)
        module = sys.modules.get(value.__module__)
        path = getattr(module, "__file__", None)
        if path:
            yield from self._text(Path(path), getattr(module, "__package__", None))

    def _object(self, value: Any) -> Iterator[str]:
        """Yield an object's parts as pickle would store them, and those that some kinds of objects hide from pickle."""
        kind = type(value)
        yield from self.parts(kind)
        if isinstance(value, BuiltinFunctionType):
            yield from self.parts(None if isinstance(value.__self__, ModuleType) else value.__self__)
        if hasattr(value, "py_func"):  # compiled by numba
            yield from self.parts((value.py_func, repr(getattr(value, "targetoptions", ""))))
            return
        if hasattr(value, "__wrapped__"):
            yield from self.parts(value.__wrapped__)
            return
        if _is_users(kind):
            yield from self.parts(object.__getstate__(value))
        try:
            reduced = copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
        except Exception:
            yield self.lost(f"an object of type {_named(kind)}")
            return
        if isinstance(reduced, str):
            home = getattr(value, "__module__", None) or kind.__module__
            yield f"{home}.{reduced} {_version(home)}"
            return
        maker, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        yield from self.parts((maker, arguments, state, list(items or ()), list(pairs or ())))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a name that is not set yet


def _names_looked_up(code: CodeType) -> set[str]:
    """Return the names that a code object and those inside it look up."""
    return set(code.co_names).union(*(_names_looked_up(part) for part in code.co_consts if isinstance(part, CodeType)))


def _imported_by(code: CodeType) -> list[str]:
    """Return the names of modules that a code object and those inside it import, for code without a file."""
    mine = [str(step.argval) for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"]
    return mine + [name for part in code.co_consts if isinstance(part, CodeType) for name in _imported_by(part)]


@functools.cache
def _installed(path: str) -> bool:
    """Whether a file comes with Python or with an installed package rather than from the user."""
    if path.startswith("<frozen"):
        return True
    real = Path(os.path.realpath(path))
    return not {"site-packages", "dist-packages"}.isdisjoint(real.parts) or any(
        real.is_relative_to(place) for place in _INSTALLED
    )


def _is_users_module(module: ModuleType) -> bool:
    return module.__name__ == "__main__" or bool(getattr(module, "__file__", None) or hasattr(module, "__path__"))


def _is_users(kind: type) -> bool:
    """Whether a class is defined in the user's code."""
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in ("builtins", *sys.builtin_module_names):
        return False
    path = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or module is None or (path is not None and not _installed(path))


@functools.cache
def _version(module: str) -> str:
    """Return the version of the package that a module belongs to, or an empty text."""
    top = module.partition(".")[0]
    try:
        return str(getattr(sys.modules.get(top), "__version__", None) or version(top))
    except (PackageNotFoundError, ValueError):
        return ""


def _named(value: Any) -> str:
    home = getattr(value, "__module__", None) or ""
    return f"{home}.{getattr(value, '__qualname__', type(value).__qualname__)} {_version(home)}"
