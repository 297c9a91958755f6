"""Hugging Face's trainer_state.json, as TRL leaves it in every checkpoint, with training_args.bin or args.json
beside it for the design, and the files of the model beside them for its name.

training_args.bin is a pickle. It is walked with a reader that knows no class and calls nothing (`frozen_values`),
so it cannot run anything.
"""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import FILE, kind_of, numbered, object_of, read_json
from rftlab.studies.readers.formats.json_lines import flat
from rftlab.studies.readers.formats.model_folder import model_facts
from rftlab.studies.readers.run import KnownDesign, RawRun
from rftlab.studies.readers.text import Head, whole

FORMAT, FILE_NAME, ARGUMENTS = "trainer_state.json", "trainer_state.json", "training_args.bin"
LARGEST_ARGUMENTS = 1 << 20
_END = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")


def recognise(head: Head) -> bool:
    """Whether it is a JSON object that has a log_history."""
    return head.text.lstrip("\ufeff \r\n\t").startswith("{") and (
        head.path.name == FILE_NAME or '"log_history"' in head.text
    )


def state_of(folder: Path) -> Path | None:
    """The state of a folder: its own, or that of its last checkpoint; None where it has none."""
    if kind_of(folder / FILE_NAME) == FILE:
        return folder / FILE_NAME
    checkpoints = {
        int(number): path
        for path in folder.glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isascii() and number.isdigit() and len(number) < 19
    }
    last = checkpoints[max(checkpoints)] if checkpoints else None
    found = [path / FILE_NAME for path in ([last] if last else []) + numbered(folder)[-1:]]
    return next((path for path in found if kind_of(path) == FILE), None)


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a state."""
    state = _state(path, head)
    history = state.get("log_history")
    if not isinstance(history, list):
        raise UserError(
            f"{path} has no log_history that is a list; allowed: trainer_state.json as transformers writes it"
        )
    run = run_of(path.resolve().parent.name, history, state.get("logging_steps"))
    run.config = arguments_beside(path, run.notes)
    facts = model_facts(_own_folders(path))
    run.design = KnownDesign(model=facts.get("model_name_or_path"))
    if run.config is not None:
        run.config = facts | run.config  # part of what runs that repeat each other share
    return [run]


def _own_folders(path: Path) -> list[Path]:
    """Folders of a state that are the run's: its own, and that of the run where it lies in a checkpoint."""
    folder = path.resolve().parent
    return [folder, folder.parent] if folder.name.startswith("checkpoint-") else [folder]


def run_of(name: str, history: list, every: Any) -> RawRun:
    """A run from the records of a state; every: its logging_steps."""
    run = RawRun(name, FORMAT, tool="trl", place="record")
    without = 0
    for place, record in enumerate(history, start=1):
        values = flat(record) if isinstance(record, dict) else {}
        step = whole(values.get("step"))
        if step is None:
            without += 1
            continue
        for name, value in values.items():
            if name not in ("step", "epoch", *_END):
                run.add(name, step, value, place)
    run.notes += [f"{without} records without a step left out"] if without else []
    if isinstance(every, int | float) and every > 1:
        run.notes.append(f"logging_steps = {every:g}: train values are means over as many updates, at the last of them")
    return run


def _state(path: Path, head: Head) -> dict:
    try:
        found = (
            json.loads(path.read_bytes().decode(head.encoding), object_pairs_hook=object_of)
            if head.encoding.startswith("utf-16")
            else read_json(path.resolve(), object_of)
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; allowed: a whole trainer_state.json") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is no JSON object; allowed: trainer_state.json as transformers writes it")
    return found


def arguments_beside(path: Path, notes: list[str]) -> dict | None:
    """The arguments that lie beside a state, or a folder above it."""
    for folder in (path.parent, path.parent.parent):
        place = folder / ARGUMENTS
        if kind_of(place) == FILE:
            try:
                return frozen_values(place)
            except ValueError as error:
                notes.append(f"{ARGUMENTS} beside it cannot be read: {error}")
    return None


class _Frozen:
    """What stands for any object of a pickle: it keeps what it is given and does nothing."""

    given: tuple

    def __new__(cls, *given, **named):
        made = super().__new__(cls)
        made.given = given
        return made

    def __init__(self, *given, **named):
        pass

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        """Items of a dictionary of some kind are let go."""

    def append(self, item):
        """And so are those of a list."""

    extend = append


class _Reader(pickle.Unpickler):
    """Makes nothing but plain values and `_Frozen`: no name in a pickle is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        """A class that does nothing, whatever is asked for."""
        return _Frozen

    def persistent_load(self, pid: Any) -> None:
        """Tensors are left out."""
        return None


def frozen_values(path: Path) -> dict[str, Any]:
    """The plain values of a pickled object's fields, nothing of it being run. Raises ValueError where there are
    none."""
    data = path.read_bytes() if path.stat().st_size <= LARGEST_ARGUMENTS else b""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                info = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
                data = archive.read(info) if info.file_size <= LARGEST_ARGUMENTS else b""
        found = _Reader(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{type(error).__name__}: {str(error)[:100]}") from None
    state = getattr(found, "state", found)
    if not isinstance(state, dict):
        raise ValueError("it holds no fields")
    return {str(name): _thawed(value) for name, value in state.items()}


def _thawed(value: Any) -> Any:
    """A plain value; of an enum its text."""
    if isinstance(value, _Frozen):
        return value.given[0] if len(value.given) == 1 and isinstance(value.given[0], str) else None
    if isinstance(value, list | tuple):
        return [_thawed(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _thawed(part) for name, part in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else None
