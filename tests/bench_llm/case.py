"""What both trainers are given, and what each reports."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import NamedTuple

from llm.meter import peak_megabytes
from llm.tasks.load import TaskConfig, load
from llm.tasks.task import Task

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


class Measured(NamedTuple):
    """A run of one trainer."""

    seconds: list[float]
    """Of each round after the first."""
    rewards: list[float]
    """Mean strict reward of each round, the first included."""
    length: float
    """Tokens of a response, mean."""
    megabytes: float
    """Largest resident memory of the process, loading included."""


def problems(case: Case) -> Task:
    """The task of a case; with its training problems both trainers work."""
    return load(TaskConfig(case.task))


def given(text: str) -> Case:
    """The case in an argument of the command line."""
    return Case(**json.loads(text))


def argument(case: Case) -> str:
    """As `given` reads it."""
    return json.dumps(asdict(case))


def report(seconds: list[float], rewards: list[float], lengths: list[float]) -> None:
    """Print what was measured, for the process that asked; the first round warms up."""
    done = Measured(seconds[1:], rewards, sum(lengths) / len(lengths), peak_megabytes(_CPU))
    print(json.dumps(done._asdict()), file=sys.stdout, flush=True)


class _Cpu(NamedTuple):
    type: str = "cpu"


_CPU = _Cpu()
