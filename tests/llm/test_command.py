"""`rftlab train`, and what a run tells while it goes on."""

import json
import sys
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from rftlab import UserError, start_at
from rftlab.llm.config import model_config
from rftlab.llm.tracking import ROUNDS, make_tracker, read_rounds
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.studies.analysis.diagnose.alarms import AlarmWatch
from rftlab.studies.cli.common import LLMFlags, PlanFlags, llm_flags
from rftlab.studies.cli.execute import status
from rftlab.studies.cli.execute.plan import fill_memory
from rftlab.studies.cli.execute.status import follow_rounds
from rftlab.studies.cli.execute.train_model import sample_lines, train_model
from rftlab.studies.cli.trained import Train, parse_train
from rftlab.studies.data.runs.progress import live_line
from rftlab.studies.readers.run import KnownDesign
from tests.support.estimators.vectors import ROOT
from tests.support.machine.here import rftlab
from tests.support.trainer.tiny_runs import one_cache, run_of, same  # noqa: F401


def execute(run, folder, tracker):
    console = Console(file=StringIO(), width=200)
    flags = {"design": run.design, "seed": run.seed, "flags": LLMFlags(**llm_flags(run))}
    assert Train(folder=folder, tracker=tracker, quiet=True, **flags).execute(console) == 0
    return console.file.getvalue()


@pytest.fixture
def opened(monkeypatch):
    """The round from which on a writer of TensorBoard was opened, and each round with its Pass@1 that it got."""
    calls = []

    def add(name, value, step):
        calls.extend([(step, value)] if name == "test_pass_at_1" else [])

    def writer(log_dir, purge_step):
        calls.append(purge_step)
        return SimpleNamespace(add_scalar=add, flush=lambda: None)

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    return calls


def rounds_of(opened):
    return [call if isinstance(call, int) else call[0] for call in opened]


def test_an_evaluation_tells_the_columns_of_curve_and_metrics(tmp_path):
    told, run = [], run_of(rounds=8, eval_every=4)
    outcome = train(run, tmp_path / "told", TrainingCallbacks(evaluated=lambda *given: told.append(given)))
    assert [round for round, _ in told] == [0, 4, 8] and same(outcome, train(run, tmp_path / "alone"))
    for row, (_, columns) in enumerate(told):
        expected = {name: values[row] for name, values in outcome.curve._asdict().items()}
        expected |= dict(outcome.metrics.iloc[row])
        assert columns.keys() == expected.keys()
        np.testing.assert_array_equal([columns[name] for name in expected], list(expected.values()))


def test_the_command_tracks_and_a_run_goes_on_with_another_tracker(opened, tmp_path):
    execute(run_of(rounds=4), tmp_path / "none", "none")
    assert opened == []
    printed = execute(run_of(rounds=4), tmp_path / "run", "tensorboard")
    assert rounds_of(opened) == [0, 0, 4] and "test Pass@1" in printed
    assert (tmp_path / "run" / "config.json").read_bytes() == (tmp_path / "none" / "config.json").read_bytes()
    execute(run_of(rounds=4), tmp_path / "run", "none")
    opened.clear()
    execute(run_of(rounds=4), tmp_path / "run", "tensorboard")
    assert opened == []


def test_a_killed_run_purges_what_it_evaluates_again(opened, tmp_path):
    """Killed after the evaluation of round 8 and before its checkpoint: round 5 is trained again."""
    run, track = run_of(rounds=12, eval_every=4), make_tracker("tensorboard", tmp_path)

    def die(round, columns):
        track(round, columns)
        if round == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path, TrainingCallbacks(evaluated=die))
    execute(run, tmp_path, "tensorboard")
    assert rounds_of(opened) == [0, 0, 4, 8, 5, 8, 12]
    assert opened[4] == 5 and opened[3] == opened[5]


def test_trackers_are_off_by_default_and_a_switch_is_named_by_both_of_its_flags():
    assert parse_train([]).tracker == "none" and parse_train(["--tracker", "wandb"]).tracker == "wandb"
    for flag in ("--compute.sleep", "--compute.no-sleep", "--compute.no_sleep"):
        assert parse_train(["--fill", flag]).named == ("sleep",)


def test_samples_of_rounds_and_lines_of_a_followed_run(tmp_path):
    """Texts of models are written out, and a line of a damaged file has no say."""
    done = []
    heard = TrainingCallbacks(measured=lambda each, _: done.append(each))
    train(run_of(rounds=2, eval_every=2), tmp_path / "run", heard)
    texts = ["\x1b[31mred"] * len(done[0].samples.texts)
    lines = sample_lines(done[0]._replace(samples=done[0].samples._replace(texts=texts)))
    rewards = done[0].rewards[done[0].samples.trained]
    assert f"round 1, reward {rewards.max():+.3f}: " in lines[0] and not any("\x1b" in line for line in lines)
    console = Console(file=StringIO(), width=200)
    with (tmp_path / "run" / ROUNDS).open("a") as file:
        file.write('{"round": 3, "reward": "[red]x", "entropy": 0.5}\n')
    follow_rounds(console, tmp_path)  # nothing runs, so it ends at once, and what was there before is not told
    assert console.file.getvalue() == ""
    assert live_line(read_rounds(tmp_path / "run")[2]) == "entropy 0.50"
    with (tmp_path / "run" / ROUNDS).open("a") as file:
        file.write('{"round": 4, "entropy": NaN, "grad_norm": ' + "9" * 400 + ', "reward": [1]}\n')
    assert read_rounds(tmp_path / "run")[3] == {"round": 4}
    assert live_line(read_rounds(tmp_path / "run")[0]).startswith("reward 0.")


def test_a_followed_run_is_told_round_by_round(tmp_path, monkeypatch):
    console, folder = Console(file=StringIO(), width=200), tmp_path / "run"
    train(run_of(rounds=4), folder)
    rounds = (folder / ROUNDS).read_bytes().split(b"\n")
    (folder / ROUNDS).write_bytes(rounds[0] + b"\n")
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        (folder / ROUNDS).write_bytes(b"\n".join(rounds[: 1 + len(pauses)]) + b"\n")

    monkeypatch.setattr(status, "_is_running", lambda _: len(pauses) < 3)
    monkeypatch.setattr(status.time, "sleep", pause)
    follow_rounds(console, tmp_path)
    told = console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in told] == ["run: round 2", "run: round 3", "run: round 4"]


def test_an_alarm_is_told_once_and_stops_the_run_where_that_is_asked(tmp_path, monkeypatch):
    lengths = [10.0] * 20 + [2.0] * 10
    watch = AlarmWatch(KnownDesign())
    news = [watch.news({"round": i, "response_length": length}) for i, length in enumerate(lengths, start=1)]
    (at,) = (i for i, lines in enumerate(news) if lines)
    assert at >= 20 and len(news[at]) == 1 and news[at][0].startswith("alarm: short responses, round ")
    rows = [json.dumps({"round": i, "response_length": length}) for i, length in enumerate(lengths, start=1)]
    (tmp_path / ROUNDS).write_text("\n".join(rows) + "\n")
    later = AlarmWatch(KnownDesign(), read_rounds(tmp_path))  # the run goes on, and what was told is not told again
    assert later.told == watch.told and later.news({"round": 31, "response_length": 2.0}) == []
    assert len(later.rounds) == 31 and later.news({"round": 5, "response_length": 9.0}) == [] and len(later.rounds) == 5

    monkeypatch.setattr(AlarmWatch, "news", lambda _, measured: ["alarm: x, round 3: why"] * (measured["round"] == 3))
    console = Console(file=StringIO(), width=200)
    with pytest.raises(UserError, match="stopped after round 3 by alarm: x"):
        train_model(console, run_of(), tmp_path / "run", "none", True, {}, stop_on_alarm=True)
    assert (tmp_path / "run" / "checkpoints" / "000003").is_dir() and "round 3: why" in console.file.getvalue()
    train_model(console, run_of(), tmp_path / "run", "none", True, {})
    assert [row["round"] for row in read_rounds(tmp_path / "run")] == list(range(1, 9))


@pytest.mark.parametrize(
    ("flag", "good", "wrong"),
    [("--top-p", "0.9", ("0", "1.5")), ("--top-k", "5", ("-1",)), ("--min-p", "0.1", ("2",))],
)
def test_rollouts_from_a_part_of_the_tokens_need_a_correction(flag, good, wrong):
    told, corrected = ("train", "--pair", "tiny-mod97", "--dry-run"), ("--estimator.correction.kind", "ratio")
    status, said = rftlab(*told, flag, good)
    assert status == 2 and "of another distribution than the policy" in said and len(said.splitlines()) == 1
    assert rftlab(*told, flag, good, *corrected)[0] == 0
    for value in wrong:
        status, said = rftlab(*told, flag, value, *corrected)
        assert status == 2 and f"{flag[2:].replace('-', '_')} = {value}" in said and said.count("\n") == 1


def test_a_plan_says_what_a_download_would_meet():
    said = rftlab("train", "--pair", "llama-gsm8k", "--dry-run", "--gpu", "H100", "--checkpoints-kept", "1")[1]
    assert "accept the terms at https://huggingface.co/meta-llama" in said and "driver 580 or newer" in said
    assert "up to 29.7 GB of disk" in said
    here = ("--compute.engine", "hf", "--compute.device", "cpu")
    said = rftlab("train", "--pair", "qwen-gsm8k", "--dry-run", *here)[1]
    assert "gated" not in said and "driver" not in said


def test_a_run_fills_a_gpu_but_for_the_settings_that_are_named():
    told = ("train", "--pair", "qwen-gsm8k", "--dry-run", "--fill", "--gpu", "A100-40")

    def line(*flags):
        (said,) = (line for line in rftlab(*told, *flags)[1].splitlines() if line.startswith("fill: "))
        return said

    assert all(flag in line() for flag in ("no-sleep", "no-gradient-checkpointing", "sample-rows 1024"))
    kept = line("--compute.sleep", "--compute.gradient-checkpointing", "--compute.sample-rows", "256")
    assert not any(flag in kept for flag in ("sleep", "checkpointing", "sample-rows"))
    spelled = line("--compute.gradient_checkpointing", "--compute.sample_rows=256")
    assert "no-sleep" in spelled and not any(flag in spelled for flag in ("checkpointing", "sample-rows"))
    assert "(0.6" in line() and "peak" in line()


def test_a_folder_keeps_the_settings_that_filled_a_gpu(tmp_path):
    run = start_at("qwen-gsm8k", "llm")
    stored = replace(run, compute=replace(run.compute, sample_rows=48, sleep=False))
    (tmp_path / "config.json").write_text(json.dumps(model_config(stored)))
    assert fill_memory(Console(file=StringIO()), run, (), PlanFlags(), tmp_path) == stored


def test_without_a_gpu_there_is_nothing_to_fill(monkeypatch):
    monkeypatch.setattr("rftlab.studies.cli.execute.plan.device_at_hand", lambda device: None)
    for flags, message in (
        ((), " with compute.device = cpu; allowed: --compute.device cuda"),
        (("--pair", "qwen-gsm8k"), ": no GPU is at hand; allowed: a machine with one, or --dry-run with --gpu NAME"),
    ):
        assert rftlab("train", "--dry-run", "--fill", *flags) == (2, f"rftlab: fill{message}\n")


def test_the_trainer_page_shows_plans_as_they_are_printed():
    said = rftlab("train", "--pair", "qwen-gsm8k", "--dry-run", "--gpu", "A100-40")[1]
    lines = [line.strip() for line in (ROOT / "docs" / "llm.md").read_text().splitlines()]
    shown = [line for line in lines if line.startswith(("fits: peak", "fastest settings that fit"))]
    assert len(shown) == 2 and all(line in said for line in shown)
