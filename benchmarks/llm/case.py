"""The input of both trainers, and the measurements that each reports."""

import json
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from rftlab.llm.meter import peak_megabytes
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Task

BETA = 0.001
"""Coefficient of the KL penalty."""


@dataclass(frozen=True)
class Case:
    """Settings of a round, and the number of rounds."""

    name: str
    task: str
    folder: str
    """Folder with the model and its tokenizer."""
    prompts: int
    rollouts: int
    limit: int
    """Largest number of tokens of a response."""
    full: bool
    """Whether every response has `limit` tokens, so that the work is the same."""
    rate: float
    rounds: int
    """Number of measured rounds, after the first, which is not measured."""
    threads: int
    device: str = "cpu"
    precision: str = "fp32"


class Measured(NamedTuple):
    """Measurements of a run of one trainer."""

    seconds: list[float]
    """Seconds of each round after the first."""
    processor: list[float]
    """Processor seconds of the same rounds, of all threads, which other work on the machine disturbs less."""
    rewards: list[float]
    """Mean strict reward of each round, the first included."""
    length: float
    """Mean number of tokens of a response."""
    megabytes: float
    """Largest resident memory of the process in MB, loading included; on a GPU the largest memory that torch has
    allocated."""


def problems(case: Case) -> Task:
    """Return the task of a case; both trainers use its training problems."""
    return load_task(TaskConfig(case.task))


def given(text: str) -> Case:
    """Return the case in an argument of the command line."""
    return Case(**json.loads(text))


def argument(case: Case) -> str:
    """Return a case as an argument, which `given` reads."""
    return json.dumps(asdict(case))


class Clock:
    """Clock of rounds, in wall seconds and processor seconds."""

    def __init__(self):
        self.marks = [self._now()]

    def _now(self) -> tuple[float, float]:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()

    def lap(self) -> None:
        """End a round, and begin the next one."""
        self.marks.append(self._now())

    def laps(self, which: int) -> list[float]:
        """Return the seconds of each round after the first, which warms up; 0: wall time, 1: processor time."""
        return [after[which] - before[which] for before, after in zip(self.marks[1:], self.marks[2:], strict=False)]


def report(case: Case, clock: Clock, rewards: list[float], lengths: list[float]) -> None:
    """Print the measurements for the parent process."""
    done = Measured(
        clock.laps(0), clock.laps(1), rewards, sum(lengths) / len(lengths), peak_megabytes(torch.device(case.device))
    )
    print(json.dumps(done._asdict()), flush=True)
