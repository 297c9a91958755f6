"""Trackers, with stand-ins for their packages: what they are told, and that a resumed run tells nothing twice."""

import json
import math
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rftlab.llm.tracking import make_tracker
from rftlab.shared.plumbing.errors import UserError

COLUMNS = {"seed": 3, "round": 4, "reward": 0.5, "kl": math.nan, "test_pass_at_1": 0.25}
DRAWN = {"reward": 0.5, "test_pass_at_1": 0.25}


@pytest.fixture
def events(monkeypatch):
    """Calls of a stand-in for TensorBoard's writer."""
    calls = []

    def writer(log_dir, purge_step):
        calls.append(("open", log_dir, purge_step))
        return SimpleNamespace(add_scalar=lambda *scalar: calls.append(scalar), flush=lambda: calls.append("flush"))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    return calls


class Wandb:
    """A stand-in for wandb: runs by id, each with its columns by step. As the real one it ignores a step that lies
    behind."""

    class Error(Exception):
        pass

    def __init__(self):
        self.runs, self.asked = {}, []

    def init(self, **about):
        self.asked.append(about)
        steps = self.runs.setdefault(about["id"], {})
        return SimpleNamespace(
            log=lambda columns, step: steps.setdefault(step, columns) if step >= max(steps, default=0) else None
        )


@pytest.fixture
def wandb(monkeypatch):
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def folder_at(place):
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"seed": 3}))
    return place


def test_tensorboard_gets_what_was_measured_and_keeps_it(events, tmp_path):
    track = make_tracker("tensorboard", tmp_path)
    assert events == []
    track(4, COLUMNS)
    track(8, COLUMNS)
    scalars = [[(name, value, step) for name, value in DRAWN.items()] for step in (4, 8)]
    assert events == [("open", tmp_path / "tensorboard", 4), *scalars[0], "flush", *scalars[1], "flush"]


def test_wandb_has_one_run_for_a_folder_and_one_point_for_a_round(wandb, tmp_path):
    folder = folder_at(tmp_path / "mine")
    first = make_tracker("wandb", folder)
    assert wandb.asked == []
    for done in (0, 4, 8):
        first(done, COLUMNS)
    resumed = make_tracker("wandb", folder)
    for done in (8, 12):
        resumed(done, COLUMNS | {"reward": 0.75})
    about, again = wandb.asked
    assert about == again
    assert (about["name"], about["config"], about["resume"], about["dir"]) == ("mine", {"seed": 3}, "allow", folder)
    assert wandb.runs == {about["id"]: {0: DRAWN, 4: DRAWN, 8: DRAWN, 12: DRAWN | {"reward": 0.75}}}


def test_folders_of_one_name_are_two_runs_of_wandb(wandb, tmp_path):
    """Also where the first was removed, as one does with results/train."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        make_tracker("wandb", folder_at(tmp_path / place / "train"))(0, COLUMNS)
    assert len(wandb.runs) == 2


def test_a_refusal_of_wandb_is_one_line(wandb, tmp_path, monkeypatch):
    refusal = Wandb.Error("No API key configured.\nUse `wandb login` to log in.")
    monkeypatch.setattr(wandb, "init", Mock(side_effect=refusal))
    with pytest.raises(UserError, match=r"^tracker wandb: No API key configured. Use `wandb login` to log in.$"):
        make_tracker("wandb", folder_at(tmp_path / "mine"))(0, COLUMNS)


@pytest.mark.parametrize(("kind", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_an_absent_package_is_named_before_anything_is_done(kind, module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"^tracker {kind}: .*; pip install {kind}$"):
        make_tracker(kind, tmp_path)
    assert not list(tmp_path.iterdir())
