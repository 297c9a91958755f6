"""Read rows of data sets from local files of Parquet, JSON lines or CSV, or from the hub, and check their columns. An
unreadable row is an error that names the file and the place in it."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
from pyarrow import compute

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import json_object


class DatasetRow(NamedTuple):
    """A row of a table."""

    place: str
    """Place of the row, for messages: the file and the row or line, counted from 1."""
    columns: dict[str, Any]


def data_files(source: Path, split: str) -> list[Path]:
    """Return the data files of a split: `source` itself if it is a file, else `train.parquet`, `train.jsonl` or shards
    `train-00000-of-00002.parquet` in it."""
    if not source.is_dir():
        return [source]
    named = re.compile(rf"{split}(-\d+-of-\d+)?({'|'.join(map(re.escape, FORMATS))})")
    matches = {path: match for path in sorted(source.iterdir()) if (match := named.fullmatch(path.name))}
    files, single = list(matches), any(match[1] is None for match in matches.values())
    names, allowed = ", ".join(path.name for path in files) or "none", ", ".join(split + ending for ending in FORMATS)
    check(
        bool(files) and not (single and len(files) > 1),
        f"{source}: {split} files: {names}; allowed: one of {allowed}, or shards",
    )
    return files


def read_rows(path: Path) -> list[DatasetRow]:
    """Return every row of a file. Raises UserError where it is absent, of another format, damaged or empty."""
    check(path.suffix in FORMATS, f"{path}: format {path.suffix!r} is unknown; allowed: {', '.join(FORMATS)}")
    check(path.is_file() or not path.exists(), f"{path} is not a file; allowed: a file of rows")
    try:
        rows = _READERS[path.suffix](path)
    except (OSError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        raise UserError(f"{path} cannot be read: {reason}") from None
    check(bool(rows), f"{path} has no rows; allowed: 1 or more")
    return rows


MAX_COLUMNS, MAX_ROWS, MAX_CELLS, LARGEST = 20_000, 20_000_000, 200_000_000, 2 << 30
"""Limits of a Parquet file, because a small one may need a great deal of memory: columns; rows; values, with entries of
lists counted one by one; and bytes of its pages and of all texts written out."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow inside the block into a UserError that names the file."""
    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, MemoryError, NotImplementedError) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {type(error).__name__}: {str(error)[:200]}; allowed: a whole file"
        ) from None


def read_table(path: Path, max_rows: int = MAX_ROWS) -> pyarrow.Table:
    """Return the table of a file, with texts as dictionaries. Raises UserError for one that is damaged or too large."""
    with reading(path):
        schema = pyarrow.parquet.read_schema(path)
        texts = [f.name for f in schema if pyarrow.types.is_string(f.type) or pyarrow.types.is_binary(f.type)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            facts = file.metadata
            groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
            chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
            _check(path, len(schema), MAX_COLUMNS, "columns")
            _check(path, facts.num_rows, max_rows, "rows")
            _check(path, sum(chunk.num_values for chunk in chunks), MAX_CELLS, "cells")
            _check(path, sum(chunk.total_uncompressed_size for chunk in chunks), LARGEST, "bytes")
            table = file.read()
        size = 0
        for name in {*texts} & {*table.column_names}:
            for chunk in table[name].chunks:
                if pyarrow.types.is_dictionary(chunk.type):
                    lengths = compute.binary_length(chunk.dictionary).take(chunk.indices)
                    size += compute.sum(lengths).as_py() or 0
        _check(path, size, LARGEST, "bytes of text")
        return table


def _check(path: Path, number: int, most: int, what: str) -> None:
    check(number <= most, f"{path} has {number} {what}; allowed: at most {most}")


def _read_parquet(path: Path) -> list[DatasetRow]:
    table = read_table(path)
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
        columns = json.loads(line, object_pairs_hook=json_object)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} cannot be read as JSON: {error}") from None
    check(isinstance(columns, dict), f"{place} is not a JSON object with columns")
    return columns


def _read_csv(path: Path) -> list[DatasetRow]:
    """Return the rows below a line of names; every value is text."""
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
"""Suffixes of files that can be read."""


def hub_rows(repository: str, configuration: str | None, split: str) -> list[DatasetRow]:
    """Return every row of a split on the hub. Raises UserError where it cannot be loaded."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            "source = 'hub' needs the package datasets: pip install '.[llm]' in rftlab's folder; a local file "
            "or folder needs nothing"
        ) from None
    try:
        table: Iterable[dict] = datasets.load_dataset(repository, configuration, split=split)
    except Exception as error:  # many exceptions, most of them for a network that is missing
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{repository} ({split}) cannot be loaded from the hub: {said}; source can also name a local file or folder"
        ) from None
    return [DatasetRow(f"{repository} ({split}) row {i}", dict(columns)) for i, columns in enumerate(table, start=1)]


def shown_value(value: object) -> str:
    """Return a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_missing(value: object) -> bool:
    """Whether a value is missing; tables of numbers have nan there."""
    return value is None or value != value


def is_text(text: str) -> bool:
    """Whether a text can be encoded; JSON can hold half of a character, a lone surrogate."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def required_column(row: DatasetRow, column: str, allowed: str) -> object:
    """Return the value of a column. Raises UserError where the row does not have it."""
    have = ", ".join(row.columns) or "none"
    check(column in row.columns, f"{row.place}: column {column} is missing (there are: {have}); allowed: {allowed}")
    return row.columns[column]


def text_column(row: DatasetRow, column: str, allowed: str) -> str:
    """Return the text of a column. Raises UserError where it is not text, or is blank."""
    value = required_column(row, column, allowed)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{row.place}: {column} is {shown_value(value)}; allowed: text that is not empty")
    return value


def messages_column(row: DatasetRow, column: str) -> list[dict[str, str]]:
    """Return the chat messages of a column. Raises UserError where it has none, or none with text."""
    messages = row.columns[column]
    if not isinstance(messages, list) or not messages:
        raise UserError(f"{row.place}: {column} is {shown_value(messages)}; allowed: a list of chat messages")
    for message in messages:
        good = (
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            and is_text(message["role"] + message["content"])
        )
        check(
            good, f"{row.place}: {column} has the message {shown_value(message)}; allowed: role and content, both text"
        )
    check(
        any(message["content"].strip() for message in messages),
        f"{row.place}: {column} has no text; allowed: a message with some",
    )
    return [{"role": message["role"], "content": message["content"]} for message in messages]
