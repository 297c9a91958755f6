"""What killed processes left half written, in folders that other processes, here or on other machines, may be writing to."""

import contextlib
import shutil
import time
from pathlib import Path

STALE = 3600.0
"""Seconds after which nobody is still writing: a figure, a table or a curve takes a moment."""


def sweep(folder: Path, pattern: str) -> None:
    """Remove files and folders whose names match and that were not touched for an hour."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < STALE:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
