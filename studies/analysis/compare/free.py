"""Levels side by side where one was imported: free designs, several tasks and models, no claims of the paper."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_choice
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.compare.levels import CurveSet, load
from rftlab.studies.analysis.imported.figures import AXES
from rftlab.studies.analysis.imported.groups import Group, Measure, RunGroups, common_measure, measures_in, side_of
from rftlab.studies.analysis.imported.page import view_of, write
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, cells_of, label
from rftlab.studies.data.paper.pairs import pair
from rftlab.studies.data.results.claims import short
from rftlab.studies.data.runs.limits import Engine
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.readers.run import KnownDesign

_CELLS = {label(cell): cell for cell in cells_of(list(EXPERIMENTS.values()))}
_OURS: dict[Measure, str] = {
    ("test", "pass_at_1"): "test_pass_at_1",
    ("train", "pass_at_1"): "train_pass_at_1",
    ("train", "reward_mean"): "reward",
}
"""Measures of our own curves by their columns; published levels have the first two."""


class SimulationRuns(NamedTuple):
    """How levels that are simulated are to be run, as in `levels.load`."""

    seeds: int | None
    rounds: int | None
    threads: int
    quiet: bool
    engine: Engine


def compare(console: Console, sources: list[RunSource], root: Path, axis: str, simulated: SimulationRuns) -> Path:
    """Print tables and write root/compare-NAMES/compare.html; returns its path. Raises UserError, before anything is
    simulated, where sources have no measure in common."""
    check_choice("axis of imported runs", axis, tuple(AXES))
    imported = {source: source.runs(root) for source in sources if source.free}
    ours = [source for source in sources if not source.free]
    have = {source.name: measures_in(source, runs) for source, runs in imported.items()}
    have |= {source.name: set(list(_OURS)[: 2 if source.kind == "published" else 3]) for source in ours}
    measure = common_measure(have)
    if ours:  # they may be simulated now
        open_store(root)
    loaded = dict(zip(ours, load(console, ours, root, *simulated), strict=True))
    sides = [
        side_of(source, imported[source], measure, root) if source.free else _side(loaded[source], measure)
        for source in sources
    ]
    folder = folder_below(root, "compare-" + "-".join(source.slug for source in sources)[:180])
    return write(console, view_of(sides, axis), folder, "compare.html", " against ".join(have), simulated.quiet)


def _side(own: CurveSet, measure: Measure) -> RunGroups:
    """A level of ours as groups."""
    split = measure[0] if own.origin.kind == "published" else ""
    groups = [_ended(own, cell, split) if split else _trained(own, cell, _OURS[measure]) for cell in own.cells]
    check(bool(groups), f"{own.name} has no {' '.join(measure)}; allowed: levels with it")
    return RunGroups(own.name, own.source, measure, tuple(groups))


def _trained(own: CurveSet, cell: str, column: str) -> Group:
    """Runs of a design with their curves."""
    rows = own.curves[(own.curves["cell"] == cell) & own.curves[column].notna()]
    n = float("nan") if column == "reward" else own.responses[column.removesuffix("_pass_at_1")] or float("nan")
    curves = pd.DataFrame(
        {"run": "seed " + rows["seed"].astype(str), "round": rows["round"], "value": rows[column], "n": n}
    )
    if own.origin.kind == "llm":  # what the simulator took says nothing of a language model
        curves["seconds"] = rows["seconds"].astype(float)
    return _group(own, cell, curves.reset_index(drop=True), drawn=True)


def _ended(own: CurveSet, cell: str, split: str) -> Group:
    """A design of which the end alone is known."""
    row = getattr(own.finals, split).iloc[0]
    values = {0: row.get("base"), BASELINE.rounds: row[cell]}
    curves = pd.DataFrame(
        [("published", at, value, own.responses[split]) for at, value in values.items() if pd.notna(value)],
        columns=["run", "round", "value", "n"],
    )
    return _group(own, cell, curves, drawn=False)


def _group(own: CurveSet, cell: str, curves: pd.DataFrame, drawn: bool) -> Group:
    design, name = _CELLS[cell], own.origin.place
    exact = drawn and not own.responses["test"]
    spent = design.round_rollouts
    runs = tuple(dict.fromkeys(curves["run"]))
    return Group(short(cell), known_of(design, name), task_of(name), runs, curves, spent, drawn, exact)


def task_of(name: str) -> str:
    """The data set of a pair, as logs call theirs."""
    return pair(name).dataset


def known_of(design: Design, name: str) -> KnownDesign:
    """A design of ours in the terms of imported ones. What they have no word for, support and replay, is in the
    advantage, so that it matches none of theirs."""
    advantage = design.estimator.advantage
    alone = design.rollouts == 1 and not design.support_rollouts and not design.replay_window
    kind: str = (
        "group_zscore" if advantage.baseline == "group_mean" and advantage.scale == "group_std" else advantage.baseline
    )
    kind = "raw" if alone or kind == "none" else kind
    support = f" with {design.support_rollouts} support rollouts" if design.support_rollouts else ""
    replay = f" with a window of {design.replay_window}" if design.replay_window else ""
    return KnownDesign(
        design.batch_size,
        design.rollouts,
        design.epochs * design.minibatches,
        advantage=f"{kind}{support}{replay}",
        model=pair(name).model,
    )
