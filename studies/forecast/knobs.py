"""The simulator's parameters that a pilot is to find, and what is known about them beforehand.

A family is a world with some parameters left open, the knobs; each has a normal prior in a coordinate without bounds
(logarithm or logit). SHORT is for responses of a few tokens, whose noise goes with how surprising they are; LONG for
responses of hundreds of tokens, most of which the reward does not depend on.

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
"""The largest kappa."""
_FEATURES = 448
"""The most features of a world."""


class SimulatorKnob(NamedTuple):
    """A parameter of `Linear`, or the rate: prior median, and standard deviation in its coordinate."""

    name: str
    scale: Scale
    median: float
    deviation: float

    def value(self, coordinate: np.ndarray) -> np.ndarray:
        """From standard normal coordinates to values."""
        return _BACK[self.scale](_TO[self.scale](self.median) + self.deviation * coordinate)

    def around(self, values: list[float]) -> "SimulatorKnob":
        """The same knob with its median at the middle of known values, in its coordinate."""
        return self._replace(median=float(_BACK[self.scale](np.mean([_TO[self.scale](value) for value in values]))))


_TO = {"log": np.log, "logit": logit, "linear": float}
_BACK = {"log": np.exp, "logit": expit, "linear": lambda value: value}


class Effort(NamedTuple):
    """Particles of a calibration: those of the first generation, those of a later one, and how many generations
    follow the first."""

    first: int
    later: int
    generations: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.first + self.later * self.generations


@dataclass(frozen=True)
class Family:
    """Worlds that differ in their knobs."""

    knobs: tuple[SimulatorKnob, ...]
    template: Linear
    rounds: int
    """The rounds of the runs for which the median of the rate is meant."""
    effort: Effort
    """Less where a simulation takes longer and there is less to find. The first generation is a power of 2 (Sobol
    points)."""


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
    """The knowledge of a pair before training: sizes, and how often the base model is right and well formed (None
    where that was not measured)."""

    family: Family
    n_train: int
    n_test: int
    strict: float | None = None
    """Share of right responses in the required format."""
    formed: float | None = None
    """Share of responses in the required format."""


def paced(family: Family, rounds: int) -> Family:
    """The family for runs of so many rounds: rates are chosen so that the rounds suffice, so the median of the rate
    is in proportion to 1 / rounds."""
    pace = family.rounds / rounds
    knobs = tuple(knob._replace(median=knob.median * pace) if knob.name == "rate" else knob for knob in family.knobs)
    return replace(family, knobs=knobs, rounds=rounds)


def informed(family: Family, others: list[Simulation]) -> Family:
    """The family with the medians of its knobs where other pairs are."""
    return replace(
        family, knobs=tuple(knob.around([_knob_value(other, knob.name) for other in others]) for knob in family.knobs)
    )


def _knob_value(run: Simulation, name: str) -> float:
    return run.optimizer.learning_rate if name == "rate" else getattr(run.environment, name)


def build_world(facts: Facts, coordinates: np.ndarray, world_seed: int) -> Simulation | None:
    """The simulation at coordinates (n_knobs,); None where no base policy is right as often as it must be."""
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
    """The mean logit b with E sigmoid(b + N(0, 1)) = formed."""
    formed = float(np.clip(formed, 1e-4, 1 - 1e-4))
    return float(brentq(lambda b: expit(b + _NODES).mean() - formed, -30, 30))


def as_right(environment: Linear, right: float) -> Linear | None:
    """The environment with the `align` at which the base policy's answers are right with that chance.

    Where even align = 1 is too little, kappa is raised until it is enough. None where the chance is below that of a
    random answer.
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
    """Chance (n_train,) that the base policy's answer to each training context is right, whatever its format."""
    train, _ = drawn_contexts(environment)
    return _answer_rates(train, environment.align, environment.kappa)


def _answer_rates(contexts: DrawnContexts, align: float, kappa: float) -> np.ndarray:
    n, tokens = len(contexts.correct), contexts.environment.answer_tokens
    logits = contexts.base_logits(align, kappa).astype(np.float32).astype(np.float64).reshape(n, tokens, -1)
    chances = np.exp(logits - logits.max(axis=2, keepdims=True))
    chances /= chances.sum(axis=2, keepdims=True)
    return (chances * contexts.correct.reshape(logits.shape)).sum(axis=2).prod(axis=1)
