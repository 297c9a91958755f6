"""The parts of a pilot that need the model, each in a process of its own: what follows needs the memory of an
accelerator."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.data.runs.progress import Bar
from rftlab.studies.forecast.pilot.pilot import Spent

if TYPE_CHECKING:
    from rftlab.llm.probe import Probed, ProbedGradients

_PROCESSES = multiprocessing.get_context("spawn")


def in_a_process(console: Console, title: str, quiet: bool, work: Callable[..., Any], arguments: tuple) -> Any:
    """What `work` gives in a process of its own, which gives its memory back, that of an accelerator too. Raises
    UserError where it fails or is killed."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_work, args=(theirs, work, arguments), daemon=False)
    process.start()
    theirs.close()
    try:
        with Bar(console, quiet) as bar:
            task = bar.add_task(title, total=None)
            while True:
                kind, value = ours.recv()
                if kind == "done":
                    return value
                if kind == "failed":
                    raise UserError(str(value))
                if kind == "remark":
                    console.print(value, style="yellow", markup=False, soft_wrap=True)
                elif kind == "step":
                    bar.update(task, description=title, completed=value[0], total=value[1])
                else:
                    bar.update(task, description=f"base model, step {value[0]}, validation Pass@1 {value[1]:.3f}")
    except EOFError:
        process.join()
        raise UserError(f"{title} ended with status {process.exitcode}; run the same command again") from None
    finally:
        process.terminate()
        process.join()


class _Told(NamedTuple):
    """How a process of ours tells of its progress."""

    step: Callable[[int, int], None]
    pretraining: Callable[[int, float], None]
    remark: Callable[[str], None]


def _work(connection: Connection, work: Callable[..., Any], arguments: tuple) -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    told = _Told(
        step=lambda done, total: connection.send(("step", (done, total))),
        pretraining=lambda step, rate: connection.send(("reading", (step, rate))),
        remark=lambda text: connection.send(("remark", text)),
    )
    try:
        connection.send(("done", work(told, *arguments)))
    except UserError as error:
        connection.send(("failed", error))
    except BrokenPipeError:
        pass  # the parent is gone


def work_probe(told: _Told, run: LLMRun, config: ProbeConfig) -> "Probed":
    """What `probe` measures on the base model of a run."""
    from rftlab.llm.probe import ProbeCallbacks, probe

    return probe(run, config, ProbeCallbacks(*told))


def work_probe_trained(told: _Told, run: LLMRun, folder: Path, config: ProbeConfig) -> "ProbedGradients":
    """What `probe_trained` measures on the model of a run in a folder."""
    from rftlab.llm.probe import ProbeCallbacks, probe_trained

    return probe_trained(run, folder, config, ProbeCallbacks(*told))


def work_train(told: _Told, run: LLMRun, folder: Path) -> Spent:
    """Train in a folder, or go on with it; returns what that cost. Raises UserError where it diverged."""
    from rftlab.llm.train import TrainingCallbacks, train

    rounds = run.design.rounds
    callbacks = TrainingCallbacks(
        rounds=lambda done: told.step(done, rounds), remark=told.remark, pretraining=told.pretraining
    )
    outcome = train(run, folder, callbacks)
    check(
        outcome.diverged_at is None, f"the baseline's run diverged after round {outcome.diverged_at}; add --no-midway"
    )
    curve = outcome.curve
    return Spent(int(curve.rollouts[-1]), int(curve.tokens[-1]), float(curve.seconds[-1]))
