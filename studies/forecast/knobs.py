"""Parameters of the simulator that a calibration is to find, and their priors.

A family is a set of worlds in which some parameters, the knobs, are left open. Each knob has a normal prior in a
coordinate, mostly one without bounds (logarithm or logit). SHORT is for responses of a few tokens, whose noise grows
with how surprising they are; LONG for responses of hundreds of tokens, most of which the reward does not depend on.

In SHORT two numbers of a world are not free: `align` is solved for (`as_right`), so that the base policy is right as
often as the base model, and `base_format` so that it keeps the format as often. Where the base model was not measured
(LONG), they are knobs.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri

from rftlab.sim.config import Linear, Optimizer, Simulation
from rftlab.sim.environments import DrawnContexts, drawn_contexts

Scale = Literal["log", "logit", "linear"]
_PROBE = 512
"""Contexts of the small world in which `align` is solved for."""
_SHARPEST = 200.0
"""Largest kappa that `as_right` tries."""
_FEATURES = 448
"""The most features of a world."""


class SimulatorKnob(NamedTuple):
    """Parameter of `Linear`, or the learning rate, with its prior median and its deviation in its coordinate."""

    name: str
    scale: Scale
    median: float
    deviation: float

    def value(self, coordinate: np.ndarray) -> np.ndarray:
        """Return the parameter's values at standard normal coordinates."""
        return _BACK[self.scale](_TO[self.scale](self.median) + self.deviation * coordinate)

    def around(self, values: list[float]) -> "SimulatorKnob":
        """Return the same knob with its median at the mean, in its coordinate, of known values."""
        return self._replace(median=float(_BACK[self.scale](np.mean([_TO[self.scale](value) for value in values]))))


_TO = {"log": np.log, "logit": logit, "linear": float}
_BACK = {"log": np.exp, "logit": expit, "linear": lambda value: value}


class Effort(NamedTuple):
    """Numbers of particles in the first and in each later generation of a calibration, and of the later generations."""

    first: int
    later: int
    generations: int

    @property
    def total(self) -> int:
        """Number of particles in all generations."""
        return self.first + self.later * self.generations


@dataclass(frozen=True)
class Family:
    """Worlds that differ in their knobs."""

    knobs: tuple[SimulatorKnob, ...]
    template: Linear
    rounds: int
    """Rounds of the runs for which the median of the learning rate is meant."""
    effort: Effort
    """Particles of a calibration: fewer where a simulation takes longer and there is less to find. The first generation
    is a power of 2 (Sobol points)."""


SHORT = Family(
    (
        SimulatorKnob("rate", "log", 0.024, 0.4),
        SimulatorKnob("nuisance", "log", 0.16, 0.5),
        SimulatorKnob("interference", "log", 2.2, 0.7),
        SimulatorKnob("forgetting", "log", 0.7, 0.9),
        SimulatorKnob("kappa", "log", 2.9, 0.3),
        SimulatorKnob("rho", "logit", 0.993, 0.7),
        SimulatorKnob("n_features", "log", 21, 0.3),
        SimulatorKnob("format_scale", "log", 12, 0.6),
    ),
    Linear(n_answers=8, n_styles=1, answer_tokens=2, surprise=1.0, margin=0.1),
    600,
    Effort(512, 224, 8),
)
LONG = Family(
    (
        SimulatorKnob("rate", "log", 0.004, 0.5),
        SimulatorKnob("nuisance", "log", 0.5, 0.5),
        SimulatorKnob("kappa", "log", 5.0, 0.3),
        SimulatorKnob("align", "logit", 0.85, 0.5),
        SimulatorKnob("rho", "logit", 0.9, 1.0),
        SimulatorKnob("base_format", "linear", -4.2, 0.5),
        SimulatorKnob("familiarity", "linear", 1.0, 0.6),
        SimulatorKnob("unsolvable", "logit", 0.04, 0.7),
    ),
    Linear(sharpening=0.3),
    2000,
    Effort(256, 96, 3),
)


@dataclass(frozen=True)
class Facts:
    """Numbers of a pair that are known before training: sizes of its sets, and how often the base model is right and
    well formed (None where that was not measured)."""

    family: Family
    n_train: int
    n_test: int
    strict: float | None = None
    """Share of right responses in the required format."""
    formed: float | None = None
    """Share of responses in the required format."""


def paced(family: Family, rounds: int) -> Family:
    """Return the family for runs of `rounds` rounds. People choose learning rates for which the rounds suffice, so the
    median of the rate is in proportion to 1 / rounds."""
    pace = family.rounds / rounds
    knobs = tuple(knob._replace(median=knob.median * pace) if knob.name == "rate" else knob for knob in family.knobs)
    return replace(family, knobs=knobs, rounds=rounds)


def informed(family: Family, others: list[Simulation]) -> Family:
    """Return the family with the medians of its knobs at the mean of other pairs' values."""
    return replace(
        family, knobs=tuple(knob.around([_knob_value(other, knob.name) for other in others]) for knob in family.knobs)
    )


def _knob_value(run: Simulation, name: str) -> float:
    return run.optimizer.learning_rate if name == "rate" else getattr(run.environment, name)


def build_world(facts: Facts, coordinates: np.ndarray, world_seed: int) -> Simulation | None:
    """Return the simulation at coordinates (n_knobs,); None where no base policy is right as often as it must be."""
    values: dict[str, Any] = {
        knob.name: float(knob.value(z)) for knob, z in zip(facts.family.knobs, coordinates, strict=True)
    }
    optimizer = Optimizer(learning_rate=values.pop("rate"))
    if "n_features" in values:
        values["n_features"] = int(np.clip(round(values["n_features"]), 4, _FEATURES))
    world: Linear | None
    world = start = replace(
        facts.family.template, n_train=facts.n_train, n_test=facts.n_test, world_seed=world_seed, **values
    )
    if facts.strict is not None and facts.formed is not None:
        world = as_right(replace(start, base_format=_format_logit(facts.formed)), facts.strict / facts.formed)
    return None if world is None else Simulation(world, optimizer=optimizer)


_NODES = ndtri((np.arange(64) + 0.5) / 64)


def _format_logit(formed: float) -> float:
    """Return the mean logit b with E sigmoid(b + N(0, 1)) = formed."""
    formed = float(np.clip(formed, 1e-4, 1 - 1e-4))
    return float(brentq(lambda b: expit(b + _NODES).mean() - formed, -30, 30))


def as_right(environment: Linear, right: float) -> Linear | None:
    """Return the environment with the `align` at which the base policy's answers are right with probability `right`.

    Where even align = 1 is too little, kappa is raised until it is enough. None where that probability is below that of
    a random answer, or needs a kappa above the largest.
    """
    probe, _ = drawn_contexts(replace(environment, n_train=_PROBE, n_test=1))

    @cache
    def excess(align: float, kappa: float) -> float:
        return _answer_rates(probe, align, kappa).mean() - right

    if excess(0.0, environment.kappa) > 0:
        return None
    if excess(1.0, environment.kappa) >= 0:
        return replace(environment, align=float(brentq(excess, 0.0, 1.0, (environment.kappa,), xtol=1e-3)))
    if excess(1.0, _SHARPEST) < 0:
        return None
    kappa = brentq(lambda kappa: excess(1.0, kappa), environment.kappa, _SHARPEST, xtol=1e-2)
    return replace(environment, align=1.0, kappa=float(kappa))


def answer_rates(environment: Linear) -> np.ndarray:
    """Return the chance (n_train,) that the base policy's answer to each training context is right in any format."""
    train, _ = drawn_contexts(environment)
    return _answer_rates(train, environment.align, environment.kappa)


def _answer_rates(contexts: DrawnContexts, align: float, kappa: float) -> np.ndarray:
    n, tokens = len(contexts.correct), contexts.environment.answer_tokens
    logits = contexts.base_logits(align, kappa).astype(np.float32).astype(np.float64).reshape(n, tokens, -1)
    chances = np.exp(logits - logits.max(axis=2, keepdims=True))
    chances /= chances.sum(axis=2, keepdims=True)
    return (chances * contexts.correct.reshape(logits.shape)).sum(axis=2).prod(axis=1)
