"""Read stores of experiment trackers: TensorBoard's event files, projects of Trackio, offline runs of Weights & Biases.

TensorBoard's files, or a folder of them, are read through tensorboard's own reader where it is installed.

Trackio's database, ~/.cache/huggingface/trackio/PROJECT.db, is SQLite with a row a log call (run_name, step, metrics as
JSON); its Parquet copies are tables. Anybody may have made the file: it is opened to be read alone, no text in it is a
statement, nothing but a plain table is asked, and work, rows and cells have limits. Rows of a write-ahead log that lies
beside it are read too; without such a log nothing is written beside the database. Its step counts log calls, as W&B's
does, unless the trainer gives one.

An offline run of W&B (run-ID.wandb) has records in the frames of a LevelDB log: 7 bytes of header, then blocks of 32
KiB with (crc32, length, type) before each part of a record. Newer wandb has no reader in Python, so the frames are
opened here; the messages in them need the package wandb.
"""

import json
import re
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import FILE, path_kind
from rftlab.studies.readers.designs.values import plain_values
from rftlab.studies.readers.formats.json_records import collect_runs, flatten_record
from rftlab.studies.readers.formats.tables import CALLS, COUNTS_CALLS, STEPS
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, whole

EVENTS, EVENT_MARK = "TensorBoard", "tfevents"
MAX_FILES = 1000
TRACKIO, _SQLITE = "Trackio", b"SQLite format 3\0"
_ROWS = "SELECT run_name, step, metrics FROM metrics NOT INDEXED ORDER BY rowid"
_KIND = "SELECT type, sql FROM sqlite_schema WHERE lower(name) = 'metrics'"
_PLAIN = re.compile(r"\s{0,9}CREATE\s{1,9}TABLE\s", re.IGNORECASE)
MAX_ROWS, LONGEST, LARGEST = 2_000_000, 1 << 20, 1 << 30
"""Largest numbers of rows of a project, of bytes in a cell, and of characters in all cells that are read."""
INSTRUCTIONS, TURN = 400_000_000, 1_000_000
"""Largest number of instructions of SQLite's machine, and how many it takes before it asks whether to go on."""
OFFLINE, _OFFLINE_MARK = "W&B offline run", b":W&B"
_HEADER, _BLOCK, _PART = 7, 32768, struct.Struct("<IHB")
_WHOLE, _FIRST, _LAST = 1, 2, 4
_LONGEST_RECORD = 1 << 26
_PREFERRED = ("train/global_step", "training/global_step", "trainer/global_step", "global_step", *STEPS)


def is_event_file(head: Head) -> bool:
    """Whether a file begins as an event file, with a record of a few bytes that has the version in it."""
    return b"brain.Event:" in head.raw[:100] or EVENT_MARK in head.path.name


def find_event_files(folder: Path) -> list[Path]:
    """Return the event files of a folder and of folders in it, the oldest first."""
    paths = [path for path in sorted(folder.rglob(f"*{EVENT_MARK}*"))[: MAX_FILES + 1] if path_kind(path) == FILE]
    check(len(paths) <= MAX_FILES, f"{folder} has more than {MAX_FILES} event files; allowed: at most {MAX_FILES}")
    return paths


def read_event_file(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of one event file."""
    run = RawRun("", EVENTS, place="record")
    _add_events(run, head.path)
    return [run]


def read_event_folder(folder: Path, files: list[Path]) -> list[RawRun]:
    """Read a run for each folder that holds event files; several files of one folder are parts of one run."""
    runs: dict[Path, RawRun] = {}
    for path in files:
        name = folder.resolve().name if path.parent == folder else path.parent.relative_to(folder).as_posix()
        _add_events(runs.setdefault(path.parent, RawRun(name, EVENTS, place="record")), path)
    return list(runs.values())


def _add_events(run: RawRun, path: Path) -> None:
    """Add the scalars of an event file. Raises UserError where tensorboard is not installed."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise UserError(
            f"{path} holds TensorBoard events, and reading them needs the package tensorboard (pip install tensorboard)"
        ) from None
    before, seen = max((series.places[-1] for series in run.series.values()), default=0), 0
    try:
        for seen, event in enumerate(EventFileLoader(str(path)).Load(), start=1):
            step = whole(event.step)
            for tag, value in _scalars(event):
                if step is not None:
                    run.add(tag, step, value, before + seen)
        damaged = _begins_more(path, seen)  # the reader raises nothing where a file is cut
    except Exception:  # whatever it raises for a damaged record; what came before is whole
        damaged = True
    if damaged:
        run.notes.append(f"{path.name} is cut or damaged after record {seen}: what comes before is read")


def _begins_more(path: Path, records: int) -> bool:
    """Whether a file begins more than `records` records, by the lengths that it gives: each has 8 bytes of length, 4 of
    its checksum, the data, and 4 of theirs."""
    size, place = path.stat().st_size, 0
    with path.open("rb") as file:
        for _ in range(records):
            file.seek(place)
            place += 16 + int.from_bytes(file.read(8), "little")
    return place < size


def _scalars(event) -> Iterator[tuple[str, float]]:
    """Yield the tags and values of an event's scalars; pictures, texts and histograms are left out."""
    from tensorboard.util.tensor_util import make_ndarray

    for value in event.summary.value:
        if value.HasField("simple_value"):
            yield value.tag, float(value.simple_value)
        elif value.HasField("tensor") and not value.tensor.tensor_shape.dim and value.tensor.dtype in (1, 2, 3, 9):
            yield value.tag, float(make_ndarray(value.tensor))


def is_database(head: Head) -> bool:
    """Whether a file is an SQLite database."""
    return head.raw.startswith(_SQLITE)


def read_database(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of a project. Raises UserError for a database of something else, or a damaged one."""
    notes: list[str] = []
    records = _database_records(head.path, notes)
    numbered = list(enumerate(records, start=1))
    return collect_runs(head.path, TRACKIO, records[:500], numbered, columns, notes, place="row")


def _database_records(path: Path, notes: list[str]) -> list[dict]:
    logged = path_kind(path.resolve().with_name(f"{path.resolve().name}-wal")) is not None
    place = f"file:{quote(str(path.resolve()))}?mode=ro{'' if logged else '&immutable=1'}"
    records: list[dict] = []
    try:
        with closing(sqlite3.connect(place, uri=True)) as database:
            _limit(database)
            kinds = database.execute(_KIND).fetchmany(2)
            if len(kinds) != 1 or kinds[0][0] != "table":
                raise ValueError("metrics is no table")
            virtual = not isinstance(kinds[0][1], str) or not _PLAIN.match(kinds[0][1])
            computed = any(column[-1] for column in database.execute("PRAGMA table_xinfo(metrics)"))
            if virtual or computed:
                raise ValueError("the table metrics is virtual or computed")
            size = 0
            for name, step, text in database.execute(_ROWS):
                size += len(text) if isinstance(text, str | bytes) else 0
                if len(records) >= MAX_ROWS or size > LARGEST:
                    notes.append(f"the database has more than {len(records)} rows, of which the first are read")
                    break
                metrics = json.loads(text)
                if isinstance(metrics, dict):
                    records.append(
                        {key: value for key, value in metrics.items() if key != "run"} | {CALLS: step, "run": str(name)}
                    )
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
        beside = ", with the write-ahead log beside it" * logged
        raise UserError(
            f"{path} is an SQLite database{beside}, and no table of Trackio's can be read in it: {str(error)[:100]}; "
            "allowed: a project of Trackio, with a plain table of metrics"
        ) from None
    return records


def _limit(database: sqlite3.Connection) -> None:
    """Limit the work on a database: stop what takes too long, and let no schema call a function or write."""
    left = INSTRUCTIONS // TURN

    def over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    database.set_progress_handler(over, TURN)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    database.execute("PRAGMA query_only = 1")
    database.execute("PRAGMA trusted_schema = 0")
    database.execute("PRAGMA temp_store = 2")


def is_offline_run(head: Head) -> bool:
    """Whether a file has the header of an offline run of W&B."""
    return head.raw.startswith(_OFFLINE_MARK)


def read_offline_run(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of a file. Raises UserError where wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError:
        raise UserError(
            f"{head.path} is an offline run of W&B, and reading it needs the package wandb (pip install wandb)"
        ) from None
    run = RawRun(head.path.stem, OFFLINE, place="record")
    config: dict[str, Any] = {}
    rows: list[tuple[int, dict]] = []
    bad = 0
    with head.path.open("rb") as file:
        for place, data in enumerate(_frames(file, run.notes), start=1):
            record = Record()
            try:
                record.ParseFromString(data)
            except Exception:  # protobuf's DecodeError has no name that all its versions share
                bad += 1
                continue
            kind = record.WhichOneof("record_type")
            if kind == "history":
                rows.append((place, _items(record.history.item)))
            elif kind == "run":
                run.name = record.run.display_name or record.run.run_id or run.name
                config |= _items(record.run.config.update)
            elif kind == "config":
                config |= _items(record.config.update)
    run.notes += [f"{bad} records that cannot be read left out"] if bad else []
    wanted = columns.get("step")
    often = [name for name in _PREFERRED if sum(name in row for _, row in rows) > 0.5 * len(rows)]
    step_name = wanted or next(iter(often), None)
    allowed = "allowed: a column that counts steps (--columns step=NAME)"
    check(step_name is not None or not rows, f"{head.path}: no row has a step; {allowed}")
    run.notes += [COUNTS_CALLS] if step_name == "_step" else []
    for place, values in ((place, flatten_record(row)[0]) for place, row in rows):
        step = whole(values.get(step_name or ""))
        for name, value in values.items():
            if step is not None and name not in _PREFERRED and not name.startswith("_"):
                run.add(name, step, value, place)
    # transformers logs the model's own configuration too, and names the model there alone
    own = {key: value for key, value in config.items() if key == "_name_or_path" or key[:1] != "_"}
    try:
        run.config = plain_values(own) or None
    except ValueError as error:
        run.notes.append(f"its configuration is left out: {error}")
    return [run]


def _items(items) -> dict[str, Any]:
    """Return the keys and values of W&B's items; the values are JSON."""
    values = {}
    for item in items:
        key = item.key or "/".join(item.nested_key)
        try:
            values[key] = json.loads(item.value_json)
        except (ValueError, RecursionError):
            continue
    return values


def _frames(file: BinaryIO, notes: list[str]) -> Iterator[bytes]:
    """Yield the records of a LevelDB log, put together from their parts, up to the first that is damaged, which is
    noted."""
    file.seek(_HEADER)
    place, parts = _HEADER, bytearray()
    while True:
        left = _BLOCK - place % _BLOCK
        if left < _PART.size:
            file.seek(left, 1)
            place += left
            continue
        header = file.read(_PART.size)
        if len(header) < _PART.size:
            break
        checksum, length, kind = _PART.unpack(header)
        data = file.read(length)
        place += _PART.size + length
        if not kind and not length and not checksum:
            break
        wrong = len(data) < length or zlib.crc32(data, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF != checksum
        if wrong or len(parts) > _LONGEST_RECORD:
            notes.append(f"the file is cut or damaged at byte {place}: what comes before is read")
            return
        if kind in (_WHOLE, _FIRST):
            parts.clear()
        parts += data
        if kind in (_WHOLE, _LAST):
            yield bytes(parts)
