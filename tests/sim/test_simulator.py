"""The simulator's rates, steps, batches and worlds, and what it promises of designs that share randomness."""

from dataclasses import replace

import numpy as np
import pytest

import rftlab.shared.objective
import rftlab.sim.round.plain
import rftlab.sim.run
from rftlab import Design, Linear, Optimizer, Simulation, Tabular, preset
from rftlab.shared.curve import SPLITS
from rftlab.sim.environments import build
from rftlab.sim.round.optimizer import ascend, optimizer_rule
from rftlab.sim.run import Stopped, batches, simulate
from rftlab.sim.world import NO_ARM
from tests.support.worlds.problems import PROBLEMS
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import same


def test_a_bf16_weight_moves_with_the_square_of_small_rates_and_in_proportion_to_large_ones():
    """Against weights N(0, 0.02^2) that are rounded one by one. Units in the last place are powers of two, so that the
    steps of an octave are averaged."""
    rng = np.random.default_rng(0)
    weights = np.abs(rng.normal(0.0, 0.02, 200_000))
    unit = 2.0 ** (np.floor(np.log2(weights)) - 7)
    whole = np.floor(weights / unit) * unit
    left = []
    for low in (1e-6, 1e-5, 3e-5, 1e-4, 1e-3):
        steps = low * 2.0 ** (np.arange(16) / 16)
        rounded = [(np.round((whole + step) / unit) * unit - whole).mean() / step for step in steps]
        kept = [_kept(step) for step in steps]
        left.append(kept[0])
        assert np.mean(np.divide(rounded, kept)) == pytest.approx(1, abs=0.15)
    assert left[1] / left[0] == pytest.approx(10, rel=0.1) and left[-1] > 0.99


def _kept(step):
    """The part of a step of this size that a simulated coordinate takes."""
    rule = optimizer_rule(Optimizer(learning_rate=1.0, beta1=0.0, beta2=0.0, eps=0.0, bf16_rate=step))
    theta = np.zeros(1)
    ascend(rule, 1, np.ones(1), np.zeros(1), np.zeros(1), theta)
    return theta[0]


ENVIRONMENTS = {"linear": SMALL, "two tokens": replace(SMALL, answer_tokens=2)}


@pytest.mark.parametrize("evaluation", ["exact", "sampled"])
@pytest.mark.parametrize("name", [*ENVIRONMENTS, "tabular"])
def test_without_a_format_strict_and_flexible_are_equal(name, evaluation):
    run = run_of(DESIGNS["raw"], ENVIRONMENTS.get(name, Tabular(9, 5, 2)), evaluation=evaluation)
    world = build(run.environment)
    free = {split: getattr(world, split)._replace(base_format=world.test.base_format + np.inf) for split in SPLITS[1:]}
    curve = simulate(run, world._replace(**free)).curve
    np.testing.assert_array_equal(curve.test_pass_at_1, curve.test_flexible)
    assert np.ptp(curve.test_flexible) > 0


def test_the_simulator_calls_the_estimators_of_shared():
    assert rftlab.sim.round.plain.objective_and_weights_into is rftlab.shared.objective.objective_and_weights_into
    assert rftlab.sim.round.plain.advantages_into.__module__ == "rftlab.shared.advantage"


def test_designs_share_their_random_numbers():
    """With a rate of 0 the same contexts give the same first rollouts, whatever else is sampled."""
    world, still = build(SMALL), Optimizer(learning_rate=0.0)
    designs = (Design(8, 1, estimator=preset("minimalist")), Design(8, 1, 7, estimator=preset("paper_text")))
    runs = (Simulation(SMALL, replace(design, rounds=20, eval_every=1), still) for design in designs)
    rewards = [simulate(run, world).curve.reward[1:] for run in runs]
    np.testing.assert_array_equal(*rewards)


@pytest.mark.parametrize("name", ["window", "micro-batches"])
def test_paper_text_and_paper_code_differ_where_a_micro_batch_is_not_whole(name):
    """And coincide to the last bit with one token, one update and whole micro-batches."""
    design, names = DESIGNS[name], ("paper_text", "paper_code")
    whole = design.batch_size * design.rollouts % 4 == 0
    runs = (run_of(replace(design, estimator=preset(name))) for name in names)
    text, code = (simulate(run, build(SMALL)).curve for run in runs)
    assert same(text, code) == whole == (name == "window")
    assert whole or np.abs(text.grad_norm - code.grad_norm)[1:].min() > 1e-4


SIZES = (("train", 7000), ("test", 5000))


@pytest.mark.parametrize("problem", ["plain", "four"])
def test_sampled_pass_at_1_agrees_with_the_exact_one(problem):
    environment = replace(PROBLEMS[problem], n_train=7000, n_test=5000, base_format=2.0)
    exact, sampled = (
        simulate(run_of(DESIGNS["raw"], environment, rounds=4, evaluation=kind), build(environment)).curve
        for kind in ("exact", "sampled")
    )
    for column, n in [(f"{split}_{rate}", n) for split, n in SIZES for rate in ("pass_at_1", "flexible")]:
        p = getattr(exact, column)
        z = (getattr(sampled, column) - p) / np.sqrt(p * (1 - p) / n)
        assert 1e-6 < np.abs(z).max() < 4.5


def test_a_long_run_holds_few_batches_and_can_be_stopped(monkeypatch):
    held, asked = [], []

    def chosen(*args):
        held.append(batches(*args))
        return held[-1]

    monkeypatch.setattr(rftlab.sim.run, "batches", chosen)
    monkeypatch.setattr(rftlab.sim.run, "PIECE", 1000)
    run = replace(run_of(DESIGNS["raw"]), design=replace(DESIGNS["raw"], rounds=10**9, eval_every=10**9))
    with pytest.raises(Stopped):
        simulate(run, build(SMALL), stopped=lambda: asked.append(0) or len(asked) == 4)
    assert len(held) == 3 and all(batch.size <= 1000 for batch in held)
    np.testing.assert_array_equal(np.concatenate(held), batches(40, 8, 0, 0, sum(map(len, held))))


@pytest.mark.parametrize("evaluation", ["exact", "sampled"])
def test_a_run_whose_weights_are_not_finite_diverged_though_its_gradients_were(evaluation):
    run = replace(run_of(DESIGNS["raw"], evaluation=evaluation, seed=1), optimizer=Optimizer("sgd", learning_rate=1e38))
    run = replace(run, design=replace(run.design, rounds=1, eval_every=1))
    outcome = simulate(run, build(SMALL))
    assert outcome.diverged_at == 1 and outcome.curve.round.tolist() == [0]
    assert np.isfinite(outcome.curve.train_pass_at_1).all()


def test_batches_are_epochs_without_repeats():
    chosen = batches(10, 3, 7, 0, 9)
    for epoch in range(3):
        assert len(set(chosen[3 * epoch : 3 * epoch + 3].ravel())) == 9
    np.testing.assert_array_equal(batches(10, 3, 7, 4, 8), chosen[4:8])
    assert not np.array_equal(batches(10, 3, 2**64 - 1, 0, 9), batches(10, 3, 2**64 - 2, 0, 9))
    assert not np.array_equal(chosen[:3], chosen[3:6])


def test_linear_world_has_the_stated_moments():
    environment = Linear(n_train=10000, n_test=200, unsolvable=0.3, base_format=1.5)
    world = build(environment)
    solvable = world.train.correct != 0
    assert abs(solvable.mean() - 0.7) < 0.02
    assert np.all(np.bitwise_count(world.train.correct[solvable]) == environment.n_styles)
    assert abs(world.train.base_format.mean() - 1.5) < 0.03 and abs(world.train.base_format.std() - 1) < 0.03
    expected = np.sqrt(environment.kappa**2 + 0.25)
    np.testing.assert_allclose(world.train.base_logits.std(axis=0), expected, rtol=0.1)
    small = build(SMALL).train
    assert np.all(small.base_logits[:, 6:] == np.float32(NO_ARM)) and small.features.shape[1] == 32


def test_alignment_one_and_a_sharp_base_policy_is_right():
    world = build(Linear(n_train=500, n_test=10, align=1.0, kappa=200.0, base_format=20.0, n_features=32))
    run = Simulation(Linear(n_train=500, n_test=10), Design(rounds=1, eval_every=1))
    assert simulate(run, world).curve.train_pass_at_1[0] > 0.97
