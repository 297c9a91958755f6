"""Check the dynamics of learning: the start, learnability, times, plateaus, end phases, Adam and KL fixed points."""

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import betaln, expit, logit

from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL, KLKind, KLPlace
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Optimizer, OptimizerKind, Simulation, Tabular
from rftlab.sim.round.optimizer import ascend, optimizer_rule
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.run import PlainLearner
from rftlab.sim.state import no_totals
from rftlab.sim.world import World, make_contexts
from rftlab.studies.theory.check import Claims, exact, positive, rate, sampled, theory_check
from rftlab.studies.theory.models import (
    GRPO,
    GRPO_POPULATION,
    MEAN,
    RAW,
    RLOO,
    Learners,
    arms_speed,
    beta_rates,
    durations,
    expected_gradient,
    expected_step,
    hitting_times,
    steady_drift,
    time_to_learn,
    two_arms,
    zscore_factor,
)


def rounds_for_first_success(p0: float, batch_size: int, rollouts: int, delta: float) -> int:
    """Return the rounds after which the chance that no trained rollout has succeeded yet is at most delta."""
    return int(np.ceil(np.log(delta) / (batch_size * rollouts * np.log1p(-p0))))


def events(
    p0: float,
    estimator: Estimator,
    batch_size: int,
    rollouts: int,
    rounds: int,
    replicas: int,
    support: int = 0,
):
    """Return the number of successes and whether any advantage is not 0, each (rounds, replicas), of replicated runs
    that never move (rate 0)."""
    learners = Learners(*two_arms(p0, replicas * batch_size), estimator, rollouts, rate=0.0, support=support)
    successes, moves = np.zeros((2, rounds, replicas))
    for r in range(rounds):
        learners.advance(1)
        successes[r] = learners.rewards().reshape(replicas, -1).sum(axis=1)
        moves[r] = (learners.advantages().reshape(replicas, -1) != 0).any(axis=1)
    return successes, moves


def falls(estimator: Estimator, n_correct: int, rollouts: int, rounds: int = 60, support: int = 0) -> float:
    """Return the largest fall of a learner's pass rate at one update, over 100 learners of four arms."""
    logits = np.random.default_rng(1).standard_normal((100, 4))
    learners = Learners(
        logits, np.tile(np.arange(4) < n_correct, (100, 1)), estimator, rollouts, rate=0.3, support=support
    )
    rates = []
    for _ in range(rounds):
        rates.append(expit(learners.theta()))
        learners.advance(1)
    return float(max(0.0, -np.diff(rates, axis=0).min()))


@theory_check("T24")
def start(mutant: int) -> Claims:
    """Yield the claims of T24, from replicated starts in the simulator, and from the largest fall of a pass rate at one
    update: with the raw reward and one or two correct arms, and with the group mean and support rollouts."""
    replicas, batch_size, rollouts, rounds, p0 = 16000, 4, 2, 4, 0.02
    successes, _ = events(p0, RAW, batch_size, rollouts, rounds, replicas)
    exchanged = mutant == 2
    singles, moves = events(0.2, MEAN if exchanged else RAW, 4, 1, 16, 8000, support=exchanged)
    one, two, supported = falls(RAW, 1, 1), falls(RAW, 2, 1), falls(MEAN, 1, 1, support=7)
    if exchanged:
        one, two, supported = supported, falls(MEAN, 2, 4), one
    first = np.where(moves.any(axis=0), moves.argmax(axis=0) + 1.0, np.inf)
    trials = batch_size * rounds * (1 if mutant == 1 else rollouts)
    yield sampled("E[successes]", trials * p0, successes.sum(axis=0))
    yield sampled("P(none)", (1 - p0) ** trials, successes.sum(axis=0) == 0)
    yield sampled("E[first round], K = 1", 1 / (1 - (1 - 0.2) ** 4), first)
    yield exact("raw: updates without a success", 0.0, float(moves[singles == 0].sum()))
    yield positive("raw, two correct arms: largest fall of p", two)
    yield positive("group mean with support rollouts, one correct arm: largest fall of p", supported)
    yield exact("raw, one correct arm: largest fall of p", 0.0, one)
    centred = {name: RAW if mutant == 1 else estimator for name, estimator in (("group mean", MEAN), ("GRPO", GRPO))}
    for name, estimator in centred.items():
        yield exact(f"{name}, two correct arms: largest fall of p", 0.0, falls(estimator, 2, 4))


def shared_direction(p: np.ndarray, rounds: int, seed: int = 0) -> float:
    """Return the mean gradient of a parameter that is added to logit p of every context in the simulator: its format
    parameter, with all arms correct."""
    n, rate = p.size, 1e-9
    base = make_contexts(np.zeros((0, 0)), np.zeros((n, 2)), logit(p), np.ones((n, 2), dtype=bool))
    design = Design(n, 4, estimator=RLOO, rounds=1, eval_every=1)
    run = Simulation(Tabular(n_contexts=n), design, Optimizer("sgd", learning_rate=rate), seed=seed)
    learner, chosen = PlainLearner(run, World(base, base, 2, 1.0, 0.0)), np.tile(np.arange(n), (rounds, 1))
    train_rounds(base, learner.plan, learner.rule, learner.state, learner.work, chosen, 0, no_totals())
    return float(learner.state.theta[-1] / (rate * rounds))


def beta_moment(a: float, b: float, right: int, wrong: int) -> float:
    """Return E[p^right q^wrong] for p ~ Beta(a, b). With right = 0 it is the share of contexts that are never solved in
    so many rollouts, which falls as a power, wrong^-a."""
    return float(np.exp(betaln(a + right, b + wrong) - betaln(a, b)))


@theory_check("T25")
def learnability(mutant: int) -> Claims:
    """Yield the claims of T25: exact expected updates over Beta distributions of mean .25, and simulated gradients."""
    learned = {}
    for size in (0.02, 2.0, 100.0):
        a, b = size / 4, size * 3 / 4
        p, weight = beta_rates(a, b, 6)
        p = np.full_like(p, p @ weight) if mutant else p
        step = expected_step(RLOO, 4, logit(p))
        learned[size] = weight @ step
        yield exact(f"shared direction E[pq], a+b = {size:g}", 0.1875 * size / (size + 1), float(learned[size]))
        yield exact(f"tabular E[p²q²], a+b = {size:g}", beta_moment(a, b, 2, 2), float(weight @ (p * (1 - p) * step)))
    yield exact("spread of learnability", (100 / 101) / (0.02 / 1.02), float(learned[100.0] / learned[0.02]))
    p = np.random.default_rng(0).beta(0.5, 1.5, 200)
    gradients = [shared_direction(np.full(200, 0.25) if mutant else p, 20, seed) for seed in range(16)]
    yield sampled(
        "shared direction, simulated, 200 contexts from Beta(.5, 1.5)", float((p * (1 - p)).mean()), np.array(gradients)
    )


@theory_check("D24")
def planning(mutant: int) -> Claims:
    """Yield the claims of D24: replicated starts with support rollouts, and contexts whose pass rates are Beta."""
    p0, batch_size, support, replicas, delta = 0.1, 2, 2, 16000, 0.5
    trained, counted = 1 + support if mutant == 1 else 1, 0 if mutant == 2 else support
    plan = rounds_for_first_success(p0, batch_size, trained, delta) + (mutant == 2)
    successes, moves = events(p0, GRPO, batch_size, 1, plan, replicas, support)
    none, still = successes.sum(axis=0) == 0, ~moves[:1].any(axis=0)
    before = successes[:-1].sum(axis=0) == 0
    learners = Learners(*two_arms(np.random.default_rng(2).beta(0.5, 1.5, 30000)), RAW, 16, rate=0.0)
    learners.advance(1)
    yield sampled("P(no trained success) after the planned rounds", (1 - p0) ** (batch_size * trained * plan), none)
    yield positive("the plan suffices: δ - P(none)", delta - none.mean(), none.std() / np.sqrt(replicas))
    yield positive("one round less does not: P(none) - δ", before.mean() - delta, before.std() / np.sqrt(replicas))
    yield sampled("P(no update) in a round", ((1 - p0) ** (1 + counted) + p0 ** (1 + counted)) ** batch_size, still)
    yield sampled(
        "never solved in 16 rollouts, Beta(.5, 1.5)",
        (1 - 0.25) ** 16 if mutant == 1 else beta_moment(0.5, 1.5, 0, 16),
        learners.rewards().sum(axis=1) == 0,
    )


def reinforce_clock(p: float) -> float:
    """Return F(p), where REINFORCE learns from p0 to p1 in the time F(p1) - F(p0)."""
    return 2 * logit(p) - 1 / p + 1 / (1 - p)


def grpo_clock(p: float) -> float:
    """Return F(p) as `reinforce_clock` does, for GRPO with infinitely many rollouts."""
    return 2 * (2 * p - 1) / np.sqrt(p * (1 - p))


def grpo_time(k: int, p0: float) -> float:
    """Return the time of GRPO with K rollouts (sample std) from p0 to one half, by its formula."""
    return float(quad(lambda p: 1 / (zscore_factor(k, p) * (p * (1 - p)) ** 2), p0, 0.5, epsabs=0, epsrel=1e-12)[0])


@theory_check("T19")
def time_of_learning(mutant: int) -> Claims:
    """Yield the claims of T19, from exact expected flows from .01 in the one-logit model and with four arms, and from
    simulated learners that start at .05."""
    limit, finite = (MEAN, MEAN) if mutant == 1 else (GRPO_POPULATION, GRPO)
    slow, fast = (logit, reinforce_clock) if mutant == 2 else (reinforce_clock, logit)
    raw, grpo, natural = (clock(0.5) - clock(0.01) for clock in (slow, grpo_clock, fast))
    speeds = {
        "REINFORCE": (raw, partial(expected_step, RAW, 1)),
        "GRPO, K = ∞": (grpo, partial(expected_step, limit, np.inf)),
        "natural gradient": (natural, partial(arms_speed, estimator=RAW, arms=2, natural=True)),
        "REINFORCE, 4 arms": (raw * 3 / 4, partial(arms_speed, estimator=RAW, arms=4)),
        "GRPO, K = ∞, 4 arms": (grpo * 3 / 4, partial(arms_speed, estimator=limit, arms=4, endless=True)),
        "natural gradient, 4 arms": (natural, partial(arms_speed, estimator=RAW, arms=4, natural=True)),
    }
    for name, (expected, speed) in speeds.items():
        yield exact(f"{name}, .01 → .5", expected, time_to_learn(speed, 0.01))
    from_raw = slow(0.5) - slow(0.05)
    for name, estimator, expected in (
        ("raw", RAW, from_raw),
        ("group mean", MEAN, from_raw * 8 / 7),
        ("GRPO", finite, grpo_time(8, 0.05)),
    ):
        learners = Learners(*two_arms(0.05, 150), estimator, 8, rate=0.05 / 2)
        yield sampled(
            f"{name}, K = 8, .05 → .5, simulated",
            expected,
            0.05 * hitting_times(learners, 0.5, every=8, limit=4000),
            slack=0.015,
        )


def plateau_times(p0: np.ndarray, mutant: int = 0) -> dict[str, np.ndarray]:
    """Return the time to learn from each base pass rate p0 (m,) to .5, by estimator, from exact expected flows."""
    order = np.argsort(p0)[::-1]
    theta = logit(np.concatenate([[0.5], np.asarray(p0, dtype=np.float64)[order]]))
    grpo, limit = (MEAN, MEAN) if mutant == 1 else (GRPO, GRPO_POPULATION)
    speeds = {
        "raw": partial(expected_step, RAW, 1),
        "GRPO, K = 8": partial(expected_step, grpo, 8),
        "GRPO, K = ∞": partial(expected_step, limit, np.inf),
        "natural gradient": partial(arms_speed, estimator=RAW, arms=2, natural=True),
    }
    if mutant == 2:
        speeds |= {"raw": speeds["natural gradient"], "natural gradient": speeds["raw"]}
        speeds["GRPO, K = 8"] = speeds["GRPO, K = ∞"]
    times = {}
    for name, speed in speeds.items():
        times[name] = np.empty(order.size)
        times[name][order] = -np.cumsum(durations(speed, theta))
    return times


@theory_check("T20")
def plateau_exponents(mutant: int) -> Claims:
    """Yield the claims of T20 between base pass rates of 1e-6 and 1e-5, from exact expected flows."""
    p0 = np.array([1e-6, 1e-5])
    times = plateau_times(p0, mutant)
    slope = {name: float(np.diff(np.log(t))[0] / np.diff(np.log(p0))[0]) for name, t in times.items()}
    exponents = {"raw": -1.0, "GRPO, K = ∞": -0.5, "GRPO, K = 8": -1.0}
    for name, expected in exponents.items():
        yield rate(f"{name}: exponent", expected, *[slope[name]] * 3)
    yield exact("natural gradient: T/ln(1/p₀)", 1.0, times["natural gradient"][0] / np.log(1 / p0[0]), 1e-4)
    prefactors = {"raw": (1.0, p0[0]), "GRPO, K = ∞": (2.0, np.sqrt(p0[0])), "GRPO, K = 8": (np.sqrt(8) / 7, p0[0])}
    for name, (expected, power) in prefactors.items():
        yield exact(f"{name}: prefactor", expected, times[name][0] * power, 1e-4)


@theory_check("T21")
def end_phase(mutant: int) -> Claims:
    """Yield the claims of T21: exact expected flows from .5 to q = 1e-6, and simulated learners at eta t = 2000."""
    q, k = 1e-6, 8 if mutant == 1 else np.inf
    first, last = ((GRPO_POPULATION, np.inf), (RAW, 1)) if mutant == 2 else ((RAW, 1), (GRPO, 8))
    raw, limit, finite = (
        time_to_learn(partial(expected_step, estimator, size), 0.5, 1 - q)
        for estimator, size in (first, (GRPO_POPULATION, k), last)
    )
    learners = Learners(*two_arms(0.5, 100), *((MEAN, 8) if mutant == 2 else (RAW, 1)), rate=0.5)
    learners.advance(2000)
    yield exact("raw: q t", 1.0, q * raw, 1e-4)
    yield exact("GRPO, K = ∞: q t²", 4.0, q * limit**2, 1e-4)
    yield exact("GRPO, K = 8: q t", np.sqrt(8) / 7, q * finite, 1e-4)
    yield sampled("raw: q t, simulated", 1.0, 2000 * expit(-learners.theta()), slack=0.015)


def spike(kind: OptimizerKind, first: int) -> float:
    """Return how far, in learning rates, a single gradient of 3.7 at update `first` moves a parameter."""
    rates = optimizer_rule(Optimizer(kind, learning_rate=1.0, eps=0.0 if kind == "sgd" else 1e-300))
    gradient, mean, square, theta = np.full(1, 3.7), *np.zeros((3, 1))
    for step in range(first, first + 400):
        ascend(rates, step, gradient, mean, square, theta)
    return float(theta[0])


def sparse_drift(kind: OptimizerKind, chance: float) -> np.ndarray:
    """Return the drift per update, in learning rates, of 200 parameters with gradient 1 at this chance, else 0."""
    rng, moment = np.random.default_rng(0), np.full(200, chance)
    gradients = ([(rng.random(200) < chance).astype(np.float64)] for _ in range(2500))
    return steady_drift(kind, gradients, moment, moment.copy(), 500, 2500)


@theory_check("T22")
def adam(mutant: int) -> Claims:
    """Yield the claims of T22: learners with gradients a constant factor apart, single spikes, sparse gradients."""
    kind: OptimizerKind = "sgd" if mutant else "adam"
    finals = []
    long = replace(MEAN, aggregation=Aggregation("seq_mean_token_sum", length=1024))
    for estimator in (RLOO, MEAN, long):
        learners = Learners(*two_arms([0.1, 0.3, 0.5], 4), estimator, 4, rate=0.01, kind=kind, eps=1e-300)
        learners.advance(100)
        finals.append(learners.theta())
    change = np.abs(finals[0] - logit(np.repeat([0.1, 0.3, 0.5], 4))).max()
    decay = 0.9 / np.sqrt(0.999)
    gaps = {"group mean": finals[1], "group mean over a length of 1024": finals[2]}
    for name, other in gaps.items():
        yield exact(f"leave-one-out less {name}", 0.0, np.abs(other - finals[0]).max() / change)
    yield exact("late spike", 0.1 / np.sqrt(0.001) / (1 - decay), spike(kind, 10**6))
    k = np.arange(1, 400)
    first = (0.1 * 0.9 ** (k - 1) / (1 - 0.9**k) / np.sqrt(0.001 * 0.999 ** (k - 1) / (1 - 0.999**k))).sum()
    yield exact("spike at the first update", first, spike(kind, 1))
    for chance in (0.1, 0.5):
        yield sampled(f"drift, P = {chance}", np.sqrt(chance), sparse_drift(kind, chance), slack=0.01)


def fixed_point(estimator: Estimator, k: int, p0: float) -> float:
    """Return the lowest pass rate above p0 at which the expected update vanishes; 1 where it is positive throughout."""
    reference = float(logit(p0))
    theta = reference + np.arange(0.0, 30.0, 0.02)
    # a grid first: brentq needs a change of sign, and would find any of several roots
    stops = np.flatnonzero(expected_step(estimator, k, theta, reference) <= 0)
    if stops.size == 0:
        return 1.0
    low, high = theta[stops[0] - 1], theta[stops[0]]
    return float(expit(brentq(lambda x: expected_step(estimator, k, x, reference)[0], low, high, xtol=1e-13)))


def with_kl(kind: KLKind, beta: float, advantage: Estimator = RAW, place: KLPlace = "loss") -> Estimator:
    """Return an estimator with a KL penalty."""
    return replace(advantage, kl=KL(kind, beta, place=place))


def forward_kl_point(beta: float, p0: float) -> float:
    """Return the fixed point of the raw reward with the differentiated k3 penalty, by its formula."""
    return float(((1 - beta) + np.sqrt((1 - beta) ** 2 + 4 * beta * p0)) / 2)


KINDS: tuple[KLKind, KLKind, KLKind] = ("k1", "k2", "k3")


@theory_check("T23")
def kl_fixed_points(mutant: int) -> Claims:
    """Yield the claims of T23: roots of exact expected updates, gradients of KL estimators, simulated learners."""
    k1, k2, k3 = KINDS[1:] + KINDS[:1] if mutant == 2 else KINDS
    kind: KLKind = "k3" if mutant == 1 else "k2"
    start = float(logit(0.2))
    shifts = {
        "raw": (RAW, 1, 1.0),
        "leave-one-out, K = 4": (RLOO, 4, 1.0),
        "group mean, K = 2": (MEAN, 2, 1 / 2),
        "group mean, K = 8": (MEAN, 8, 7 / 8),
    }
    for name, (estimator, k, w) in shifts.items():
        yield exact(
            f"{name}, β = .3", float(expit(start + w / 0.3)), fixed_point(with_kl(kind, 0.3, estimator), k, 0.2)
        )
    yield exact(
        "raw, KL in the reward", float(expit(start + 1 / 0.3)), fixed_point(with_kl(k1, 0.3, place="reward"), 1, 0.2)
    )
    root = brentq(lambda theta: theta - start - zscore_factor(8, expit(theta)), start, start + 10, xtol=1e-13)
    yield exact("GRPO, K = 8, β = 1", float(expit(root)), fixed_point(with_kl(kind, 1.0, GRPO), 8, 0.2))
    for beta in (0.1, 0.3):
        yield exact(f"k3, β = {beta}", forward_kl_point(beta, 0.2), fixed_point(with_kl(k3, beta), 1, 0.2))
    ceiling = forward_kl_point(0.001, 0.2) if mutant == 3 else 1.0
    yield exact("k3 held at 10, β = .001: ceiling", ceiling, fixed_point(with_kl("k3", 0.001), 1, 0.2))
    base = np.array([0.1, 0.2, 0.3, 0.4])
    best = base * np.exp(np.array([1, 0, 0, 1]) / 0.3)
    rest = expected_gradient(
        with_kl(kind, 0.3), 1, best[None] / best.sum(), np.array([1, 0, 0, 1], dtype=bool), ref=base
    )
    yield exact("4 arms: gradient at π_ref exp(r/β)", 0.0, float(np.abs(rest).max()))
    theta, u = 0.4, expit(0.4) * expit(-0.4)
    slopes = 0.0, u * (theta - start), expit(theta) - 0.2
    for name, slope, used in zip(KINDS, slopes, (k1, k2, k3), strict=True):
        yield exact(
            f"gradient of {name}",
            slope,
            (expected_step(RAW, 1, theta) - expected_step(with_kl(used, 1.0), 1, theta, start))[0],
        )
    learners = Learners(*two_arms(0.2, 200), with_kl(kind, 0.3, MEAN), 2, rate=0.1 / 2)
    learners.advance(1000)
    yield sampled("group mean, K = 2, simulated", float(expit(start + 1 / 0.6)), expit(learners.theta()), slack=0.015)
