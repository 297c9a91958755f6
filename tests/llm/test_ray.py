"""Runs on a real Ray cluster of two workers: the curves of the local runners, also where a worker is killed in the
middle; bad input; Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from rftlab.llm.config import Model
from rftlab.llm.lock import LOCK
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import CACHE_FOLDER
from rftlab.studies.data.runs import ray_runner, store
from rftlab.studies.data.runs.llm_runner import run_llm_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.ray_runner import Unshared, check_ray, needs, run_on_ray
from rftlab.studies.data.runs.runner import StudyCallbacks, collect, run_points
from tests.support.estimators.vectors import ROOT
from tests.support.machine.here import rftlab
from tests.support.machine.processes import hear_interrupts
from tests.support.stores import point_of as simulated
from tests.support.trainer.tiny_runs import run_of

pytest.importorskip("ray", reason="needs Ray: pip install '.[ray]' in rftlab's folder")

MOVES = Estimator(entropy=0.1)
"""The models of these tests solve nothing, so it is the bonus that moves them."""


def trained(seed=0, rounds=4, **more):
    return RunSpec(
        "tiny-mix97", run_of(rounds=rounds, eval_every=rounds // 2, threads=1, estimator=MOVES, seed=seed, **more)
    )


SIMS = [simulated(seed, rollouts=4) for seed in range(3)]
LONG = replace(trained(), run=run_of(rounds=120, eval_every=120, checkpoint_every=10, threads=1, estimator=MOVES))
MODELS = [trained(seed=1), LONG]
BAD = replace(
    trained(), run=replace(trained().run, model=Model("/nowhere/model"), task=replace(trained().run.task, name="words"))
)


class Spread(NamedTuple):
    """What came of one call with all of these runs, of which one cannot run and another's worker was killed."""

    root: Path
    finished: list
    advanced: list
    remarks: list
    error: UserError
    killed: list


def process_with(path):
    """The process that has a file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(path):
                return int(link.parts[2])
        except OSError:  # it went meanwhile
            continue
    return None


def kill_in_the_middle(root, killed):
    """Kill -9 the process that trains LONG once it has a checkpoint; keep its id, and whether the run was
    unfinished."""
    folder, deadline = store.point_folder(root, LONG).resolve(), time.monotonic() + 400
    while not list(folder.glob("checkpoints/0*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process = process_with(folder / LOCK)
    if process:
        os.kill(process, signal.SIGKILL)
        killed += [process, (folder / "done.json").exists()]


@pytest.fixture(scope="module")
def spread(tmp_path_factory, model_cache):
    root, killed = store.open_store(tmp_path_factory.mktemp("ray") / "results"), []
    finished, advanced, remarks = [], [], []
    report = StudyCallbacks(
        lambda point, stored: finished.append((point, stored)), advanced.append, lambda text: None, remarks.append
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(model_cache))
        patch.setenv("NUMBA_CACHE_DIR", str(CACHE_FOLDER.parent))
        patch.setenv("RAY_worker_niceness", "0")  # by default its workers wait for everything else on the machine
        patch.delenv("RAY_ADDRESS", raising=False)
        killer = threading.Thread(target=kill_in_the_middle, args=(root, killed), daemon=True)
        killer.start()
        with pytest.raises(UserError) as caught:
            run_on_ray(root, [*SIMS, *MODELS, BAD], 2, report)
        killer.join()
    return Spread(root, finished, advanced, remarks, caught.value, killed)


@pytest.fixture(scope="module")
def local(tmp_path_factory, model_cache):
    """The same runs by the local runners."""
    root, quiet = (
        store.open_store(tmp_path_factory.mktemp("local") / "results"),
        StudyCallbacks(*[lambda *what: None] * 4),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(model_cache))
        run_points(root, SIMS, 1, quiet)
        run_llm_points(root, MODELS, 2, quiet)
    return root


def curves(root, points):
    """Everything measured, times and memory aside."""
    table = collect(root, points).curves
    return table.drop(columns=[name for name in table if name.startswith(("seconds", "peak"))])


@pytest.mark.parametrize("points", [SIMS, MODELS[:1]], ids=["simulations", "models"])
def test_curves_are_those_of_the_local_runner_bit_by_bit(spread, local, points):
    pd.testing.assert_frame_equal(curves(spread.root, points), curves(local, points), check_exact=True)


def test_a_run_whose_worker_is_killed_in_the_middle_is_done_again_and_ends_with_the_same_curve(spread, local):
    process, was_finished = spread.killed
    assert not was_finished and process != os.getpid() and not Path(f"/proc/{process}").exists()
    pd.testing.assert_frame_equal(curves(spread.root, [LONG]), curves(local, [LONG]), check_exact=True)


def test_bad_input_is_told_once_and_not_tried_again(spread):
    assert [
        remark.startswith(BAD.name) for remark in spread.remarks if "model.source = '/nowhere/model'" in remark
    ] == [True]
    assert str(spread.error).startswith("1 of 6 runs failed, the last: tiny-mix97")


def test_the_driver_hears_of_every_finished_run(spread):
    assert {point for point, _ in spread.finished} == {*SIMS, *MODELS} and len(spread.finished) == 5
    assert sum(spread.advanced) == pytest.approx(sum(point.cost for point in [*SIMS, *MODELS]))
    for point, stored in spread.finished:
        assert stored.curve.tokens.tolist() == store.read(spread.root, point).curve.tokens.tolist()
    assert list((spread.root / store.SCRATCH).iterdir()) == []


def test_what_a_run_keeps_busy():
    def asked(**compute):
        run = trained().run
        return tuple(needs(replace(trained(), run=replace(run, compute=replace(run.compute, **compute)))).values())

    assert (asked(), asked(threads=0), asked(threads=3)) == ((1, 0), (1, 0), (3, 0))
    assert asked(device="cuda") == asked(device="cuda", threads=4) == (0, 1)
    assert tuple(needs(SIMS[0]).values()) == (1, 0)


def test_a_run_for_which_no_machine_has_room_is_refused_and_not_waited_for():
    wide = replace(LONG, run=replace(LONG.run, compute=replace(LONG.run.compute, threads=3)))
    gpu = replace(LONG, run=replace(LONG.run, compute=replace(LONG.run.compute, device="cuda")))
    ray_runner._check_room([*SIMS, wide, gpu], [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}])
    for point, words in ((wide, "3 threads"), (gpu, "a GPU")):
        with pytest.raises(UserError, match=f"seed 0 asks for {words}; no machine"):
            ray_runner._check_room([*SIMS, point], [{"CPU": 2.0}, {"memory": 1.0}])


def test_a_machine_without_the_results_folder_or_with_another_rftlab_says_so(tmp_path):
    root = store.open_store(tmp_path / "results")
    with ray_runner._marked(root) as mark:
        other_version = ray_runner._work(mark, SIMS[0], "8x4-paper_text-s0-0123456789ab").outcome
        assert isinstance(ray_runner._work(mark, SIMS[0], SIMS[0].id).outcome, store.Stored)
    unseen = ray_runner._work(mark, SIMS[0], SIMS[0].id).outcome
    assert isinstance(other_version, Unshared) and "another version of rftlab" in str(other_version)
    assert isinstance(unseen, Unshared)
    assert f"does not see {root}" in str(unseen)
    assert "all machines share" in str(unseen)


def test_without_ray_it_is_one_line_that_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = "rftlab: engine ray needs Ray: pip install '.[ray]' in rftlab's folder\n"
    assert rftlab("reproduce", "--engine", "ray", "--results", tmp_path) == (2, said)


def test_a_cluster_that_does_not_answer_is_one_line_and_not_waited_for(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=f"no cluster answers at RAY_ADDRESS = {address}: Connection refused"):
        check_ray(SIMS)


def with_root(**more):
    return os.environ | {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"} | more


def processes_with(word):
    """Processes that were started with a word in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(path.parts[2])] if word.encode() in path.read_bytes() else []
        except OSError:  # it went meanwhile, or is somebody else's
            continue
    return found


def test_ctrl_c_is_one_line_keeps_finished_runs_and_leaves_nothing_running(tmp_path):
    flags = "--engine ray --threads 2 --pairs llama-gsm8k --seeds 3 --quiet"
    command = f"reproduce {flags} --results {tmp_path / 'results'}".split()
    environment = with_root(RFTLAB_TEST=str(tmp_path))
    environment.pop("RAY_ADDRESS", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen(
        [sys.executable, "-m", "rftlab.studies.cli.main", *command],
        cwd=tmp_path,
        env=environment,
        preexec_fn=hear_interrupts,
        **pipes,
    )
    while not list(tmp_path.glob("results/sim/*/*/done.json")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    printed, errors = process.communicate(timeout=120)
    assert errors == "rftlab: interrupted; finished runs are kept, run the same command again to go on\n"
    assert (process.returncode, printed) == (130, "")
    deadline = time.monotonic() + 30
    while processes_with(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(str(tmp_path)) == []
