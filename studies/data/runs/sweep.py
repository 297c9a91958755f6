"""Simulated runs of several designs and seeds as a data frame: the way from Python that needs no results folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Event
from typing import Any

import pandas as pd

from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check, check_count
from rftlab.sim.config import Simulation
from rftlab.sim.run import simulate
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.grid import Lines, runs_of, tidy
from rftlab.studies.data.runs.runner import Worlds, available_threads
from rftlab.studies.data.runs.workers import workers

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
    """The runs of `start` with each of the designs and the seeds 0 .. N-1: one row per run and evaluation, in that
    order.

    start: by default the simulated pair qwen-gsm8k. designs: whole designs. Or design, environment: values, one or
    several, of fields of the design (estimators by name too) and of the environment; every combination runs:
    `sweep(design={"rollouts": [2, 8], "estimator": ["rloo", "grpo"]}, environment={"style_tokens": [0, 15]})`.

    Columns for designs: cell (the design's label), batch_size, rollouts_per_context, those of `Curve`, and diverged_at,
    nan where the run came to its end. For values: batch_size, rollouts (of each context), estimator, the fields that
    are given, those of `Curve` with rollouts_total and tokens_total for what was sampled so far, and diverged_at.
    Designs share their random numbers seed by seed, so compare them seed by seed. threads: 0 means all cores, results
    do not depend on it. progress: is told the runs done and the number of runs; True prints lines.
    """
    for name, number, least in (("seeds", seeds, 1), ("threads", threads, 0)):
        check(isinstance(number, int), f"{name} = {number!r}; allowed: a whole number, {least} or more")
        check_count(name, number, least)
    check(start is None or isinstance(start, Simulation), f"start is a {type(start).__name__}; allowed: a Simulation")
    start, by_values = start or start_at("qwen-gsm8k", "sim"), design is not None or environment is not None
    check(designs is None or not by_values, "designs, and design or environment; allowed: one of the two ways")
    if by_values:
        chosen: list[tuple[Simulation, dict[str, Any] | None]] = list(runs_of(start, design, environment))
    else:
        several = designs is None or (isinstance(designs, Iterable) and not isinstance(designs, str))
        check(several, f"designs is a {type(designs).__name__}; allowed: several designs, as a list")
        listed = list(designs or ())
        for one in listed:
            check(isinstance(one, Design), f"designs has {one!r:.60}; allowed: designs (names: design={{...}})")
        chosen = [(replace(start, design=one), None) for one in listed]
    runs = [(replace(run, seed=seed), said) for run, said in chosen for seed in range(seeds)]
    check(bool(runs), "designs names none; allowed: one or more")
    report_progress = progress if callable(progress) else Lines() if progress else noop
    worlds, stop, frames = Worlds(), Event(), []
    with workers(threads or available_threads()) as pool:
        try:
            waiting = [pool.submit(simulate, run, worlds[run.environment], noop, stop.is_set) for run, _ in runs]
            for (run, said), future in zip(runs, waiting, strict=True):
                frames.append(_rows(run, said, *future.result()))
                report_progress(len(frames), len(runs))
        except BaseException:
            stop.set()
            raise
    return pd.concat(frames, ignore_index=True)


def _rows(run: Simulation, said: dict[str, Any] | None, curve, diverged_at: int | None) -> pd.DataFrame:
    frame = curve.to_frame().assign(diverged_at=float("nan") if diverged_at is None else float(diverged_at))
    if said is not None:
        return tidy(frame, said, run.design)
    about = {
        "cell": label(run.design),
        "batch_size": run.design.batch_size,
        "rollouts_per_context": run.design.rollouts,
    }
    for place, (name, value) in enumerate(about.items()):
        frame.insert(place, name, value)
    return frame
