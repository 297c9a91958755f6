"""The explorer's sliders as data: which number of a run each sets, and where it stops.

A new knob is one line of `KNOBS`: its name in the address, the way to its field, its stops and its title. `--help`
has its description.
"""

import ast
import inspect
from dataclasses import fields
from functools import cache
from itertools import pairwise
from math import isfinite
from textwrap import dedent
from typing import Any, Literal, NamedTuple

from rftlab.shared.config.kl import KL
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.sim.config import Linear, Optimizer, Simulation

Stops = Literal["value", "times", "plus"]


@cache
def field_sentences(kind: type) -> dict[str, str]:
    """Docstrings of the fields that a class itself declares, each as one line."""
    body = next(node for node in ast.parse(dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef)).body
    sentences = {}
    for field, below in pairwise(body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            sentences[ast.unparse(field.target)] = " ".join(text.value.split())
    return sentences


def field_help(kind: type, field: str) -> str:
    """The docstring of a field. Raises KeyError where it has none."""
    return field_sentences(kind)[field]


class ExplorerKnob(NamedTuple):
    """A slider."""

    name: str
    """In the address."""
    kind: type
    """The class whose field it sets."""
    path: str
    """From the run to the field."""
    title: str
    group: str
    stops: tuple[float, ...]
    scale: Stops = "value"
    """Whether the stops are the values, factors of the start's value, or distances from it."""

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        field = self.path.rsplit(".", 1)[-1]
        return next(one.type for one in fields(self.kind) if one.name == field) in (int, "int")

    @property
    def help(self) -> str:
        """The description of the field in `--help`."""
        return field_help(self.kind, self.path.rsplit(".", 1)[-1])

    def stops_at(self, start: Simulation, *held: float) -> list[float]:
        """Where its slider stops, in order, for runs that begin at `start`; `held` are among them."""
        own = read_knob(start, self.path)
        moved = {
            "value": self.stops,
            "times": tuple(own * factor for factor in self.stops),
            "plus": tuple(own + step for step in self.stops),
        }[self.scale]
        digits = [float(f"{value:.4g}") for value in moved]
        return sorted({*(value for value in digits if abs(value - own) > 1e-3 * abs(own)), own, *held})

    def parsed(self, text: str) -> float:
        """A value from the address. Raises UserError for what is no number; the run's own classes check its range."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        check(isfinite(value), f"{self.name} = {text[:40]!r}; allowed: a number")
        check(not self.whole or value == int(value), f"{self.name} = {text[:40]!r}; allowed: a whole number")
        return value


KNOBS = (
    ExplorerKnob("B", Design, "design.batch_size", "Batch size B", "design", tuple(2**i for i in range(12))),
    ExplorerKnob("K", Design, "design.rollouts", "Rollouts K", "design", tuple(2**i for i in range(8))),
    ExplorerKnob(
        "M", Design, "design.support_rollouts", "Support rollouts M", "design", (0, 1, 3, 7, 15, 31, 63)
    ),
    ExplorerKnob("window", Design, "design.replay_window", "Replay window", "design", (0, 2, 4, 8, 16, 32, 64, 128)),
    ExplorerKnob("epochs", Design, "design.epochs", "Epochs", "design", (1, 2, 3, 4, 6, 8)),
    ExplorerKnob("minibatches", Design, "design.minibatches", "Mini-batches", "design", (1, 2, 4, 8, 16)),
    ExplorerKnob("rounds", Design, "design.rounds", "Rounds", "design", (200, 500, 1000, 2000, 4000)),
    ExplorerKnob(
        "rate", Optimizer, "optimizer.learning_rate", "Learning rate", "update",
        (0.1, 0.25, 0.5, 0.7, 1, 1.4, 2, 4, 10), "times",
    ),
    ExplorerKnob("kl", KL, "design.estimator.kl.coef", "KL coefficient", "update", (0, 1e-4, 1e-3, 0.01, 0.04, 0.1, 1)),
    ExplorerKnob(
        "noise", Linear, "environment.nuisance", "Noise", "problem", (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 4), "times"
    ),
    ExplorerKnob(
        "base", Linear, "environment.base_format", "Base pass rate: format", "problem",
        (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4), "plus",
    ),
    ExplorerKnob(
        "kappa", Linear, "environment.kappa", "Sharpness of the base", "problem",
        (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2), "times"
    ),
    ExplorerKnob(
        "sharpening", Linear, "environment.sharpening", "Sharpening", "problem", (0, 0.25, 0.5, 1, 2, 4, 8, 16)
    ),
)  # fmt: skip
BY_NAME = {knob.name: knob for knob in KNOBS}


def read_knob(run: Any, path: str) -> float:
    """The value at a path of fields."""
    for name in path.split("."):
        run = getattr(run, name)
    return run
