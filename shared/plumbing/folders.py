"""Files and folders below a folder of ours. Anybody may have put it there: no link is followed, no pipe is waited for,
nothing is read without end.

Whoever reads, lists, removes or writes below a results folder, a run's folder or a cache does so with these functions,
or at a place that `below`, `file_below` or `folder_below` gave. The folder itself may be a link, because its user named
it. Needs the standard library and shared/plumbing/errors.py alone.
"""

import errno
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check

FILE, FOLDER, LINK = "a file", "a folder", "a symbolic link"
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: LINK,
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
LARGEST = 1 << 28
"""Bytes of a file that is read whole; the tables and records of a run are far smaller."""
DEEPEST = 40
"""Levels of JSON; a configuration has eight. Deeper content may be too deep for its readers."""


def cache_folder(name: str) -> Path:
    """Where a cache lies, `$XDG_CACHE_HOME/rftlab/name` or below the home folder. Raises UserError for a user without
    one."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rftlab" / name
    except RuntimeError:
        raise UserError(
            "this user has no home folder to keep a cache in; allowed: a folder in HOME or XDG_CACHE_HOME"
        ) from None


def path_kind(path: Path) -> str | None:
    """Return the kind of file that has this name, a link being a link; None where nothing has."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def real(path: Path) -> Path:
    """Where a path leads, links followed; a link that leads to itself is left as it is, which `Path.resolve` raises
    RuntimeError for in some versions of Python."""
    return Path(os.path.realpath(path))


def below(root: Path, *names: str) -> Path:
    """root/names, where the parts between are folders or not there yet. Raises UserError, which names the part that
    is anything else."""
    for depth in range(1, len(names)):
        _check(root.joinpath(*names[:depth]), FOLDER)
    return root.joinpath(*names)


def folder_below(root: Path, *names: str) -> Path:
    """The same, where the last part too is a folder or not there yet."""
    return _check(below(root, *names), FOLDER)


def file_below(root: Path, *names: str) -> Path:
    """The same, where the last part is a file or not there yet."""
    return _check(below(root, *names), FILE)


def _check(path: Path, allowed: str) -> Path:
    kind = path_kind(path)
    check(kind in (None, allowed), f"{path} is {kind}; allowed: {allowed}, or nothing of that name; remove it")
    return path


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """A file to read from. Raises OSError, also where anything else has the name."""
    kind = path_kind(path)
    if kind not in (None, FILE):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    # Checked again as it is opened: a link or pipe that came in between is not followed, and not waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """The content of a file. Raises OSError, also where anything else has the name, and for a file larger than any
    of ours."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise OSError(errno.EFBIG, f"it has more than {LARGEST} bytes", str(path))
        return file.read()


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a name that is there twice with other values is no accident that can be repaired: ValueError."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next((name for name, value in pairs if value is not made[name] and value != made[name]), None)
        if twice is not None:
            raise ValueError(f"{twice[:80]!r} is there twice, with other values")
    return made


def read_json(path: Path, objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the content of a JSON file; objects: makes one of its pairs, dict unless given. Raises OSError, and
    ValueError where it is not JSON that can be read."""
    try:
        value = json.loads(read_file(path), object_pairs_hook=objects)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # Level by level, because a recursive walk would fail on the depth that it is to refuse.
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list)
            for part in (whole.values() if isinstance(whole, dict) else whole)
        ]
    if level:
        raise ValueError("it is nested too deeply")
    return value


def entries(folder: Path) -> list[Path]:
    """Return the names in a folder; nothing where it is no folder."""
    return sorted(folder.iterdir()) if path_kind(folder) == FOLDER else []


def folders_in(folder: Path) -> list[Path]:
    """The folders among them."""
    return [path for path in entries(folder) if path_kind(path) == FOLDER]


def numbered(folder: Path) -> list[Path]:
    """Those whose names are numbers, the smallest first."""
    numbered = [path for path in folders_in(folder) if path.name.isascii() and path.name.isdigit()]
    return sorted(numbered, key=lambda path: int(path.name))


def remove(path: Path) -> None:
    """Remove what has this name, whatever it is; not what a link points to, and no matter if it is gone."""
    with suppress(FileNotFoundError):
        if path_kind(path) == FOLDER:
            shutil.rmtree(path)
        else:
            path.unlink()
