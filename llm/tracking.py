"""Send measurements of a run to TensorBoard, Weights & Biases or Trackio, where a user asks for it. The run does not
depend on them.

A tracker is any callable (round, columns), as `rftlab.llm.train.TrainingCallbacks.evaluated` is. The trackers here open
their files or connections at the first call, so that a run which is refused or only read leaves nothing. A run that was
killed trains some rounds again. These add no second point to a curve, except in Trackio, where it is the same point.
"""

import importlib
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import MAX, UserError, check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import FILE, file_below, folder_below, path_kind, read_file, read_json

Tracker = Callable[[int, dict[str, float]], None]
Kind = Literal["none", "tensorboard", "wandb", "trackio"]
ROUNDS = "rounds.jsonl"
LARGEST = 1e300
"""Largest absolute value of a measurement; nan and larger numbers are left out."""


def make_tracker(kind: Kind, folder: Path) -> Tracker:
    """Return the tracker of the run in a folder. Raises UserError where its package is missing."""
    if kind == "none":
        return noop
    return _tensorboard(folder) if kind == "tensorboard" else _one_run(kind, folder)


def measured(columns: dict[str, float]) -> dict[str, float]:
    """Return the columns to draw: without those that were not measured (nan), the step and the seed."""
    return {name: value for name, value in columns.items() if value == value and name not in ("round", "seed")}


def read_rounds(folder: Path) -> list[dict[str, float]]:
    """Return the measurements of a run's rounds so far (llm/training/records.py), also while it runs, without
    incomplete lines."""
    place = folder / ROUNDS
    lines = read_file(place).split(b"\n") if path_kind(place) == FILE else []
    rounds = [json.loads(line) for line in lines if round_number(line)]
    return [
        {name: value for name, value in each.items() if type(value) in (int, float) and -LARGEST < value < LARGEST}
        for each in rounds
    ]


def round_number(line: bytes) -> int:
    """Return the round of a line of measurements; 0 where the line is incomplete or not ours."""
    try:
        columns = json.loads(line)
        number = columns["round"] if isinstance(columns, dict) else 0
        return number if type(number) is int and 0 < number <= MAX else 0
    except (ValueError, KeyError, RecursionError):
        return 0


def _tensorboard(folder: Path) -> Tracker:
    """Return a tracker that writes event files to `<folder>/tensorboard`."""
    module = _imported("torch.utils.tensorboard", "tensorboard")
    writer: Any = None

    def track(round: int, columns: dict[str, float]) -> None:
        nonlocal writer
        with reported(folder / "tensorboard"):
            if writer is None:  # purge_step hides what an earlier process logged from this round on
                writer = module.SummaryWriter(folder_below(folder, "tensorboard"), purge_step=round)
            for name, value in measured(columns).items():
                writer.add_scalar(name, value, round)
            writer.flush()

    return track


def _one_run(package: str, folder: Path) -> Tracker:
    """Return a tracker for a run of Weights & Biases or of Trackio's project `rftlab`, always the same run for one
    folder. Project, entity and mode of the first come from the user's WANDB_ variables."""
    module = _imported(package, package)
    run: Any = None

    def track(round: int, columns: dict[str, float]) -> None:
        nonlocal run
        if run is None:
            identity, config = _run_facts(folder, package)
            name, common = folder.resolve().name, {"config": config, "resume": "allow"}
            try:
                if package == "trackio":
                    run = module.init(project="rftlab", name=f"{name}-{identity}", **common)
                else:
                    run = module.init(id=identity, name=name, dir=folder, reinit="finish_previous", **common)
            except getattr(module, "Error", ()) as error:  # not logged in, no network
                raise UserError(f"tracker {package}: {' '.join(str(error).split())}") from None
        run.log(measured(columns), step=round)  # a step that was logged already is ignored

    return track


def _run_facts(folder: Path, package: str) -> tuple[str, dict]:
    """Return the id of a folder's run, and its configuration. The id is drawn once, because a name or a hash would join
    runs of two folders, or one that was deleted."""
    place = file_below(folder, f"{package}-id")
    with reported(place):
        if not path_kind(place):
            write_file(place, secrets.token_hex(8).encode())
        identity = read_file(place).decode("ascii", "replace")
        check(re.fullmatch("[0-9a-f]{16}", identity) is not None, f"{place} holds no id of a run; remove it")
        return identity, read_json(folder / "config.json")


def _imported(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"tracker {package}: {error}; pip install {package}") from None
