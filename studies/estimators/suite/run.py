"""Run the suite for estimators, skipping runs that the store has, and write and show the results."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.cards.card import Card
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.sim.run import Stopped
from rftlab.studies.console.table import Table, put, say, write_numbers
from rftlab.studies.data.runs.finish import count_threads
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.progress import study_progress
from rftlab.studies.data.runs.runner import Worlds, simulate_point, split, workers
from rftlab.studies.data.runs.store import Stored, open_store
from rftlab.studies.estimators.suite.scores import (
    CANNOT,
    KEYS,
    best_rows,
    cell_value,
    left_out,
    profile,
    said,
    suite_record,
    summary,
)
from rftlab.studies.estimators.suite.submission import find_card, submission, suite_names
from rftlab.studies.estimators.suite.tasks import FIXED, RATES, TASKS, VERSION, task_design, task_point

REFERENCE = "rloo"
FOLDER = "suite"
FEW = 4
"""Largest number of estimators whose scores on each task are shown in the terminal."""


def planned_runs(
    card: Card, seeds: int | None, tasks: Sequence[str]
) -> Iterator[tuple[str, float, int, RunSpec | str]]:
    """Yield task, rate and seed of every run of an estimator with the run, or with the reason why it cannot run. Runs
    come seed by seed, so that a stopped suite has some of each task."""
    for seed in range(max(seeds or TASKS[name].seeds for name in tasks)):
        for name in tasks:
            task = TASKS[name]
            if seed >= (seeds or task.seeds):
                continue
            for rate in RATES:
                try:
                    yield name, rate, seed, task_point(task, task_design(task, card), rate, seed)
                except UserError as error:
                    yield name, rate, seed, f"{CANNOT}: {error}"


def run_cells(
    console: Console,
    root: Path,
    card: Card,
    seeds: int | None = None,
    tasks: Sequence[str] = tuple(TASKS),
    threads: int = 0,
    minutes: float = np.inf,
    quiet: bool = True,
    worlds: Worlds | None = None,
) -> pd.DataFrame:
    """Return the cells of an estimator, after running those that the store `root` lacks: columns KEYS, value, note.

    A run that diverges or fails has the value of the untrained policy and a note. A run that is impossible has no value
    and a note. Cells that are not done after so many minutes are left out; the same call does them later.
    """
    cells = list(planned_runs(card, seeds, tasks))
    wanted = [run for *_, run in cells if isinstance(run, RunSpec)]
    finished, todo = split(root, wanted, lambda text: say(console, text, "yellow"))
    outcomes: dict[RunSpec, Stored | str] = dict(finished)
    stop, deadline, worlds = Event(), time.monotonic() + 60 * minutes, worlds or Worlds()

    def stopped() -> bool:
        return stop.is_set() or time.monotonic() > deadline

    def one(point: RunSpec, advanced: Callable[[float], None]) -> Stored | str | None:
        try:
            return None if stopped() else simulate_point(root, point, worlds, advanced, stopped)
        except Stopped:
            return None
        except UserError as error:
            return f"failed: {error}"

    with study_progress(console, todo, quiet) as report, workers(count_threads(threads)) as pool:
        try:
            waiting = {pool.submit(one, point, report.advanced): point for point in todo}
            for future in as_completed(waiting):
                outcome, point = future.result(), waiting[future]
                if outcome is not None:
                    outcomes[point] = outcome
                if isinstance(outcome, Stored):
                    report.finished(point, outcome)
        except BaseException:
            stop.set()
            raise
    rows = []
    for task, rate, seed, run in cells:
        known = outcomes.get(run) if isinstance(run, RunSpec) else run
        if known is not None:
            rows.append((card.name, task, rate, seed, *cell_value(task, known)))
    return pd.DataFrame(rows, columns=[*KEYS, "value", "note"])


class SuiteResult(NamedTuple):
    """Results of the suite for estimators."""

    cells: pd.DataFrame
    """Table with a row for each run: estimator, task, rate (a multiple of the task's), seed, value, note."""
    tasks: pd.DataFrame
    """Table of `rftlab.studies.estimators.suite.scores.profile`, with a row for each estimator, task and rate."""
    summary: pd.DataFrame
    """Table with a row for each estimator: means over tasks with intervals, and its two worst tasks."""

    def __str__(self) -> str:
        names = list(self.summary["estimator"])
        return "\n".join(said(self.cells, name, names[-1]) for name in names[:-1])


def suite(
    estimator: Any,
    reference: Any = REFERENCE,
    seeds: int | None = None,
    results: Path | str = "results",
    threads: int = 0,
    tasks: Sequence[str] = tuple(TASKS),
) -> SuiteResult:
    """Run the suite for an estimator and a reference, as `rftlab suite` does.

    estimator, reference: a name of `rftlab estimators`, an `rl.Estimator`, a function, or "FILE.py:FUNCTION". seeds:
    number for each task; the task's own, 10 or 20, where None. results: the folder that keeps finished runs. threads: 0
    means all cores. Raises UserError.
    """
    console, root, worlds = Console(quiet=True), open_store(Path(results)), Worlds()
    cards = {card.name: card for card in (find_card(estimator), find_card(reference))}
    parts = [run_cells(console, root, card, seeds, tasks, threads, worlds=worlds) for card in cards.values()]
    cells = pd.concat(parts, ignore_index=True)
    return SuiteResult(cells, profile(cells), summary(cells, tasks))


def run_suite(
    console: Console, root: Path, names: Sequence[str], seeds: int | None, minutes: float, threads: int, quiet: bool
) -> Path:
    """Finish the runs of estimators, show tables, and write them to root/suite. Returns that folder."""
    from rftlab.studies.estimators.suite.figure import suite_profile
    from rftlab.studies.report.draw import save_chart

    cards = [find_card(name) for name in names] or [find_card(name) for name in suite_names()]
    if len(cards) == 1 and cards[0].name != REFERENCE:
        cards.append(find_card(REFERENCE))
    check(len({card.name for card in cards}) == len(cards), f"names = {' '.join(names)}; allowed: each once")
    folder, worlds, parts = folder_below(open_store(root), FOLDER), Worlds(), []
    folder.mkdir(exist_ok=True)
    for card in cards:
        cells = run_cells(console, root, card, seeds, threads=threads, minutes=minutes, quiet=quiet, worlds=worlds)
        check(len(cells) > 0, f"minutes = {minutes:g}: no run of {card.name} ended; allowed: more minutes")
        write_file(folder / f"{card.name}.json", json.dumps(submission(card, cells), indent=1).encode())
        parts.append(cells)
    cells = pd.concat(parts, ignore_index=True)
    result = SuiteResult(cells, profile(cells), summary(cells))
    for name, table in result._asdict().items():
        write_numbers(folder / f"{name}.csv", table)
    chart, numbers = suite_profile(result.tasks, suite_record())
    save_chart(chart, folder, FOLDER, numbers)
    _show(console, result)
    say(console, f"suite {VERSION}: {folder}")
    return folder


def _show(console: Console, result: SuiteResult) -> None:
    columns = ("estimator", "fixed", "95% interval", "best", "tasks", "worst at the fixed rate")
    table = Table(*columns, align="left")
    for row in result.summary.itertuples():
        bounds = f"{row.fixed_low:.3f} to {row.fixed_high:.3f}" if row.fixed_low == row.fixed_low else "one seed"
        ends = (f"{row.fixed:.3f}", bounds, f"{row.best:.3f}")
        known = ends if row.fixed == row.fixed else ("not all tasks", "", "")
        table.add(row.estimator, *known, row.tasks, row.worst)
    title = "Mean score over tasks at the fixed rate and at the best of three: 0 the untrained policy, 1 a run with 16 "
    put(console, title + "times the rollouts", table)
    names = list(result.summary["estimator"])
    if len(names) > FEW:
        return
    table = Table("task", *names, "isolates", align="left")
    fixed = result.tasks[result.tasks["rate"] == FIXED].set_index(["task", "estimator"])
    best = best_rows(result.tasks).set_index(["task", "estimator"])
    for task in dict.fromkeys(result.tasks["task"]):
        shown = [_cells(fixed, best, (task, name)) for name in names]
        table.add(task, *shown, TASKS[task].isolates)
    put(console, "Score at the fixed rate with half of its 95% interval; best of three rates", table)
    for line in str(result).splitlines():
        say(console, line)
    for row in result.tasks[(result.tasks["note"] != "") & (result.tasks["rate"] == FIXED)].itertuples():
        say(console, f"{row.estimator}, {row.task}: 0, {row.note}", "yellow")
    for name in names:
        for task, note in left_out(result.cells, name).items():
            say(console, f"{name}, {task}: left out, {note}", "yellow")


def _cells(fixed: pd.DataFrame, best: pd.DataFrame, key: tuple[str, str]) -> str:
    """Return the scores of an estimator on a task as text; "" where the suite was stopped before."""
    if key not in fixed.index:
        return ""
    row = fixed.loc[key]
    half = f" ±{row['half']:.2f}" if row["half"] == row["half"] else ""
    return f"{row['score']:.2f}{half}; {best.loc[key, 'score']:.2f}"
