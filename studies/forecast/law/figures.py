"""The figure of the law: runs of all designs against rollouts, and against tau."""

import numpy as np
import pandas as pd

from rftlab.shared.effective_batch import time_per_round
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.results.claims import short
from rftlab.studies.forecast.law.score import RankedPair, rank_agreement
from rftlab.studies.report.chart import (
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    dots,
    shades,
)
from rftlab.studies.report.figures import pretty

AXES = {"rollouts": "rollouts", "tau": "τ = t √(B_eff / B_eff(32, 1))"}
SHOWN = {"simulator": "llama-math", "published": "llama-math"}
"""Of levels with many pairs, the one that is drawn (train, where no ceiling of generalisation hides the order)."""
_SHADES = shades(9)
"""Colours of K = 1, 2, 4, ..., 256."""


def curve_points(pair: RankedPair) -> pd.DataFrame:
    """Rows design, batch_size, rollouts_each, round, rollouts, tau, value, last: the curves, or where there are none
    the ends."""
    rows = pair.curves
    if rows.empty:
        rounds = [design.rounds for design in pair.designs]
        rows = pd.DataFrame({"design": range(len(rounds)), "round": rounds, "value": pair.ends})
    designs = [pair.designs[i] for i in rows["design"]]
    spent = [one.round_rollouts for one in designs]
    each = [time_per_round(one, pair.noise[0]) for one in designs]
    return pd.DataFrame(
        {
            "level": pair.level,
            "pair": pair.pair,
            "split": pair.split,
            "design": [short(label(one)) for one in designs],
            "batch_size": [one.batch_size for one in designs],
            "rollouts_each": [one.rollouts for one in designs],
            "round": rows["round"].to_numpy(),
            "rollouts": rows["round"].to_numpy() * spent,
            "tau": rows["round"].to_numpy() * each,
            "value": rows["value"].to_numpy(),
            "last": [row.round == designs[i].rounds for i, row in enumerate(rows.itertuples())],
        }
    )


def collapse(pairs: list[RankedPair]) -> Drawn:
    """A column per pair: Pass@1 along the runs of all designs against rollouts, above, and against tau, below; dots
    are ends, their colour K; Spearman correlations of the ends."""
    tables = [curve_points(pair) for pair in pairs]
    panels = []
    for axis in AXES:
        for pair, table in zip(pairs, tables, strict=True):
            name = pair.level if pair.level != "language model" else "measured"
            panels.append(_panel(f"{pretty(pair.pair)}\n{name}, {pair.split}", table, axis))
    keys = tuple(LegendKey(f"K = {k}", dots(_colour(k))) for k in (1, 8, 64, 256))
    size = (2.35 * len(pairs) + 0.6, 5.0)
    return Chart(tuple(panels), size, len(pairs), keys, share_y="column"), pd.concat(tables, ignore_index=True)


def _colour(rollouts: int) -> str:
    return _SHADES[int(np.clip(round(np.log2(rollouts)), 0, len(_SHADES) - 1))]


def _panel(title: str, table: pd.DataFrame, axis: str) -> Panel:
    series = []
    for design, own in table.groupby("design", sort=False):
        colour, ends = _colour(int(own["rollouts_each"].iloc[0])), own[own["last"]]
        series.append(PlotSeries(own[axis], own["value"], MarkStyle(colour, width=0.8, alpha=0.5), design))
        series.append(PlotSeries(ends[axis], ends["value"], dots(colour), design))
    ends = table[table["last"]]
    order = rank_agreement(ends[axis].to_numpy(), ends["value"].to_numpy())
    remarks = (Remark(-np.inf, np.inf, f"Spearman {order:.2f}"),) if np.isfinite(order) else ()
    return Panel(title, PlotAxis(AXES[axis], "log"), PlotAxis("Pass@1"), tuple(series), (), remarks)
