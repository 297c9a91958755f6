"""Style tokens: their model, their limit, what they do and do not do to the gradient; the entropy bonus."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.run import GeneralLearner
from rftlab.sim.state import no_totals
from tests.support.naive.general import NaiveGeneral
from tests.support.worlds.general import BASE
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import (
    equal_world,
    gradients,
    learner_of,
    mixed_world,
    places_of,
    products,
    seen,
    softmax,
    styled,
    two_sample_z,
    with_estimator,
    z_scores,
)

RAW = Estimator(Advantage("none"), Reinforce())
LEAVE_ONE_OUT = Estimator(Advantage("leave_one_out"), Reinforce())
LOGITS, NUISANCE = np.array([0.5, -0.3, 0.8, 0.0, -40.0]), 0.8
"""The last arm is never picked: its logit's gradient is the nuisance alone."""
MOVED = np.array([0.4, -0.2, 0.1, -0.5, 0.3])
ALL, SOME = np.ones(5, dtype=bool), np.array([True, False, False, True, False])


def z_limit(found, expected):
    """The largest z-score of means that are known to 2 percent of the largest expected one."""
    assert (found.std(axis=0) / np.sqrt(len(found))).max() < 0.03 * np.abs(expected).max()
    return z_scores(found, expected).max()


# --- the Gaussian limit ---


def score_covariance(world, slope=1.0):
    """Covariance of the score of one response at the base policy."""
    p = softmax(LOGITS)
    return np.diag(p) - np.outer(p, p) + (slope * world.nuisance) ** 2 * np.eye(5)


@pytest.mark.parametrize("tokens", [0, 4, 400])
def test_scores_of_a_response_have_the_stated_covariance(tokens):
    plain = equal_world(LOGITS, ALL, NUISANCE)
    world = styled(plain, tokens) if tokens else plain
    found = gradients(learner_of(world, RAW), rounds=60)
    assert z_scores(found, 0.0).max() < 4.5
    assert z_limit(products(found), score_covariance(world)) < 4.5
    assert z_limit(products(found), score_covariance(world, 1.08)) > 5
    spread = found[:, 4] / found[:, 4].std()
    error, kurtosis = np.sqrt(24 / len(found)), (spread**4).mean() - 3
    assert abs(kurtosis + (2 / tokens if tokens else 0)) < 4.5 * error
    assert (abs(kurtosis) > 10 * error) == (tokens == 4)


@pytest.mark.parametrize(("estimator", "rollouts"), [(RAW, 1), (LEAVE_ONE_OUT, 4)])
def test_many_tokens_are_the_gaussian_nuisance_at_a_moved_policy(estimator, rollouts):
    world = equal_world(LOGITS, SOME, NUISANCE)
    worlds = {"gaussian": world, "tokens": styled(world, 400), "few tokens": styled(world, 2)}
    found = {
        name: gradients(learner_of(other, estimator, rollouts), 60 if name != "tokens" else 40, MOVED)
        for name, other in worlds.items()
    }
    assert two_sample_z(found["gaussian"], found["tokens"]).max() < 4.5
    assert two_sample_z(products(found["gaussian"]), products(found["tokens"])).max() < 4.5
    assert two_sample_z(products(found["gaussian"]), products(found["few tokens"])).max() > 6


@pytest.mark.parametrize("tokens", [0, 5])
def test_nuisance_adds_what_the_theory_says_to_the_variance(tokens):
    """nuisance^2 p for raw K = 1, nuisance^2 u / (K - 1) for leave-one-out; u = p (1 - p)."""
    plain = equal_world(LOGITS, SOME, NUISANCE)
    world, p = styled(plain, tokens) if tokens else plain, (softmax(LOGITS) * SOME).sum()
    for estimator, rollouts, expected in ((RAW, 1, p), (LEAVE_ONE_OUT, 4, p * (1 - p) / 3)):
        squares = gradients(learner_of(world, estimator, rollouts), rounds=200)[:, 4] ** 2
        assert z_scores(squares, NUISANCE**2 * expected) < 4.5
        assert z_scores(squares, NUISANCE**2 * expected * 1.1) > 4.5


# --- coins, directions, lengths ---


def style_logit_at(world, found, theta):
    return world.style.slope * found.signs[found.style] @ theta


def test_the_base_policy_tosses_fair_coins_and_a_moved_one_leans():
    world = styled(equal_world(LOGITS, SOME, NUISANCE), 40)
    learner = learner_of(world, RAW, 4)
    gradients(learner, 1)
    found = seen(learner)
    assert found.style.sum() == 40 * 4 * 256
    assert abs(2 * found.coin[found.style].mean() - 1) * np.sqrt(found.style.sum()) < 4.5
    assert np.all(found.old[found.style] == np.log(0.5))
    gradients(learner, 1, 4 * MOVED)
    found = seen(learner)
    coin, style_logit = found.coin[found.style], style_logit_at(world, found, 4 * MOVED)
    heads = 1 / (1 + np.exp(-style_logit))
    assert z_scores((coin - heads) * style_logit, 0.0) < 4.5
    assert z_scores((coin - 0.5) * style_logit, 0.0) > 10
    np.testing.assert_allclose(found.old[found.style], np.log(np.where(coin, heads, 1 - heads)), rtol=1e-9)


def test_directions_are_independent_fair_signs():
    learner = learner_of(styled(equal_world(LOGITS, SOME, NUISANCE), 20), RAW, 2)
    gradients(learner, 1)
    signs = seen(learner).signs[seen(learner).style].astype(float)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert z_scores(signs, 0.0).max() < 4.5
    assert z_scores(signs[:, :, None] * signs[:, None, :], np.eye(5)).max() < 4.5
    assert z_scores(signs[:-1, :, None] * signs[1:, None, :], 0.0).max() < 4.5
    responses = signs.reshape(256 * 2, -1)
    assert len(np.unique(responses, axis=0)) == len(responses)


def test_three_styles_have_three_lengths():
    learner = learner_of(styled(equal_world(np.zeros(6), np.ones(6)), 10, 0.5, n_styles=3), RAW, 8)
    gradients(learner, 1)
    found = seen(learner)
    assert {(arm % 3, length - 1) for arm, length in zip(found.arm, found.length, strict=True)} == {
        (0, 5),
        (1, 10),
        (2, 15),
    }


# --- what style tokens do to the gradient ---


def exact_gradient(world, theta, per_length=False):
    """d/dlogits of the expected reward; per_length: of a response's reward over its number of tokens, with that
    number held fixed."""
    z = world.train.base_logits[0] + theta
    p, reward = softmax(z), ((world.train.correct[0] >> np.arange(z.size, dtype=np.uint32)) & 1).astype(float)
    side = 2.0 * (np.arange(z.size) % 2) - 1
    credit = (reward - (p @ reward if per_length == "centred" else 0)) / (
        1 + world.style.tokens * (1 + world.style.by_style * side) if per_length else 1
    )
    return p * (credit - p @ credit)


UNBIASED = {
    "raw": (RAW, 1, 1.0),
    "leave one out": (LEAVE_ONE_OUT, 4, 1.0),
    "group mean": (Estimator(Advantage("group_mean"), Clip()), 4, 0.75),
}
BY_LENGTH = Aggregation("seq_mean_token_mean")


@pytest.mark.parametrize("name", UNBIASED)
def test_average_gradient_is_the_exact_gradient_of_the_expected_reward(name):
    estimator, rollouts, factor = UNBIASED[name]
    world = styled(equal_world(np.append(LOGITS[:4], -0.6), SOME, NUISANCE), 4, by_style=0.5, jitter=0.5)
    expected = factor * exact_gradient(world, MOVED)
    found = gradients(learner_of(world, estimator, rollouts), 200, MOVED)
    assert z_limit(found, expected) < 4.5
    for wrong in (1.2 * expected, -expected, factor * exact_gradient(world, 0 * MOVED)):
        assert z_scores(found, wrong).max() > 4.5
    divided = gradients(learner_of(world, replace(estimator, aggregation=BY_LENGTH), rollouts), 100, MOVED)
    assert z_scores(divided * 5, expected).max() > 4.5


@pytest.mark.parametrize(
    ("estimator", "rollouts", "kind", "factor"), [(RAW, 1, True, 1.0), (UNBIASED["group mean"][0], 4, "centred", 0.75)]
)
def test_token_means_divide_the_gradient_by_the_length(estimator, rollouts, kind, factor):
    world = styled(equal_world(LOGITS[:4], SOME[:4], NUISANCE), 8, by_style=0.75)
    found = gradients(learner_of(world, replace(estimator, aggregation=BY_LENGTH), rollouts), 150, MOVED[:4])
    assert z_limit(found, factor * exact_gradient(world, MOVED[:4], kind)) < 4.5
    assert z_scores(found, factor * exact_gradient(world, MOVED[:4]) / 9).max() > 4.5


@pytest.mark.parametrize("aggregation", [Aggregation(), BY_LENGTH])
def test_dividing_by_the_length_makes_wrong_answers_longer_and_right_ones_shorter(aggregation):
    """Dr. GRPO's point (2503.20783): a long wrong response is punished less per token, a short right one rewarded
    more."""
    world = styled(equal_world(np.zeros(4), [True, True, False, False], 0.3), 8, by_style=0.75)
    estimator = replace(UNBIASED["group mean"][0], aggregation=aggregation)
    learner = learner_of(world, estimator, 4, rate=256 * (1.0 if aggregation.kind.endswith("sum") else 9.0))
    assert learner.advance(0, 6, no_totals()) == 6
    logits = learner.state.theta[:-1].reshape(256, 4)
    drift = {"right": logits[:, 1] - logits[:, 0], "wrong": logits[:, 3] - logits[:, 2]}
    signs = {answer: np.sign(part.mean()) * (z_scores(part, 0.0) > 4.5) for answer, part in drift.items()}
    assert signs == ({"right": -1, "wrong": 1} if aggregation is BY_LENGTH else {"right": 0, "wrong": 0})


# --- the entropy bonus ---

LINEAR = replace(SMALL, style_tokens=5.0, length_by_style=0.6, length_jitter=0.3)
PARTS = {
    "all": lambda h: h,
    "answer alone": lambda h: h * (np.arange(h.size) == 0),
    "style alone": lambda h: h * (np.arange(h.size) > 0),
    "penalty": lambda h: -h,
    "once for a response": lambda h: h / h.size,
}


def bonus_gradient(run, world, w, theta_f, coefficient):
    """What the bonus adds to the gradient of the first round at given parameters: ((d, A), format)."""
    found = []
    for entropy in (coefficient, 0.0):
        learner = GeneralLearner(replace(run, design=with_estimator(run.design, entropy=entropy)), world)
        theta = learner.state.theta
        theta[places_of(world)], theta[-1] = w, theta_f
        before = theta.copy()
        learner.advance(0, 1, no_totals())
        found.append((theta - before).astype(np.float64))
    difference = found[0] - found[1]
    return np.append(difference[places_of(world)].ravel(), difference[-1])


def entropy_gradient(run, world, w, theta_f, part):
    """Finite differences of the mean entropy of what the first round's tokens were drawn from."""
    twin = NaiveGeneral(run, world)
    twin.w, twin.theta_f, twin.past = w.copy(), theta_f, [(w, theta_f, twin.common)]
    responses = [response for row, _ in twin.sample() for response in row]

    def entropy(theta):
        twin.w, twin.theta_f = theta[:-1].reshape(w.shape), theta[-1]
        values = [part(twin.entropies(twin.view(response.context), response)) for response in responses]
        if run.design.estimator.aggregation == BY_LENGTH:
            return np.mean([h.mean() for h in values])
        return np.concatenate(values).mean()

    theta, step = np.append(w.ravel(), theta_f), 1e-5
    return np.array([(entropy(theta + step * e) - entropy(theta - step * e)) / (2 * step) for e in np.eye(theta.size)])


@pytest.mark.parametrize("environment", ["tabular", "linear"])
@pytest.mark.parametrize("aggregation", [BASE.estimator.aggregation, BY_LENGTH])
def test_the_entropy_bonus_is_the_gradient_of_the_entropy(environment, aggregation):
    world = mixed_world() if environment == "tabular" else build(LINEAR)
    design = with_estimator(replace(BASE, epochs=1, minibatches=1), aggregation=aggregation)
    run = Simulation(
        Tabular(15, 5) if environment == "tabular" else LINEAR, design, Optimizer("sgd", learning_rate=1.0), seed=3
    )
    d, a = (15, 5) if environment == "tabular" else (32, 6)
    rng = np.random.default_rng(1)
    w, theta_f = 0.2 * rng.standard_normal((d, a)) * (np.arange(d) < 19)[:, None], 0.02
    tolerance = 1e-8 if environment == "tabular" else 1e-5
    found = bonus_gradient(run, world, w, theta_f, 0.7) / 0.7
    assert abs(found[-1]) > 0.01 * np.abs(found).max()
    for name, part in PARTS.items():
        error = np.abs(found - entropy_gradient(run, world, w, theta_f, part)).max() / np.abs(found).max()
        assert error < tolerance if name == "all" else error > 0.05
