"""Measurements of a run for TensorBoard, Weights & Biases or Trackio, where a user asks for them. They are no part of a
run: it does not depend on them.

A tracker is any callable (round, columns), as `rftlab.llm.train.Report.evaluated` is. Those here open what they write
to at their first call, so a run that is refused or only read leaves nothing. A run that was killed trains some rounds
again; that adds no second point to a curve, except in Trackio, where it is the same point.
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
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import FILE, file_below, folder_below, path_kind, read_file, read_json

Tracker = Callable[[int, dict[str, float]], None]
Kind = Literal["none", "tensorboard", "wandb", "trackio"]
ROUNDS = "rounds.jsonl"
LARGEST = 1e300
"""The largest value of a measurement; nan and larger numbers are left out."""


def make_tracker(kind: Kind, folder: Path) -> Tracker:
    """The tracker of the run in a folder. Raises UserError where its package is missing."""
    kinds: dict[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "trackio": Trackio}
    return noop if kind == "none" else kinds[kind](folder)


def measured(columns: dict[str, float]) -> dict[str, float]:
    """Columns with something to draw: not those that were not measured (nan), and neither the step nor the seed."""
    return {name: value for name, value in columns.items() if value == value and name not in ("round", "seed")}


def read_rounds(folder: Path) -> list[dict[str, float]]:
    """The measurements of a run's rounds so far (llm/training/records.py), also while it runs, without lines that are
    not whole."""
    place = folder / ROUNDS
    lines = read_file(place).split(b"\n") if path_kind(place) == FILE else []
    rounds = [json.loads(line) for line in lines if round_number(line)]
    return [
        {name: value for name, value in each.items() if type(value) in (int, float) and -LARGEST < value < LARGEST}
        for each in rounds
    ]


def round_number(line: bytes) -> int:
    """The round of a line of measurements; 0 where it is not whole or not a line of ours."""
    try:
        columns = json.loads(line)
        number = columns["round"] if isinstance(columns, dict) else 0
        return number if type(number) is int and number > 0 else 0
    except (ValueError, KeyError, RecursionError):
        return 0


class TensorBoard:
    """Event files in `<folder>/tensorboard`."""

    def __init__(self, folder: Path):
        self.folder, self.module = folder, _imported("torch.utils.tensorboard", "tensorboard")
        self.writer: Any = None

    def __call__(self, round: int, columns: dict[str, float]) -> None:
        """Log what was measured after a round."""
        with reported(self.folder / "tensorboard"):
            if self.writer is None:  # purge_step hides what an earlier process logged from this round on
                self.writer = self.module.SummaryWriter(folder_below(self.folder, "tensorboard"), purge_step=round)
            for name, value in measured(columns).items():
                self.writer.add_scalar(name, value, round)
            self.writer.flush()


class WandB:
    """A run of Weights & Biases, always the same for one folder; project, entity and mode come from the user's
    WANDB_ variables."""

    package = "wandb"

    def __init__(self, folder: Path):
        self.folder, self.module = folder, _imported(self.package, self.package)
        self.run: Any = None

    def __call__(self, round: int, columns: dict[str, float]) -> None:
        """Log what was measured after a round."""
        if self.run is None:
            self.run = self._open()
        self.run.log(measured(columns), step=round)  # a step that it has is ignored

    def _open(self):
        """Go on with the folder's run. Its id is drawn once: a name or a hash would join runs of two folders, or one
        that was deleted."""
        place = file_below(self.folder, f"{self.package}-id")
        with reported(place):
            if not path_kind(place):
                write_file(place, secrets.token_hex(8).encode())
            identity = read_file(place).decode("ascii", "replace")
            check(re.fullmatch("[0-9a-f]{16}", identity) is not None, f"{place} holds no id of a run; remove it")
            config = read_json(self.folder / "config.json")
        return self._start(identity, self.folder.resolve().name, config)

    def _start(self, identity: str, name: str, config: dict):
        try:
            return self.module.init(
                id=identity, name=name, config=config, resume="allow", dir=self.folder, reinit="finish_previous"
            )
        except self.module.Error as error:  # not logged in, no network
            raise UserError(f"tracker wandb: {' '.join(str(error).split())}") from None


class Trackio(WandB):
    """A run of Trackio's project `rftlab`, always the same for one folder."""

    package = "trackio"

    def _start(self, identity: str, name: str, config: dict):
        return self.module.init(project="rftlab", name=f"{name}-{identity}", config=config, resume="allow")


def _imported(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"tracker {package}: {error}; pip install {package}") from None
