"""The figure of the law: runs of all designs against rollouts, and against tau. Drawn like those of
studies/report/figures.py."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from rftlab.shared.effective_batch import time_per_round
from rftlab.studies.law.levels import RankedPair
from rftlab.studies.law.score import rank
from rftlab.studies.paper.experiments import label
from rftlab.studies.report.figures import GREY, Drawn, key, pretty, styled
from rftlab.studies.results.claims import short

AXES = {"rollouts": "rollouts", "tau": "τ = t √(B_eff / B_eff(32, 1))"}
SHOWN = {"simulator": "llama-math", "published": "llama-math"}
"""Of levels with many pairs, the one that is drawn (train, where no ceiling of generalisation hides the order)."""
_SHADES, _MOST = colormaps["viridis"], 256


def points_of(found: RankedPair) -> pd.DataFrame:
    """Rows design, batch_size, rollouts_each, round, rollouts, tau, value, last: the curves, or where there are none
    the ends."""
    rows = found.curves
    if rows.empty:
        rounds = [design.rounds for design in found.designs]
        rows = pd.DataFrame({"design": range(len(rounds)), "round": rounds, "value": found.ends})
    designs = [found.designs[i] for i in rows["design"]]
    spent = [one.batch_size * (one.rollouts + one.support_rollouts) for one in designs]
    each = [time_per_round(one, found.noise[0]) for one in designs]
    return pd.DataFrame(
        {
            "level": found.level,
            "pair": found.pair,
            "split": found.split,
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


@styled
def collapse(pairs: list[RankedPair]) -> Drawn:
    """A column per pair: Pass@1 along the runs of all designs against rollouts, above, and against tau, below; dots
    are ends, their colour K; Spearman correlations of the ends."""
    tables = [points_of(found) for found in pairs]
    figure = Figure(figsize=(2.35 * len(pairs) + 0.6, 5.0))
    axes = figure.subplots(2, len(pairs), squeeze=False, sharey="col")
    for column, (found, table) in enumerate(zip(pairs, tables, strict=True)):
        for ax, axis in zip(axes[:, column], AXES, strict=True):
            _panel(ax, table, axis)
            ax.set(xscale="log", xlabel=AXES[axis])
            ax.margins(x=0.08)
            ax.xaxis.set_major_locator(LogLocator(10, (1.0, 3.0) if _narrow(ax) else (1.0,)))
            ax.xaxis.set_minor_formatter(NullFormatter())
        name = found.level if found.level != "language model" else "measured"
        axes[0, column].set_title(f"{pretty(found.pair)}\n{name}, {found.split}")
    for ax in axes[:, 0]:
        ax.set_ylabel("Pass@1")
    sizes = (1, 8, 64, 256)
    handles = [key(f"K = {k}", _colour(k), marker="o", markersize=5, linestyle="none") for k in sizes]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(sizes))
    return figure, pd.concat(tables, ignore_index=True)


def _colour(rollouts: int):
    return _SHADES(float(LogNorm(1, _MOST * 1.3)(min(rollouts, _MOST))))


def _panel(ax: Axes, table: pd.DataFrame, axis: str) -> None:
    for _, own in table.groupby("design", sort=False):
        colour = _colour(int(own["rollouts_each"].iloc[0]))
        ax.plot(own[axis], own["value"], color=colour, linewidth=0.8, alpha=0.5)
        ends = own[own["last"]]
        ax.plot(ends[axis], ends["value"], "o", color=colour, markersize=4.5, markeredgecolor="white", mew=0.4)
    ends = table[table["last"]]
    found = rank(ends[axis].to_numpy(), ends["value"].to_numpy())
    if np.isfinite(found):
        text = f"Spearman {found:.2f}"
        ax.text(0.03, 0.97, text, transform=ax.transAxes, va="top", fontsize=8.5, color=GREY)


def _narrow(ax: Axes) -> bool:
    """Whether an axis spans less than two powers of ten."""
    low, high = ax.get_xlim()
    return high < 100 * low
