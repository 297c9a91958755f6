"""`rftlab diagnose` on logs, folders and collections; docs/diagnose.md prints what it prints."""

from dataclasses import replace

import pytest

from rftlab import Design, Linear, Simulation, preset, simulate
from rftlab.studies.analysis.diagnose import CHECKS
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.readers.store import write_collection
from tests.support.estimators.vectors import ROOT
from tests.support.logs.formats import LOGS
from tests.support.logs.planted import after, changed, healthy, log_of
from tests.support.machine.here import refused, shown


@pytest.mark.parametrize("kind", LOGS)
def test_every_format_is_read(kind, tmp_path):
    log = LOGS[kind](0)
    (tmp_path / log.name).write_text(log.text)
    text = shown("diagnose", tmp_path / log.name)
    assert "checks could be made" in text.splitlines()[0] and "could not be judged" in text


def test_a_run_of_a_collection_is_named(tmp_path):
    broken = log_of(changed("train", "pass_at_1", after(0.6, 0.1))(healthy()))
    write_collection(tmp_path, "two", [replace(broken, name="a"), replace(log_of(healthy()), name="b#2")])
    assert "a: stop: collapse" in shown("diagnose", "imported:two#a", "--results", tmp_path)
    assert "nothing wrong found; 17 of 17" in shown("diagnose", "imported:two#b#2", "--results", tmp_path)
    first, second, more = shown("diagnose", "imported:two", "--results", tmp_path).splitlines()
    assert first.startswith("a: stop: collapse") and second.startswith("b#2: nothing wrong found; 17")
    assert "rftlab diagnose NAME#RUN" in more
    assert "has no run 'c'; allowed: a, b#2" in refused("diagnose", "imported:two#c", "--results", tmp_path)


def test_a_public_run_is_judged_on_the_task_that_is_named():
    assert "format_rate 0.993" not in shown("diagnose", "public:pods/math500#pods/gsm8k-n64-m4/r05")
    text = shown("diagnose", "public:pods")
    assert len(text.splitlines()) == 102 and text.count("stop: collapse") > 5


def test_a_simulated_point_is_read_with_its_design(tmp_path):
    design = Design(8, 4, rounds=60, eval_every=3, estimator=preset("grpo"))
    run = Simulation(Linear(n_train=60, n_test=40, n_features=16, unsolvable=1.0), design)
    store.open_store(tmp_path / "results")
    point = RunSpec("qwen-gsm8k", run)
    store.write(tmp_path / "results", point, simulate(run), {})
    text = shown("diagnose", store.point_folder(tmp_path / "results", point))
    assert "1.00 of the groups" in text and "0.0 of 8 prompts of a round teach" in text


def test_texts_of_a_log_are_shown_as_they_are(tmp_path):
    rows = "".join(f'"[bold]x[/]\\u202e\x1b[2J",accuracy,{i},0.5\n' for i in range(20))
    (tmp_path / "long.csv").write_text("run_name,metric,step,value\n" + rows)
    text = shown("diagnose", tmp_path / "long.csv")
    assert "[bold]x[/]" in text and "\x1b" not in text
    (tmp_path / "page.html").write_text("<!DOCTYPE html><html></html>")
    refused("diagnose", tmp_path / "page.html")


def test_the_page_names_every_check():
    text = (ROOT / "docs" / "diagnose.md").read_text()
    assert [kind for kind in CHECKS if f"| {kind} |" not in text] == []
