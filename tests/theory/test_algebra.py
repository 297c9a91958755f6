"""Estimator algebra: every check passes, its mutant fails, printed decimals are reproduced, and the exact worlds
agree with brute force."""

import numpy as np
import pytest
from scipy.special import beta
from scipy.stats import binom

from rftlab.shared.config.advantage import Advantage
from rftlab.studies.theory import algebra, page
from rftlab.studies.theory.algebra import BEST_MINUS_SECOND, SLOPE, P, pkpo
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    all_groups,
    along_gradient,
    beta_rates,
    binomial,
    by_count,
    constant,
    gradient_moments,
    limit_factor,
    logit_moments,
    measured_factor,
    one_correct,
    one_logit,
    reinforce_with,
    softmax_policy,
    weights,
    zscore,
    zscore_factor,
)
from tests.support.theory import expected


@pytest.mark.parametrize(
    ("check", "name", "printed"),
    [
        ("T3", "W(0.05), K=8, ddof 1", 2.3133),
        ("T3", "W(0.2), K=8, ddof 1", 1.9707),
        ("T3", "W(0.5), K=8, ddof 1", 1.73581),
        ("T4", "W(.05)/W(.5), K=4", 1.058),
        ("T4", "W(.05)/W(.5), K=8", 1.333),
        ("T5", "p=.95, K=8", 0.66342),
        ("T5", "Beta(0.5, 1.5), K=8", 0.3928),
        ("T5", "Beta(0.2, 0.6), K=64", 0.3610),
        ("T6", "batch std of rewards", 0.500),
        ("T6", "batch std of advantages", 0.3536),
        ("T7", "dJ/dtheta", 0.0363),
        ("T7", "step of GRPO, K=4", 0.0333),
        ("T7", "step of GRPO, K=8", -0.0605),
        ("T7", "step of GRPO, K=64", -0.427),
        ("T7", "step of GRPO, K -> inf", -0.481),
    ],
)
def test_printed_decimals(check, name, printed):
    half = 0.5 * 10.0 ** -len(str(printed).split(".")[1])
    assert expected(check)[name] == pytest.approx(printed, abs=1.001 * half)


def test_the_two_contexts_have_the_stated_logits():
    step = 1e-6
    ahead, behind = (1 / (1 + np.exp(-np.array([theta, -4.5 * theta - np.log(19)]))) for theta in (step, -step))
    np.testing.assert_allclose((ahead + behind) / 2, P, atol=1e-9)
    np.testing.assert_allclose((ahead - behind) / (2 * step), SLOPE * P * (1 - P), rtol=1e-8)


def test_scores_are_the_derivatives_of_log_probabilities():
    logits, step = np.array([0.3, -0.2, 0.9]), 1e-6
    for i in range(3):
        up, down = (np.log(softmax_policy(logits + sign * step * np.eye(3)[i], [1, 0, 0]).probs) for sign in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * step), softmax_policy(logits, [1, 0, 0]).scores[:, i], atol=1e-9)


def test_policies_have_the_stated_pass_rate():
    assert one_correct(5, 0.3).pass_rate == pytest.approx(0.3)
    assert np.ptp(one_correct(5, 0.3).probs[1:]) < 1e-15
    assert one_logit(0.3).gradient == pytest.approx([0.21])
    assert np.linalg.norm(one_correct(2, 0.3).gradient) == pytest.approx(0.21 * np.sqrt(2))


@pytest.mark.parametrize(
    "estimator",
    [RAW, MEAN, RLOO, zscore(0), zscore(1)],
    ids=lambda e: f"{e.advantage.baseline}-{e.advantage.scale}{e.advantage.ddof}",
)
def test_weights_follow_their_definitions(estimator):
    advantage = estimator.advantage
    rewards = np.random.default_rng(0).integers(0, 2, (20, 5)).astype(float)
    mean, std = rewards.mean(axis=1, keepdims=True), rewards.std(axis=1, ddof=advantage.ddof, keepdims=True)
    centred = rewards - mean
    expected = {
        ("none", "none"): rewards,
        ("group_mean", "none"): centred,
        ("leave_one_out", "none"): centred * 5 / 4,
        ("group_mean", "group_std"): np.where(std > 0, centred / np.where(std > 0, std, 1), 0),
    }
    np.testing.assert_allclose(
        weights(estimator, rewards), expected[advantage.baseline, advantage.scale] / 5, atol=1e-15
    )


def test_weights_take_a_baseline_set_and_a_correction():
    rewards = np.array([[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(weights(MEAN, rewards, constant(0.3)), (rewards - 0.3) / 2)
    np.testing.assert_allclose(
        weights(MEAN, rewards, np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])), (rewards - [[0.25], [1.0]]) / 2
    )
    np.testing.assert_allclose(
        weights(RAW, rewards, correction=np.array([[3.0, 1.0], [1.0, 1.0]])), rewards * [[3.0, 1.0]] / 2
    )


@pytest.mark.parametrize(
    "advantage", [RAW, RLOO, zscore(1)], ids=lambda e: f"{e.advantage.baseline}-{e.advantage.scale}"
)
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_counts_agree_with_the_enumeration_of_all_groups(advantage, p):
    size = 6
    mean, spread = gradient_moments(one_logit(p), advantage, size)
    by = logit_moments(by_count(advantage, size), p)
    assert by[0] == pytest.approx(mean[0], rel=1e-12)
    assert by[1] - by[0] ** 2 == pytest.approx(spread, rel=1e-11)
    rewards = all_groups(2, size).astype(float)
    chance = np.where(rewards == 1, p, 1 - p).prod(axis=1)
    assert by[2] == pytest.approx(chance @ (weights(advantage, rewards) ** 2).sum(axis=1), rel=1e-12)


def test_moments_agree_with_sampling():
    policy, size, n = softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1]), 3, 40_000
    mean, spread = gradient_moments(policy, RLOO, size)
    arms = np.random.default_rng(1).choice(4, p=policy.probs, size=(n, size))
    drawn = np.einsum("nk,nkd->nd", weights(RLOO, policy.correct[arms]), policy.scores[arms])
    assert np.abs((drawn.mean(axis=0) - mean) / (drawn.std(axis=0) / np.sqrt(n))).max() < 4
    assert drawn.var(axis=0).sum() == pytest.approx(spread, rel=0.03)


def test_factor_of_separates_direction_and_length():
    policy = softmax_policy([0.3, -0.2, 0.9], [1, 0, 0])
    across = np.cross(policy.gradient, [1.0, 2.0, 5.0])
    across *= np.linalg.norm(policy.gradient) / np.linalg.norm(across)
    assert along_gradient(policy, 3 * policy.gradient + 0.5 * across) == pytest.approx((3.0, 0.5))


def test_binomial_is_scipys():
    np.testing.assert_allclose(
        binomial(64, [0.05, 0.5]), [binom.pmf(np.arange(65), 64, p) for p in (0.05, 0.5)], rtol=1e-11
    )


@pytest.mark.parametrize(("a", "b"), [(0.5, 1.5), (0.2, 0.6), (8, 24), (1, 3)])
def test_beta_moments_are_exact(a, b):
    rates = beta_rates(a, b)
    for order in (1, 2, 3, 30):
        assert rates.mean(lambda p, q, order=order: p**order) == pytest.approx(
            beta(a + order, b) / beta(a, b), rel=1e-10
        )
    assert rates.mean(lambda p, q: p * q) == pytest.approx(a * b / ((a + b) * (a + b + 1)), rel=1e-12)


def test_the_limit_is_extrapolated_to_a_thousandth_where_it_is_used():
    p = np.array([0.05, 0.1, 0.5])
    np.testing.assert_allclose(limit_factor(zscore(1), p) * np.sqrt(p * (1 - p)), 1, rtol=1e-3)
    assert abs(measured_factor(zscore(1), 512, 0.05) * np.sqrt(0.0475) - 1) > 3e-3


def test_grpo_weight_bounds_hold_and_are_not_loose():
    p = np.geomspace(1e-4, 0.5, 200)
    for size in (2, 3, 5, 16):
        bound = np.minimum(np.sqrt(size - 1), np.sqrt((size - 1) / (size * p * (1 - p))))
        ratio = zscore_factor(size, p, 0) / bound
        assert ratio.max() <= 1 + 1e-12 and ratio.min() > 0.75


def test_batch_mean_factor_by_hand():
    """Two contexts, one rollout each: A_1 = r_1 - (r_1 + r_2)/2, so the factor is 1/2."""
    assert algebra.batch_factors(reinforce_with(Advantage("batch_mean")), (0.2, 0.7), 1) == pytest.approx([0.5, 0.5])


def test_pkpo_rewards_average_to_the_unbiased_pass_at_k():
    """Their sum over a group with c right of n is k times 1 - C(n-c, k)/C(n, k)."""
    right = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    estimate = [0.0, 0.6, 0.9, 1.0]
    np.testing.assert_allclose(weights(pkpo(3), right.astype(float)).sum(axis=1), 3 * np.array(estimate))
    assert not np.allclose(weights(pkpo(2), right.astype(float)).sum(axis=1), 3 * np.array(estimate))


def test_best_minus_second_best():
    groups = np.array([[0.0, 0, 0], [0, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(3 * weights(BEST_MINUS_SECOND, groups), [[0, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_weight_curves():
    _, table = page.weights_figure()
    assert list(table.columns) == ["K", "p", "W"] and list(table["K"].unique()) == ["2", "4", "8", "∞"]
    flat, infinite = (table[table["K"] == k].set_index("p")["W"] for k in ("2", "∞"))
    np.testing.assert_allclose(flat, np.sqrt(0.5))
    np.testing.assert_allclose(infinite, 1 / np.sqrt(infinite.index * (1 - infinite.index)))
    assert table.loc[(table["K"] == "8") & (table["p"] == 0.5), "W"].item() == pytest.approx(1.73581, abs=1e-5)
