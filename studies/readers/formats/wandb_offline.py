"""Offline runs of Weights & Biases (run-ID.wandb): records in the frames of a LevelDB log, their content through
wandb's own messages.

Newer wandb has no reader in Python (that of wandb.sdk.internal.datastore is gone), so the frames are opened here: 7
bytes of header, then blocks of
32 KiB with (crc32, length, type) before each part of a record. The messages need the package wandb.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.formats.json_lines import flat
from rftlab.studies.readers.formats.tables import STEPS
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, whole

FORMAT, MARK = "W&B offline run", b":W&B"
NEEDED = "needs the package wandb (pip install wandb)"
_HEADER, _BLOCK, _PART = 7, 32768, struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_PREFERRED = ("train/global_step", "training/global_step", "trainer/global_step", "global_step", *STEPS)


def recognise(head: Head) -> bool:
    """Whether it has the header of such a file."""
    return head.raw.startswith(MARK)


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a file. Raises UserError where wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ImportError:
        raise UserError(f"{path} is an offline run of W&B, and reading it {NEEDED}") from None
    run = RawRun(path.stem, FORMAT, place="record")
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
    _add(run, path, rows, columns.get("step"))
    # transformers logs the model's own configuration too, and names the model there alone
    run.config = {key: value for key, value in config.items() if key == "_name_or_path" or key[:1] != "_"} or None
    return [run]


def _items(items) -> dict[str, Any]:
    """Keys and values of W&B's items; the values are JSON."""
    found = {}
    for item in items:
        key = item.key or "/".join(item.nested_key)
        try:
            found[key] = json.loads(item.value_json)
        except (ValueError, RecursionError):
            continue
    return found


def _add(run: RawRun, path: Path, rows: list[tuple[int, dict]], wanted: str | None) -> None:
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
