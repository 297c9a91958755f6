"""The card of a named estimator, and the list of its knobs that differ from their defaults."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import NamedTuple

from rftlab.shared.config.sampling import Sampling
from rftlab.shared.estimator import Estimator


@dataclass(frozen=True, kw_only=True)
class Card:
    """A named estimator of the field: its configuration, formula, source and properties.

    In formulas r is a reward, ρ the ratio of a token to the policy that sampled it, o a response, s a score (grad log
    pi), p and q the chances of success and failure, K the rollouts of a context. W is the factor of a context's mean
    gradient on grad p: 1 where unbiased.
    """

    name: str
    title: str
    family: str
    source: str
    """Paper, with its arXiv id where it has one."""
    estimator: Estimator | None
    """None where the method needs what this project does not have; `note` says what."""
    formula: str = ""
    """The formula of the estimator, in one or two lines."""
    bias: str = ""
    """Unbiased or not, for what, and what decides the variance."""
    checks: tuple[str, ...] = ()
    """Names of the theory checks that show the statements of `bias`."""
    sampling: Sampling = field(default_factory=Sampling)
    """The part of the method that decides which rollouts are trained on."""
    replay_window: int = 0
    """Replay window of the design, where the method needs one."""
    rollouts: int = 8
    """Rollouts per context in the command that the card shows; 1 where no group is needed."""
    mirrors: str = ""
    """Library and version from which the constants are taken."""
    alias: str = ""
    """Name of another card that gives the same weights wherever all tokens of a response have one advantage."""
    note: str = ""
    """Parts of the method that are unusual, and parts that the knobs leave out."""


class EstimatorKnob(NamedTuple):
    """A field whose value differs from its default. Where a part has another class, the class names stand for the
    values."""

    path: str
    value: object
    default: object


def changed_knobs(value, default, path: str) -> Iterator[EstimatorKnob]:
    """Yield the fields of a dataclass, at any depth, that differ from those of `default`, or from its own defaults
    where the two classes differ."""
    if type(value) is not type(default):
        yield EstimatorKnob(path, type(value).__name__, type(default).__name__)
        default = type(value)()
    for part in fields(value):
        own, usual, name = getattr(value, part.name), getattr(default, part.name), f"{path}.{part.name}"
        if is_dataclass(own):
            yield from changed_knobs(own, usual, name)
        elif own != usual:
            yield EstimatorKnob(name, own, usual)


def all_knobs(card: Card) -> list[EstimatorKnob]:
    """Return every knob of a card that differs from its default, under the names of the command line."""
    window = [EstimatorKnob("replay_window", card.replay_window, 0)] if card.replay_window else []
    of_estimator = changed_knobs(card.estimator, Estimator(), "estimator") if card.estimator else ()
    return [*of_estimator, *changed_knobs(card.sampling, Sampling(), "sampling"), *window]
