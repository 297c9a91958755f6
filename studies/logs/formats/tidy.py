"""Tidy tables, CSV or Parquet: a row a step, a column a metric; a column of run names where there are several. Our
own long form too."""

import csv
import math
from pathlib import Path

from rftlab.shared.errors import UserError, check
from rftlab.studies.logs.formats.odd import Odd
from rftlab.studies.logs.formats.tables import (
    INDEX,
    OF_TRAINERS,
    RUNS,
    STEPS,
    Columns,
    Table,
    chosen,
    header_of,
    long_cells,
    numbers,
    rows_of,
    table_of,
    trainers_step,
)
from rftlab.studies.logs.run import RawRun
from rftlab.studies.logs.text import Head, number, whole

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
    at, run_at = table.header.index(step_name), table.header.index(run_name) if run_name else None
    wanted = [i for i in range(len(table.header)) if i not in (at, run_at) and table.header[i] != INDEX]
    runs: dict[str, Columns] = {}
    odd = Odd(step_name)
    with rows_of(table, head.encoding) as rows:
        for place, cells in rows:
            name = "" if run_at is None else cells[run_at].strip()
            step = whole(number(cells[at], table.comma))
            if odd.stepless(step, cells[at], place) or step is None:
                continue
            run = runs.get(name) or runs.setdefault(name, Columns(len(wanted)))
            values = numbers([cells[i] for i in wanted], table.comma)
            if None in values:
                for i, value in zip(wanted, values, strict=True):
                    if value is None:
                        odd.cell(table.header[i], cells[i], place)
            run.add(step, place, values)
    names = [table.header[i] for i in wanted]
    found = [RawRun(name, FORMAT, series=run.series(names)) for name, run in runs.items()]
    notes = odd.notes(path, any(raw.series for raw in found))
    for raw in found:
        raw.notes += table.notes + notes
    return found


def _trainers(head: Head, table: Table, step: str, columns: dict[str, str]) -> str:
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
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            check(rows <= MAX_ROWS, f"{path} has {rows} rows; allowed: at most {MAX_ROWS}")
            frame = _decimals_as_floats(file.read()).to_pandas()
    except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {type(error).__name__}: {str(error)[:200]}; allowed: a whole file"
        ) from None
    names = [str(name) for name in frame.columns]
    frame.columns = names
    check(len(set(names)) == len(names), f"{path} has two columns of one name; allowed: columns of different names")
    step_name, run_name = _places(names, columns, path)
    if "step" not in columns:
        head = frame[[name for name in names if name == step_name or name in OF_TRAINERS]].head(500)
        step_name = trainers_step([row.dropna().to_dict() for _, row in head.iterrows()], step_name)
    run_name = run_name if with_runs else None
    groups = (
        [("", frame)]
        if run_name is None
        else [
            ("" if name != name else str(name), group)
            for name, group in frame.groupby(run_name, sort=False, observed=True, dropna=False)
        ]
    )
    return [_of_frame(name, group, step_name, run_name) for name, group in groups]


def _decimals_as_floats(table):
    """An Arrow table whose decimals, which pandas would keep as objects, are floats."""
    import pyarrow

    for i, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pyarrow.float64()))
    return table


def _of_frame(name: str, frame, step_name: str, run_name: str | None) -> RawRun:
    run = RawRun(name, FORMAT, place="row")
    steps = [whole(_plain(value)) for value in frame[step_name]]
    kinds = {name: frame[name].dtype.kind for name in frame.columns if name not in (step_name, run_name)}
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
