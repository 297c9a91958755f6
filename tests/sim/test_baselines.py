"""Baselines from elsewhere: the optimal one against enumeration, the greedy response, the critic, the moving
average."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.shared.memory import add, empty_averages, read_averages
from rftlab.sim.config import Optimizer
from rftlab.sim.environments import build
from rftlab.sim.run import GeneralLearner
from rftlab.sim.state import no_totals
from rftlab.sim.world import NO_STYLE, make_contexts
from tests.support.worlds.general import styled_run
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import (
    equal_world,
    gradients,
    learner_of,
    mixed_world,
    places_of,
    seen,
    softmax,
    styled,
    z_scores,
)


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


def policy_of(world, context, w, theta_f):
    x = (
        world.train.features[context].astype(np.float64)
        if world.train.features.size
        else np.eye(len(world.train.base_format))[context]
    )
    f = 1 / (1 + np.exp(-(float(world.train.base_format[context]) + world.format_scale * theta_f)))
    return x, softmax(world.train.base_logits[context, : world.n_arms].astype(np.float64) + x @ w), f


def every_response(world, context, p, f):
    """Probability and reward of each answer with each format, with its score in the logits and in the format's
    logit."""
    for arm in range(world.n_arms):
        for form in (0, 1):
            right = form * (int(world.train.correct[context]) >> arm & 1)
            yield p[arm] * (f if form else 1 - f), right, np.eye(world.n_arms)[arm] - p, form - f


def enumerated(world, context, w, theta_f, kind):
    """The baseline by enumeration; the score of the nuisance adds its expected square. `wrong` has E[r] in the
    denominator."""
    x, p, f = policy_of(world, context, w, theta_f)
    chance, reward, logits, form = (
        np.array(column) for column in zip(*every_response(world, context, p, f), strict=True)
    )
    if kind == "greedy":
        return reward[chance.argmax()]
    squares = np.array([(np.outer(x, score) ** 2).sum() for score in logits]) + (world.format_scale * form) ** 2
    squares += world.n_arms * world.nuisance**2 * (x @ x) if kind != "no nuisance" else 0.0
    return (chance * reward * squares).sum() / max(1e-9, (chance * (reward if kind == "wrong" else squares)).sum())


def moved(baseline, environment):
    """A learner at parameters away from the base policy, with its world and parameters."""
    run = styled_run(
        advantage=Advantage(baseline), design=replace(styled_run().design, batch_size=15, epochs=1, minibatches=1)
    )
    world = mixed_world()._replace(style=NO_STYLE) if environment == "tabular" else build(SMALL)
    run = replace(run, environment=SMALL if environment == "linear" else run.environment)
    learner, rng = GeneralLearner(run, world), np.random.default_rng(2)
    shape = (15, 5) if environment == "tabular" else (32, 6)
    w, theta_f = 0.5 * rng.standard_normal(shape), 0.02
    learner.state.theta[places_of(world)], learner.state.theta[-1] = w, theta_f
    return learner, world, w, theta_f


@pytest.mark.parametrize("environment", ["tabular", "linear"])
def test_the_optimal_baseline_is_that_of_enumeration(environment):
    learner, *rest = moved("optimal", environment)
    context, found = latest(learner)
    for kind, holds in (("optimal", True), ("no nuisance", False), ("wrong", False)):
        expected = [enumerated(rest[0], c, *rest[1:], kind) for c in context]
        assert (np.abs(found - expected).max() < (1e-12 if environment == "tabular" else 1e-6)) == holds
    assert np.ptp(found) > 0.1


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


def test_the_greedy_reward_is_that_of_the_most_likely_response():
    for environment in ("tabular", "linear"):
        learner, *rest = moved("greedy", environment)
        context, found = latest(learner)
        np.testing.assert_array_equal(found, [enumerated(rest[0], c, *rest[1:], "greedy") for c in context])
        assert set(found) == {0.0, 1.0}
    for base_format, expected in ((0.1, 1.0), (-0.1, 0.0)):
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


def test_a_linear_critic_takes_off_its_part_of_an_error_and_learns_what_it_can():
    """Where every response is right the critic's value is 1 everywhere; one visit takes away `critic_learning_rate`
    of a context's error."""
    linear = build(SMALL)
    train = make_contexts(
        linear.train.features,
        linear.train.base_logits,
        np.full(40, 50.0, dtype=np.float32),
        np.ones((40, 6), dtype=bool),
    )
    world = linear._replace(train=train)
    run = replace(
        styled_run(advantage=Advantage("value")),
        environment=SMALL,
        optimizer=Optimizer(learning_rate=0.0),
        critic_learning_rate=0.3,
    )
    run = replace(run, design=replace(run.design, batch_size=1, epochs=1, minibatches=1))
    learner, features = GeneralLearner(run, world), np.hstack([train.features, np.ones((40, 1))]).astype(np.float64)
    for round_index in range(1200):
        before = learner.memory.critic.copy()
        context, found = latest(learner, round_index)
        np.testing.assert_allclose(found, features[context] @ before, atol=1e-12)
        np.testing.assert_allclose(1 - features[context] @ learner.memory.critic, 0.7 * (1 - found), atol=1e-12)
    np.testing.assert_allclose(features @ learner.memory.critic, 1.0, atol=0.02)
    assert np.abs(features @ learner.memory.critic - 1.0).max() > 1e-9


def test_the_moving_average_is_that_of_the_contexts_earlier_rewards():
    decay = 0.7
    run = styled_run(advantage=Advantage("moving_average", decay=decay))
    learner, sums, fresh = GeneralLearner(run, mixed_world()), empty_averages(15), []
    for round_index in range(8):
        context, found = latest(learner, round_index)
        np.testing.assert_allclose(found, read_averages(sums, context), rtol=1e-14)
        fresh.append(set(found[sums[context, 1] == 0]))
        latest_seen = seen(learner)
        for one, a, b in zip(context, latest_seen.first, latest_seen.first[1:], strict=False):
            add(sums, [one], latest_seen.reward[None, a:b], decay)
    assert fresh[0] == {0.0} and len(fresh[1]) == 1 and min(fresh[1]) > 0, "a new context has the average of all"
    np.testing.assert_allclose(learner.memory.averages, sums, rtol=1e-14)
    assert sums[:, 1].max() < 15 * 4 * 8
