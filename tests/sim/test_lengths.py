"""Short answers, virtual lengths and exploration: slow twins, wrong twins, finite differences, identities."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.style import token_style
from rftlab.sim.run import GeneralLearner, PlainLearner, batches, simulate
from rftlab.sim.state import no_totals
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from tests.support.naive.general import METRICS, NaiveGeneral, general_curve
from tests.support.naive.simulator import NaiveRun, naive_curve, rates_of, sigmoid
from tests.support.worlds.general import BASE, RUNS
from tests.support.worlds.simulations import DESIGNS, SMALL, TOLERANCE, run_of
from tests.support.worlds.small_worlds import places_of, same, spelt_world, styled

SHORT = {"verbosity": 0.9, "short_right": 0.4, "length_by_style": 0.6}
ALL = {"sharpening": 0.8, "correctness": 0.6, "correctness_parts": 2, "damage": 0.5}
ALL |= {"verbosity": 0.9, "verbosity_noise": 3.0}
OTHERS = {"surprise": 0.7, "interference": 0.4, "forgetting": 0.5}
PROBLEMS = {
    "short": replace(SMALL, **SHORT),
    "three styles": replace(SMALL, n_styles=3, **SHORT),
    "everything": replace(SMALL, answer_tokens=2, **ALL | OTHERS | SHORT),
}


def virtual(world, by_style=0.6, n_styles=2):
    """The world with virtual lengths."""
    return world._replace(style=token_style(0, by_style, 0.0, n_styles, world.nuisance))


TABULAR = {
    "lengths": virtual(spelt_world(9, 1, 6)),
    "verbosity": virtual(spelt_world(9, 1, 6, verbosity=0.9), n_styles=3),
    "everything": virtual(spelt_world(9, 2, 4, **ALL, **OTHERS), 0.8),
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


@pytest.mark.parametrize("name", ["raw", "group", "micro-batches"])
def test_batches_of_several_chunks_follow_their_slow_twin(name):
    environment = replace(PROBLEMS["everything"], n_train=600)
    run = run_of(replace(DESIGNS[name], batch_size=270), environment, rounds=4, seed=5)
    world = build(environment)
    np.testing.assert_allclose(rates_of(simulate(run, world).curve), naive_curve(run, world), atol=TOLERANCE)


WRONG = {
    "lengths do not count": ("updates", {"stretch": lambda self, arms: np.ones(len(arms))}),
    "lengths count twice": ("group", {"stretch": lambda self, arms: NaiveRun.stretch(self, arms) ** 2}),
    "long answers count more": ("group", {"stretch": lambda self, arms: 1 / NaiveRun.stretch(self, arms)}),
    "micro-batches are the batch": (
        "updates",
        {"stretch": lambda self, arms: len(arms) / np.full(len(arms), self.relative_length(arms).sum())},
    ),
    "the first token's style": (
        "group",
        {"relative_length": lambda self, arms: 1 + 0.8 * (2 * (arms[..., 0] % 2) - 1)},
    ),
    "noise does not grow with length": ("group", {"relative_length": lambda self, arms: np.ones(arms.shape[:-1])}),
    "short arms are raised": ("group", {"long_arms": lambda self: 1 - NaiveRun.long_arms(self)}),
    "verbosity has the noise of the others": (
        "group",
        {"noisiness": lambda self: NaiveRun.noisiness(self) ** 0 * (np.arange(self.common.size) < 8)},
    ),
    "verbosity is fixed": ("group", {"lengthen": lambda self, common: 0.0}),
    "verbosity is correctness": ("group", {"long_arms": lambda self: self.right_arms(0)}),
    "damage and verbosity change places": (
        "group",
        {
            "split": lambda self, common: [
                *(parts := NaiveRun.split(self, common))[:2],
                common[-4:],
                common[3:4],
                parts[4],
            ]
        },
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_does_not_follow_a_wrong_twin(wrong):
    name, methods = WRONG[wrong]
    run, world = run_of(DESIGNS[name], Tabular(9), seed=4), TABULAR["everything"]
    values = naive_curve(run, world, type("Wrong", (NaiveRun,), methods))
    assert np.abs(rates_of(simulate(run, world).curve) - values).max() > 1e-6


# --- the general round ---

GENERAL = {
    "exploration": styled(spelt_world(15, 2, 4, **ALL, exploration=3.0, interference=0.4), 5.0, 0.6, 0.3),
    "virtual lengths": virtual(spelt_world(15, 2, 4, **ALL, **OTHERS)),
}
GENERAL_RUNS = {
    name: RUNS[name]
    for name in ("sampler", "many tries", "entropy", "mean of means", "truncate", "mean of micro-batches")
}


@pytest.mark.parametrize("name", GENERAL_RUNS)
@pytest.mark.parametrize("world", GENERAL)
def test_the_general_round_follows_its_slow_twin(world, name):
    run, world = GENERAL_RUNS[name], GENERAL[world]
    curve, columns = simulate(run, world).curve, general_curve(run, world)
    for metric in METRICS:
        np.testing.assert_allclose(getattr(curve, metric), columns[metric], rtol=1e-9, atol=1e-9, err_msg=metric)
    assert np.ptp(columns["train_pass_at_1"]) > 1e-3


def test_the_optimal_baseline_knows_verbosity():
    world = spelt_world(15, 2, 4, **ALL, **OTHERS)._replace(style=token_style(0, 0.0, 0.0, 2, 0.7))
    curve, columns = simulate(RUNS["optimal"], world).curve, general_curve(RUNS["optimal"], world)
    np.testing.assert_allclose(curve.train_pass_at_1, columns["train_pass_at_1"], rtol=1e-9)

    def square_without_it(self, context, p, arms):
        score = self.directions(context)[-1] @ self.answer_score(p, arms)
        return NaiveGeneral.common_square(self, context, p, arms) - score**2

    def square_as_noisy_as_others(self, context, p, arms):
        noise = self.world.nuisance**2 * self.variance(p, arms)
        noise += self.world.interference**2 * (self.answer_score(p, arms) ** 2).sum()
        return NaiveGeneral.common_square(self, context, p, arms) + (1 - self.world.verbosity_noise**2) * noise

    for square in (square_without_it, square_as_noisy_as_others):
        wrong = type("Wrong", (NaiveGeneral,), {"common_square": square})
        columns = general_curve(RUNS["optimal"], world, wrong)
        assert np.abs(curve.train_pass_at_1 - columns["train_pass_at_1"]).max() > 1e-6


def even_reference(self, policy, response):
    found = NaiveGeneral.logps(self, policy, response)
    at_base = not policy.moved.any() and policy.style == -1.5
    return np.append(found[:1], np.full(len(found) - 1, np.log(0.5))) if at_base else found


def styled_by_length(self, context, w=None, theta_f=None, noise=0.0, common=None):
    policy = NaiveGeneral.view(self, context, w, theta_f, noise, common)
    return replace(policy, moved=policy.moved + self.lengthen(self.common) * self.long_arms())


WRONG_GENERAL = {
    "the reference is even": {"logps": even_reference},
    "the base policy is even": {"readiness": lambda self, common=None: 1.5 + NaiveGeneral.readiness(self, common)},
    "the slope is that of even tokens": {"slope": lambda self: 2 * self.world.nuisance / np.sqrt(5)},
    "exploration is fixed": {"readiness": lambda self, common=None: -1.5},
    "the sampler is as ready as the trainer": {
        "readiness": lambda self, common=None: NaiveGeneral.readiness(
            self, None if common is None or common.any() else common
        )
    },
    "style drifts with verbosity": {"view": styled_by_length},
    "exploration is noisy": {
        "common_gradient": lambda self, r, context, score, variance: (
            NaiveGeneral.common_gradient(self, r, context, score, variance)
            + np.sqrt(variance) * self.common_noise(r, context) * (np.arange(self.common.size) == self.common.size - 1)
        )
    },
}


@pytest.mark.parametrize("wrong", WRONG_GENERAL)
def test_the_general_round_does_not_follow_a_wrong_twin(wrong):
    run, world = RUNS["sampler"], GENERAL["exploration"]
    columns = general_curve(run, world, type("Wrong", (NaiveGeneral,), WRONG_GENERAL[wrong]))
    curve = simulate(run, world).curve
    assert np.abs(curve.train_pass_at_1 - columns["train_pass_at_1"]).max() > 1e-6


# --- finite differences ---


def test_the_gradient_of_verbosity_is_that_of_finite_differences():
    """Of sum_k w_k log pi(response k) at the round's own weights, which lengths have divided."""
    world, n = virtual(spelt_world(9, 1, 6, nuisance=0.0, verbosity=0.9)), 9
    estimator = Estimator(Advantage("none"), Reinforce(), KL("k2", 0.1), Aggregation("seq_mean_token_mean"))
    design = Design(n, 4, estimator=estimator, rounds=1, eval_every=1)
    learner = PlainLearner(Simulation(Tabular(n), design, Optimizer("sgd", learning_rate=1.0), seed=2), world)
    twin, rng = NaiveRun(learner.run, world), np.random.default_rng(3)
    twin.w, twin.common, twin.theta_f = 0.3 * rng.standard_normal(twin.w.shape), np.array([0.4]), 0.1
    learner.state.theta[places_of(world)], learner.state.theta[-2:] = twin.w, [0.4, 0.1]
    assert learner.advance(0, 1, no_totals()) == 1
    batch = batches(n, n, 2, 0, 1)[0]
    arms, forms, weight = (getattr(learner.work, name)[: n * 4] for name in ("arm", "form", "weight"))

    def objective(number):
        twin.common = np.array([number])
        return (weight * twin.logp(batch, arms.reshape(n, 4, 1), forms.reshape(n, 4)).ravel()).sum()

    expected = (objective(0.4 + 1e-5) - objective(0.4 - 1e-5)) / 2e-5
    assert learner.state.theta[-2] - 0.4 == pytest.approx(expected, rel=1e-7) and abs(expected) > 1e-3


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


# --- what they are ---


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verbosity": 1.0, "n_styles": 1}, "verbosity = 1.0 with n_styles = 1"),
        ({"short_right": 0.5, "n_styles": 1}, "short_right = 0.5 with n_styles = 1"),
        ({"short_right": 1.5}, "allowed: 0 to 1"),
        ({"verbosity_noise": -1.0}, "verbosity_noise = -1.0; allowed: 0 or more"),
        ({"exploration": 1.0}, "exploration = 1.0 with style_tokens = 0"),
        ({"length_by_style": 1.0}, "allowed: below 1"),
        ({"correctness_parts": 11, "damage": 1.0, "verbosity": 1.0}, "allowed: 1 to 10"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, said):
    with pytest.raises(UserError, match=said):
        replace(Linear(), **changes)


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
