"""Batched regret: exact exponents, and the exact recursion against brute force."""

import numpy as np
import pytest

from rftlab.studies.theory import regret
from rftlab.studies.theory.check import INCONCLUSIVE
from rftlab.studies.theory.regret import (
    DIMENSIONS,
    drawn_regret,
    eliminated_regret,
    equal_grid,
    expected_regret,
    fitted_policy,
    geometric_grid,
    guessed_regret,
    minimax_grid,
    missed,
    regret_exponent,
    regularised_objective,
    spaced_gaps,
    tilted,
    worst_case,
    worst_regret,
)

HORIZONS = np.logspace(4, 12, 9)


def slope(values, horizons=HORIZONS):
    return np.polyfit(np.log(horizons), np.log(values), 1)[0]


@pytest.mark.parametrize(
    ("batches", "printed", "theory"), [(2, 0.6667, 2 / 3), (3, 0.577, 0.571), (4, 0.535, 0.533), (5, 0.513, 0.516)]
)
def test_exact_exponents_on_the_minimax_grid(batches, printed, theory):
    log = np.sqrt(np.log(2 * HORIZONS)) if batches > 2 else np.ones(9)
    found = slope([worst_regret(minimax_grid(horizon, batches))[0] for horizon in HORIZONS] / log)
    assert found == pytest.approx(printed, abs=0.002)
    assert regret_exponent(batches) == pytest.approx(theory, abs=5e-4)


@pytest.mark.parametrize(("batches", "printed"), [(3, 0.345), (4, 0.252)])
def test_exact_exponents_on_the_geometric_grid(batches, printed):
    weighted = [
        (spaced_gaps(h, 400) * expected_regret(spaced_gaps(h, 400), geometric_grid(h, batches))).max() for h in HORIZONS
    ]
    assert slope(weighted / np.log(2 * HORIZONS)) == pytest.approx(printed, abs=0.002)


@pytest.mark.parametrize(("batches", "printed"), [(2, 50), (3, 26.2), (4, 9.2), (5, 5.8), (6, 4.95)])
def test_worst_regret_at_a_trillion_steps(batches, printed):
    assert worst_regret(minimax_grid(1e12, batches))[0] / 1e6 == pytest.approx(printed, rel=0.011)


@pytest.mark.parametrize(("batches", "printed"), [(1, 1.000), (2, 0.660), (3, 0.560), (4, 0.519), (5, 0.508)])
def test_exact_exponents_of_pure_exploitation(batches, printed):
    horizons = np.logspace(4, 9, 6)
    worst = [
        regret.exploited_regret(np.geomspace(h**-0.6, 1, 200), minimax_grid(h, batches), DIMENSIONS).max()
        for h in horizons
    ]
    assert slope(worst, horizons) == pytest.approx(printed, abs=0.001)


def test_the_worst_case_of_few_batches_is_the_longest_theta():
    norms = np.geomspace(1e-4, 1, 100)
    assert regret.exploited_regret(norms, minimax_grid(1e6, 3), DIMENSIONS).argmax() == 99


def test_grids_end_at_the_horizon():
    for grid in (minimax_grid, geometric_grid, equal_grid):
        ends = grid(1e6, 5)
        assert ends.size == 5 and ends[-1] == pytest.approx(1e6) and np.all(np.diff(ends) > 0)
    np.testing.assert_allclose(minimax_grid(1e6, 4)[1:], minimax_grid(1e6, 4)[0] * np.sqrt(minimax_grid(1e6, 4)[:-1]))


def slow_regret(gap, ends, runs, rng):
    """Every reward drawn, one arm pull after the other."""
    regrets = []
    for _ in range(runs):
        good, bad, arms, pulls, start, regret = [], [], {"good", "bad"}, 0, 0, 0.0
        for m, end in enumerate(ends):
            count = int(end - start) // len(arms)
            if "good" in arms:
                good += list(rng.standard_normal(count))
            if "bad" in arms:
                bad += list(rng.standard_normal(count) - gap)
                regret += gap * count
            pulls, start = end / 2, end
            if len(arms) == 2 and m < len(ends) - 1:
                ahead = np.mean(good) - np.mean(bad)
                if m == len(ends) - 2 or abs(ahead) >= np.sqrt(2 * np.log(2 * ends[-1]) / pulls):
                    arms = {"good"} if ahead > 0 else {"bad"}
        regrets.append(regret)
    return np.array(regrets)


@pytest.mark.parametrize("gap", [0.15, 0.5])
def test_batch_sums_and_the_recursion_agree_with_single_rewards(gap):
    ends, rng = np.array([20.0, 60.0, 140.0, 300.0]), np.random.default_rng(0)
    slow, fast = slow_regret(gap, ends, 3000, rng), eliminated_regret(np.array([gap]), ends, 100_000, rng)[:, 0]
    expected = expected_regret(np.array([gap]), ends)[0]
    for values in (slow, fast):
        assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(values.size)
    assert expected_regret(np.array([gap]), ends, nodes=200)[0] == pytest.approx(expected, rel=1e-12)


def test_two_batches_explore_then_commit():
    from scipy.special import ndtr

    gaps, ends = np.array([0.01, 0.1, 1.0]), np.array([300.0, 5000.0])
    np.testing.assert_allclose(
        expected_regret(gaps, ends), gaps * (150 + 4700 * ndtr(-gaps * np.sqrt(300) / 2)), rtol=1e-12
    )
    np.testing.assert_allclose(expected_regret(gaps, ends[:1]), gaps * 150)


@pytest.mark.parametrize("dimensions", [2, 5, 40])
def test_missed_is_the_expected_angle_loss(dimensions):
    rng = np.random.default_rng(1)
    for signal in (0.0, 0.7, 3.0, 20.0):
        guess = rng.standard_normal((200_000, dimensions))
        guess[:, 0] += signal
        loss = 1 - guess[:, 0] / np.linalg.norm(guess, axis=1)
        assert abs(loss.mean() - missed(signal, dimensions)) < 4 * loss.std() / np.sqrt(loss.size) + 1e-12
    assert missed(1e3, dimensions) == pytest.approx((dimensions - 1) / 2e6, rel=1e-4)


def test_chosen_contexts_keep_the_identity_as_second_moment():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 400_000, 3))
    chosen = np.where((a @ [1.0, 2.0, -1.0] > b @ [1.0, 2.0, -1.0])[:, None], a, b)
    np.testing.assert_allclose(chosen.T @ chosen / len(chosen), np.eye(3), atol=0.01)


def test_drawn_and_guessed_contexts_agree():
    rng, ends = np.random.default_rng(3), np.array([400.0, 500.0])
    drawn = drawn_regret(0.2, ends, 3, 2000, rng)
    guessed = guessed_regret(np.array([0.2]), ends, 3, 20_000, rng)
    assert abs(drawn.mean() - guessed.mean()) < 4 * drawn.std() / np.sqrt(drawn.size)
    expected = regret.exploited_regret(np.array([0.2]), ends, 3)[0]
    assert abs(guessed.mean() - expected) < 4 * guessed.std() / np.sqrt(guessed.size)


def test_worst_of_measures_on_runs_that_did_not_choose():
    samples = np.zeros((4, 2))
    samples[:2, 1] = 5.0
    np.testing.assert_array_equal(worst_case(samples), [0.0, 0.0])


def test_tilted_policy_is_the_maximiser():
    rng = np.random.default_rng(4)
    reference, rewards = rng.dirichlet(np.ones(5)), rng.random(5)
    best = regularised_objective(tilted(reference, rewards, 0.3), reference, rewards, 0.3)
    assert np.all(regularised_objective(rng.dirichlet(np.ones(5), size=500), reference, rewards, 0.3) < best)
    assert best == pytest.approx(0.3 * np.log((reference * np.exp(rewards / 0.3)).sum()))


def test_an_arm_never_pulled_counts_as_one_half():
    policy = fitted_policy(
        np.array([0.5, 0.5]), np.array([1.0, 1.0]), 1.0, np.array([[3, 0]]), np.random.default_rng(0)
    )
    np.testing.assert_allclose(policy, tilted(np.array([0.5, 0.5]), np.array([1.0, 0.5]), 1.0)[None])


def test_too_few_runs_are_inconclusive_not_passed():
    from rftlab.studies.theory.check import sampled

    ends = minimax_grid(1e12, 4)
    worst, gap = worst_regret(ends)
    regret = eliminated_regret(np.array([gap]), ends, 100, np.random.default_rng(0))
    assert sampled("R", worst, regret).verdict == INCONCLUSIVE
