"""What killed processes left half written, in folders that other processes, here or on other machines, may be
writing to."""

import contextlib
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import WRITING, reason
from rftlab.shared.plumbing.folders import entries, remove

STALE = 3600.0
"""Seconds after which nobody is still writing: a figure, a table or a curve takes a moment."""


def check_writable(folder: Path) -> None:
    """Raise UserError unless files can be written into a folder, which is made if new. What killed processes left half
    written in it is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        sweep(folder, f"{WRITING}*")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {reason(error)}") from None


def sweep(folder: Path, pattern: str) -> None:
    """Remove files and folders whose names match and that were not touched for an hour."""
    for path in entries(folder):
        with contextlib.suppress(OSError):
            if fnmatchcase(path.name, pattern) and time.time() - path.lstat().st_mtime >= STALE:
                remove(path)
