"""Every theory check passes, its mutant fails, both always the same; and the protocol that turns numbers into
verdicts."""

import numpy as np
import pytest

from rftlab.studies.theory import ALL_CHECKS
from rftlab.studies.theory.check import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    estimated,
    exact,
    positive,
    rate,
    sampled,
    slope_of,
    verdict_of,
)

DERIVED = ("D1", "D2", "D3", "D24", "D28", "D29", "D30", *(f"D{i}" for i in range(31, 38)))


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.id)
def test_check_passes_and_its_mutant_fails(check):
    found = check.experiment(False)
    assert verdict_of(found) == PASS, [c for c in found if c.verdict != PASS]
    assert verdict_of(check.experiment(True)) == FAIL
    assert found == check.experiment(False)


@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.id)
def test_declarations_are_complete(check):
    assert all((check.statement, check.formula, check.latex, check.source, check.mutant))


def test_every_statement_is_there_once():
    assert [check.id for check in ALL_CHECKS] == [
        *(f"T{i}" for i in range(1, 31)),
        *(f"S{i}" for i in range(1, 5)),
        *DERIVED,
    ]


def test_statements_that_correct_the_literature_say_so():
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
    slope, low, high = slope_of(x, samples)
    assert low < -0.7 < high and high - low < 0.01 and low < slope < high


def test_one_failure_decides_and_nothing_measured_is_inconclusive():
    good, bad, unsure = exact("x", 1.0, 1.0), exact("x", 1.0, 2.0), positive("x", 0.0, 1.0)
    assert verdict_of([good, unsure, bad]) == FAIL
    assert verdict_of([good, unsure]) == INCONCLUSIVE
    assert verdict_of([]) == INCONCLUSIVE
