"""Baselines from elsewhere: the optimal one against theory, the greedy response, the critic."""

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.sim.state import no_totals
from tests.support.worlds.small_worlds import equal_world, gradients, learner_of, seen, softmax, styled, z_scores


def estimator_of(baseline, **more):
    return Estimator(Advantage(baseline, **more), Reinforce())


def latest(learner, round_index=0):
    """The baseline of each context of a round, with the context."""
    assert learner.advance(round_index, 1, no_totals()) == 1
    found = seen(learner)
    first = found.first[:-1]
    for a, b in zip(first, found.first[1:], strict=True):
        assert len(set(found.given[a:b])) == 1
    return found.context, found.given[first]


@pytest.mark.parametrize("arms", [2, 5])
def test_one_right_arm_among_equals_has_the_optimal_baseline_of_the_theory(arms):
    """A p q / (A - 2 + A p); for two arms 1 - p, not p."""
    p = 0.3
    world = equal_world(np.log([p, *[(1 - p) / (arms - 1)] * (arms - 1)]), np.arange(arms) == 0)
    _, found = latest(learner_of(world, estimator_of("optimal")))
    np.testing.assert_allclose(found, arms * p * (1 - p) / (arms - 2 + arms * p), rtol=1e-12)


@pytest.mark.parametrize("tokens", [0, 6])
def test_no_other_baseline_has_a_lower_variance(tokens):
    """The variance exceeds the least one by (b - b*)^2 E|s|^2, without a baseline and with that of the average
    reward."""
    logits, right = np.array([0.5, -0.3, 0.8, 0.0]), np.array([True, False, True, False])
    plain = equal_world(logits, right, 0.6)
    world, p = styled(plain, tokens) if tokens else plain, softmax(logits)
    squares = 1 - 2 * p + p @ p + 4 * 0.6**2
    best, total = (p * right * squares).sum() / (p * squares).sum(), (p * squares).sum()
    rounds = 200
    found = {baseline: gradients(learner_of(world, estimator_of(baseline)), rounds) for baseline in ("none", "optimal")}
    norms = {baseline: (found[baseline] ** 2).sum(axis=1) for baseline in found}
    norms["greedy"] = (gradients(learner_of(world, estimator_of("greedy")), rounds) ** 2).sum(axis=1)
    for baseline, value in (("none", 0.0), ("greedy", 1.0)):
        extra = norms[baseline] - norms["optimal"]
        assert z_scores(extra, (value - best) ** 2 * total) < 4.5
        assert z_scores(extra, 0.0) > 10
    assert z_scores(found["none"] - found["optimal"], 0.0).max() < 4.5


@pytest.mark.parametrize(("base_format", "expected"), [(0.1, 1.0), (-0.1, 0.0)])
def test_the_greedy_reward_is_that_of_the_most_likely_response(base_format, expected):
    world = equal_world(np.array([1.0, 0.0]), [True, False], base_format=base_format, format_scale=1.0)
    assert set(latest(learner_of(world, estimator_of("greedy")))[1]) == {expected}


def test_the_greedy_response_is_charged():
    world = styled(equal_world(np.array([1.0, 0.0]), [True, False]), 7)
    for baseline, extra in (("none", 0), ("greedy", 1)):
        learner = learner_of(world, estimator_of(baseline), 2)
        latest(learner)
        assert learner.memory.spent.tolist() == [256 * (2 + extra), 256 * (2 + extra) * 8, 1]


def test_the_critic_learns_the_mean_reward_of_a_context():
    """With nothing else that moves, its mean is the pass rate and its variance rate / (2 - rate) p (1 - p) / K."""
    logits, right, rate = np.array([0.5, -0.3, 0.8]), np.array([True, False, False]), 0.2
    learner, p = (
        learner_of(equal_world(logits, right), estimator_of("value"), 4, rate=0.0, critic_learning_rate=rate),
        softmax(logits)[0],
    )
    for round_index in range(60):
        _, found = latest(learner, round_index)
        if round_index == 0:
            assert np.all(found == 0)
    assert z_scores(found, p) < 4.5 and z_scores(found, p + 0.05) > 4.5
    assert z_scores((found - p) ** 2, rate / (2 - rate) * p * (1 - p) / 4) < 4.5
