"""Runs over several GPUs or machines: each is a task of a Ray cluster, done again where its worker dies. What runs
where and when is Ray's business.

A language model's task has a worker process of its own, and goes on from the last checkpoint when it is done again. Bad
input is a task's result and not its failure, so it is told once and not tried again.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reason, write_file
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.llm_runner import check_all_done, ordered, read_finished, train_point
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import StudyCallbacks, Worlds, simulate_point
from rftlab.studies.data.runs.store import Stored

NEEDS_RAY = "engine ray needs Ray: pip install '.[ray]' in rftlab's folder"
RETRIES = 3
"""Workers that may die under a run before it counts as failed."""
_ANSWER = 10.0
"""Seconds in which a cluster must answer."""
_STORE_BYTES = 100_000_000
"""Memory for what tasks return, which is curves."""
_WORLDS = Worlds()
"""Those of a worker."""


class Unshared(UserError):
    """A machine that cannot do any of the runs."""


class _Result(NamedTuple):
    outcome: Stored | UserError
    remarks: list[str]


class _Mark(NamedTuple):
    """A file that the driver wrote into the results folder, by which a task knows the folder again."""

    root: Path
    name: str


def check_ray(todo: list[RunSpec]) -> None:
    """Raise UserError where Ray is not installed, or where points are to be run and nobody answers at RAY_ADDRESS."""
    check(find_spec("ray") is not None, NEEDS_RAY)
    if todo and os.environ.get("RAY_ADDRESS"):
        _reach(os.environ["RAY_ADDRESS"])


def run_on_ray(root: Path, todo: list[RunSpec], threads: int, report: StudyCallbacks) -> None:
    """Run points of any level on the cluster that RAY_ADDRESS names, or on one that is started here for so many
    threads; `check_ray` comes first.

    Raises UserError, after all others ended, where one failed; and at once where a machine does not share the results
    folder.
    """
    if not todo:
        return
    import ray

    with _cluster(threads), _marked(root.resolve()) as mark:
        _check_room(todo, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        waiting, failures = {_submit(mark, point): point for point in ordered(todo)}, []
        while waiting:
            for reference in ray.wait(list(waiting))[0]:
                failure = _hear(reference, waiting.pop(reference), report)
                failures += [failure] if failure else []
    check_all_done(failures, todo)


@contextlib.contextmanager
def _cluster(threads: int) -> Iterator[None]:
    """Be connected to a cluster, whose logs stay in its own files."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    own: dict[str, Any] = {"num_cpus": threads, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(address, **quiet) if address else ray.init("local", **own, **quiet)
    except Exception as error:  # it raises what its many parts raise
        what = f"no cluster at RAY_ADDRESS = {address}" if address else "no cluster can be started here"
        raise UserError(f"Ray: {what}: {_line(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()  # ends the job's workers too, whatever they are at


def _reach(address: str) -> None:
    """Raise UserError where nobody answers at host:port: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
    except OSError as error:
        raise UserError(f"Ray: no cluster answers at RAY_ADDRESS = {address}: {reason(error)}") from None


@contextlib.contextmanager
def _marked(root: Path) -> Iterator[_Mark]:
    mark = _Mark(root, f"{store.SCRATCH}/ray-{secrets.token_hex(8)}")
    write_file(root / mark.name, b"")
    try:
        yield mark
    finally:
        (root / mark.name).unlink(missing_ok=True)


def needs(point: RunSpec) -> dict[str, Any]:
    """What a run keeps busy: a GPU, or its threads."""
    if not isinstance(point.run, LLMRun):
        return {"num_cpus": 1, "num_gpus": 0}
    if point.run.compute.device.startswith("cuda"):
        return {"num_cpus": 0, "num_gpus": 1}
    return {"num_cpus": max(1, point.run.compute.threads), "num_gpus": 0}


def _check_room(todo: list[RunSpec], machines: list[dict[str, float]]) -> None:
    """Raise UserError where no machine could ever run one: Ray would wait for one that can."""
    for point in todo:
        cpus, gpus = needs(point).values()
        fits = any(machine.get("CPU", 0) >= cpus and machine.get("GPU", 0) >= gpus for machine in machines)
        wanted = "a GPU" if gpus else f"{cpus} threads"
        check(
            fits,
            f"{point.name} asks for {wanted}; no machine of the Ray cluster has that (a cluster that is "
            "started here has --threads)",
        )


def _submit(mark: _Mark, point: RunSpec):
    """A task's reference. A process per run of a language model: its memory is its own."""
    import ray

    task = ray.remote(max_calls=int(point.level == "llm"), max_retries=RETRIES, **needs(point))(_work)
    return task.options(name=point.name).remote(mark, point, point.id)


def _hear(reference, point: RunSpec, report: StudyCallbacks) -> str | None:
    """The end of a task; returns why its run failed, if it did. Raises Unshared where it says so."""
    import ray

    try:
        outcome, remarks = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        outcome, remarks = UserError(f"its worker died {RETRIES + 1} times; run the same command again to go on"), []
    except ray.exceptions.RayError as error:
        outcome, remarks = UserError(_line(getattr(error, "cause", None) or error)), []
    if isinstance(outcome, Unshared):
        raise outcome
    for remark in remarks:
        report.remark(f"{point.name}: {remark}")
    if isinstance(outcome, UserError):
        report.remark(f"{point.name}: {outcome}")
        return f"{point.name}: {outcome}"
    report.advanced(point.cost)
    report.finished(point, outcome)
    return None


def _line(error: Exception) -> str:
    """What an error says, as the part of one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said if len(said) <= 200 else said[:197] + '...'}"


def _work(mark: _Mark, point: RunSpec, identity: str) -> _Result:
    """What a worker does."""
    remarks: list[str] = []
    try:
        _check_machine(mark, point, identity)
        if point.level == "sim":
            return _Result(simulate_point(mark.root, point, _WORLDS, noop), remarks)
        return _Result(_trained(mark.root, point, remarks), remarks)
    except UserError as error:
        return _Result(error, remarks)


def _check_machine(mark: _Mark, point: RunSpec, identity: str) -> None:
    """Raise Unshared unless this machine has the driver's results folder and its rftlab."""
    here = os.uname().nodename
    try:
        (mark.root / mark.name).stat()
    except OSError as error:
        raise Unshared(
            f"machine {here} does not see {mark.root} ({reason(error)}); name a results folder on a file "
            "system that all machines share"
        ) from None
    if point.id != identity:
        raise Unshared(
            f"machine {here} has another version of rftlab: it calls {identity} {point.id}; install the same "
            "one everywhere"
        )


def _trained(root: Path, point: RunSpec, remarks: list[str]) -> Stored:
    from rftlab.llm.train import TrainingCallbacks

    train_point(root, point, TrainingCallbacks(remark=remarks.append))
    stored = read_finished(root, point)
    if stored is None:
        raise UserError(f"{store.point_folder(root, point)} is gone; run the same command again")
    return stored
