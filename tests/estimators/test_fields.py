"""Every field of every configuration, with what it may not hold."""

import importlib
import math
from dataclasses import MISSING, fields, is_dataclass

import pytest

import rftlab as rl
from rftlab.shared.config import checked
from rftlab.shared.config.checked import _hints

HOMES = [f"shared.config.{name}" for name in ("advantage", "aggregation", "correction", "kl", "mask", "ratio")]
HOMES += ["shared.config.sampling", "shared.config.shaping", "shared.config.surrogate"]
HOMES += ["shared.design", "shared.estimator", "sim.config", "llm.config", "llm.tasks.config", "llm.rewards.load"]
HOMES += ["llm.tasks.task", "llm.probe_config"]
KINDS = [
    kind
    for home in HOMES
    for kind in vars(importlib.import_module(f"rftlab.{home}")).values()
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__.endswith(home)
    if hasattr(kind, "__post_init__") and kind.__post_init__.__module__ == checked.__name__
]
VALUES = [-1, math.nan, math.inf, True, "x", None, 10**30, 10**400, 2.5, [1]]
NAMED = {"NamedReward": {"name": "mine", "sha256": "0"}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_wrong_value_of_a_field_is_one_line(kind):
    for field in fields(kind):
        for value in VALUES:
            try:
                made = kind(**(NAMED.get(kind.__name__, {}) | {field.name: value}))
            except rl.UserError as error:
                assert "\n" not in str(error)
                continue
            allowed = _hints(kind).get(field.name, ())
            assert value is not True or {bool, int, float} & set(allowed), f"{kind.__name__}.{field.name} = {value}"
            assert not (isinstance(value, list | str) and str not in allowed), f"{kind.__name__}.{field.name} = {value}"
            assert value is not None or type(None) in allowed or field.default is None, f"{kind.__name__}.{field.name}"
            assert not isinstance(value, float) or float in allowed, f"{kind.__name__}.{field.name} = {value}"
            assert not (isinstance(value, float) and math.isnan(value)), f"{kind.__name__}.{field.name} = {value}"
            assert field.default is MISSING or made == made


@pytest.mark.parametrize("kind", [rl.Linear, rl.Tabular])
def test_a_seed_of_a_world_is_no_negative_number(kind):
    with pytest.raises(rl.UserError, match=r"environment\.world_seed = -1; allowed: 0 or more"):
        kind(world_seed=-1)
