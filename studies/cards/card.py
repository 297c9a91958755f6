"""What an estimator card holds besides the estimator itself."""

from dataclasses import dataclass

from shared.estimator import Estimator


@dataclass(frozen=True)
class Card:
    """A named estimator of the field and its story. `estimator` is None where the method needs what this project does not have."""

    name: str
    title: str
    source: str
    """Paper, with its arXiv id."""
    estimator: Estimator | None
    note: str
    """What is special, in one or two sentences."""
