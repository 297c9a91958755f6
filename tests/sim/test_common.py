"""Sharpening, correctness, familiarity, damage: finite differences, and what the parameters are."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.config import Linear, Optimizer, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.common import base_policy
from rftlab.sim.run import PlainLearner, batches, simulate
from rftlab.sim.setup import make_plan
from rftlab.sim.state import no_totals
from tests.support.naive.simulator import NaiveRun
from tests.support.worlds.problems import COMMON, PROBLEMS, TABULAR
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import places_of, same, spelt_world

# --- finite differences ---

RAW = DESIGNS["raw"].estimator
BY_LENGTH = Estimator(Advantage("none"), Reinforce(), KL("k2", 0.1), Aggregation("seq_mean_token_mean"))
GRADIENTS = {
    "tabular": (TABULAR["both"], RAW, 1e-8),
    "linear": (build(SMALL)._replace(**COMMON), RAW, 1e-4),
    "verbosity": (TABULAR["lengths"]._replace(verbosity=0.9), BY_LENGTH, 1e-7),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradient_is_that_of_finite_differences(name):
    """Of sum_k w_k log pi(response k) in each of the numbers in common, at the round's own weights w, which lengths
    have divided: the first round by SGD of rate 1 adds the gradient to parameters away from the base policy."""
    world, estimator, tolerance = GRADIENTS[name]
    world, n, c = world._replace(nuisance=0.0), len(world.train.base_format), world.n_common
    design = Design(n, 4, estimator=estimator, rounds=1, eval_every=1)
    learner = PlainLearner(Simulation(Tabular(n), design, Optimizer("sgd", learning_rate=1.0), seed=2), world)
    twin, rng = NaiveRun(learner.run, world), np.random.default_rng(3)
    twin.w, twin.common, twin.theta_f = 0.3 * rng.standard_normal(twin.w.shape), rng.random(c), 0.1
    learner.state.theta[places_of(world)], learner.state.theta[-1] = twin.w, twin.theta_f
    learner.state.theta[-1 - c : -1] = twin.common
    before, at = learner.state.theta.copy(), twin.common.copy()
    assert learner.advance(0, 1, no_totals()) == 1
    found = (learner.state.theta - before)[-1 - c : -1].astype(np.float64)
    batch = batches(n, n, twin.run.seed, 0, 1)[0]
    arms, forms, weight = (getattr(learner.work, name)[: n * 4] for name in ("arm", "form", "weight"))

    def objective(common):
        twin.common = common
        return (weight * twin.logp(batch, arms.reshape(n, 4, 1), forms.reshape(n, 4)).ravel()).sum()

    h = 1e-5
    expected = np.array([(objective(at + h * e) - objective(at - h * e)) / (2 * h) for e in np.eye(c)])
    tolerance *= np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert np.abs(expected).min() > 100 * tolerance and (c == 1 or abs(expected[0] - expected[1]) > 100 * tolerance)


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
    numbers = [build(PROBLEMS[name]).n_common for name in ("sharpening", "both, familiar", "damage", "in common")]
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
