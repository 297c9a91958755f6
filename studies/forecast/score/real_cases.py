"""Cases from other people's runs: one design is known, the others are held out, whatever the source.

Known is the design of a model and task that generates the fewest rollouts a round, as a careful user would try it
first; of several the longest, of these the first. Nothing is chosen by hand or by results.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.studies.analysis.imported.groups import Group, groups_of
from rftlab.studies.analysis.source import RunSource, few, read_public
from rftlab.studies.forecast.imported import TEST, alike_evidence, design_of, told_base, unusable
from rftlab.studies.forecast.score.score import Case
from rftlab.studies.readers.run import ImportedRun

PUBLIC = ("pods",)
"""Sources that come with rftlab and have several designs."""


def public_cases() -> list[Case]:
    """Of the shipped public runs."""
    return [case for name in PUBLIC for case in cases_of(name, read_public(name))]


def imported_cases(
    source: RunSource, root: Path, base: float | None = None, questions: int | None = None
) -> list[Case]:
    """Of imported runs. base: test Pass@1 of the untrained model, and questions: responses behind an evaluation, where
    the logs do not tell; both outrank them. Raises UserError where no model and task has two designs, or where a base
    or a number of questions is given for several models or tasks, each of which has its own."""
    title = source.slug if source.kind == "train" else source.place
    cases = cases_of(title, source.runs(root), source.task, base, questions)
    check(bool(cases), f"{source.name} has no two designs that can be told apart of one model and task")
    for what, value in (("base", base), ("questions", questions)):
        check(
            value is None or len(cases) == 1,
            f"{what} = {value}: {source.name} has several models or tasks ({few([case.pair for case in cases])}); "
            "allowed: with one, as imported:NAME/TASK",
        )
    return cases


def cases_of(
    name: str,
    runs: list[ImportedRun],
    task: str | None = None,
    base: float | None = None,
    questions: int | None = None,
) -> list[Case]:
    """A case for every model and task of which two designs or more can be told apart, learning rates among what they
    may differ in. Without the simulator: calibrations to as many runs would take hours."""
    usable = [group for group in map(_trained, groups_of(runs, TEST, task)) if not unusable(group)]
    sets: dict[tuple, list[Group]] = {}
    for group in usable:
        sets.setdefault((group.design.model, group.task), []).append(group)
    several = [groups for groups in sets.values() if len(groups) > 1]
    names = [f"{name} {groups[0].task}".strip() for groups in several]
    task_names = [f"{one} ({i + 1})" if names.count(one) > 1 else one for i, one in enumerate(names)]
    return [_case(pair, runs, groups, base, questions) for pair, groups in zip(task_names, several, strict=True)]


_PART = re.compile(r"(\w+) on (\d{1,6}) of (\d{1,6})")


def _trained(group: Group) -> Group:
    """A rule that trains on M of N responses counts as M of them, whatever it selects."""
    found = _PART.fullmatch(group.design.advantage or "")
    if found is None:
        return group
    return group._replace(design=replace(group.design, advantage=found[1], rollouts=int(found[2])))


def _case(name: str, runs: list[ImportedRun], groups: list[Group], base: float | None, questions: int | None) -> Case:
    first, *others = sorted(groups, key=lambda group: (group.per_round, -group.last))
    [known], told = told_base([first], base)
    own = [run for run in runs if run.name in first.runs or not run.rounds]
    imported = alike_evidence(name, name, own, [known], told, questions)
    cells = {_unique(group, others): _ended(group) for group in others}
    ends = [_ends(group) for group in others]
    truth = pd.DataFrame({cell: pd.Series(values) for cell, values in zip(cells, ends, strict=True)})
    evidence = imported.evidence
    sizes, rates = (evidence.facts.n_train, imported.questions), tuple(group.design.learning_rate for group in others)
    remarks = tuple(text for text in imported.remarks if text.startswith("guessed: the untrained") or "as told" in text)
    return Case(name, evidence, (first.label,), cells, {"test": truth}, sizes, False, rates, remarks=remarks)


def _ended(group: Group) -> Design:
    return replace(design_of(group, group.last), rounds=group.last, eval_every=group.last)


def _ends(group: Group) -> list[float]:
    """Of each run, the value at the last round that all reached, from the line between its evaluations around it."""
    runs = [run.sort_values("round") for _, run in group.curves.groupby("run", observed=True)]
    found = [np.interp(group.last, run["round"], run["value"], left=np.nan) for run in runs]
    return [float(value) for value in found if np.isfinite(value)]


def _unique(group: Group, groups: list[Group]) -> str:
    """A name of its own."""
    twins = [other for other in groups if other.label == group.label]
    return group.label if len(twins) == 1 else f"{group.label} {group.runs[0]}"
