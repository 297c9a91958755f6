"""One simulated run: from a configuration to a learning curve."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from shared.aggregation import shares
from shared.curve import Curve, curve_of
from shared.design import Design
from shared.errors import check, check_choice
from shared.estimator import rule_of
from shared.replay import empty_windows
from sim.environments import Environment, Linear, n_train
from sim.optimizer import Optimizer, rates_of
from sim.policy import BLOCK
from sim.random import key_of
from sim.rounds import (
    CHUNK,
    CLIPPED,
    CONTEXTS,
    GRAD_NORM,
    KL,
    REWARD,
    ROLLOUTS,
    TOKENS,
    UPDATES,
    ZERO_SIGNAL,
    Plan,
    State,
    Work,
    pass_at_1,
    train_rounds,
)
from sim.simd import LANES
from sim.world import World

Evaluation = Literal["exact", "sampled"]


@dataclass(frozen=True)
class Simulation:
    """A simulated run."""

    environment: Environment = field(default_factory=Linear)
    """The problem."""
    design: Design = field(default_factory=Design)
    """The choices under study."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """The update rule."""
    evaluation: Evaluation = "exact"
    """Pass@1 as the exact probability, or from one sampled response per context (as with a real model)."""
    seed: int = 0
    """Seed of the order of contexts, the rollouts and the nuisance."""

    def __post_init__(self):
        check_choice("evaluation", self.evaluation, get_args(Evaluation))
        check(0 <= self.seed < 2**64, f"seed = {self.seed}; allowed: 0 to 2^64 - 1")
        contexts = n_train(self.environment)
        check(self.design.batch_size <= contexts, f"batch_size = {self.design.batch_size} is larger than the training set; allowed: 1 to {contexts}")


class Outcome(NamedTuple):
    """The curve of a run, and the round at which it diverged (gradient not finite; the curve ends before) or None."""

    curve: Curve
    diverged_at: int | None


def batches(n_contexts: int, batch_size: int, seed: int, first: int, last: int) -> np.ndarray:
    """Context indices (last - first, B) of rounds first .. last-1: epoch order, reshuffled, the last partial batch dropped."""
    per_epoch = n_contexts // batch_size
    picked = []
    for epoch in range(first // per_epoch, (last - 1) // per_epoch + 1):
        order = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))).permutation(n_contexts)
        picked.append(order[: per_epoch * batch_size].reshape(per_epoch, batch_size))
    begin = first % per_epoch
    return np.concatenate(picked)[begin : begin + last - first]


def plan_of(run: Simulation, world: World) -> Plan:
    """The numbers that kernels take instead of a `Simulation`."""
    design = run.design
    at_once = design.epochs * design.minibatches > 1 or design.estimator.advantage.kind == "batch_mean"
    return Plan(
        key=key_of(run.seed),
        rates=rates_of(run.optimizer),
        n_arms=world.n_arms,
        format_scale=float(world.format_scale),
        nuisance=float(world.nuisance),
        rollouts=design.rollouts,
        support=design.support_rollouts,
        epochs=design.epochs,
        minibatches=design.minibatches,
        replays=design.replay_window > 0,
        chunk=design.batch_size if at_once else CHUNK,
    )


def start_state(run: Simulation, world: World) -> State:
    """The state before training: the base policy, an optimiser at rest, empty windows."""
    number = world.train.base_logits.dtype
    theta, mean, square, grad = (np.zeros(world.n_parameters, dtype=number) for _ in range(4))
    n_windows = world.train.base_format.shape[0] if run.design.replay_window else 1
    return State(theta, mean, square, grad, empty_windows(n_windows, max(1, run.design.replay_window)), np.zeros(1, dtype=np.int64))


def work_of(run: Simulation, world: World) -> Work:
    """Scratch for a run."""
    design, number, columns = run.design, world.train.base_logits.dtype, world.train.base_logits.shape[1]
    n = max(design.batch_size, CHUNK) + BLOCK
    trained, sampled = design.batch_size * design.rollouts, design.batch_size * (design.rollouts + design.support_rollouts)
    pool = design.batch_size * (max(design.rollouts, design.replay_window) + design.support_rollouts)
    rule = rule_of(design.estimator)
    share = shares(rule, np.arange(trained // design.minibatches + 1))
    return Work(
        rows=np.zeros(n, dtype=np.int64),
        logits=np.zeros((n, columns), dtype=number),
        probs=np.zeros((n, columns), dtype=number),
        lse=np.zeros(n),
        format_logp=np.zeros((n, 2)),
        formed=np.zeros(n),
        scores=np.zeros((n, columns), dtype=number),
        cdf=np.zeros(columns, dtype=number),
        noise=np.zeros((n, LANES), dtype=np.float32),
        uniform=np.zeros((2, max(sampled, CHUNK) + LANES), dtype=np.float32),
        counters=np.zeros((2, LANES), dtype=np.uint32),
        arm=np.zeros(sampled, dtype=np.int64),
        form=np.zeros(sampled, dtype=np.int64),
        reward=np.zeros(sampled),
        logp=np.zeros(trained),
        old_logp=np.zeros(sampled),
        ref_logp=np.zeros(sampled),
        group=np.repeat(np.arange(design.batch_size), design.rollouts),
        starts=np.arange(sampled + 1),
        pool=np.zeros(pool),
        pool_starts=np.zeros(design.batch_size + 1, dtype=np.int64),
        advantage=np.zeros(trained),
        share=share,
        kl_share=rule.kl_in_loss * share,
        weight=np.zeros(trained),
    )


def simulate(run: Simulation, world: World, progress: Callable[[int], None] = lambda rounds: None) -> Outcome:
    """Train and evaluate; `progress` is told the rounds done after each evaluation. Equal arguments give equal curves, bit for bit."""
    design, began = run.design, time.perf_counter()
    plan, rule = plan_of(run, world), rule_of(design.estimator)
    state, work = start_state(run, world), work_of(run, world)
    n_contexts = world.train.base_format.shape[0]
    per_round = design.batch_size * (design.rollouts + design.support_rollouts)
    totals = np.full(9, np.nan)
    rows, done = [], 0
    while True:
        scores = (pass_at_1(part, plan, state.theta, work, done, run.evaluation == "sampled") for part in (world.train, world.test))
        rows.append((run.seed, done, done * per_round, done * per_round, time.perf_counter() - began, *_means(totals, rule.kl > 0, scores)))
        if done == design.rounds:
            return Outcome(curve_of(rows), None)
        totals = np.zeros(9)
        chosen = batches(n_contexts, design.batch_size, run.seed, done, done + design.eval_every)
        finished = train_rounds(world.train, plan, rule, state, work, chosen, done, totals)
        if finished < design.eval_every:
            return Outcome(curve_of(rows), done + finished)
        done += design.eval_every
        progress(done)


def _means(totals: np.ndarray, has_kl: bool, scores) -> tuple:
    """Metrics of a curve's row, from `reward` on."""
    train, test = scores
    return (
        totals[REWARD] / totals[ROLLOUTS],
        train,
        test,
        totals[KL] / totals[TOKENS] if has_kl else np.nan,
        totals[CLIPPED] / totals[TOKENS],
        totals[ZERO_SIGNAL] / totals[CONTEXTS],
        totals[GRAD_NORM] / totals[UPDATES],
    )
