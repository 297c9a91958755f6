"""One JSON document: a list of records with steps, a table by its columns, or evaluations by checkpoint.

    [{"step": 1, "reward": 0.2}, ..]                              also as the one list of an object: {"history": [..]}
    {"step": [1, 2, ..], "reward": [0.2, 0.3, ..]}                and as pandas writes a frame, in any orientation
    {"checkpoint-100": {"gsm8k": {"acc": [0.61, 0.60, ..]}}, ..}  numbers of one name are repeats, and are averaged

Where the names of an object hold steps, as checkpoint-100 or global_step_100 do, what is in it is of an evaluation.
Other names with numbers (aime24, seed0, pass@8) hold none, and neither does the index of a frame.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import object_of
from rftlab.studies.readers.formats import json_lines
from rftlab.studies.readers.formats.tables import RUNS, STEPS
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import LONGEST, Head, encoding_note

FORMAT, LARGEST = "JSON document", 32 << 20
ALLOWED = (
    "a list of records with steps, an object of columns one of which is the step, or an object by checkpoint "
    '({"checkpoint-100": {..}, ..}); JSON lines may be larger'
)
_START = re.compile(r"\ufeff?\s*(\[\s*\{|\{\s*\")")
_CHECKPOINT = re.compile(
    r"(?:.{0,200}[^a-z])?(?:checkpoint|ckpt|step|iteration|iter|round|update)[-_ /=:.]{0,3}[0-9]{1,10}", re.IGNORECASE
)
_INDEX = re.compile(r"-?[0-9]{1,18}")
"""Of a frame's row."""
DEEPEST, MAX_REPEATS, MAX_DIGITS = 4, 100_000, 300


def recognise(head: Head) -> bool:
    """Whether it begins as an object with names, or as a list of objects."""
    return _START.match(head.text) is not None


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a document. Raises UserError for one that is damaged, or without steps."""
    notes = encoding_note(head.encoding)
    records = _records(path, _document(path, head), columns, notes)
    numbered = list(enumerate(records, start=1))
    return json_lines.runs_of(path, FORMAT, records[:500], numbered, columns, notes, place="record")


def _document(path: Path, head: Head) -> Any:
    size = path.stat().st_size
    check(
        size <= LARGEST,
        f"{path} has {size} bytes; allowed: a JSON document of at most {LARGEST}, or an object a line, each of at most "
        f"{LONGEST} characters",
    )
    try:
        text = path.read_bytes().decode(head.encoding, "replace").lstrip("\ufeff")
        return json.loads(text, object_pairs_hook=object_of, parse_int=_whole)
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; allowed: {ALLOWED}") from None
    except ValueError as error:
        raise UserError(f"{path} is no JSON that can be read: {str(error)[:200]}; allowed: {ALLOWED}") from None


def _whole(text: str) -> int | float:
    """A whole number; one that no step and no metric has is infinite."""
    return int(text) if len(text) < MAX_DIGITS else math.inf


def _records(path: Path, found: Any, columns: dict[str, str], notes: list[str]) -> list[dict]:
    """The document as records with steps."""
    step = columns.get("step")
    if isinstance(found, dict):
        inside = [value for value in found.values() if _are_records(value, step)]
        found = inside[0] if len(inside) == 1 else found
    if isinstance(found, list):
        return _listed(path, found, notes)
    rows = _columns(found, step, notes) or _frame(found, step)
    if rows is not None:
        return rows
    own = {name: value for name, value in found.items() if isinstance(value, dict)}
    many = len(own) * 2 > len(found) and all(map(_CHECKPOINT.fullmatch, own))
    check(
        many,
        f"{path} holds no steps (names: {', '.join(map(ascii, [*found][:4]))}); allowed: {ALLOWED}; neither an index "
        "nor the number of a test set, a seed or a k is a step",
    )
    return _checkpoints(path, own, notes)


def _frame(found: dict, step: str | None) -> list[dict] | None:
    """The rows of a frame as pandas writes one with orient = columns, index, split or tight, the index left out; None
    of anything else, and of one without a column of steps."""
    names, data = found.get("columns"), found.get("data")
    if isinstance(names, list) and isinstance(data, list):
        whole = [row for row in data if isinstance(row, list) and len(row) == len(names)]
        rows = [dict(zip(map(str, names), row, strict=True)) for row in whole]
        return rows if len(rows) == len(data) and _are_records(rows, step) else None
    if not found or not all(isinstance(value, dict) for value in found.values()):
        return None
    if all(map(_INDEX.fullmatch, found)):
        rows = [*found.values()]
        return rows if _are_records(rows, step) else None
    name = step if step in found else next((name for name in STEPS if name in found), None)
    if name is None or not all(map(_INDEX.fullmatch, found[name])):
        return None
    return [{key: value[at] for key, value in found.items() if at in value} for at in found[name]]


def _are_records(value: Any, step: str | None) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        return False
    return step in value[0] if step else json_lines.step_of(value[:500]) is not None


def _listed(path: Path, found: list, notes: list[str]) -> list[dict]:
    records = [each for each in found if isinstance(each, dict)]
    check(bool(records), f"{path} is a list without records; allowed: {ALLOWED}")
    notes += [f"{len(found) - len(records)} parts of the list are no records: left out"] * (len(records) < len(found))
    return records


def _columns(found: dict, step: str | None, notes: list[str]) -> list[dict] | None:
    """A table by its columns as records; None where it is none, or no column is the step."""
    own = {name: value for name, value in found.items() if isinstance(value, list)}
    name = step if step in own else next((name for name in STEPS if name in own), None)
    if name is None:
        return None
    columns = {key: value for key, value in own.items() if len(value) == len(own[name])}
    others = ", ".join(key for key in own if key not in columns)
    notes += [f"columns of another length than {name} left out: {others[:200]}"] if others else []
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _checkpoints(path: Path, found: dict[str, dict], notes: list[str]) -> list[dict]:
    """Evaluations by checkpoint as records, in the order of their steps."""
    fronts = {name.rstrip("0123456789") for name in found}
    check(
        len(fronts) == 1,
        f"{path} has objects {', '.join(sorted(fronts)[:3])} with numbers; allowed: checkpoints of one run a file",
    )
    repeats: set[int] = set()
    rows = {int(name[len(min(fronts)) :]): _means(value, repeats) for name, value in found.items()}
    check(len(rows) == len(found), f"{path} has a checkpoint twice; allowed: each once")
    if repeats:
        few, many = min(repeats), max(repeats)
        said = f"{many}" if few == many else f"{few} to {many}"
        notes.append(f"lists of {said} numbers are repeats of an evaluation, and are averaged")
    runs = {name: value for name in RUNS if isinstance(value := found[next(iter(found))].get(name), str)}
    return [{"step": step, **runs, "eval": row} for step, row in sorted(rows.items())]


def _means(value: dict, repeats: set[int], depth: int = 0) -> dict:
    """Numbers, and means of lists of numbers, by name."""
    kept: dict[str, Any] = {}
    for name, part in value.items():
        if isinstance(part, dict) and depth < DEEPEST:
            kept[name] = _means(part, repeats, depth + 1)
        elif isinstance(part, list) and 0 < len(part) <= MAX_REPEATS and all(map(_is_number, part)):
            repeats.add(len(part))
            kept[name] = sum(map(float, part)) / len(part)
        elif _is_number(part):
            kept[name] = part
    return kept


def _is_number(value: Any) -> bool:
    """Of a size that a float can hold; truth values are none."""
    return not isinstance(value, bool) and (
        isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**300)
    )
