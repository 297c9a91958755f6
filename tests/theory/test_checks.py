"""Every theory check passes, every claim of it fails on one of its mutants; and the protocol that turns numbers into
verdicts."""

import re
from pathlib import Path

import numpy as np
import pytest

from rftlab.studies.theory import ALL_CHECKS, GROUPS
from rftlab.studies.theory.check import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Mutant,
    estimated,
    exact,
    log_log_slope,
    positive,
    rate,
    sampled,
    untouched,
    verdict_on_mutant,
    worst_verdict,
)
from tests.support.theory import BY_ID, measured

DERIVED = ("D1", "D2", "D3", "D24", *(f"D{i}" for i in range(31, 39)))


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.id)
def test_check_passes(check):
    found = measured(check.id)
    assert worst_verdict(found) == PASS, [c for c in found if c.verdict != PASS]
    names = [c.name for c in found]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.id)
def test_mutants_break_what_they_name_and_leave_no_claim_untouched(check):
    runs = [measured(check.id, number) for number in range(1, len(check.mutants) + 1)]
    for mutant, run in zip(check.mutants, runs, strict=True):
        assert [c.name for c in run] == [c.name for c in measured(check.id)]
        assert verdict_on_mutant(mutant, run) == FAIL, [c for c in mutant.named(run) if c.verdict != FAIL]
    assert untouched(runs) == []


@pytest.mark.parametrize("check_id", ["T6", "T22", "D2", "D24", "D34", "S2"])
def test_sampled_checks_are_the_same_each_time(check_id):
    assert measured(check_id) == tuple(BY_ID[check_id].experiment(0))


def test_every_generator_of_the_theory_has_a_seed():
    import rftlab.studies.theory as theory

    texts = [path.read_text() for path in Path(theory.__file__).parent.glob("*.py")]
    assert sum("default_rng(" in text for text in texts) > 5
    assert not any(re.search(r"default_rng\(\)|np\.random\.(?!default_rng|Generator)", text) for text in texts)


def test_a_mutant_must_break_every_claim_that_it_names():
    good, bad, unsure = exact("a 1", 1.0, 1.0), exact("a 2", 1.0, 2.0), estimated("b", 1.0, 1.0, 0.5)
    for breaks, verdict in (("", PASS), ("a", PASS), ("2$", FAIL), ("b|2", INCONCLUSIVE), ("c", INCONCLUSIVE)):
        assert verdict_on_mutant(Mutant("", breaks), [good, bad, unsure]) == verdict


def test_a_claim_is_untouched_where_it_fails_on_no_mutant_and_one_failure_decides():
    good, bad, unsure = exact("a", 1.0, 1.0), exact("a", 1.0, 2.0), estimated("b", 1.0, 1.0, 0.5)
    assert untouched([[good, unsure], [bad, unsure]]) == ["b"]
    assert untouched([[good, unsure]]) == ["a", "b"] and untouched([]) == []
    verdicts = [worst_verdict(found) for found in ([good, unsure, bad], [good, unsure], [])]
    assert verdicts == [FAIL, INCONCLUSIVE, INCONCLUSIVE], "nothing measured is inconclusive"


def test_every_statement_is_there_once_whole_and_in_its_group():
    ids = [check.id for check in ALL_CHECKS]
    assert ids == [*(f"T{i}" for i in range(1, 36)), *(f"S{i}" for i in range(1, 5)), *DERIVED]
    assert ids == [check.id for group in GROUPS.values() for check in group]
    assert all((check.id[0] == "D") == (title == "Derived here") for title, group in GROUPS.items() for check in group)
    for check in ALL_CHECKS:
        parts = (check.statement, check.formula, check.source, check.mutants)
        assert all((*parts, *(mutant.text for mutant in check.mutants))), check.id
    assert {"T7", "T10", "T11", "T25"} <= {check.id for check in ALL_CHECKS if check.corrects}


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (exact("x", 2.0, 2.0 * (1 + 5e-11)), PASS),
        (exact("x", 2.0, 2.0 * (1 + 5e-10)), FAIL),
        (exact("x", 0.0, 1e-12), PASS),
        (exact("x", 1.0, np.nan), FAIL),
        (estimated("x", 1.0, 1.03, 0.008), PASS),
        (estimated("x", 1.0, 1.033, 0.008), FAIL),
        (estimated("x", 1.0, 1.0, 0.02), INCONCLUSIVE),
        (estimated("x", 1.0, 1.5, 0.02), FAIL),
        (estimated("x", 1.0, np.nan, 0.005), FAIL),
        (estimated("x", 1.0, 1.04, 0.005), FAIL),
        (estimated("x", 1.0, 1.04, 0.005, slack=0.03), PASS),
        (estimated("x", 1.0, 1.0, 0.0), PASS),
        (estimated("x", 1.0, 1.1, 0.0), FAIL),
        (rate("x", 0.5, 0.51, 0.49, 0.52), PASS),
        (rate("x", 0.5, 0.51, 0.46, 0.56), INCONCLUSIVE),
        (rate("x", 0.5, 0.6, 0.58, 0.62), FAIL),
        (positive("x", 0.04, 0.01), PASS),
        (positive("x", 0.02, 0.01), INCONCLUSIVE),
        (positive("x", -0.04, 0.01), FAIL),
        (positive("x", 0.0), FAIL),
        (positive("x", 1.1e-16), FAIL),
    ],
)
def test_protocol(comparison, verdict):
    assert comparison.verdict == verdict


def test_sampled_is_the_mean_with_its_standard_error():
    values = np.random.default_rng(0).normal(1.0, 0.3, 10_000)
    found = sampled("x", 1.0, values)
    assert found.measured == values.mean() and found.verdict == PASS
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std(ddof=1) / 100)


def test_slope_recovers_a_power_with_an_interval():
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    samples = 3 * x**-0.7 * np.exp(0.05 * np.random.default_rng(1).standard_normal((400, 4)))
    slope, low, high = log_log_slope(x, samples)
    assert low < -0.7 < high and high - low < 0.01 and low < slope < high
