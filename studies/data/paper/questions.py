"""Count the questions on which a language model is evaluated: all, as in the paper, or a fixed part of them, with the
standard error that a part leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.llm.config import LLMRun
from rftlab.llm.tasks.config import BENCHMARKS, HUB, OWN
from rftlab.studies.data.paper.pairs import SIZES

NAMES = {"train": "training", "test": "unseen"}


class QuestionCount(NamedTuple):
    """Number of questions of a split that are evaluated, and of all its questions."""

    evaluated: int
    there: int


def on_whole_sets(run: LLMRun) -> LLMRun:
    """Return the run, evaluated on every training and every unseen question."""
    return replace(run, evaluation=replace(run.evaluation, train_subset=0, test_subset=0))


def count_questions(run: LLMRun) -> dict[str, QuestionCount]:
    """Count the evaluated questions of train and test, and all of them. Problems that are left out because their
    prompts are too long still count. Local files are read for it."""
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
    from rftlab.llm.tasks.load import load_task  # imports pyarrow, which parsing a command line does not need

    questions = load_task(task)
    return len(questions["train"]), len(questions["test"])


def subset_error(rates: Sequence[float], evaluated: int) -> float:
    """Return the largest standard error sqrt(p (1 - p) / n) over Pass@1 rates on n questions, an upper bound of the
    error with which each estimates Pass@1 on all questions.

    The score of a question, however many responses it is the mean of, has a variance of p (1 - p) at most. Two right
    and two wrong answers are added to n and p (Agresti and Coull 1998), so that a rate of 0 or 1 has an error too.
    """
    known = np.asarray(rates, dtype=float)
    known = (known[np.isfinite(known)] * evaluated + 2) / (evaluated + 4)
    return float(np.sqrt((known * (1 - known)).max() / (evaluated + 4))) if len(known) else float("nan")


def evaluated_on(run: LLMRun, rates: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the evaluated questions of a run in words, and with Pass@1 rates by split the error that a part leaves."""
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
