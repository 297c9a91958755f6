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
from rftlab.shared.config.surrogate import Cispo, Clip, GeometricMean, Topr
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Linear, Optimizer, Sampler, Simulation, Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.style import token_style
from rftlab.sim.run import simulate
from rftlab.sim.setup import is_general
from tests.support.naive.general import METRICS, NaiveGeneral, general_curve
from tests.support.worlds.general import BASE, CORRECTIONS, OTHER_SAMPLER, PULL, RUNS, WORLD, corrected, styled_run
from tests.support.worlds.simulations import DESIGNS, SMALL, run_of
from tests.support.worlds.small_worlds import forced, mixed_world, same, spelt_world, styled

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
SPELT = replace(SMALL, answer_tokens=2, surprise=0.6, interference=0.4, forgetting=1.0)
"""With all four of the options that bring the environment closer to a language model."""
WORLDS = {
    "linear": SMALL,
    "tabular": Tabular(n_contexts=9, n_arms=5, n_correct=2, nuisance=0.3),
    "two tokens": replace(SMALL, answer_tokens=2),
    "three tokens": replace(SMALL, n_answers=5, n_styles=1, answer_tokens=3, base_format=1.0),
    "surprise": replace(SMALL, surprise=0.8),
    "interference": replace(SMALL, interference=0.6),
    "forgetting": replace(SMALL, forgetting=2.0),
    "all four": SPELT,
    "in common": replace(SMALL, sharpening=0.8, correctness=0.6, correctness_parts=3, familiarity=0.5),
    "everything": replace(SPELT, sharpening=0.8, correctness=0.6, correctness_parts=2),
    "short answers": replace(SMALL, verbosity=0.9, short_right=0.4, length_by_style=0.6),
    "two short tokens": replace(SPELT, damage=0.5, verbosity=0.9, short_right=0.6, length_by_style=0.8),
}
SPELT_TABULAR = spelt_world(9, 2, 3, surprise=1.0, interference=0.4, forgetting=0.5)
TABULAR = {
    "all four, tabular": SPELT_TABULAR,
    "everything, tabular": SPELT_TABULAR._replace(sharpening=0.8, correctness=0.6, correctness_parts=2),
}


def world_of(name):
    """The environment and the world of that name."""
    return (Tabular(9), TABULAR[name]) if name in TABULAR else (WORLDS[name], build(WORLDS[name]))


@pytest.mark.parametrize("world", [*WORLDS, *TABULAR])
@pytest.mark.parametrize("name", PLAIN)
def test_where_both_can_run_it_is_the_fast_round_bit_for_bit(monkeypatch, name, world):
    environment, world = world_of(world)
    run = run_of(PLAIN[name], environment, seed=3)
    assert not is_general(run, world)
    fast, general = simulate(run, world).curve, forced(monkeypatch, run, world).curve
    assert same(fast, general)
    assert np.ptp(fast.train_pass_at_1) > 1e-3
    other = replace(run, optimizer=replace(run.optimizer, learning_rate=run.optimizer.learning_rate * (1 + 1e-6)))
    assert not same(fast, forced(monkeypatch, other, world).curve)


@pytest.mark.parametrize("problem", [SMALL, SPELT, WORLDS["everything"]], ids=["plain", "all four", "everything"])
@pytest.mark.parametrize("name", PLAIN)
def test_batches_of_several_chunks_differ_only_in_the_rounding_of_the_kl_metric(monkeypatch, name, problem):
    environment = replace(problem, n_train=600)
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
    "mean of uneven prompts": (
        styled_run(sampling=Sampling(budget="difficulty"), aggregation=Aggregation("prompt_mean")),
        styled_run(sampling=Sampling(budget="difficulty")),
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

EQUAL_REWARDS = {
    "kl in reward": ("clip_fraction", "zero_signal_fraction"),
    "replayed, by difficulty": ("zero_signal_fraction",),
}
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
    "second moment",
    "top entropy",
    "sampler",
    "queue",
    "tries",
    "many tries",
    "keep",
    "replayed",
    "replayed, by difficulty",
    "difficulty",
    "entropy",
    "moving entropy",
    "old anchor",
}
OF_ITSELF |= {"greedy", "moving_average", "optimal", "optimal_token", "optimal_token, tries", "value"}
OF_ITSELF |= {"kl in reward", *CORRECTIONS}


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
    "queue": styled_run(Sampler(3, 0.4, every=2)),
    "slope": styled_run(OTHER_SAMPLER),
    "jitter": styled_run(OTHER_SAMPLER),
}
WRONG_WORLDS = {"slope": WORLD._replace(nuisance=1.01 * WORLD.nuisance), "jitter": mixed_world(jitter=0.5)}


@pytest.mark.parametrize("name", WRONG)
def test_the_twin_tells_runs_apart(name):
    wrong = general_curve(WRONG[name], WRONG_WORLDS.get(name, WORLD))
    assert differences(RUNS["sampler"], wrong)["train_pass_at_1"] > 1e-6


# --- with answers of several tokens, surprise, interference, forgetting ---

STYLED_SPELT = styled(spelt_world(15, 2, 4, interference=0.4, forgetting=0.3), 5.0, 0.6, 0.3)
GAUSSIAN_SPELT = spelt_world(15, 2, 4, surprise=0.8, interference=0.4, forgetting=0.3)
SPELT_RUNS = {
    "of itself": styled_run(),
    "sampler": RUNS["sampler"],
    "kl cov": RUNS["kl cov"],
    "many tries": RUNS["many tries"],
    "keep": RUNS["keep"],
    "replayed": RUNS["replayed"],
    "difficulty": RUNS["difficulty"],
    "entropy": RUNS["entropy"],
    "support and window": RUNS["support and window"],
    "length penalty": RUNS["length penalty"],
    "truncate": RUNS["truncate"],
    "greedy": RUNS["greedy"],
    "optimal": RUNS["optimal"],
    "optimal_token": RUNS["optimal_token"],
    "value": RUNS["value"],
    "moving_average": RUNS["moving_average"],
    "all": styled_run(
        OTHER_SAMPLER,
        entropy=0.2,
        sampling=Sampling(tries=3, budget="difficulty"),
        advantage=Advantage("optimal"),
        correction=Correction("truncate"),
    ),
}
SPELT_WORLDS = {"style tokens": STYLED_SPELT, "Gaussian nuisance": GAUSSIAN_SPELT}


@pytest.mark.parametrize("name", SPELT_RUNS)
@pytest.mark.parametrize("world", SPELT_WORLDS)
def test_with_answers_of_several_tokens_it_follows_its_slow_twin(world, name):
    run, world = SPELT_RUNS[name], SPELT_WORLDS[world]
    columns = general_curve(run, world)
    found = differences(run, columns, world)
    assert max(value for metric, value in found.items() if metric not in EQUAL_REWARDS.get(name, ())) < EXACT
    assert np.ptp(columns["train_pass_at_1"]) > 1e-3


def test_the_twins_entropy_gradient_is_a_finite_difference():
    twin, z, h = (
        NaiveGeneral(SPELT_RUNS["entropy"], GAUSSIAN_SPELT),
        np.random.default_rng(1).standard_normal((1, 8)),
        1e-6,
    )
    moves = h * np.eye(8)
    found = [
        (twin.answer_entropy(twin.softmax(z + move)[0]) - twin.answer_entropy(twin.softmax(z - move)[0])) / (2 * h)
        for move in moves
    ]
    np.testing.assert_allclose(twin.entropy_gradient(twin.softmax(z)[0]), found, atol=1e-8)
    assert np.abs(whole_entropy_gradient(twin, twin.softmax(z)[0]) - found).max() > 0.01


def first_style(self, arms, u):
    return NaiveGeneral.length(self, arms[:1], u)


def view_without(part):
    """A twin whose policies are those of a world in which `part` is 0."""

    def view(self, context, w=None, theta_f=None, noise=0.0, common=None):
        world, self.world = self.world, self.world._replace(**{part: 0.0})
        policy = NaiveGeneral.view(self, context, w, theta_f, noise, common)
        self.world = world
        return policy

    return {"view": view}


def faded_style(self, context, w=None, theta_f=None, noise=0.0, common=None):
    """Style that drifts with what is forgotten, too."""
    policy = NaiveGeneral.view(self, context, w, theta_f, noise, common)
    return replace(
        policy, moved=policy.moved + self.remembered(self.z0[context], self.w if w is None else w) - self.z0[context]
    )


def whole_entropy_gradient(self, p):
    return (np.diag(p) - np.outer(p, p)) @ (-np.log(p) - 1)


def now_remembered(self, logits, w=None):
    return NaiveGeneral.remembered(self, logits)


def replayed_as_new(self, context):
    """Replayed responses with the log-probabilities that they have now."""
    past = NaiveGeneral.recalled(self, context)
    return [replace(one, old=self.logps(self.view(context), one)) for one in past]


def oldest_replayed(self, context):
    return self.buffer[context][: self.design.sampling.replayed]


STYLE, NOISE = (lambda name: (name, STYLED_SPELT)), (lambda name: (name, GAUSSIAN_SPELT))
WRONG_TWINS = {
    "nothing is forgotten": (STYLE("of itself"), view_without("forgetting")),
    "style drifts with what is forgotten": (STYLE("of itself"), {"view": faded_style}),
    "the sampler forgets what the trainer does": (NOISE("sampler"), {"remembered": now_remembered}),
    "length by the first token's style": (STYLE("of itself"), {"length": first_style}),
    "one right token is enough": (NOISE("greedy"), {"right": lambda self, bits: bits.any(axis=-1)}),
    "entropy of one softmax": (NOISE("entropy"), {"entropy_gradient": whole_entropy_gradient}),
    "nuisance without surprise": (NOISE("entropy"), {"variance": lambda self, p, arms: 1.0}),
    "nothing is disturbed": (STYLE("of itself"), {"taught": lambda self, round_index, context: self.x[context]}),
    "the same others in every round": (
        NOISE("optimal"),
        {"others": lambda self, round_index, batch: NaiveGeneral.others(self, 0, batch)},
    ),
    "squares of the first token": (
        NOISE("optimal_token"),
        {
            "sums_of_squares": lambda self, policy, response: np.full(
                len(response.old), (policy.p[: self.width] ** 2).sum()
            )
        },
    ),
    "one baseline for all tokens": (
        STYLE("optimal_token"),
        {
            "token_baselines": lambda self, everyone, starts, group: np.repeat(
                NaiveGeneral.token_baselines(self, everyone, starts, group)[starts[:-1]], np.diff(starts)
            )
        },
    ),
    "replays forget who sampled them": (NOISE("replayed"), {"recalled": replayed_as_new}),
    "the oldest are replayed": (STYLE("replayed"), {"recalled": oldest_replayed}),
    "log-probability of the first token": (
        NOISE("truncate"),
        {"answer_logp": lambda self, p, arms: NaiveGeneral.answer_logp(self, p, arms[:, :, :1])},
    ),
}


@pytest.mark.parametrize("wrong", WRONG_TWINS)
def test_with_answers_of_several_tokens_it_does_not_follow_a_wrong_twin(wrong):
    (name, world), methods = WRONG_TWINS[wrong]
    columns = general_curve(SPELT_RUNS[name], world, type("Wrong", (NaiveGeneral,), methods))
    curve = simulate(SPELT_RUNS[name], world).curve
    assert np.abs(curve.train_pass_at_1 - columns["train_pass_at_1"]).max() > 1e-6


STYLED = replace(SMALL, style_tokens=5.0, length_by_style=0.6, length_jitter=0.3)
SPELT_STYLED = replace(SPELT, surprise=0.0, style_tokens=5.0, length_by_style=0.6, length_jitter=0.3)
LINEAR = {
    "style tokens": (STYLED, Sampler(), {}),
    "sampler, correction, mask": (
        STYLED,
        OTHER_SAMPLER,
        {"correction": Correction("truncate", "sequence"), "mask": Divergence("kl", 1e-4, 1e-4), "entropy": 0.1},
    ),
    "optimal": (STYLED, Sampler(), {"advantage": Advantage("optimal")}),
    "value, tries": (
        STYLED,
        Sampler(),
        {
            "advantage": Advantage("value"),
            "sampling": Sampling(tries=3, budget="difficulty"),
            "ratio": Ratio("sequence"),
        },
    ),
    "Gaussian nuisance, greedy": (SMALL, Sampler(0, 0.3), {"advantage": Advantage("greedy"), "entropy": 0.1}),
    "all four, optimal, entropy": (SPELT, OTHER_SAMPLER, {"advantage": Advantage("optimal"), "entropy": 0.1}),
    "two tokens, style, greedy, tries": (
        SPELT_STYLED,
        OTHER_SAMPLER,
        {"advantage": Advantage("greedy"), "sampling": Sampling(tries=3, budget="difficulty")},
    ),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_environment_follows_its_slow_twin(name):
    environment, sampler, knobs = LINEAR[name]
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
    "style of": (lambda: token_style(-2.0, 0.0, 0.0, 2, 1.0), "style tokens = -2.0; allowed: 0 or more"),
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
