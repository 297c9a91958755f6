"""Pass@1 at the end of imported runs, and which of them repeat each other."""

from collections import defaultdict
from dataclasses import replace
from math import sqrt

import numpy as np

from rftlab.shared.errors import check
from rftlab.studies.logs.run import ImportedRun, KnownDesign

METRIC = "pass_at_1"


def final_score(run: ImportedRun) -> float | None:
    """Test Pass@1 at the last evaluation, the mean over tasks; None where there is none."""
    rows = run.curves[(run.curves["split"] == "test") & (run.curves["metric"] == METRIC)]
    if not len(rows):
        return None
    return float(rows[rows["round"] == rows["round"].max()]["value"].mean())


def scores_of(runs: list[ImportedRun]) -> dict[str, float]:
    """`final_score` by the runs' names, those without left out. Raises UserError where none has one."""
    found = {run.name: score for run in runs if (score := final_score(run)) is not None}
    names = ", ".join(sorted({str(metric) for run in runs for metric in run.curves["metric"].unique()})[:8])
    check(bool(found), f"no run has {METRIC} of a test split; they have: {names}")
    return found


def chosen(scores: dict[str, float], names: tuple[str, ...]) -> np.ndarray:
    """Scores of runs by name. Raises UserError for a name that is not there."""
    for name in names:
        check(name in scores, f"no run {name!r} with a test Pass@1; there are: {', '.join(list(scores)[:12])}")
    return np.array([scores[name] for name in names])


def repeats_of(runs: list[ImportedRun]) -> list[tuple[KnownDesign, np.ndarray]]:
    """Scores of runs with equal designs, where two or more have one; what was assumed of a design does not count.

    Only designs of which B and K are known: of others nobody knows that they are equal.
    """
    groups: dict[KnownDesign, list[float]] = defaultdict(list)
    for run in runs:
        score, design = final_score(run), replace(run.design, assumed=())
        if score is not None and design.prompts is not None and design.rollouts is not None:
            groups[design].append(score)
    return [(design, np.array(scores)) for design, scores in groups.items() if len(scores) > 1]


def pooled_sigma(groups: list[np.ndarray]) -> tuple[float, int]:
    """Standard deviation of a run over its repeats, pooled, and the degrees of freedom behind it."""
    degrees = sum(len(group) - 1 for group in groups)
    check(degrees > 0, "no runs repeat a design; allowed: two or more runs of one, or --sigma")
    return sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / degrees), degrees
