"""Run language models side by side, each in a process of its own: its memory is its own, and one that is killed takes no other with it."""

import contextlib
import multiprocessing
import signal
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from llm.writing import reason
from shared.errors import UserError
from studies import store
from studies.points import Point
from studies.runner import Report, about_run

_PROCESSES = multiprocessing.get_context("spawn")
_TOLD = 0.2
"""Seconds between two messages of a process."""


class _Running(NamedTuple):
    point: Point
    process: BaseProcess
    told: dict[str, float]
    """Rounds that its bar knows of."""


def run_llm_points(root: Path, todo: list[Point], threads: int, report: Report) -> None:
    """Train points side by side, within so many threads, each in its folder of the store. Raises UserError, after all others ended, where one failed."""
    waiting, running, failures = _ordered(todo), {}, []
    try:
        while waiting or running:
            while waiting and len(running) < _side_by_side(waiting[0], threads):
                running |= [_start(root, waiting.pop(0))]
            for connection in wait(list(running)):
                failure = _hear(root, connection, running, report)
                if failure:
                    report.remark(failure)
                    failures.append(failure)
    finally:
        for run in running.values():
            run.process.terminate()
    if failures:
        raise UserError(f"{len(failures)} of {len(todo)} runs failed, the last: {failures[-1]}; finished runs are kept")


def _ordered(todo: list[Point]) -> list[Point]:
    """Seed by seed, the longest runs of a seed first, so that cores are busy to the end."""
    places = {key: i for i, key in enumerate(dict.fromkeys((point.pair, point.run.seed) for point in todo))}
    return sorted(todo, key=lambda point: (places[point.pair, point.run.seed], -point.cost))


def _side_by_side(point: Point, threads: int) -> int:
    """Runs at a time: as many as the threads allow on a CPU, one on an accelerator."""
    compute = point.run.compute
    return max(1, threads // compute.threads) if compute.device == "cpu" and compute.threads else 1


def _start(root: Path, point: Point) -> tuple[Connection, _Running]:
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_work, args=(root, point, theirs), daemon=False)
    process.start()
    theirs.close()
    return ours, _Running(point, process, {"rounds": 0})


def _hear(root: Path, connection: Connection, running: dict[Connection, _Running], report: Report) -> str | None:
    """One message of a process, or its end; returns why it failed, if it did."""
    run = running[connection]
    point, name = run.point, f"{run.point.pair} {run.point.cell} seed {run.point.run.seed}"
    try:
        kind, value = connection.recv()
    except EOFError:
        run.process.join()
        del running[connection]
        try:
            stored = store.read(root, point)
        except store.Damaged as damage:
            return f"{name}: damaged, run the same command again to redo it: {damage}"
        if stored is None:
            return f"{name}: its process ended with status {run.process.exitcode}"
        report.finished(point, stored)
        return None
    if kind == "rounds":
        report.advanced(point.cost * (value - run.told["rounds"]) / point.run.design.rounds)
        run.told["rounds"] = value
    elif kind == "failed":
        run.process.join()
        del running[connection]
        return f"{name}: {value}"
    else:
        getattr(report, kind)(f"{name}: {value}")
    return None


def _work(root: Path, point: Point, connection: Connection) -> None:
    """What a process does: train, and declare the point finished."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    from llm.train import Report as Told
    from llm.train import train

    began, last = time.perf_counter(), 0.0

    def rounds(done: int) -> None:
        nonlocal last
        if time.perf_counter() > last + _TOLD or done == point.run.design.rounds:
            last = time.perf_counter()
            connection.send(("rounds", done))

    told = Told(
        rounds=rounds,
        remark=lambda text: connection.send(("remark", text)),
        pretraining=lambda step, rate: connection.send(("doing", f"base model, step {step}, validation Pass@1 {rate:.3f}")),
    )
    with contextlib.suppress(BrokenPipeError):  # the parent is gone; the last checkpoint stays
        try:
            outcome = train(point.run, store.folder_of(root, point), told)
            store.seal(root, point, outcome.diverged_at, about_run(began))
        except BrokenPipeError:
            raise
        except UserError as error:
            connection.send(("failed", str(error)))
        except OSError as error:
            connection.send(("failed", f"{error.filename or 'results'} cannot be written: {reason(error)}; run the same command again to go on"))
