"""Simulated runs of several designs and seeds as a data frame: the way from Python that needs no results folder."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Event

import pandas as pd

from rftlab.shared.callbacks import noop
from rftlab.shared.design import Design
from rftlab.shared.errors import check, check_count
from rftlab.sim.config import Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.paper.experiments import label
from rftlab.studies.runs.runner import available_threads
from rftlab.studies.runs.workers import workers


def sweep(
    start: Simulation,
    designs: Iterable[Design],
    seeds: int = 5,
    threads: int = 0,
    progress: Callable[[int, int], object] = noop,
) -> pd.DataFrame:
    """The runs of `start` with each of the designs and the seeds 0 .. N-1: one row per run and evaluation, in that
    order.

    Columns: cell (the design's label), batch_size, rollouts_per_context, those of `Curve`, and diverged_at, nan where
    the run came to its end. Designs share their random numbers seed by seed, so compare them seed by seed. threads: 0
    means all cores, results do not depend on it; progress: is told the runs done and the number of runs.
    """
    check_count("seeds", seeds)
    check(threads >= 0, f"threads = {threads}; allowed: 0 (all) or more")
    runs = [replace(start, design=design, seed=seed) for design in designs for seed in range(seeds)]
    check(bool(runs), "designs names none; allowed: one or more")
    world, stop, frames = build(start.environment), Event(), []
    with workers(threads or available_threads()) as pool:
        try:
            waiting = [pool.submit(simulate, run, world, noop, stop.is_set) for run in runs]
            for run, future in zip(runs, waiting, strict=True):
                frames.append(_rows(run, *future.result()))
                progress(len(frames), len(runs))
        except BaseException:
            stop.set()
            raise
    return pd.concat(frames, ignore_index=True)


def _rows(run: Simulation, curve, diverged_at: int | None) -> pd.DataFrame:
    about = {
        "cell": label(run.design),
        "batch_size": run.design.batch_size,
        "rollouts_per_context": run.design.rollouts,
    }
    frame = curve.to_frame().assign(diverged_at=float("nan") if diverged_at is None else float(diverged_at))
    for place, (name, value) in enumerate(about.items()):
        frame.insert(place, name, value)
    return frame
