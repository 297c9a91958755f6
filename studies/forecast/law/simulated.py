"""r and phi of the simulator, from gradients of single contexts that its own round computes.

A round with one context, SGD and rate 1 moves the weights by its gradient. Two such rounds of each context, with other
random numbers, are the two groups that the pilot's analysis of variance asks for (studies/forecast/pilot/noise.py).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Optimizer, Simulation
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.run import General, Plain
from rftlab.sim.setup import is_general
from rftlab.sim.state import no_totals
from rftlab.sim.world import World
from rftlab.studies.forecast.law.noise import MeasuredNoise, measured
from rftlab.studies.forecast.pilot.noise import analysed
from rftlab.studies.forecast.pilot.pilot import Gradient

CONTEXTS, GROUP, BLOCKS = 512, 16, 16
"""Contexts that are measured, responses of a group, and blocks of the jackknife."""
FIRST = 10**6
"""Round from which random numbers come, beyond those of training."""


class SimulatedProducts(NamedTuple):
    """What the analysis of variance needs (`rftlab.studies.forecast.pilot.noise.Products`)."""

    group: int
    block: np.ndarray
    gram: np.ndarray
    squares: np.ndarray
    differences: np.ndarray


def noise_of(run: Simulation, world: World, rounds: int = 0, contexts: int = CONTEXTS) -> MeasuredNoise:
    """r and phi after `rounds` rounds of a run's design, before them by default. The environment must be one of the
    plain round."""
    theta = trained(run, world, rounds)
    n = world.train.base_format.shape[0]
    chosen = np.random.default_rng(run.seed).permutation(n)[: min(contexts, n)]
    raw, centred = (gradient_of(run, world, theta, chosen, preset(name)) for name in ("minimalist", "rloo"))
    return measured(raw, centred)


def trained(run: Simulation, world: World, rounds: int) -> np.ndarray:
    """The weights after some rounds."""
    learner = (General if is_general(run, world) else Plain)(run, world)
    if rounds:
        learner.train(0, rounds, no_totals(), lambda: False)
    return learner.state.theta


def gradient_of(run: Simulation, world: World, theta: np.ndarray, chosen: np.ndarray, estimator: Estimator) -> Gradient:
    """Signal and noise of the gradient at weights theta, from the chosen contexts."""
    design = Design(1, GROUP, estimator=estimator, rounds=1, eval_every=1)
    once = replace(run, design=design, optimizer=Optimizer("sgd", learning_rate=1.0))
    learner = Plain(once, world)
    block = np.arange(len(chosen)) % BLOCKS
    sums = np.zeros((BLOCKS, theta.size))
    squares, differences = np.zeros(len(chosen)), np.zeros(len(chosen))
    for i, context in enumerate(chosen):
        first, second = (step_of(learner, theta, int(context), FIRST + turn) for turn in (0, 1))
        mean, apart = (first + second) / 2, first - second
        sums[block[i]] += mean
        squares[i], differences[i] = mean @ mean, apart @ apart
    return analysed(SimulatedProducts(GROUP, block, sums @ sums.T, squares, differences))


def step_of(learner: Plain, theta: np.ndarray, context: int, round_index: int) -> np.ndarray:
    """The gradient of one context in a round."""
    learner.state.theta[:] = theta
    train_rounds(
        learner.world.train,
        learner.plan,
        learner.rule,
        learner.state,
        learner.work,
        np.array([[context]]),
        round_index,
        no_totals(),
    )
    return learner.state.theta.astype(np.float64) - theta
