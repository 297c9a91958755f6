"""Studies of language models: runs side by side in processes, a store from which they resume, the command that does
it all."""

import io
import multiprocessing
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import rftlab.llm.rewards.verify
import rftlab.llm.training.samples
from rftlab import Estimator, Model, UserError
from rftlab.llm.rewards.load import VARIABLE
from rftlab.llm.stored import locked
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.shared.curve import Curve, make_curve
from rftlab.studies.cli.execute.train_model import show_curve
from rftlab.studies.cli.simulate import parse_run
from rftlab.studies.data.runs import finish, store
from rftlab.studies.data.runs.finish import run_llm_points, train_point
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import StudyCallbacks, collect, split
from tests.support.machine.processes import tell_variable
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

MOVES = Estimator(entropy=0.1)
"""The models of these tests solve nothing, so it is the bonus that moves them."""


def point_of(seed=0, **choices):
    usual = {"rounds": 4, "eval_every": 2, "threads": 1, "estimator": MOVES, "seed": seed}
    return RunSpec("tiny-mix97", run_of(**usual | choices))


@pytest.fixture(autouse=True)
def real_scores(one_cache, monkeypatch):
    """Processes of their own know nothing of this one's patches."""
    monkeypatch.setattr(rftlab.llm.training.samples, "score", rftlab.llm.rewards.verify.score)


def quiet(**heard):
    silent = {name: lambda *what: None for name in StudyCallbacks._fields}
    return StudyCallbacks(**silent | heard)


@pytest.fixture
def root(tmp_path):
    return store.open_store(tmp_path / "results")


def test_runs_side_by_side_are_those_of_the_trainer(root, tmp_path):
    todo, finished, advanced = [point_of(), point_of(seed=1, rollouts=2)], [], []
    told = quiet(finished=lambda point, stored: finished.append(point), advanced=advanced.append)
    run_llm_points(root, todo, 2, told)
    assert set(finished) == set(todo)
    assert sum(advanced) == pytest.approx(sum(point.cost for point in todo))
    found = collect(root, todo)
    for point in todo:
        table = train(point.run, store.point_folder(root, point)).curve  # read, not run again
        mine = found.curves.query(f"cell == '{point.cell}' and seed == {point.run.seed}")
        assert mine["tokens"].tolist() == table.tokens.tolist() and len(mine) == 3
    alone = train(todo[0].run, tmp_path / "alone")
    stored = store.read(root, todo[0])
    assert stored.curve.grad_norm[1:].tolist() == alone.curve.grad_norm[1:].tolist()
    assert min(alone.curve.grad_norm[1:]) > 0
    assert stored.curve.test_flexible.tolist() == alone.curve.test_flexible.tolist()
    assert split(root, todo, print)[1] == []


def test_a_study_s_runs_take_rewards_of_one_s_own(root, tmp_path, monkeypatch):
    """Named in this process, called in another; a run of its own beside that of the task's reward."""
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "mine.py"
    path.write_text("def length(responses):\n    return [float(len(each)) for each in responses]\n")
    monkeypatch.chdir(tmp_path)
    command = parse_run(["cell", "--level", "llm", "--reward", "mine.py:length", "--reward-weights", "0.5"])
    (named,) = command.start().rewards
    monkeypatch.chdir(root)
    assert (named.name, named.weight) == ("length", 0.5) and "rewards" in command._not_its_own(())
    plain = point_of(rounds=2)
    own = replace(plain, run=replace(plain.run, rewards=command.start().rewards))
    assert own.id != plain.id
    run_llm_points(root, [own], 1, quiet())
    assert store.read(root, own).metrics["test_reward_length"].iloc[-1] > 1 and store.read(root, plain) is None
    path.write_text(path.read_text().replace("float", "2.0 * float"))
    with pytest.raises(UserError, match="rewards length are others by now; run the command again"):
        train_point(root, own, TrainingCallbacks())
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(UserError, match="rewards length are not there; allowed: on the machine that names them"):
        train_point(root, own, TrainingCallbacks())


def test_one_that_fails_is_named_and_the_others_go_on(root):
    bad, good, remarks = point_of(seed=1), point_of(), []
    with (
        locked(store.point_folder(root, bad), remarks.append),
        pytest.raises(UserError, match=r"1 of 2 runs failed, .* seed 1: .*another process is training"),
    ):
        run_llm_points(root, [bad, good], 1, quiet(remark=remarks.append))
    (remark,) = [remark for remark in remarks if remark.startswith(bad.name)]
    assert remark.endswith("name another folder")
    assert store.read(root, good) is not None and store.read(root, bad) is None


def test_a_pair_that_cannot_run_is_told_once_and_other_pairs_go_on(root):
    remarks = []
    run = replace(point_of().run, model=Model("/nowhere/model"), task=replace(point_of().run.task, name="words"))
    todo = [RunSpec(pair, replace(run, seed=seed)) for pair in ("tiny-mix97", "tiny-mod97") for seed in range(3)]
    said = r"2 of 6 runs failed, the last: tiny-mod97 .* seed 0: model\.source = '/nowhere/model'"
    with pytest.raises(UserError, match=said):
        run_llm_points(root, todo, 1, quiet(remark=remarks.append))
    for pair, remark in zip(("tiny-mix97", "tiny-mod97"), remarks, strict=True):
        assert remark.endswith(f"; 2 more runs of {pair} would fail alike and are not started")


def test_a_killed_process_is_named_and_its_run_resumes(root):
    point = point_of(rounds=60, eval_every=20)

    def kill(cost):
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(UserError, match="its process ended with status -9"):
        run_llm_points(root, [point], 1, quiet(advanced=kill))
    assert store.read(root, point) is None
    run_llm_points(root, [point], 1, quiet())
    assert store.read(root, point).curve.round.tolist() == [0, 20, 40, 60]


@pytest.mark.parametrize(
    ("device", "has_socket", "kind"),
    [
        pytest.param(
            "cpu",
            True,
            "ForkServerProcess",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="forks under Linux alone"),
        ),
        ("cpu", False, "SpawnProcess"),
        ("cuda", True, "SpawnProcess"),
    ],
)
def test_a_process_has_the_environment_of_the_moment_however_it_starts(device, has_socket, kind, monkeypatch):
    if not has_socket:
        monkeypatch.setattr(finish.forkserver, "ensure_running", Mock(side_effect=OSError("AF_UNIX path too long")))
    for value in ("1", "2"):
        monkeypatch.setenv("RFTLAB_TOLD", value)
        connection, process = finish.start_worker(tell_variable, device, "RFTLAB_TOLD")
        assert connection.recv() == (value, kind)
        with pytest.raises(EOFError):
            connection.recv()
        process.join()
        assert process.exitcode == 0


def files_of(folder):
    return {str(path.relative_to(folder)) for path in (folder / "checkpoints").rglob("*") if path.is_file()}


MEASURED = {"checkpoints/000004/state.json", "checkpoints/000004/checksums.json"}


def test_of_a_finished_run_what_was_measured_stays_and_writes_a_damaged_table_again(root):
    point, remarks = point_of(), []
    train_point(root, point, TrainingCallbacks())
    before, folder = collect(root, [point]).curves, store.point_folder(root, point)
    assert files_of(folder) == MEASURED
    (folder / "curve.parquet").write_bytes(b"damaged")
    assert split(root, [point], remarks.append)[1] == [point] and "curve.parquet" in remarks[0]
    train_point(root, point, TrainingCallbacks(rounds=lambda done: pytest.fail("it trained again")))
    pd.testing.assert_frame_equal(collect(root, [point]).curves, before)
    assert files_of(folder) == MEASURED


def test_a_process_that_dies_before_its_run_is_declared_finished_loses_nothing(root, monkeypatch):
    point = point_of()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(store, "mark_done", Mock(side_effect=KeyboardInterrupt))
        train_point(root, point, TrainingCallbacks())
    assert store.read(root, point) is None and files_of(store.point_folder(root, point)) == MEASURED
    train_point(root, point, TrainingCallbacks(rounds=lambda done: pytest.fail("it trained again")))
    assert store.read(root, point).curve.round.tolist() == [0, 2, 4]


def test_the_weights_of_a_run_that_diverged_stay(root, monkeypatch):
    point, norms = point_of(), [1.0, 1.0, 1.0, float("nan")]
    monkeypatch.setattr("rftlab.llm.training.trainer.step", Mock(side_effect=norms))
    train_point(root, point, TrainingCallbacks())
    assert store.read(root, point).diverged_at == 3
    assert "checkpoints/000002/model.safetensors" in files_of(store.point_folder(root, point))


def test_the_printed_curve_has_both_rules_of_grading_in_80_columns():
    """Values of their own in each column, tokens as many as a long run has."""
    rows = [tuple(float(column) + 0.1 * row for column in range(len(Curve._fields))) for row in range(2)]
    curve = make_curve(rows)._replace(round=np.array([0, 2000]), tokens=np.array([0, 123456789]))
    console = Console(file=io.StringIO(), width=80)
    show_curve(console, curve)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0] == ["train", "train", "test", "test"]
    assert lines[1] == ["round", "rollouts", "tokens", "seconds", "Pass@1", "flexible", "Pass@1", "flexible"]
    last = [curve.train_pass_at_1, curve.train_flexible, curve.test_pass_at_1, curve.test_flexible]
    assert lines[3][:1] == ["2000"] and lines[3][2] == "123456789"
    assert lines[3][-4:] == [f"{values[-1]:.3f}" for values in last]
    assert lines[4] == ["round", "reward", "KL", "no", "signal"] and lines[6][1] == f"{curve.reward[-1]:.3f}"
