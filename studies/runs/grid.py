"""A grid in Python: every combination of values of fields of a design and of an environment."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

import pandas as pd

from rftlab.shared.design import Design
from rftlab.shared.errors import check, check_choice
from rftlab.sim.config import Simulation
from rftlab.studies.cards import name_of, preset
from rftlab.studies.cards.card import knobs_of

Values = Mapping[str, Any]
EVERY = 5.0
"""Seconds between two lines of progress."""


def _values(value: Any) -> Sequence[Any]:
    """Several values, or one."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]


def _combinations(known: type, given: Values, what: str) -> list[dict[str, Any]]:
    names = tuple(field.name for field in fields(known))
    for name in given:
        check_choice(f"a field of {what}", name, names)
    columns = {name: _values(value) for name, value in given.items()}
    for name, values in columns.items():
        check(bool(values), f"{what}.{name} names no value; allowed: one or more")
    return [dict(zip(columns, chosen, strict=True)) for chosen in product(*columns.values())]


def _known(fields_of_design: dict[str, Any]) -> dict[str, Any]:
    """Estimators by name as estimators."""
    named = fields_of_design.get("estimator")
    return fields_of_design | ({"estimator": preset(named)} if isinstance(named, str) else {})


def runs_of(
    start: Simulation, design: Values | None, environment: Values | None
) -> list[tuple[Simulation, dict[str, Any]]]:
    """The runs of a grid, without seeds, and what each row says of them; the fields that vary last change first.

    `rounds` alone keeps the evaluations: where `eval_every` does not divide it, a run is evaluated at its end.
    """
    kind, found = type(start.environment), []
    for part in _combinations(kind, environment or {}, "environment"):
        for chosen in _combinations(Design, design or {}, "design"):
            given = _known(chosen)
            rounds = given.get("rounds", start.design.rounds)
            every = start.design.eval_every if rounds % start.design.eval_every == 0 else rounds
            fields_of: dict[str, Any] = {"eval_every": every} | given
            wanted = replace(start.design, **fields_of)
            run = replace(start, design=wanted, environment=replace(start.environment, **part))
            found.append((run, _said(chosen) | part))
    return found


def _said(chosen: dict[str, Any]) -> dict[str, Any]:
    """Values as a table shows them: those that are configurations in words."""
    return {name: _words(value) for name, value in chosen.items()}


def _words(value: Any) -> Any:
    if isinstance(value, int | float | str):
        return value
    knobs = [f"{knob.path.removeprefix('.')} {knob.value}" for knob in knobs_of(value, type(value)(), "")]
    return ", ".join(knobs) or "default"


def tidy(frame: pd.DataFrame, said: dict[str, Any], of_design: Design) -> pd.DataFrame:
    """Rows of a run with a column for each field that varies, and always batch_size, rollouts (of a context) and
    estimator; rollouts sampled so far are `rollouts_total`, tokens `tokens_total`."""
    frame = frame.rename(columns={"rollouts": "rollouts_total", "tokens": "tokens_total"})
    always = {"batch_size": of_design.batch_size, "rollouts": of_design.rollouts}
    rest = {name: value for name, value in said.items() if name not in ("estimator", *always)}
    columns = {**always, "estimator": name_of(of_design.estimator), **rest}
    for place, (name, value) in enumerate(columns.items()):
        frame.insert(place, name, value)
    return frame


class Lines:
    """Progress as lines on standard error, where nothing can be drawn over: the first run, then every few seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Say how many runs are done, and how long the rest may take."""
        now = time.monotonic()
        if done in (1, total) or now - self._told >= EVERY:
            self._told = now
            left = (now - self._began) / done * (total - done)
            print(f"rftlab: {done} of {total} runs, about {left:.0f} s left", file=sys.stderr, flush=True)
