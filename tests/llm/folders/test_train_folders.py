"""Folders of `rftlab train` are seen by `status`, `compare` and `report`, wherever they lie."""

from io import StringIO

import pytest
import torch
from rich.console import Console

from rftlab import UserError, train
from rftlab.llm.stored import locked
from rftlab.shared.plumbing.callbacks import noop
from rftlab.studies.cli.commands import parse
from rftlab.studies.data.runs import store
from tests.support.trainer.own_rewards import digits
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of  # noqa: F401


@pytest.fixture(scope="module")
def results(tmp_path_factory, model_cache):
    """A folder with a finished run, one with a reward of its own that was killed, and something else."""
    place = tmp_path_factory.mktemp("results")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(model_cache))
        train(run_of(rounds=4, eval_every=2), place / "short")
        killed_at(run_of(rounds=8, rollouts=2), place / "long", 5, reward=digits)
    (place / "notes").mkdir()
    return place


def printed(*arguments):
    console = Console(file=StringIO(), width=160)
    assert parse([str(argument) for argument in arguments]).execute(console) == 0
    return console.file.getvalue()


def rows(text):
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}


def test_status_shows_them_and_writes_nothing(results):
    before = sorted(results.rglob("*"))
    found = rows(printed("status", "--results", results))
    assert found["short"] == ["done", "4", "4", "tiny", "mix97"]
    assert found["long"] == ["interrupted", "4", "8", "tiny", "mix97", "digits"] and "notes" not in found
    with locked(results / "long", noop):
        assert rows(printed("status", "--results", results))["long"][0] == "running"
    assert rows(printed("status", "--results", results / "short"))[str(results / "short")][0] == "done"
    assert sorted(results.rglob("*")) == before


def test_a_damaged_one_is_named(results, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text('{"level": "llm", "design": {"rounds": 3}}')
    assert rows(printed("status", "--results", tmp_path))["bad"] == ["damaged"]
    (tmp_path / "bad" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is not a results folder of rftlab"):
        printed("status", "--results", tmp_path)


def test_reports_and_comparisons_take_them_where_they_lie(results, tmp_path):
    text = printed("report", f"train:{results / 'short'}", "--results", tmp_path, "--quiet")
    (page,) = tmp_path.rglob("report.html")
    assert str(page) in text.replace("\n", "") and "short" in page.read_text()
    printed("compare", f"train:{results / 'short'}", f"train:{results / 'long'}", "--results", tmp_path, "--quiet")
    assert len(list(tmp_path.rglob("compare.html"))) == 1
    text = printed("compare", f"train:{results}", f"train:{results / 'short'}", "--results", tmp_path, "--quiet")
    assert "2 runs from rftlab train" in text
    with pytest.raises(UserError, match="notes holds no run of rftlab train; allowed: its folder, or one with several"):
        printed("report", f"train:{results / 'notes'}", "--results", tmp_path)
    with pytest.raises(UserError, match=r"'train:'; allowed: imported:NAME.*train:FOLDER"):
        printed("report", "train:", "--results", tmp_path)


def test_a_study_may_begin_where_a_run_lies(results, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes((results / "short" / "config.json").read_bytes())
    assert store.open_store(tmp_path) == tmp_path
    (tmp_path / "other").mkdir()
    (tmp_path / "rftlab.json").unlink()
    with pytest.raises(UserError, match="holds other files"):
        store.open_store(tmp_path)
