"""Facts of published studies: the table, the numbers, and verdicts that nothing but an effect reaches."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import rftlab.studies.theory.facts.command as command
from rftlab import KL, Simulation, UserError
from rftlab.studies.data.results.stats import Estimate, pooled_deviation
from rftlab.studies.theory import page
from rftlab.studies.theory.facts import facts
from rftlab.studies.theory.facts.command import NO, NOT_RUN, OPPOSITE, UNMEASURED, YES, JudgedFact, judge_fact
from rftlab.studies.theory.facts.facts import DECIDED, FACTS, Fact
from rftlab.studies.theory.facts.numbers import GRPO, change, rounds_to
from tests.support.worlds.simulations import SMALL

DOC = Path(__file__).parents[2] / "docs" / "theory.md"
BY_NAME = {fact.name: fact for fact in FACTS}
SEEDS = 5


def curve(score, seed=0, rounds=400, evaluations=20, per_round=256, **columns):
    """A run whose columns are functions of the round."""
    at = np.linspace(0, rounds, evaluations + 1)
    rng = np.random.default_rng([seed, rounds, per_round])
    frame = pd.DataFrame({"round": at, "planned_rounds": rounds, "seed": seed, "rollouts": at * per_round})
    for name, of_round in {"test_pass_at_1": score, **columns}.items():
        noise = 0.001 * rng.standard_normal(len(at))
        frame[name] = of_round(at) + noise
    frame["train_pass_at_1"] = frame["test_pass_at_1"]
    return frame


def shape(setting):
    """Rounds, evaluations and rollouts of a round."""
    design = setting.design
    return design.rounds, design.rounds // design.eval_every, design.round_rollouts


def alike(fact):
    """Runs that differ by noise alone, whatever their setting."""
    values = {"train_entropy": 1.0, "test_entropy": 1.0, "train_format_rate": 0.95, "train_zero_variance_fraction": 0.4}
    values |= {
        "test_flexible": 0.5,
        "test_flexible_pass_at_256": 0.6,
        "test_length_right": 1.0,
        "test_length_wrong": 1.2,
    }
    steady = {name: (lambda t, value=value: value - 0 * t) for name, value in values.items()}
    rng = np.random.default_rng(len(fact.name))

    def runs(setting):
        seeds = rng.integers(1 << 30, size=SEEDS).tolist()
        return [curve(lambda t: 0.3 + 0 * t, seed, *shape(setting), **steady) for seed in seeds]

    return {name: runs(setting) for name, setting in fact.settings.items()}


def test_the_table_is_whole():
    assert len(FACTS) >= 14 and {fact.name for fact in FACTS} == set(DECIDED)
    for fact in FACTS:
        assert fact.statement.endswith(".") and fact.quantity
        assert re.search(r"\d{4}\.\d{5}|public|OpenReview", fact.source)
        assert fact.low < fact.high and not fact.low < fact.none < fact.high


def test_runs_that_differ_by_noise_alone_show_no_fact():
    """All but two: that progress stops growing needs growth before, and few questions that are as good as many."""
    shown = {fact.name for fact in FACTS if judge_fact(fact, fact.measure(alike(fact))).verdict == YES}
    assert shown <= {"rollouts-saturate", "few-questions"}


def learning(speed, top=0.5):
    """Progress to `top` with a time scale of 100 rounds at speed 1."""
    return lambda t: 0.1 + (top - 0.1) * (1 - np.exp(-speed * t / 100))


def planted(name, swapped=False):
    """Runs in which a fact is there; swapped: with the labels of its settings the other way round."""
    scores = {
        "rate-bf16": {"rate 0.25": learning(0.25**1.75), "rate 1.0": learning(1.0)},
        "rate-fp32": {"rate 0.25": learning(0.25), "rate 1.0": learning(1.0)},
        "batch-helps": {f"B {b}": learning((b / 32) ** 0.5) for b in (8, 32, 128, 512)},
        "batch-saturates": {f"B {b}": learning(b / (b + 64)) for b in (8, 32, 128, 512)},
        "dynamic-sampling": {"once": learning(1.0), "tries": learning(1.5)},
        "lag": {
            "high rate": learning(2), "high rate, lag 16": learning(2, 0.3), "low rate": learning(1),
            "low rate, lag 16": learning(1),
        },
        "passes-collapse": {"2 passes": learning(2), "16 passes": learning(2, 0.1)},
        "kl-costs": {"usual": learning(2), "KL": learning(2, 0.4)},
    }[name]  # fmt: skip
    settings = BY_NAME[name].settings
    given = scores if not swapped else dict(zip(scores, reversed(scores.values()), strict=True))
    shapes = {name: (setting.design.rounds, 40, setting.design.round_rollouts) for name, setting in settings.items()}
    return {name: [curve(score, seed, *shapes[name]) for seed in range(SEEDS)] for name, score in given.items()}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("rate-bf16", 1.75), ("rate-fp32", 1.0), ("batch-helps", 0.5), ("batch-saturates", None), ("lag", 0.2),
        ("dynamic-sampling", np.log(1.5)), ("passes-collapse", 0.2), ("kl-costs", 0.1),
    ],
)  # fmt: skip
def test_a_planted_fact_is_found_and_swapped_labels_do_not_show_it(name, number):
    fact = BY_NAME[name]
    runs = planted(name)
    if number is not None:
        assert np.mean(fact.measure(runs)) == pytest.approx(number, rel=0.1)
    assert judge_fact(fact, fact.measure(runs)).verdict == YES
    assert judge_fact(fact, fact.measure(planted(name, swapped=True))).verdict != YES


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_number_of_rollouts_grows_by_half_a_doubling_with_each_of_compute(sign):
    fact = BY_NAME["rollouts-grow"]

    def score(k):
        return lambda t: 0.5 - (np.log2(k) - 3.5 - sign * (np.log2(1 + t * 32 * k) - 16) / 2) ** 2 / 100

    runs = {
        name: [curve(score(s.design.rollouts), seed, *shape(s)) for seed in range(SEEDS)]
        for name, s in fact.settings.items()
    }
    assert np.mean(fact.measure(runs)) == pytest.approx(2 * sign, abs=0.2)
    assert judge_fact(fact, fact.measure(runs)).verdict == (YES if sign > 0 else OPPOSITE)


def test_seeds_that_collapse_and_seeds_that_do_not_are_a_lottery():
    fact, survivor, lost = BY_NAME["rate-lottery"], learning(2), learning(2, 0.1)
    runs = {name: [curve(survivor, seed) for seed in range(SEEDS)] for name in fact.settings}
    assert judge_fact(fact, fact.measure(runs)).verdict == NO
    runs["rate x8"] = [curve(lost if seed < 2 else survivor, seed) for seed in range(SEEDS)]
    assert fact.measure(runs).value == 0.4
    runs["rate x8"] = [curve(survivor if seed < 1 else lost, seed) for seed in range(SEEDS)]
    # one of five seeds may be one of many: Wilson's interval reaches below 0.2
    said = judge_fact(fact, fact.measure(runs))
    assert (said.measured.value, said.verdict, said.is_sure) == (0.2, NO, False)
    runs["rate x8"] = [curve(lost, seed) for seed in range(SEEDS)]
    assert judge_fact(fact, fact.measure(runs)).verdict == NO


@pytest.mark.parametrize(
    ("measured", "verdict", "sure"),
    [
        (Estimate(0.2, 0.15, 0.3), YES, True),
        (Estimate(0.2, 0.05, 0.3), NO, False),
        (Estimate(0.02, 0.0, 0.05), NO, True),
        (Estimate(-0.2, -0.3, -0.15), OPPOSITE, True),
        (Estimate(-0.2, -0.3, -0.05), NO, True),
        (np.array([0.2, 0.21, np.nan]), YES, True),
        (np.array([0.2]), NO, False),
        (np.array([np.nan]), UNMEASURED, True),
        (None, NOT_RUN, True),
    ],
)
def test_verdicts_go_by_the_interval(measured, verdict, sure):
    fact = Fact("x", "", "", "", 0.1, 1.0, 0.0, {}, lambda runs: np.empty(0), None)
    said = judge_fact(fact, measured)
    assert (said.verdict, said.is_sure) == (verdict, sure)


def test_a_ratio_has_its_opposite_as_far_on_the_other_side_of_one():
    fact = Fact("x", "", "", "", -np.inf, 0.5, 1.0, {}, lambda runs: np.empty(0), None)
    assert [judge_fact(fact, Estimate(v, v, v)).verdict for v in (0.4, 0.9, 1.4, 1.6)] == [YES, NO, NO, OPPOSITE]


def test_deviations_cover_what_they_estimate():
    rng = np.random.default_rng(0)
    draws = [pooled_deviation(list(rng.normal(0, 0.02, (3, 4)))) for _ in range(400)]
    assert np.mean([low <= 0.02 <= high for _, low, high in draws]) == pytest.approx(0.95, abs=0.03)


def test_a_level_is_reached_between_evaluations_or_never():
    run = pd.DataFrame({"round": [0, 10, 20], "test_pass_at_1": [0.1, 0.2, 0.4]})
    assert rounds_to(run, 0.3) == 15
    assert np.isnan(rounds_to(run, 0.5)) and np.isnan(rounds_to(run, 0.05))


def test_runs_of_language_models_are_where_facts_ask_for_them():
    assert len(facts.studied()) == 9 and len(facts.everywhere()) == 5
    assert len(facts.planted("mix97 usual")) == 2
    for fact in FACTS:
        assert fact.tiny is None or judge_fact(fact, fact.tiny()).is_known


@pytest.fixture
def small(monkeypatch):
    start = Simulation(replace(SMALL, n_train=64))
    monkeypatch.setattr(command, "start_at", lambda name, level: start)
    monkeypatch.setattr(command, "SEEDS", 2)
    usual = {"usual": change(8, measured=True), "KL": change(8, design={"estimator": replace(GRPO, kl=KL("k3", 0.1))})}
    few = (BY_NAME["kl-costs"]._replace(settings=usual), BY_NAME["narrowing"]._replace(settings=usual))
    monkeypatch.setattr(command, "FACTS", few)
    return few


def test_the_command_runs_what_is_missing_and_keeps_it(small, tmp_path, capsys):
    assert command.stored_facts(tmp_path) is None
    assert command.theory_facts(Console(width=200), (), tmp_path, 1, False) == 0
    said = capsys.readouterr().out
    assert "kl-costs" in said and "narrowing" in said and next(iter(command.WORLDS)) in said
    rows = list(csv.DictReader((tmp_path / "facts" / "facts.csv").read_text().splitlines()))
    assert len(rows) == 2 * (len(command.WORLDS) + 1)
    assert {row["command"] for row in rows} == {f"rftlab theory facts {fact.name}" for fact in small}
    assert command.theory_facts(Console(width=200), ("narrowing",), tmp_path, 1, False) == 0
    again = capsys.readouterr().out
    n = 2 * command.SEEDS * len(command.WORLDS)
    assert f"{n} of {n} runs are there already" in again and "kl-costs" not in again and "2504.13837" in again
    assert [one.fact.name for one in command.stored_facts(tmp_path)] == ["kl-costs", "narrowing"]


def test_the_report_has_the_table_where_it_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "FIGURES", {})
    judged = [JudgedFact(fact, {"GSM8K": judge_fact(fact, np.array([0.7, 0.701]))}) for fact in FACTS[:2]]
    html = page.theory_section([], tmp_path, judged)
    assert "The best number of rollouts grows with compute." in html and "<td>yes 0.7</td>" in html
    assert "<code>rftlab theory facts</code>" in page.theory_section([], tmp_path)


def test_an_unknown_fact_names_the_known_ones():
    with pytest.raises(UserError, match=r"fact = 'gravity' is unknown; allowed: .*narrowing"):
        command.chosen_facts(["gravity"])


def test_the_table_of_the_docs_is_that_of_the_code():
    """Verdicts aside, which take minutes: docs/theory.md holds what `rftlab theory facts` wrote to facts.md."""
    there = [line.split(" | ")[:4] for line in DOC.read_text().splitlines() if line.startswith("| `")]
    rows = command.fact_rows([JudgedFact(fact, {}) for fact in FACTS])
    assert there == [row.removesuffix(" |").split(" | ") for row in rows[2:]]
    assert rows[0] in DOC.read_text().splitlines()
