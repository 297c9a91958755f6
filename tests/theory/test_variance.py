"""Variance and replay: printed variances are reproduced, and closed forms agree with brute force."""

from itertools import combinations
from math import ceil, floor

import numpy as np
import pytest

from rftlab.sim.run import batches
from rftlab.studies.theory import effective, page, replay
from rftlab.studies.theory.effective import (
    HISTOGRAMS,
    best_size,
    budget_terms,
    drawn_deviations,
    integer_best,
    predicted,
    total_variance,
)
from rftlab.studies.theory.models import RLOO, beta_rates, gradient_moments, one_correct, one_logit, softmax_policy
from rftlab.studies.theory.replay import (
    best_length,
    longest_useful,
    old_rates,
    replayed,
    window_error,
    worth,
)
from rftlab.studies.theory.variance import baseline_variance, best_baseline, crossing

PRINTED = {
    "uniform": (beta_rates(1, 1), 0.0, (0.0556, 0.1111, 0.0778, 0.0873, 0.1267)),
    "nuisance 1": (beta_rates(1, 3), 1.0, (0.3275, 0.4050, 0.2790, 0.2639, 0.2967)),
    "nuisance 4": (beta_rates(1, 3), 4.0, (1.0775, 1.3050, 0.8790, 0.7782, 0.7767)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_variances(name):
    rates, nuisance, printed = PRINTED[name]
    terms = budget_terms(rates, 1.0, nuisance)
    assert [predicted(size, terms) for size in (1, 2, 4, 8, 16)] == pytest.approx(printed, abs=5.01e-5)


@pytest.mark.parametrize(
    ("rates", "rho", "nuisance", "printed"),
    [
        ((1, 1), 0.0, 0.0, 2.41),
        ((1, 1), 1.0, 0.0, 4.46),
        ((8, 24), 1.0, 0.0, 8.22),
        ((1, 3), 1.0, 1.0, 6.84),
        ((1, 3), 1.0, 4.0, 11.40),
    ],
)
def test_printed_best_sizes(rates, rho, nuisance, printed):
    measured = {size: total_variance(RLOO, size, beta_rates(*rates), rho, nuisance) for size in (2, 4, 8)}
    assert best_size(measured) == pytest.approx(printed, abs=5.01e-3)


def test_printed_variances_of_baselines():
    policy = one_logit(0.7)
    assert [baseline_variance(policy, b) for b in (0.0, 0.7, 1.0)] == pytest.approx([0.0189, 0.0336, 0.1029], abs=1e-12)


def test_a_survey_s_optimal_baseline_exceeds_every_reward():
    """E[r|s|^2]/E[r] for one correct arm of two at p = .1, and where the variance is least."""
    policy = one_correct(2, 0.1)
    norm = (policy.scores**2).sum(axis=1)
    assert (policy.probs * policy.correct) @ norm / policy.pass_rate == pytest.approx(1.62)
    assert best_baseline(policy) == pytest.approx(0.9)


def test_crossing_finds_a_root_and_says_where_there_is_none():
    assert crossing(lambda p: p - 0.3) == pytest.approx(0.3)
    assert np.isnan(crossing(lambda p: p + 1))


def test_total_variance_agrees_with_enumeration_of_one_context():
    """One context, nothing but its own noise: N V = K Var of a group."""
    for p in (0.2, 0.6):
        rates = effective.PassRates(np.array([p]), np.array([1.0]))
        assert total_variance(RLOO, 4, rates, 1.0, 0.0) == pytest.approx(
            4 * gradient_moments(one_logit(p), RLOO, 4)[1], rel=1e-11
        )


def test_total_variance_without_shared_features_counts_every_second_moment():
    rates = HISTOGRAMS["medium"]
    second = [gradient_moments(one_logit(p), RLOO, 3)[1] + (p * (1 - p)) ** 2 for p in rates.values]
    assert total_variance(RLOO, 3, rates, 0.0, 0.0) == pytest.approx(3 * rates.chances @ second, rel=1e-12)


def test_drawn_batches_have_the_exact_variance_where_contexts_are_discrete():
    rates = HISTOGRAMS["bimodal"]
    drawn = drawn_deviations(RLOO, 8, rates, 2.0, n=6000)
    assert abs(drawn.mean() - total_variance(RLOO, 8, rates, 1.0, 2.0)) < 4 * drawn.std() / np.sqrt(6000)


@pytest.mark.parametrize("name", HISTOGRAMS)
@pytest.mark.parametrize("nuisance", [0.0, 0.3, 10.0])
@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_integer_optimum_is_the_brute_force_one_and_a_neighbour_of_the_real_one(name, nuisance, rho):
    terms = budget_terms(HISTOGRAMS[name], rho, nuisance)
    best = integer_best(terms)
    assert HISTOGRAMS[name].chances.sum() == pytest.approx(1)
    assert best == min(range(2, 400), key=lambda size: predicted(size, terms))
    real = 1 + np.sqrt(terms[2] / terms[0])
    assert best in (floor(real), ceil(real))


def test_integer_optimum_takes_the_smaller_of_two_equals():
    """K(K-1) = bend/slope exactly: K and K+1 are equally good."""
    terms = (1.0, 0.0, 12.0, 0.0)
    assert predicted(4, terms) == pytest.approx(predicted(5, terms))
    assert integer_best(terms) == 4


def test_a_whole_epoch_in_one_batch_has_no_noise_between_contexts():
    rates = np.arange(5.0)
    assert np.ptp(rates[batches(5, 5, 0, 0, 20)].mean(axis=1)) < 1e-15


def test_without_replacement_every_split_gains_nearly_the_same():
    """N times the noise between contexts of all batches of N/K of 7 is still a straight line in K, 7/6 as steep as
    with replacement."""
    means, budget = effective.POPULATION, 12
    sizes = np.array([2, 3, 4, 6])
    noise = [
        budget * means[np.array(list(combinations(range(7), budget // size)))].mean(axis=1).var() for size in sizes
    ]
    np.testing.assert_allclose(noise, means.var() * (7 * sizes - budget) / 6)


def test_variance_curves():
    _, table = page.variance_figure()
    assert list(table.columns) == ["case", "K", "variance", "best", "optimum"]
    for _, case in table.groupby("case"):
        assert list(case["K"]) == list(range(1, 33)) and case["best"].sum() == 1
        least = case.loc[case["K"] > 1].set_index("K")["variance"].idxmin()
        assert abs(least - case["optimum"].iloc[0]) < 1
    uniform = table[table["case"].str.startswith("uniform")].set_index("K")["variance"]
    assert uniform[[1, 2, 4, 8]].tolist() == pytest.approx([0.0556, 0.1111, 0.0778, 0.0873], abs=5e-5)


def test_replayed_windows_keep_the_order_of_visits():
    visits = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    pool = replayed(visits)
    np.testing.assert_array_equal(pool.rewards.reshape(2, 3), visits)
    np.testing.assert_array_equal(pool.starts, [0, 3, 6])


def test_old_rates_stop_where_they_are_no_pass_rates():
    np.testing.assert_allclose(old_rates(0.35, 0.1, 9), [0.25, 0.15, 0.05])
    np.testing.assert_allclose(old_rates(0.85, -0.1, 9), [0.95])


@pytest.mark.parametrize(
    ("p", "drift", "m"), [(0.9, 0.02, 1), (0.5, 0.02, 8), (0.7, 0.03, 4), (0.4, -0.04, 6), (0.1, -0.02, 1)]
)
def test_longest_useful_window_crosses_the_last_visit_alone(p, drift, m):
    limit = longest_useful(p, drift, m)
    alone, inside, outside = window_error(p, drift, m, np.array([1, floor(limit), floor(limit) + 1]))
    assert inside <= alone < outside
    assert limit == pytest.approx(2 * np.sqrt(p * (1 - p) / m) / abs(drift), rel=0.25)


def test_a_pass_rate_that_rose_to_three_quarters_has_no_window_too_long_at_one_rollout_a_visit():
    """From 0, in steps of any size; 3/4 is exact, where two steps took it there."""
    for p in np.linspace(0.05, 0.75, 15):
        for visits in range(2, 80):
            errors = window_error(p, p / visits, 1, np.arange(1, visits + 1))
            assert errors.max() <= errors[0] * (1 + 1e-12)
    for p, visits in ((0.76, 2), (0.81, 60)):
        errors = window_error(p, p / visits, 1, np.arange(1, visits + 1))
        assert errors[-1] > errors[0]


def test_worth_of_the_best_window_approaches_two_thirds_of_its_rollouts():
    ratios = [
        worth(0.5, drift, 1) / (0.25 / window_error(0.5, drift, 1, np.arange(1, 400)).min()) for drift in (0.008, 0.001)
    ]
    assert abs(ratios[1] - 1) < 0.01 and abs(ratios[1] - 1) < abs(ratios[0] - 1)


def test_stale_bias_bound_can_be_broken_by_a_smaller_constant():
    """The bound 2 sqrt(2) TV max|A| is within a factor of 4 of the bias somewhere: it is not vacuous."""
    now, old = softmax_policy([0.0, 8.0], [1, 0]), softmax_policy([8.0, 0.0], [1, 0])
    weight = np.array([[1.0], [0.0]])
    biased, _ = replay.weighted_moments(now._replace(probs=old.probs), np.array([[0], [1]]), weight)
    distance = np.abs(now.probs - old.probs).sum() / 2
    assert np.linalg.norm(biased - now.gradient) > 0.25 * 2 * np.sqrt(2) * distance


def test_replay_curves():
    _, table = page.replay_figure()
    assert list(table.columns) == ["drift", "window", "mse", "best", "useful"]
    for drift, part in table.groupby("drift"):
        assert part["best"].sum() == 1
        least = part.loc[part["best"], "window"].item()
        assert least in (floor(best_length(0.5, drift, 4)), ceil(best_length(0.5, drift, 4)))
        np.testing.assert_allclose(part["mse"], window_error(0.5, drift, 4, part["window"].to_numpy()), rtol=1e-10)
    assert table[table["useful"]].groupby("drift")["window"].max()[0.03] == floor(longest_useful(0.5, 0.03, 4))
