"""JSON lines, a record a line (verl's file logger, loops of one's own); nested records
get names with slashes.

A record that says of what kind it is ({"type": "eval", ..}) gives its metrics that prefix.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import object_of
from rftlab.studies.readers.formats.apart import Key, Texts, telling, told_apart
from rftlab.studies.readers.formats.tables import RUNS, STEPS, chosen, trainers_step
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import (
    PROGRESS,
    Head,
    encoding_note,
    lines_of,
    number,
    once,
    opened_text,
    step_in,
    whole,
)

FORMAT = "JSON lines"
_KINDS = ("type", "kind", "event", "phase", "mode", "split")
_ENVELOPES = ("data", "metrics")
"""Keys around the metrics of a record, as in the lines of verl's own file logger: {"step": 1, "data": {..}}."""
MAX_BAD, LONGEST_TEXT = 50, 200
DEEPEST = 4
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?: ?%)?")


def recognise(head: Head) -> bool:
    """Whether its first line that is no blank is a JSON object."""
    first = next((line for line in head.lines if line.strip()), "")
    found = _record(first)
    if not isinstance(found, dict):
        return False
    return len(head.lines) > 1 or chosen(list(flat(found)), {}, "step", STEPS, head.path) is not None


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a file of records."""
    start = [found for line in head.lines if isinstance(found := _record(line), dict)][:500]
    notes = encoding_note(head.encoding)
    return runs_of(path, FORMAT, start, _records(path, head, notes), columns, notes)


def runs_of(
    path: Path,
    form: str,
    start: list[dict],
    records: Iterable[tuple[int, dict]],
    columns: dict[str, str],
    notes: list[str],
    place: str = "line",
) -> list[RawRun]:
    """The runs of records, each with its place. start: the first of them, by which steps and runs are found; notes: are
    each run's, also those that are added on the way. Raises UserError where no record has a step."""
    step_name = columns.get("step") or step_of(start)
    if step_name is None or not any(step_name in flat(record) for record in start):
        keys = ", ".join(sorted({key for record in start[:20] for key in record})[:12])
        raise UserError(
            f"{path}: no record has {step_name or 'a step'} ({keys}); allowed: one of {', '.join(STEPS[:6])}, "
            "or --columns step=NAME"
        )
    run_name = columns.get("run") or next(
        (name for name in RUNS if any(_names_run(record.get(name)) for record in start)), None
    )
    told = telling(dict.fromkeys(name for record in start for name in _texts(record) | flat(record)), run_name)
    runs: dict[Key, RawRun] = {}
    watched, without = Texts(), 0
    for at, record in records:
        values, texts = flat(record), _texts(record)
        step = None if texts.get(step_name, "").endswith("%") else whole(values.get(step_name))
        if step is None:
            without += 1
            continue
        key = tuple([texts.get(name) or _shown(values.get(name)) for name in told])
        run = runs.setdefault(key, RawRun("", form, place=place))
        apart = {name: text for name, text in texts.items() if name not in values and name not in (*told, *_KINDS)}
        watched.add(key, step, apart)
        prefix = next((f"{record[kind]}/" for kind in _KINDS if isinstance(record.get(kind), str)), "")
        for name, value in values.items():
            if name not in (step_name, *told):
                run.add(prefix + name, step, value, at)
    watched.check(path)
    notes += [f"{without} records without {step_name} left out"] if without else []
    for run in runs.values():
        run.notes += notes
    return told_apart(runs, told, watched, path)


def _shown(value: float | None) -> str:
    """A number that names a run or a seed, as a text."""
    return "" if value is None else str(int(value)) if value == whole(value) else f"{value:g}"


def _texts(record: dict, prefix: str = "", depth: int = 0) -> dict[str, str]:
    """The texts of a record by name, as `flat` names its numbers."""
    found: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, str) and value and len(value) <= LONGEST_TEXT:
            found[prefix + key] = value
        elif isinstance(value, dict) and depth < DEEPEST:
            found |= _texts(value, prefix if key in _ENVELOPES else f"{prefix}{key}/", depth + 1)
    return found


def _records(path: Path, head: Head, notes: list[str]) -> Iterator[tuple[int, dict]]:
    """Number of the line and record of each line; those that are no JSON are noted, a few at most."""
    bad = 0
    with opened_text(path, head.encoding) as stream:
        for place, line, end in lines_of(stream):
            if not line.strip():
                continue
            found = _record(line)
            if isinstance(found, dict):
                yield place, found
                continue
            bad += 1
            check(
                bad <= MAX_BAD,
                f"{path}: line {place} is no JSON object with each name once, as {MAX_BAD} before it; allowed: one "
                "object a line",
            )
            if bad <= 5:
                said = "has no end" if not end else "is no JSON object with each name once"
                notes.append(f"line {place} {said}: left out")


def _record(line: str) -> Any:
    try:
        return json.loads(line.strip().lstrip("\ufeff"), object_pairs_hook=object_of)
    except (ValueError, RecursionError):
        return None


def _names_run(value: Any) -> bool:
    """Whether it may name a run: a text, or its number."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def step_of(records: list[dict]) -> str | None:
    """The name of the step that most records have; the first in the list of those."""
    rows = [{name: value for name, value in flat(record).items() if name in STEPS} for record in records]
    counts = Counter(name for row in rows for name in row)
    best = max(counts, key=lambda name: (counts[name], -STEPS.index(name)), default=None)
    return trainers_step(rows, best) if best else None


def _quoted(name: str, text: str) -> dict[str, float]:
    """A number that is written as a text, as transformers does since 5.0, which writes 0.0 as "0"."""
    if name == PROGRESS:
        step = step_in(text)
        return {"global_step": step} if math.isfinite(step) else {}
    value = number(text) if len(text) < 40 and (_NUMBER.fullmatch(text) or name in STEPS) else None
    return {} if value is None else {name: value}


def flat(record: dict, prefix: str = "", depth: int = 0) -> dict[str, float]:
    """The numbers of a record by name; no truth values, of texts those that are numbers, nothing below
    `DEEPEST` levels, and nan of a name that is there with several values."""
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, float):
            once(found, prefix + key, value)
        elif isinstance(value, int):
            once(found, prefix + key, float(value) if abs(value) < 10**300 else math.inf)
        elif isinstance(value, str):
            found |= _quoted(prefix + key, value)
        elif isinstance(value, dict) and depth < DEEPEST:
            for name, inner in flat(value, prefix if key in _ENVELOPES else f"{prefix}{key}/", depth + 1).items():
                once(found, name, inner)
    return found
