"""Tidy tables, CSV or Parquet: a row a step, a column a metric; a column of run names where there are several. Our
own long form too."""

import csv
import math
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.readers.formats.apart import Key, Texts, telling, told_apart
from rftlab.studies.readers.formats.odd import Odd
from rftlab.studies.readers.formats.parquet import read_table, reading
from rftlab.studies.readers.formats.tables import (
    INDEX,
    OF_TRAINERS,
    RUNS,
    STEPS,
    Columns,
    DelimitedText,
    chosen,
    header_of,
    long_cells,
    numbers,
    rows_of,
    table_of,
    trainers_step,
)
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, number, step_of, whole

FORMAT, PARQUET = "table", b"PAR1"
MAX_ROWS = 20_000_000


def recognise(head: Head) -> bool:
    """Whether it is Parquet, or text with a header of names."""
    return head.raw.startswith(PARQUET) or len(header_of(head)) > 1


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a table. Raises UserError where no column counts steps."""
    return read_parquet(path, columns) if head.raw.startswith(PARQUET) else _text(path, head, columns)


def _places(names: list[str], columns: dict[str, str], path: Path) -> tuple[str, str | None]:
    """The columns of steps and of run names."""
    step, run = chosen(names, columns, "step", STEPS, path), chosen(names, columns, "run", RUNS, path)
    if step is None:
        raise UserError(
            f"{path}: no column counts steps ({', '.join(names[:12])}); allowed: one of "
            f"{', '.join(STEPS[:6])}, or --columns step=NAME"
        )
    return step, run


def _text(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    table = table_of(head)
    step_name, run_name = _places(table.header, columns, path)
    step_name = _trainers(head, table, step_name, columns)
    told = telling(table.header, run_name)
    at, own = table.header.index(step_name), [table.header.index(name) for name in told]
    wanted = [i for i in range(len(table.header)) if i not in (at, *own) and table.header[i] != INDEX]
    runs: dict[Key, Columns] = {}
    odd, watched = Odd(step_name), Texts()
    with rows_of(table, head.encoding) as rows:
        for place, cells in rows:
            step = step_of(cells[at], table.comma)
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
    found = told_apart(raws, told, watched, path)
    notes = odd.notes(path, any(raw.series for raw in found))
    for raw in found:
        raw.notes += table.notes + notes
    return found


def _trainers(head: Head, table: DelimitedText, step: str, columns: dict[str, str]) -> str:
    """The trainer's own step in the place of a count of log calls, as the first rows tell; noted."""
    if "step" in columns:
        return step
    named = [(i, name) for i, name in enumerate(table.header) if name == step or name in OF_TRAINERS]
    with long_cells():
        rows = [
            {name: value for i, name in named if i < len(cells) and (value := number(cells[i])) is not None}
            for cells in csv.reader(head.lines[1:500], delimiter=table.separator)
            if any(cells)
        ]
    found = trainers_step(rows, step)
    if found != step:
        table.notes.append(f"steps are {found}: {step} counts log calls")
    return found


def read_parquet(path: Path, columns: dict[str, str], with_runs: bool = True) -> list[RawRun]:
    """Numbers of a Parquet file, through pyarrow; with_runs: a column of run names tells them apart."""
    table = read_table(path, MAX_ROWS)
    with reading(path):
        frame = _decimals_as_floats(table).to_pandas()
    names = [str(name) for name in frame.columns]
    frame.columns = names
    check(len(set(names)) == len(names), f"{path} has two columns of one name; allowed: columns of different names")
    step_name, run_name = _places(names, columns, path)
    if "step" not in columns:
        head = frame[[name for name in names if name == step_name or name in OF_TRAINERS]].head(500)
        step_name = trainers_step([row.dropna().to_dict() for _, row in head.iterrows()], step_name)
    told, watched = telling(names, run_name if with_runs else None), Texts()
    groups = frame.groupby(told, sort=False, observed=True, dropna=False) if told else [((), frame)]
    found = {
        tuple("" if name != name else str(name) for name in key): _of_frame(group, step_name, told)
        for key, group in groups
    }
    _watch(watched, frame, step_name, told)
    watched.check(path)
    return told_apart(found, told, watched, path)


def _watch(watched: Texts, frame, step_name: str, told: list[str]) -> None:
    """Note the texts of every row."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "iufb" and name not in (step_name, *told)]
    if not texts:
        return
    keys = [frame[name].tolist() for name in told]
    for i, step in enumerate(frame[step_name]):
        row = {name: value for name in texts if isinstance(value := frame[name].iat[i], str) and value}
        done = whole(_plain(step))
        if done is not None and row:
            watched.add(tuple("" if key[i] != key[i] else str(key[i]) for key in keys), done, row)


def _decimals_as_floats(table):
    """An Arrow table whose decimals, which pandas would keep as objects, are floats."""
    import pyarrow

    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pyarrow.float64()))
    return table


def _of_frame(frame, step_name: str, told: list[str]) -> RawRun:
    run = RawRun("", FORMAT, place="row")
    steps = [whole(_plain(value)) for value in frame[step_name]]
    kinds = {name: frame[name].dtype.kind for name in frame.columns if name not in (step_name, *told)}
    for name in (name for name, kind in kinds.items() if kind in "iufb"):
        values = frame[name].to_numpy(dtype=float, na_value=math.nan)
        for place, (step, value) in enumerate(zip(steps, values, strict=True), start=1):
            if step is not None and value == value:
                run.add(name, step, float(value), place)
    others = ", ".join(name for name, kind in kinds.items() if kind not in "iufb")
    run.notes += [f"columns that hold no numbers left out: {others[:200]}"] if others else []
    return run


def _plain(value) -> float | None:
    """A cell as a number; None of texts and of missing ones."""
    return float(value) if isinstance(value, int | float) or hasattr(value, "dtype") else None
