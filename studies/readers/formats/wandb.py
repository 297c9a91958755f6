"""Weights & Biases: CSV exports and offline runs.

An export is wide, a column a run and metric (`run - metric`, with `__MIN` and `__MAX`), or long (run_name, metric,
step, value). An offline run (run-ID.wandb) has records in the frames of a LevelDB log: 7 bytes of header, then blocks
of 32 KiB with (crc32, length, type) before each part of a record. Newer wandb has no reader in Python, so the frames
are opened here; the messages in them need the package wandb.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.readers.formats.apart import Key, Texts, telling, told_apart
from rftlab.studies.readers.formats.json_records import flatten_record
from rftlab.studies.readers.formats.tables import STEPS, DelimitedText, iterate_rows, open_table, read_header
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, read_number, read_step, whole

EXPORT = "W&B export"
_BOUNDS = ("__MIN", "__MAX")
_X = ("step", "_step", "global_step", "train/global_step", "training/global_step", "trainer/global_step")
_LONG = ({"metric", "metric_name", "tag", "key"}, {"step", "_step"}, {"value"})
MAX_RUNS = 2000
_CALLS = "steps are W&B's _step, which counts its log calls: rounds are fewer where a round logs more than once"
OFFLINE, MARK = "W&B offline run", b":W&B"
NEEDED = "needs the package wandb (pip install wandb)"
_HEADER, _BLOCK, _PART = 7, 32768, struct.Struct("<IHB")
_WHOLE, _FIRST, _LAST = 1, 2, 4
_PREFERRED = ("train/global_step", "training/global_step", "trainer/global_step", "global_step", *STEPS)


def is_export(head: Head) -> bool:
    """Whether the header is that of either."""
    names = read_header(head)
    return (
        _long(names) is not None
        or (len(names) > 1 and any(name.endswith(("__MIN", "__MAX")) for name in names))
        or _wide_names(names)
    )


def _wide_names(names: list[str]) -> bool:
    return len(names) > 1 and all(map(_parts, names[1:]))


def _parts(name: str) -> tuple[str, str] | None:
    """Run and metric of a column `run - metric`; None of another."""
    run, _, metric = name.rpartition(" - ")
    return (run, metric) if run and metric and not metric[0].isspace() and "\n" not in name else None


def _long(names: list[str]) -> list[str] | None:
    """Columns of metric, step and value, then that of the run where there is one; None of another table."""
    lower = {name.lower(): name for name in names}
    columns = [there[0] for kind in _LONG if (there := [lower[name] for name in sorted(kind) if name in lower])]
    run = next((lower[name] for name in ("run_name", "run", "run_id", "name") if name in lower), None)
    return None if len(columns) < len(_LONG) else [*columns, *([run] if run else [])]


def read_export(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of an export. Every run of a file is told of its repairs."""
    table = open_table(head)
    bad: dict[str, int] = {}
    long = _long(table.header)
    runs = _read_long(table, head, long, bad) if long else _read_wide(table, head, bad)
    left_out = "is no number of the kind allowed; such rows are left out"
    for run in runs:
        run.notes += table.notes + [f"line {place}: {what} {left_out}" for what, place in bad.items()]
    return runs


def _read_long(table: DelimitedText, head: Head, names: list[str], bad: dict[str, int]) -> list[RawRun]:
    """A row a value. bad: gets the first line of each kind of damage."""
    at, told = [table.header.index(name) for name in names[:3]], telling(table.header, names[3] if names[3:] else None)
    own = [table.header.index(name) for name in told]
    runs: dict[Key, RawRun] = {}
    with iterate_rows(table, head.encoding) as rows:
        for place, cells in rows:
            metric, step, value = (cells[i].strip() for i in at)
            done, measured = read_step(step, table.comma), read_number(value, table.comma)
            if value and (done is None or measured is None or not metric):
                bad.setdefault("step" if done is None else "value" if measured is None else "metric", place)
            elif value and done is not None and measured is not None:
                key = tuple([cells[i].strip() for i in own])
                run = runs.get(key) or runs.setdefault(key, RawRun("", EXPORT, one_track=False))
                run.add(metric, done, measured, place)
    return told_apart(runs, told, Texts(), table.path)


def _read_wide(table: DelimitedText, head: Head, bad: dict[str, int]) -> list[RawRun]:
    """A row a point of the horizontal axis; the first column is that axis."""
    columns = [
        (i, *parts)
        for i, name in enumerate(table.header[1:], start=1)
        if not name.endswith(_BOUNDS) and (parts := _parts(name))
    ]
    allowed = "allowed: a W&B export, or a plain table of steps and metrics"
    check(bool(columns), f"{table.path}: no column is named `run - metric`; {allowed}")
    axis = 0 if table.header[0].lower() in _X else None
    counted = axis is not None and "global" in table.header[0]  # the trainer's own, which W&B's _step is not
    steps = {
        run: i
        for own in (False, True)  # a run's own global step outranks its _step
        for i, run, metric in columns
        if metric in _X and ("global" in metric) == own and (own or not counted)
    }
    runs = {name: RawRun(name, EXPORT, one_track=False) for _, name, metric in columns if metric not in _X}
    check(len(runs) <= MAX_RUNS, f"{table.path} has more than {MAX_RUNS} runs; allowed: at most {MAX_RUNS}")
    wanted: list[tuple[int, RawRun, str, int]] = []
    for i, name, metric in columns:
        at = steps.get(name, axis)
        if metric not in _X and at is None:
            raise UserError(
                f"{table.path}: the axis is {table.header[0]!r} and there is no column `{name} - _step`; allowed: an "
                "export over steps, or with _step"
            )
        wanted += [(i, runs[name], metric, at)] if metric not in _X and at is not None else []
    with iterate_rows(table, head.encoding) as rows:
        for place, cells in rows:
            for i, run, metric, at in wanted:
                if not cells[i] or cells[i].isspace():
                    continue
                step, value = read_step(cells[at], table.comma), read_number(cells[i], table.comma)
                if step is None or value is None:
                    bad.setdefault("step" if step is None else metric, place)
                else:
                    run.add(metric, step, value, place)
    if any(table.header[i].endswith("_step") and "global" not in table.header[i] for i in steps.values()):
        table.notes.append(_CALLS)
    return list(runs.values())


def is_offline_run(head: Head) -> bool:
    """Whether it has the header of such a file."""
    return head.raw.startswith(MARK)


def read_offline_run(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a file. Raises UserError where wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError:
        raise UserError(f"{path} is an offline run of W&B, and reading it {NEEDED}") from None
    run = RawRun(path.stem, OFFLINE, place="record")
    config: dict[str, Any] = {}
    rows: list[tuple[int, dict]] = []
    with path.open("rb") as file:
        for place, data in enumerate(frames(file, run.notes), start=1):
            record = Record()
            try:
                record.ParseFromString(data)
            except Exception:  # protobuf's DecodeError has no name that all its versions share
                run.notes.append(f"record {place} cannot be read: left out")
                continue
            kind = record.WhichOneof("record_type")
            if kind == "history":
                rows.append((place, _items(record.history.item)))
            elif kind == "run":
                run.name = record.run.display_name or record.run.run_id or run.name
                config |= _items(record.run.config.update)
            elif kind == "config":
                config |= _items(record.config.update)
    wanted = columns.get("step")
    often = [name for name in _PREFERRED if sum(name in row for _, row in rows) > 0.5 * len(rows)]
    step_name = wanted or next(iter(often), None)
    allowed = "allowed: a column that counts steps (--columns step=NAME)"
    check(step_name is not None or not rows, f"{path}: no row has a step; {allowed}")
    run.notes += [_CALLS] if step_name == "_step" else []
    for place, values in ((place, flatten_record(row)) for place, row in rows):
        step = whole(values.get(step_name or ""))
        for name, value in values.items():
            if step is not None and name not in _PREFERRED and not name.startswith("_"):
                run.add(name, step, value, place)
    # transformers logs the model's own configuration too, and names the model there alone
    run.config = {key: value for key, value in config.items() if key == "_name_or_path" or key[:1] != "_"} or None
    return [run]


def _items(items) -> dict[str, Any]:
    """Keys and values of W&B's items; the values are JSON."""
    values = {}
    for item in items:
        key = item.key or "/".join(item.nested_key)
        try:
            values[key] = json.loads(item.value_json)
        except (ValueError, RecursionError):
            continue
    return values


def frames(file: BinaryIO, notes: list[str]) -> Iterator[bytes]:
    """Records of a LevelDB log, put together from their parts; it ends at the first that is damaged, which is
    noted."""
    file.seek(_HEADER)
    place, parts = _HEADER, b""
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
        if len(data) < length or zlib.crc32(data, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF != checksum:
            notes.append(f"the file is cut or damaged at byte {place}: what comes before is read")
            return
        parts = data if kind in (_WHOLE, _FIRST) else parts + data
        if kind in (_WHOLE, _LAST):
            yield parts
