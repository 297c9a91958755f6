"""Figures of forecasts. Drawn like those of studies/report/figures.py; each returns the figure and a table of what
it shows."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rftlab.studies.report.figures import DOT, GREY, HOLLOW, PALETTE, Drawn, key, pretty, styled
from rftlab.studies.results.claims import short

_TRUTH = PALETTE[3]


@styled
def grid_figure(table: pd.DataFrame, title: str) -> Drawn:
    """Forecasts of all cells, best on top, with 80% intervals; what the pilot measured as diamonds, the rollouts of
    a run beside the name."""
    numbers = table.sort_values("forecast", ignore_index=True)
    figure = Figure(figsize=(7.2, 0.24 * len(numbers) + 1.1))
    ax = figure.subplots()
    places = np.arange(len(numbers))
    ax.hlines(places, numbers["low"], numbers["high"], color=PALETTE[0], linewidth=3, alpha=0.35)
    ax.plot(numbers["forecast"], places, linestyle="none", color=PALETTE[0], **DOT)
    ax.plot(numbers["measured"], places, color=_TRUTH, **HOLLOW)
    ax.set_yticks(places, [f"{short(row.cell)}   {row.rollouts / 1000:,.0f}k" for row in numbers.itertuples()])
    ax.set(
        title=title,
        xlabel="test Pass@1 after training",
        xlim=(0, 1),
        ylim=(-0.7, len(numbers) - 0.3),
    )
    ax.legend(
        handles=[key("forecast, 80%", PALETTE[0], **DOT), key("measured", _TRUTH, **HOLLOW)],
        loc="lower right",
    )
    return figure, numbers


@styled
def score_figure(table: pd.DataFrame) -> Drawn:
    """Forecast against truth, a panel per pair, 80% intervals, a row per split; the saturating curve and other pairs'
    gains in grey."""
    pairs, splits = list(dict.fromkeys(table["pair"])), list(dict.fromkeys(table["split"]))
    figure = Figure(figsize=(max(3.1 * len(pairs) + 0.3, 5.0), 3.6 * len(splits) + 0.7))
    grid = figure.subplots(len(splits), len(pairs), sharex=True, sharey=True, squeeze=False)
    for ax, (split, pair) in zip(grid.flat, product(splits, pairs), strict=True):
        own = table[(table["pair"] == pair) & (table["split"] == split)]
        error = (own["forecast"] - own["truth"]).abs().mean()
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        ax.plot(own["truth"], own["sigmoid"], "x", color=GREY, markersize=4, alpha=0.7)
        ax.plot(own["truth"], own["gain"], "+", color=GREY, markersize=5, alpha=0.7)
        ax.vlines(own["truth"], own["forecast_low"], own["forecast_high"], color=PALETTE[0], alpha=0.35, linewidth=2)
        ax.plot(own["truth"], own["forecast"], linestyle="none", color=PALETTE[0], **DOT)
        ax.set(
            title=f"{pretty(pair)}, {own['source'].iloc[0]}\nMAE {error:.3f}",
            xlabel=f"measured {split} Pass@1",
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )
    for axes in grid:
        axes[0].set_ylabel("forecast")
    handles = [
        key("forecast, 80%", PALETTE[0], **DOT),
        key("saturating curve", GREY, marker="x", linestyle="none"),
        key("other pairs' gain", GREY, marker="+", linestyle="none"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure, table
