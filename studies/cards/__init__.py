"""Named estimators of the field. A preset is a value, so any field of it can be changed with `dataclasses.replace`."""

from shared.errors import check_choice
from shared.estimator import Estimator
from studies.cards import paper
from studies.cards.card import Card

CARDS: dict[str, Card] = {card.name: card for card in (*paper.CARDS,)}
PRESETS: dict[str, Estimator] = {card.name: card.estimator for card in CARDS.values() if card.estimator is not None}


def preset(name: str) -> Estimator:
    """The estimator of that name; an unknown name is an error that lists the known ones."""
    check_choice("estimator", name, tuple(PRESETS))
    return PRESETS[name]


def name_of(estimator: Estimator) -> str:
    """Name of the preset that equals `estimator`, else its baseline and `custom`."""
    return next((name for name, known in PRESETS.items() if known == estimator), f"{estimator.advantage.baseline}_custom")
