"""Store imported runs in a results folder. They are written whole or not at all, and changed ones are refused.

    results/imported/NAME/imported.json     runs, formats, sources with checksums, designs, repairs; sealed to the
                                            curves
                          curves.parquet    the long form of all runs (studies/readers/run.py)
                          checksums.json    checksums of both

The same logs give the same bytes. A collection holds what one import read; another import under its name is refused
unless it is the same.
"""

import hashlib
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet as parquet

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import file_sha256, reported, verify_folder, write_file, write_folder
from rftlab.shared.plumbing.folders import folder_below, folders_in, path_kind, read_file, real
from rftlab.studies.data.runs.files import arrow_table, checksummed, read_checksummed
from rftlab.studies.data.runs.store import check_format, open_store
from rftlab.studies.readers.run import COLUMNS, GroupOutcomes, ImportedRun, KnownDesign, MetricSeries

PLACE, FACTS, CURVES, FORMAT = "imported", "imported.json", "curves.parquet", 1
ROWS = 1 << 18
"""Rows that are written at a time."""
LABELS = ("split", "task", "metric", "source")
_TEXT = pyarrow.dictionary(pyarrow.int16(), pyarrow.string())
_KINDS = {"round": pyarrow.int32(), "value": pyarrow.float64(), "n": pyarrow.float32(), "source_step": pyarrow.int32()}
SCHEMA = pyarrow.schema([(name, _KINDS.get(name, _TEXT)) for name in COLUMNS])
"""Columns of curves.parquet. Labels are dictionaries, so that a value costs a few bytes."""
MAX_LABELS = 1 << 15
"""Largest number of different labels of one kind, which the dictionaries of a collection can number."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_name(name: str) -> str:
    """Return a name if it can be a folder's on every system. Raises UserError otherwise."""
    check(
        bool(_NAME.fullmatch(name)),
        f"name = {name!r}; allowed: letters, digits, '.', '_' and '-', at most 80, the first a letter or digit",
    )
    return name


def name_for(path: Path) -> str:
    """Return the name of a collection that is given none: that of its first path."""
    stem = real(path).stem if path.is_file() else real(path).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "runs"


def write_collection(root: Path, name: str, runs: list[ImportedRun]) -> bool:
    """Write runs to the collection of this name. Return False where it holds just these already. Raises UserError where
    it holds others, or nothing can be written."""
    check(bool(runs), "no runs to keep; allowed: one or more")
    for label in LABELS:
        _check_labels({getattr(piece, label) for run in runs for piece in run.pieces}, label)
    open_store(root)
    folder = folder_below(root, PLACE, check_name(name))
    if path_kind(folder):
        check(_same(folder, runs), f"{folder} holds another import; allowed: another --name, or remove the folder")
        return False
    with reported(folder, also=pyarrow.ArrowException):
        write_folder(
            folder,
            {
                CURVES: lambda path: _write_curves(path, runs),
                FACTS: lambda path: write_file(path, _facts(runs, file_sha256(path.parent / CURVES))),
            },
        )
    return True


def _check_labels(labels: Collection[str], what: str) -> None:
    check(len(labels) <= MAX_LABELS, f"{len(labels)} names of a {what}; allowed: at most {MAX_LABELS}")


def _same(folder: Path, runs: list[ImportedRun]) -> bool:
    """Whether a folder holds just these runs: writing them to a temporary file gives the same bytes."""
    with tempfile.TemporaryFile() as file:
        _write_curves(file, runs)
        file.seek(0)
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return checksum == file_sha256(folder / CURVES) and read_file(folder / FACTS) == _facts(runs, checksum)
    except OSError:
        return False


def _facts(runs: list[ImportedRun], checksum: str) -> bytes:
    return checksummed({"format": FORMAT, "runs": [_run_facts(run) for run in runs]}, checksum)


def _run_facts(run: ImportedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "format": run.format,
        "tool": run.tool,
        "sources": run.sources,
        "design": asdict(run.design),
        "notes": run.notes,
        **({"outcomes": [one._asdict() for one in run.outcomes]} if run.outcomes else {}),
        **({"repeats": run.repeats} if run.repeats else {}),
    }


def _write_curves(file: Path | BinaryIO, runs: list[ImportedRun]) -> None:
    """Write the curves as Parquet, run after run, never all in memory. Equal runs give equal bytes."""
    with parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for run in runs:
            for table in make_tables(run.name, run.pieces, ROWS):
                writer.write_table(table)


def collections(root: Path) -> list[str]:
    """Return the names of the collections in a results folder."""
    return [path.name for path in folders_in(root / PLACE) if _NAME.fullmatch(path.name)]


def read_collection(root: Path | str, name: str) -> list[ImportedRun]:
    """Read the runs of a collection. Raises UserError where it does not exist, or was changed."""
    root = Path(root)
    check_format(root)
    folder = folder_below(root, PLACE, check_name(name))
    there = ", ".join(collections(root)) or "none yet"
    check(
        path_kind(folder) is not None,
        f"{root} has no imported runs {name!r}; there are: {there}; `rftlab import PATH --name {name}` makes them",
    )
    try:
        verify_folder(folder, (FACTS, CURVES))
        data = read_file(folder / CURVES)
        facts = read_checksummed(folder / FACTS, hashlib.sha256(data).hexdigest())
        table = arrow_table(data, ["run", *LABELS])
        check(
            facts.get("format") == FORMAT and table.column_names == SCHEMA.names,
            f"{folder} was written by another version of rftlab; import the logs again",
        )
        pieces = split_pieces(table)
        return [_run(each, pieces.get(each["name"], ())) for each in facts["runs"]]
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{folder} cannot be trusted: {error}; remove it and import the logs again") from None


def _run(facts: dict[str, Any], pieces: tuple[MetricSeries, ...]) -> ImportedRun:
    known = facts["design"] | {"assumed": tuple(facts["design"]["assumed"])}
    sources = tuple((name, checksum) for name, checksum in facts["sources"])
    counts = ("rounds", "responses", "right", "groups")
    outcomes = tuple(
        GroupOutcomes(str(one["split"]), *(tuple(map(int, one[name])) for name in counts))
        for one in facts.get("outcomes", ())
    )
    said = facts["name"], facts["format"], facts["tool"], sources
    return ImportedRun(
        *said, KnownDesign(**known), pieces, tuple(facts["notes"]), outcomes, str(facts.get("repeats", ""))
    )


def make_frame(run: str, pieces: tuple[MetricSeries, ...]) -> pd.DataFrame:
    """Return the long form (`COLUMNS`) of a run, metric after metric."""
    table = _table(run, list(pieces))
    frame = table.to_pandas(types_mapper={pyarrow.int32(): pd.Int32Dtype()}.get, use_threads=False)
    return frame.astype({"round": np.int32})


def make_tables(run: str, pieces: tuple[MetricSeries, ...], rows: int) -> Iterator[pyarrow.Table]:
    """Yield the long form of a run as tables of `SCHEMA`, of about `rows` rows each."""
    batch: list[MetricSeries] = []
    for piece in pieces:
        batch.append(piece)
        if sum(len(one.rounds) for one in batch) >= rows:
            yield _table(run, batch)
            batch = []
    if batch:
        yield _table(run, batch)


def _table(run: str, pieces: list[MetricSeries]) -> pyarrow.Table:
    lengths = [len(piece.rounds) for piece in pieces]

    def labels(values: list[str]) -> pyarrow.DictionaryArray:
        kinds, codes = np.unique(np.array(values, dtype=object), return_inverse=True)
        _check_labels(kinds, "metric or task")
        return pyarrow.DictionaryArray.from_arrays(np.repeat(codes.astype(np.int16), lengths), kinds.tolist())

    def joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
        return np.concatenate([np.empty(0, kind), *parts], dtype=kind, casting="unsafe")

    steps = joined([piece.steps for piece in pieces], np.int32)
    n = [np.full(len(piece.rounds), np.nan) if piece.n is None else piece.n for piece in pieces]
    columns = {
        "run": labels([run] * len(pieces)),
        "round": pyarrow.array(joined([piece.rounds for piece in pieces], np.int32)),
        "value": pyarrow.array(joined([piece.values for piece in pieces], float)),
        "n": pyarrow.array(joined(n, np.float32), from_pandas=True),
        "source_step": pyarrow.array(steps, mask=steps < 0),
    }
    columns |= {name: labels([getattr(piece, name) for piece in pieces]) for name in LABELS}
    return pyarrow.table([columns[name] for name in COLUMNS], schema=SCHEMA)


def split_pieces(table: pyarrow.Table) -> dict[str, tuple[MetricSeries, ...]]:
    """Return the metrics of each run in a table that `make_tables` gave, as views of its columns."""
    codes = [table[name].unify_dictionaries().combine_chunks() for name in ("run", *LABELS)]
    codes = [part.combine_chunks() if isinstance(part, pyarrow.ChunkedArray) else part for part in codes]
    marks = np.stack([part.indices.to_numpy() for part in codes])
    starts = [0, *(np.flatnonzero((np.diff(marks) != 0).any(axis=0)) + 1).tolist()] if marks.size else []
    rounds, values = table["round"].to_numpy(), table["value"].to_numpy()
    n, steps = table["n"].to_numpy(), table["source_step"].fill_null(-1).to_numpy()
    by_run: dict[str, list[MetricSeries]] = {}
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        run, split, task, metric, source = (
            part.dictionary[int(code)].as_py() for part, code in zip(codes, marks[:, start], strict=True)
        )
        own = slice(start, end)
        known = None if np.isnan(n[own]).all() else n[own]
        by_run.setdefault(run, []).append(
            MetricSeries(split, task, metric, source, rounds[own], values[own], known, steps[own])
        )
    return {run: tuple(pieces) for run, pieces in by_run.items()}
