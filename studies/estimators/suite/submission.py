"""Find the estimators that the suite takes, and make and check submissions of results: a JSON with the version, a hash
of the estimator, seeds and all cells."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.cards import CARDS, find_name, preset
from rftlab.shared.cards.card import Card
from rftlab.shared.cards.custom import advantage, card_of, surrogate
from rftlab.shared.custom.functions import positional
from rftlab.shared.custom.identity import python_function
from rftlab.shared.custom.plugins import module_in, name_plugins
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import read_json
from rftlab.sim.run import simulate
from rftlab.studies.console.table import say
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.points import canonical
from rftlab.studies.estimators.suite.scores import cell_value, summary
from rftlab.studies.estimators.suite.tasks import RATES, TASKS, VERSION, task_design, task_point

CHECKED = 3
"""Number of cells of a submission that the checker runs again."""


def find_card(named: Any) -> Card:
    """Return the card of a name, of FILE.py:FUNCTION, of a function or of an estimator. A function without a decorator
    is an advantage where it takes rewards, or rewards and pool, and a surrogate where it takes three arguments. Raises
    UserError."""
    if isinstance(named, Estimator):
        return Card(name="estimator", title="", family="", source="", estimator=named)
    if isinstance(named, str):
        path, colon, function = named.rpartition(":")
        if not colon:
            return _shipped(named)
        name_plugins([Path(path)])
        named = getattr(module_in(Path(path)), function, None)
        check(callable(named), f"{path} has no function {function!r}; allowed: FILE.py:FUNCTION")
    check(callable(named), f"estimator is a {type(named).__name__}; allowed: a name, a function, an rl.Estimator")
    name = card_of(named)
    if name is None:
        name = getattr(python_function(named), "__name__", "")
        (surrogate if len(positional(named)) == 3 else advantage)(name)(named)
    return _shipped(name)


def _shipped(name: str) -> Card:
    preset(name)  # raises UserError for an unknown name, and records the identities of functions
    return CARDS[find_name(name)]


def suite_names() -> list[str]:
    """Return the names of all cards that have an estimator."""
    return [name for name, card in CARDS.items() if card.estimator is not None]


def card_hash(card: Card) -> str:
    """Return the SHA-256 of all settings that the suite takes from a card, with the identity of a custom function."""
    e = card.estimator
    assert e is not None
    facts: dict[str, Any] = {"kinds": [type(e.surrogate).__name__, type(e.mask).__name__], "estimator": asdict(e)}
    facts |= {"sampling": asdict(card.sampling), "replay_window": card.replay_window}
    return hashlib.sha256(canonical(facts)).hexdigest()


def submission(card: Card, cells: pd.DataFrame) -> dict[str, Any]:
    """Return the submission of an estimator's results."""
    own = cells[cells["estimator"] == card.name]
    about = {"suite": VERSION, "estimator": card.name, "source_sha256": card_hash(card)}
    seeds = {str(task): int(part["seed"].nunique()) for task, part in own.groupby("task", sort=False)}
    rows = [[r.task, r.rate, r.seed, r.value if r.value == r.value else None, r.note] for r in own.itertuples()]
    numbers = summary(own).iloc[0].drop("estimator").to_dict()
    numbers = {name: None if value != value else value for name, value in numbers.items()}
    return about | {"commit": commit(), "versions": versions(), "seeds": seeds, "summary": numbers, "cells": rows}


def check_submission(console: Console, path: Path, named: str | None = None) -> int:
    """Run three random cells of a submission again. Returns 1 where one differs, else 0. Raises UserError where the
    file is not a submission, or belongs to another version or estimator."""
    try:
        known = read_json(path)
        cells = [(str(t), float(r), int(s), float(v)) for t, r, s, v, note in known["cells"] if note == ""]
        name, source, version = str(known["estimator"]), str(known["source_sha256"]), known["suite"]
        cells = [one for one in cells if one[0] in TASKS and one[1] in RATES and 0 <= one[2] < 10_000]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no submission ({type(error).__name__}); allowed: a JSON of `rftlab suite`"
        ) from None
    check(version == VERSION, f"{path} is of version {version!r} of the suite; allowed: {VERSION}")
    card = find_card(named or name)
    check(card_hash(card) == source, f"{path} was made with another source of {card.name}; allowed: the same source")
    check(bool(cells), f"{path} holds no cell of a run that ended; allowed: one or more")
    differ = 0
    for i in np.random.default_rng().choice(len(cells), min(CHECKED, len(cells)), replace=False):
        task, rate, seed, value = cells[i]
        point = task_point(TASKS[task], task_design(TASKS[task], card), rate, seed)
        again, _ = cell_value(task, simulate(point.simulation))
        same = abs(again - value) < 1e-9
        differ += not same
        text = f"{task}, rate x {rate:g}, seed {seed}: {value:.6f}, again {again:.6f}"
        say(console, f"{text}: {'the same' if same else 'DIFFERS'}", "" if same else "red")
    return int(differ > 0)
