"""Short answers, virtual lengths and exploration: finite differences, and what they do."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.run import GeneralLearner, PlainLearner, simulate
from rftlab.sim.state import no_totals
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from tests.support.naive.general import NaiveGeneral
from tests.support.naive.simulator import sigmoid
from tests.support.worlds.general import BASE
from tests.support.worlds.problems import PROBLEMS
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import places_of, same, spelt_world, styled


def test_the_gradient_of_exploration_is_that_of_finite_differences():
    """Of the objective of the first round, whose ratios are 1: sum_t w_t log pi(token t), KL penalty included."""
    world = styled(spelt_world(15, 1, 6, exploration=3.0), 5.0, 0.6, 0.3)
    estimator = Estimator(Advantage("group_mean"), Reinforce(), KL("k2", 0.3), Aggregation("token_mean"))
    design = replace(BASE, batch_size=15, epochs=1, minibatches=1, estimator=estimator)
    run = Simulation(Tabular(15), design, Optimizer("sgd", learning_rate=1.0), seed=3)
    learner, twin, rng = GeneralLearner(run, world), NaiveGeneral(run, world), np.random.default_rng(1)
    twin.w, twin.common, twin.theta_f = 0.2 * rng.standard_normal((15, 6)), np.array([0.2]), 0.02
    learner.state.theta[places_of(world)], learner.state.theta[-2:] = twin.w, [0.2, 0.02]
    twin.past = [(twin.w, twin.theta_f, twin.common)]
    rows = twin.sample()
    assert learner.advance(0, 1, no_totals()) == 1
    responses = [response for row, _ in rows for response in row]
    rewards = np.array([response.reward for response in responses]).reshape(15, -1)
    advantage, total = (rewards - rewards.mean(axis=1, keepdims=True)).ravel(), sum(len(r.old) for r in responses)

    def objective(number):
        twin.common = np.array([number])
        value = 0.0
        for response, worth in zip(responses, advantage, strict=True):
            logp = twin.logps(twin.view(response.context), response)
            value += (worth * logp - 0.3 * 0.5 * (logp - response.ref) ** 2).sum()
        return value / total

    expected = (objective(0.2 + 1e-5) - objective(0.2 - 1e-5)) / 2e-5
    assert learner.state.theta[-2] - 0.2 == pytest.approx(expected, rel=1e-7) and abs(expected) > 1e-3


def test_where_they_are_off_no_parameter_is_there_and_nothing_changes():
    world, other = build(SMALL), build(replace(SMALL, length_jitter=0.5))
    assert world.n_common == 0 and build(PROBLEMS["everything"]).n_common == 8
    assert build(replace(SMALL, style_tokens=3.0, exploration=1.0)).n_common == 1
    assert same(*(simulate(run_of(DESIGNS["updates"]), each).curve for each in (world, other)))
    assert world.style.slope == 0.0 and world.long_arms == 0b101010


def test_short_answers_are_right_in_a_share_of_contexts_and_rarer():
    """All else of the world is what it is without."""
    environment = Linear(n_train=4000, n_test=500, n_features=4)
    plain, short = build(environment), build(replace(environment, short_right=0.3))
    for part in ("train", "test"):
        before, after = getattr(plain, part), getattr(short, part)
        for name in ("features", "base_format"):
            np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
        lower = before.base_logits - after.base_logits
        np.testing.assert_allclose(lower[:, 0:16:2], 1.0, atol=1e-5)
        assert not lower[:, 1:16:2].any()
        assert np.array_equal(before.correct & 0xAAAA, after.correct & 0xAAAA)
        left = (after.correct & 0x5555) > 0
        assert np.array_equal((before.correct & 0x5555)[left], (after.correct & 0x5555)[left])
        assert left.mean() == pytest.approx(0.3, abs=0.06 if part == "test" else 0.02)


def test_raw_rewards_make_answers_short_where_each_is_divided_by_its_length():
    """E[r / L] has its maximum at short answers, which are seldom right; E[r] has not, and neither has a baseline."""
    environment = Linear(
        n_train=500, n_test=200, base_format=1.0, verbosity=10.0, short_right=0.3, length_by_style=0.9, kappa=8.0
    )
    world = build(environment)
    kinds = {
        "raw, mean of means": ("none", "seq_mean_token_mean"),
        "raw, token mean": ("none", "token_mean"),
        "group mean, mean of means": ("group_mean", "seq_mean_token_mean"),
    }
    ends = {}
    for name, (advantage, kind) in kinds.items():
        for k in (1, 8) if advantage == "none" else (8,):
            estimator = Estimator(Advantage(advantage), Reinforce(), aggregation=Aggregation(kind))
            design = Design(32, k, estimator=estimator, rounds=150, eval_every=150)
            learner = PlainLearner(Simulation(environment, design, Optimizer(learning_rate=8e-3)), world)
            learner.advance(0, 150, no_totals())
            ends[f"{name}, {k}"] = sigmoid(10.0 * learner.state.theta[-2])
    assert max(ends["raw, mean of means, 1"], ends["raw, mean of means, 8"]) < 0.3
    assert min(end for name, end in ends.items() if "raw, mean of means" not in name) > 0.8


def test_with_a_noisy_verbosity_grpo_lengthens_wrong_answers_and_dr_grpo_does_not():
    def wrong_lengths(**changes):
        start = start_at("qwen-math-fragile", "sim")
        environment = replace(linear_environment(start), n_train=1000, n_test=1000, **changes)
        world, ends = build(environment), []
        for advantage, kind in (
            (Advantage("group_mean", "group_std"), "seq_mean_token_mean"),
            (Advantage("group_mean"), "seq_mean_token_sum"),
        ):
            design = Design(
                32, 8, estimator=Estimator(advantage, aggregation=Aggregation(kind)), rounds=200, eval_every=200
            )
            run = replace(start, environment=environment, design=design, evaluation="full")
            ends.append(simulate(run, world).metrics["test_length_wrong"].iloc[-1])
        return ends[0] / ends[1]

    assert wrong_lengths(verbosity_noise=20.0) > 1.015 > wrong_lengths(verbosity_noise=1.0)
