"""Texts as files that are read, and what is said of the runs in them."""

from pathlib import Path

import pandas as pd

from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.run import ImportedRun
from rftlab.studies.readers.store import write_collection
from tests.support.logs.formats import said


def read(folder: Path, data: str | bytes, name: str = "log.csv", **more) -> list[ImportedRun]:
    """The runs of a log with this content."""
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_logs([folder / name], **more)


def run_of(folder: Path, data: str | bytes, name: str = "log.csv", **more) -> ImportedRun:
    (run,) = read(folder, data, name, **more)
    return run


def values(runs: list[ImportedRun], metric: str, split: str = "train") -> dict[int, float]:
    """A metric by round."""
    return {key[0]: value for key, value in said(runs).items() if key[1:] == (split, metric)}


def notes(runs: list[ImportedRun]) -> str:
    return "\n".join(note for run in runs for note in run.notes)


def told(folder: Path, text: str, name: str = "run.sh", processes: int | None = 1):
    """The design that a configuration with this text states, and the notes on it."""
    (folder / name).write_text(text)
    return read_design(read_config(folder / name), "", processes)


def collection(folder: Path, name: str, runs, known=None, n: int | None = 500, metric: str = "pass_at_1") -> Path:
    """Keep runs under a name, and return the results folder: of each run the test values by task and round, and what is
    known of its design, in the columns of runs.csv."""
    rows = [
        (run, at, "test", metric, value, n, task)
        for run, tasks in runs.items()
        for task, curve in tasks.items()
        for at, value in curve.items()
    ]
    (folder / name).mkdir()
    columns = ["run_id", "round", "split", "metric", "value", "n", "task"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / name / "curves.csv", index=False)
    if known:
        cells = [{"run_id": run, **facts} for run, facts in known.items()]
        pd.DataFrame(cells).to_csv(folder / name / "runs.csv", index=False)
    write_collection(folder / "results", name, read_logs([folder / name / "curves.csv"]))
    return folder / "results"
