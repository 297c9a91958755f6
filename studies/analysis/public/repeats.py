"""The noise first: how far runs of one configuration differ."""

from typing import NamedTuple

import pandas as pd

from rftlab.studies.analysis.public.store import score_rows
from rftlab.studies.data.results.stats import Estimate, Mean

SIX_HOURS = 21600.0
"""Seconds after which runs of PODS end."""


class PairNoise(NamedTuple):
    """How far two single runs of one configuration differ in test Pass@1."""

    scale: float
    """Root mean square of the difference, over evaluations and pairs."""
    pairs: int
    """Pairs that it was estimated from."""


class Spread(NamedTuple):
    """How far repeats of a configuration differ."""

    source: str
    configuration: str
    repeats: int
    measure: str
    value: float


def without_repeat(run_ids: pd.Series) -> pd.Series:
    """Configuration of runs of PODS: the run id without the repeat."""
    return run_ids.str.rsplit("/", n=1).str[0]


def cell_spreads(curves: pd.DataFrame) -> list[Spread]:
    """Deviation between the runs of each cell of PODS on GSM8K after six hours."""
    last = score_rows(curves, "gsm8k")
    last = last[last["seconds"] == SIX_HOURS]
    return [
        Spread(
            "pods",
            str(cell).removeprefix("pods/gsm8k-"),
            len(rows),
            "deviation between runs",
            float(rows["value"].std()),
        )
        for cell, rows in last.groupby(without_repeat(last["run_id"]))
    ]


def single_interval(difference: float, noise: PairNoise) -> Estimate:
    """95% interval of a difference of two single runs; Student's t with one degree of freedom a pair, because a
    pair's evaluations rise and fall together."""
    return Mean(difference, noise.scale, noise.pairs).interval()
