"""Run a simulation from its configuration to a learning curve."""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rftlab.shared.config.advantage import CustomAdvantage
from rftlab.shared.config.surrogate import CustomSurrogate
from rftlab.shared.correction import corrections
from rftlab.shared.curve import SPLITS, Curve, make_curve
from rftlab.shared.custom.functions import is_compiled, raising
from rftlab.shared.custom.registry import configured
from rftlab.shared.custom.slow import Pace
from rftlab.shared.estimator import as_rule
from rftlab.shared.plumbing.callbacks import never, noop
from rftlab.shared.plumbing.errors import check_type
from rftlab.sim.config import Sampler, Simulation
from rftlab.sim.environments import build
from rftlab.sim.round.general import general_rounds
from rftlab.sim.round.measures import measure, pass_at_1, response_policy
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.setup import (
    is_general,
    make_plan,
    make_ragged,
    make_work,
    policy_view,
    run_choices,
    simulated_estimator,
    start_memory,
    start_state,
)
from rftlab.sim.state import TOTAL, Totals, no_totals
from rftlab.sim.world import World

if TYPE_CHECKING:
    import pandas as pd

PIECE, ROUND = 2**20, 32
"""Number of tokens of the rounds that are trained without a check for a stop, a fraction of a second; and the number of
tokens that the fixed cost of a round counts as."""


class Stopped(Exception):
    """Raised by a run that was asked to stop before its end."""


class SimulationResult(NamedTuple):
    """The curve of a run, and the round at which it diverged or None.

    It diverged at the round whose gradient was not finite, or at the evaluation that found weights or Pass@1 that were
    not finite. The curve ends before.
    """

    curve: Curve
    diverged_at: int | None
    metrics: "pd.DataFrame | None" = None
    """With `evaluation` full, a table with a row for each row of the curve: seed, round, and `<split>_<name>` for each
    name of `rftlab.sim.round.measures.measure`."""


@functools.lru_cache(maxsize=32)
def epoch_order(n_contexts: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the contexts in an epoch. It is cached, because an epoch is trained on in pieces."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))).permutation(n_contexts)


def batches(n_contexts: int, batch_size: int, seed: int, first: int, last: int) -> np.ndarray:
    """Return the context indices (last - first, B) of rounds first .. last-1: in the order of the epoch, reshuffled for
    each epoch, without its last partial batch."""
    per_epoch = n_contexts // batch_size
    epochs = range(first // per_epoch, (last - 1) // per_epoch + 1)
    picked = [
        epoch_order(n_contexts, seed, epoch)[: per_epoch * batch_size].reshape(per_epoch, batch_size)
        for epoch in epochs
    ]
    begin = first % per_epoch
    return np.concatenate(picked)[begin : begin + last - first]


class PlainLearner:
    """The learner of a run for which `rftlab.sim.round.plain` is enough."""

    def __init__(self, run: Simulation, world: World):
        self.run, self.world, self.plan, self.rule = (
            run,
            world,
            make_plan(run, world),
            as_rule(simulated_estimator(run)),
        )
        self.state, self.work = start_state(run, world), make_work(run, world)
        design = run.design
        responses = (
            design.batch_size * (design.rollouts + design.support_rollouts) * design.sampling.tries * design.epochs
        )
        updates, parts = design.epochs * design.minibatches, design.estimator
        corrections(parts.correction, np.arange(2), np.zeros(1), np.zeros(1))  # all 1 here; raises for an unknown kind
        custom = configured(parts.advantage) if isinstance(parts.advantage, CustomAdvantage) else None
        self.custom_calls = (custom is not None) + updates * isinstance(parts.surrogate, CustomSurrogate)
        """Number of calls of custom functions in a round."""
        one_by_one = custom is not None and not custom.batched and not is_compiled(custom.function)
        self.pace = Pace(custom.name if custom is not None and one_by_one else None)
        self.piece = max(1, PIECE // (ROUND + int(responses * (1 + world.style.tokens))))

    def spent(self, rounds: int) -> tuple[int, int]:
        """Return the rollouts and tokens sampled in the first `rounds` rounds."""
        design = self.run.design
        rollouts = rounds * design.batch_size * (design.rollouts + design.support_rollouts)
        return rollouts, rollouts * self.world.answer_tokens

    def train(self, first: int, rounds: int, totals: np.ndarray, stopped: Callable[[], bool]) -> int:
        """Train for some rounds, piece by piece, and return the number done, which is smaller where the run diverged.
        Raises Stopped where `stopped` returns True before a piece."""
        for start in range(0, rounds, self.piece):
            if stopped():
                raise Stopped
            size = min(self.piece, rounds - start)
            with self.pace.measured(), raising(self.custom_calls, first + start):
                finished = self.advance(first + start, size, totals)
            if finished < size:
                return start + finished
        return rounds

    def advance(self, first: int, rounds: int, totals: np.ndarray) -> int:
        """Train for a piece of rounds; return the number done."""
        chosen = batches(
            self.world.train.base_format.shape[0], self.run.design.batch_size, self.run.seed, first, first + rounds
        )
        return train_rounds(self.world.train, self.plan, self.rule, self.state, self.work, chosen, first, totals)


class GeneralLearner(PlainLearner):
    """The learner of a run that needs `rftlab.sim.round.general`."""

    def __init__(self, run: Simulation, world: World):
        super().__init__(run, world)
        self.choices, self.memory, self.ragged = (
            run_choices(run, world),
            start_memory(run, world),
            make_ragged(run, world),
        )
        # This is an array for one token too, so that all worlds of an environment share the compiled code of this
        # round.
        self.round_plan = self.plan._replace(token_starts=np.asarray(self.plan.token_starts))
        self.trainer, self.sampler = policy_view(self.work), policy_view(self.work)
        if run.sampler == Sampler():
            self.sampler = self.trainer

    def spent(self, rounds: int) -> tuple[int, int]:
        """Return the rollouts and tokens sampled so far."""
        return int(self.memory.spent[0]), int(self.memory.spent[1])

    def advance(self, first: int, rounds: int, totals: np.ndarray) -> int:
        """Train for a piece of rounds; return the number done."""
        design, tried = self.run.design, int(self.memory.spent[2])
        chosen = batches(
            self.world.train.base_format.shape[0],
            design.batch_size,
            self.run.seed,
            tried,
            tried + rounds * design.sampling.tries,
        )
        scratch = (self.trainer, self.sampler, chosen, first, rounds, self.ragged, totals)
        return general_rounds(
            self.world.train, self.round_plan, self.choices, self.rule, self.state, self.memory, *scratch
        )


def simulate(
    run: Simulation,
    world: World | None = None,
    progress: Callable[[int], None] = noop,
    stopped: Callable[[], bool] = never,
    watch: Callable[[Curve], None] = noop,
) -> SimulationResult:
    """Train and evaluate a simulated run. Equal arguments give equal curves, bit for bit.

    world: the result of `build` for the run's environment, built here if None; progress: called with the number of
    rounds done after each evaluation; watch: called with the curve so far after each evaluation. Raises Stopped soon
    after `stopped` begins to return True.
    """
    check_type("run", run, Simulation, "a Simulation")
    world = build(run.environment) if world is None else world
    design, began = run.design, time.perf_counter()
    learner = (GeneralLearner if is_general(run, world) else PlainLearner)(run, world)
    plan, work, has_kl = learner.plan, learner.work, design.estimator.kl.kind != "none"
    totals = np.full(len(TOTAL), np.nan)
    rows: list[tuple[float, ...]] = []
    measures: list[dict[str, float]] = []
    done = 0
    while True:
        scores = [
            pass_at_1(part, plan, learner.state.theta, work, done, run.evaluation == "sampled")
            for part in (world.train, world.test)
        ]
        if done > 0 and not (np.isfinite(scores).all() and np.isfinite(learner.state.theta).all()):
            return _result(rows, measures, done)
        rows.append(
            (run.seed, done, *learner.spent(done), time.perf_counter() - began, *_means(totals, has_kl, scores))
        )
        if run.evaluation == "full":
            measures.append({"seed": run.seed, "round": done} | _measures(learner))
        if watch is not noop:
            watch(make_curve(rows))
        if done == design.rounds:
            return _result(rows, measures, None)
        totals = no_totals()
        finished = learner.train(done, design.eval_every, totals, stopped)
        if finished < design.eval_every:
            return _result(rows, measures, done + finished)
        done += design.eval_every
        progress(done)


def _result(rows: list, measures: list[dict[str, float]], diverged_at: int | None) -> SimulationResult:
    if not measures:
        return SimulationResult(make_curve(rows), diverged_at)
    import pandas as pd  # here, because most runs have no such table

    return SimulationResult(make_curve(rows), diverged_at, pd.DataFrame(measures))


def _measures(learner: PlainLearner) -> dict[str, float]:
    """Return the columns of `SimulationResult.metrics` for the present parameters."""
    world = learner.world
    columns: dict[str, float] = {}
    for split in SPLITS:
        policy = response_policy(getattr(world, split), world.style, learner.plan, learner.state.theta, learner.work)
        named = measure(world, policy, learner.run.design.rollouts)
        columns |= {f"{split}_{name}": value for name, value in named.items()}
    return columns


def _means(totals: np.ndarray, has_kl: bool, scores) -> tuple:
    """Return the metrics of a curve's row, from `reward` on."""
    sums, ((train, train_flexible), (test, test_flexible)) = Totals(*totals), scores
    return (
        sums.reward / sums.rollouts,
        train,
        test,
        sums.kl / sums.tokens if has_kl else np.nan,
        sums.clipped / sums.tokens,
        sums.zero_signal / sums.contexts,
        sums.grad_norm / sums.updates,
        train_flexible,
        test_flexible,
    )
