"""Runs of one source as groups: those of one design, model and task, whatever the design; what they can be compared
by, their mean curves, and the seconds that they had trained. No Pair of ours is needed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.plumbing.errors import UserError, few
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign, MetricSeries

MEASURES = (("test", "pass_at_1"), ("train", "pass_at_1"), ("test", "reward_mean"), ("train", "reward_mean"))
"""Split and metric that a comparison is of, the first that every level has."""
_NUMBER = re.compile(r"(?:^|[\s(._/-])(?:r|s|run|seed)?[\s._=-]?\d{1,9}\)?$")
"""At the end of the names of repeats: it is left out of their label, and decides nothing."""
_WORDS = {
    "updates_per_round": "{} updates",
    "learning_rate": "rate {:g}",
    "response_limit": "{} tokens",
    "temperature": "T {:g}",
    "kl_coefficient": "KL {:g}",
}
SO_FAR, OF_ROUND = "elapsed_seconds", "seconds"
"""Metrics: seconds since the start, and those of a round."""
Measure = tuple[str, str]


class Group(NamedTuple):
    """Runs of one design on one task."""

    label: str
    design: KnownDesign
    task: str
    runs: tuple[str, ...]
    curves: pd.DataFrame
    """Of one measure: columns run, round, value, n and seconds (nan where they are not known), a row an evaluation."""
    per_round: int | None
    """Rollouts of a round; None where B or K is not known."""
    drawn: bool = True
    """Whether there are curves, and not only the ends."""
    exact: bool = False
    """Whether evaluations have no error of their own."""

    @property
    def model(self) -> str:
        """Its model; "" where it is unknown."""
        return self.design.model or ""

    @property
    def place(self) -> str:
        """Model and task, as a page's filter calls them."""
        return place_name(self.model, self.task)

    @property
    def timed(self) -> bool:
        """Whether every evaluation says after how many seconds of training it came."""
        return self.drawn and "seconds" in self.curves and bool(self.curves["seconds"].notna().all())

    @property
    def last(self) -> int:
        """The round that every run of it reached."""
        return int(self.curves.groupby("run", observed=True)["round"].max().min())


def place_name(model: str, task: str) -> str:
    """Model and task, as a page's filter calls them."""
    return " · ".join(filter(None, (model, task))) or "not named"


class RunGroups(NamedTuple):
    """One level of a comparison."""

    name: str
    source: str
    measure: Measure
    groups: tuple[Group, ...]
    runs: tuple[ImportedRun, ...] = ()
    """Behind the groups, where they were imported."""


def group_runs(
    runs: list[ImportedRun], measure: Measure, task: str | None = None, beside: Iterable[ImportedRun] = ()
) -> tuple[Group, ...]:
    """The groups of runs that have a measure. Runs repeat each other where their marks say so (`ImportedRun.repeats`)
    and all that is known of their designs is equal; names say nothing.

    A run that holds nothing but round 0 is the base model of those of its model that have none, where the front parts
    of their names are equal. beside: more runs, that are looked at for such bases alone.
    """
    members_by_design: dict[tuple, list[tuple[ImportedRun, MetricSeries]]] = {}
    bases = _bases([*runs, *beside], measure)
    for run in runs:
        for piece in run.pieces:
            if (piece.split, piece.metric) == measure and task in (None, piece.task) and piece.rounds.max() > 0:
                alike = (*repeat_key(run), piece.task)
                members_by_design.setdefault(alike, []).append((run, piece))
    groups = [
        Group(
            f"{design.prompts or '?'}x{design.rollouts or '?'}",
            design,
            task,
            tuple(run.name for run, _ in members),
            pd.concat([_curve(run, piece, bases) for run, piece in members], ignore_index=True),
            design.prompts * design.rollouts if design.prompts and design.rollouts else None,
        )
        for (design, _, task), members in members_by_design.items()
    ]
    return _labelled(groups)


def repeat_key(run: ImportedRun) -> tuple[KnownDesign, tuple[str, str]]:
    """Return the key that repeats of a run share: all that is known of their designs, and the mark of repeats,
    which is their own name for those that have none."""
    return replace(run.design, assumed=()), (run.repeats, "" if run.repeats else run.name)


def common_stem(names: Sequence[str]) -> str:
    """Return the name of repeats: that of the first, without a number at the end where there are several."""
    return _NUMBER.sub("", names[0]) if len(names) > 1 else names[0]


def _front(name: str) -> str:
    """A name without its last part."""
    return name.rpartition("/")[0].partition("/")[0]


def _bases(runs: list[ImportedRun], measure: Measure) -> dict[tuple, MetricSeries]:
    """Evaluations of untrained models that are runs of their own."""
    alone = (run for run in runs if run.rounds == 0 and run.design.model)
    return {
        (run.design.model, _front(run.name), piece.task): piece
        for run in alone
        for piece in run.pieces
        if (piece.split, piece.metric) == measure
    }


def _curve(run: ImportedRun, piece: MetricSeries, bases: dict[tuple, MetricSeries]) -> pd.DataFrame:
    base = bases.get((run.design.model, _front(run.name), piece.task))
    parts = [base, piece] if base is not None and piece.rounds[0] > 0 else [piece]
    n = [np.full(len(part.rounds), np.nan) if part.n is None else part.n for part in parts]
    rounds, values = ([getattr(part, name) for part in parts] for name in ("rounds", "values"))
    return pd.DataFrame(
        {
            "run": run.name,
            "round": np.concatenate(rounds).astype(int),
            "value": np.concatenate(values).astype(float),
            "n": np.concatenate(n).astype(float),
            "seconds": elapsed_at(run, np.concatenate(rounds)),
        }
    )


def _labelled(groups: list[Group]) -> tuple[Group, ...]:
    """Groups of one task and label get what they differ in behind it, the least that tells them apart."""
    labels = []
    for group in groups:
        alike = [other for other in groups if (other.label, other.task) == (group.label, group.task)]
        differ = [name for name in FACTS[2:] if len({getattr(other.design, name) for other in alike}) > 1]
        words = [group.label, *(_word(name, group, alike) for name in differ)]
        twins = sum(all(getattr(o.design, name) == getattr(group.design, name) for name in differ) for o in alike)
        labels.append(" ".join([*filter(None, words), *([_called(group, alike)] if twins > 1 else [])]))
    return tuple(group._replace(label=label) for group, label in zip(groups, labels, strict=True))


def _called(group: Group, alike: list[Group]) -> str:
    """The shortest form of a group's name that no other has."""
    forms = [_forms(each) for each in alike]
    return next((name for i, name in enumerate(_forms(group)) if [form[i] for form in forms].count(name) == 1), "")


def _forms(group: Group) -> tuple[str, str, str]:
    """Return the names that a group may have; the last of them is unique."""
    name = common_stem(group.runs)
    return name.rpartition("/")[2], name, group.runs[0]


def _word(name: str, group: Group, alike: list[Group]) -> str:
    """A fact in a label; of one in several parts, those that not all have."""
    value = getattr(group.design, name)
    if value is None:
        return f"{name.replace('_', ' ').removesuffix(' per round')} unknown"
    if isinstance(value, str):
        others = [str(getattr(other.design, name)).split(", ") for other in alike]
        value = ", ".join(part for part in value.split(", ") if not all(part in other for other in others))
    return "1 update" if (name, value) == ("updates_per_round", 1) else _WORDS.get(name, "{}").format(value)


def source_groups(source: RunSource, runs: list[ImportedRun], measure: Measure, root: Path | None = None) -> RunGroups:
    """A level of runs by one measure. root: the results folder, where untrained models are looked for in the rest of
    the collection too."""
    beside = [] if root is None or source.run is None else [run for run in source.collection(root) if not run.rounds]
    groups = group_runs(runs, measure, source.task, beside)
    counted = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    formats = ", ".join(sorted({run.format for run in runs}))
    return RunGroups(source.name, f"{counted} from {formats}", measure, groups, tuple(runs))


def common_measure(have: dict[str, set[Measure]]) -> Measure:
    """The first of `MEASURES` that all levels have. Raises UserError, naming what each has, where there is none."""
    common = next((one for one in MEASURES if all(one in own for own in have.values())), None)
    if common is None:
        measures = "; ".join(
            f"{name} has {few([' '.join(one) for one in sorted(own)]) or 'none'}" for name, own in have.items()
        )
        raise UserError(f"no measure is common: {measures}; allowed: levels with a Pass@1 or mean reward of one split")
    return common


def measures_in(source: RunSource, runs: list[ImportedRun]) -> set[Measure]:
    """Measures of the runs that a name means, on its task, after training began."""
    logged = {(piece.split, piece.metric) for run in runs for piece in run.pieces}
    return {measure for measure in MEASURES if measure in logged and group_runs(runs, measure, source.task)}


def mean_curve(curves: pd.DataFrame, column: str = "round") -> pd.DataFrame:
    """Mean, lowest and highest over runs at common places, and how many runs are behind each.

    curves: columns run, value and `column`, a row an evaluation. Places are those of all runs, at most as many as the
    run with the most has, as far as the most runs reach on both sides; and 0, where any run begins there. Between two
    evaluations a run's value is taken from the line through them; beyond its first and last it has none, so that no
    run is continued. Columns of the result: `column`, mean, lowest, highest, runs.
    """
    runs = [run.sort_values(column) for _, run in curves.groupby("run", sort=False, observed=True)]
    places = np.unique(curves[column].to_numpy())
    values = np.array([np.interp(places, run[column], run["value"], left=np.nan, right=np.nan) for run in runs])
    behind = np.isfinite(values).sum(axis=0)
    shared = np.flatnonzero(behind == behind.max())
    longest = max(len(run) for run in runs)
    if len(shared) > longest:
        shared = shared[np.linspace(0, len(shared) - 1, longest).round().astype(int)]
    kept = np.unique(np.append(shared, np.flatnonzero(places == 0)))
    values = values[:, kept]
    return pd.DataFrame(
        {
            column: places[kept],
            "mean": np.nanmean(values, axis=0),
            "lowest": np.nanmin(values, axis=0),
            "highest": np.nanmax(values, axis=0),
            "runs": behind[kept],
        }
    )


def elapsed_at(run: ImportedRun, rounds: np.ndarray) -> np.ndarray:
    """Seconds (n,) when rounds (n,) were finished, linear between those that are known; nan where the log
    does not say, and everywhere where its times fall."""
    known = _so_far(run) or _added(run)
    if known is None:
        return np.full(len(rounds), np.nan)
    at, seconds = known
    if at[0] > 0:
        at, seconds = np.append(0, at), np.append(0.0, seconds)
    if np.any(np.diff(seconds) < 0) or seconds[0] < 0 or seconds[-1] <= 0:
        return np.full(len(rounds), np.nan)
    return np.interp(rounds, at, seconds, left=np.nan, right=np.nan)


def _pieces(run: ImportedRun, metric: str) -> list[MetricSeries]:
    return [piece for piece in run.pieces if piece.metric == metric and piece.split and len(piece.rounds)]


def _so_far(run: ImportedRun) -> tuple[np.ndarray, np.ndarray] | None:
    """Rounds and seconds of a log that says how long it has run; of a round that is there twice the earlier time."""
    pieces = _pieces(run, SO_FAR)
    if not pieces:
        return None
    rounds, seconds = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("rounds", "values"))
    order = np.lexsort((seconds, rounds))
    at, first = np.unique(rounds[order], return_index=True)
    return at.astype(float), seconds[order][first].astype(float)


def _added(run: ImportedRun) -> tuple[np.ndarray, np.ndarray] | None:
    """The same from the seconds of each round. Rounds between those that are logged count as the next; a log that
    begins late is not timed. TRL's are of an update."""
    piece = next(iter(_pieces(run, OF_ROUND)), None)
    if piece is None:
        return None
    apart = np.diff(piece.rounds, prepend=0)
    if len(apart) < 2 or apart[0] > np.median(apart[1:]):
        return None
    updates = (run.design.updates_per_round or 1) if run.tool == "trl" else 1
    return piece.rounds.astype(float), np.cumsum(piece.values * apart * updates)
