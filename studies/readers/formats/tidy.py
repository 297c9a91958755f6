"""Tidy tables, CSV or Parquet: a row a step, a column a metric; a column of run names where there are several."""

import csv
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.formats.apart import Key, Texts, telling, told_apart
from rftlab.studies.readers.formats.parquet import START, read_parquet
from rftlab.studies.readers.formats.tables import (
    FORMAT,
    INDEX,
    MISSING,
    OF_TRAINERS,
    Columns,
    DelimitedText,
    iterate_rows,
    long_cells,
    numbers,
    open_table,
    read_header,
    step_and_run,
    trainers_step,
)
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import LARGEST_STEP, Head, read_number, read_step


def is_tidy_table(head: Head) -> bool:
    """Whether it is Parquet, or text with a header of names."""
    return head.raw.startswith(START) or len(read_header(head)) > 1


def read_tidy_table(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a table. Raises UserError where no column counts steps."""
    return read_parquet(path, columns) if head.raw.startswith(START) else _text(path, head, columns)


def _text(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    table = open_table(head)
    step_name, run_name = step_and_run(table.header, columns, path)
    step_name = _trainers(head, table, step_name, columns)
    told = telling(table.header, run_name)
    at, own = table.header.index(step_name), [table.header.index(name) for name in told]
    wanted = [i for i in range(len(table.header)) if i not in (at, *own) and table.header[i] != INDEX]
    runs: dict[Key, Columns] = {}
    odd, watched = _Odd(step_name), Texts()
    with iterate_rows(table, head.encoding) as rows:
        for place, cells in rows:
            step = read_step(cells[at], table.comma)
            if odd.stepless(step, cells[at], place) or step is None:
                continue
            key = tuple([cells[i].strip() for i in own])
            run = runs.get(key) or runs.setdefault(key, Columns(len(wanted)))
            values = numbers([cells[i] for i in wanted], table.comma)
            if None in values:
                others = {table.header[i]: cells[i] for i, value in zip(wanted, values, strict=True) if value is None}
                watched.add(key, step, {name: text.strip() for name, text in others.items() if text.strip()})
                for name, text in others.items():
                    odd.cell(name, text, place)
            run.add(step, place, values)
    watched.check(path)
    names = [table.header[i] for i in wanted]
    raws = {key: RawRun("", FORMAT, series=run.series(names)) for key, run in runs.items()}
    separate = told_apart(raws, told, watched, path)
    notes = odd.notes(path, any(raw.series for raw in separate))
    for raw in separate:
        raw.notes += table.notes + notes
    return separate


def _trainers(head: Head, table: DelimitedText, step: str, columns: dict[str, str]) -> str:
    """The trainer's own step in the place of a count of log calls, as the first rows tell; noted."""
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
    """Rows without a step, and cells that are no numbers, of a table: the first place of each, and what is there."""

    def __init__(self, step: str):
        self._step, self._rows, self._stepless = step, 0, 0
        self._cells: dict[str, str] = {}

    def stepless(self, step: int | None, text: str, place: int) -> bool:
        """Count a row; whether it has no step. One whose cell is empty is no reason to doubt the others."""
        self._rows += 1
        if step is None and text.strip().lower() not in MISSING:
            self._stepless += 1
            self._cells.setdefault(
                "", f"line {place}: {self._step} = {_shown(text)} is no whole number from 0 to {LARGEST_STEP}"
            )
        return step is None

    def cell(self, name: str, text: str, place: int) -> None:
        """A cell with something else than a number."""
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
