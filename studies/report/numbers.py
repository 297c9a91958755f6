"""Tables as CSV files, for people who open them in a spreadsheet."""

from pathlib import Path
from typing import Any

import pandas as pd

from rftlab.shared.plumbing.files import write_file


def write_numbers(path: Path, numbers: pd.DataFrame) -> None:
    """Write a table as CSV; see `csv_bytes`."""
    write_file(path, csv_bytes(numbers))


def csv_bytes(numbers: pd.DataFrame) -> bytes:
    """Return a table as CSV with six decimals, so that equal numbers give equal bytes. A text that a spreadsheet would
    compute begins with an apostrophe."""
    guarded = numbers.copy()
    for name in guarded.columns:
        if guarded[name].dtype.kind not in "iufbM":
            guarded[name] = [_guarded(cell) for cell in guarded[name]]
    guarded.columns = [_guarded(name) for name in guarded.columns]
    return guarded.to_csv(index=False, float_format="%.6f", lineterminator="\n").encode()


def _guarded(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@") else cell
