"""The figure of scores. Drawn like those of studies/report/figures.py; returns the figure and a table of what it
shows."""

from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from rftlab.studies.report.figures import DOT, GREY, PALETTE, Drawn, key, pretty, styled


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
