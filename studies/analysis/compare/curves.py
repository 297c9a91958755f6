"""Curves of levels on a common axis, and the designs of an experiment at equal places of it."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.analysis.compare.levels import CurveSet
from rftlab.studies.data.paper.experiments import Experiment, label
from rftlab.studies.data.results.stats import interval
from rftlab.studies.report.figures import mean_curves


class Axis(NamedTuple):
    """The quantity against which trade-off curves are drawn: rounds, rollouts, tokens or seconds."""

    title: str
    ends: str
    """The quantity that a trade-off curve shows."""
    log: bool
    """Whether it is drawn in powers of ten, without round 0."""
    spent: bool
    """Whether designs differ in how much of it a round takes."""


AXES = {
    "rounds": Axis("training round", "Pass@1 after training", False, False),
    "fraction": Axis("fraction of the planned rounds", "Pass@1 after training", False, False),
    "rollouts": Axis("rollouts", "Pass@1 at equal rollouts", True, True),
    "tokens": Axis("response tokens", "Pass@1 at equal tokens", True, True),
    "seconds": Axis("seconds", "Pass@1 at equal seconds", True, True),
}


def place(curves: pd.DataFrame, axis: str) -> pd.Series:
    """Where each row lies on the axis."""
    if axis == "fraction":
        return curves["round"] / curves["planned_rounds"]
    return curves["round" if axis == "rounds" else axis].astype(float)


def mean_lines(own: CurveSet, cells: list[str], axis: str) -> pd.DataFrame:
    """Means over seeds: columns level, cell, split, round, x, mean, low, high."""
    curves = own.curves[own.curves["cell"].isin(cells)]
    places = curves.assign(x=place(curves, axis)).groupby(["cell", "round"])["x"].mean().reset_index()
    lines = mean_curves(curves).merge(places, on=["cell", "round"]).assign(level=own.name)
    return lines[lines["round"] > 0] if AXES[axis].log else lines


def at_budget(own: CurveSet, experiment: Experiment, axis: str) -> pd.DataFrame:
    """Pass@1 of the experiment's designs where each has come as far along the axis as the run that ends first: after
    training on rounds.

    Columns level, cell, tick, split, budget, mean, low, high; linear between evaluations. Published endpoints are after
    training, so they stand on axes of rounds alone. A run that did not come so far is left out.
    """
    cells = dict(zip(map(label, experiment.cells), experiment.ticks, strict=True))
    curves = own.curves[own.curves["cell"].isin(list(cells))]
    finished = curves[curves["round"] == curves["planned_rounds"]]
    budget = float(place(finished, axis).min()) if len(finished) and AXES[axis].spent else np.nan
    rows = []
    for cell, tick in cells.items():
        for split in SPLITS:
            known = interval(_values(own, cell, split, axis, budget))
            low, high = (bound if np.isfinite(bound) else np.nan for bound in (known.low, known.high))
            rows.append(
                {
                    "level": own.name,
                    "cell": cell,
                    "tick": tick,
                    "split": split,
                    "budget": budget,
                    "mean": known.value,
                    "low": low,
                    "high": high,
                }
            )
    return pd.DataFrame(rows)


def _values(own: CurveSet, cell: str, split: str, axis: str, budget: float) -> np.ndarray:
    """Pass@1 of each seed at the budget, or after training."""
    if not AXES[axis].spent:
        table = getattr(own.finals, split)
        return table[cell].dropna().to_numpy() if cell in table else np.array([])
    curves = own.curves[own.curves["cell"] == cell]
    curves = curves.assign(x=place(curves, axis))
    runs = [run.sort_values("x") for _, run in curves.groupby("seed") if run["x"].max() >= budget]
    return np.array([np.interp(budget, run["x"], run[f"{split}_pass_at_1"]) for run in runs])
