"""Answers of several tokens, surprise, interference, forgetting: against the slow twin, wrong twins and enumeration."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.lanes.random import INTERFERENCE, ROLLOUT
from rftlab.sim.policy.common import base_logit_scale
from rftlab.sim.round.measures import pass_at_1
from rftlab.sim.round.plain import CHUNK, policy_forward
from rftlab.sim.run import GeneralLearner, PlainLearner, simulate
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from rftlab.sim.world import World, make_contexts
from tests.support.naive.simulator import NaiveRun, naive_curve, rates_of, sigmoid
from tests.support.worlds.simulations import DESIGNS, SMALL, TOLERANCE, UNBIASED, mean_gradient, run_of, z_scores
from tests.support.worlds.small_worlds import same, spelt_world

PROBLEMS = {
    "two tokens": replace(SMALL, answer_tokens=2),
    "three tokens": replace(SMALL, n_answers=5, n_styles=1, answer_tokens=3, base_format=1.0),
    "surprise": replace(SMALL, surprise=0.8),
    "interference": replace(SMALL, interference=0.6),
    "forgetting": replace(SMALL, forgetting=2.0),
    "all": replace(SMALL, answer_tokens=2, surprise=1.0, interference=0.4, forgetting=1.0),
}


TABULAR = {
    "two tokens": spelt_world(9, 2, 3),
    "three tokens": spelt_world(9, 3, 4),
    "surprise": spelt_world(9, 1, 5, surprise=0.8),
    "interference": spelt_world(9, 1, 5, interference=0.6),
    "forgetting": spelt_world(9, 1, 5, forgetting=0.5),
    "all": spelt_world(9, 2, 3, surprise=1.0, interference=0.4, forgetting=0.5),
}

# --- the slow twin ---


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_linear_environment_follows_its_slow_twin(problem, name):
    run = run_of(DESIGNS[name], PROBLEMS[problem], seed=3)
    world = build(run.environment)
    curve = simulate(run, world).curve
    np.testing.assert_allclose(rates_of(curve), naive_curve(run, world), atol=TOLERANCE)
    assert np.ptp(curve.train_pass_at_1) > 1e-3


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("problem", TABULAR)
def test_in_float64_it_is_equal_to_its_slow_twin(problem, name):
    run = run_of(DESIGNS[name], Tabular(9), seed=4)
    curve = simulate(run, TABULAR[problem]).curve
    np.testing.assert_allclose(rates_of(curve), naive_curve(run, TABULAR[problem]), rtol=1e-9)
    assert np.ptp(curve.train_pass_at_1) > 1e-3


@pytest.mark.parametrize("name", DESIGNS)
def test_batches_of_several_chunks_follow_their_slow_twin(name):
    run = run_of(
        replace(DESIGNS[name], batch_size=2 * CHUNK + 14), replace(PROBLEMS["all"], n_train=600), rounds=4, seed=5
    )
    world = build(run.environment)
    np.testing.assert_allclose(rates_of(simulate(run, world).curve), naive_curve(run, world), atol=TOLERANCE)


def variance(change):
    """A twin whose nuisance has `change(share, distances)` for its relative variance; distances (T,): |e - pi|^2 of
    each token."""

    def method(self, p, arms):
        return change(self.world.surprise, (self.answer_score(p, arms) ** 2).reshape(len(arms), -1).sum(axis=1))

    return {"variance": method}


def others(key):
    """A twin that interferes with the context drawn under `key(round, context, place in the batch)`: stream, round,
    context."""

    def method(self, round_index, batch):
        u = [self.draw(*key(round_index, context, place), 1)[0, 0] for place, context in enumerate(batch)]
        return np.floor(np.array(u) * len(self.z0)).astype(int)

    return {"others": method}


def forgetful_reference(self, batch, arms, forms):
    f = sigmoid(self.remembered(self.h0[batch]))[:, None]
    return self.answer_logp(self.softmax(self.remembered(self.z0[batch])), arms) + np.log(
        np.where(forms == 1, f, 1 - f)
    )


def faded(distance):
    """A twin whose base policy fades with `distance` of its parameters."""
    return {"remembered": lambda self, logits, w=None: logits * np.exp(-self.world.forgetting * distance(self))}


WRONG = {
    "one right token is enough": {"right": lambda self, bits: bits.any(axis=-1)},
    "tokens share their draw": {
        "answers": lambda self, p, v: NaiveRun.answers(self, p, np.repeat(v[:, :1], v.shape[1], axis=1))
    },
    "log-probability of the first token": {
        "answer_logp": lambda self, p, arms: NaiveRun.answer_logp(self, p, arms[:, :, :1])
    },
    "score of the last token": {"answer_score": lambda self, p, arms: NaiveRun.answer_score(self, p, arms[1:])},
    "one softmax over all tokens": {
        "softmax": lambda self, z: NaiveRun.softmax(self, z) / self.world.answer_tokens,
        "answers": lambda self, p, v: NaiveRun.answers(self, self.world.answer_tokens * p, v),
    },
    "surprise of the first token": variance(lambda q, distances: 1 - q + q * distances[0]),
    "mean of the tokens' surprise": variance(lambda q, distances: 1 - q + q * distances.mean()),
    "distance, not its square": variance(lambda q, distances: 1 - q + q * np.sqrt(distances.sum())),
    "nuisance without surprise": variance(lambda q, distances: 1.0),
    "surprise on top": variance(lambda q, distances: 1 + q * distances.sum()),
    "interference with itself": {"others": lambda self, round_index, batch: batch},
    "interference with a neighbour": {"others": lambda self, round_index, batch: np.roll(batch, 1)},
    "the same others in every round": others(lambda r, context, place: (INTERFERENCE, 0, context)),
    "others by place in the batch": others(lambda r, context, place: (INTERFERENCE, r, place)),
    "the reference forgets too": {"base_logp": forgetful_reference},
    "nothing is forgotten": {"remembered": lambda self, logits, w=None: logits},
    "only the format is remembered": {
        "remembered": lambda self, logits, w=None: logits if logits.ndim == 1 else NaiveRun.remembered(self, logits)
    },
    "fading with the distance, not its square": faded(lambda self: np.sqrt((self.w**2).sum() / self.world.n_arms)),
    "fading with the format's parameter too": faded(
        lambda self: ((self.w**2).sum() + self.theta_f**2) / self.world.n_arms
    ),
    "fading with every parameter's mean square": faded(lambda self: (self.w**2).mean()),
    "others by the draws of rollouts": others(lambda r, context, place: (ROLLOUT, r, context)),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_does_not_follow_a_wrong_twin(name):
    run, world = run_of(DESIGNS["kl in reward"], Tabular(9), seed=4), TABULAR["all"]
    wrong = type("Wrong", (NaiveRun,), WRONG[name])
    assert np.abs(rates_of(simulate(run, world).curve) - naive_curve(run, world, wrong)).max() > 1e-6


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


@pytest.mark.parametrize("name", UNBIASED)
def test_average_gradient_is_the_exact_gradient(name):
    estimator, rollouts, factor = UNBIASED[name]
    found = mean_gradient(estimator, rollouts, PAIRS)
    assert z_scores(found, factor * exact_gradient(PAIRS, np.all)).max() < 5
    assert z_scores(found, factor * exact_gradient(PAIRS, np.any)).max() > 5


def test_a_random_answer_of_two_tokens_is_right_once_in_64():
    environment = Linear(n_train=4000, n_test=10, n_styles=1, answer_tokens=2, align=0.0, kappa=1.0, base_format=30.0)
    run = Simulation(environment, Design(rounds=1, eval_every=1), Optimizer(learning_rate=0.0))
    assert abs(64 * simulate(run, build(environment)).curve.train_pass_at_1[0] - 1) < 0.1


def test_sampled_pass_at_1_agrees_with_the_exact_one():
    environment = replace(PROBLEMS["all"], n_train=7000, n_test=5000, base_format=2.0)
    exact, sampled = (
        simulate(run_of(DESIGNS["raw"], environment, rounds=4, evaluation=kind), build(environment)).curve
        for kind in ("exact", "sampled")
    )
    for column, n in (("train_pass_at_1", 7000), ("test_pass_at_1", 5000)):
        p = getattr(exact, column)
        z = (getattr(sampled, column) - p) / np.sqrt(p * (1 - p) / n)
        assert 1e-6 < np.abs(z).max() < 4.5


# --- what the noise does ---


def test_a_sure_policy_keeps_its_nuisance_only_where_that_ignores_surprise():
    norms = {}
    for surprise in (0.0, 1.0):
        environment = Linear(
            n_train=500,
            n_test=10,
            n_features=32,
            n_styles=1,
            align=1.0,
            kappa=300.0,
            base_format=20.0,
            surprise=surprise,
        )
        outcome = simulate(run_of(Design(400, 1, estimator=DESIGNS["raw"].estimator), environment), build(environment))
        assert outcome.diverged_at is None
        norms[surprise] = outcome.curve.grad_norm[1:].mean()
    assert norms[1.0] < 0.2 * norms[0.0]


def test_a_distance_that_rounds_to_below_zero_is_none():
    world = spelt_world(400, 3, 4, surprise=1.0)
    world = world._replace(
        train=make_contexts(
            np.zeros((0, 0)), 20 * world.train.base_logits, np.full(400, np.inf), np.ones((400, 12), dtype=bool), 3
        )
    )
    learner = PlainLearner(
        Simulation(
            Tabular(400),
            Design(400, 1, estimator=DESIGNS["raw"].estimator, rounds=1, eval_every=1),
            Optimizer(learning_rate=0.0),
        ),
        world,
    )
    assert learner.advance(0, 1, no_totals()) == 1 and np.all(np.isfinite(learner.state.mean))
    _look(world.train, learner.plan, learner.state.theta, np.arange(400), learner.work)
    p, distance = learner.work.probs[:400], np.full(400, 3.0)
    for a in range(12):
        distance += p[:, a] ** 2
    for token in np.split(p, 3, axis=1):
        distance -= 2 * token.max(axis=1)
    assert distance.min() < 0  # so without the floor a standard deviation would not be a number


def test_without_nuisance_surprise_changes_nothing():
    curves = [
        simulate(run_of(DESIGNS["updates"], environment), build(environment)).curve
        for environment in (replace(SMALL, nuisance=0.0, surprise=q) for q in (0.0, 1.0))
    ]
    assert same(*curves)


def first_gradient(interference, rollouts, round_index=0):
    """Gradient (40, 4) of a round on all of 40 contexts, of whose answers each is right."""
    logits, right = np.random.default_rng(2).standard_normal((40, 4)), np.ones((40, 4), dtype=bool)
    contexts = make_contexts(np.zeros((0, 0)), logits, np.full(40, np.inf), right)
    world = World(contexts, contexts, 4, 0.0, 0.0, interference=interference)
    learner = PlainLearner(
        Simulation(
            Tabular(40),
            Design(40, rollouts, estimator=DESIGNS["raw"].estimator, rounds=1, eval_every=1),
            Optimizer("sgd", learning_rate=1.0),
        ),
        world,
    )
    assert learner.advance(round_index, 1, no_totals()) == 1
    return learner.state.theta[:-1].reshape(40, 4)


def test_a_context_leaks_its_whole_score_to_one_other_which_all_its_rollouts_share():
    hit = {}
    for rollouts in (1, 64):
        own = first_gradient(0.0, rollouts)
        leaked = first_gradient(0.5, rollouts) - own
        np.testing.assert_allclose(leaked.sum(axis=0), 0.5 * own.sum(axis=0), atol=1e-12)
        hit[rollouts] = np.abs(leaked).max(axis=1) > 1e-9
    np.testing.assert_array_equal(hit[1], hit[64])
    assert 15 < hit[1].sum() < 35  # 40 (1 - 1/e) on average
    later = np.abs(first_gradient(0.5, 1, round_index=1) - first_gradient(0.0, 1, round_index=1)).max(axis=1) > 1e-9
    assert np.any(later != hit[1])


def test_runs_do_not_depend_on_threads_or_on_their_company():
    world = build(PROBLEMS["all"])
    runs = [run_of(DESIGNS[name], PROBLEMS["all"], seed=seed) for name in ("window", "updates") for seed in (5, 6)]
    alone = [simulate(run, world).curve for run in runs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda run: simulate(run, world).curve, runs[::-1]))[::-1]
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))
    assert not same(alone[0], alone[1], but=("seconds", "seed"))


# --- margin ---


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_every_token_of_every_context_has_the_margin(margin):
    """Base logits of 1000 are the scores, but for noise of 0.0005; without a margin some differences are tiny."""
    environment = Linear(
        n_train=2000,
        n_test=1000,
        n_features=16,
        n_styles=1,
        answer_tokens=2,
        rho=0.8,
        align=1.0,
        kappa=1000.0,
        margin=margin,
    )
    world = build(environment)
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


def test_surprise_is_refused_with_style_tokens_which_have_no_gaussian_nuisance():
    message = "environment.surprise = 0.5 with environment.style_tokens = 4.0; allowed: one or the other"
    with pytest.raises(UserError, match=message):
        replace(SMALL, surprise=0.5, style_tokens=4.0)
    with pytest.raises(UserError, match=message):
        GeneralLearner(run_of(DESIGNS["group"]), build(replace(SMALL, style_tokens=4.0))._replace(surprise=0.5))
    assert replace(SMALL, surprise=0.5).surprise == 0.5 and replace(SMALL, style_tokens=4.0).style_tokens == 4.0
