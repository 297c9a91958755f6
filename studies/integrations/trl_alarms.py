"""The alarms of `rftlab diagnose` while TRL trains.

    trainer = GRPOTrainer(...)                          # or RftlabGRPOTrainer
    watch_alarms(trainer)
    trainer.train()

Each alarm is printed once, at the round where it fires, with how often it was right on public runs. Every log to the
trackers in use (`report_to`) has their number as `rftlab/alarms`. Read in TRL 1.16 and transformers 5.19, which hand
one dictionary of a log to all callbacks in turn.
"""

from typing import Any

from trl.trainer.callbacks import TrainerCallback

from rftlab.studies.analysis.diagnose.alarms import AlarmWatch, watched_metrics
from rftlab.studies.readers.designs import read_design


class AlarmCallback(TrainerCallback):
    """Prints alarms, and adds `rftlab/alarms` to what is logged after it in the list of callbacks."""

    def __init__(self, args: Any):
        design, _ = read_design(vars(args), "trl", args.world_size)
        self.watch, self.updates = AlarmWatch(design), design.updates_per_round or 1
        self.round, self.logged = 0, dict[str, list[float]]()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any) -> None:
        """Take a log of training; the updates of a round are averaged, as `rftlab import` does."""
        measured = watched_metrics(logs or {})
        if logs is None or not measured or not state.is_world_process_zero:
            return
        number = -(-state.global_step // self.updates)
        if number != self.round:
            self.round, self.logged = number, {}
        for name, value in measured.items():
            self.logged.setdefault(name, []).append(value)
        means = {name: sum(values) / len(values) for name, values in self.logged.items()}
        for alarm in self.watch.news({"round": number, **means}):
            print(f"rftlab: {alarm}", flush=True)
        logs["rftlab/alarms"] = len(self.watch.told)


def watch_alarms(trainer: Any) -> AlarmCallback:
    """Watch a trainer of TRL; call it after the trainer is made. The callback comes first, so that the trackers see
    what it adds."""
    callback = AlarmCallback(trainer.args)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback
