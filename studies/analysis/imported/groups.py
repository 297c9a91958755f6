"""Group the runs of one source by design, model and task, and compute the measures that groups have in common, their
mean curves and the seconds of training. The runs need not belong to a pair of the paper."""

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
"""Split and metric of a comparison; it takes the first that every level has."""
_NUMBER = re.compile(r"(?:^|[\s(._/-])(?:r|s|run|seed)?[\s._=-]?\d{1,9}\)?$")
"""Number at the end of a repeat's name. Labels leave it out, and it decides nothing."""
_WORDS = {
    "updates_per_round": "{} updates",
    "learning_rate": "rate {:g}",
    "response_limit": "{} tokens",
    "temperature": "T {:g}",
    "kl_coefficient": "KL {:g}",
}
SO_FAR, OF_ROUND = "elapsed_seconds", "seconds"
"""Metrics of time: seconds since the start, and seconds of a round."""
Measure = tuple[str, str]


class Group(NamedTuple):
    """Group of runs of one design on one task."""

    label: str
    design: KnownDesign
    task: str
    runs: tuple[str, ...]
    curves: pd.DataFrame
    """Evaluations of one measure: columns run, round, value, n and seconds (nan where they are not known)."""
    per_round: int | None
    """Number of rollouts of a round; None where B or K is not known."""
    drawn: bool = True
    """Whether there are whole curves, and not ends alone."""
    exact: bool = False
    """Whether evaluations are exact, without sampling error."""

    @property
    def model(self) -> str:
        """Name of the model; "" where it is unknown."""
        return self.design.model or ""

    @property
    def place(self) -> str:
        """Model and task, in the words of a page's filter."""
        return place_name(self.model, self.task)

    @property
    def timed(self) -> bool:
        """Whether the seconds of training are known for every evaluation."""
        return self.drawn and "seconds" in self.curves and bool(self.curves["seconds"].notna().all())

    @property
    def last(self) -> int:
        """Last round that every run of the group reached."""
        return int(self.curves.groupby("run", observed=True)["round"].max().min())


def place_name(model: str, task: str) -> str:
    """Return model and task in the words of a page's filter."""
    return " · ".join(filter(None, (model, task))) or "not named"


class RunGroups(NamedTuple):
    """Level of a comparison: groups of runs by one measure."""

    name: str
    source: str
    measure: Measure
    groups: tuple[Group, ...]
    runs: tuple[ImportedRun, ...] = ()
    """Runs behind the groups, where these were imported."""


def group_runs(
    runs: list[ImportedRun], measure: Measure, task: str | None = None, beside: Iterable[ImportedRun] = ()
) -> tuple[Group, ...]:
    """Return the groups of runs that have a measure. Runs are repeats of each other where their marks say so
    (`ImportedRun.repeats`) and everything known of their designs is equal; names say nothing.

    A run that holds only round 0 is an untrained model. It gives their base to the runs of its model that have none,
    where the first parts of their names are equal. beside: more runs, in which only such bases are looked for.
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
    """Return the key that repeats of a run share: everything known of the design, and the mark of repeats, or the run's
    own name where it has no mark."""
    return replace(run.design, assumed=()), (run.repeats, "" if run.repeats else run.name)


def common_stem(names: Sequence[str]) -> str:
    """Return the common name of repeats: that of the first, without a number at its end where there are several."""
    return _NUMBER.sub("", names[0]) if len(names) > 1 else names[0]


def _front(name: str) -> str:
    """Return the first part of a name with several parts; "" where it has one."""
    return name.rpartition("/")[0].partition("/")[0]


def _bases(runs: list[ImportedRun], measure: Measure) -> dict[tuple, MetricSeries]:
    """Return the evaluations of untrained models that are runs of their own, by model, front of the name, and task."""
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
    """Return the groups with unique labels: groups of one task and label get the fewest facts that distinguish them."""
    labels = []
    for group in groups:
        alike = [other for other in groups if (other.label, other.task) == (group.label, group.task)]
        differ = [name for name in FACTS[2:] if len({getattr(other.design, name) for other in alike}) > 1]
        words = [group.label, *(_word(name, group, alike) for name in differ)]
        twins = sum(all(getattr(o.design, name) == getattr(group.design, name) for name in differ) for o in alike)
        labels.append(" ".join([*filter(None, words), *([_called(group, alike)] if twins > 1 else [])]))
    return tuple(group._replace(label=label) for group, label in zip(groups, labels, strict=True))


def _called(group: Group, alike: list[Group]) -> str:
    """Return the shortest form of a group's name that no similar group has."""
    forms = [_forms(each) for each in alike]
    return next((name for i, name in enumerate(_forms(group)) if [form[i] for form in forms].count(name) == 1), "")


def _forms(group: Group) -> tuple[str, str, str]:
    """Return the names that a group may have, shortest first; the last of them is unique."""
    name = common_stem(group.runs)
    return name.rpartition("/")[2], name, group.runs[0]


def _word(name: str, group: Group, alike: list[Group]) -> str:
    """Return the words for a fact in a label; of a fact in several parts, those that not all similar groups have."""
    value = getattr(group.design, name)
    if value is None:
        return f"{name.replace('_', ' ').removesuffix(' per round')} unknown"
    if isinstance(value, str):
        others = [str(getattr(other.design, name)).split(", ") for other in alike]
        value = ", ".join(part for part in value.split(", ") if not all(part in other for other in others))
    return "1 update" if (name, value) == ("updates_per_round", 1) else _WORDS.get(name, "{}").format(value)


def source_groups(source: RunSource, runs: list[ImportedRun], measure: Measure, root: Path | None = None) -> RunGroups:
    """Return the runs of a source as a level of a comparison by one measure. root: the results folder, where untrained
    models are looked for in the rest of the collection too."""
    beside = [] if root is None or source.run is None else [run for run in source.collection(root) if not run.rounds]
    groups = group_runs(runs, measure, source.task, beside)
    counted = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    formats = ", ".join(sorted({run.format for run in runs}))
    return RunGroups(source.name, f"{counted} from {formats}", measure, groups, tuple(runs))


def common_measure(have: dict[str, set[Measure]]) -> Measure:
    """Return the first of `MEASURES` that all levels have. Raises UserError, with each level's measures, without
    one."""
    common = next((one for one in MEASURES if all(one in own for own in have.values())), None)
    if common is None:
        measures = "; ".join(
            f"{name} has {few([' '.join(one) for one in sorted(own)]) or 'none'}" for name, own in have.items()
        )
        raise UserError(f"no measure is common: {measures}; allowed: levels with a Pass@1 or mean reward of one split")
    return common


def measures_in(source: RunSource, runs: list[ImportedRun]) -> set[Measure]:
    """Return the measures that the runs of a source have on its task after training began."""
    logged = {(piece.split, piece.metric) for run in runs for piece in run.pieces}
    return {measure for measure in MEASURES if measure in logged and group_runs(runs, measure, source.task)}


def mean_curve(curves: pd.DataFrame, column: str = "round") -> pd.DataFrame:
    """Return mean, lowest and highest value over runs at common places, and the number of runs behind each.

    curves: columns run, value and `column`, a row per evaluation. The places are those of all runs where the most runs
    have values, thinned to the number of evaluations of the longest run, and 0 where any run begins there. Between two
    evaluations a run's value is linear; beyond its first and last it has none, so no run is extrapolated. Columns of
    the result: `column`, mean, lowest, highest, runs.
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
    """Return the seconds (n,) at which rounds (n,) were finished, linear between known ones; nan where the log does not
    say, and everywhere if its times fall."""
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
    """Return rounds and seconds of a log of the time since the start; the earlier time of a round logged twice."""
    pieces = _pieces(run, SO_FAR)
    if not pieces:
        return None
    rounds, seconds = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("rounds", "values"))
    order = np.lexsort((seconds, rounds))
    at, first = np.unique(rounds[order], return_index=True)
    return at.astype(float), seconds[order][first].astype(float)


def _added(run: ImportedRun) -> tuple[np.ndarray, np.ndarray] | None:
    """Return rounds and seconds of a log of the seconds of each round. A round that is not logged counts as long as the
    next logged one; a log that begins late is not timed. TRL logs the seconds of an update."""
    piece = next(iter(_pieces(run, OF_ROUND)), None)
    if piece is None:
        return None
    apart = np.diff(piece.rounds, prepend=0)
    if len(apart) < 2 or apart[0] > np.median(apart[1:]):
        return None
    updates = (run.design.updates_per_round or 1) if run.tool == "trl" else 1
    return piece.rounds.astype(float), np.cumsum(piece.values * apart * updates)
