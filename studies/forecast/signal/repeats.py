"""Pass@1 at the end of imported runs, and which of them repeat each other."""

from collections import defaultdict
from fnmatch import fnmatchcase
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check
from rftlab.studies.analysis.imported.groups import common_stem, repeat_key
from rftlab.studies.analysis.source import free_source, is_free
from rftlab.studies.readers.run import ImportedRun, KnownDesign

METRIC = "pass_at_1"


def selected(root: Path, name: str) -> tuple[list[ImportedRun], str | None]:
    """Imported runs by NAME, NAME/TASK or NAME#RUN, or a public source by public:SOURCE, and the task that is named.
    Raises UserError where there are none."""
    source = free_source(name if is_free(name) else f"imported:{name}")
    return source.runs(root), source.task


def final_score(run: ImportedRun, task: str | None = None) -> float | None:
    """Test Pass@1 at the last evaluation on a task, the mean over tasks where none is named; None where there is
    none."""
    rows = run.curves[(run.curves["split"] == "test") & (run.curves["metric"] == METRIC)]
    rows = rows if task is None else rows[rows["task"] == task]
    if not len(rows):
        return None
    return float(rows[rows["round"] == rows["round"].max()]["value"].mean())


def tasks_told(runs: list[ImportedRun], task: str | None) -> str:
    """Return the remark where scores are means over several test sets; "" where they are not."""
    parts = (piece for run in runs for piece in run.pieces)
    tasks = sorted({piece.task for piece in parts if (piece.split, piece.metric) == ("test", METRIC)})
    several = task is None and len(tasks) > 1
    return f"Pass@1 is the mean over {', '.join(tasks)}; NAME/TASK is one of them" if several else ""


def final_scores(runs: list[ImportedRun], task: str | None = None) -> dict[str, float]:
    """`final_score` by the runs' names, those without left out. Raises UserError where none has one."""
    scores = {run.name: score for run in runs if (score := final_score(run, task)) is not None}
    names = ", ".join(sorted({str(metric) for run in runs for metric in run.curves["metric"].unique()})[:8])
    check(bool(scores), f"no run has {METRIC} of a test split; they have: {names}")
    return scores


def chosen(scores: dict[str, float], names: tuple[str, ...]) -> np.ndarray:
    """Scores of runs by name, * for any letters, each run once. Raises UserError for a name that is not there."""
    picked: dict[str, float] = {}
    for name in names:
        own = {name: scores[name]} if name in scores else {n: s for n, s in scores.items() if fnmatchcase(n, name)}
        check(bool(own), f"no run {name!r} with a test Pass@1; there are: {', '.join(list(scores)[:12])}")
        picked |= own
    return np.array([*picked.values()])


class Repeats(NamedTuple):
    """Runs that repeat each other."""

    name: str
    """Of the first, without its number; "" where they have none in common."""
    design: KnownDesign
    scores: np.ndarray


def find_repeats(runs: list[ImportedRun], task: str | None = None) -> list[Repeats]:
    """Scores of runs that repeat each other (`ImportedRun.repeats`), where two or more have one.

    Only designs of which B and K are known: of others nobody knows that they are equal.
    """
    groups: dict[tuple, dict[str, float]] = defaultdict(dict)
    for run in runs:
        score, (design, mark) = final_score(run, task), repeat_key(run)
        if score is not None and design.prompts is not None and design.rollouts is not None:
            groups[design, mark][run.name] = score
    return [
        Repeats(common_stem([*own]), design, np.array([*own.values()]))
        for (design, _), own in groups.items()
        if len(own) > 1
    ]


def pooled_sigma(groups: list[np.ndarray]) -> tuple[float, int]:
    """Standard deviation of a run over its repeats, pooled, and the degrees of freedom behind it."""
    degrees = sum(len(group) - 1 for group in groups)
    check(degrees > 0, "no runs repeat a design; allowed: two or more runs of one, or --sigma")
    return sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / degrees), degrees
