"""Print the alarms of `rftlab diagnose` while TRL or verl trains.

Each alarm is printed once, at the round where it fires, with how often it was right on public runs. The trackers get
the number of alarms so far as `rftlab/alarms`, with every log.

    trainer = GRPOTrainer(...)                          # or RftlabGRPOTrainer
    watch_alarms(trainer)
    trainer.train()

In verl the flag `+algorithm.rftlab.alarms=True` has the same effect. Written after TRL 1.16 and transformers 5.19,
which hand one dictionary of a log to all callbacks in turn, and verl 0.9.1: verl/utils/tracking.py, whose class
`Tracking` logs each step from the process that drives the run. Neither library is imported before it is used.
"""

from typing import Any

from rftlab.studies.analysis.diagnose.alarms import AlarmWatch, watched_metrics
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.values import as_truth, value_at


def watch_alarms(trainer: Any) -> AlarmWatch:
    """Watch a trainer of TRL, once it is made, for alarms. Returns the watch with its rounds and alarms."""
    from trl.trainer.callbacks import TrainerCallback

    design, _ = read_design(vars(trainer.args), "trl", trainer.args.world_size)
    watch, updates = AlarmWatch(design), design.updates_per_round or 1

    class AlarmCallback(TrainerCallback):
        """Callback that prints alarms, and adds `rftlab/alarms` to the log that later callbacks get."""

        round, logged = 0, dict[str, list[float]]()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any) -> None:
            """Check a log of training for alarms; the updates of a round are averaged, as `rftlab import` does."""
            measured = watched_metrics(logs or {})
            if logs is None or not measured or not state.is_world_process_zero:
                return
            number = -(-state.global_step // updates)
            if number != self.round:
                self.round, self.logged = number, {}
            for name, value in measured.items():
                self.logged.setdefault(name, []).append(value)
            _print_alarms(watch, number, {name: sum(values) / len(values) for name, values in self.logged.items()})
            logs["rftlab/alarms"] = len(watch.told)

    # first in the list, so that the trackers see the number that it adds
    trainer.callback_handler.callbacks.insert(0, AlarmCallback())
    return watch


def watch_tracking(tracking: Any) -> None:
    """Make a class with the methods of verl's `Tracking` print alarms and log their number, where a run asks for it."""
    start, log = tracking.__init__, tracking.log

    def start_with_watch(
        self: Any, project_name: Any, experiment_name: Any, default_backend: Any = "console", config: Any = None
    ) -> None:
        start(self, project_name, experiment_name, default_backend, config)
        asked = isinstance(config, dict) and as_truth(value_at(config, "algorithm.rftlab.alarms"))
        self.rftlab_watch = AlarmWatch(read_design(config, "verl", None)[0]) if asked else None

    def log_with_alarms(self: Any, data: dict[str, Any], step: int, backend: Any = None) -> None:
        watch, measured = getattr(self, "rftlab_watch", None), watched_metrics(data)
        if watch and measured:
            _print_alarms(watch, step, measured)
            data = {**data, "rftlab/alarms": len(watch.told)}
        log(self, data, step, backend)

    tracking.__init__, tracking.log = start_with_watch, log_with_alarms


def _print_alarms(watch: AlarmWatch, number: int, measured: dict[str, float]) -> None:
    for alarm in watch.news({"round": number, **measured}):
        print(f"rftlab: {alarm}", flush=True)
