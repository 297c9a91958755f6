"""Estimators of one's own, gone after each test."""

import pytest

from rftlab.shared.cards import CARDS, PRESETS, SHIPPED


@pytest.fixture(autouse=True)
def shipped_alone():
    """What a test registers is no card of the next one."""
    yield
    for name in set(CARDS) - set(SHIPPED):
        del CARDS[name]
        PRESETS.pop(name, None)
