"""Load the curve sets of a comparison, such as `sim:qwen-gsm8k`, `llm:tiny-mix97` and `published:qwen-gsm8k`."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from rftlab.shared.curve import SPLITS, Curve
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import folder_below, folders_in
from rftlab.studies.analysis.imported.groups import Group, Measure, RunGroups
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.paper.pairs import LEVELS, SIZES, pair, start_at
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.endpoints import finals, reported_by_paper
from rftlab.studies.data.results.reference import shipped_runs, smollm2_points
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.finish import finish_points
from rftlab.studies.data.runs.limits import check_size
from rftlab.studies.data.runs.points import RunSpec, study_points
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import Study, has_study, read_study
from rftlab.studies.readers.designs.ours import known_design
from rftlab.studies.report.figures import pretty

SEEDS = 5
"""Number of seeds of a simulated level where no study in the results folder gives one."""
ROUNDING = 0.01
"""Step to which published numbers are rounded."""


Finals = dict[str, pd.DataFrame]
"""Final Pass@1 of one pair by split: one row per seed or draw, one column per cell."""


class CurveSet(NamedTuple):
    """Curves and endpoints of one level for one pair."""

    origin: RunSource
    curves: pd.DataFrame
    """Rows of `rftlab.studies.data.runs.runner.Results.curves`; none at level published, which has endpoints only."""
    finals: Finals
    """Pass@1 after training: a row per seed, a column per cell and `base`; one row where numbers are published."""
    responses: dict[str, int]
    """Number of responses behind a Pass@1 of each split; 0 where it is exact."""
    rounding: float
    """Step to which the values are rounded; 0 where they are not."""
    source: str
    """Source of the values, in words."""

    @property
    def name(self) -> str:
        """Name as the user wrote it."""
        return self.origin.name

    @property
    def title(self) -> str:
        """Title in figures and tables, such as 'sim Qwen · GSM8K'."""
        return f"{self.origin.kind} {pretty(self.origin.place)}"

    @property
    def cells(self) -> list[str]:
        """Labels of the designs with an endpoint."""
        ends = self.finals["test"].drop(columns="base", errors="ignore")
        return list(ends.columns[ends.notna().any()])

    @property
    def seeds(self) -> int:
        """Number of rows of `finals`."""
        return len(self.finals["test"])


def load_levels(
    console: Console,
    names: list[RunSource],
    root: Path,
    quiet: bool,
    seeds: int | None = None,
    rounds: int | None = None,
    threads: int = 1,
) -> list[CurveSet]:
    """Load the curves and endpoints of every curve set; simulations that are missing in the results folder run now.

    seeds, rounds: of simulated levels; None for those of the folder's study of the simulator, or the usual ones. Raises
    UserError where a language model has no finished runs, before anything is simulated.
    """
    check_size(seeds, rounds)
    there = {one: _there(one, root) for one in names if one.kind != "sim"}
    missing = {one: _simulated(one, root, seeds, rounds) for one in names if one.kind == "sim"}
    if missing:
        points = [point for points in missing.values() for point in points]
        finish_points(console, root, points, threads, quiet)
    return [there[one] if one in there else _measured(one, missing[one], root) for one in names]


def _simulated(one: RunSource, root: Path, seeds: int | None, rounds: int | None) -> list[RunSpec]:
    study = _study(root, one)
    usual = (study.seeds, study.rounds) if study else (SEEDS, None)
    return study_points(list(EXPERIMENTS.values()), "sim", [one.place], seeds or usual[0], rounds or usual[1])


def _study(root: Path, one: RunSource) -> Study | None:
    """Return the folder's study of a level if it includes the pair, else None."""
    level = next((level for level in LEVELS if level == one.kind), None)
    study = read_study(root, level) if level and has_study(root, level) else None
    return study if study and one.place in study.pairs else None


def _there(one: RunSource, root: Path) -> CurveSet:
    """Return the curve set of a level that needs no new run: a published or trained one."""
    if one.kind == "published":
        return _published(one)
    planned = _llm_points(one, root)
    points = [point for point in planned if store.is_there(root, point)]
    if points:
        measured, missing = _measured(one, points, root), len(planned) - len(points)
        left_out = f"; {missing} of {len(planned)} runs are not finished and left out" * bool(missing)
        return measured._replace(source=measured.source + left_out)
    curves = shipped_runs()
    known = sorted(set(curves["pair"]))
    command = f"rftlab reproduce --level llm --pair {one.place} --results {root}"
    check(
        one.place in known,
        f"{one.name} has no finished runs in {root}; `{command}` makes them; runs of {', '.join(known)} come "
        "with rftlab",
    )
    curves = curves[curves["pair"] == one.place].reset_index(drop=True)
    return _of_curves(one, curves, "reference runs that come with rftlab")


def _llm_points(one: RunSource, root: Path) -> list[RunSpec]:
    """Return every run of the seven experiments that the folder could hold: those of its study, or without a study
    those of the seeds for which it has folders."""
    study, experiments = _study(root, one), list(EXPERIMENTS.values())
    if study:
        points = study_points(experiments, "llm", [one.place], study.seeds, study.rounds)
    else:
        names = (
            # 18 digits fit an integer of NumPy, and [0-9] takes no digits of other scripts
            re.fullmatch(r".*-s([0-9]{1,18})-[0-9a-f]+", folder.name)
            for folder in folders_in(folder_below(root, "llm", one.place))
        )
        seeds = sorted({int(match[1]) for match in names if match})
        points = [
            replace(point, run=replace(point.run, seed=seed))
            for seed in seeds
            for point in study_points(experiments, "llm", [one.place], 1, None)
        ]
    return points + [point for point in smollm2_points() if point.pair == one.place]


def _measured(one: RunSource, points: list[RunSpec], root: Path) -> CurveSet:
    return _of_curves(one, collect(root, points).curves, f"results folder {root}")


def _of_curves(one: RunSource, curves: pd.DataFrame, source: str) -> CurveSet:
    responses = _responses(one.place) if one.kind == "llm" else dict.fromkeys(SPLITS, 0)
    tables = {split: finals(curves, one.place, split) for split in SPLITS}
    ran = tables["test"].notna().sum()  # cells may differ in their number of seeds
    few, most = int(ran.min()), int(ran.max())
    counts = f"{most} seed{'s' * (most > 1)}" if few == most else f"{few} to {most} seeds"
    seeds = f"{counts} of {int(curves['planned_rounds'].max())} rounds"
    return CurveSet(one, curves, tables, responses, 0.0, f"{source}, {seeds}")


def _responses(name: str) -> dict[str, int]:
    """Return the responses of an evaluation of each split of a pair: questions times the responses to each."""
    run = start_at(name, "llm")
    there = SIZES.get(pair(name).dataset, (run.task.sizes.train, run.task.sizes.test))
    subsets = (run.evaluation.train_subset, run.evaluation.test_subset)
    return {
        split: run.evaluation.samples * min(n, subset or n)
        for split, n, subset in zip(SPLITS, there, subsets, strict=True)
    }


def _published(one: RunSource) -> CurveSet:
    tables = {}
    for split in SPLITS:
        told = reported_by_paper(one.place, split)
        tables[split] = pd.DataFrame(told.test[:1], columns=told.cells) if told else pd.DataFrame([{}])
    curves = pd.DataFrame(columns=["pair", "cell", "planned_rounds", *Curve._fields])
    responses = dict(zip(SPLITS, SIZES[pair(one.place).dataset], strict=True))
    return CurveSet(one, curves, tables, responses, ROUNDING, "arXiv 2601.22532, one number per cell")


_CELLS = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))}
_OURS: dict[Measure, str] = {
    ("test", "pass_at_1"): "test_pass_at_1",
    ("train", "pass_at_1"): "train_pass_at_1",
    ("train", "reward_mean"): "reward",
}
"""Columns of simulated and trained curves by measure; published levels have the first two."""
MEASURED = tuple(_OURS)


def level_groups(own: CurveSet, measure: Measure) -> RunGroups:
    """Return the runs of a curve set as groups by a measure. Raises UserError where it does not have the measure."""
    split = measure[0] if own.origin.kind == "published" else ""
    groups = [_ended(own, cell, split) if split else _trained(own, cell, _OURS[measure]) for cell in own.cells]
    check(bool(groups), f"{own.name} has no {' '.join(measure)}; allowed: levels with it")
    return RunGroups(own.name, own.source, measure, tuple(groups))


def _trained(own: CurveSet, cell: str, column: str) -> Group:
    """Return the runs of a design with their curves as a group."""
    rows = own.curves[(own.curves["cell"] == cell) & own.curves[column].notna()]
    n = float("nan") if column == "reward" else own.responses[column.removesuffix("_pass_at_1")] or float("nan")
    curves = pd.DataFrame(
        {"run": "seed " + rows["seed"].astype(str), "round": rows["round"], "value": rows[column], "n": n}
    )
    if own.origin.kind == "llm":  # the simulator's seconds say nothing about a language model
        curves["seconds"] = rows["seconds"].astype(float)
    return _group(own, cell, curves.reset_index(drop=True), drawn=True)


def _ended(own: CurveSet, cell: str, split: str) -> Group:
    """Return a design of which only the base and the end are known as a group."""
    row = own.finals[split].iloc[0]
    values = {0: row.get("base"), BASELINE.rounds: row[cell]}
    curves = pd.DataFrame(
        [("published", at, value, own.responses[split]) for at, value in values.items() if pd.notna(value)],
        columns=["run", "round", "value", "n"],
    )
    return _group(own, cell, curves, drawn=False)


def _group(own: CurveSet, cell: str, curves: pd.DataFrame, drawn: bool) -> Group:
    design, known = _CELLS[cell], pair(own.origin.place)
    exact = drawn and not own.responses["test"]
    named, runs = known_design(design, known.model), tuple(dict.fromkeys(curves["run"]))
    return Group(short_label(cell), named, known.dataset, runs, curves, design.round_rollouts, drawn, exact)
