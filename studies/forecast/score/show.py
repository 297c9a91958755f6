"""Scores as tables for the terminal, and as a figure."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.studies.console.table import Table, number, say
from rftlab.studies.forecast.law.curve import LEVEL
from rftlab.studies.forecast.law.ranked import rank_agreement
from rftlab.studies.forecast.score.score import SOURCES
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


def show_scores(console: Console, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Errors per pair and over all, a table each for a split."""
    for split, part in table.groupby("split", sort=False):
        say(console, f"mean absolute error of {split} Pass@1 on held-out cells", "italic")
        console.print(_by_pair(part))
        head = ("error", f"{LEVEL:.0%} covers", "Spearman", "regret", "error more than the forecast's (95%)")
        over = Table("", *head, title=f"{split}, over pairs")
        for row in summary[summary["split"] == split].itertuples():
            interval = "" if np.isnan(row.excess_low) else f" [{row.excess_low:+.3f}, {row.excess_high:+.3f}]"
            more = "" if row.forecast == "forecast" else f"{row.excess:+.3f}{interval}"
            covered = "" if np.isnan(row.covered) else f"{row.covered:.0%}"
            numbers = (f"{row.mae:.3f}", covered, number(row.spearman, 2), f"{row.regret:.3f}", more)
            over.add(row.forecast, *numbers)
        console.print(over)
    say(console, "forecast: the recommended one, whose it is: simulator, law or curve")


def _by_pair(part: pd.DataFrame) -> Table:
    """A column for each pair, because there are fewer pairs than forecasts: six fit 80 columns."""
    pairs = dict(list(part.groupby("pair", sort=False)))
    table = Table("", *(name.replace(" ", "\n", 1).replace("-", "\n") for name in pairs))
    rows: dict[str, Callable[[pd.DataFrame], str]] = {"cells": lambda own: str(len(own))}
    rows["whose"] = lambda own: own["source"].iloc[0]
    for name in SOURCES:
        rows[name] = partial(_error, name)
    rows[f"{LEVEL:.0%} covers"] = lambda own: f"{own['forecast_covered'].mean():.0%}"
    rows["Spearman"] = lambda own: number(rank_agreement(own["forecast"], own["truth"]), 2)
    for name, said in rows.items():
        cells = [said(own) for own in pairs.values()]
        if any(cells):
            table.add(name, *cells)
    return table


def _error(name: str, own: pd.DataFrame) -> str:
    """Mean absolute error of a forecast; nothing where there is none."""
    return number(float((own[name] - own["truth"]).abs().mean()))


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
