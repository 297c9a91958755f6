"""Small worlds with what brings them closer to a language model: environments, and worlds in float64."""

from dataclasses import replace

from rftlab.sim.config import Tabular
from rftlab.sim.environments import build
from rftlab.sim.policy.style import token_style
from tests.support.worlds.simulations import SMALL
from tests.support.worlds.small_worlds import spelt_world

NINE = Tabular(n_contexts=9, n_arms=5, n_correct=2, nuisance=0.3)
OTHERS = {"surprise": 0.7, "interference": 0.4, "forgetting": 0.5}
COMMON = {"sharpening": 0.8, "correctness": 0.6, "correctness_parts": 3}
DAMAGED = COMMON | {"damage": 300.0}
ALL = COMMON | {"correctness_parts": 2, "damage": 0.5, "verbosity": 0.9, "verbosity_noise": 3.0}
SHORT = {"verbosity": 0.9, "short_right": 0.4, "length_by_style": 0.6}


def virtual(world, by_style=0.6, n_styles=2):
    """The world with virtual lengths."""
    return world._replace(style=token_style(0, by_style, 0.0, n_styles, world.nuisance))


ALONE = {"surprise": 0.8, "interference": 0.6, "forgetting": 2.0, "sharpening": 0.8, "damage": 300.0}
PROBLEMS = {
    "plain": SMALL,
    "two tokens": replace(SMALL, answer_tokens=2),
    "three tokens": replace(SMALL, n_answers=5, n_styles=1, answer_tokens=3, base_format=1.0),
    **{name: replace(SMALL, **{name: value}) for name, value in ALONE.items()},
    "four": replace(SMALL, answer_tokens=2, surprise=1.0, interference=0.4, forgetting=1.0),
    "correctness": replace(SMALL, correctness=0.6, correctness_parts=2),
    "both, familiar": replace(SMALL, **COMMON, familiarity=0.7),
    "in common": replace(SMALL, answer_tokens=2, **DAMAGED, **OTHERS),
    "short": replace(SMALL, **SHORT),
    "three styles": replace(SMALL, n_styles=3, **SHORT),
    "everything": replace(SMALL, answer_tokens=2, **ALL | OTHERS | SHORT),
}
TABULAR = {
    "plain": build(NINE),
    "two tokens": spelt_world(9, 2, 3),
    "three tokens": spelt_world(9, 3, 4),
    **{name: spelt_world(9, 1, 5, **{name: ALONE[name]}) for name in ALONE if name != "forgetting"},
    "forgetting": spelt_world(9, 1, 5, forgetting=0.5),
    "four": spelt_world(9, 2, 3, surprise=1.0, interference=0.4, forgetting=0.5),
    "correctness": spelt_world(9, 1, 5, correctness=0.6, correctness_parts=2),
    "both": spelt_world(9, 1, 5, **COMMON),
    "in common": spelt_world(9, 2, 3, **DAMAGED, **OTHERS),
    "lengths": virtual(spelt_world(9, 1, 6)),
    "verbosity": virtual(spelt_world(9, 1, 6, verbosity=0.9), n_styles=3),
    "everything": virtual(spelt_world(9, 2, 4, **ALL, **OTHERS), 0.8),
}
