"""`rftlab reproduce --level llm --hours N`: which runs decide most verdicts."""

from types import SimpleNamespace

import numpy as np

from rftlab.studies.cli.execute import pick
from rftlab.studies.data.paper.experiments import EXPERIMENTS, label
from rftlab.studies.data.results.endpoints import Measured
from rftlab.studies.data.results.verdicts import FAILS, HOLDS, measure
from tests.support.machine.here import rftlab


def part_of(values, low, high):
    return measure("b - a", np.asarray(values), low, high, ("a", "b"))


def measured_at(p=0.5):
    return Measured(("a", "b", "base"), np.full((5, 3), p))


def decided(value, spread, low=0.0, high=np.inf, questions=10**9, most=20):
    """Seeds and verdict of a difference with that mean and deviation over five seeds."""
    values = value + spread * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]) / np.std([-1, -0.5, 0, 0.5, 1], ddof=1)
    return pick.seeds_to_decide([part_of(values, low, high)], measured_at(), questions, most)


def test_seeds_grow_with_the_spread_and_end_where_the_interval_is_inside():
    assert decided(0.1, 1e-6) == (2, HOLDS) and decided(-0.1, 1e-6) == (2, FAILS)
    counts = [decided(0.1, spread)[0] for spread in (0.02, 0.05, 0.1)]
    assert counts == sorted(counts) and counts[0] < counts[-1]
    half = pick.t_errors(counts[-1] - 1) * 0.1 / np.sqrt(counts[-1])
    before = pick.t_errors(counts[-1] - 2) * 0.1 / np.sqrt(counts[-1] - 1)
    assert half <= 0.1 < before
    assert decided(0.001, 0.1) is None


def test_few_questions_blur_a_difference_and_one_part_outside_decides_a_claim():
    assert decided(0.05, 1e-6, questions=100) is None or decided(0.05, 1e-6, questions=100)[0] > 2
    nothing = part_of(np.full(5, np.nan), 0.0, 1.0)
    assert pick.seeds_to_decide([nothing], measured_at(), 10, 20) is None
    assert pick.seeds_to_decide([], measured_at(), 10, 20) is None
    inside, across, outside = (part_of(np.full(5, v) + d, 0.0, 1.0) for v, d in
                               ((0.5, 0.0), (0.0, np.array([-1, 1, -1, 1, 0.0])), (-0.5, 0.0)))  # fmt: skip
    assert pick.seeds_to_decide([inside, outside], measured_at(), 10**9, 9) == (2, FAILS)
    assert pick.seeds_to_decide([across, outside], measured_at(), 10**9, 9) == (2, FAILS)
    assert pick.seeds_to_decide([inside, across], measured_at(), 10**9, 9) is None


def wish(name, cells, seeds=2, pair="p"):
    return pick.Pick(pair, SimpleNamespace(name=name), tuple(cells), seeds, HOLDS)


def test_claims_come_by_the_hours_that_they_add_and_shared_runs_are_paid_once():
    costs = {("p", "a"): 1.0, ("p", "b"): 2.0, ("p", "c"): 10.0}
    wishes = [wish("far", "c"), wish("both", "ab"), wish("first", "a"), wish("more", "ab", 3)]
    picks = pick.choose(wishes, costs, 100.0)
    assert [(one.claim.name, one.hours) for one in picks] == [
        ("first", 2.0), ("both", 4.0), ("more", 3.0), ("far", 20.0)]  # fmt: skip
    runs = [run for one in picks for run in one.new]
    assert len(runs) == len(set(runs)) == 8
    assert [one.claim.name for one in pick.choose(wishes, costs, 8.9)] == ["first", "both"]
    assert pick.choose(wishes, costs, 1.0) == []


def test_the_command_shows_the_order_and_says_where_the_hours_pay_for_nothing(tmp_path):
    asked = ("reproduce", "--level", "llm", "--pair", "tiny-mix97", "--dry-run", "--results", tmp_path, "--hours")
    status, said = rftlab(*asked, "1")
    assert status == 0 and "4 of 10 verdicts decided, 0.9 of 1 hours, by forecasts" in said
    status, said = rftlab(*asked, "0.001")
    assert status == 1 and "no verdict can be had for 0.001 hours" in said
    assert rftlab(*asked, "nan")[0] == 2 and rftlab(*asked[:2], "sim", "--hours", "1")[0] == 2
    status, said = rftlab("reproduce", "--level", "llm", "--pair", "smollm2-words", "--dry-run", "--hours", "9",
                          "--results", tmp_path)  # fmt: skip
    assert status == 2 and "nothing predicts smollm2-words; allowed: " in said


def test_runs_are_finished_claim_by_claim_and_judged(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(pick, "finish_points", lambda console, root, points, *rest: ran.append(points))
    monkeypatch.setattr(pick, "collect", lambda root, points: pick.reference())
    asked = ("reproduce", "--level", "llm", "--pair", "tiny-mix97", "--results", tmp_path)
    status, said = rftlab(*asked, "--hours", "0.1")
    raw = label(EXPERIMENTS["baseline"].cells[0])
    assert status == 0 and [(point.cell, point.run.seed) for point in ran[0]] == [(raw, seed) for seed in range(4)]
    kept = (tmp_path / pick.VERDICTS).read_text()
    assert "## tiny-mix97, 1 baseline: undecided" in kept and "4 seeds; reproduced was predicted." in kept
    assert "claimed -0.01 to 0.61" in kept
    assert "tiny-mix97, 1 baseline: undecided" in said  # by the three seeds that come with rftlab; four were asked for
