"""What both trainers are given, and what each reports."""

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
    """A round, and how many of them."""

    name: str
    task: str
    folder: str
    """The model and its tokenizer."""
    prompts: int
    rollouts: int
    limit: int
    """Tokens of a response."""
    full: bool
    """Whether every response has `limit` tokens, so that the work is the same."""
    rate: float
    rounds: int
    """Measured, after the first, which is not."""
    threads: int
    device: str = "cpu"
    precision: str = "fp32"


class Measured(NamedTuple):
    """A run of one trainer."""

    seconds: list[float]
    """Of each round after the first."""
    processor: list[float]
    """Processor seconds of the same rounds, of all threads: what other work on the machine disturbs less."""
    rewards: list[float]
    """Mean strict reward of each round, the first included."""
    length: float
    """Tokens of a response, mean."""
    megabytes: float
    """Largest resident memory of the process, loading included; on a GPU the largest that torch has allocated there."""


def problems(case: Case) -> Task:
    """The task of a case; with its training problems both trainers work."""
    return load_task(TaskConfig(case.task))


def given(text: str) -> Case:
    """The case in an argument of the command line."""
    return Case(**json.loads(text))


def argument(case: Case) -> str:
    """As `given` reads it."""
    return json.dumps(asdict(case))


class Clock:
    """Seconds of rounds, by the wall and by the processor."""

    def __init__(self):
        self.marks = [self._now()]

    def _now(self) -> tuple[float, float]:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()

    def lap(self) -> None:
        """A round is over, and the next one begins."""
        self.marks.append(self._now())

    def laps(self, which: int) -> list[float]:
        """Seconds of each round after the first, which warms up; 0: by the wall, 1: by the processor."""
        return [after[which] - before[which] for before, after in zip(self.marks[1:], self.marks[2:], strict=False)]


def report(case: Case, clock: Clock, rewards: list[float], lengths: list[float]) -> None:
    """Print what was measured, for the process that asked."""
    done = Measured(
        clock.laps(0), clock.laps(1), rewards, sum(lengths) / len(lengths), peak_megabytes(torch.device(case.device))
    )
    print(json.dumps(done._asdict()), flush=True)
