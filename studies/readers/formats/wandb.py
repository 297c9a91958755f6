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
from rftlab.studies.readers.formats.json_records import flat
from rftlab.studies.readers.formats.tables import STEPS, open_table, read_cells, read_header, read_rows
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, number, read_step, whole

EXPORT = "W&B export"
_BOUNDS = ("__MIN", "__MAX")
_X = ("step", "_step", "global_step", "train/global_step", "training/global_step", "trainer/global_step")
_LONG = ({"metric", "metric_name", "tag", "key"}, {"step", "_step"}, {"value"})
MAX_RUNS = 2000
OFFLINE, MARK = "W&B offline run", b":W&B"
NEEDED = "needs the package wandb (pip install wandb)"
_HEADER, _BLOCK, _PART = 7, 32768, struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
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
    """The runs of an export."""
    table = open_table(head)
    long = _long(table.header)
    return _read_long(table, head, long) if long else _read_wide(table, head)


def _read_long(table, head: Head, names: list[str]) -> list[RawRun]:
    """A row a value."""
    at, told = [table.header.index(name) for name in names[:3]], telling(table.header, names[3] if names[3:] else None)
    own = [table.header.index(name) for name in told]
    runs: dict[Key, RawRun] = {}
    bad: dict[str, int] = {}
    with read_rows(table, head.encoding) as rows:
        for place, cells in rows:
            metric, step, value = (
                cells[at[0]].strip(),
                read_step(cells[at[1]], table.comma),
                number(cells[at[2]], table.comma),
            )
            key = tuple([cells[i].strip() for i in own])
            if not cells[at[2]].strip():
                continue
            if step is None or value is None or not metric:
                bad.setdefault("step" if step is None else "value" if value is None else "metric", place)
                continue
            run = runs.get(key) or runs.setdefault(key, RawRun("", EXPORT, one_track=False))
            run.add(metric, step, value, place)
    separate = told_apart(runs, told, Texts(), table.path)
    _noted({run.name: run for run in separate}, table, bad)
    return separate


def _new(runs: dict[str, RawRun], table, name: str) -> RawRun:
    check(len(runs) < MAX_RUNS, f"{table.path} has more than {MAX_RUNS} runs; allowed: at most {MAX_RUNS}")
    runs[name] = RawRun(name, EXPORT, one_track=False)
    return runs[name]


def _noted(runs: dict[str, RawRun], table, bad: dict[str, int]) -> None:
    """Every run of a file is told of its repairs."""
    notes = table.notes + [
        f"line {place}: {what} is no number of the kind allowed; such rows are left out" for what, place in bad.items()
    ]
    for run in runs.values():
        run.notes += notes


def _read_wide(table, head: Head) -> list[RawRun]:
    """A row a point of the horizontal axis; the first column is that axis."""
    columns = [
        (i, *parts)
        for i, name in enumerate(table.header[1:], start=1)
        if not name.endswith(_BOUNDS) and (parts := _parts(name))
    ]
    check(
        bool(columns),
        f"{table.path}: no column is named `run - metric`; allowed: a W&B export, or a plain table of steps "
        "and metrics",
    )
    axis = 0 if table.header[0].lower() in _X else None
    counted = axis is not None and "global" in table.header[0]  # the trainer's own, which W&B's _step is not
    steps = {
        run: i
        for own in (False, True)  # a run's own global step outranks its _step
        for i, run, metric in columns
        if metric in _X and ("global" in metric) == own and (own or not counted)
    }
    runs: dict[str, RawRun] = {}
    wanted = [(i, run, metric) for i, run, metric in columns if metric not in _X]
    bad: dict[str, int] = {}
    of: dict[int, tuple[RawRun, str, int]] = {}
    for i, name, metric in wanted:
        at = steps.get(name, axis)
        if at is None:
            axis_name = table.header[0]
            raise UserError(
                f"{table.path}: the axis is {axis_name!r} and there is no column `{name} - _step`; allowed: an "
                "export over steps, or with _step"
            )
        of[i] = runs[name] if name in runs else _new(runs, table, name), metric, at
    with read_rows(table, head.encoding) as rows:
        for place, cells in rows:
            for i, value in read_cells(table, cells, list(of)):
                run, metric, at = of[i]
                step = read_step(cells[at], table.comma)
                if step is None or value is None:
                    bad.setdefault("step" if step is None else metric, place)
                    continue
                run.add(metric, step, value, place)
    if any(table.header[i].endswith("_step") and "global" not in table.header[i] for i in steps.values()):
        table.notes.append(
            "steps are W&B's _step, which counts its log calls: rounds are fewer where a round logs more than once"
        )
    _noted(runs, table, bad)
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
    _add_rows(run, path, rows, columns.get("step"))
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


def _add_rows(run: RawRun, path: Path, rows: list[tuple[int, dict]], wanted: str | None) -> None:
    """Add the rows of the history, by the trainer's own step where most rows have it, else by W&B's."""
    if not rows:
        return
    names = (
        [wanted] if wanted else [name for name in _PREFERRED if sum(name in row for _, row in rows) > 0.5 * len(rows)]
    )
    if not names:
        raise UserError(
            f"{path}: no row has {wanted or 'a step'}; allowed: a column that counts steps (--columns step=NAME)"
        )
    if names[0] == "_step":
        run.notes.append(
            "steps are W&B's _step, which counts its log calls: rounds are fewer where a round logs more than once"
        )
    for place, row in rows:
        values = flat(row)
        step = whole(values.get(names[0]))
        for name, value in values.items():
            if step is not None and name not in _PREFERRED and not name.startswith("_"):
                run.add(name, step, value, place)


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
