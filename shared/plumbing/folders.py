"""Read, list and remove files below a folder of ours whose content is not trusted: no link is followed, no pipe is
waited for, and no file is read beyond a limit.

All access to a results folder, a run's folder or a cache goes through these functions, or to a path that `below`,
`file_below` or `folder_below` returned. The folder itself may be a link, because its user named it. Needs the standard
library and shared/plumbing/errors.py alone.
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
"""Largest size in bytes of a file that is read; the tables and records of a run are far smaller."""
DEEPEST = 40
"""Deepest nesting of JSON that is read, in levels; a configuration has eight. Deeper values may be too deep for later
code."""


def cache_folder(name: str) -> Path:
    """Return the folder of a cache, `$XDG_CACHE_HOME/rftlab/name` or below the home folder. Raises UserError for a user
    without a home folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rftlab" / name
    except RuntimeError:
        raise UserError(
            "this user has no home folder to keep a cache in; allowed: a folder in HOME or XDG_CACHE_HOME"
        ) from None


def path_kind(path: Path) -> str | None:
    """Return the kind of file at a path, without following links; None where there is none."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def real(path: Path) -> Path:
    """Return the path with links followed. A link that leads to itself is left as it is, where `Path.resolve` raises
    RuntimeError in some versions of Python."""
    return Path(os.path.realpath(path))


def below(root: Path, *names: str) -> Path:
    """Return root/names after checking that the parts between are folders or do not exist. Raises UserError that names
    the first other part."""
    for depth in range(1, len(names)):
        _check(root.joinpath(*names[:depth]), FOLDER)
    return root.joinpath(*names)


def folder_below(root: Path, *names: str) -> Path:
    """Return root/names as `below` does, where the last part too must be a folder or not exist."""
    return _check(below(root, *names), FOLDER)


def file_below(root: Path, *names: str) -> Path:
    """Return root/names as `below` does, where the last part must be a file or not exist."""
    return _check(below(root, *names), FILE)


def _check(path: Path, allowed: str) -> Path:
    kind = path_kind(path)
    check(kind in (None, allowed), f"{path} is {kind}; allowed: {allowed}, or nothing of that name; remove it")
    return path


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading. Raises OSError, also for what is no regular file."""
    kind = path_kind(path)
    if kind not in (None, FILE):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    # Checked again while opening: a link or pipe put there in between is not followed, and not waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, also for what is no regular file and for files above LARGEST
    bytes."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise OSError(errno.EFBIG, f"it has more than {LARGEST} bytes", str(path))
        return file.read()


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises ValueError where a name occurs twice with different values."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next((name for name, value in pairs if value is not made[name] and value != made[name]), None)
        if twice is not None:
            raise ValueError(f"{twice[:80]!r} is there twice, with other values")
    return made


def read_json(path: Path, objects: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the content of a JSON file. objects: makes a value of an object's pairs, a dict by default. Raises
    OSError, and ValueError where the content is not readable JSON."""
    try:
        value = json.loads(read_file(path), object_pairs_hook=objects)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # Level by level, because a recursive walk would itself fail on the depth that it has to refuse.
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
    """Return the sorted entries of a folder; an empty list for anything else."""
    return sorted(folder.iterdir()) if path_kind(folder) == FOLDER else []


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, without links."""
    return [path for path in entries(folder) if path_kind(path) == FOLDER]


def numbered(folder: Path) -> list[Path]:
    """Return the folders in a folder whose names are numbers, the smallest first."""
    numbered = [path for path in folders_in(folder) if path.name.isascii() and path.name.isdigit()]
    return sorted(numbered, key=lambda path: int(path.name))


def remove(path: Path) -> None:
    """Remove a file, folder or link, but not what a link points to. A missing path is no error."""
    with suppress(FileNotFoundError):
        if path_kind(path) == FOLDER:
            shutil.rmtree(path)
        else:
            path.unlink()
