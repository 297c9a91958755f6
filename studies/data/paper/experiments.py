"""Tables of the seven experiments of arXiv 2601.22532 (assets/experiments.toml), with their designs, axis and question,
and of the Pass@1 that the paper reports for them at temperature 1.0 (assets/endpoints.csv, level `published`).

The cells are the paper's, with two exceptions: (256, 1) with replay in experiment 5 is ours, to separate the effect of
its missing baseline from that of its batch; 6a and 6b are two readings of one experiment, its text and its released
scripts. Three settings are our reading, because the paper does not settle them: every run has 2,000 rounds, experiment
7 has one current rollout and a window of 8 (its published cells replay 7), and the KL term stands in the loss. The
studies in FOLLOW_UPS are ours.
"""

import csv
import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rftlab.shared.cards import estimator_name, preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check_choice

BASELINE = Design(batch_size=32, rollouts=1, estimator=preset("minimalist"))
GRPO = Design(estimator=preset("paper_text"))


def _cell(text: str) -> Design:
    """Return the design of a cell of experiments.toml. Raises ValueError for other text."""
    if text == "32x1 raw":
        return BASELINE
    match = re.fullmatch(r"(\d+)x(\d+)(?: \+(\d+))?(?: window (\d+))?", text)
    if match is None:
        raise ValueError(f"cell = {text!r}; allowed: BxK, BxK +SUPPORT, BxK window VISITS")
    batch_size, rollouts, support, window = (int(number or 0) for number in match.groups())
    return replace(GRPO, batch_size=batch_size, rollouts=rollouts, support_rollouts=support, replay_window=window)


@dataclass(frozen=True)
class Experiment:
    """Experiment: designs that differ along one axis."""

    name: str
    title: str
    question: str
    axis: str
    """Title of the axis of the trade-off curve."""
    cells: tuple[Design, ...]
    """Designs in the order of the axis."""
    ticks: tuple[str, ...]
    """Labels on the axis, one per cell."""

    @property
    def ticks_by_cell(self) -> dict[str, str]:
        """Labels on the axis by the labels of the designs."""
        return dict(zip(map(label, self.cells), self.ticks, strict=True))


_TABLES = tomllib.loads((files("rftlab.studies") / "assets" / "experiments.toml").read_text(encoding="utf-8"))


def _read(table: dict[str, dict]) -> dict[str, Experiment]:
    return {
        name: Experiment(
            **stated | {"name": name, "cells": tuple(map(_cell, stated["cells"])), "ticks": tuple(stated["ticks"])}
        )
        for name, stated in table.items()
    }


EXPERIMENTS: dict[str, Experiment] = _read(_TABLES["experiments"])
FOLLOW_UPS: dict[str, Experiment] = _read(_TABLES["follow_ups"])
"""Studies beyond the seven experiments: the first runs, and the next checks."""


def experiment(name: str) -> Experiment:
    """Return the experiment or follow-up study of this name. Raises UserError, which lists the known ones."""
    known = EXPERIMENTS | FOLLOW_UPS
    check_choice("study", name, tuple(known))
    return known[name]


def distinct_cells(experiments: list[Experiment]) -> list[Design]:
    """Return every design of the experiments once, in order of first appearance."""
    return list(dict.fromkeys(cell for e in experiments for cell in e.cells))


def label(design: Design) -> str:
    """Return the short name of a design, made from its fields.

    It is 32x8-paper_text; with support rollouts 32x1+7-..., with a window 256x1w8-..., with epochs and mini-batches
    u2x4, dynamic sampling t5, group filtering k4, budgets by difficulty d.
    """
    support = f"+{design.support_rollouts}" if design.support_rollouts else ""
    window = f"w{design.replay_window}" if design.replay_window else ""
    updates = f"u{design.epochs}x{design.minibatches}" if design.epochs * design.minibatches > 1 else ""
    sampling = design.sampling
    tries = f"t{sampling.tries}" if sampling.tries > 1 else ""
    keep = f"k{sampling.keep}" if sampling.keep else ""
    budget = "d" if sampling.budget == "difficulty" else ""
    spent = f"{design.batch_size}x{design.rollouts}{support}{window}{updates}{tries}{keep}{budget}"
    return f"{spent}-{estimator_name(design.estimator)}"


CELLS: dict[str, Design] = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))}
"""Designs of the seven experiments by their labels: the grid of 25 designs."""
PILOT_CELLS = ("32x1-minimalist", "32x8-paper_text", "256x1-paper_text", "32x1w8-paper_text")
"""Designs that a pilot runs unless told otherwise: 576 of the 12,288 rollouts of the grid's rounds. They differ in
batch size, rollouts and baseline."""


class Endpoint(NamedTuple):
    """Pass@1 that the paper reports for a design. advantage: none (base model), reward, grpo."""

    model: str
    dataset: str
    split: str
    advantage: str
    batch_size: int
    rollouts: int
    support_rollouts: int
    replay_rollouts: int
    pass_at_1: float


_PAPER_ESTIMATORS = tuple(preset(name) for name in ("minimalist", "paper_text", "paper_code"))


@cache
def endpoints() -> tuple[Endpoint, ...]:
    """Return every endpoint that the paper reports."""
    text = (files("rftlab.studies") / "assets" / "endpoints.csv").read_text(encoding="utf-8")
    kinds = Endpoint.__annotations__
    rows = csv.DictReader(text.splitlines())
    return tuple(Endpoint(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows)


def published(model: str, dataset: str, split: str, design: Design | None) -> float | None:
    """Return the reported Pass@1 of a design after training, or of the base model (design None); None where none is
    reported."""
    key = ("none", 0, 0, 0, 0)
    if design is not None:
        if design.estimator not in _PAPER_ESTIMATORS or design.epochs * design.minibatches > 1:
            return None
        advantage = "reward" if design.estimator.advantage.baseline == "none" else "grpo"
        key = (advantage, design.batch_size, design.rollouts, design.support_rollouts, design.replayed)
    for e in endpoints():
        if (e.model, e.dataset, e.split) == (model, dataset, split) and (e.advantage, *e[4:8]) == key:
            return e.pass_at_1
    return None
