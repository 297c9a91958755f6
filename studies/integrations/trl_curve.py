"""A run of TRL as a run of ours: kept when training ends, as `rftlab import` keeps logs."""

from pathlib import Path
from typing import Any

from trl.trainer.callbacks import TrainerCallback

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import folder_below, kind_of
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.readers.assemble import assemble
from rftlab.studies.readers.formats.trl_state import run_from_history
from rftlab.studies.readers.run import KnownDesign
from rftlab.studies.readers.store import PLACE, check_name, write_collection


class KeepCurve(TrainerCallback):
    """Keeps what TRL logged, and the design that its arguments say, as `imported:NAME` of a results folder.

    `rftlab compare imported:NAME`, `diagnose`, `power` and `signal` read it. Raises UserError before training where
    the name cannot be one or is taken. A run that stops earlier is kept by `rftlab import` of its last checkpoint.
    """

    def __init__(self, name: str, results: Path | str = "results"):
        self.name, self.results = check_name(name), Path(results)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Look whether the name is free."""
        if state.is_world_process_zero:
            open_store(self.results)
            folder = folder_below(self.results, PLACE, self.name)
            check(kind_of(folder) is None, f"{folder} holds another run; allowed: another name, or remove the folder")

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep the run."""
        if state.is_world_process_zero:
            raw = run_from_history(self.name, state.log_history, state.logging_steps)
            raw.config = vars(args)
            write_collection(self.results, self.name, [assemble(raw, (), KnownDesign(), args.world_size)])
