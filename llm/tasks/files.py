"""Rows of local data files: Parquet, JSON lines or CSV. What cannot be read is an error that names the file and the
place in it."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import object_of


class DatasetRow(NamedTuple):
    """A row of a table."""

    place: str
    """Where it is, for messages: the file and the row or line, counted from 1."""
    columns: dict[str, Any]


def files_of(source: Path, split: str) -> list[Path]:
    """The data files of a split: `source` itself where it is a file, else `train.parquet`, `train.jsonl` or shards
    `train-00000-of-00002.parquet` in it."""
    if not source.is_dir():
        return [source]
    named = re.compile(rf"{split}(-\d+-of-\d+)?({'|'.join(map(re.escape, FORMATS))})")
    found = {path: match for path in sorted(source.iterdir()) if (match := named.fullmatch(path.name))}
    files, single = list(found), any(match[1] is None for match in found.values())
    names, allowed = ", ".join(path.name for path in files) or "none", ", ".join(split + ending for ending in FORMATS)
    check(
        bool(files) and not (single and len(files) > 1),
        f"{source}: {split} files: {names}; allowed: one of {allowed}, or shards",
    )
    return files


def read_rows(path: Path) -> list[DatasetRow]:
    """Every row of a file. Raises UserError where it is absent, of another format, damaged or empty."""
    check(path.suffix in FORMATS, f"{path}: format {path.suffix!r} is unknown; allowed: {', '.join(FORMATS)}")
    check(path.is_file() or not path.exists(), f"{path} is not a file; allowed: a file of rows")
    try:
        rows = _READERS[path.suffix](path)
    except (OSError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise UserError(f"{path} cannot be read: {reason}") from None
    check(bool(rows), f"{path} has no rows; allowed: 1 or more")
    return rows


def _read_parquet(path: Path) -> list[DatasetRow]:
    table = pyarrow.parquet.read_table(path)
    return [DatasetRow(f"{path} row {i}", columns) for i, columns in enumerate(table.to_pylist(), start=1)]


def _read_jsonl(path: Path) -> list[DatasetRow]:
    rows = []
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                rows.append(DatasetRow(f"{path} line {number}", _object(f"{path} line {number}", line)))
    return rows


def _object(place: str, line: str) -> dict[str, object]:
    try:
        columns = json.loads(line, object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} cannot be read as JSON: {error}") from None
    check(isinstance(columns, dict), f"{place} is not a JSON object with columns")
    return columns


def _read_csv(path: Path) -> list[DatasetRow]:
    """Rows below a line of names; every value is text."""
    rows: list[DatasetRow] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)
        names = next(lines, [])
        check(
            len(set(names)) == len(names) and all(name.strip() for name in names),
            f"{path} line 1 names the columns {', '.join(names) or 'not at all'}; allowed: a name of its own for each",
        )
        for values in lines:
            place = f"{path} line {lines.line_num}"
            if values:
                check(len(values) == len(names), f"{place} has {len(values)} values; allowed: {len(names)}, as line 1")
                rows.append(DatasetRow(place, dict(zip(names, values, strict=True))))
    return rows


_READERS: dict[str, Callable[[Path], list[DatasetRow]]] = {
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
}
FORMATS = tuple(_READERS)
"""Endings of files that can be read."""
