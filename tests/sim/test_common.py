"""Sharpening, correctness, familiarity, damage and lengths. The slow twin holds their gradients."""

from dataclasses import replace

import numpy as np
import pytest

from rftlab import Advantage, Aggregation, Design, Estimator, Linear, Optimizer, Simulation, Tabular, simulate
from rftlab.shared.plumbing.jit import jit
from rftlab.sim.environments import build
from rftlab.sim.policy.common import base_policy
from rftlab.sim.setup import make_plan
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from tests.support.worlds.problems import PROBLEMS, TABULAR
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import same


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


def test_where_they_are_off_no_parameter_is_there_and_nothing_changes():
    world, other = build(SMALL), build(replace(SMALL, correctness_parts=9, length_jitter=0.5))
    assert world.n_common == other.n_common == 0 and world.n_parameters == 32 * 16 + 1
    assert world.style.slope == 0.0 and world.long_arms == 0b101010
    assert same(*(simulate(run_of(DESIGNS["updates"]), each).curve for each in (world, other)))
    names = ("sharpening", "both, familiar", "damage", "in common", "everything")
    assert [build(PROBLEMS[name]).n_common for name in names] == [1, 4, 4, 8, 8]
    assert build(replace(SMALL, style_tokens=3.0, exploration=1.0)).n_common == 1


def test_what_is_familiar_is_training_contexts_alone():
    plain, familiar = (build(replace(SMALL, unsolvable=0.3, familiarity=bonus)) for bonus in (0.0, 0.7))
    bits = (plain.train.correct[:, None] >> np.arange(16, dtype=np.uint32)) & 1
    difference = familiar.train.base_logits - plain.train.base_logits
    np.testing.assert_allclose(difference, 0.7 * bits, atol=1e-6)
    for part in ("features", "base_logits", "base_lse", "base_format", "correct"):
        np.testing.assert_array_equal(getattr(plain.test, part), getattr(familiar.test, part))
    assert np.all(familiar.train.base_lse[bits.any(axis=1)] > plain.train.base_lse[bits.any(axis=1)])


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


def test_with_a_noisy_verbosity_grpo_lengthens_wrong_answers_and_dr_grpo_does_not():
    def wrong_lengths(**changes):
        start = start_at("qwen-math-fragile", "sim")
        environment = replace(linear_environment(start), n_train=1000, n_test=1000, **changes)
        world, ends = build(environment), []
        for advantage, kind in (
            (Advantage("group_mean", "group_std"), "seq_mean_token_mean"),
            (Advantage("group_mean"), "seq_mean_token_sum"),
        ):
            estimator = Estimator(advantage, aggregation=Aggregation(kind))
            design = Design(32, 8, estimator=estimator, rounds=200, eval_every=200)
            run = replace(start, environment=environment, design=design, evaluation="full")
            ends.append(simulate(run, world).metrics["test_length_wrong"].iloc[-1])
        return ends[0] / ends[1]

    assert wrong_lengths(verbosity_noise=20.0) > 1.015 > wrong_lengths(verbosity_noise=1.0)
