"""Evaluate a policy: Pass@1, sampled and greedy, strict and flexible, with standard errors on the fixed set of
questions, and unbiased pass@k."""

import numpy as np

from rftlab.llm.config import LLMRun
from rftlab.llm.engines.rollouts import Draws, Engine
from rftlab.llm.models.load import Data, Problems
from rftlab.llm.random import EVALUATION, subset
from rftlab.llm.rewards.math_pool import Checks
from rftlab.llm.training.samples import Judge
from rftlab.shared.evalstats import measured_set_error, pass_at_k

RATES = ("strict", "flexible")
"""Names of a verifier's rewards, which are 0 or 1."""
UNSEEN = 1 << 31
"""Offset of the numbers of unseen problems, so that they share no random numbers with training problems."""


def evaluate(
    run: LLMRun, engine: Engine, judge: Judge, data: Data, round_index: int
) -> tuple[dict[str, float], Checks]:
    """Return columns `<part>_strict`, `<part>_flexible`, ..., for the parts train and test; and the counts of
    math-verify."""
    parts = {
        "train": (_part(data.train, run.evaluation.train_subset), 0),
        "test": (_part(data.test, run.evaluation.test_subset), UNSEEN),
    }
    columns, checks = {}, Checks()
    if judge.rewards is not None:
        judge.rewards.repeat()
    for part, (problems, shift) in parts.items():
        settings = [("", run.evaluation.samples, run.temperature)] + (
            [("greedy_", 1, 0.0)] if run.evaluation.greedy else []
        )
        for kind, count, temperature in settings:
            right, done = answer_questions(run, engine, judge, problems, shift, count, temperature, round_index)
            checks = checks + done
            for name, table_BK in right.items():
                columns[f"{part}_{kind}{name}"] = float(table_BK.mean())
                if not kind and name in RATES:
                    columns[f"{part}_{name}_error"] = measured_set_error(table_BK)
                    columns |= {f"{part}_{name}_pass_at_{k}": _pass_at(table_BK, k) for k in run.evaluation.pass_at}
    return columns, checks


def _pass_at(right: np.ndarray, k: int) -> float:
    """Return mean pass@k from right (B, K); nan where right answers are not known."""
    return float(pass_at_k(right.shape[1], right.sum(axis=1), k).mean()) if np.isfinite(right).all() else float("nan")


def answer_questions(
    run: LLMRun,
    engine: Engine,
    judge: Judge,
    problems: Problems,
    shift: int,
    count: int,
    temperature: float,
    round_index: int,
):
    """Return tables (n, count) of strict and flexible rewards of `count` responses to each problem, and of a user's
    rewards; and the counts of math-verify."""
    n, draws = len(problems.answers), Draws(run.seed, EVALUATION, round_index)
    listener = judge.early(problems.answers)
    rollouts = engine.sample(
        problems.prompts,
        np.arange(n) + shift,
        np.full(n, count),
        draws,
        temperature,
        run.model.max_response_length,
        listener,
    )
    place = f"the evaluation after round {round_index}, {'unseen' if shift else 'training'} questions"
    samples, checks = judge.scored(rollouts, np.arange(n), problems.answers, problems=problems, place=place)
    columns = {name: getattr(samples, name) for name in RATES}
    if samples.own is not None:
        columns |= {"reward": samples.reward} | {f"reward_{name}": own for name, own in samples.own.by_name.items()}
    return {name: column.reshape(n, count) for name, column in columns.items()}, checks


def _part(problems: Problems, size: int) -> Problems:
    n = len(problems.answers)
    return problems.take(subset(n, size or n))
