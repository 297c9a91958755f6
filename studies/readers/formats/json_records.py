"""Read JSON lines, a record in each, as verl's file logger and self-written loops write them, and JSON documents.

    [{"step": 1, "reward": 0.2}, ..]                              also as the one list of an object: {"history": [..]}
    {"step": [1, 2, ..], "reward": [0.2, 0.3, ..]}                and as pandas writes a frame, in any orientation
    {"checkpoint-100": {"gsm8k": {"acc": [0.61, 0.60, ..]}}, ..}  numbers of one name are repeats, and are averaged

Nested records get names with slashes. A record that says of what kind it is ({"type": "eval", ..}) gives its metrics
that prefix. Where the names of an object hold steps, as checkpoint-100 or global_step_100 do, what is in it is of an
evaluation. Other names with numbers (aime24, seed0, pass@8) hold none, and neither does the index of a frame.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import json_object
from rftlab.studies.readers.formats.apart import RunsByKey
from rftlab.studies.readers.formats.tables import KINDS, RUNS, STEPS, pick_column, trainers_step
from rftlab.studies.readers.names import LONGEST_NAME, split_of
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import (
    LARGEST_STEP,
    LONGEST,
    PROGRESS,
    Head,
    encoding_note,
    once,
    read_lines,
    read_number,
    step_in,
    whole,
)

LINES = "JSON lines"
_ENVELOPES = ("data", "metrics")
"""Keys around the metrics of a record, as in the lines of verl's own file logger: {"step": 1, "data": {..}}."""
MAX_BAD, LONGEST_TEXT = 50, 200
DEEPEST = 4
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?: ?%)?")
DOCUMENT, LARGEST = "JSON document", 32 << 20
_DOCUMENTS = (
    "a list of records with steps, an object of columns one of which is the step, or an object by checkpoint "
    '({"checkpoint-100": {..}, ..}); JSON lines may be larger, and --reader reads others'
)
_BEGINS = re.compile(r"\ufeff?\s*(\[\s*\{|\{\s*\")")
_CHECKPOINT = re.compile(
    r"(?:.{0,200}[^a-z])?(?:checkpoint|ckpt|step|iteration|iter|round|update)[-_ /=:.]{0,3}[0-9]{1,10}", re.IGNORECASE
)
_INDEX = re.compile(r"-?[0-9]{1,18}")
"""Index of a data frame's row."""
MAX_REPEATS, MAX_DIGITS = 100_000, 300


def is_json_lines(head: Head) -> bool:
    """Whether the first line of a file that is not blank is a JSON object, with further lines or a step in it."""
    first = next((line for line in head.lines if line.strip()), "")
    record = parse_record(first)
    if record is None:
        return False
    return len(head.lines) > 1 or pick_column(list(flatten_record(record)[0]), {}, "step", STEPS, head.path) is not None


def read_json_lines(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of a file of records."""
    start = [record for line in head.lines if (record := parse_record(line)) is not None][:500]
    notes = encoding_note(head.encoding)
    return collect_runs(head.path, LINES, start, _lines(head, notes), columns, notes)


def collect_runs(
    path: Path,
    form: str,
    start: list[dict],
    records: Iterable[tuple[int, dict]],
    columns: dict[str, str],
    notes: list[str],
    place: str = "line",
) -> list[RawRun]:
    """Return the runs of records, each of which comes with its place. start: the first of them, by which steps and runs
    are recognised. notes: notes of every run, also those that are added on the way. Raises UserError where no record
    has a step."""
    step_name = columns.get("step") or find_step(start)
    flat = [flatten_record(record) for record in start]
    if step_name is None or not any(step_name in values for values, _ in flat):
        keys = ", ".join(sorted({key for record in start[:20] for key in record})[:12])
        raise UserError(
            f"{path}: no record has {step_name or 'a step'} ({keys}); allowed: one of {', '.join(STEPS[:6])}, "
            "or --columns step=NAME"
        )
    run_name = columns.get("run") or next(
        (name for name in RUNS if any(type(record.get(name)) in (str, int) for record in start)), None
    )
    names = dict.fromkeys(name for values, texts in flat for name in texts | values)
    runs = RunsByKey(path, names, run_name, form, place=place)
    without, told, odd, total = 0, runs.columns, 0, 0
    for at, record in records:
        total += 1
        values, texts = flatten_record(record)
        step = None if texts.get(step_name, "").endswith("%") else whole(values.get(step_name))
        if step is None:
            without += 1
            odd += step_name in values or step_name in texts
            continue
        key = tuple([texts.get(name) or _shown(values.get(name)) for name in told])
        run = runs.run(key)
        kinds = [kind for kind in KINDS if isinstance(record.get(kind), str)]
        kind = next((kind for kind in kinds if split_of(record[kind])), kinds[0] if kinds else "")
        apart = {name: text for name, text in texts.items() if name not in values and name not in (*told, kind)}
        runs.watch(key, step, apart)
        prefix = f"{record[kind][:LONGEST_TEXT]}/" if kind else ""
        for name, value in values.items():
            if name not in (step_name, *told):
                run.add(prefix + name, step, value, at)
    check(
        2 * odd < max(total, 1),
        f"{path}: {step_name} of {odd} of {total} records is no whole number from 0 to {LARGEST_STEP}; allowed: such "
        "as 12, or --columns step=NAME",
    )
    separate = runs.told_apart()
    notes += [f"{without} records without {step_name} left out"] if without else []
    for run in separate:
        run.notes += notes
    return separate


def _shown(value: float | None) -> str:
    """Return a number that names a run or a seed, as a text."""
    return "" if value is None else str(int(value)) if value == whole(value) else f"{value:g}"


def _lines(head: Head, notes: list[str]) -> Iterator[tuple[int, dict]]:
    """Yield the number and the record of each line; lines that are no JSON are noted, a few at most."""
    bad = 0
    for place, line, end in read_lines(head):
        record = parse_record(line)
        if record is not None:
            yield place, record
        elif line.strip():
            bad += 1
            check(
                bad <= MAX_BAD,
                f"{head.path}: line {place} is no JSON object with each name once, as {MAX_BAD} before it; allowed: "
                "one object a line",
            )
            if bad <= 5:
                said = "has no end" if not end else "is no JSON object with each name once"
                notes.append(f"line {place} {said}: left out")


def parse_record(line: str) -> dict | None:
    """Return the JSON object in a line, with each name once; None for another line."""
    try:
        record = json.loads(line.strip().lstrip("\ufeff"), object_pairs_hook=json_object)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def find_step(records: list[dict]) -> str | None:
    """Return the name of the step in most records, the first of `STEPS` among equals; None where none has one."""
    rows = [{name: value for name, value in flatten_record(row)[0].items() if name in STEPS} for row in records]
    counts = Counter(name for row in rows for name in row)
    best = max(counts, key=lambda name: (counts[name], -STEPS.index(name)), default=None)
    return trainers_step(rows, best) if best else None


def _quoted(name: str, text: str) -> dict[str, float]:
    """Return a number that is written as a text, by its name; {} where it is none. transformers has written numbers so
    since 5.0, and 0.0 as "0"."""
    if name == PROGRESS:
        step = step_in(text)
        return {"global_step": step} if math.isfinite(step) else {}
    value = read_number(text) if len(text) < 40 and (_NUMBER.fullmatch(text) or name in STEPS) else None
    return {} if value is None else {name: value}


def flatten_record(record: dict, prefix: str = "", depth: int = 0) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers of a record by name, and its texts, without truth values and what is below `DEEPEST` levels.
    Texts that are numbers are among the numbers too. A name that is there with several values has nan."""
    numbers, texts = dict[str, float](), dict[str, str]()
    for key, value in record.items():
        if isinstance(value, float):
            once(numbers, prefix + key, value)
        elif isinstance(value, int) and not isinstance(value, bool):
            once(numbers, prefix + key, float(value) if abs(value) < 10**300 else math.inf)
        elif isinstance(value, str):
            numbers |= _quoted(prefix + key, value)
            texts |= {prefix + key: value} if 0 < len(value) <= LONGEST_TEXT else {}
        elif isinstance(value, dict) and depth < DEEPEST:
            below = prefix if key in _ENVELOPES else f"{prefix}{key}/"[:LONGEST_NAME]
            inner_numbers, inner_texts = flatten_record(value, below, depth + 1)
            for name, inner in inner_numbers.items():
                once(numbers, name, inner)
            texts |= inner_texts
    return numbers, texts


def is_json_document(head: Head) -> bool:
    """Whether a file begins as an object with names, or as a list of objects."""
    return _BEGINS.match(head.text) is not None


def read_json_document(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of a document. Raises UserError for one that is damaged, or without steps."""
    notes = encoding_note(head.encoding)
    records = _records(head.path, _document(head), columns, notes)
    numbered = list(enumerate(records, start=1))
    return collect_runs(head.path, DOCUMENT, records[:500], numbered, columns, notes, place="record")


def _document(head: Head) -> Any:
    path = head.path
    size = path.stat().st_size
    check(
        size <= LARGEST,
        f"{path} has {size} bytes; allowed: a JSON document of at most {LARGEST}, or an object a line, each of at most "
        f"{LONGEST} characters",
    )
    try:
        text = path.read_bytes().decode(head.encoding, "replace").lstrip("\ufeff")
        return json.loads(text, object_pairs_hook=json_object, parse_int=_whole)
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; allowed: {_DOCUMENTS}") from None
    except ValueError as error:
        raise UserError(f"{path} is no JSON that can be read: {str(error)[:200]}; allowed: {_DOCUMENTS}") from None


def _whole(text: str) -> int | float:
    """Return a whole number; one with more digits than any step or metric has becomes infinite."""
    return int(text) if len(text) < MAX_DIGITS else math.inf


def _records(path: Path, document: Any, columns: dict[str, str], notes: list[str]) -> list[dict]:
    """Return a document as records with steps."""
    step = columns.get("step")
    if isinstance(document, dict):
        inside = [value for value in document.values() if _are_records(value, step)]
        document = inside[0] if len(inside) == 1 else document
    if isinstance(document, list):
        records = [each for each in document if isinstance(each, dict)]
        check(bool(records), f"{path} is a list without records; allowed: {_DOCUMENTS}")
        left = len(document) - len(records)
        notes += [f"{left} parts of the list are no records: left out"] if left else []
        return records
    rows = _columns(document, step, notes) or _frame(document, step)
    if rows is not None:
        return rows
    own = {name: value for name, value in document.items() if isinstance(value, dict)}
    many = len(own) * 2 > len(document) and all(map(_CHECKPOINT.fullmatch, own))
    check(
        many,
        f"{path} holds no steps (names: {', '.join(map(ascii, [*document][:4]))}); allowed: {_DOCUMENTS}; neither an "
        "index nor the number of a test set, a seed or a k is a step",
    )
    return _checkpoints(path, own, notes)


def _frame(document: dict, step: str | None) -> list[dict] | None:
    """Return the rows of a frame as pandas writes one with orient = columns, index, split or tight, without the index;
    None for anything else, and for one without a column of steps."""
    names, data = document.get("columns"), document.get("data")
    if isinstance(names, list) and isinstance(data, list):
        whole = [row for row in data if isinstance(row, list) and len(row) == len(names)]
        rows = [dict(zip(map(str, names), row, strict=True)) for row in whole]
        return rows if len(rows) == len(data) and _are_records(rows, step) else None
    if not document or not all(isinstance(value, dict) for value in document.values()):
        return None
    if all(map(_INDEX.fullmatch, document)):
        rows = [*document.values()]
        return rows if _are_records(rows, step) else None
    name = step if step in document else next((name for name in STEPS if name in document), None)
    if name is None or not all(map(_INDEX.fullmatch, document[name])):
        return None
    return [{key: value[at] for key, value in document.items() if at in value} for at in document[name]]


def _are_records(value: Any, step: str | None) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        return False
    return step in value[0] if step else find_step(value[:500]) is not None


def _columns(document: dict, step: str | None, notes: list[str]) -> list[dict] | None:
    """Return the records of a table that is written by columns; None where it is none, or no column is the step."""
    own = {name: value for name, value in document.items() if isinstance(value, list)}
    name = step if step in own else next((name for name in STEPS if name in own), None)
    if name is None:
        return None
    columns = {key: value for key, value in own.items() if len(value) == len(own[name])}
    others = ", ".join(key for key in own if key not in columns)
    notes += [f"columns of another length than {name} left out: {others[:200]}"] if others else []
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _checkpoints(path: Path, rows_by_name: dict[str, dict], notes: list[str]) -> list[dict]:
    """Return evaluations by checkpoint as records, in the order of their steps."""
    fronts = {name.rstrip("0123456789") for name in rows_by_name}
    check(
        len(fronts) == 1,
        f"{path} has objects {', '.join(sorted(fronts)[:3])} with numbers; allowed: checkpoints of one run a file",
    )
    repeats: set[int] = set()
    rows = {int(name[len(min(fronts)) :]): _means(value, repeats) for name, value in rows_by_name.items()}
    check(len(rows) == len(rows_by_name), f"{path} has a checkpoint twice; allowed: each once")
    if repeats:
        few, many = min(repeats), max(repeats)
        said = f"{many}" if few == many else f"{few} to {many}"
        notes.append(f"lists of {said} numbers are repeats of an evaluation, and are averaged")
    runs = {name: value for name in RUNS if isinstance(value := rows_by_name[next(iter(rows_by_name))].get(name), str)}
    return [{"step": step, **runs, "eval": row} for step, row in sorted(rows.items())]


def _means(value: dict, repeats: set[int], depth: int = 0) -> dict:
    """Return numbers, and means of lists of numbers, by name."""
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
    """Whether a value is a number; truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
