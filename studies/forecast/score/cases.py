"""Cases on which forecasts are scored, of runs that come with rftlab, of the paper's numbers, and of imported runs.

A case is a pair with a known part and a held-out part, and `Case.evidence` is made from the first alone. Other pairs
enter whole: for the plain baseline of mean gains, for the medians of the law's prior, and where the simulator's prior
is that of other pairs (published numbers).

For a model and task of imported runs the known design is the one that generates the fewest rollouts a round, which a
careful user would try first. If there are several, it is the one whose learning rate is nearest to the median of all,
then the longest, then the first. Nothing is chosen by hand or by results.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, few
from rftlab.studies.analysis.imported.groups import Group, group_runs
from rftlab.studies.analysis.source import free_source, is_free, read_public
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.evidence import (
    Evidence,
    finals,
    language_others,
    paper_ends,
    paper_evidence,
    paper_pairs,
    pilot_evidence,
    whole_pairs,
)
from rftlab.studies.forecast.forecasters import RAW
from rftlab.studies.forecast.imported import (
    TEST,
    alike_evidence,
    last_values,
    simulated_design,
    told_base,
    trained_part,
    unusable,
)
from rftlab.studies.forecast.pilot.pilot import PILOT_CELLS, at_rounds, pilot_from
from rftlab.studies.forecast.pilot.store import shipped_base, shipped_pairs
from rftlab.studies.readers.run import ImportedRun


class Case(NamedTuple):
    """Pair on which forecasts are scored."""

    pair: str
    evidence: Evidence
    known: tuple[str, ...]
    """Cells that the evidence comes from."""
    cells: dict[str, Design]
    """Held-out cells, with their rounds."""
    truth: dict[str, pd.DataFrame]
    """Pass@1 after training by split: a row per seed, a column per held-out cell; nan where a seed was not run."""
    questions: tuple[int, int]
    """Questions of the train and of the test set, with one response to each."""
    simulated: bool = True
    """Whether the simulator is calibrated too."""
    rates: tuple[float | None, ...] = ()
    """Learning rates of the held-out cells; those of the known runs where left out or None."""
    seed: int = 0
    """The seed of the runs that the evidence comes from."""
    remarks: tuple[str, ...] = ()
    """Guesses on which the evidence rests, as sentences."""

    @property
    def split(self) -> dict:
        """Names of the part of a pair that a forecast may know, and of the part that it is scored on."""
        return {"pair": self.pair, "known": list(self.known), "known_seed": self.seed, "held_out": list(self.cells)}


def split(curves: pd.DataFrame, pair: str, known: tuple[str, ...], seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that a pilot may see, those of its cells with that seed, and all rows of the other cells."""
    own = curves[curves["pair"] == pair]
    return own[own["cell"].isin(known) & (own["seed"] == seed)], own[~own["cell"].isin(known)]


def language_case(
    curves: pd.DataFrame, pair: str, pairs: list[str], known: tuple[str, ...] = PILOT_CELLS, seed: int = 0
) -> Case:
    """Return the case of a pair of language-model runs, of which those of `known` with one seed are known. curves: rows
    as in `Results.curves`, of all `pairs`."""
    seen, hidden = split(curves, pair, known, seed)
    evidence = pilot_evidence(pilot_from(seen, shipped_base(pair), known, seed))
    evidence = evidence._replace(others=language_others(curves, pair, pairs))
    truth, facts = finals(hidden, pair), evidence.facts
    cells = at_rounds(truth.columns, start_at(pair, "llm").design.rounds)
    return Case(pair, evidence, known, cells, {"test": truth}, (facts.n_train, facts.n_test), seed=seed)


def language_cases(curves: pd.DataFrame) -> list[Case]:
    """Return a case for every pair whose grid and base model come with the package."""
    pairs = whole_pairs(curves)
    return [language_case(curves, pair, pairs) for pair in pairs]


def partial_cases(curves: pd.DataFrame) -> list[Case]:
    """Return cases of every pair of which some designs and the base model come with the package. The baseline is known,
    the rest held out. Each seed of the baseline is a case, because a forecast from one run is as good as that run."""
    whole = whole_pairs(curves)
    known = curves[(curves["cell"] == RAW) & curves["pair"].isin(set(shipped_pairs()) - set(whole))]
    runs = sorted(set(zip(known["pair"], known["seed"].tolist(), strict=True)))
    return [
        language_case(curves, pair, whole, (RAW,), seed)._replace(pair=f"{pair} seed {seed}") for pair, seed in runs
    ]


def paper_cases() -> list[Case]:
    """Return a case for every pair of the paper, train and test. The base model and experiment 1 are known."""
    cases = []
    for pair in paper_pairs():
        evidence, truth = paper_evidence(pair), {part: paper_ends(pair, part).drop(RAW).to_frame().T for part in SPLITS}
        run = start_at(pair, "sim")
        cells = at_rounds(truth["test"].columns, run.design.rounds)
        questions = linear_environment(run).n_train, linear_environment(run).n_test
        cases.append(Case(pair, evidence, (RAW,), cells, truth, questions))
    return cases


PUBLIC = ("pods",)
"""Sources that come with rftlab and have several designs."""
CASES = {
    "language": lambda: language_cases(shipped_runs()),
    "smollm2": lambda: partial_cases(shipped_runs()),
    "paper": paper_cases,
    "public": lambda: [case for name in PUBLIC for case in group_cases(name, [*read_public(name)])],
}
"""Functions that make the cases that come with rftlab, by name."""


def cases_named(
    what: str, root: Path, base: float | None = None, questions: int | None = None
) -> tuple[list[Case], str]:
    """Return the cases of one of CASES or of a source of runs, and the name in a form that a folder can have.

    base: test Pass@1 of the untrained model of such a source. questions: responses behind an evaluation. Both outrank
    the logs. There are no cases where no model and task has two designs. Raises UserError where a base or a number of
    questions is given for several models or tasks, each of which has its own.
    """
    if not is_free(what):
        return CASES[what](), what
    source = free_source(what)
    title = source.slug if source.kind == "train" else source.place
    cases = group_cases(title, source.runs(root), source.task, base, questions)
    for name, value in (("base", base), ("questions", questions)):
        check(
            value is None or len(cases) < 2,
            f"{name} = {value}: {source.name} has several models or tasks ({few([case.pair for case in cases])}); "
            "allowed: with one, as imported:NAME/TASK",
        )
    return cases, source.slug


def check_split(case: Case) -> None:
    """Raise UserError where the evidence comes from a cell that is held out."""
    leaked = ({label(run.design) for run in case.evidence.runs} | set(case.known)) & set(case.cells)
    check(not leaked, f"{case.pair}: {', '.join(sorted(leaked))} is held out, and the evidence knows it")
    beyond = {name for table in case.truth.values() for name in table.columns} - set(case.cells)
    check(not beyond, f"{case.pair}: truths beyond the held-out cells")


def group_cases(
    name: str,
    runs: list[ImportedRun],
    task: str | None = None,
    base: float | None = None,
    questions: int | None = None,
) -> list[Case]:
    """Return a case for every model and task with two designs or more that differ, in the learning rate or elsewhere.
    The simulator is left out: calibrations to as many runs would take hours."""
    usable = [group for group in map(trained_part, group_runs(runs, TEST, task)) if not unusable(group)]
    sets: dict[tuple, list[Group]] = {}
    for group in usable:
        sets.setdefault((group.design.model, group.task), []).append(group)
    several = [groups for groups in sets.values() if len(groups) > 1]
    names = [f"{name} {groups[0].task}".strip() for groups in several]
    task_names = [f"{one} ({i + 1})" if names.count(one) > 1 else one for i, one in enumerate(names)]
    return [_case(pair, runs, groups, base, questions) for pair, groups in zip(task_names, several, strict=True)]


def _case(name: str, runs: list[ImportedRun], groups: list[Group], base: float | None, questions: int | None) -> Case:
    logs = np.log([group.design.learning_rate or np.nan for group in groups])
    apart = np.nan_to_num(np.abs(logs - np.nanmedian(logs)) if np.isfinite(logs).any() else logs)
    order = sorted(range(len(groups)), key=lambda i: (groups[i].per_round, apart[i].round(6), -groups[i].last))
    return known_case(name, runs, [groups[i] for i in order], 0, base, questions)


def known_case(
    name: str,
    runs: list[ImportedRun],
    groups: list[Group],
    at: int,
    base: float | None = None,
    questions: int | None = None,
) -> Case:
    """Return the case in which the group at index `at` is known and the others are held out."""
    first, others = groups[at], [*groups[:at], *groups[at + 1 :]]
    [known], told = told_base([first], base)
    own = [run for run in runs if run.name in first.runs or not run.rounds]
    evidence = alike_evidence(own, [known], told, questions)
    labels, cells = [group.label for group in others], {}
    for group in others:
        cell = group.label if labels.count(group.label) == 1 else f"{group.label} {group.runs[0]}"
        cells[cell] = replace(simulated_design(group, group.last), rounds=group.last, eval_every=group.last)
    ends = [last_values(group) for group in others]
    truth = pd.DataFrame({cell: pd.Series(values) for cell, values in zip(cells, ends, strict=True)})
    sizes, rates = (evidence.facts.n_train, evidence.questions), tuple(group.design.learning_rate for group in others)
    remarks = tuple(text for text in evidence.remarks if text.startswith("guessed: the untrained") or "as told" in text)
    return Case(name, evidence, (first.label,), cells, {"test": truth}, sizes, False, rates, remarks=remarks)
