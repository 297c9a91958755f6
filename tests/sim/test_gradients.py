"""Gradients of one response at a time: their mean is the exact gradient, their covariance what the model states."""

import numpy as np
import pytest

from rftlab import Advantage, Design, Estimator, Optimizer, Sampling, Simulation, Tabular
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.sim.round.ragged import INT, MARK, ROW
from rftlab.sim.run import GeneralLearner
from rftlab.sim.state import no_totals
from rftlab.sim.world import NO_STYLE, World, make_contexts
from tests.support.worlds.small_worlds import styled

CONTEXTS = 256
"""Copies of one context: each gives one independent sample of its gradient a round."""
RAW = Estimator(Advantage("none"), Reinforce())
LOGITS, NUISANCE = np.array([0.5, -0.3, 0.8, 0.0, -40.0]), 0.8
"""The last arm is never picked: its logit's gradient is the nuisance alone."""
MOVED = np.array([0.4, -0.2, 0.1, -0.5, 0.3])
ALL, SOME = np.ones(5, dtype=bool), np.array([True, False, False, True, False])


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


def equal_world(logits, correct, nuisance=0.0):
    """CONTEXTS copies of one context, without a format."""
    copies = [np.repeat(np.atleast_2d(row), CONTEXTS, axis=0) for row in (logits, np.asarray(correct, dtype=bool))]
    contexts = make_contexts(np.zeros((0, 0)), copies[0].astype(np.float64), np.full(CONTEXTS, np.inf), copies[1])
    return World(contexts, contexts, len(logits), 0.0, nuisance, NO_STYLE)


def learner_of(world, estimator, rollouts=1, batch_size=CONTEXTS, **knobs):
    """A learner of the general round, whose SGD (of rate 1) adds the gradient to its parameters."""
    design = Design(batch_size, rollouts, estimator=estimator, rounds=1, eval_every=1, **knobs)
    return GeneralLearner(Simulation(Tabular(CONTEXTS), design, Optimizer("sgd", learning_rate=1.0)), world)


def gradients(learner, rounds, theta):
    """Gradients (rounds x contexts, A) in the contexts' logits, of the sum over the batch of each context's mean
    objective, at theta (A,)."""
    samples = []
    for round_index in range(1, rounds + 1):
        learner.state.theta[:-1], learner.state.theta[-1] = np.tile(theta, CONTEXTS), 0.0
        learner.memory.spent[2] = round_index
        before = learner.state.theta.copy()
        assert learner.advance(round_index, 1, no_totals()) == 1
        samples.append((learner.state.theta - before)[:-1].reshape(CONTEXTS, -1) * CONTEXTS)
    return np.concatenate(samples)


def z_scores(samples, expected):
    """Distance of the mean of samples (n, ...) from `expected`, in standard errors."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples)) + 1e-12
    return np.abs(samples.mean(axis=0) - expected) / error


def z_limit(samples, expected):
    """The largest z-score of means that are known to 3 percent of the largest expected one."""
    assert (samples.std(axis=0) / np.sqrt(len(samples))).max() < 0.03 * np.abs(expected).max()
    return z_scores(samples, expected).max()


@pytest.mark.parametrize("tokens", [0, 4, 400])
def test_scores_of_a_response_have_the_stated_covariance(tokens):
    """Many style tokens are the Gaussian nuisance; four are not."""
    plain, p = equal_world(LOGITS, ALL, NUISANCE), softmax(LOGITS)
    found = gradients(learner_of(styled(plain, tokens) if tokens else plain, RAW), 60, np.zeros(5))
    assert z_scores(found, 0.0).max() < 4.5
    centred, covariance = found - found.mean(axis=0), np.diag(p) - np.outer(p, p)
    products = centred[:, :, None] * centred[:, None, :]
    assert z_limit(products, covariance + NUISANCE**2 * np.eye(5)) < 4.5
    assert z_limit(products, covariance + (1.08 * NUISANCE) ** 2 * np.eye(5)) > 5
    spread = found[:, 4] / found[:, 4].std()
    error, kurtosis = np.sqrt(24 / len(found)), (spread**4).mean() - 3
    assert abs(kurtosis + (2 / tokens if tokens else 0)) < 4.5 * error
    assert (abs(kurtosis) > 10 * error) == (tokens == 4)


def exact_gradient(logits, right):
    """d/dlogits of the expected reward."""
    p = softmax(logits)
    return p * (right - p @ right)


UNBIASED = {
    "raw": (RAW, 1, 1.0),
    "leave one out": (Estimator(Advantage("leave_one_out"), Reinforce()), 4, 1.0),
    "group mean": (Estimator(Advantage("group_mean"), Clip()), 4, 0.75),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_average_gradient_is_the_exact_gradient_of_the_expected_reward(name):
    estimator, rollouts, factor = UNBIASED[name]
    base = np.append(LOGITS[:4], -0.6)
    world = styled(equal_world(base, SOME, NUISANCE), 4, by_style=0.5, jitter=0.5)
    expected = factor * exact_gradient(base + MOVED, SOME)
    found = gradients(learner_of(world, estimator, rollouts), 200, MOVED)
    assert z_limit(found, expected) < 4.5
    for wrong in (1.2 * expected, -expected, factor * exact_gradient(base, SOME)):
        assert z_scores(found, wrong).max() > 4.5


def test_directions_of_style_tokens_are_independent_fair_signs():
    learner = learner_of(styled(equal_world(LOGITS, SOME, NUISANCE), 20), RAW, 2)
    gradients(learner, 1, np.zeros(5))
    marks = learner.ragged.marks[:, : CONTEXTS * 2 * 21].reshape(-1, CONTEXTS * 2, 21)[:, :, 1:]  # without the answer
    coins = marks[MARK.style_token].ravel() != 0
    assert z_scores(2.0 * coins - 1, 0.0) < 4.5, "the base policy's tokens are even"
    signs = 2.0 * ((marks[MARK.signs].reshape(-1, 1) >> np.arange(5)) & 1) - 1
    assert z_scores(signs, 0.0).max() < 4.5
    assert z_scores(signs[:, :, None] * signs[:, None, :], np.eye(5)).max() < 4.5
    assert z_scores(signs[:-1, :, None] * signs[1:, None, :], 0.0).max() < 4.5
    responses = signs.reshape(CONTEXTS * 2, -1)
    assert len(np.unique(responses, axis=0)) == len(responses)


@pytest.mark.parametrize("tries", [4, 30])
def test_tries_of_uneven_budgets_find_room(tries):
    """One context of eight takes half of every batch and is the only one that ever differs, so that a round holds
    many large groups."""
    world, hard = equal_world(np.array([0.0, 0.0]), [True, False]), np.arange(CONTEXTS) % 8 != 0
    train = world.train._replace(correct=np.where(hard, 0, world.train.correct).astype(np.uint32))
    sampling, centred = Sampling(tries=tries, budget="difficulty"), Estimator(Advantage("group_mean"))
    learner = learner_of(world._replace(train=train), centred, 8, batch_size=8, sampling=sampling)
    learner.memory.averages[:-1, 1] = 1e6
    learner.memory.averages[:-1, 0] = np.where(hard, 0, 5e5)
    for _ in range(3):
        learner.advance(0, 1, no_totals())
        room = learner.ragged
        responses = room.rows[ROW.first, 8]
        assert responses <= room.numbers.shape[1] and room.ints[INT.start, responses] <= room.tokens.shape[1]
    assert tries == 4 or responses > 2 * 8 * 8, "no more than two batches of responses: no test of the room"
