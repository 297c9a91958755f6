"""Sharpening, correctness, familiarity: against the slow twin, wrong twins, finite differences and identities."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.design import Design
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.common import base_policy
from rftlab.sim.round.plain import CHUNK
from rftlab.sim.run import PlainLearner, batches, simulate
from rftlab.sim.setup import make_plan
from rftlab.sim.state import no_totals
from tests.support.naive.general import METRICS, NaiveGeneral, general_curve
from tests.support.naive.simulator import NaiveRun, naive_curve, rates_of, sigmoid
from tests.support.worlds.general import OTHER_SAMPLER, RUNS, styled_run
from tests.support.worlds.simulations import DESIGNS, SMALL, TOLERANCE, run_of
from tests.support.worlds.small_worlds import places_of, same, spelt_world, styled

COMMON = {"sharpening": 0.8, "correctness": 0.6, "correctness_parts": 3}
DAMAGED = COMMON | {"damage": 300.0}
WEAR = COMMON | {"damage": 0.5}
OTHERS = {"surprise": 0.7, "interference": 0.4, "forgetting": 0.5}
PROBLEMS = {
    "sharpening": replace(SMALL, sharpening=0.8),
    "correctness": replace(SMALL, correctness=0.6, correctness_parts=2),
    "both, familiar": replace(SMALL, **COMMON, familiarity=0.7),
    "damage": replace(SMALL, damage=300.0),
    "everything": replace(SMALL, answer_tokens=2, **DAMAGED, **OTHERS),
}
TABULAR = {
    "sharpening": spelt_world(9, 1, 5, sharpening=0.8),
    "correctness": spelt_world(9, 1, 5, correctness=0.6, correctness_parts=2),
    "both": spelt_world(9, 1, 5, **COMMON),
    "damage": spelt_world(9, 1, 5, damage=300.0),
    "everything": spelt_world(9, 2, 3, **DAMAGED, **OTHERS),
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


def test_batches_of_several_chunks_follow_their_slow_twin():
    environment = replace(PROBLEMS["everything"], n_train=600)
    run = run_of(replace(DESIGNS["raw"], batch_size=2 * CHUNK + 14), environment, rounds=4, seed=5)
    world = build(environment)
    np.testing.assert_allclose(rates_of(simulate(run, world).curve), naive_curve(run, world), atol=TOLERANCE)


def sharp_reference(self, batch, arms, forms):
    f = sigmoid(self.h0[batch])[:, None]
    z = np.stack([self.base(context, 0 * self.w) for context in batch])
    return self.answer_logp(self.softmax(z), arms) + np.log(np.where(forms == 1, f, 1 - f))


def sharp_format(self, batch):
    p, _ = NaiveRun.policy(self, batch)
    h = self.sharpness(self.common) * self.remembered(self.h0[batch])
    return p, sigmoid(h + self.world.format_scale * self.theta_f)


def sharp_everything(self, batch):
    z = np.stack([self.base(context) + self.sharpness(self.common) * self.x[context] @ self.w for context in batch])
    return self.softmax(z), NaiveRun.policy(self, batch)[1]


def noisy(change):
    """A twin whose parameters in common are taught by `change` of the score and its variance."""

    def method(self, round_index, context, score, variance):
        changed = change(self, round_index, context, score, variance)
        return NaiveRun.common_gradient(self, round_index, context, *changed)

    return {"common_gradient": method}


def drawn(change):
    """A twin whose noise of the parameters in common is `change` of what it is."""
    return {
        "common_noise": lambda self, round_index, context: change(
            lambda r: NaiveRun.common_noise(self, r, context), round_index
        )
    }


def first_right(self, context):
    found = NaiveRun.right_arms(self, context)
    return found * (np.cumsum(found) == 1)


WRONG = {
    "the reference is sharper too": {"base_logp": sharp_reference},
    "the format is sharper too": {"policy": sharp_format},
    "what W learns is sharper too": {"policy": sharp_everything},
    "no sharpening": {"sharpness": lambda self, common: 1.0},
    "an exponential": {"sharpness": lambda self, common: np.exp(self.world.sharpening * common[0])},
    "the mean of the parts": {"lift": lambda self, common: NaiveRun.lift(self, common) / np.sqrt(3)},
    "the first part": {"lift": lambda self, common: NaiveRun.lift(self, common * (np.arange(8) < 2))},
    "one right arm": {"right_arms": first_right},
    "forgetting has no part in the slope": {
        "directions": lambda self, context: (
            NaiveRun.directions(self, context) / np.r_[self.remembered(np.ones(1)), np.ones(7)][:, None]
        )
    },
    "one noise for all parts": drawn(lambda noise, r: noise(r)[[0, 1, 1, 1, 4, 5, 6, 7]]),
    "one noise for all damage": drawn(lambda noise, r: noise(r)[[0, 1, 2, 3, 4, 4, 4, 4]]),
    "no damage": {"harm": lambda self, common: 0.0},
    "the sum of squares": {"harm": lambda self, common: 4 * NaiveRun.harm(self, common)},
    "the square of the mean": {"harm": lambda self, common: 300 * common[-4:].mean() ** 2},
    "damage raises correct arms": {
        "lift": lambda self, common: NaiveRun.lift(self, common) + self.split(common)[2].sum()
    },
    "damage is learnt": {
        "directions": lambda self, context: np.vstack(
            [NaiveRun.directions(self, context)[:4], np.outer(self.common[4:], self.right_arms(context))]
        )
    },
    "the same noise in every round": drawn(lambda noise, r: noise(0)),
    "that of the nuisance": {"common_noise": lambda self, r, context: np.resize(self.nuisance(r, context), 8)},
    "no noise": drawn(lambda noise, r: 0 * noise(r)),
    "no leaking": noisy(lambda self, r, context, s, v: (s, v - self.world.interference**2 * (s**2).sum())),
    "scores with their nuisance": noisy(lambda self, r, context, s, v: (s + np.sqrt(v) * self.nuisance(r, context), v)),
    "leaking of the whole score": noisy(
        lambda self, r, context, s, v: (s, v + self.world.interference**2 * self.world.n_arms * v)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_does_not_follow_a_wrong_twin(name):
    run, world = run_of(DESIGNS["kl in reward"], Tabular(9), seed=4), TABULAR["everything"]
    wrong = type("Wrong", (NaiveRun,), WRONG[name])
    with np.errstate(invalid="ignore"):
        values = naive_curve(run, world, wrong)
    assert np.abs(rates_of(simulate(run, world).curve) - values).max() > 1e-6


# --- the general round ---

GENERAL = {
    "style tokens": styled(spelt_world(15, 2, 4, **WEAR, interference=0.4, forgetting=0.3), 5.0, 0.6, 0.3),
    "Gaussian nuisance": spelt_world(15, 2, 4, **WEAR, **OTHERS),
}
GENERAL_RUNS = {name: RUNS[name] for name in ("sampler", "many tries", "entropy", "optimal", "truncate")} | {
    "all": styled_run(OTHER_SAMPLER, entropy=0.2, sampling=Sampling(tries=3), advantage=Advantage("optimal"))
}


@pytest.mark.parametrize("name", GENERAL_RUNS)
@pytest.mark.parametrize("world", GENERAL)
def test_the_general_round_follows_its_slow_twin(world, name):
    run, world = GENERAL_RUNS[name], GENERAL[world]
    curve, columns = simulate(run, world).curve, general_curve(run, world)
    for metric in METRICS:
        np.testing.assert_allclose(getattr(curve, metric), columns[metric], rtol=1e-9, atol=1e-9, err_msg=metric)
    assert np.ptp(columns["train_pass_at_1"]) > 1e-3


def styled_by_all(self, context, w=None, theta_f=None, noise=0.0, common=None):
    """Style that drifts with what contexts have in common, too."""
    policy = NaiveGeneral.view(self, context, w, theta_f, noise, common)
    return replace(policy, moved=policy.moved + self.base(context, w, common) - self.remembered(self.z0[context], w))


WRONG_GENERAL = {
    "no damage": ("sampler", "Gaussian nuisance", {"harm": lambda self, common: 0.0}),
    "the sampler is as damaged as the trainer": (
        "sampler",
        "Gaussian nuisance",
        {"harm": lambda self, common: NaiveRun.harm(self, self.common)},
    ),
    "the sampler is as sharp as the trainer": (
        "sampler",
        "Gaussian nuisance",
        {"base": lambda self, context, w=None, common=None: NaiveRun.base(self, context, w)},
    ),
    "style drifts with sharpness": ("entropy", "style tokens", {"view": styled_by_all}),
    "style tokens teach nothing in common": (
        "entropy",
        "style tokens",
        {"squares": lambda self, policy, response, weight: 0.0},
    ),
    "an optimal baseline without parameters in common": (
        "optimal",
        "Gaussian nuisance",
        {"common_square": lambda self, context, p, arms: 0.0},
    ),
}


@pytest.mark.parametrize("wrong", WRONG_GENERAL)
def test_the_general_round_does_not_follow_a_wrong_twin(wrong):
    name, world, methods = WRONG_GENERAL[wrong]
    columns = general_curve(GENERAL_RUNS[name], GENERAL[world], type("Wrong", (NaiveGeneral,), methods))
    curve = simulate(GENERAL_RUNS[name], GENERAL[world]).curve
    assert np.abs(curve.train_pass_at_1 - columns["train_pass_at_1"]).max() > 1e-6


# --- finite differences ---


def moved_learner(environment):
    """A learner whose first round, by SGD of rate 1, adds its gradient to parameters away from the base policy; and
    its twin there."""
    world = build(SMALL)._replace(**COMMON, nuisance=0.0) if environment == "linear" else TABULAR["both"]
    world, n = world._replace(nuisance=0.0), len(world.train.base_format)
    design = Design(n, 4, estimator=DESIGNS["raw"].estimator, rounds=1, eval_every=1)
    learner = PlainLearner(Simulation(Tabular(n), design, Optimizer("sgd", learning_rate=1.0), seed=2), world)
    twin, rng = NaiveRun(learner.run, world), np.random.default_rng(3)
    twin.w, twin.common, twin.theta_f = 0.3 * rng.standard_normal(twin.w.shape), rng.random(4), 0.1
    learner.state.theta[places_of(world)], learner.state.theta[-1] = twin.w, twin.theta_f
    learner.state.theta[-5:-1] = twin.common
    return learner, twin


@pytest.mark.parametrize("environment", ["tabular", "linear"])
def test_the_gradient_is_that_of_finite_differences(environment):
    """Of sum_k w_k log pi(response k) in each of the numbers in common, at the round's own weights w."""
    learner, twin = moved_learner(environment)
    before, n = learner.state.theta.copy(), twin.design.batch_size
    assert learner.advance(0, 1, no_totals()) == 1
    found = (learner.state.theta - before)[-5:-1].astype(np.float64)
    batch = batches(n, n, twin.run.seed, 0, 1)[0]
    arms, forms, weight = (getattr(learner.work, name)[: n * 4] for name in ("arm", "form", "weight"))
    at = twin.common.copy()

    def objective(common):
        twin.common = common
        return (weight * twin.logp(batch, arms.reshape(n, 4, 1), forms.reshape(n, 4)).ravel()).sum()

    h = 1e-5
    expected = np.array([(objective(at + h * e) - objective(at - h * e)) / (2 * h) for e in np.eye(4)])
    tolerance = (1e-8 if environment == "tabular" else 1e-4) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert np.abs(expected).min() > 100 * tolerance and abs(expected[0] - expected[1]) > 100 * tolerance


# --- what the parameters are ---


@jit
def _base(plan, theta):
    return base_policy(plan, theta)


def test_a_policy_that_got_less_sharp_keeps_the_order_of_its_arms():
    """1 + 0.8 th is at least 1e-6, where th has no more slope; three numbers of 0.6 / sqrt 3 each raise correct
    arms."""
    plan = make_plan(run_of(DESIGNS["raw"], Tabular(9)), TABULAR["both"])
    theta = np.zeros(9 * 5 + 5)
    theta[-5:] = [0.5, 1.0, 2.0, -0.5, 7.0]
    assert _base(plan, theta) == pytest.approx((1.0, 1.4, 0.8, 0.6 / np.sqrt(3) * 2.5, 0.0, 0.0, 0.0))
    theta[-5] = -2.0
    assert _base(plan, theta)[:3] == (1.0, 1e-6, 0.0)


def test_damage_is_the_mean_square_of_four_numbers():
    plan = make_plan(run_of(DESIGNS["raw"], Tabular(9)), TABULAR["damage"])
    theta = np.zeros(9 * 5 + 5)
    theta[-5:] = [0.1, -0.2, 0.3, 0.0, 7.0]
    assert _base(plan, theta) == pytest.approx((1.0, 1.0, 0.0, 0.0, 300 * (0.01 + 0.04 + 0.09) / 4, 0.0, 0.0))


def test_without_noise_and_with_sgd_the_number_of_parts_does_not_matter():
    curves = []
    for parts in (1, 4, 15):
        world = spelt_world(9, 1, 5, nuisance=0.0, correctness=1.5, correctness_parts=parts)
        run = replace(run_of(DESIGNS["group"], Tabular(9)), optimizer=Optimizer("sgd", learning_rate=0.3))
        curves.append(simulate(run, world).curve.train_pass_at_1)
    np.testing.assert_allclose(curves[1:], np.array([curves[0]] * 2), rtol=1e-12)
    assert np.ptp(curves[0]) > 0.01


def test_where_they_are_off_no_parameter_is_there_and_nothing_changes():
    world, other = build(SMALL), build(replace(SMALL, correctness_parts=9))
    assert world.n_common == other.n_common == 0 and world.n_parameters == 32 * 16 + 1
    assert same(*(simulate(run_of(DESIGNS["updates"]), each).curve for each in (world, other)))
    numbers = [build(PROBLEMS[name]).n_common for name in ("sharpening", "both, familiar", "damage", "everything")]
    assert numbers == [1, 4, 4, 8]


def test_what_is_familiar_is_training_contexts_alone():
    plain, familiar = (build(replace(SMALL, unsolvable=0.3, familiarity=bonus)) for bonus in (0.0, 0.7))
    bits = (plain.train.correct[:, None] >> np.arange(16, dtype=np.uint32)) & 1
    difference = familiar.train.base_logits - plain.train.base_logits
    np.testing.assert_allclose(difference, 0.7 * bits, atol=1e-6)
    for part in ("features", "base_logits", "base_lse", "base_format", "correct"):
        np.testing.assert_array_equal(getattr(plain.test, part), getattr(familiar.test, part))
    assert np.all(familiar.train.base_lse[bits.any(axis=1)] > plain.train.base_lse[bits.any(axis=1)])


def test_sharpening_makes_a_policy_surer_and_correctness_more_correct():
    """Where nothing can be learnt about single contexts: one feature, which says nothing."""
    environment = Linear(n_train=2000, n_test=500, n_features=1, rho=0.0, kappa=1.0, align=0.4, base_format=20.0)
    ends = {}
    for name, knobs in {"neither": {}, "sharpening": {"sharpening": 2.0}, "correctness": {"correctness": 1.0}}.items():
        run = Simulation(
            replace(environment, **knobs), Design(32, 8, rounds=200, eval_every=200), Optimizer(learning_rate=0.01)
        )
        curve = simulate(run, build(run.environment)).curve
        ends[name] = curve.test_pass_at_1[-1] - curve.test_pass_at_1[0]
    assert abs(ends["neither"]) < 0.02 < 0.04 < ends["sharpening"] < ends["correctness"]


def test_damage_breaks_runs_at_high_rates_alone_and_sooner_with_some_seeds():
    """Noise moves the four numbers by about the rate at each update, so their squares grow with rate^2 x updates."""
    environment = Linear(n_train=500, n_test=200, base_format=0.0)
    design = Design(16, 4, rounds=120, eval_every=120)

    def ends(damage, times):
        optimizer, world = Optimizer(learning_rate=3e-3 * times), replace(environment, damage=damage)
        runs = [Simulation(world, design, optimizer, seed=seed) for seed in range(4)]
        return np.array([simulate(run, build(world)).curve.test_pass_at_1[-1] for run in runs])

    damage = 2e-3 / 3e-3**2
    assert ends(0.0, 16).min() > 0.2
    safe, edge = ends(damage, 1), ends(damage, 16)
    assert safe.min() > 0.5 and np.ptp(safe) < 0.02
    assert edge.min() < 0.01 and edge.max() > 0.2
