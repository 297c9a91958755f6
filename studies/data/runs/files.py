"""Files of a results folder: Parquet, read by the thread that asks, and what killed processes left half written, in
folders that other processes, here or on other machines, may be writing to.

A thread of pyarrow's that lets go of a Python object after Python has ended aborts the process, and the exit status is
lost with it.
"""

import contextlib
import io
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import WRITING, reason
from rftlab.shared.plumbing.folders import entries, remove


def arrow_table(source: bytes | IO[bytes], labels: Sequence[str] = ()) -> pa.Table:
    """The table that is stored in it; labels: columns that are read as dictionaries. Raises ArrowException, OSError or
    ValueError where it is damaged."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    whole = parquet.ParquetFile(file, read_dictionary=list(labels) or None, pre_buffer=False)
    return whole.read(use_threads=False)


def data_frame(source: bytes | IO[bytes]) -> pd.DataFrame:
    """The same as a data frame."""
    return arrow_table(source).to_pandas(use_threads=False)


STALE = 3600.0
"""Seconds after which nobody is still writing: a figure, a table or a curve takes a moment."""


def check_writable(folder: Path) -> None:
    """Raise UserError unless files can be written into a folder, which is made if new. Half-written files
    of killed processes are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        remove_stale(folder, f"{WRITING}*")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {reason(error)}") from None


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove files and folders whose names match and that were not touched for an hour."""
    for path in entries(folder):
        with contextlib.suppress(OSError):
            if fnmatchcase(path.name, pattern) and time.time() - path.lstat().st_mtime >= STALE:
                remove(path)
