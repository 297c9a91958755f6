"""Named estimators of the field. A preset is a value, so any field of it can be changed with `dataclasses.replace`."""

import hashlib
from dataclasses import replace
from typing import Any

from rftlab.shared.cards import absent, baselines, corrections, groups, libraries, masks, paper, ratios, signs
from rftlab.shared.cards.card import Card, changed_knobs
from rftlab.shared.config.advantage import CustomAdvantage
from rftlab.shared.config.surrogate import CustomSurrogate
from rftlab.shared.custom.plugins import load_known
from rftlab.shared.custom.registry import current_identity
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check, check_choice

FAMILIES = (paper, baselines, signs, groups, ratios, masks, corrections, libraries, absent)
SHIPPED: dict[str, Card] = {card.name: card for family in FAMILIES for card in family.CARDS}
"""The cards that come with the package; `CARDS` also has those of custom functions (custom.py)."""
CARDS = dict(SHIPPED)
PRESETS: dict[str, Estimator] = {card.name: card.estimator for card in CARDS.values() if card.estimator is not None}


def find_name(name: str) -> str:
    """Return the name of the card that equals `name` up to case and - for _, or `name` itself where there is none."""
    if not isinstance(name, str):
        return name
    if name not in CARDS:
        load_known()  # installed packages may define it
    alike = {one.lower(): one for one in CARDS}
    return name if name in CARDS else alike.get(name.lower().replace("-", "_"), name)


def preset(name: str) -> Estimator:
    """Return the preset estimator of a name, in any case. Raises UserError for an unknown name, with the known ones,
    and for a method that cannot exist here, with the reason."""
    name = find_name(name)
    check_choice("estimator", name, tuple(CARDS))
    check(name in PRESETS, f"estimator = {name!r} cannot run here. {CARDS[name].note}")
    if name not in SHIPPED:  # with the present identities of its functions
        PRESETS[name] = _identified(PRESETS[name])
        CARDS[name] = replace(CARDS[name], estimator=PRESETS[name])
    return PRESETS[name]


def custom_part(estimator: Estimator) -> CustomAdvantage | CustomSurrogate | None:
    """Return the part of an estimator that is a custom function, or None."""
    parts = (estimator.advantage, estimator.surrogate)
    return next((part for part in parts if isinstance(part, CustomAdvantage | CustomSurrogate)), None)


def _identified(estimator: Estimator) -> Estimator:
    """Return the estimator with the identities that its custom functions have now."""
    for part in (estimator.advantage, estimator.surrogate):
        if isinstance(part, CustomAdvantage | CustomSurrogate):
            changed: dict[str, Any] = {part.kind: replace(part, source=current_identity(part))}
            estimator = replace(estimator, **changed)
    return estimator


def estimator_name(estimator: Estimator) -> str:
    """Return the name of the preset that equals `estimator`; otherwise its baseline, `custom` and a hash of every knob
    that differs from its default."""
    if custom_part(estimator) is not None and estimator not in PRESETS.values():
        load_known()  # a new process has not loaded the files yet
        for name in PRESETS.keys() - SHIPPED.keys():
            preset(name)
    known_name = next((name for name, known in PRESETS.items() if known == estimator), None)
    if known_name is not None:
        return known_name
    changed = [
        (knob.path, float(knob.value) + 0.0 if isinstance(knob.value, int | float) else knob.value)
        for knob in changed_knobs(estimator, Estimator(), "")
    ]
    hashed = hashlib.sha256(repr(changed).encode()).hexdigest()[:8]
    return f"{estimator.advantage.baseline}_custom_{hashed}"
