"""The path of a GPU without one: devices, copies, waits and storage, on fake tensors whose device is `cuda`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.llm.fake_cuda.checks import MODELS

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++: a fake device is compiled"),
    pytest.mark.skipif(
        torch.version.cuda is not None, reason="needs torch without CUDA: a fake device takes its place"
    ),
    pytest.mark.xdist_group("fake_cuda"),
]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What `checks` prints."""
    library, torch_folder = tmp_path_factory.mktemp("fake_cuda") / "device.so", Path(torch.__file__).parent
    flags = ["-shared", "-fPIC", "-std=c++20", f"-I{torch_folder}/include", f"-L{torch_folder}/lib"]
    links = ["-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_folder}/lib"]
    subprocess.run(["g++", *flags, HERE / "device.cpp", *links, "-o", library], check=True, timeout=1200)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.llm.fake_cuda.checks", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_losses_wait_at_most_for_their_rewards_and_masks(said):
    """From advantages no card waits but those whose mask compares tokens; from rewards each waits once more."""
    waits = said["cards"]
    assert len(waits) >= 66 * 8
    assert {name: number for name, number in waits.items() if number not in (0, 1, 2)} == {}
    slow = {name.split()[0] for name, number in waits.items() if number and name.endswith("advantages")}
    assert slow == {"clip_cov", "kl_cov", "deepseek_v32", "m2po", "top_entropy"}
    assert all(number == 1 + (name.split()[0] in slow) for name, number in waits.items() if name.endswith("rewards"))


@pytest.mark.parametrize("name", MODELS)
def test_the_trainer_waits_once_for_a_micro_batch_and_stays_within_its_plan(said, name):
    phases = said["trainer"][name]
    parts = phases["micro-batches"]
    assert parts > 1
    assert phases["log_probs"]["waits"] == phases["log_probs"]["copies"] == 1
    assert phases["update"]["waits"] == phases["update"]["copies"] == parts
    assert phases["log_probs"]["copies back"] == parts and phases["update"]["copies back"] == 2 * parts
    assert phases["log_probs"]["wide products"] >= parts and phases["update"]["wide products"] >= 2 * parts
    assert phases["step"]["waits"] == 2 and phases["step"]["copies"] == phases["step"]["copies back"] == 0
    for phase in ("log_probs", "update"):
        assert phases[phase]["of plan"] == pytest.approx(1, abs=0.06)
    assert phases["update"]["of another plan"] < 0.94


def test_what_is_planted_is_seen(said):
    assert said["cards, an item() planted"].startswith("DataDependentOutputException")
    assert said["cards, a CPU tensor planted"].startswith("FakeTensorDeviceMismatchError")
    number, copy = (said[f"trainer, a {what} planted"]["update"] for what in ("number", "copy"))
    parts = said["trainer, a number planted"]["micro-batches"]
    assert number["waits"] == 2 * parts and copy["waits"] > 2 * parts
    assert said["trainer, a CPU tensor planted"].startswith("FakeTensorDeviceMismatchError")
