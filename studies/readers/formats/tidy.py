"""Read tables of metrics, CSV or Parquet. Tidy ones have a row a step and a column a metric. Exports of Weights &
Biases are wide (a column a run and metric, `run - metric`, with `__MIN` and `__MAX`) or long (run_name, metric, step,
value)."""

import csv
from array import array
from pathlib import Path

import numpy as np

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.readers.formats.apart import MAX_RUNS, Key, RunsByKey
from rftlab.studies.readers.formats.parquet import START, read_parquet
from rftlab.studies.readers.formats.tables import (
    COUNTS_CALLS,
    FORMAT,
    INDEX,
    KINDS,
    MISSING,
    OF_TRAINERS,
    DelimitedText,
    iterate_rows,
    long_cells,
    numbers,
    open_table,
    read_header,
    step_and_run,
    trainers_step,
)
from rftlab.studies.readers.names import split_of
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import LARGEST_STEP, Head, read_number, read_step

EXPORT = "W&B export"
_BOUNDS = ("__MIN", "__MAX")
_X = ("step", "_step", "global_step", "train/global_step", "training/global_step", "trainer/global_step")
_LONG = ({"metric", "metric_name", "tag", "key"}, {"step", "_step"}, {"value"})


def is_tidy_table(head: Head) -> bool:
    """Whether a file is Parquet, or text with a header of names."""
    return head.raw.startswith(START) or len(read_header(head)) > 1


def read_tidy_table(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of a table. Raises UserError where no column counts steps."""
    if head.raw.startswith(START):
        return read_parquet(head.path, columns)
    table = open_table(head)
    step_name, run_name = step_and_run(table.header, columns, head.path)
    step_name = _trainers_column(head, table, step_name, columns)
    runs = RunsByKey(head.path, table.header, run_name, FORMAT)
    at, own = table.header.index(step_name), [table.header.index(name) for name in runs.columns]
    wanted = [i for i in range(len(table.header)) if i not in (at, *own) and table.header[i] != INDEX]
    kinds = [i for i in wanted if table.header[i].lower() in KINDS]
    owners: dict[tuple[Key, str], tuple[Key, str]] = {}
    of_rows: list[tuple[Key, str]] = []
    steps, places, numbers_read, gaps = array("i"), array("I"), array("d"), array("q")
    odd = _Odd(step_name)
    with iterate_rows(table) as rows:
        for place, cells in rows:
            step = read_step(cells[at], table.comma)
            if odd.stepless(step, cells[at], place) or step is None:
                continue
            key = tuple([cells[i].strip() for i in own])
            kind = next((i for i in kinds if split_of(cells[i].strip())), -1)
            values = numbers([cells[i] for i in wanted], table.comma)
            if None in values:
                empty = (i for i, value in zip(wanted, values, strict=True) if value is None and i != kind)
                others = {table.header[i]: cells[i] for i in empty}
                runs.watch(key, step, {name: text.strip() for name, text in others.items() if text.strip()})
                for name, text in others.items():
                    odd.cell(name, text, place)
                # nan is a value, and an empty cell is none
                gaps.extend(len(numbers_read) + i for i, value in enumerate(values) if value is None)
            owner = key, f"{cells[kind].strip()}/" if kind >= 0 else ""
            of_rows.append(owners.setdefault(owner, owner))
            steps.append(step)
            places.append(place)
            numbers_read.extend(0.0 if value is None else value for value in values)
    grid = np.asarray(numbers_read).reshape(len(steps), len(wanted))
    there = np.ones(grid.shape, bool)
    there.flat[np.asarray(gaps)] = False
    columns_read = {table.header[i]: (grid[:, at], there[:, at]) for at, i in enumerate(wanted)}
    runs.add_rows(of_rows, np.asarray(steps), np.asarray(places), columns_read)
    separate = runs.told_apart()
    notes = odd.notes(head.path, any(raw.series for raw in separate))
    for raw in separate:
        raw.notes += table.notes + notes
    return separate


def _trainers_column(head: Head, table: DelimitedText, step: str, columns: dict[str, str]) -> str:
    """Return the column of the trainer's own step where the first rows tell that another counts log calls; noted."""
    if "step" in columns:
        return step
    named = [(i, name) for i, name in enumerate(table.header) if name == step or name in OF_TRAINERS]
    with long_cells():
        rows = [
            {name: value for i, name in named if i < len(cells) and (value := read_number(cells[i])) is not None}
            for cells in csv.reader(head.lines[1:500], delimiter=table.separator)
            if any(cells)
        ]
    trainers = trainers_step(rows, step)
    if trainers != step:
        table.notes.append(f"steps are {trainers}: {step} counts log calls")
    return trainers


class _Odd:
    """Rows of a table without a step, and cells that are no numbers: the first place of each, and its text."""

    def __init__(self, step: str):
        self._step, self._rows, self._stepless = step, 0, 0
        self._cells: dict[str, str] = {}

    def stepless(self, step: int | None, text: str, place: int) -> bool:
        """Count a row, and return whether it has no step. An empty cell is no reason to doubt the other rows."""
        self._rows += 1
        if step is None and text.strip().lower() not in MISSING:
            self._stepless += 1
            self._cells.setdefault(
                "", f"line {place}: {self._step} = {_shown(text)} is no whole number from 0 to {LARGEST_STEP}"
            )
        return step is None

    def cell(self, name: str, text: str, place: int) -> None:
        """Take note of a cell with something else than a number."""
        if name not in self._cells and text.strip():
            self._cells[name] = f"line {place}: {name} = {_shown(text)} is no number"

    def notes(self, path: Path, numbers: bool) -> list[str]:
        """Return notes for the user. Raises UserError where half of the rows have no step, or no cell has a number."""
        said = [f"{text}; such {'cells' if name else 'rows'} are left out" for name, text in self._cells.items()]
        if self._cells and (2 * self._stepless >= self._rows or not numbers):
            first = self._cells.get("", next(iter(self._cells.values())))
            raise UserError(f"{path}: {first}; allowed: such as 12 for steps, and 0.5 or 1e-6 for numbers")
        return said[:6]


def _shown(text: str) -> str:
    return repr(text.strip()[:40])


def is_export(head: Head) -> bool:
    """Whether the header is that of a wide or a long export."""
    names = read_header(head)
    wide = len(names) > 1 and (any(name.endswith(_BOUNDS) for name in names) or all(map(_parts, names[1:])))
    return wide or _long(names) is not None


def _parts(name: str) -> tuple[str, str] | None:
    """Return run and metric of a column `run - metric`; None for another column."""
    run, _, metric = name.rpartition(" - ")
    return (run, metric) if run and metric and not metric[0].isspace() and "\n" not in name else None


def _long(names: list[str]) -> list[str] | None:
    """Return the columns of metric, step and value, then that of the run where there is one; None for another table."""
    lower = {name.lower(): name for name in names}
    columns = [there[0] for kind in _LONG if (there := [lower[name] for name in sorted(kind) if name in lower])]
    run = next((lower[name] for name in ("run_name", "run", "run_id", "name") if name in lower), None)
    return None if len(columns) < len(_LONG) else [*columns, *([run] if run else [])]


def read_export(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the runs of an export. Notes on repairs of the file go to every run."""
    table = open_table(head)
    bad: dict[str, int] = {}
    long = _long(table.header)
    runs = _read_long(table, long, bad) if long else _read_wide(table, bad)
    left_out = "is no number of the kind allowed; such rows are left out"
    for run in runs:
        run.notes += table.notes + [f"line {place}: {what} {left_out}" for what, place in bad.items()]
    return runs


def _read_long(table: DelimitedText, names: list[str], bad: dict[str, int]) -> list[RawRun]:
    """Read a long export, with a row for each value. bad: gets the first line of each kind of damage."""
    runs = RunsByKey(table.path, table.header, names[3] if names[3:] else None, EXPORT, one_track=False)
    at, own = ([table.header.index(name) for name in columns] for columns in (names[:3], runs.columns))
    with iterate_rows(table) as rows:
        for place, cells in rows:
            metric, step, value = (cells[i].strip() for i in at)
            done, measured = read_step(step, table.comma), read_number(value, table.comma)
            if value and (done is None or measured is None or not metric):
                bad.setdefault("step" if done is None else "value" if measured is None else "metric", place)
            elif value and done is not None and measured is not None:
                runs.run(tuple([cells[i].strip() for i in own])).add(metric, done, measured, place)
    return runs.told_apart()


def _read_wide(table: DelimitedText, bad: dict[str, int]) -> list[RawRun]:
    """Read a wide export, with a row for each point of the horizontal axis, which is the first column."""
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
        if metric in _X:
            continue
        if at is None:
            raise UserError(
                f"{table.path}: the axis is {table.header[0]!r} and there is no column `{name} - _step`; allowed: an "
                "export over steps, or with _step"
            )
        wanted.append((i, runs[name], metric, at))
    with iterate_rows(table) as rows:
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
        table.notes.append(COUNTS_CALLS)
    return list(runs.values())
