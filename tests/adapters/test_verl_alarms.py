"""The hook into verl's tracker, on a class with its methods; test_verl.py has verl's own."""

from rftlab.studies.integrations.alarms import watch_tracking


def tracking_class():
    """A class with the signatures of verl's `Tracking` that keeps what it logs."""

    class Tracking:
        def __init__(self, project_name, experiment_name, default_backend="console", config=None):
            self.kept = []

        def log(self, data, step, backend=None):
            self.kept.append((step, dict(data), backend))

    watch_tracking(Tracking)
    return Tracking


def fallen(tracking):
    """Log 20 steps whose responses lose nine tenths of their length, and a validation."""
    for step in range(1, 21):
        tracking.log({"response_length/mean": 300.0 if step <= 12 else 30.0, "critic/score/mean": 0.5}, step=step)
    tracking.log({"val-core/gsm8k/acc/mean@1": 0.4}, step=20, backend="console")
    return tracking.kept


def test_an_alarm_is_printed_once_and_counted(capsys):
    config = {"algorithm": {"rftlab": {"alarms": True}}, "data": {"train_batch_size": 32}}
    kept = fallen(tracking_class()(project_name="p", experiment_name="e", config=config))
    text = capsys.readouterr().out
    assert text.startswith("rftlab: alarm: short responses, round 15: 0.10 of its first values; public runs: fired on")
    assert len(text.splitlines()) == 1
    counts = [data["rftlab/alarms"] for _, data, _ in kept[:-1]]
    assert counts == [0] * 14 + [1] * 6 and kept[-1] == (20, {"val-core/gsm8k/acc/mean@1": 0.4}, "console")


def test_a_run_that_does_not_ask_is_left_as_it_is(capsys):
    for config in (None, {"algorithm": {}}, {"algorithm": {"rftlab": {"alarms": False}}}):
        kept = fallen(tracking_class()("p", "e", ["console"], config))
        assert all("rftlab/alarms" not in data for _, data, _ in kept)
    assert capsys.readouterr().out == ""
