"""Where the numbers of the noise end: distances below zero, margins, a base policy that is forgotten."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab import Design, Linear, Optimizer, Simulation, Tabular
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.environments import build
from rftlab.sim.policy.common import base_logit_scale
from rftlab.sim.round.measures import pass_at_1
from rftlab.sim.round.plain import policy_forward
from rftlab.sim.run import PlainLearner
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from rftlab.sim.world import make_contexts
from tests.support.worlds.problems import PROBLEMS
from tests.support.worlds.simulations import DESIGNS, run_of
from tests.support.worlds.small_worlds import spelt_world


@jit
def _look(contexts, plan, theta, batch, work):
    policy_forward(contexts, plan, theta, batch, work)


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


def test_what_is_kept_of_the_base_policy():
    """exp(-2 / 4 (1 + 9 + 4)) of a matrix with these squares, the format's parameter aside; never nothing."""
    theta = np.array([1.0, 3.0, 0.0, 2.0, 50.0])
    assert base_logit_scale(2.0 / 4, theta) == pytest.approx(np.exp(-7.0)) and base_logit_scale(0.0, theta) == 1.0
    assert base_logit_scale(1e9, theta) == 1e-6


def test_arms_that_do_not_exist_stay_out_of_reach_where_all_is_forgotten():
    """Three tokens of 5 arms leave one of 16 lanes free; an answer is then right once in 125."""
    environment = replace(PROBLEMS["three tokens"], n_train=400, base_format=20.0, format_scale=1.0, forgetting=1e6)
    world = build(environment)
    run = run_of(DESIGNS["raw"], environment)
    state, work, plan = (make(run, world) for make in (start_state, make_work, make_plan))
    state.theta[:-1] = 1e-2
    state.theta[-1] = 50.0
    assert pass_at_1(world.train, plan, state.theta, work, 0, False)[0] == pytest.approx(1 / 125, rel=1e-3)
