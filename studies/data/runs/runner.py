"""Run simulations that are not yet in the store, on all cores, and read finished runs back. Simulations run in threads,
language models in processes (finish.py)."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import pandas as pd

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import never
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import reason
from rftlab.sim.config import Environment
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.sim.world import World
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.files import remove_stale
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.store import Stored


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads. An error drops the work that has not begun; Ctrl-C does not wait for running work
    either."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    pool.shutdown()


class StudyCallbacks(NamedTuple):
    """Callbacks by which a runner reports progress: a finished point, a part of one (in seconds of cost), the current
    activity, and a remark."""

    finished: Callable[[RunSpec, Stored], None]
    advanced: Callable[[float], None]
    doing: Callable[[str], None]
    remark: Callable[[str], None]


class Results(NamedTuple):
    """Curves of all runs in long form, and a line for each run that diverged.

    Columns: pair, cell, planned_rounds (where the run was to end), those of `Curve`, and metrics where there are any.
    """

    curves: pd.DataFrame
    diverged: list[str]


def available_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Worlds:
    """Simulated worlds by environment, each built once."""

    def __init__(self) -> None:
        self._worlds: dict[Environment, World] = {}
        self._lock = Lock()

    def __getitem__(self, environment: Environment) -> World:
        with self._lock:
            if environment not in self._worlds:
                self._worlds[environment] = build(environment)
            return self._worlds[environment]


def split(
    root: Path, points: list[RunSpec], remark: Callable[[str], None]
) -> tuple[dict[RunSpec, Stored], list[RunSpec]]:
    """Return the finished points with their outcomes, and the points to run. A damaged point is named, removed and run
    again."""
    finished, todo = {}, []
    for point in points:
        try:
            outcome = store.read(root, point)
        except store.DamagedPoint as damage:
            remark(f"damaged, redone: {damage}")
            store.discard(root, point)
            outcome = None
        if outcome is None:
            todo.append(point)
        else:
            finished[point] = outcome
    return finished, todo


def run_points(root: Path, todo: list[RunSpec], threads: int, report: StudyCallbacks) -> None:
    """Run simulations side by side, each on one thread, and store each as it finishes. Results do not depend on
    `threads`.

    The shortest run comes first, for a first result as soon as all code is compiled, then the longest ones, so that
    none is left alone at the end. An interrupt, or a store that cannot be written, stops the running ones.
    """
    remove_stale(root / store.SCRATCH, "tmp*")
    worlds, stop, by_cost = Worlds(), Event(), sorted(todo, key=lambda point: -point.cost)
    order = [*by_cost[-1:], *by_cost[:-1]]  # the shortest, then the longest ones
    with workers(threads) as pool:
        try:
            waiting = {
                pool.submit(simulate_point, root, point, worlds, report.advanced, stop.is_set): point for point in order
            }
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    report.finished(waiting.pop(future), future.result())
        except BaseException:
            stop.set()
            raise


def simulate_point(
    root: Path, point: RunSpec, worlds: Worlds, advanced: Callable[[float], None], stopped: Callable[[], bool] = never
) -> Stored:
    """Simulate a point and store it. Raises UserError where the store cannot be written, and rftlab.sim.run.Stopped
    where `stopped` returns True."""
    began, share = time.perf_counter(), point.cost * point.run.design.eval_every / point.run.design.rounds
    try:
        outcome = simulate(
            point.simulation, worlds[point.simulation.environment], lambda rounds: advanced(share), stopped
        )
        store.write(root, point, outcome, about_run(began))
    except OSError as error:
        raise UserError(
            f"{root} cannot be written: {reason(error)}; finished runs are kept, run the same command again"
        ) from None
    return Stored(*outcome)


def about_run(began: float) -> dict:
    """Return the facts that are kept beside a run which began at that time of `time.perf_counter`."""
    return {"commit": commit(), "versions": versions(), "seconds": time.perf_counter() - began}


def collect(root: Path, points: list[RunSpec]) -> Results:
    """Return the curves of finished points. Raises UserError where one is missing or damaged."""
    frames, diverged = [], []
    for point in points:
        try:
            outcome = store.read(root, point)
        except store.DamagedPoint as damage:
            raise UserError(f"{damage}; run the same study again to redo it") from None
        if outcome is None:
            raise UserError(f"{store.point_folder(root, point)} is missing; run the same study again to finish it")
        frames.append(long_form(point.pair, point.run.design, outcome.curve, outcome.metrics))
        if outcome.diverged_at is not None:
            diverged.append(
                f"{point.pair}, {point.cell}, seed {point.run.seed}: weights or gradient were not finite after "
                f"round {outcome.diverged_at}"
            )
    return Results(pd.concat(frames, ignore_index=True), diverged)


def long_form(pair: str, design: Design, curve: Curve, metrics: pd.DataFrame | None) -> pd.DataFrame:
    """Return the curve of a run as rows of `Results.curves`."""
    frame = curve.to_frame()
    frame.insert(0, "pair", pair)
    frame.insert(1, "cell", label(design))
    frame.insert(2, "planned_rounds", design.rounds)
    return frame if metrics is None else frame.merge(metrics, on=["seed", "round"])
