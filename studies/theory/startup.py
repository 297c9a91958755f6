"""The start of learning, and what decides whether a pair of model and data can learn at all."""

import numpy as np
from scipy.special import betaln, expit, logit

from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.sim.config import Optimizer, Simulation, Tabular
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.setup import make_plan, make_work, start_state
from rftlab.sim.state import no_totals
from rftlab.sim.world import World, make_contexts
from rftlab.studies.theory.check import Claims, exact, positive, sampled, theory_check
from rftlab.studies.theory.learners import Learners, expected_step, two_arms
from rftlab.studies.theory.models import GRPO, MEAN, RAW, RLOO, beta_rates


def rounds_for_first_success(p0: float, batch_size: int, rollouts: int, delta: float) -> int:
    """Rounds after which the chance that no trained rollout has succeeded yet is at most delta."""
    return int(np.ceil(np.log(delta) / (batch_size * rollouts * np.log1p(-p0))))


def never_solved(a: float, b: float, rollouts: int) -> float:
    """Expected share of contexts without a success in so many rollouts each, where pass rates are Beta(a, b): falls
    as a power, rollouts^-a."""
    return float(np.exp(betaln(a, b + rollouts) - betaln(a, b)))


def events(
    p0: float,
    estimator: Estimator,
    batch_size: int,
    rollouts: int,
    rounds: int,
    replicas: int,
    support: int = 0,
    rate: float = 0.0,
):
    """Successes and whether any advantage is not 0, each (rounds, replicas), of replicated runs that never move
    (rate 0)."""
    learners = Learners(*two_arms(p0, replicas * batch_size), estimator, rollouts, rate, support)
    successes, moves = np.zeros((2, rounds, replicas))
    for r in range(rounds):
        learners.advance(1)
        successes[r] = learners.rewards().reshape(replicas, -1).sum(axis=1)
        moves[r] = (learners.advantages().reshape(replicas, -1) != 0).any(axis=1)
    return successes, moves


def successes_of_contexts(a: float, b: float, rollouts: int, n: int) -> np.ndarray:
    """Successes (n,) of contexts with pass rates drawn from Beta(a, b), in one round of the simulator."""
    learners = Learners(*two_arms(np.random.default_rng(2).beta(a, b, n)), RAW, rollouts, rate=0.0)
    learners.advance(1)
    return learners.rewards().sum(axis=1)


def falls(estimator: Estimator, n_correct: int, rollouts: int, rounds: int = 60, support: int = 0) -> float:
    """Largest fall of a learner's pass rate at one update, over 100 learners of four arms."""
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
    """T24. Replicated starts in the simulator, and the largest fall of a pass rate at one update: of the raw reward
    with one and with two correct arms, and of the group mean with support rollouts."""
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
    """Mean gradient of one parameter that is added to logit p of every context, in the simulator: its format
    parameter, all arms correct."""
    n, rate = p.size, 1e-9
    base = make_contexts(np.zeros((0, 0)), np.zeros((n, 2)), logit(p), np.ones((n, 2), dtype=bool))
    world = World(base, base, 2, 1.0, 0.0)
    run = Simulation(
        Tabular(n_contexts=n),
        Design(n, 4, estimator=RLOO, rounds=1, eval_every=1),
        Optimizer("sgd", learning_rate=rate),
        seed=seed,
    )
    state, work = start_state(run, world), make_work(run, world)
    train_rounds(
        base,
        make_plan(run, world),
        as_rule(RLOO),
        state,
        work,
        np.tile(np.arange(n), (rounds, 1)),
        0,
        no_totals(),
    )
    return float(state.theta[-1] / (rate * rounds))


def beta_moment(a: float, b: float, power: int) -> float:
    """E[(p q)^power] for p ~ Beta(a, b)."""
    return float(np.exp(betaln(a + power, b + power) - betaln(a, b)))


@theory_check("T25")
def learnability(mutant: int) -> Claims:
    """T25. Exact expected updates over Beta distributions of mean .25, and the simulator's gradients."""
    learned = {}
    for size in (0.02, 2.0, 100.0):
        a, b = size / 4, size * 3 / 4
        p, weight = beta_rates(a, b, 6)
        p = np.full_like(p, p @ weight) if mutant else p
        step = expected_step(RLOO, 4, logit(p))
        learned[size] = weight @ step
        yield exact(f"shared direction E[pq], a+b = {size:g}", 0.1875 * size / (size + 1), float(learned[size]))
        yield exact(f"tabular E[p²q²], a+b = {size:g}", beta_moment(a, b, 2), float(weight @ (p * (1 - p) * step)))
    yield exact("spread of learnability", (100 / 101) / (0.02 / 1.02), float(learned[100.0] / learned[0.02]))
    p = np.random.default_rng(0).beta(0.5, 1.5, 200)
    gradients = [shared_direction(np.full(200, 0.25) if mutant else p, 20, seed) for seed in range(16)]
    yield sampled(
        "shared direction, simulated, 200 contexts from Beta(.5, 1.5)", float((p * (1 - p)).mean()), np.array(gradients)
    )


@theory_check("D24")
def planning(mutant: int) -> Claims:
    """D24. Replicated starts with support rollouts, and contexts whose pass rates are Beta."""
    p0, batch_size, support, replicas, delta = 0.1, 2, 2, 16000, 0.5
    trained, counted = 1 + support if mutant == 1 else 1, 0 if mutant == 2 else support
    plan = rounds_for_first_success(p0, batch_size, trained, delta) + (mutant == 2)
    successes, moves = events(p0, GRPO, batch_size, 1, plan, replicas, support)
    none, still = successes.sum(axis=0) == 0, ~moves[:1].any(axis=0)
    before = successes[:-1].sum(axis=0) == 0
    unsolved = successes_of_contexts(0.5, 1.5, 16, 30000) == 0
    yield sampled("P(no trained success) after the planned rounds", (1 - p0) ** (batch_size * trained * plan), none)
    yield positive("the plan suffices: δ - P(none)", delta - none.mean(), none.std() / np.sqrt(replicas))
    yield positive("one round less does not: P(none) - δ", before.mean() - delta, before.std() / np.sqrt(replicas))
    yield sampled("P(no update) in a round", ((1 - p0) ** (1 + counted) + p0 ** (1 + counted)) ** batch_size, still)
    yield sampled(
        "never solved in 16 rollouts, Beta(.5, 1.5)",
        (1 - 0.25) ** 16 if mutant == 1 else never_solved(0.5, 1.5, 16),
        unsolved,
    )
