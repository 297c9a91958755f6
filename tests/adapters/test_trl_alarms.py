"""Alarms while TRL trains, against those of the finished log."""

from importlib.util import find_spec

import pytest

if not find_spec("trl"):
    pytest.skip("needs trl: make test-trl", allow_module_level=True)

from rftlab.studies.analysis.diagnose.alarms import FiredAlarm, alarms_so_far, watched_metrics
from tests.support.trainer.tiny_trl import trainer_of

pytestmark = pytest.mark.filterwarnings("default")


def test_alarms_are_printed_once_and_logged_to_trackers(tmp_path, capsys):
    from trl.trainer.callbacks import TrainerCallback

    from rftlab.studies.integrations.alarms import watch_alarms

    seen = []

    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **more):
            seen.append(dict(logs))

    trainer, _ = trainer_of(tmp_path, "dr_grpo", max_steps=3)
    trainer.add_callback(Tracker())
    watch = watch_alarms(trainer)
    trainer.train()
    assert [row["rftlab/alarms"] for row in seen if "completions/mean_length" in row] == [0, 0, 0]
    for step in range(4, 20):  # responses that lose nine tenths of their length
        trainer.state.global_step = step
        trainer.log({"completions/mean_length": 300.0 if step <= 12 else 0.1})
    text = capsys.readouterr().out
    assert text.count("rftlab: alarm: short responses") == 1 and "public runs: fired on" in text
    assert seen[-1]["rftlab/alarms"] == len(watch.told) >= 1
    rows = [metrics for row in seen if (metrics := watched_metrics(row))]
    assert {one.rule.kind for one in alarms_so_far(rows) if isinstance(one, FiredAlarm)} == watch.told


def test_updates_of_a_round_are_one_row(tmp_path):
    from rftlab.studies.integrations.alarms import watch_alarms

    trainer, _ = trainer_of(tmp_path, "dr_grpo", num_iterations=2)
    watch = watch_alarms(trainer)
    for step, entropy in ((1, 1.0), (2, 3.0), (3, 5.0)):
        trainer.state.global_step = step
        trainer.log({"entropy": entropy})
    assert [(row["round"], row["entropy"]) for row in watch.rounds] == [(1, 2.0), (2, 5.0)]
