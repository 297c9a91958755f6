"""Load GSM8K and MATH from the hub or from local files, with the prompts and the truths that the paper used.

A table has the hub's columns (GSM8K: question, answer; MATH: problem, solution), to which the instruction is added
here, or prepared ones: `prompt` with chat messages, `reward_model` with `ground_truth`. Other columns are ignored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rftlab.llm.rewards.answers import boxed
from rftlab.llm.tasks.config import HUB
from rftlab.llm.tasks.files import (
    DatasetRow,
    data_files,
    hub_rows,
    messages_column,
    read_rows,
    shown_value,
    text_column,
)
from rftlab.llm.tasks.task import Split, Task
from rftlab.shared.plumbing.errors import UserError, check, check_choice

_MARKED = re.compile(r"#### (-?[0-9.,]+)")
_CALCULATOR = re.compile(r"<<[^<>]*>>")
"""Annotations for a calculator in GSM8K's solutions."""
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
"""A number in the format of the strict rule, without commas."""


def _after_marker(solution: str) -> str:
    """Return the number after the marker, or a solution that is one number, without commas; empty where there is
    none."""
    marked, bare = _MARKED.search(solution), solution.strip().replace(",", "")
    return marked[1].replace(",", "") if marked else bare if _NUMBER.fullmatch(bare) else ""


@dataclass(frozen=True)
class Benchmark:
    """A data set of the hub."""

    repository: str
    configuration: str
    problem: str
    """Column with the question."""
    solution: str
    """Column with the worked solution."""
    truth: Callable[[str], str]
    """Function that returns the true answer in a solution; empty where there is none."""
    marker: str
    """Marker of an answer, for messages."""
    findable: Callable[[str], bool]
    """Function that decides whether the strict rule can find an answer in a response that states it."""
    instruction: str
    unanswered: tuple[str, ...] = ()
    """First words of the problems whose published solution gives no answer."""


BENCHMARKS = {
    "gsm8k": Benchmark(
        "openai/gsm8k",
        "main",
        "question",
        "answer",
        _after_marker,
        "#### and a number, or a number alone (the task own takes other answers)",
        lambda answer: _NUMBER.fullmatch(answer) is not None,
        'Let\'s think step by step and output the final answer after "####".',
    ),
    "math": Benchmark(
        "DigitalLearningGmbH/MATH-lighteval",
        "default",
        "problem",
        "solution",
        lambda solution: boxed(solution) or "",
        "\\boxed{} around something",
        lambda answer: boxed(f"\\boxed{{{answer}}}") == answer,
        "Let's think step by step and output the final answer within \\boxed{}.",
        (
            "For any integer $n>1$, the number of prime numbers greater than $n!+1$",
            "You are given a sequence of $58$ terms; each term has the form $P+n$",
        ),
    ),
}


def load_benchmark(name: str, source: str = HUB, test_source: str | None = None) -> Task:
    """Return a benchmark with splits train and test.

    source: `hub`, a folder with files of both splits, or a file with the problems to train on; test_source: the source
    of the test problems where it is another. Raises UserError for data that are missing or damaged.
    """
    check_choice("benchmark", name, tuple(BENCHMARKS))
    lonely = source != HUB and test_source is None and not Path(source).is_dir()
    check(
        not lonely,
        f"source = {source!r} is no folder; allowed: {HUB}, a folder with train and test files, or a file "
        "together with test_source",
    )
    splits, unanswered = {}, {}
    for split, place in (("train", source), ("test", source if test_source is None else test_source)):
        rows = (
            hub_rows(BENCHMARKS[name].repository, BENCHMARKS[name].configuration, split)
            if place == HUB
            else [row for path in data_files(Path(place), split) for row in read_rows(path)]
        )
        splits[split], unanswered[split] = _read_split(BENCHMARKS[name], rows)
    return Task(name, name, splits, unanswered)


def _read_split(benchmark: Benchmark, rows: list[DatasetRow]) -> tuple[Split, int]:
    """Return the problems of a table, and the number of those that are left out because they are known to have no
    answer."""
    problems = [_prepared(row) if "prompt" in row.columns else _raw(benchmark, row) for row in rows]
    kept = []
    for row, (prompt, answer, solution) in zip(rows, problems, strict=True):
        known = prompt[-1]["content"].startswith(benchmark.unanswered)
        check(bool(answer.strip()) or known, f"{row.place}: {_unanswered(benchmark, row)}")
        check(
            known or benchmark.findable(answer),
            f"{row.place}: no response can match the answer {shown_value(answer)}; allowed: what stands in "
            f"{benchmark.marker}",
        )
        if answer.strip():
            kept.append((prompt, answer, solution))
    check(bool(kept), f"{rows[0].place}: no problem has an answer")
    prompts, answers, solutions = zip(*kept, strict=True)
    return Split(prompts, answers, solutions=solutions), len(rows) - len(kept)


def _unanswered(benchmark: Benchmark, row: DatasetRow) -> str:
    """Return the message about a row without an answer."""
    if "prompt" in row.columns:
        return "reward_model.ground_truth is empty; allowed: text that is not empty"
    return (
        f"{benchmark.solution} is {shown_value(row.columns[benchmark.solution])} and states no answer; allowed: "
        f"text with {benchmark.marker}"
    )


def _raw(benchmark: Benchmark, row: DatasetRow) -> tuple[list[dict[str, str]], str, str]:
    """Return prompt, answer and worked solution of a row with the hub's columns."""
    problem, solution = (
        text_column(row, name, f"{benchmark.problem} and {benchmark.solution}, or prompt and reward_model")
        for name in (benchmark.problem, benchmark.solution)
    )
    prompt = [{"role": "user", "content": f"{problem} {benchmark.instruction}"}]
    return prompt, benchmark.truth(solution), _CALCULATOR.sub("", solution)


def _prepared(row: DatasetRow) -> tuple[list[dict[str, str]], str, str]:
    """Return prompt and answer of a prepared row, without a worked solution."""
    messages, reward = messages_column(row, "prompt"), row.columns.get("reward_model")
    truth = reward.get("ground_truth") if isinstance(reward, dict) else None
    if not isinstance(truth, str):
        raise UserError(f"{row.place}: reward_model.ground_truth is {shown_value(truth)}; allowed: text")
    return messages, truth, ""
