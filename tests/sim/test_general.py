"""The general round against the fast one, bit for bit, and against its slow twin; threads, divergence, bad input."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Divergence, KLCov
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.shaping import Length
from rftlab.shared.config.surrogate import Cispo, Clip, GeometricMean
from rftlab.shared.design import Design
from rftlab.shared.errors import UserError
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Linear, Optimizer, Sampler, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.style import style_of
from rftlab.sim.run import simulate
from rftlab.sim.setup import is_general
from tests.support.general import BASE, CORRECTIONS, OTHER_SAMPLER, PULL, RUNS, WORLD, corrected, styled_run
from tests.support.naive.general import METRICS, general_curve
from tests.support.simulations import DESIGNS, SMALL, run_of
from tests.support.small_worlds import forced, mixed_world, same

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
    "pass at k": Design(
        8, 4, replay_window=6, estimator=Estimator(Advantage("leave_one_out", credit="pass_at_k", k=2))
    ),
}
WORLDS = {"linear": SMALL, "tabular": Tabular(n_contexts=9, n_arms=5, n_correct=2, nuisance=0.3)}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PLAIN)
def test_with_one_token_it_is_the_fast_round_bit_for_bit(monkeypatch, name, world):
    run, world = run_of(PLAIN[name], WORLDS[world], seed=3), build(WORLDS[world])
    assert not is_general(run, world)
    fast, general = simulate(run, world).curve, forced(monkeypatch, run, world).curve
    assert same(fast, general)
    assert np.ptp(fast.train_pass_at_1) > 1e-3
    other = replace(run, optimizer=replace(run.optimizer, learning_rate=run.optimizer.learning_rate * (1 + 1e-6)))
    assert not same(fast, forced(monkeypatch, other, world).curve)


@pytest.mark.parametrize("name", PLAIN)
def test_batches_of_several_chunks_differ_only_in_the_rounding_of_the_kl_metric(monkeypatch, name):
    environment = replace(SMALL, n_train=600)
    run, world = run_of(replace(PLAIN[name], batch_size=270), environment, rounds=4, seed=5), build(environment)
    fast, general = simulate(run, world).curve, forced(monkeypatch, run, world).curve
    assert same(fast, general, but=("seconds", "kl"))
    np.testing.assert_allclose(fast.kl, general.kl, rtol=1e-12)


# --- the slow twin ---

EXACT, FLOAT32 = 1e-9, 1e-5


TOGETHER = {
    "corrected kl cov": (
        styled_run(OTHER_SAMPLER, mask=KLCov(0.2), kl=PULL, correction=Correction("truncate")),
        styled_run(OTHER_SAMPLER, kl=PULL),
    ),
    "old anchor, ratio to the sampler": (
        styled_run(OTHER_SAMPLER, kl=replace(PULL, anchor="old"), correction=Correction("ratio")),
        styled_run(OTHER_SAMPLER, kl=PULL, correction=Correction("ratio")),
    ),
    "one update of several tries": (
        styled_run(sampling=Sampling(tries=5), design=replace(BASE, epochs=1, minibatches=1)),
        styled_run(design=replace(BASE, epochs=1, minibatches=1)),
    ),
    "tries by difficulty": (
        styled_run(sampling=Sampling(tries=5, budget="difficulty")),
        styled_run(sampling=Sampling(tries=5)),
    ),
    "keep of tries by difficulty": (
        styled_run(sampling=Sampling(tries=3, keep=2, budget="difficulty")),
        styled_run(sampling=Sampling(tries=3, budget="difficulty")),
    ),
    "penalised difficulty": (
        styled_run(sampling=Sampling(budget="difficulty"), length=Length(3.0, 6, 4)),
        styled_run(length=Length(3.0, 6, 4)),
    ),
    **{f"{name} of the sampler": (run, styled_run(OTHER_SAMPLER)) for name, run in corrected().items()},
}

EQUAL_REWARDS = {"kl in reward": ("clip_fraction", "zero_signal_fraction")}
"""Metrics that ask whether rewards are equal, which penalties leave to rounding before the first update."""


@cache
def twin(run):
    return general_curve(run, WORLD)


def differences(run, columns, world=WORLD):
    """Largest difference of each metric between the simulator's curve and `columns`."""
    curve = simulate(run, world).curve
    for name in METRICS:
        np.testing.assert_array_equal(np.isnan(getattr(curve, name)), np.isnan(columns[name]))
    return {name: np.nanmax(np.abs(getattr(curve, name) - columns[name]), initial=0.0) for name in METRICS}


@pytest.mark.parametrize("name", [*RUNS, *TOGETHER])
def test_it_follows_its_slow_twin_which_tells_every_knob(name):
    run, without = TOGETHER.get(name) or (RUNS[name], styled_run())
    found = differences(run, twin(run))
    assert max(value for metric, value in found.items() if metric not in EQUAL_REWARDS.get(name, ())) < EXACT
    assert differences(run, twin(without))["train_pass_at_1"] > 1e-3


ONE_TOKEN = mixed_world(tokens=0.0)
OF_ITSELF = {
    "kl cov",
    "clip cov",
    "mask tv",
    "mask kl",
    "mask drift",
    "sampler",
    "tries",
    "many tries",
    "keep",
    "difficulty",
    "entropy",
    "old anchor",
}
OF_ITSELF |= {"greedy", "moving_average", "optimal", "value", "kl in reward", *CORRECTIONS}


@pytest.mark.parametrize("name", RUNS)
def test_every_knob_is_heard_with_one_token_too(name):
    """Whichever round `simulate` picks, with Gaussian nuisance."""
    run = RUNS[name]
    assert is_general(run, ONE_TOKEN) == (name in OF_ITSELF)
    found = differences(run, general_curve(run, ONE_TOKEN), ONE_TOKEN)
    assert max(value for metric, value in found.items() if metric not in EQUAL_REWARDS.get(name, ())) < EXACT


WRONG = {
    "seed": styled_run(seed=4),
    "noise": styled_run(Sampler(3, 0.41)),
    "lag": styled_run(Sampler(2, 0.4)),
    "slope": styled_run(OTHER_SAMPLER),
    "jitter": styled_run(OTHER_SAMPLER),
}
WRONG_WORLDS = {
    "slope": WORLD._replace(style=WORLD.style._replace(slope=1.01 * WORLD.style.slope)),
    "jitter": mixed_world(jitter=0.5),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_twin_tells_runs_apart(name):
    wrong = general_curve(WRONG[name], WRONG_WORLDS.get(name, WORLD))
    assert differences(RUNS["sampler"], wrong)["train_pass_at_1"] > 1e-6


STYLED = replace(SMALL, style_tokens=5.0, length_by_style=0.6, length_jitter=0.3)
LINEAR = {
    "style tokens": (Sampler(), {}),
    "sampler, correction, mask": (
        OTHER_SAMPLER,
        {"correction": Correction("truncate", "sequence"), "mask": Divergence("kl", 1e-4, 1e-4), "entropy": 0.1},
    ),
    "optimal": (Sampler(), {"advantage": Advantage("optimal")}),
    "value, tries": (
        Sampler(),
        {
            "advantage": Advantage("value"),
            "sampling": Sampling(tries=3, budget="difficulty"),
            "ratio": Ratio("sequence"),
        },
    ),
    "Gaussian nuisance, greedy": (Sampler(0, 0.3), {"advantage": Advantage("greedy"), "entropy": 0.1}),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_environment_follows_its_slow_twin(name):
    sampler, knobs = LINEAR[name]
    environment = SMALL if name.startswith("Gaussian") else STYLED
    run = replace(
        styled_run(sampler, **knobs), environment=environment, optimizer=Optimizer(learning_rate=0.02, eps=1e-3)
    )
    world = build(environment)
    columns = general_curve(run, world)
    found = differences(run, columns, world)
    assert found["rollouts"] == found["tokens"] == 0
    assert max(value for metric, value in found.items() if metric != "grad_norm") < FLOAT32
    assert found["grad_norm"] < FLOAT32 * np.nanmax(columns["grad_norm"])
    assert np.ptp(columns["train_pass_at_1"]) > 100 * FLOAT32


# --- promises ---


def test_results_do_not_depend_on_threads_or_on_the_order_of_runs():
    runs = [replace(RUNS[name], seed=seed) for name in ("tries", "clip cov", "sampler", "value") for seed in (1, 2)]
    alone = [simulate(run, WORLD).curve for run in runs]
    with ThreadPoolExecutor(4) as pool:
        together = [outcome.curve for outcome in pool.map(lambda run: simulate(run, WORLD), runs[::-1])][::-1]
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))
    assert not any(same(a._replace(seed=b.seed), b) for a, b in zip(alone, together[1:], strict=False))


def test_evaluation_points_do_not_change_the_run():
    run = RUNS["many tries"]
    often, once = (
        simulate(replace(run, design=replace(run.design, eval_every=every)), WORLD).curve for every in (1, 9)
    )
    for name in ("rollouts", "tokens", "train_pass_at_1"):
        assert getattr(often, name)[-1] == getattr(once, name)[-1]


@pytest.mark.parametrize("name", ["many tries", "sampler", "value"])
def test_the_pieces_of_a_run_change_no_bit(name, monkeypatch):
    run = replace(RUNS[name], design=replace(RUNS[name].design, eval_every=9))
    whole = simulate(run, WORLD).curve
    monkeypatch.setattr("rftlab.sim.run.PIECE", 1)
    assert same(simulate(run, WORLD).curve, whole)


def test_a_diverging_run_says_where(monkeypatch):
    run = replace(run_of(DESIGNS["raw"]), optimizer=Optimizer("sgd", learning_rate=1e38))
    fast, general = simulate(run, build(SMALL)), forced(monkeypatch, run, build(SMALL))
    assert fast.diverged_at == general.diverged_at > 0 and same(fast.curve, general.curve)
    stale = simulate(replace(run, sampler=Sampler(1, 0.1)), build(SMALL))
    assert (
        stale.diverged_at > 0
        and stale.curve.round[-1] <= stale.diverged_at < stale.curve.round[-1] + run.design.eval_every
    )
    assert (
        simulate(
            replace(run, sampler=Sampler(1, 0.1), optimizer=Optimizer("sgd", learning_rate=1.0)), build(SMALL)
        ).diverged_at
        is None
    )


PAIR, RAW = Advantage("group_mean"), Advantage("none")
BAD = {
    "tries": (lambda: Sampling(tries=0), "sampling.tries = 0; allowed: 1 or more"),
    "keep": (lambda: Sampling(keep=-1), "sampling.keep = -1; allowed: 0 or more"),
    "budget": (lambda: Sampling(budget="even"), "sampling.budget = 'even' is unknown; allowed: equal, difficulty"),
    "lag": (lambda: Sampler(lag=-1), "sampler.lag = -1; allowed: 0 or more"),
    "noise": (lambda: Sampler(noise=-0.1), "sampler.noise = -0.1; allowed: 0 or more"),
    "noise nan": (lambda: Sampler(noise=float("nan")), "sampler.noise = nan; allowed: 0 or more"),
    "tries of one": (
        lambda: Design(8, 1, sampling=Sampling(tries=2)),
        "sampling.tries = 2; allowed: 1, or more where rollouts > 1",
    ),
    "tries with support": (
        lambda: Design(8, 2, 1, sampling=Sampling(tries=2)),
        "sampling.tries = 2; allowed: 1, .* without support, replay",
    ),
    "tries with window": (
        lambda: Design(8, 2, replay_window=4, sampling=Sampling(tries=2)),
        "sampling.tries = 2; allowed: 1, .* without support, replay",
    ),
    "keep more": (lambda: Design(8, 2, sampling=Sampling(keep=3)), "sampling.keep = 3; allowed: at most rollouts = 2"),
    "keep with support": (
        lambda: Design(8, 2, 1, sampling=Sampling(keep=1)),
        "sampling.keep = 1; allowed: 0 with support rollouts or a replay window",
    ),
    "keep with window": (
        lambda: Design(8, 2, replay_window=4, sampling=Sampling(keep=1)),
        "sampling.keep = 1; allowed: 0 with support rollouts",
    ),
    "budget of one": (
        lambda: Design(8, 1, sampling=Sampling(budget="difficulty")),
        "sampling.budget = 'difficulty'; allowed: equal, or rollouts > 1",
    ),
    "budget with support": (
        lambda: Design(8, 2, 1, sampling=Sampling(budget="difficulty")),
        "sampling.budget = 'difficulty'; allowed: equal",
    ),
    "lengths of support": (
        lambda: Design(8, 2, 1, estimator=Estimator(Advantage("length_weighted"))),
        "advantage.baseline = length_weighted; allowed: without",
    ),
    "lengths of kept": (
        lambda: Design(8, 3, sampling=Sampling(keep=2), estimator=Estimator(Advantage("length_weighted"))),
        "advantage.baseline = length_weighted; allowed: without .* sampling.keep",
    ),
    "lonely": (
        lambda: Design(8, 1, estimator=Estimator(Advantage(singleton="error"))),
        "smallest baseline set = 1 .*; allowed: 2 or more",
    ),
    "lonely kept": (
        lambda: Design(8, 4, sampling=Sampling(keep=1), estimator=Estimator(Advantage(singleton="error"))),
        "baseline set = 1 .*; allowed: 2 or more",
    ),
    "lonely budget": (
        lambda: Design(8, 4, sampling=Sampling(budget="difficulty"), estimator=Estimator(Advantage(singleton="error"))),
        "smallest baseline set = 1 .*; allowed: 2 or more",
    ),
    "k": (
        lambda: Design(8, 4, estimator=Estimator(Advantage("none", credit="pass_at_k", k=5))),
        "advantage.k = 5; allowed: at most .* 4",
    ),
    "k of kept": (
        lambda: Design(
            8, 4, sampling=Sampling(keep=2), estimator=Estimator(Advantage("none", credit="pass_at_k", k=3))
        ),
        "advantage.k = 3; allowed: at most .* 2",
    ),
    "critic rate": (
        lambda: Simulation(critic_learning_rate=0.0),
        "critic_learning_rate = 0.0; allowed: more than 0, less than 2",
    ),
    "critic rate 2": (
        lambda: Simulation(critic_learning_rate=2.0),
        "critic_learning_rate = 2.0; allowed: more than 0, less than 2",
    ),
    "gamma": (
        lambda: Simulation(design=Design(estimator=Estimator(Advantage("none", gamma=0.9)))),
        "advantage.gamma, lam = 0.9, 1.0; allowed: 1 in the sim",
    ),
    "lam": (
        lambda: Simulation(design=Design(estimator=Estimator(Advantage("value", lam=0.9)))),
        "advantage.gamma, lam = 1.0, 0.9; allowed: 1 in the sim",
    ),
    "style tokens": (lambda: Linear(style_tokens=-1.0), "environment.style_tokens = -1.0; allowed: 0 to 1000"),
    "style tokens many": (lambda: Linear(style_tokens=1001.0), "environment.style_tokens = 1001.0; allowed: 0 to 1000"),
    "by style": (lambda: Linear(length_by_style=1.5), "environment.length_by_style = 1.5; allowed: 0 to 1"),
    "jitter": (lambda: Linear(length_jitter=-0.5), "environment.length_jitter = -0.5; allowed: 0 to 1"),
    "style of": (lambda: style_of(-2.0, 0.0, 0.0, 2, 1.0), "style tokens = -2.0; allowed: 0 or more"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_with_what_is_allowed(name):
    make, message = BAD[name]
    with pytest.raises(UserError, match=message):
        make()


def test_what_borders_on_bad_input_is_allowed():
    assert Design(8, 2, sampling=Sampling(tries=9, keep=2, budget="difficulty")).smallest_set == 1
    assert (
        Design(8, 4, 1, replay_window=4, estimator=Estimator(Advantage("none", credit="pass_at_k", k=5))).smallest_set
        == 5
    )
    assert Design(8, 4, sampling=Sampling(keep=2), estimator=Estimator(Advantage(singleton="error"))).smallest_set == 2
    assert (
        Linear(style_tokens=1000.0, length_by_style=1.0, length_jitter=1.0)
        and Simulation(critic_learning_rate=1.99)
        and Sampler(0, 0.0) == Sampler()
    )
