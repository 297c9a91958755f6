"""Figures of forecasts. Drawn like those of studies/report/figures.py; each returns the figure and a table of what
it shows."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rftlab.studies.report.figures import DOT, HOLLOW, PALETTE, Drawn, key, styled
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
