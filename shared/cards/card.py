"""The fields of an estimator card besides the estimator itself, and the knobs of a card that differ from their
defaults."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import NamedTuple

from rftlab.shared.config.sampling import Sampling
from rftlab.shared.estimator import Estimator


@dataclass(frozen=True, kw_only=True)
class Card:
    """A named estimator of the field and its story.

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
    """One or two lines."""
    bias: str = ""
    """Unbiased or not, for what, and what decides the variance."""
    checks: tuple[str, ...] = ()
    """Theory checks that show it."""
    sampling: Sampling = field(default_factory=Sampling)
    """The part of the method that decides which rollouts are trained on."""
    replay_window: int = 0
    """The design's replay window, where the method is one."""
    rollouts: int = 8
    """Rollouts per context in the command that the card shows; 1 where no group is needed."""
    mirrors: str = ""
    """Library and version whose convention the constants are."""
    alias: str = ""
    """Card whose weights this one has wherever a response has one advantage."""
    note: str = ""
    """The special parts, and those that the knobs leave out."""


class EstimatorKnob(NamedTuple):
    """A field that differs from its default; where a part has another kind, its name stands for the value."""

    path: str
    value: object
    default: object


def changed_knobs(value, default, path: str) -> Iterator[EstimatorKnob]:
    """Fields of a dataclass, however deep, that differ from those of `default`; of its own defaults where the kinds
    differ."""
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
    """Every knob of a card that differs from the default, under the names of the command line."""
    window = [EstimatorKnob("replay_window", card.replay_window, 0)] if card.replay_window else []
    of_estimator = changed_knobs(card.estimator, Estimator(), "estimator") if card.estimator else ()
    return [*of_estimator, *changed_knobs(card.sampling, Sampling(), "sampling"), *window]
