"""Formulas of the theory where no check measures them: borders, ties, and what is never drawn."""

import numpy as np
import pytest

from rftlab.shared.evalstats import pass_at_k
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.results.stats import expected_maximum, power, seeds_needed, winners_curse
from rftlab.studies.theory.effective import integer_best, predicted
from rftlab.studies.theory.regret import fitted_policy, tilted, worst_case
from rftlab.studies.theory.replay import window_error


def test_integer_optimum_takes_the_smaller_of_two_equals():
    """K(K-1) = bend/slope exactly: K and K+1 are equally good."""
    terms = (1.0, 0.0, 12.0, 0.0)
    assert predicted(4, terms) == pytest.approx(predicted(5, terms))
    assert integer_best(terms) == 4


def test_a_pass_rate_that_rose_to_three_quarters_has_no_window_too_long_at_one_rollout_a_visit():
    """From 0, in steps of any size; 3/4 is exact, where two steps took it there."""
    for p in np.linspace(0.05, 0.75, 15):
        for visits in range(2, 80):
            errors = window_error(p, p / visits, 1, np.arange(1, visits + 1))
            assert errors.max() <= errors[0] * (1 + 1e-12)
    for p, visits in ((0.76, 2), (0.81, 60)):
        errors = window_error(p, p / visits, 1, np.arange(1, visits + 1))
        assert errors[-1] > errors[0]


def test_a_worst_case_is_measured_on_runs_that_did_not_choose_it():
    samples = np.zeros((4, 2))
    samples[:2, 1] = 5.0
    np.testing.assert_array_equal(worst_case(samples), [0.0, 0.0])


def test_an_arm_never_pulled_counts_as_one_half():
    even = np.array([0.5, 0.5])
    policy = fitted_policy(even, np.ones(2), 1.0, np.array([[3, 0]]), np.random.default_rng(0))
    np.testing.assert_allclose(policy, tilted(even, np.array([1.0, 0.5]), 1.0)[None])


def test_statistics_at_their_borders():
    assert [power(5, 0.0), power(5, 0.0, paired=True, level=0.01)] == pytest.approx([0.05, 0.01], abs=1e-6)
    assert power(5, -1.0) == pytest.approx(power(5, 1.0))
    few = [0.0, 1 / np.sqrt(np.pi), 1.5 / np.sqrt(np.pi)]
    assert [expected_maximum(n) for n in (1, 2, 3)] == pytest.approx(few, abs=1e-12)
    assert winners_curse(9, 0.0) == winners_curse(9, 0.0, 0.1) == 0.0
    np.testing.assert_allclose(pass_at_k(4, np.array([0, 1, 4]), 1), [0, 0.25, 1], atol=1e-12)
    assert float(pass_at_k(10000, 1, 5000)) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: power(1, 1.0), "seeds = 1; allowed: 2 or more"),
        (lambda: seeds_needed(0.1, 0.0), "difference = 0.0; allowed"),
        (lambda: expected_maximum(0), "n = 0; allowed: 1 or more"),
    ],
)
def test_bad_input_is_named_with_what_is_allowed(ask, message):
    with pytest.raises(UserError, match=message):
        ask()
