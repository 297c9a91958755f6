"""Killed at any moment and resumed, a run gives the same curve, bit for bit; what is damaged or of another
configuration is named."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from unittest.mock import DEFAULT, Mock

import pandas as pd
import pytest
import torch

import rftlab.llm.policy.tensors
import rftlab.llm.train
import rftlab.shared.plumbing.files
from rftlab import Advantage, Estimator, Sampling, UserError
from rftlab.llm.stored import LOCK, Busy
from rftlab.llm.train import TrainingCallbacks, train
from tests.support.estimators.vectors import ROOT
from tests.support.trainer.tiny_runs import (  # noqa: F401
    SIZES,
    Killed,
    even,
    killed_at,
    one_cache,
    run_of,
    same,
    same_weights,
)

MOVING = Estimator(entropy=0.01, entropy_target=0.5, entropy_step=0.01)
AVERAGES = {"estimator": Estimator(Advantage("moving_average")), "epochs": 2, "minibatches": 2, "warmup_steps": 20}
WITH_EVERYTHING = {
    "windows": {"replay_window": 5, "rollouts": 2, "support_rollouts": 1},
    "averages": AVERAGES,
    "replays": {"rollouts": 3, "sampling": Sampling(replayed=2)},
    "moving entropy": {"estimator": MOVING, "minibatches": 2},
}
EVERY_4 = {"rounds": 40, "eval_every": 4, "checkpoint_every": 2}


def records_of(folder):
    return pd.read_parquet(folder / "rollouts").sort_values(["round", "prompt", "rollout"]).reset_index(drop=True)


@pytest.mark.parametrize("name", WITH_EVERYTHING)
@pytest.mark.parametrize("kills", [(1,), (3, 7), (5, 5, 6)])
def test_killed_and_resumed_is_the_same_run(name, kills, tmp_path):
    run = run_of(rounds=8, eval_every=4, checkpoint_every=2, samples=2, pass_at=(2,), **WITH_EVERYTHING[name])
    whole = train(run, tmp_path / "whole")
    for rounds in kills:
        killed_at(run, tmp_path / "parts", rounds)
    rounds = []
    resumed = train(run, tmp_path / "parts", TrainingCallbacks(rounds=rounds.append))
    assert same(whole, resumed) and rounds == list(range((max(kills) - 1) // 2 * 2 + 1, 9))
    assert records_of(tmp_path / "whole").equals(records_of(tmp_path / "parts"))
    assert same_weights(tmp_path / "whole", tmp_path / "parts") and whole.curve.seconds[-1] > 0
    assert sorted(path.name for path in (tmp_path / "parts" / "checkpoints").iterdir()) == ["000006", "000008"]


@pytest.mark.parametrize(
    ("place", "name", "before"),
    [
        (rftlab.llm.policy.tensors, "save_file", 2),
        (rftlab.llm.train, "write_rollouts", 1),
        (rftlab.shared.plumbing.files.os, "rename", 1),
    ],
)
def test_killed_while_writing(place, name, before, tmp_path, monkeypatch):
    run = run_of(rounds=8)
    whole = train(run, tmp_path / "whole")
    monkeypatch.setattr(place, name, Mock(wraps=getattr(place, name), side_effect=[DEFAULT] * before + [Killed]))
    with pytest.raises(Killed):
        train(run, tmp_path / "parts")
    monkeypatch.undo()
    monkeypatch.setattr(rftlab.llm.training.samples, "score", even)
    assert same(whole, train(run, tmp_path / "parts"))
    assert records_of(tmp_path / "whole").equals(records_of(tmp_path / "parts"))
    assert not list((tmp_path / "parts").rglob(".writing-*"))


def test_with_every_checkpoint_damaged_it_starts_again(tmp_path):
    run = run_of(rounds=8)
    whole = train(run, tmp_path)
    for path in (tmp_path / "checkpoints").rglob("state.json"):
        path.unlink()
    remarks = []
    assert same(whole, train(run, tmp_path, TrainingCallbacks(remark=remarks.append))) and len(remarks) == 2


def test_after_damage_new_checkpoints_are_kept(tmp_path):
    """A damaged checkpoint of a later round must not count as the newest one."""
    run = run_of(rounds=8, checkpoint_every=2)
    whole = train(run, tmp_path)
    for path in (tmp_path / "checkpoints").rglob("model.safetensors"):
        path.write_bytes(path.read_bytes()[:-3])
    killed_at(run, tmp_path, 5)
    remarks, rounds = [], []
    assert same(whole, train(run, tmp_path, TrainingCallbacks(remark=remarks.append, rounds=rounds.append)))
    assert remarks == [] and rounds == [5, 6, 7, 8]


def test_as_many_checkpoints_stay_as_are_asked_for_whatever_a_run_had_before(tmp_path):
    run = run_of(rounds=8, checkpoint_every=2)
    train(replace(run, checkpoints_kept=1), tmp_path / "one")
    names = [path.name for path in sorted((tmp_path / "one" / "checkpoints").iterdir())]
    killed_at(replace(run, checkpoints_kept=3), tmp_path / "more", 7)
    assert names == ["000008"] and len(list((tmp_path / "more" / "checkpoints").iterdir())) == 3
    train(run, tmp_path / "more")
    assert len(list((tmp_path / "more" / "checkpoints").iterdir())) == 2


def test_another_configuration_is_refused(tmp_path):
    run = run_of(rounds=4)
    train(run, tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for change, message in [
        ({"rollouts": 2}, "design.rollouts = 4 there, 2 here"),
        ({"seed": 3}, "seed = 0 there, 3 here"),
        ({"estimator": Estimator(Advantage("none"))}, "advantage.baseline = 'group_mean' there, 'none' here"),
    ]:
        with pytest.raises(UserError, match=f"{re.escape(message)}; name another folder$"):
            train(run_of(rounds=4, **change), tmp_path)
    assert before == sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))


def test_other_data_and_another_order_of_prompts_are_refused(tmp_path, monkeypatch):
    run = run_of(rounds=4)
    train(run, tmp_path)
    real = rftlab.llm.train.load_data
    monkeypatch.setattr(rftlab.llm.train, "load_data", lambda *a: real(*a)._replace(sha256="other"))
    with pytest.raises(UserError, match="was trained on other data"):
        train(run, tmp_path)

    def reordered(*arguments):
        data = real(*arguments)
        return data._replace(train=data.train.take(list(range(30))[::-1]))

    monkeypatch.setattr(rftlab.llm.train, "load_data", reordered)
    with pytest.raises(UserError, match="other prompts come next than when it was written"):
        train(run, tmp_path)


@pytest.mark.parametrize(
    ("more", "refused"),
    [({}, True), ({"estimator": Estimator(), "rank": 4}, True), ({"estimator": Estimator()}, False)],
)
def test_another_base_model_is_refused_where_a_run_still_reads_it(more, refused, tmp_path, monkeypatch):
    """As a reference or under adapters; a run that reads it no more goes on from the checkpoint alone."""
    run = run_of(rounds=8, **more)
    killed_at(run, tmp_path, 5)
    real = rftlab.llm.train.load_model

    def moved(*arguments):
        model, codec = real(*arguments)
        with torch.no_grad():
            model.get_output_embeddings().weight[3, 0] += 1e-3
        return model, codec

    monkeypatch.setattr(rftlab.llm.train, "load_model", moved)
    if not refused:
        train(run, tmp_path)
        return
    with pytest.raises(UserError, match="checkpoints/000004 was trained from another base model than model"):
        train(run, tmp_path)
    monkeypatch.setattr(rftlab.llm.train, "load_model", real)
    assert train(run, tmp_path).curve.round[-1] == 8


@pytest.mark.parametrize(
    "place",
    ["training.checkpoint.write_folder", "train.write_rollouts", "train.write_file", "policy.tensors.save_file"],
)
def test_a_full_disk_is_one_line_and_loses_nothing(place, tmp_path, monkeypatch):
    run = run_of(rounds=8)
    whole = train(run, tmp_path / "whole")
    killed_at(run, tmp_path / "parts", 5)

    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(f"rftlab.llm.{place}", Mock(side_effect=full))
    with pytest.raises(UserError, match="cannot be written: the disk is full; "):
        train(run, tmp_path / "parts")
    monkeypatch.undo()
    monkeypatch.setattr(rftlab.llm.training.samples, "score", even)
    assert same(whole, train(run, tmp_path / "parts"))


def test_an_error_of_the_library_that_writes_tensors_is_one_line(tmp_path, monkeypatch):
    """safetensors raises its own exception where writing fails, here a real one."""
    real = rftlab.llm.policy.tensors.save_file
    monkeypatch.setattr(rftlab.llm.policy.tensors, "save_file", lambda tensors, path: real(tensors, path / "no folder"))
    with pytest.raises(UserError, match=r"checkpoints/000004 cannot be written: .*; checkpoints that are there stay"):
        train(run_of(rounds=4), tmp_path)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "folder").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written: "):
        train(run_of(), tmp_path / "folder")


def test_nothing_is_pickled_and_others_may_read_what_the_umask_lets_them_read(tmp_path):
    before = os.umask(0o027)
    try:
        train(run_of(rounds=4), tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != LOCK]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    assert (tmp_path / "checkpoints" / "000004").stat().st_mode & 0o777 == 0o750
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors", ".parquet"}


def test_a_damaged_base_model_is_trained_again(model_cache, tmp_path):
    run = replace(run_of(rounds=4), task=replace(run_of().task, sizes=replace(SIZES, pretrain=61)))
    whole = train(run, tmp_path / "a")
    victim = max((model_cache / "rftlab" / "tiny").rglob("model.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    victim.write_bytes(victim.read_bytes()[:-3])
    assert same(whole, train(run, tmp_path / "b"))


PROGRAM = """
import sys
from pathlib import Path
import torch
import rftlab.llm.training.samples
from rftlab.llm.train import TrainingCallbacks, train
from tests.llm.training.test_checkpoint import EVERY_4, even, run_of
torch.set_num_threads(1)
rftlab.llm.training.samples.score = even
print("ready", flush=True)
train(run_of(**EVERY_4), Path(sys.argv[1]), TrainingCallbacks(rounds=lambda done: print(done, flush=True)))
"""


def training(folder):
    """A process that has trained a round."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout.readline() == "ready\n"
    child.stdout.readline()
    return child


def kill(child):
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def test_a_killed_process_goes_on_where_it_was(tmp_path):
    """kill -9 at moments that nothing but the clock decides, then to the end; the curve is that of a run that was
    left alone."""
    run = run_of(**EVERY_4)
    whole = train(run, tmp_path / "whole")
    for wait in (0.05, 0.23):
        child = training(tmp_path / "parts")
        time.sleep(wait)
        kill(child)
    remarks, rounds = [], []
    resumed = train(run, tmp_path / "parts", TrainingCallbacks(remark=remarks.append, rounds=rounds.append))
    assert same(whole, resumed) and remarks == [] and rounds[-1:] in ([], [40])
    assert records_of(tmp_path / "whole").equals(records_of(tmp_path / "parts"))


def test_a_second_process_is_refused_and_touches_nothing(tmp_path):
    child = training(tmp_path)
    child.send_signal(signal.SIGSTOP)  # in the middle of its work
    os.waitpid(child.pid, os.WUNTRACED)
    (tmp_path / ".writing-now").write_text("half of a file that the first process writes")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    try:
        with pytest.raises(Busy, match="another process is training here"):
            train(run_of(**EVERY_4), tmp_path)
        assert before == sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    finally:
        kill(child)
    train(run_of(**EVERY_4), tmp_path)
    assert not (tmp_path / ".writing-now").exists()
