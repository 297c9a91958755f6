"""Batched regret: exact exponents of the recursion, and what no check of the theory measures."""

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
