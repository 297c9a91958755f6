"""Compute scores from runs: cells, anchors, means over tasks with intervals, and differences by seed.

A cell is the mean of a task's metric on an even grid of rollouts up to the task's budget, so a design that samples more
has trained less at the same place. A score relates it to two anchors: 0 is the untrained policy, and 1 a run with 16
times the rollouts (at most 256 of a context) at its best rate, without lag or noise in the rewards. Scores are not
clipped: below 0 training did harm.

Intervals are over seeds within tasks; tasks are not a sample. A bootstrap of few seeds, as in rliable, is too narrow:
its 95% intervals of a mean over 19 tasks contain the true mean in 85% of cases with three seeds, and never with one.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rftlab.studies.data.results.stats import Estimate, Mean, interval, mean, pooled_interval, weighted_sum
from rftlab.studies.estimators.suite.tasks import ASSETS, DESIGN, FIXED, PARTS, PASS_AT_1, TASKS, VERSION, SuiteTask

CANNOT = "cannot run"
"""Beginning of the note on a task where an estimator cannot run; its mean leaves this task out."""
KEYS = ["estimator", "task", "rate", "seed"]


@cache
def anchors() -> dict[str, tuple[float, float]]:
    """Return both anchors of each task of this version: the untrained policy's metric, and the cell of the run with
    many rollouts."""
    with (ASSETS / "suite_anchors.csv").open() as file:
        table = pd.read_csv(file)
    rows = table[table["version"] == VERSION].itertuples()
    return {str(row.task): (float(row.zero), float(row.one)) for row in rows}


@cache
def suite_record() -> pd.DataFrame:
    """Return the table of record that comes with rftlab: rows as of `profile`, with the `version`."""
    with (ASSETS / "suite_record.csv").open() as file:
        table = pd.read_csv(file).fillna({"note": ""})
    return table[table["version"] == VERSION]


def task_budget(task: SuiteTask) -> int:
    """Return the number of rollouts that a task grants."""
    size = DESIGN | task.design
    return size["rounds"] * size["batch_size"] * size["rollouts"]


def cell(task: SuiteTask, curve: Any, metrics: pd.DataFrame | None, rollouts: int) -> float:
    """Return the mean of the task's metric on the grid of rollouts, linear between evaluations."""
    values = getattr(curve, PASS_AT_1) if metrics is None else metrics[task.metric]
    return float(np.interp(np.linspace(0, rollouts, PARTS + 1), curve.rollouts, values).mean())


def cell_value(name: str, outcome: Any) -> tuple[float, str]:
    """Return the cell of a task's run, and a note where it did not end. A run that failed or diverged has the value of
    the untrained policy, and an impossible one has nan."""
    if isinstance(outcome, str):
        return np.nan if outcome.startswith(CANNOT) else anchors()[name][0], outcome
    if outcome.diverged_at is not None:
        return anchors()[name][0], f"diverged in round {outcome.diverged_at}"
    return cell(TASKS[name], outcome.curve, outcome.metrics, task_budget(TASKS[name])), ""


def scored(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells (columns KEYS, value, note) with the column `score`."""
    known = anchors()
    zero, one = (cells["task"].map(lambda name, i=i: known[name][i]) for i in (0, 1))
    return cells.assign(score=(cells["value"] - zero) / (one - zero))


def samples(cells: pd.DataFrame, name: str) -> dict[str, dict[float, np.ndarray]]:
    """Return the scores (seeds,) of an estimator by task and rate, in the order of seeds."""
    own = scored(cells[cells["estimator"] == name]).dropna(subset="score").sort_values("seed")
    return {
        task: {float(rate): part["score"].to_numpy() for rate, part in rows.groupby("rate")}
        for task, rows in own.groupby("task", sort=False)
    }


def best_rate(rates: dict[float, np.ndarray]) -> float:
    """Return the rate with the highest mean score."""
    return max(rates, key=lambda rate: (rates[rate].mean(), -rate))


def profile(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each estimator, task and rate that it can run: seeds, mean cell, mean score with half of its 95%
    interval, and a note on runs that failed."""
    rows = []
    for keys, part in scored(cells).dropna(subset="score").groupby(["estimator", "task", "rate"], sort=False):
        _, low, high = interval(part["score"].to_numpy())
        half = (high - low) / 2 if np.isfinite(high) else np.nan
        note = next((text for text in part["note"] if text), "")
        rows.append((*keys, len(part), part["value"].mean(), part["score"].mean(), half, note))
    return pd.DataFrame(rows, columns=["estimator", "task", "rate", "seeds", "value", "score", "half", "note"])


def best_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `profile` with the best rate of each estimator and task."""
    return table.loc[table.groupby(["estimator", "task"], sort=False)["score"].idxmax()]


def mean_over_tasks(tasks: list[np.ndarray]) -> Mean:
    """Return the mean over tasks of their mean scores (seeds,), with an interval over seeds unless there is only
    one."""
    return weighted_sum([mean(values) for values in tasks], np.full(len(tasks), 1 / len(tasks)))


def summary(cells: pd.DataFrame, tasks: Sequence[str] = tuple(TASKS)) -> pd.DataFrame:
    """Return a row for each estimator: the mean over `tasks` at the fixed and at the best rate, with intervals, the
    number of these tasks, and the two worst at the fixed rate. Tasks where it cannot run are left out. Without a run of
    every other task it has no mean."""
    rows = []
    for name in dict.fromkeys(cells["estimator"]):
        by_task = samples(cells, name)
        lost, every = set(left_out(cells, name)), set(tasks)
        whole = set(by_task) == every - lost and all(FIXED in rates for rates in by_task.values()) and bool(by_task)
        row: dict[str, Any] = {"estimator": name}
        for what in ("fixed", "best"):
            chosen = (
                [rates[FIXED if what == "fixed" else best_rate(rates)] for rates in by_task.values()] if whole else []
            )
            known = mean_over_tasks(chosen) if whole else Mean(np.nan)
            ends = known.value, known.value - known.half, known.value + known.half
            row |= dict(zip((what, f"{what}_low", f"{what}_high"), ends, strict=True))
        means = {task: rates[FIXED].mean() for task, rates in by_task.items() if FIXED in rates}
        worst = sorted(means, key=lambda task: means[task])[:2]
        row |= {"tasks": f"{len(by_task)} of {len(every)}"}
        rows.append(row | {"worst": ", ".join(f"{task} {means[task]:.2f}" for task in worst)})
    return pd.DataFrame(rows)


def left_out(cells: pd.DataFrame, name: str) -> dict[str, str]:
    """Return the tasks where an estimator cannot run, with the reasons."""
    own = cells[(cells["estimator"] == name) & cells["note"].str.startswith(CANNOT)]
    return dict(zip(own["task"], own["note"], strict=True))


def against(cells: pd.DataFrame, name: str, reference: str) -> dict[str, Estimate]:
    """Return by task the difference of scores from those of a reference at the fixed rate, by seed, with 95% intervals
    that hold together for all tasks (Bonferroni). Tasks with fewer than two common seeds are left out."""
    wide = scored(cells[cells["rate"] == FIXED]).pivot(index=["task", "seed"], columns="estimator", values="score")
    by_task = dict(list((wide[name] - wide[reference]).dropna().groupby("task")))
    several = {task: by_task[task].to_numpy() for task in TASKS if task in by_task and len(by_task[task]) > 1}
    return {task: pooled_interval([differences], len(TASKS)) for task, differences in several.items()}


def said(cells: pd.DataFrame, name: str, reference: str) -> str:
    """Return a sentence about the tasks where an estimator is above or below a reference."""
    rows = against(cells, name, reference)
    if not rows:
        return f"{name} beside {reference}: nothing can be said, because no task has two seeds of both."
    parts = []
    by_size = sorted(rows.items(), key=lambda row: -abs(row[1].value))
    below = [(task, one.value) for task, one in by_size if one.high < 0]
    above = [(task, one.value) for task, one in by_size if one.low > 0]
    for word, chosen in (("below", below), ("above", above)):
        named = ", ".join(f"{task} ({difference:+.2f})" for task, difference in chosen)
        parts.append(f"{word} it in {named or 'no task'}")
    same = sum(one.low == one.high == 0 for one in rows.values())
    level = len(rows) - len(below) - len(above)
    lost = left_out(cells, name) | left_out(cells, reference)
    end = (
        (f", {same} of them equal bit for bit" if same else "") + f"; {CANNOT} in {', '.join(lost)}" * bool(lost) + "."
    )
    parts.append(f"no significant difference in {level} of {len(rows)} tasks")
    return f"{name} beside {reference}: {'; '.join(parts)}{end}"
