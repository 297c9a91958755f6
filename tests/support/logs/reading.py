"""Texts as files that are read, and what is said of the runs in them."""

from pathlib import Path

from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.run import ImportedRun
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
    """What a configuration with this text says of the design, and the notes on it."""
    (folder / name).write_text(text)
    return read_design(read_config(folder / name), "", processes)
