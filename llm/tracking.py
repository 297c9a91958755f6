"""Measurements of a run for TensorBoard or Weights & Biases, where a user asks for them. They are no part of a run: it
does not depend on them.

A tracker is any callable (round, columns), as `rftlab.llm.train.Report.evaluated` is. Those here open what they write
to at their first call, so a run that is refused or only read leaves nothing. A run that was killed evaluates some
rounds again; that adds no second point to a curve.
"""

import importlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import file_below, folder_below, path_kind, read_file, read_json

Tracker = Callable[[int, dict[str, float]], None]
Kind = Literal["none", "tensorboard", "wandb"]


def make_tracker(kind: Kind, folder: Path) -> Tracker:
    """The tracker of the run in a folder. Raises UserError where its package is missing."""
    if kind == "none":
        return noop
    return TensorBoard(folder) if kind == "tensorboard" else WandB(folder)


def measured(columns: dict[str, float]) -> dict[str, float]:
    """Columns with something to draw: not those that were not measured (nan), and neither the step nor the seed."""
    return {name: value for name, value in columns.items() if value == value and name not in ("round", "seed")}


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
    """A run of Weights & Biases, always the same for one folder; project, entity and mode are those of the user's
    WANDB_ variables."""

    def __init__(self, folder: Path):
        self.folder, self.module = folder, _imported("wandb", "wandb")
        self.run: Any = None

    def __call__(self, round: int, columns: dict[str, float]) -> None:
        """Log what was measured after a round."""
        if self.run is None:
            self.run = self._open()
        self.run.log(measured(columns), step=round)  # a step that it has is ignored

    def _open(self):
        """Go on with the folder's run. Its id is drawn once: a name or a hash would join runs of two folders, or one
        that was deleted."""
        place = file_below(self.folder, "wandb-id")
        with reported(place):
            if not path_kind(place):
                write_file(place, secrets.token_hex(8).encode())
            identity = read_file(place).decode("ascii", "replace")
            check(re.fullmatch("[0-9a-f]{16}", identity) is not None, f"{place} holds no id of a run; remove it")
            about = {
                "id": identity,
                "name": self.folder.resolve().name,
                "config": read_json(self.folder / "config.json"),
            }
        try:
            return self.module.init(**about, resume="allow", dir=self.folder, reinit="finish_previous")
        except self.module.Error as error:  # not logged in, no network
            raise UserError(f"tracker wandb: {' '.join(str(error).split())}") from None


def _imported(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"tracker {package}: {error}; pip install {package}") from None
