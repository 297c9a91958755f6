"""Imported runs in a results folder: they appear whole or not at all, and tell when they were changed.

    results/imported/NAME/imported.json     runs, formats, sources with checksums, designs, repairs; sealed to the
                                            curves
                          curves.parquet    the long form of all runs (studies/logs/run.py)
                          checksums.json    of both

The same logs give the same bytes. A collection holds what one import read; another import under its name is refused
unless it is the same.
"""

import hashlib
import io
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet as parquet

from rftlab.shared.errors import UserError, check
from rftlab.shared.files import reported, verify_folder, write_folder
from rftlab.shared.folders import folder_below, folders_in, kind_of, read_file
from rftlab.studies.logs.run import COLUMNS, ImportedRun, KnownDesign
from rftlab.studies.runs.seal import read_sealed, sealed
from rftlab.studies.runs.store import check_format, open_store

PLACE, FACTS, CURVES, FORMAT = "imported", "imported.json", "curves.parquet", 1
ROWS = 1 << 18
"""Of a part that is written at a time."""
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
    stem = path.resolve().stem if path.is_file() else path.resolve().name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:80] or "runs"


def write_collection(root: Path, name: str, runs: list[ImportedRun]) -> bool:
    """Keep runs under a name; False where just these are there. Raises UserError where others are, or where nothing
    can be written."""
    check(bool(runs), "no runs to keep; allowed: one or more")
    open_store(root)
    folder = folder_below(root, PLACE, check_name(name))
    curves = _bytes_of([run.curves for run in runs])
    facts = sealed({"format": FORMAT, "runs": [_facts(run) for run in runs]}, hashlib.sha256(curves).hexdigest())
    if kind_of(folder):
        check(
            _same(folder, {FACTS: facts, CURVES: curves}),
            f"{folder} holds another import; allowed: another --name, or remove the folder",
        )
        return False
    with reported(folder):
        write_folder(folder, {FACTS: facts, CURVES: curves})
    return True


def _same(folder: Path, files: dict[str, bytes | memoryview]) -> bool:
    try:
        return all(read_file(folder / name) == data for name, data in files.items())
    except OSError:
        return False


def _facts(run: ImportedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "format": run.format,
        "tool": run.tool,
        "sources": run.sources,
        "design": asdict(run.design),
        "notes": run.notes,
    }


def _bytes_of(frames: list[pd.DataFrame]) -> memoryview:
    """Parquet, a frame after the other; equal frames give equal bytes. Labels are dictionaries, so that a value
    costs a few bytes."""
    labels = pyarrow.dictionary(pyarrow.int16(), pyarrow.string())
    kinds = {
        "round": pyarrow.int32(),
        "value": pyarrow.float64(),
        "n": pyarrow.float32(),
        "source_step": pyarrow.int32(),
    }
    schema = pyarrow.schema([(name, kinds.get(name, labels)) for name in COLUMNS])
    file = io.BytesIO()
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for frame in frames:
            for start in range(0, len(frame), ROWS):
                part = frame.iloc[start : start + ROWS]
                writer.write_table(
                    pyarrow.Table.from_pandas(part, preserve_index=False).replace_schema_metadata().cast(schema)
                )
    return file.getbuffer()


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
        kind_of(folder) is not None,
        f"{root} has no imported runs {name!r}; there are: {there}; `rftlab import PATH --name {name}` makes them",
    )
    try:
        verify_folder(folder, (FACTS, CURVES))
        data = read_file(folder / CURVES)
        facts = read_sealed(folder / FACTS, hashlib.sha256(data).hexdigest())
        frame = parquet.read_table(io.BytesIO(data)).to_pandas()
        check(
            facts.get("format") == FORMAT and tuple(frame.columns) == COLUMNS,
            f"{folder} is of another version of rftlab; import the logs again",
        )
        return [_run(each, frame) for each in facts["runs"]]
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"{folder} cannot be trusted: {error}; remove it and import the logs again") from None


def _run(facts: dict[str, Any], frame: pd.DataFrame) -> ImportedRun:
    known = facts["design"] | {"assumed": tuple(facts["design"]["assumed"])}
    curves = frame[frame["run"] == facts["name"]].reset_index(drop=True)
    sources = tuple((name, checksum) for name, checksum in facts["sources"])
    return ImportedRun(
        facts["name"], facts["format"], facts["tool"], sources, KnownDesign(**known), curves, tuple(facts["notes"])
    )
