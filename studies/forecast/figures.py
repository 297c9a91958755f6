"""The figure of forecasts; returns a chart and a table of what it shows."""

import numpy as np
import pandas as pd

from rftlab.studies.data.results.claims import short
from rftlab.studies.report.chart import (
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    Panel,
    PlotSeries,
    diamonds,
    dots,
    error_bars,
    names,
    rates,
)


def grid_figure(table: pd.DataFrame, title: str) -> Drawn:
    """Forecasts of all cells, best on top, with 80% intervals; what the pilot measured as diamonds, the rollouts of
    a run beside the name."""
    numbers = table.sort_values("forecast", ignore_index=True)
    places = np.arange(len(numbers))
    forecast = PlotSeries(numbers["forecast"], places, dots(PALETTE[0]), "forecast, 80%")
    measured = PlotSeries(numbers["measured"], places, diamonds(PALETTE[3]), "measured")
    shown = (error_bars(forecast, numbers["low"], numbers["high"], along=0), measured)
    texts = [f"{short(row.cell)}   {row.rollouts / 1000:,.0f}k" for row in numbers.itertuples()]
    panel = Panel(title, rates("test Pass@1 after training"), names("", texts), shown)
    keys = tuple(LegendKey(one.name, one.style) for one in shown)
    return Chart((panel,), (7.2, 0.24 * len(numbers) + 1.4), keys=keys), numbers
