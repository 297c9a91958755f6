"""Statistics of the evaluation: the public functions against brute force."""

from itertools import combinations

import numpy as np
import pytest

from rftlab.shared.evalstats import fixed_set_error, pass_at_k, sampling_error
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.results.stats import expected_maximum, power, seeds_needed, winners_curse
from rftlab.studies.theory.variance import evaluations, normal_seeds


@pytest.mark.parametrize("correct", range(6))
@pytest.mark.parametrize("k", range(1, 6))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(correct, k):
    answers = [1] * correct + [0] * (5 - correct)
    share = np.mean([max(subset) for subset in combinations(answers, k)])
    assert float(pass_at_k(5, correct, k)) == pytest.approx(share, abs=1e-12)


def test_fixed_set_error():
    assert fixed_set_error(np.array([0.0, 1.0])) == 0.0
    assert fixed_set_error(np.full(50, 0.3)) == pytest.approx(float(sampling_error(0.3, 50)))
    rates = np.random.default_rng(0).random(30)
    assert fixed_set_error(rates) < sampling_error(rates.mean(), 30)
    assert fixed_set_error(rates, 4) == pytest.approx(fixed_set_error(rates) / 2)


def test_evaluations_are_reproducible_and_new_each_time():
    rates = np.linspace(0.1, 0.9, 60)
    found = evaluations(rates, 40)
    np.testing.assert_array_equal(found, evaluations(rates, 40))
    np.testing.assert_array_equal(found[5:], evaluations(rates, 35, first=5))
    assert np.unique(found).size > 10


def test_power_of_no_effect_is_the_level_and_grows():
    assert power(5, 0.0) == pytest.approx(0.05, abs=1e-6)
    assert power(5, 0.0, paired=True, level=0.01) == pytest.approx(0.01, abs=1e-6)
    assert power(5, -1.0) == pytest.approx(power(5, 1.0))
    values = [power(n, 0.8) for n in range(2, 40)]
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sigma", [0.005, 0.01, 0.02, 0.04])
def test_the_seeds_needed_are_the_fewest_and_no_fewer_than_the_normal_ones(sigma, paired):
    seeds = seeds_needed(sigma, 0.02, paired)
    assert power(seeds, 0.02 / sigma, paired) >= 0.8
    assert seeds == 2 or power(seeds - 1, 0.02 / sigma, paired) < 0.8
    assert 1 <= seeds - normal_seeds(sigma, 0.02, paired) <= 3


def test_expected_maximum_of_few():
    assert expected_maximum(1) == pytest.approx(0, abs=1e-12)
    assert expected_maximum(2) == pytest.approx(1 / np.sqrt(np.pi))
    assert expected_maximum(3) == pytest.approx(1.5 / np.sqrt(np.pi))


def test_winners_curse_vanishes_with_the_error_and_shrinks_with_the_spread():
    assert winners_curse(9, 0.0) == 0.0 and winners_curse(9, 0.0, 0.1) == 0.0
    assert winners_curse(9, 0.01, 0.0) == pytest.approx(0.01 * expected_maximum(9))
    assert winners_curse(9, 0.01, 0.02) < winners_curse(9, 0.01, 0.01) < winners_curse(9, 0.01)


def test_pass_at_k_broadcasts_and_stays_exact_for_large_n():
    np.testing.assert_allclose(pass_at_k(4, np.array([0, 1, 4]), 1), [0, 0.25, 1], atol=1e-12)
    assert float(pass_at_k(10000, 1, 5000)) == pytest.approx(0.5, rel=1e-9)
    assert float(pass_at_k(10000, 0, 5000)) == 0.0


BAD = {
    "seeds = 1; allowed: 2 or more": lambda: power(1, 1.0),
    "difference = 0.0; allowed": lambda: seeds_needed(0.1, 0.0),
    "n = 0; allowed: 1 or more": lambda: expected_maximum(0),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named_with_what_is_allowed(message):
    with pytest.raises(UserError, match=message):
        BAD[message]()
