"""Parquet files of others as Arrow tables. A small file may ask for a great deal of memory: rows, cells, bytes and
what texts come to when each is written out have limits, all told before they are taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rftlab.shared.plumbing.errors import UserError, check

if TYPE_CHECKING:
    import pyarrow

MAX_CELLS, LARGEST = 200_000_000, 2 << 30
"""Numbers and texts of a table, lists in cells counted one by one; bytes of its pages, and of all texts."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What pyarrow raises in here is a UserError that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, MemoryError, NotImplementedError) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {type(error).__name__}: {str(error)[:200]}; allowed: a whole file"
        ) from None


def read_table(path: Path, max_rows: int) -> "pyarrow.Table":
    """The table of a file, its texts as dictionaries. Raises UserError for one that is damaged or too large."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with reading(path):
        schema = parquet.read_schema(path)
        texts = [field.name for field in schema if _is_text(field.type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            facts = file.metadata
            groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
            chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
            _check(path, facts.num_rows, max_rows, "rows")
            _check(path, sum(chunk.num_values for chunk in chunks), MAX_CELLS, "cells")
            _check(path, sum(chunk.total_uncompressed_size for chunk in chunks), LARGEST, "bytes")
            table = file.read()
        size = 0
        for name in {*texts} & {*table.column_names}:
            for chunk in table[name].chunks:
                if pyarrow.types.is_dictionary(chunk.type):
                    size += compute.sum(compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        _check(path, size, LARGEST, "bytes of text")
        return table


def _is_text(kind: "pyarrow.DataType") -> bool:
    import pyarrow

    return pyarrow.types.is_string(kind) or pyarrow.types.is_binary(kind)


def _check(path: Path, found: int, most: int, what: str) -> None:
    check(found <= most, f"{path} has {found} {what}; allowed: at most {most}")
