"""The league's figure: how far each entrant is from GRPO, with corrected intervals, at equal rounds and at equal
rollouts."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rftlab.studies.cards import CARDS
from rftlab.studies.league.league import BUDGETS
from rftlab.studies.report.figures import GREY, PALETTE, Drawn, styled

_TITLES = {"rounds": "at equal rounds", "rollouts": "at equal rollouts"}


@styled
def league(ranked: pd.DataFrame) -> Drawn:
    """Rows of `rftlab.studies.league.league.table`: one line per entrant, in the order at equal rollouts; the dashed
    line is the minimalist baseline."""
    order = list(ranked[ranked["budget"] == "rollouts"]["entrant"])
    colours = dict(zip(dict.fromkeys(CARDS[name].family for name in CARDS if name in order), PALETTE, strict=False))
    figure = Figure(figsize=(8.6, 1.3 + 0.165 * len(order)))
    axes = figure.subplots(1, len(BUDGETS), sharey=True)
    for ax, budget in zip(axes, BUDGETS, strict=True):
        _panel(ax, ranked[ranked["budget"] == budget].set_index("entrant").loc[order], colours)
        ax.set(title=_TITLES[budget], xlabel="test Pass@1 minus GRPO's")
    axes[0].set_yticks(range(len(order)), order, fontsize=8)
    axes[0].set_ylim(len(order) - 0.4, -0.6)
    handles = [
        Line2D([], [], marker="o", markersize=5, linestyle="none", color=colour, label=family)
        for family, colour in colours.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5)
    return figure, ranked


def _panel(ax: Axes, part: pd.DataFrame, colours: dict[str, str]) -> None:
    ax.axvline(0, color=GREY, linewidth=1)
    if "minimalist" in part.index:
        ax.axvline(part.loc["minimalist", "vs_grpo"], color=GREY, linewidth=1, linestyle="--")
    for place, row in enumerate(part.itertuples()):
        colour = colours[row.family]
        if row.Index == "grpo":
            ax.plot(0, place, marker="D", color=colour, markersize=4.5, linestyle="none")
        elif np.isnan(row.vs_grpo):
            ax.annotate(
                "diverged", (0, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5, color=GREY
            )
        else:
            ax.plot(
                [row.vs_grpo_low, row.vs_grpo_high], [place, place], color=colour, linewidth=1.3, solid_capstyle="butt"
            )
            ax.plot(row.vs_grpo, place, marker="o", color=colour, markersize=4, linestyle="none")
    ax.grid(axis="y", linewidth=0.4)
