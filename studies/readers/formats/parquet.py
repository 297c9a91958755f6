"""Read Parquet files of other programs, and folders of `rftlab train` (curve.parquet and metrics.parquet, rounds.jsonl,
with config.json for the design).
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rftlab.llm.tasks.files import read_table, reading
from rftlab.llm.tracking import read_rounds
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import FILE, path_kind, read_json
from rftlab.studies.readers.formats.apart import Key, RunsByKey
from rftlab.studies.readers.formats.tables import FORMAT, OF_TRAINERS, step_and_run, trainers_step
from rftlab.studies.readers.names import translate_metric
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, whole

if TYPE_CHECKING:
    import pandas as pd

START = b"PAR1"
OWN, CURVE, METRICS, CONFIG = "rftlab train", "curve.parquet", "metrics.parquet", "config.json"
_OURS = {"seconds": "train.elapsed_seconds", "reward": "train.reward_mean", "train_pass_at_1": "train.train_pass_at_1"}
"""train_pass_at_1 is an evaluation on training questions after the round, not the mean reward of its batch, so it
keeps its name."""


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns; [] for a damaged file."""
    import pyarrow
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(path).names)
    except (pyarrow.ArrowException, OSError, ValueError):
        return []


def read_parquet(path: Path, columns: dict[str, str], with_runs: bool = True) -> list[RawRun]:
    """Read the runs of a Parquet file, through pyarrow. with_runs: whether a column of run names tells them apart."""
    import pyarrow

    table = read_table(path)
    with reading(path):
        for i, field in enumerate(table.schema):
            if pyarrow.types.is_decimal(field.type):  # which pandas would keep as objects
                table = table.set_column(i, field.name, table.column(i).cast(pyarrow.float64()))
        frame = table.to_pandas()
    names = [str(name) for name in frame.columns]
    frame.columns = names
    check(len(set(names)) == len(names), f"{path} has two columns of one name; allowed: columns of different names")
    step_name, run_name = step_and_run(names, columns, path)
    if "step" not in columns:
        head = frame[[name for name in names if name == step_name or name in OF_TRAINERS]].head(500)
        step_name = trainers_step([row.dropna().to_dict() for _, row in head.iterrows()], step_name)
    runs = RunsByKey(path, names, run_name if with_runs else None, FORMAT, place="row")
    cells = [["" if cell != cell else str(cell) for cell in frame[name]] for name in runs.columns]
    keys: list[Key] = list(zip(*cells, strict=True)) if cells else [()] * len(frame)
    steps = [whole(_plain(cell)) for cell in frame[step_name]]
    wanted = frame.drop(columns=[step_name, *runs.columns])
    numbers = [name for name in wanted.columns if wanted[name].dtype.kind in "iufb"]
    _watch(runs, keys, steps, wanted.drop(columns=numbers))
    stepped = np.array([-1 if step is None else step for step in steps], np.int32)
    read = {name: wanted[name].to_numpy(dtype=float, na_value=math.nan) for name in numbers}
    series = {name: (values, (stepped >= 0) & ~np.isnan(values)) for name, values in read.items()}
    runs.add_rows([(key, "") for key in keys], stepped, np.arange(1, len(frame) + 1), series)
    separate = runs.told_apart()
    others = ", ".join(name for name in wanted.columns if name not in numbers)
    for run in separate:
        run.notes += [f"columns that hold no numbers left out: {others[:200]}"] if others else []
    return separate


def _watch(runs: RunsByKey, keys: list[Key], steps: list[int | None], texts: "pd.DataFrame") -> None:
    """Take note of the texts of every row."""
    columns = [texts[name].tolist() for name in texts.columns]
    for key, step, *cells in zip(keys, steps, *columns, strict=True) if columns else ():
        row = {name: cell for name, cell in zip(texts.columns, cells, strict=True) if isinstance(cell, str) and cell}
        if step is not None:
            runs.watch(key, step, row)


def _plain(cell: Any) -> float | None:
    """Return a cell as a number; None for texts and for missing ones."""
    return float(cell) if isinstance(cell, int | float) or hasattr(cell, "dtype") else None


def is_own_run(head: Head) -> bool:
    """Whether a file is the curve in a folder of `rftlab train`."""
    return head.path.name == CURVE and path_kind(head.path.parent / CONFIG) == FILE


def find_own_files(curve: Path) -> list[Path]:
    """Return the files of a run of rftlab by its curve; [] where there is none."""
    files = [path for name in (CURVE, METRICS, CONFIG) if path_kind(path := curve.with_name(name)) == FILE]
    return files if curve in files else []


def read_own_run(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of rftlab that has this curve. Raises UserError where its configuration cannot be read."""
    path = head.path
    run = RawRun(path.resolve().parent.name, OWN, tool="rftlab", place="row", aliases=dict(_OURS))
    for name in (CURVE, METRICS):
        place = path.parent / name
        if path_kind(place) != FILE:
            continue
        (part,) = read_parquet(place, {"step": "round"}, with_runs=False)
        run.series |= {key: series for key, series in part.series.items() if key not in run.series and key != "seed"}
    rounds = read_rounds(path.parent)
    measured = {name for each in rounds for name in each} - {"round"}
    for name in measured | ({"kl"} if "kl_ref" in measured else set()):  # the curve has their means between evaluations
        run.series.pop(name, None)
    ours = {name: f"train/{name}" if translate_metric(f"train/{name}") else name for name in measured}
    for each in rounds:
        for name in each.keys() & measured:
            run.add(ours[name], int(each["round"]), each[name], int(each["round"]))
    try:
        config = read_json(path.parent / CONFIG) if path_kind(path.parent / CONFIG) == FILE else None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path.parent / CONFIG} cannot be read: {error}; allowed: the file that rftlab train wrote"
        ) from None
    run.config = config if isinstance(config, dict) else None
    return [run]
