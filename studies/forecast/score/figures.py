"""The figure of scores; returns a chart and a table of what it shows."""

import pandas as pd

from rftlab.studies.report.chart import (
    GREY,
    IDENTITY,
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotSeries,
    dots,
    error_bars,
    rates,
)
from rftlab.studies.report.figures import pretty

_OTHERS = {"sigmoid": ("saturating curve", MarkStyle(GREY, "", marker="x")),
           "gain": ("other pairs' gain", MarkStyle(GREY, "", marker="+", size=5))}  # fmt: skip


def score_figure(table: pd.DataFrame) -> Drawn:
    """Forecast against truth, a panel per pair, 80% intervals, a row per split; the saturating curve and other pairs'
    gains in grey."""
    pairs = list(dict.fromkeys(table["pair"]))
    panels: list[Panel | None] = []
    for split, part in table.groupby("split", sort=False):
        for pair in pairs:
            own = part[part["pair"] == pair]
            if own.empty:
                panels.append(None)
                continue
            series = [PlotSeries(own["truth"], own[name], style, text) for name, (text, style) in _OTHERS.items()]
            forecast = PlotSeries(own["truth"], own["forecast"], dots(PALETTE[0]), "forecast, 80%")
            series.append(error_bars(forecast, own["forecast_low"], own["forecast_high"]))
            error = (own["forecast"] - own["truth"]).abs().mean()
            title = f"{pretty(pair)}, {own['source'].iloc[0]}\nMAE {error:.3f}"
            panels.append(
                Panel(title, rates(f"measured {split} Pass@1"), rates("forecast"), tuple(series), (IDENTITY,))
            )
    keys = (LegendKey("forecast, 80%", dots(PALETTE[0])), *(LegendKey(text, style) for text, style in _OTHERS.values()))
    size = (max(3.1 * len(pairs) + 0.3, 5.0), 3.6 * (len(panels) // len(pairs)) + 0.7)
    return Chart(tuple(panels), size, len(pairs), keys, square=True), table
