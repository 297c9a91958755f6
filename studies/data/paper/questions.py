"""On which questions a language model is evaluated: all of them as in the paper, or a part that is always the same,
with what that leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.llm.config import LLMRun
from rftlab.llm.tasks.config import BENCHMARKS, HUB, OWN
from rftlab.studies.data.paper.pairs import SIZES

NAMES = {"train": "training", "test": "unseen"}


class QuestionCount(NamedTuple):
    """Questions of a split that are evaluated, and those there are."""

    evaluated: int
    there: int


def on_whole_sets(run: LLMRun) -> LLMRun:
    """The run, evaluated on every training and every unseen question."""
    return replace(run, evaluation=replace(run.evaluation, train_subset=0, test_subset=0))


def count_questions(run: LLMRun) -> dict[str, QuestionCount]:
    """Those of the splits train and test; problems that are left out because their prompts are too long still count.
    Local files are read for it."""
    subsets = run.evaluation.train_subset, run.evaluation.test_subset
    return {
        split: QuestionCount(min(subset or n, n), n)
        for split, subset, n in zip(NAMES, subsets, _there(run), strict=True)
    }


def _there(run: LLMRun) -> tuple[int, int]:
    task, sizes = run.task, run.task.sizes
    if task.name not in (*BENCHMARKS, OWN):
        return sizes.train, sizes.validation if run.evaluation.split == "validation" else sizes.test
    if (task.source, task.test_source) == (HUB, None):
        return SIZES[task.name]
    from rftlab.llm.tasks.load import load_task  # pyarrow: not for a command line that is only parsed

    questions = load_task(task)
    return len(questions["train"]), len(questions["test"])


def subset_error(rates: Sequence[float], evaluated: int) -> float:
    """sqrt(p (1 - p) / n), the largest over Pass@1 rates on n questions: at least the standard error with which each
    estimates that on all questions.

    The score of a question, however many responses it is the mean of, has a variance of p (1 - p) at most. Two right
    and two wrong answers are added to n and p (Agresti and Coull 1998), so that a rate of 0 or 1 has an error too.
    """
    known = np.asarray(rates, dtype=float)
    known = (known[np.isfinite(known)] * evaluated + 2) / (evaluated + 4)
    return float(np.sqrt((known * (1 - known)).max() / (evaluated + 4))) if len(known) else float("nan")


def evaluated_on(run: LLMRun, rates: Mapping[str, Sequence[float]] | None = None) -> str:
    """The questions of a run in words; with Pass@1 rates by split, the standard error that a part of them leaves."""
    parts = []
    for split, (evaluated, there) in count_questions(run).items():
        if evaluated == there:
            parts.append(f"all {there:,} {NAMES[split]} questions")
            continue
        error = (
            " (as an estimate for all of them with a standard error of at most "
            f"{subset_error(rates[split], evaluated):.3f})"
            if rates
            else ""
        )
        parts.append(f"{evaluated:,} of {there:,} {NAMES[split]} questions, always the same{error}")
    return "Pass@1 on " + "; on ".join(parts)
