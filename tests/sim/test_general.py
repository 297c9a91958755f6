"""The general round against the fast one, bit for bit; what both promise: threads, pieces, divergence."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from rftlab import KL, Advantage, Aggregation, Correction, Design, Estimator, Length, Ratio, Sampling, simulate
from rftlab.shared.config.surrogate import Cispo, Clip, GeometricMean, Topr
from rftlab.sim.config import Optimizer, Sampler
from rftlab.sim.environments import build
from rftlab.sim.setup import is_general
from tests.support.worlds.general import RUNS, WORLD, styled_run
from tests.support.worlds.problems import NINE, PROBLEMS, TABULAR
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import forced, mixed_world, same, with_estimator

# --- bit identity ---

UPDATES = {"epochs": 3, "minibatches": 2}
PLAIN = DESIGNS | {
    "batch mean": Design(8, 4, estimator=Estimator(Advantage("batch_mean", "batch_std"), Clip(0.05, 0.05))),
    "whitened": Design(8, 4, estimator=Estimator(Advantage("none", whiten="responses"), Cispo()), **UPDATES),
    "nonzero": Design(8, 4, 2, estimator=Estimator(Advantage("group_mean", "nonzero"), kl=KL("k2", 0.2)), **UPDATES),
    "one sequence": Design(8, 4, estimator=Estimator(ratio=Ratio("sequence"))),
    "geometric": Design(
        8,
        4,
        estimator=Estimator(surrogate=GeometricMean(0.02, 0.02), aggregation=Aggregation("token_mean", eps=1e-8)),
        **UPDATES,
    ),
    "prompts": Design(
        8, 4, estimator=Estimator(Advantage("james_stein"), Topr(), aggregation=Aggregation("prompt_mean")), **UPDATES
    ),
    "pass at k": Design(
        8, 4, replay_window=6, estimator=Estimator(Advantage("leave_one_out", credit="pass_at_k", k=2))
    ),
}
FLOAT64 = {f"{name}, tabular": TABULAR[name] for name in ("plain", "four", "in common")}


@pytest.mark.parametrize("world", [*PROBLEMS, *FLOAT64])
@pytest.mark.parametrize("name", PLAIN)
def test_where_both_can_run_it_is_the_fast_round_bit_for_bit(monkeypatch, name, world):
    run = run_of(PLAIN[name], PROBLEMS.get(world, NINE), seed=3)
    world = FLOAT64.get(world) or build(run.environment)
    assert not is_general(run, world)
    fast, general = simulate(run, world).curve, forced(monkeypatch, run, world).curve
    assert same(fast, general)
    assert np.ptp(fast.train_pass_at_1) > 1e-3
    other = replace(run, optimizer=replace(run.optimizer, learning_rate=run.optimizer.learning_rate * (1 + 1e-6)))
    assert not same(fast, forced(monkeypatch, other, world).curve)


@pytest.mark.parametrize("problem", ["plain", "four", "everything"])
@pytest.mark.parametrize("name", PLAIN)
def test_batches_of_several_chunks_differ_only_in_the_rounding_of_the_kl_metric(monkeypatch, name, problem):
    environment = replace(PROBLEMS[problem], n_train=600)
    run, world = run_of(replace(PLAIN[name], batch_size=270), environment, rounds=4, seed=5), build(environment)
    fast, general = simulate(run, world).curve, forced(monkeypatch, run, world).curve
    assert same(fast, general, but=("seconds", "kl"))
    np.testing.assert_allclose(fast.kl, general.kl, rtol=1e-12)


# --- promises ---


def test_no_lag_and_no_noise_is_no_sampler():
    run = run_of(DESIGNS["group"], sampler=Sampler(0, 0.0))
    assert run == run_of(DESIGNS["group"]) and not is_general(run, build(SMALL))


@pytest.mark.parametrize("design", ["raw", "window", "updates", "kl in reward"])
@pytest.mark.parametrize("kind", ["none", "truncate", "mask", "ratio"])
def test_a_sampler_that_looks_again_but_sees_the_same_changes_nothing(monkeypatch, design, kind):
    """Noise that float32 cannot hold, and a lag where nothing moves."""
    design = with_estimator(DESIGNS[design], correction=Correction(kind, "geometric"))
    world, run = build(SMALL), run_of(design, seed=3)
    plain = forced(monkeypatch, run, world).curve
    assert same(plain, simulate(run, world).curve)
    assert same(plain, simulate(replace(run, sampler=Sampler(noise=1e-30)), world).curve)
    assert not same(plain, simulate(replace(run, sampler=Sampler(noise=0.3)), world).curve)
    assert not same(plain, simulate(replace(run, sampler=Sampler(lag=1)), world).curve)
    still = replace(run, optimizer=Optimizer(learning_rate=0.0))
    assert same(simulate(still, world).curve, simulate(replace(still, sampler=Sampler(lag=3)), world).curve)


@pytest.mark.parametrize("sampling", [Sampling(tries=1), Sampling(keep=20)])
def test_one_try_and_keeping_all_are_off(monkeypatch, sampling):
    plain, world = run_of(DESIGNS["group"], seed=3), build(SMALL)
    run, filtered = (replace(plain, design=replace(plain.design, sampling=s)) for s in (sampling, Sampling(keep=19)))
    assert same(simulate(plain, world).curve, forced(monkeypatch, run, world).curve)
    assert not same(simulate(plain, world).curve, simulate(filtered, world).curve)


def test_a_first_try_that_suffices_is_the_whole_round():
    """Long answers are penalised by their length, so rewards always differ."""
    world = mixed_world(tokens=20.0, jitter=0.8)
    once, again = (styled_run(sampling=Sampling(tries=tries), length=Length(1.0, 60, 60)) for tries in (1, 9))
    assert same(simulate(once, world).curve, simulate(again, world).curve)
    assert not same(simulate(styled_run(), world).curve, simulate(styled_run(sampling=Sampling(tries=9)), world).curve)


FOUR = run_of(DESIGNS["window"], PROBLEMS["four"], seed=2**63 - 1), run_of(DESIGNS["updates"], PROBLEMS["four"])


@pytest.mark.parametrize("runs", [FOUR, [RUNS[name] for name in ("tries", "clip cov", "sampler", "value")]])
def test_results_do_not_depend_on_threads_or_on_the_order_of_runs(runs):
    world = build(PROBLEMS["four"]) if runs is FOUR else WORLD
    runs = [replace(run, seed=seed) for run in runs for seed in (run.seed, 2)]
    alone = [simulate(run, world).curve for run in runs]
    assert [curve.seed[0] for curve in alone] == [run.seed for run in runs]
    with ThreadPoolExecutor(4) as pool:
        together = [outcome.curve for outcome in pool.map(lambda run: simulate(run, world), runs[::-1])][::-1]
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))
    assert not any(same(a._replace(seed=b.seed), b) for a, b in zip(alone, together[1:], strict=False))


MANY, FEW = ("many tries", "sampler", "value"), ("window", "updates", "kl in reward")
LONG = {name: (replace(RUNS[name], design=replace(RUNS[name].design, eval_every=9)), WORLD) for name in MANY}
LONG |= {name: (run_of(DESIGNS[name], rounds=28, seed=3), build(SMALL)) for name in FEW}


@pytest.mark.parametrize("name", LONG)
def test_evaluation_points_and_pieces_do_not_change_a_run(name, monkeypatch):
    run, world = LONG[name]
    whole = simulate(run, world).curve
    often = simulate(replace(run, design=replace(run.design, eval_every=1)), world).curve
    for column in ("rollouts", "tokens", "train_pass_at_1"):
        assert getattr(often, column)[-1] == getattr(whole, column)[-1]
    for tokens in (1, 5 * 56):
        monkeypatch.setattr("rftlab.sim.run.PIECE", tokens)
        assert same(simulate(run, world).curve, whole)


def test_a_diverging_run_says_where(monkeypatch):
    run = replace(run_of(DESIGNS["raw"]), optimizer=Optimizer("sgd", learning_rate=1e38))
    fast, general = simulate(run, build(SMALL)), forced(monkeypatch, run, build(SMALL))
    assert fast.diverged_at == general.diverged_at > 0 and same(fast.curve, general.curve)
    stale = replace(run, sampler=Sampler(1, 0.1))
    for found in (fast, simulate(stale, build(SMALL))):
        past = found.diverged_at - found.curve.round[-1]
        assert 0 < found.diverged_at < 12 and 0 <= past < run.design.eval_every + (found is fast)
    assert simulate(replace(stale, optimizer=Optimizer("sgd", learning_rate=1.0)), build(SMALL)).diverged_at is None
