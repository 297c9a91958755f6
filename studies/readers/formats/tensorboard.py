"""TensorBoard's event files, or a folder of them, through tensorboard's own reader where it is installed."""

from collections.abc import Iterator
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import FILE, path_kind
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, whole

FORMAT, MARK = "TensorBoard", "tfevents"
NEEDED = "needs the package tensorboard (pip install tensorboard)"
MAX_FILES = 1000


def is_event_file(head: Head) -> bool:
    """Whether it begins as an event file: a record of a few bytes, which has the version in it."""
    return b"brain.Event:" in head.raw[:100] or MARK in head.path.name


def find_event_files(folder: Path) -> list[Path]:
    """Event files of a folder and of folders in it, the oldest first."""
    paths = [path for path in sorted(folder.rglob(f"*{MARK}*"))[: MAX_FILES + 1] if path_kind(path) == FILE]
    check(len(paths) <= MAX_FILES, f"{folder} has more than {MAX_FILES} event files; allowed: at most {MAX_FILES}")
    return paths


def read_event_file(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of one event file."""
    run = RawRun("", FORMAT, place="record")
    add_events(run, path)
    return [run]


def read_event_folder(folder: Path, files: list[Path]) -> list[RawRun]:
    """A run for each folder that holds event files; several files of one folder are parts of one run."""
    runs: dict[Path, RawRun] = {}
    for path in files:
        name = folder.resolve().name if path.parent == folder else path.parent.relative_to(folder).as_posix()
        add_events(runs.setdefault(path.parent, RawRun(name, FORMAT, place="record")), path)
    return list(runs.values())


def add_events(run: RawRun, path: Path) -> None:
    """Add the scalars of an event file. Raises UserError where tensorboard is not installed."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise UserError(f"{path} holds TensorBoard events, and reading them {NEEDED}") from None
    before, seen = max((series.places[-1] for series in run.series.values()), default=0), 0
    try:
        for seen, event in enumerate(EventFileLoader(str(path)).Load(), start=1):
            step = whole(event.step)
            for tag, value in _scalars(event):
                if step is not None:
                    run.add(tag, step, value, before + seen)
        damaged = seen < _records(path)  # the reader ends there without a word
    except Exception:  # whatever it raises for a damaged record; what came before is whole
        damaged = True
    if damaged:
        run.notes.append(f"{path.name} is cut or damaged after record {seen}: what comes before is read")


def _records(path: Path) -> int:
    """Records that a file begins, by the lengths that it gives: 8 bytes of length, 4 of its checksum, the data, 4
    of theirs."""
    size, place, count = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            place += 16 + int.from_bytes(file.read(8), "little")
            count += 1
    return count


def _scalars(event) -> Iterator[tuple[str, float]]:
    """Tags and values of an event's scalars; pictures, texts and histograms are left out."""
    from tensorboard.util.tensor_util import make_ndarray

    for value in event.summary.value:
        if value.HasField("simple_value"):
            yield value.tag, float(value.simple_value)
        elif value.HasField("tensor") and not value.tensor.tensor_shape.dim and value.tensor.dtype in (1, 2, 3, 9):
            yield value.tag, float(make_ndarray(value.tensor))
