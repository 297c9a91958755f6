"""Runs of one level as groups: those of one design, model and task, whatever the design; no Pair of ours is needed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.studies.analysis.imported.elapsed import elapsed_at
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign, Piece

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
        """Its model; "" where that could not be told."""
        return self.design.model or ""

    @property
    def timed(self) -> bool:
        """Whether every evaluation says after how many seconds of training it came."""
        return self.drawn and "seconds" in self.curves and bool(self.curves["seconds"].notna().all())

    @property
    def last(self) -> int:
        """The round that every run of it reached."""
        return int(self.curves.groupby("run", observed=True)["round"].max().min())


class RunGroups(NamedTuple):
    """One level of a comparison."""

    name: str
    source: str
    measure: Measure
    groups: tuple[Group, ...]
    runs: tuple[ImportedRun, ...] = ()
    """Behind the groups, where they were imported."""


def measures_of(runs: list[ImportedRun]) -> set[Measure]:
    """Those of `MEASURES` that runs have."""
    return {(piece.split, piece.metric) for run in runs for piece in run.pieces} & set(MEASURES)


def groups_of(
    runs: list[ImportedRun], measure: Measure, task: str | None = None, beside: Iterable[ImportedRun] = ()
) -> tuple[Group, ...]:
    """The groups of runs that have a measure. Runs repeat each other where their marks say so (`ImportedRun.repeats`)
    and all that is known of their designs is equal; names say nothing.

    A run that holds nothing but round 0 is the base model of those of its model that have none, where the front parts
    of their names are equal. beside: more runs, that are looked at for such bases alone.
    """
    found: dict[tuple, list[tuple[ImportedRun, Piece]]] = {}
    bases = _bases([*runs, *beside], measure)
    for run in runs:
        for piece in run.pieces:
            if (piece.split, piece.metric) == measure and task in (None, piece.task) and piece.rounds.max() > 0:
                alike = (*alike_of(run), piece.task)
                found.setdefault(alike, []).append((run, piece))
    groups = [
        Group(
            _spent(design),
            design,
            task,
            tuple(run.name for run, _ in members),
            pd.concat([_curve(run, piece, bases) for run, piece in members], ignore_index=True),
            design.prompts * design.rollouts if design.prompts and design.rollouts else None,
        )
        for (design, _, task), members in found.items()
    ]
    return _labelled(groups)


def alike_of(run: ImportedRun) -> tuple[KnownDesign, tuple[str, str]]:
    """What runs that repeat each other have in common: all that is known of their designs, and the mark of repeats,
    which is their own name for those that have none."""
    return replace(run.design, assumed=()), (run.repeats, "" if run.repeats else run.name)


def stem_of(names: Sequence[str]) -> str:
    """What repeats are called: the first of them, but for a number at the end where there are several."""
    return _NUMBER.sub("", names[0]) if len(names) > 1 else names[0]


def _front(name: str) -> str:
    """A name without its last part."""
    return name.rpartition("/")[0].partition("/")[0]


def _bases(runs: list[ImportedRun], measure: Measure) -> dict[tuple, Piece]:
    """Evaluations of untrained models that are runs of their own."""
    alone = (run for run in runs if run.rounds == 0 and run.design.model)
    return {
        (run.design.model, _front(run.name), piece.task): piece
        for run in alone
        for piece in run.pieces
        if (piece.split, piece.metric) == measure
    }


def _curve(run: ImportedRun, piece: Piece, bases: dict[tuple, Piece]) -> pd.DataFrame:
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


def _spent(design: KnownDesign) -> str:
    """Prompts and rollouts, as in 32x8; ?x8 where one is not known."""
    return f"{design.prompts or '?'}x{design.rollouts or '?'}"


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
    """What it may be called, the last of which is its own alone."""
    name = stem_of(group.runs)
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
