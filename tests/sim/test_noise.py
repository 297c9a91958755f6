"""Answers of several tokens, surprise, interference, forgetting: against enumeration, and what they do."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build, tabular_world
from rftlab.sim.policy.common import base_logit_scale
from rftlab.sim.round.measures import pass_at_1
from rftlab.sim.round.plain import policy_forward
from rftlab.sim.run import PlainLearner, simulate
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from rftlab.sim.world import make_contexts
from tests.support.naive.simulator import NaiveRun
from tests.support.worlds.problems import PROBLEMS
from tests.support.worlds.simulations import CORRECT, DESIGNS, LOGITS, SMALL, UNBIASED, mean_gradient, run_of, z_scores
from tests.support.worlds.small_worlds import same, spelt_world

# --- enumeration ---


def answers_of(world):
    """All answers (n, T), as arms."""
    width = world.n_arms // world.answer_tokens
    return np.array(list(product(*(range(s * width, (s + 1) * width) for s in range(world.answer_tokens)))))


@jit
def _look(contexts, plan, theta, batch, work):
    policy_forward(contexts, plan, theta, batch, work)


def looked_at(environment):
    """Run, world and scratch after a look at all training contexts, the policy moved away from the base policy."""
    run, world = run_of(DESIGNS["raw"], environment), build(environment)
    state, work, plan = start_state(run, world), make_work(run, world), make_plan(run, world)
    state.theta[:-1] = 0.3 * np.random.default_rng(1).standard_normal(state.theta.size - 1)
    _look(world.train, plan, state.theta, np.arange(environment.n_train), work)
    return world, plan, state, work


@pytest.mark.parametrize("problem", ["two tokens", "three tokens"])
def test_probabilities_of_all_answers_sum_to_one_and_those_of_right_ones_to_pass_at_1(problem):
    world, plan, state, work = looked_at(PROBLEMS[problem])
    answers, n = answers_of(world), PROBLEMS[problem].n_train
    p = np.exp(work.logits[:n, answers].astype(np.float64).sum(axis=2) - work.lse[:n, None])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(p, work.probs[:n, answers].astype(np.float64).prod(axis=2), rtol=1e-4)
    base = np.exp(world.train.base_logits[:, answers].astype(np.float64).sum(axis=2) - world.train.base_lse[:, None])
    np.testing.assert_allclose(base.sum(axis=1), 1, rtol=1e-5)
    right = ((world.train.correct[:, None, None] >> answers.astype(np.uint32)) & 1).all(axis=2)
    assert np.all(right.sum(axis=1) == PROBLEMS[problem].n_styles ** PROBLEMS[problem].answer_tokens)
    found = pass_at_1(world.train, plan, state.theta, work, 0, False)
    chance = (p * right).sum(axis=1)
    np.testing.assert_allclose(found, ((chance * work.formed[:n]).mean(), chance.mean()), rtol=1e-5)


PAIRS = spelt_world(3, 2, 3, nuisance=0.0)._replace(format_scale=0.0)
PAIRS = PAIRS._replace(
    train=make_contexts(
        np.zeros((0, 0)), PAIRS.train.base_logits, np.full(3, np.inf), np.tile([1, 0, 0, 0, 1, 1], (3, 1)) == 1, 2
    )
)


def exact_gradient(world, enough):
    """d/dlogits of the mean chance of the answers of which `enough` (all or any) tokens are right, by the score
    function over all answers."""
    answers, grad = answers_of(world), np.zeros(world.train.base_logits.shape)
    right = enough((world.train.correct[:, None, None] >> answers.astype(np.uint32)) & 1, axis=2)
    p = NaiveRun.softmax(type("", (), {"world": world}), world.train.base_logits)
    for context, reward in enumerate(right):
        for arms, r in zip(answers, reward, strict=True):
            grad[context] += r * p[context, arms].prod() * (np.eye(world.n_arms)[arms].sum(axis=0) - p[context])
    return grad / len(grad)


GROUP_MEAN = Estimator(Advantage("group_mean"), Clip()), 4, 3 / 4
GRADIENTS = [
    (world, *row) for world in (tabular_world(LOGITS, CORRECT), PAIRS) for row in (*UNBIASED.values(), GROUP_MEAN)
]


@pytest.mark.parametrize(("world", "estimator", "rollouts", "factor"), GRADIENTS)
def test_average_gradient_is_the_exact_gradient(world, estimator, rollouts, factor):
    found, exact = mean_gradient(estimator, rollouts, world), exact_gradient(world, np.all)
    assert z_scores(found, factor * exact).max() < 5
    wrong = [-factor * exact] + [exact] * (factor < 1) + [factor * exact_gradient(world, np.any)] * (world is PAIRS)
    assert all(z_scores(found, each).max() > 5 for each in wrong)


def test_a_random_answer_of_two_tokens_is_right_once_in_64():
    environment = Linear(n_train=4000, n_test=10, n_styles=1, answer_tokens=2, align=0.0, kappa=1.0, base_format=30.0)
    run = Simulation(environment, Design(rounds=1, eval_every=1), Optimizer(learning_rate=0.0))
    assert abs(64 * simulate(run, build(environment)).curve.train_pass_at_1[0] - 1) < 0.1


# --- what the noise does ---


def test_a_distance_that_rounds_to_below_zero_is_none():
    world = spelt_world(400, 3, 4, surprise=1.0)
    right = np.full(400, np.inf), np.ones((400, 12), dtype=bool)
    world = world._replace(train=make_contexts(np.zeros((0, 0)), 20 * world.train.base_logits, *right, 3))
    design = Design(400, 1, estimator=DESIGNS["raw"].estimator, rounds=1, eval_every=1)
    learner = PlainLearner(Simulation(Tabular(400), design, Optimizer(learning_rate=0.0)), world)
    assert learner.advance(0, 1, no_totals()) == 1 and np.all(np.isfinite(learner.state.mean))
    _look(world.train, learner.plan, learner.state.theta, np.arange(400), learner.work)
    p, distance = learner.work.probs[:400], np.full(400, 3.0)
    for a in range(12):
        distance += p[:, a] ** 2
    for token in np.split(p, 3, axis=1):
        distance -= 2 * token.max(axis=1)
    assert distance.min() < 0  # so without the floor a standard deviation would not be a number


def test_without_nuisance_surprise_changes_nothing():
    environments = [replace(SMALL, nuisance=0.0, surprise=q) for q in (0.0, 1.0)]
    assert same(*(simulate(run_of(DESIGNS["updates"], each), build(each)).curve for each in environments))


# --- margin ---


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_every_token_of_every_context_has_the_margin(margin):
    """Base logits of 1000 are the scores, but for noise of 0.0005; without a margin some differences are tiny."""
    sizes, sure = {"n_train": 2000, "n_test": 1000, "n_features": 16}, {"rho": 0.8, "align": 1.0, "kappa": 1000.0}
    world = build(Linear(**sizes, **sure, n_styles=1, answer_tokens=2, margin=margin))
    for contexts in (world.train, world.test):
        scores = contexts.base_logits[:, :16].reshape(-1, 2, 8) / 1000
        best = np.sort(scores, axis=2)
        gaps = best[:, :, -1] - best[:, :, -2]
        assert gaps.min() > margin - 0.01 and gaps.min() < margin + 0.01
        bits = (contexts.correct[:, None] >> np.arange(16, dtype=np.uint32)) & 1
        assert np.mean(bits.reshape(-1, 2, 8).argmax(axis=2) == scores.argmax(axis=2)) > 0.99


# --- forgetting ---


def test_what_is_kept_of_the_base_policy():
    """exp(-2 / 4 (1 + 9 + 4)) of a matrix with these squares, the format's parameter aside; never nothing."""
    theta = np.array([1.0, 3.0, 0.0, 2.0, 50.0])
    assert base_logit_scale(2.0 / 4, theta) == pytest.approx(np.exp(-7.0)) and base_logit_scale(0.0, theta) == 1.0
    assert base_logit_scale(1e9, theta) == 1e-6


def test_arms_that_do_not_exist_stay_out_of_reach_where_all_is_forgotten():
    """Three tokens of 5 arms leave one of 16 lanes free; an answer is then right once in 125."""
    environment = replace(PROBLEMS["three tokens"], n_train=400, base_format=20.0, format_scale=1.0, forgetting=1e6)
    world = build(environment)
    state, work, plan = (
        make(run_of(DESIGNS["raw"], environment), world) for make in (start_state, make_work, make_plan)
    )
    state.theta[:-1] = 1e-2
    state.theta[-1] = 50.0
    assert pass_at_1(world.train, plan, state.theta, work, 0, False)[0] == pytest.approx(1 / 125, rel=1e-3)


# --- bookkeeping ---


def test_every_token_of_an_answer_is_charged():
    curve = simulate(run_of(DESIGNS["support"], PROBLEMS["three tokens"]), build(PROBLEMS["three tokens"])).curve
    np.testing.assert_array_equal(curve.tokens, 3 * curve.rollouts)
    assert curve.rollouts[-1] == 12 * 8 * 8
