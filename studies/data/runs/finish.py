"""Run the points of a list that are not in the store yet: simulations in threads (runner.py), language models in a
process each. A process has its own memory, and one that is killed does not end others."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rftlab.llm.stored import Busy
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reason
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.limits import NEEDS_LLM, check_threads, has_llm
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.progress import study_progress
from rftlab.studies.data.runs.runner import StudyCallbacks, about_run, available_threads, run_points, split

if TYPE_CHECKING:
    from rftlab.llm.train import TrainingCallbacks


_TOLD = 0.2
"""Least seconds between two messages of a process."""


def count_threads(requested: int) -> int:
    """Return the number of threads to use; 0 asks for all."""
    check_threads(requested)
    return requested or available_threads()


def find_todo(console: Console, root: Path, points: list[RunSpec], quiet: bool) -> list[RunSpec]:
    """Return the points that are not in the store yet. Raises UserError where they cannot run here."""
    finished, todo = split(root, points, lambda text: console.print(text, style="yellow", markup=False))
    if finished and not quiet:
        console.print(f"{len(finished)} of {len(points)} runs are there already")
    check(has_llm() or all(point.level == "sim" for point in todo), f"level llm {NEEDS_LLM}")
    return todo


def run_todo(console: Console, root: Path, todo: list[RunSpec], threads: int, quiet: bool) -> None:
    """Run the points that `find_todo` returned."""
    threads = count_threads(threads)
    simulated, real = ([point for point in todo if point.level == level] for level in LEVELS)
    with study_progress(console, todo, quiet) as report:
        run_points(root, simulated, threads, report)
        run_llm_points(root, real, threads, report)


def finish_points(console: Console, root: Path, points: list[RunSpec], threads: int, quiet: bool) -> None:
    """Run the points that are not in the store yet, on so many threads; 0 asks for all."""
    run_todo(console, root, find_todo(console, root, points, quiet), threads, quiet)


@dataclass
class _Running:
    point: RunSpec
    process: BaseProcess
    rounds: int = 0
    """Number of rounds that the progress bar has counted."""


def run_llm_points(root: Path, todo: list[RunSpec], threads: int, report: StudyCallbacks) -> None:
    """Train points side by side on so many threads, each in its folder of the store. Raises UserError, after all others
    ended, where one failed.

    Where one fails before its first round, the waiting runs of its pair are not started.
    """
    waiting, failures = ordered(todo), []
    running: dict[Connection, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _side_by_side(waiting[0], threads):
                running |= [_start(root, waiting.pop(0))]
            ready = wait(list(running))
            for connection in [one for one in running if one in ready]:  # in the order in which they were started
                point, failure = running[connection].point, _hear(root, connection, running, report)
                if failure:
                    why, alike = failure
                    kept = [other for other in waiting if not alike or other.pair != point.pair]
                    skipped, waiting = len(waiting) - len(kept), kept
                    failures.append(f"{point.name}: {why}")
                    more = f"; {skipped} more runs of {point.pair} would fail alike and are not started"
                    report.remark(failures[-1] + more * (skipped > 0))
    finally:
        for run in running.values():
            run.process.terminate()
    if failures:
        raise UserError(f"{len(failures)} of {len(todo)} runs failed, the last: {failures[-1]}; finished runs are kept")


def ordered(todo: list[RunSpec]) -> list[RunSpec]:
    """Return the points seed by seed, the longest runs of a seed first, so that all cores are busy to the end."""
    places = {key: i for i, key in enumerate(dict.fromkeys((point.pair, point.run.seed) for point in todo))}
    return sorted(todo, key=lambda point: (places[point.pair, point.run.seed], -point.cost))


def train_point(root: Path, point: RunSpec, reported: "TrainingCallbacks") -> None:
    """Train a run in its folder of the store, and mark it as finished. Every process that trains runs this. Raises
    UserError where the folder cannot be written.

    The weights are removed, because those of a study would fill any disk; those of a run that diverged stay for
    inspection.
    """
    from rftlab.llm.rewards.load import rewards_named
    from rftlab.llm.train import train
    from rftlab.llm.training.checkpoint import prune

    began = time.perf_counter()
    try:
        rewards = rewards_named(point.llm_run.rewards)
        outcome = train(point.llm_run, store.point_folder(root, point), reported, **rewards)
        if outcome.diverged_at is None:
            prune(store.point_folder(root, point))
        about = about_run(began)
        about["seconds"] = max(
            about["seconds"], float(outcome.curve.seconds[-1])
        )  # the seconds before it was killed and resumed count too
        store.mark_done(root, point, outcome.diverged_at, about)
    except BrokenPipeError:  # the parent has ended
        raise
    except OSError as error:
        raise UserError(
            f"{error.filename or root} cannot be written: {reason(error)}; run the same command again to go on"
        ) from None


def _side_by_side(point: RunSpec, threads: int) -> int:
    """Return the number of runs at a time: as many as the threads allow on a CPU, one on an accelerator."""
    compute = point.llm_run.compute
    return max(1, threads // compute.threads) if compute.device == "cpu" and compute.threads else 1


def start_worker(work: Callable[..., None], device: str, *arguments: Any) -> tuple[Connection, BaseProcess]:
    """Start a process that trains, and return an end of a pipe and the process. `work` is called with the other end and
    the arguments; the pipe ends when the process does.

    On a CPU all are forked from one process that has imported the trainer, which takes 6 CPU-seconds. Elsewhere each
    imports it, because a forked process cannot use an accelerator that an import has touched.
    """
    processes: Any = multiprocessing.get_context("forkserver" if device == "cpu" and _can_fork() else "spawn")
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=_begin, args=(work, dict(os.environ), theirs, *arguments), daemon=False)
    process.start()
    theirs.close()
    return ours, process


def _can_fork() -> bool:
    """Whether processes can be forked from a server process, which the first call starts."""
    if sys.platform != "linux":  # macOS has libraries that end a process that was forked
        return False
    forkserver.set_forkserver_preload(["rftlab.llm.train"])
    try:
        forkserver.ensure_running()
    except OSError:  # the name of the temporary folder is too long for a socket, or its disk holds none
        return False
    return True


def _begin(work: Callable[..., None], environment: dict[str, str], connection: Connection, *arguments: Any) -> None:
    """Call `work` in a child process, which only its parent ends, in the environment that the parent has now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    work(connection, *arguments)


def _start(root: Path, point: RunSpec) -> tuple[Connection, _Running]:
    connection, process = start_worker(_work, point.llm_run.compute.device, root, point)
    return connection, _Running(point, process)


def _hear(
    root: Path, connection: Connection, running: dict[Connection, _Running], report: StudyCallbacks
) -> tuple[str, bool] | None:
    """Handle one message of a process, or its end. Where its run failed, return why, and whether the other runs of the
    pair would fail alike (bad input, no GPU, no model)."""
    run = running[connection]
    try:
        kind, value = connection.recv()
    except EOFError:
        kind, value = "ended", None
    if kind == "rounds":
        report.advanced(run.point.cost * (value - run.rounds) / run.point.run.design.rounds)
        run.rounds = value
        return None
    if kind not in ("failed", "ended"):
        getattr(report, kind)(f"{run.point.name}: {value}")
        return None
    run.process.join()
    del running[connection]
    if kind == "failed":
        return str(value), run.rounds == 0 and not isinstance(value, Busy)
    try:
        stored = store.read(root, run.point)
    except store.DamagedPoint as damage:
        return f"damaged, run the same command again to redo it: {damage}", False
    if stored is None:
        return f"its process ended with status {run.process.exitcode}", False
    report.finished(run.point, stored)
    return None


def _work(connection: Connection, root: Path, point: RunSpec) -> None:
    """Train a run in a child process that reports its progress to its parent."""
    from rftlab.llm.train import TrainingCallbacks

    last = 0.0

    def rounds(done: int) -> None:
        nonlocal last
        if time.perf_counter() > last + _TOLD or done == point.run.design.rounds:
            last = time.perf_counter()
            connection.send(("rounds", done))

    reported = TrainingCallbacks(
        rounds=rounds,
        remark=lambda text: connection.send(("remark", text)),
        pretraining=lambda step, rate: connection.send(
            ("doing", f"base model, step {step}, validation Pass@1 {rate:.3f}")
        ),
    )
    with contextlib.suppress(BrokenPipeError):  # the parent is gone; the last checkpoint stays
        try:
            train_point(root, point, reported)
        except UserError as error:
            connection.send(("failed", error))
