"""Numbers beside a curve: how clear its gradient is, how many groups teach nothing, and what the run would cost.

The gradient's signal-to-noise ratio of a round at the base policy is |E g|^2 / tr Cov(g), g the sum of the round's
updates by plain gradient ascent. Both are measured from n independent rounds on random contexts: (|sum g|^2 - sum
|g|^2) / (n (n - 1)) has expectation |E g|^2. The gradient noise scale of 1812.06162 takes it from two batch sizes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.llm.budget.devices import GPUS
from rftlab.llm.budget.duration import LENGTHS, SUMS, Assumed
from rftlab.llm.budget.plan import cost_plan
from rftlab.shared.curve import Curve
from rftlab.shared.plumbing.callbacks import never
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Optimizer, Simulation
from rftlab.sim.run import GeneralLearner, PlainLearner, Stopped
from rftlab.sim.setup import is_general
from rftlab.sim.state import no_totals
from rftlab.sim.world import World
from rftlab.studies.data.paper.questions import count_questions
from rftlab.studies.explore.starts import model_behind

DRAWS, MOST_VISITS = 24, 8
"""Rounds whose gradients are compared; and most visits of each context that fill a replay window first."""
TINY_STEP = 1e-6
"""Learning rate at which several updates of a round still see the base policy."""


class GradientSignal(NamedTuple):
    """Of a round's gradient at the base policy."""

    signal: float
    """|E g|^2, unbiased: below 0 where it drowns in noise."""
    noise: float
    """tr Cov(g)."""

    @property
    def ratio(self) -> float:
        """Signal over noise; nan where there is no gradient at all."""
        return self.signal / self.noise if self.noise > 0 else float("nan")


def gradient_signal(run: Simulation, world: World, stopped: Callable[[], bool] = never) -> GradientSignal:
    """Measure it, with the run's seed; a replay window is filled first. Raises Stopped where `stopped` says so."""
    still = replace(run, optimizer=Optimizer("sgd", TINY_STEP))
    learner = (GeneralLearner if is_general(still, world) else PlainLearner)(still, world)
    an_epoch = world.train.base_format.shape[0] // run.design.batch_size
    epochs = _fill_window(learner, an_epoch, stopped)
    gradients = []
    for epoch in range(epochs, epochs + DRAWS):
        if stopped():
            raise Stopped
        learner.state.theta[:] = 0
        if isinstance(learner, GeneralLearner):
            learner.memory.spent[2] = epoch * an_epoch
        learner.advance(epoch * an_epoch, 1, no_totals())  # each round begins an epoch, so contexts are drawn anew
        gradients.append(learner.state.theta.astype(np.float64) / TINY_STEP)
    return _compared(np.array(gradients))


def _fill_window(learner: PlainLearner, an_epoch: int, stopped: Callable[[], bool]) -> int:
    """Visit every context, without a step, until its replay window holds what it may; returns the epochs that took."""
    design, plan = learner.run.design, learner.plan
    if design.replayed == 0:
        return 0
    epochs = min(MOST_VISITS, -(-design.replay_window // design.rollouts))
    learner.plan = plan._replace(optimizer=plan.optimizer._replace(learning_rate=0.0))
    learner.train(0, epochs * an_epoch, no_totals(), stopped)
    learner.plan = plan
    return epochs


def _compared(gradients: np.ndarray) -> GradientSignal:
    n, own = len(gradients), float((gradients**2).sum())
    signal = (float((gradients.sum(axis=0) ** 2).sum()) - own) / (n * (n - 1))
    return GradientSignal(signal, own / n - signal)


class RunCost(NamedTuple):
    """The cost of a language model's run with this design, as a dry run estimates it."""

    rollouts: int
    tokens: int
    """Of responses."""
    round_seconds: float
    seconds: float
    """Of the whole run, its evaluations included."""
    description: str
    """The assumptions."""


def run_cost(start: str, run: Simulation, gpu: str) -> RunCost:
    """Return the cost on one GPU of that name. Raises UserError where no model is known."""
    real = model_behind(start)
    if real is None:
        raise UserError(f"start = {start}: no model of ours is behind it; allowed: a pair")
    prompt, response = LENGTHS.get(real.task.name, SUMS)
    every = max(run.design.rounds // EVALUATED, 1)
    design = replace(run.design, eval_every=every if run.design.rounds % every == 0 else run.design.rounds)
    assumed = Assumed(prompt, response, *(split.there for split in count_questions(real).values()))
    duration = cost_plan(replace(real, design=design), GPUS[gpu], assumed).duration
    rollouts = run.design.rounds * duration.rollouts
    description = f"{real.model.source} on one {gpu}, responses of {response} tokens; an estimate, not measured"
    return RunCost(rollouts, rollouts * response, duration.round_seconds, duration.seconds, description)


EVALUATED = 20


class GroupSignal(NamedTuple):
    """The shares of groups with a signal, over the run."""

    first: float
    """Share of zero-variance contexts up to the first evaluation: all advantages zero."""
    last: float
    """The same before the last one."""
    effective: float
    """Contexts of a round that teach anything, mean over the run."""


def group_signal(curves: list[Curve], batch_size: int) -> GroupSignal:
    """From curves with at least two evaluations each; nan where there are none."""
    shares = [curve.zero_signal_fraction[1:] for curve in curves if len(curve.round) > 1]
    if not shares:
        return GroupSignal(*(float("nan"),) * 3)
    first, last = np.mean([share[0] for share in shares]), np.mean([share[-1] for share in shares])
    silent = np.mean([share.mean() for share in shares])
    return GroupSignal(float(first), float(last), batch_size * (1 - float(silent)))
