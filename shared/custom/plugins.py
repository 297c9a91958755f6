"""Load files with custom functions, only those that the user names and once in each process.

`--plugins FILE` names one on the command line; processes that a run starts find it in the environment. An installed
package may name a module under the entry-point group `rftlab.estimators`.
"""

import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from rftlab.shared.plumbing.errors import UserError, blaming, check, said_by

VARIABLE, GROUP = "RFTLAB_PLUGINS", "rftlab.estimators"
_read: set[str] = set()
_loading: list[Path] = []


def load_plugin(path: Path) -> None:
    """Run a plug-in file once, which registers its functions. Raises UserError that names the file's exception and its
    line."""
    full = _full(path)
    if str(full) in _read:
        return
    check(full.is_file() and full.suffix == ".py", f"plugins = {str(path)!r}; allowed: a Python file that is there")
    _read.add(str(full))
    _loading.append(full)
    try:
        run_file(full, _module_name(full))
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(error, str(full))
        raise UserError(f"{path}{f', line {line}' if line else ''}: {said_by(error)}") from None
    finally:
        _loading.pop()


def run_file(path: Path, name: str) -> ModuleType:
    """Run a user's file as a module of that name. Its imports find the files beside it, as for a script. Raises the
    exceptions of the file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # there are for any file named .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    finally:
        with suppress(ValueError):  # the file may have changed the list
            sys.path.remove(beside)
    return module


def _module_name(full: Path) -> str:
    return f"rftlab_plugin_{hashlib.sha256(str(full).encode()).hexdigest()[:8]}"


def module_in(path: Path) -> ModuleType:
    """Return the module of a plug-in file that was loaded."""
    return sys.modules[_module_name(_full(path))]


def is_loading() -> bool:
    """Whether a plug-in file is being loaded."""
    return bool(_loading)


def _full(path: Path) -> Path:
    """Return the absolute path of a file. Raises UserError for the home folder of an unknown user."""
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise UserError(
            f"plugins = {str(path)!r}: nobody has such a home folder; allowed: a Python file that is there"
        ) from None


def _line_in(error: BaseException, path: str) -> int:
    """Return the last line of a file that is in an error's traceback, or 0 where there is none."""
    line, part = 0, error.__traceback__
    while part is not None:
        if part.tb_frame.f_code.co_filename == path:
            line = part.tb_lineno
        part = part.tb_next
    return line


def name_plugins(paths: list[Path]) -> None:
    """Load plug-in files, and have processes that are started from here load them too."""
    for path in paths:
        load_plugin(path)
    known = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    named = [str(_full(path)) for path in paths]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*known, *named]))


def load_known() -> None:
    """Load the files that the environment names, and the modules of installed packages."""
    for part in os.environ.get(VARIABLE, "").split(os.pathsep):
        if part:
            load_plugin(Path(part))
    for point in entry_points(group=GROUP):
        if point.value not in _read:
            _read.add(point.value)
            with blaming(f"entry point {point.name} of {GROUP}: "):
                point.load()
