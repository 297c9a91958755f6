"""The suite: what is planted shows in the tasks that should show it, and scores, files and submissions say what ran."""

import json
from dataclasses import replace
from io import StringIO
from itertools import product

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import rftlab as rl
from dev import suite as dev_suite
from rftlab import CARDS, UserError
from rftlab.shared.config.surrogate import Reinforce
from rftlab.studies.cli.commands import run
from rftlab.studies.data.results.stats import interval
from rftlab.studies.estimators.suite import run as suite_run
from rftlab.studies.estimators.suite import scores
from rftlab.studies.estimators.suite.run import run_cells, run_suite
from rftlab.studies.estimators.suite.submission import card_hash, find_card, submission, suite_names
from rftlab.studies.estimators.suite.tasks import FIXED, RATES, TASKS, VERSION, task_design, task_point
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401

FAST = ("dense", "k1", "k2")
QUIET = Console(file=StringIO(), width=120)


def largest(rewards):
    """Planted: the largest reward of a group as its baseline."""
    return rewards - rewards.max()


def sign(rewards):
    """Planted: RLOO with the wrong sign for groups of one."""
    n = rewards.size
    return -rewards if n == 1 else n / (n - 1) * (rewards - rewards.mean())


def stacked(rewards):
    """A baseline of the whole round."""
    return rewards - rewards.mean()


SOUND = {"suite_largest": "dr_grpo", "suite_sign": "rloo", "rloo": "dr_grpo"}
"""What is planted, and the sound estimator beside it."""


@pytest.fixture(scope="module")
def fixed_cells(tmp_path_factory):
    """Cells of what is planted, of sound estimators and of pkpo, at the fixed rate, three seeds each: with two `gap` is
    within noise."""
    root, rates = tmp_path_factory.mktemp("suite"), suite_run.RATES
    suite_run.RATES = (FIXED,)
    try:
        rl.advantage("suite_largest")(largest)
        rl.advantage("suite_sign", surrogate=Reinforce())(sign)
        names = {*SOUND, *SOUND.values(), "pkpo"}
        return {name: run_cells(QUIET, root, find_card(name), seeds=3) for name in names}
    finally:
        suite_run.RATES = rates


@pytest.mark.parametrize(
    ("name", "low"),
    [("suite_largest", set(TASKS)), ("suite_sign", {"k1"}), ("rloo", {"passes"})],
    ids=["the largest reward as baseline", "a wrong sign at K = 1", "the plain policy gradient"],
)
def test_a_planted_error_is_low_where_it_should_be_and_nowhere_else(fixed_cells, name, low):
    tables = (scores.scored(fixed_cells[each]) for each in (name, SOUND[name]))
    mine, sound = (table.groupby("task", sort=False)["score"].mean() for table in tables)
    differences = mine - sound
    assert set(differences.index) == set(TASKS)
    assert {task for task, difference in differences.items() if difference < -0.05} == low


def test_the_page_has_the_sentence_of_its_command(fixed_cells):
    """`rftlab suite pkpo rloo --seeds 3` ends with it; of three rates it is the fixed one that it is about."""
    cells = pd.concat([fixed_cells["pkpo"], fixed_cells["rloo"]], ignore_index=True)
    page = (dev_suite.DOCS / "suite.md").read_text()
    assert page.split("```text\n")[1].split("\n```")[0] == scores.said(cells, "pkpo", "rloo")
    assert dev_suite.written(page) == page and "**" in dev_suite.page_parts()["agreement"], "it shows the record"


def curve(values, rollouts):
    return type("Curve", (), {"rollouts": np.array(rollouts), scores.PASS_AT_1: np.array(values)})


def cells_of(**values):
    """Cells of estimators by task, of dense's anchors: lists of scores, a seed each, at the fixed rate."""
    zero, one = scores.anchors()["dense"]
    rows = [
        (name, "dense", FIXED, seed, zero + score * (one - zero), "")
        for name, column in values.items()
        for seed, score in enumerate(column)
    ]
    return pd.DataFrame(rows, columns=[*scores.KEYS, "value", "note"])


def test_a_cell_is_the_mean_over_equal_rollouts_between_the_anchors_and_not_clipped():
    table = scores.profile(cells_of(a=[0.0, 0.5, 1.0], b=[-0.5, -0.5, -0.2]))
    assert table["score"].tolist() == pytest.approx([0.5, -0.4])
    assert table["half"][0] == pytest.approx(interval([0.0, 0.5, 1.0]).high - 0.5)
    # Who samples twice as much is read off at half of its run.
    assert scores.cell(TASKS["dense"], curve([0.2, 0.4], [0, 100]), None, 100) == pytest.approx(0.3)
    assert scores.cell(TASKS["dense"], curve([0.2, 0.6], [0, 200]), None, 100) == pytest.approx(0.3)


def test_differences_are_paired_by_seed_and_means_over_tasks_have_the_spread_of_seeds_within_them():
    rng = np.random.default_rng(0)
    base = rng.random(6)
    cells = cells_of(a=base - 0.02 + 0.001 * rng.normal(size=6), b=base)
    row = scores.against(cells, "a", "b")["dense"]
    assert row.value == pytest.approx(-0.02, abs=0.002) and row.high < 0
    said = "below it in dense (-0.02); above it in no task; no significant difference in 0 of 1"
    assert said in scores.said(cells, "a", "b")
    shuffled = cells_of(a=(base - 0.02)[::-1], b=base)
    assert scores.against(shuffled, "a", "b")["dense"].high > 0, "and with the pairing broken nothing is told apart"
    # Tasks differ by much, seeds by little: the interval is as narrow as the seeds say, and as the normal one.
    rng = np.random.default_rng(1)
    tasks = [level + 0.1 * rng.normal(size=10) for level in (0.0, 0.5, 1.0)]
    known = scores.mean_over_tasks(tasks)
    error = np.sqrt(sum(values.var(ddof=1) / values.size for values in tasks)) / len(tasks)
    assert known.value == pytest.approx(np.mean([values.mean() for values in tasks]))
    assert 1.96 * error < known.half == pytest.approx(1.96 * error, rel=0.1)
    assert scores.summary(cells_of(a=[0.5]))["fixed"].isna().all(), "one that was stopped has no mean over all tasks"
    lone = scores.summary(cells_of(a=[0.5]), ("dense",))
    assert lone["fixed"][0] == pytest.approx(0.5) and lone["fixed_low"].isna().all(), "one seed has no interval"
    assert "no task has two seeds of both" in scores.said(cells_of(a=[0.5], b=[0.2]), "a", "b")


def test_every_card_fits_every_task():
    """But credit for pass@4, which groups of one and two cannot have, and what libraries refuse at K = 1."""
    refused = set()
    for card, task in product(map(find_card, suite_names()), TASKS.values()):
        try:
            task_design(task, card)
        except UserError:
            refused.add((card.name, task.name))
    libraries = {(name, "k1") for name in ("grpo_openrlhf", "grpo_passk_verl", "grpo_trl")}
    assert refused == {("pkpo", "k1"), ("pkpo", "k2"), *libraries}


def test_anchors_and_the_record_are_of_this_version():
    assert set(scores.anchors()) == set(TASKS)
    assert all(0 <= zero < one <= 1 for zero, one in scores.anchors().values())
    record, every = scores.suite_record(), {(task, rate) for task in TASKS for rate in RATES}
    own = record.groupby("estimator")
    rows = {name: {(row.task, float(row.rate)) for row in table.itertuples()} for name, table in own}
    assert set(rows) == set(suite_names()) and set().union(*rows.values()) == every
    refused = {name: {task for task, _ in every - own} for name, own in rows.items() if own != every}
    assert refused["pkpo"] == {"noisy", "graded", "k1", "k2", "rewards"} and refused["grpo_trl"] == {"k1"}
    given = {name for name in refused if CARDS[name].estimator.advantage.baseline in ("greedy", "optimal")}
    assert set(refused) - given <= {"pkpo", "grpo_openrlhf", "grpo_passk_verl", "grpo_trl"}


def test_a_row_of_the_record_is_what_runs_today(tmp_path):
    row = scores.suite_record().query("estimator == 'grpo' and task == 'k2' and rate == 1").iloc[0]
    cells = run_cells(QUIET, tmp_path / "r", find_card("grpo"), int(row["seeds"]), ("k2",))
    assert cells[cells["rate"] == FIXED]["value"].mean() == pytest.approx(row["value"], abs=1e-4)


def test_what_cannot_run_diverges_or_fails_scores_0_with_the_reason(tmp_path, monkeypatch):
    fine = [0]

    def broken(rewards):
        fine[0] += 1
        return rewards * (np.nan if fine[0] > 2 else 1.0)

    cells = run_cells(QUIET, tmp_path / "r", find_card(broken), 1, ("dense",))
    assert (scores.scored(cells)["score"] == 0).all() and "not finite" in cells["note"][0]
    lonely = rl.Estimator(rl.Advantage("leave_one_out", singleton="error"))
    cells = run_cells(QUIET, tmp_path / "r", find_card(lonely), 1, ("k1",))
    assert cells["note"].str.startswith("cannot run: smallest baseline set = 1").all() and len(cells) == len(RATES)
    monkeypatch.setitem(TASKS, "dense", TASKS["dense"]._replace(rate=1e39))
    cells = run_cells(QUIET, tmp_path / "r", find_card("rloo"), 1, ("dense",))
    assert cells["note"].str.startswith("diverged in round").all() and (scores.scored(cells)["score"] == 0).all()


def test_a_slow_estimator_is_stopped_and_goes_on(tmp_path):
    card = find_card("rloo")
    assert run_cells(QUIET, tmp_path / "r", card, 1, FAST, minutes=0.0).empty
    tables, stamps = [], []
    for _ in range(2):
        tables.append(run_cells(QUIET, tmp_path / "r", card, 1, FAST))
        stamps.append({path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("done.json")})
    assert set(tables[0]["task"]) == set(FAST) and len(tables[0]) == len(FAST) * len(RATES)
    pd.testing.assert_frame_equal(*tables)
    assert stamps[0] == stamps[1]


def test_own_estimators_by_file_and_from_python(tmp_path):
    file = tmp_path / "own_suite.py"
    file.write_text("def centred_in_file(rewards):\n    return rewards - rewards.mean()\n")
    assert find_card(f"{file}:centred_in_file").name == "centred_in_file"
    with pytest.raises(UserError, match="has no function 'nothing'"):
        find_card(f"{file}:nothing")
    rl.advantage("stacked_rounds", scope="batch")(stacked)
    result = rl.suite("stacked_rounds", "dr_grpo", seeds=2, results=tmp_path / "r", tasks=FAST)
    assert list(result.summary["estimator"]) == ["stacked_rounds", "dr_grpo"]
    assert str(result).startswith("stacked_rounds beside dr_grpo: ") and set(result.tasks["task"]) == set(FAST)


def test_the_command_and_a_submission(tmp_path, monkeypatch):
    monkeypatch.setattr(suite_run, "TASKS", {name: TASKS[name] for name in FAST})
    monkeypatch.setattr(suite_run.run_cells, "__defaults__", (None, FAST, *run_cells.__defaults__[2:]))
    console, root = Console(file=StringIO(), width=120), tmp_path / "r"
    with pytest.raises(UserError, match="no run of grpo ended; allowed: more minutes"):
        run_suite(console, root, ["grpo"], 2, 1e-9, 0, True)
    folder = run_suite(console, root, ["grpo"], 2, 10.0, 0, True)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"grpo.json", "rloo.json", "cells.csv", "tasks.csv", "summary.csv", "suite.png", "suite.svg"}
    assert "grpo beside rloo: " in console.file.getvalue() and "isolates" in console.file.getvalue()
    known = json.loads((folder / "grpo.json").read_text())
    assert known["suite"] == VERSION and known["seeds"] == dict.fromkeys(FAST, 2)
    assert run(["suite", "--check", str(folder / "grpo.json")]) == 0
    for change, message in (
        ({"suite": VERSION + 1}, "is of version"),
        ({"source_sha256": "0"}, "was made with another source of"),
        ({"cells": []}, "holds no cell"),
        ({"cells": [["../x", 1, 0, 0.5, ""]]}, "holds no cell"),
        ({"cells": 3}, "is no submission"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(known | change))
        with pytest.raises(UserError, match=message):
            run(["suite", "--check", str(tmp_path / "bad.json")])
    forged = known | {"cells": [[*row[:3], row[3] + 0.01, ""] for row in known["cells"]]}
    (tmp_path / "bad.json").write_text(json.dumps(forged))
    assert run(["suite", "--check", str(tmp_path / "bad.json")]) == 1


def test_the_hash_is_of_all_that_runs():
    card = find_card("grpo")
    others = [
        replace(card, estimator=replace(card.estimator, surrogate=Reinforce())),
        replace(card, sampling=replace(card.sampling, tries=3)),
        replace(card, replay_window=8),
    ]
    assert len({card_hash(one) for one in (card, *others)}) == 4
    assert card_hash(replace(card, title="another")) == card_hash(card)
    cells = cells_of(grpo=[0.5])
    assert submission(card, cells)["source_sha256"] == card_hash(card)


def test_tasks_are_worlds_of_their_own():
    """Bits of a task hang on no name: two tasks never share a run, and each has its own metric."""
    points = [task_point(task, task_design(task, find_card("rloo")), 1.0, 0) for task in TASKS.values()]
    assert len({point.id + point.pair for point in points}) == len(TASKS)
    assert [name for name, task in TASKS.items() if task.metric != scores.PASS_AT_1] == ["coverage", "spread"]
