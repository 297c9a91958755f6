"""Simulate several designs and seeds from Python, without a results folder, and return a data frame."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from itertools import product
from threading import Event
from typing import Any, get_type_hints

import numpy as np
import pandas as pd

from rftlab.shared.cards import estimator_name, preset
from rftlab.shared.cards.card import changed_knobs
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check, check_choice, check_count, check_type
from rftlab.sim.config import Simulation
from rftlab.sim.run import SimulationResult, simulate
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.runner import Worlds, available_threads, workers

Values = Mapping[str, Any]
MOST = 100_000
"""Largest number of combinations of a grid."""
_TAKEN: dict[Any, tuple[Any, str]] = {
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    Estimator: (str | Estimator, "an estimator, or its name"),
}
"""Types of values that a field of a type takes, and their description."""
EVERY = 5.0
"""Seconds between two lines of progress."""


def _columns(start: Any, given: Values, what: str) -> dict[str, list[Any]]:
    """Return the given values as a list for each field, NumPy's scalars as Python's. Raises UserError for a value that
    the field cannot take."""
    check(isinstance(given, Mapping), f"{what} is a {type(given).__name__}; allowed: names of fields and their values")
    kinds, columns = get_type_hints(type(start)), {}
    for name, values in given.items():
        check_choice(f"a field of {what}", name, tuple(field.name for field in fields(start)))
        several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
        columns[name] = [
            value.item() if isinstance(value, np.generic) else value for value in (values if several else [values])
        ]
        check(bool(columns[name]), f"{what}.{name} names no value; allowed: one or more")
        for value in columns[name]:
            _check_kind(f"{what}.{name}", value, kinds[name])
    return columns


def _check_kind(name: str, value: Any, kind: Any) -> None:
    """Raise UserError for a value of another type than the field's."""
    taken, said = _TAKEN.get(kind, (kind, getattr(kind, "__name__", "")))
    fits = not isinstance(kind, type) or (isinstance(value, taken) and isinstance(value, bool) == (kind is bool))
    check(fits, f"{name} = {value!r:.60}; allowed: {said}")


def _combinations(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, chosen, strict=True)) for chosen in product(*columns.values())]


def grid_runs(
    start: Simulation, design: Values | None, environment: Values | None
) -> list[tuple[Simulation, dict[str, Any]]]:
    """Return the runs of a grid, without seeds, and the values that describe each; the fields given last change
    fastest.

    `rounds` alone keeps the evaluations: where `eval_every` does not divide it, a run is evaluated at its end.
    """
    places = _columns(start.environment, {} if environment is None else environment, "environment")
    choices, runs = _columns(start.design, {} if design is None else design, "design"), []
    n = math.prod(map(len, [*places.values(), *choices.values()]))
    check(n <= MOST, f"design and environment have {n} combinations; allowed: up to {MOST}")
    for part, chosen in product(_combinations(places), _combinations(choices)):
        given = dict(chosen)
        if isinstance(given.get("estimator"), str):
            given["estimator"] = preset(given["estimator"])
        rounds = given.get("rounds", start.design.rounds)
        given.setdefault("eval_every", start.design.eval_every if rounds % start.design.eval_every == 0 else rounds)
        run = replace(start, design=replace(start.design, **given), environment=replace(start.environment, **part))
        runs.append((run, {name: _words(value) for name, value in chosen.items()} | part))
    return runs


def _words(value: Any) -> Any:
    """Return a value as a table shows it: a configuration becomes words."""
    if isinstance(value, int | float | str):
        return value
    knobs = [f"{knob.path.removeprefix('.')} {knob.value}" for knob in changed_knobs(value, type(value)(), "")]
    return ", ".join(knobs) or "default"


def progress_lines() -> Callable[[int, int], None]:
    """Return a callable that prints progress as lines on standard error: after the first run, then every few
    seconds."""
    began, told = time.monotonic(), 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done in (1, total) or now - told >= EVERY:
            told = now
            left = (now - began) / done * (total - done)
            print(f"rftlab: {done} of {total} runs, about {left:.0f} s left", file=sys.stderr, flush=True)

    return tell


Progress = Callable[[int, int], object] | bool


def sweep(
    start: Simulation | None = None,
    designs: Iterable[Design] | None = None,
    seeds: int = 5,
    threads: int = 0,
    progress: Progress = False,
    *,
    design: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Simulate `start` with each of the designs and the seeds 0 .. N-1, and return one row per run and evaluation, in
    that order.

    start: by default the simulated pair qwen-gsm8k. designs: whole designs. In their place design, environment: one or
    several values of fields of the design (estimators by name too) and of the environment; every combination runs:
    `sweep(design={"rollouts": [2, 8], "estimator": ["rloo", "grpo"]}, environment={"style_tokens": [0, 15]})`.

    Columns: for designs cell, the design's label; batch_size, rollouts (of each context) and estimator; the fields that
    are given; those of `Curve`, with rollouts_total and tokens_total for what was sampled so far; and diverged_at, nan
    where the run did not diverge.
    Designs share their random numbers seed by seed, so compare them seed by seed. threads: 0 means all cores; results
    do not depend on it. progress: a function of the runs done and the number of runs; True prints lines.
    """
    for name, number, least in (("seeds", seeds, 1), ("threads", threads, 0)):
        check(isinstance(number, int), f"{name} = {number!r}; allowed: a whole number, {least} or more")
        check_count(name, number, least)
    start = start_at("qwen-gsm8k", "sim") if start is None else start
    check_type("start", start, Simulation, "a Simulation")
    by_values = design is not None or environment is not None
    check(designs is None or not by_values, "designs, and design or environment; allowed: one of the two ways")
    if by_values:
        chosen: list[tuple[Simulation, dict[str, Any] | None]] = list(grid_runs(start, design, environment))
    else:
        several = designs is None or (isinstance(designs, Iterable) and not isinstance(designs, str))
        check(several, f"designs is a {type(designs).__name__}; allowed: several designs, as a list")
        listed = [] if designs is None else list(designs)
        for one in listed:
            check(isinstance(one, Design), f"designs has {one!r:.60}; allowed: designs (names: design={{...}})")
        chosen = [(replace(start, design=one), None) for one in listed]
    runs = [(replace(run, seed=seed), said) for run, said in chosen for seed in range(seeds)]
    check(bool(runs), "designs names none; allowed: one or more")
    report_progress = progress if callable(progress) else progress_lines() if progress else noop
    worlds, stop, frames = Worlds(), Event(), []
    with workers(threads or available_threads()) as pool:
        try:
            waiting = [pool.submit(simulate, run, worlds[run.environment], noop, stop.is_set) for run, _ in runs]
            for (run, said), future in zip(runs, waiting, strict=True):
                frames.append(_rows(run, said, future.result()))
                report_progress(len(frames), len(runs))
        except BaseException:
            stop.set()
            raise
    return pd.concat(frames, ignore_index=True)


def _rows(run: Simulation, said: dict[str, Any] | None, result: SimulationResult) -> pd.DataFrame:
    """Return the rows of a run with a column for each varied field, and always batch_size, rollouts (of a context) and
    estimator; rollouts sampled so far are `rollouts_total`, tokens `tokens_total`."""
    frame, ended, design = result.curve.to_frame(), result.diverged_at, run.design
    frame = frame if result.metrics is None else frame.merge(result.metrics, on=["seed", "round"])
    frame = frame.assign(diverged_at=float("nan") if ended is None else float(ended))
    frame = frame.rename(columns={"rollouts": "rollouts_total", "tokens": "tokens_total"})
    first: dict[str, Any] = {"cell": label(design)} if said is None else {}
    first |= {
        "batch_size": design.batch_size,
        "rollouts": design.rollouts,
        "estimator": estimator_name(design.estimator),
    }
    varied = {name: value for name, value in (said or {}).items() if name not in first}
    for place, (name, value) in enumerate((first | varied).items()):
        frame.insert(place, name, value)
    return frame
