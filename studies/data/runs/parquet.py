"""Parquet from bytes and open files, read by the thread that asks.

A thread of pyarrow's that lets go of a Python object after Python has ended aborts the process, and the exit status
is lost with it.
"""

import io
from collections.abc import Sequence
from typing import IO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet


def arrow_table(source: bytes | IO[bytes], labels: Sequence[str] = ()) -> pa.Table:
    """The table that is stored in it; labels: columns that are read as dictionaries. Raises ArrowException, OSError or
    ValueError where it is damaged."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    whole = parquet.ParquetFile(file, read_dictionary=list(labels) or None, pre_buffer=False)
    return whole.read(use_threads=False)


def data_frame(source: bytes | IO[bytes]) -> pd.DataFrame:
    """The same as a data frame."""
    return arrow_table(source).to_pandas(use_threads=False)
