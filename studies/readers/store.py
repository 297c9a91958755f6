"""Imported runs in a results folder: they appear whole or not at all, and tell when they were changed.

    results/imported/NAME/imported.json     runs, formats, sources with checksums, designs, repairs; sealed to the
                                            curves
                          curves.parquet    the long form of all runs (studies/readers/run.py)
                          checksums.json    of both

The same logs give the same bytes. A collection holds what one import read; another import under its name is refused
unless it is the same.
"""

import hashlib
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet as parquet

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import file_sha256, reported, verify_folder, write_file, write_folder
from rftlab.shared.plumbing.folders import folder_below, folders_in, path_kind, read_file, real
from rftlab.studies.data.runs.files import arrow_table, checksummed, read_checksummed
from rftlab.studies.data.runs.store import check_format, open_store
from rftlab.studies.readers.long_form import SCHEMA, make_tables, split_pieces
from rftlab.studies.readers.run import GroupOutcomes, ImportedRun, KnownDesign, MetricSeries

PLACE, FACTS, CURVES, FORMAT = "imported", "imported.json", "curves.parquet", 1
ROWS = 1 << 18
"""Rows of a part that is written at a time."""
_LABELS = [field.name for field in SCHEMA if pyarrow.types.is_dictionary(field.type)]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_name(name: str) -> str:
    """Raise UserError unless a name can be that of a folder on every system."""
    check(
        bool(_NAME.fullmatch(name)),
        f"name = {name!r}; allowed: letters, digits, '.', '_' and '-', at most 80, the first a letter or digit",
    )
    return name


def name_for(path: Path) -> str:
    """The name of a collection that is given none: that of its first path."""
    stem = real(path).stem if path.is_file() else real(path).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "runs"


def write_collection(root: Path, name: str, runs: list[ImportedRun]) -> bool:
    """Keep runs under a name; False where just these are there. Raises UserError where others are, or where nothing
    can be written."""
    check(bool(runs), "no runs to keep; allowed: one or more")
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
                FACTS: lambda path: write_file(path, _checksummed_facts(runs, file_sha256(path.parent / CURVES))),
            },
        )
    return True


def _same(folder: Path, runs: list[ImportedRun]) -> bool:
    """Whether a folder holds these runs: the same bytes, written again to a file without a name."""
    with tempfile.TemporaryFile() as file:
        _write_curves(file, runs)
        file.seek(0)
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return checksum == file_sha256(folder / CURVES) and read_file(folder / FACTS) == _checksummed_facts(
            runs, checksum
        )
    except OSError:
        return False


def _checksummed_facts(runs: list[ImportedRun], checksum: str) -> bytes:
    return checksummed({"format": FORMAT, "runs": [_facts(run) for run in runs]}, checksum)


def _facts(run: ImportedRun) -> dict[str, Any]:
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
    """Parquet, a run after the other; equal runs give equal bytes. They never lie in memory as a whole."""
    with parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for run in runs:
            for table in make_tables(run.name, run.pieces, ROWS):
                writer.write_table(table)


def collections(root: Path) -> list[str]:
    """Names of the collections of a results folder."""
    return [path.name for path in folders_in(root / PLACE) if _NAME.fullmatch(path.name)]


def read_collection(root: Path | str, name: str) -> list[ImportedRun]:
    """The runs of a collection. Raises UserError where there is none, or where it was changed."""
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
        table = arrow_table(data, _LABELS)
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
    outcomes = tuple(_outcomes(one) for one in facts.get("outcomes", ()))
    said = facts["name"], facts["format"], facts["tool"], sources
    return ImportedRun(
        *said, KnownDesign(**known), pieces, tuple(facts["notes"]), outcomes, str(facts.get("repeats", ""))
    )


def _outcomes(counts_by_name: dict[str, Any]) -> GroupOutcomes:
    counts = (tuple(map(int, counts_by_name[name])) for name in ("rounds", "responses", "right", "groups"))
    return GroupOutcomes(str(counts_by_name["split"]), *counts)
