"""Dynamics: exact expectations agree with the simulator, flows with integration, and bounds hold."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit, gamma, logit

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.kl import KL
from rftlab.studies.theory import dynamics, models
from rftlab.studies.theory.dynamics import (
    fixed_point,
    forward_kl_point,
    never_solved,
    rounds_for_first_success,
    with_kl,
)
from rftlab.studies.theory.models import GRPO, MEAN, RAW, RLOO, Learners, arms_speed, expected_step, two_arms


@pytest.mark.parametrize("estimator", [RAW, MEAN, GRPO], ids=["raw", "group mean", "GRPO"])
def test_simulated_learners_take_the_expected_step(estimator):
    many = Learners(*two_arms([0.2, 0.6], 4000), estimator, 4, rate=1.0)
    before = many.theta()
    many.advance(1)
    step = (many.theta() - before).reshape(2, 4000)
    z = (step.mean(axis=1) - 2 * expected_step(estimator, 4, before[[0, -1]])) / (step.std(axis=1) / np.sqrt(4000))
    assert np.abs(z).max() < 4 and np.abs(z).max() > 0


def test_simulated_learners_are_independent():
    many = Learners(*two_arms(0.5, 4000), RAW, 1, rate=0.0)
    many.advance(1)
    first = many.rewards()[:, 0]
    many.advance(1)
    second = many.rewards()[:, 0]
    for a, b in ((first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(4000)


def test_time_to_learn_agrees_with_an_integrated_flow():
    def flow(_, theta):
        return expected_step(GRPO, 4, theta)

    end = models.time_to_learn(lambda theta: expected_step(GRPO, 4, theta), 0.05, 0.7)
    found = solve_ivp(flow, (0, end), [logit(0.05)], rtol=1e-9, atol=1e-10).y[0, -1]
    np.testing.assert_allclose(found, logit(0.7), rtol=1e-7)


def test_durations_add_up_and_change_sign():
    theta = np.array([-5.0, -4.9, 0.0, 3.0])
    parts = models.durations(np.ones_like, theta)
    np.testing.assert_allclose(parts, np.diff(theta), rtol=1e-13)
    np.testing.assert_allclose(models.durations(np.ones_like, theta[::-1]), -parts[::-1], rtol=1e-13)


def test_the_natural_gradient_does_not_see_the_number_of_arms():
    theta = np.array([-3.0, 1.0])
    for arms in (2, 5):
        np.testing.assert_allclose(arms_speed(theta, RAW, arms, natural=True), 1.0, rtol=1e-10)
        np.testing.assert_allclose(
            arms_speed(theta, RAW, arms), expit(theta) * expit(-theta) * arms / (arms - 1), rtol=1e-10
        )


def test_a_bounded_k3_has_no_ceiling_where_the_bound_cuts_the_penalty():
    edge = 0.0735
    for beta in (0.01, 0.05, 0.07, 0.08, 0.1, 0.5):
        target = forward_kl_point(beta, 0.2)
        inside = (1 - target) / 0.8 > edge
        assert fixed_point(with_kl("k3", beta), 1, 0.2) == pytest.approx(target if inside else 1.0, abs=1e-10)


def test_no_penalty_has_no_fixed_point():
    assert fixed_point(RAW, 1, 0.2) == 1.0
    assert fixed_point(with_kl("k1", 0.5), 1, 0.2) == 1.0
    straight = replace(RAW, kl=KL("k3", 0.3, straight_through=True))
    np.testing.assert_allclose(fixed_point(straight, 1, 0.2), expit(logit(0.2) + 1 / 0.3), rtol=1e-10)


@pytest.mark.parametrize(
    ("p0", "batch_size", "rollouts", "delta"), [(0.01, 8, 4, 0.05), (0.2, 1, 1, 0.01), (0.001, 32, 1, 0.5)]
)
def test_planned_rounds_are_the_fewest(p0, batch_size, rollouts, delta):
    n = rounds_for_first_success(p0, batch_size, rollouts, delta)
    assert (1 - p0) ** (batch_size * rollouts * n) <= delta < (1 - p0) ** (batch_size * rollouts * (n - 1))


def test_the_share_never_solved_falls_as_a_power():
    a, b, n = 0.2, 0.6, 1e6
    np.testing.assert_allclose(never_solved(a, b, n), gamma(a + b) / gamma(b) * n**-a, rtol=1e-5)
    assert never_solved(0.5, 1.5, 1) == pytest.approx(0.75)


def test_centred_weights_sum_to_zero_so_no_update_lowers_a_tabular_pass_rate():
    guarded = replace(RAW, advantage=Advantage("group_mean", "group_std", ddof=0))
    for estimator in (MEAN, RLOO, guarded):
        assert dynamics.falls(estimator, 3, 3, rounds=30) == 0.0
    assert dynamics.falls(RAW, 3, 3, rounds=30) > 1e-3
    assert dynamics.falls(MEAN, 3, 3, rounds=30, support=2) > 1e-4


def test_pushing_a_wrong_arm_down_can_lift_another_wrong_arm():
    """With a baseline b, a failure moves logits by -b (e_a - pi), which raises each other logit by b times its own
    probability."""
    pi = np.array([0.05, 0.05, 0.9])
    moved = np.log(pi) - 0.1 * (np.array([0, 1, 0]) - pi)
    assert np.exp(moved[0]) / np.exp(moved).sum() < pi[0]
    assert dynamics.falls(MEAN, 1, 1, rounds=30, support=7) > 1e-4


def test_plateau_times_keep_the_order_of_base_pass_rates():
    times = dynamics.plateau_times(np.array([0.1, 0.001, 0.01]))
    for name in times:
        assert times[name][1] > times[name][2] > times[name][0]
