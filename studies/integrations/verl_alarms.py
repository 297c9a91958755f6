"""The alarms of `rftlab diagnose` while verl trains, in runs with `+algorithm.rftlab.alarms=True`.

Each alarm is printed once, at the step where it fires, with how often it was right on public runs. The number of alarms
so far goes with every step to the trackers of `trainer.logger`, as `rftlab/alarms`. Read in verl 0.9.1:
verl/utils/tracking.py, whose class `Tracking` logs each step from the process that drives the run.
"""

from typing import Any

from rftlab.studies.analysis.diagnose.alarms import AlarmWatch, watched_metrics
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.values import as_truth, value_at


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
            for alarm in watch.news({"round": step, **measured}):
                print(f"rftlab: {alarm}", flush=True)
            data = {**data, "rftlab/alarms": len(watch.told)}
        log(self, data, step, backend)

    tracking.__init__, tracking.log = start_with_watch, log_with_alarms
