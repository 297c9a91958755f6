"""Read tables in rftlab's own terms, in which public logs are collected: `run_id, round, split, metric, value` and,
where there are any, `n, task, source_step, seconds`. The known facts of each run are in `runs.csv` beside them."""

import csv
import math
from array import array
from collections import Counter
from pathlib import Path

import numpy as np

from rftlab.shared.plumbing.errors import MAX, UserError, check, few, plain
from rftlab.shared.plumbing.folders import FILE, path_kind
from rftlab.studies.readers.designs.values import as_count, as_rate, as_real, as_word, weight_precision
from rftlab.studies.readers.formats.tables import MISSING, iterate_rows, open_table, read_header
from rftlab.studies.readers.names import RATES
from rftlab.studies.readers.run import KnownDesign, MetricSeries, RawRun, arrange
from rftlab.studies.readers.text import Head, read_head, read_number, whole

FORMAT, BESIDE, REPEATS = "long form", "runs.csv", "repeats"
ELAPSED = "elapsed_seconds"
_NEEDED = ("run_id", "round", "split", "metric", "value")
_SPLITS = ("test", "train")
MAX_RUNS, MAX_SERIES, LONGEST = 2000, 100_000, 300
Key = tuple[str, str, str, str]
"""Labels of a series: run, split, task and metric."""


def is_long_form(head: Head) -> bool:
    """Whether the header names runs, rounds, splits, metrics and values."""
    return set(_NEEDED) <= set(read_header(head))


def files_beside(path: Path) -> list[Path]:
    """Return the path of a table, and of the facts beside it where there are any."""
    beside = path.parent / BESIDE
    return [path, *([beside] if path_kind(beside) == FILE and beside.name != path.name else [])]


def read_long_form(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of a table. Raises UserError for a row that is not in rftlab's terms."""
    series, times, notes = _rows(head)
    known = _known(head.path)
    runs: dict[str, RawRun] = {}
    for (name, split, task, metric), part in series.items():
        run = runs.setdefault(name, RawRun(name, FORMAT, notes=list(notes)))
        run.pieces += (_piece((name, split, task, metric), part, run.notes),)
    for name, own in times.items():
        seconds = array("d", (number for done, value in own.items() for number in (done, value, math.nan, -1)))
        runs[name].pieces += (_piece((name, "train", "", ELAPSED), seconds, runs[name].notes),)
    for name, run in runs.items():
        run.pieces = arrange(run.pieces)
        run.design, run.stated, run.repeats, said = known.get(name, (KnownDesign(), None, "", ""))
        run.notes += [f"{BESIDE}: {said}"] if said else []
    return list(runs.values())


def _rows(head: Head) -> tuple[dict[Key, array], dict[str, dict[int, float]], list[str]]:
    """Return the series of a table in the order of the file, seconds of training by run and round, and notes. A series
    holds round, value, n (nan for none) and step (-1 for none) of one row after another."""
    table, path = open_table(head), head.path
    at = {name: i for i, name in enumerate(table.header)}
    labels = [at.get(name, -1) for name in ("run_id", "split", "task", "metric")]
    numbers = [at.get(name, -1) for name in ("round", "value", "n", "source_step", "seconds")]
    series: dict[Key, array] = {}
    times: dict[str, dict[int, float]] = {}
    known: dict[tuple[str, ...], tuple[Key, bool, array]] = {}
    runs: set[str] = set()
    without: Counter[str] = Counter()
    with iterate_rows(table) as rows:
        for place, cells in rows:
            cells.append("")  # what is at -1
            texts = tuple([cells[i] for i in labels])
            if texts not in known:
                key = _key(texts, f"{path}: line {place}")
                known[texts] = key, bool(RATES.fullmatch(key[3])), series.setdefault(key, array("d"))
                runs.add(key[0])
                check(len(runs) <= MAX_RUNS, f"{path} has more than {MAX_RUNS} runs; allowed: at most {MAX_RUNS}")
                many = f"{path} has more than {MAX_SERIES} series; allowed: at most {MAX_SERIES}"
                check(len(series) <= MAX_SERIES, many)
            key, is_rate, own = known[texts]
            done, value, n, step, seconds = [read_number(cells[i], table.comma) if cells[i] else None for i in numbers]
            counted = cells[numbers[0]]
            done = None if counted.endswith("%") else whole(done)
            if done is None and counted.strip().lower() in MISSING:
                without[key[0]] += 1
                continue
            if done is None or value is None or (is_rate and not 0 <= value <= 1 and math.isfinite(value)):
                what, cell = ("round", counted) if done is None else (key[3], cells[numbers[1]])
                allowed = "0, 1, 2 .." if done is None else "a number" if value is None else "a share from 0 to 1"
                raise UserError(f"{path}: line {place}: {what} = {plain(cell)!r}; allowed: {allowed}")
            step = whole(step)
            n = n if n is not None and 1 <= n <= MAX else math.nan
            own.extend((done, value, n, -1 if step is None else step))
            if seconds is not None and math.isfinite(seconds):
                times.setdefault(key[0], {})[done] = seconds
    series = {key: part for key, part in series.items() if len(part)}
    check(bool(series) or not without, f"{path}: no row has a round; allowed: rows with 0, 1, 2 ..")
    return series, times, table.notes + _roundless(without, {key[0] for key in series})


def _roundless(without: Counter[str], runs: set[str]) -> list[str]:
    """Return the note on rows whose round is empty, as in logs that count seconds alone."""
    if not without:
        return []
    gone = [name for name in without if name not in runs]
    whole_runs = f"; nothing is left of {len(gone)} run{'s' * (len(gone) > 1)}: {few(gone, 4)}" if gone else ""
    return [f"rows without a round left out: {without.total()}, of {len(without)} runs{whole_runs}"]


def _key(texts: tuple[str, ...], where: str) -> Key:
    """Return the labels of a row. Raises UserError where one is missing or not allowed."""
    name, split, task, metric = (plain(text.strip())[:LONGEST] for text in texts)
    check(bool(name) and bool(metric), f"{where} has no run_id or no metric; allowed: a name of each")
    check(split in _SPLITS, f"{where}: split = {split!r}; allowed: {', '.join(_SPLITS)}")
    return name, split, task, metric


def _piece(key: Key, rows: array, notes: list[str]) -> MetricSeries:
    """Return a series by rounds, with the last value of a round that is there twice."""
    columns = np.frombuffer(rows).reshape(-1, 4).T
    rounds, values, n, steps = map(np.ndarray.astype, columns, (np.int32, float, np.float32, np.int32))
    keep = np.isfinite(values)
    if not keep.all():
        notes.append(f"values that are not finite left out: {int((~keep).sum())}, of {key[1]} {key[3]}")
    order = np.flatnonzero(keep)[np.argsort(rounds[keep], kind="stable")]
    last = np.append(np.diff(rounds[order]) > 0, True)[: len(order)]
    if not last.all():
        notes.append(f"rounds repeated, the last value taken: {key[1]} {key[3]} {key[2]}".strip())
    order = order[last]
    known = None if np.isnan(n[order]).all() else n[order]
    return MetricSeries(key[1], key[2], key[3], key[3], rounds[order], values[order], known, steps[order])


def _known(path: Path) -> dict[str, tuple[KnownDesign, dict | None, str, str]]:
    """Return facts of each run in the table beside: its design, what its cells state where they state a seed too, the
    mark of its repeats, and a remark; {} without such a table."""
    files = files_beside(path)[1:]
    if not files:
        return {}
    head = read_head(files[0])
    if "run_id" not in read_header(head):
        return {}
    table = open_table(head)
    try:
        with iterate_rows(table) as rows:
            named = (dict(zip(table.header, map(str.strip, cells), strict=True)) for _, cells in rows)
            return {plain(row["run_id"])[:LONGEST]: _told(row) for row in named}
    except csv.Error as error:
        raise UserError(f"{files[0]}: {error}; allowed: a table of runs") from None


def _told(row: dict[str, str]) -> tuple[KnownDesign, dict | None, str, str]:
    stated = {name: cell for name, cell in row.items() if name not in ("run_id", REPEATS)} if row.get("seed") else None
    return _design(row), stated, plain(row.get(REPEATS, ""))[:LONGEST], plain(row.get("note", ""))


def _design(row: dict[str, str]) -> KnownDesign:
    """Return the facts that a row states of a run; empty cells state none."""
    generated, trained = as_count(row.get("rollouts_per_prompt")), as_count(row.get("trained_rollouts_per_prompt"))
    part = trained is not None and generated is not None and trained < generated
    clip = as_word(row.get("clip"))
    loss = [as_word(row.get("loss_aggregation")), f"clip {clip}" if clip and clip != "none" else None]
    advantage = row.get("advantage", "").partition(" (")[0] + (f" on {trained} of {generated}" if part else "")
    return KnownDesign(
        prompts=as_count(row.get("prompts_per_round")),
        rollouts=generated,
        updates_per_round=as_count(row.get("updates_per_round")),
        learning_rate=as_rate(row.get("learning_rate")),
        advantage=as_word(advantage.strip()),
        loss=", ".join(filter(None, loss)) or None,
        kl_coefficient=as_real(row.get("kl_coefficient")),
        temperature=as_real(row.get("temperature")),
        response_limit=as_count(row.get("max_response_tokens")),
        precision=weight_precision(row.get("precision")),
        model=as_word(row.get("model")),
        assumed=(
            f"rollouts: {generated} are generated, {trained} of them trained on, which is part of the advantage's name",
        )
        if part
        else (),
    )
