"""Scores as tables for the terminal."""

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.studies.console.tables import number, plain_table, say
from rftlab.studies.forecast.plain import LEVEL
from rftlab.studies.score.score import SOURCES, rank_agreement


def show_scores(console: Console, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Errors per pair and over all, a table each for a split."""
    for split, part in table.groupby("split", sort=False):
        names = [name for name in SOURCES if part[name].notna().any()]
        columns = ("pair", "cells", "whose", *names, f"{LEVEL:.0%} covers", "Spearman")
        by_pair = plain_table(f"mean absolute error of {split} Pass@1 on held-out cells", *columns)
        for pair, own in part.groupby("pair", sort=False):
            errors = (number(float((own[name] - own["truth"]).abs().mean())) for name in names)
            covered = f"{own['forecast_covered'].mean():.0%}"
            rank = rank_agreement(own["forecast"], own["truth"])
            by_pair.add_row(pair, str(len(own)), own["source"].iloc[0], *errors, covered, number(rank, 2))
        console.print(by_pair)
        head = ("error", f"{LEVEL:.0%} covers", "Spearman", "regret", "error more than the forecast's (95%)")
        over = plain_table(f"{split}, over pairs", "", *head)
        for row in summary[summary["split"] == split].itertuples():
            interval = "" if np.isnan(row.excess_low) else f" [{row.excess_low:+.3f}, {row.excess_high:+.3f}]"
            more = "" if row.forecast == "forecast" else f"{row.excess:+.3f}{interval}"
            covered = "" if np.isnan(row.covered) else f"{row.covered:.0%}"
            numbers = (f"{row.mae:.3f}", covered, number(row.spearman, 2), f"{row.regret:.3f}", more)
            over.add_row(row.forecast, *numbers)
        console.print(over)
    say(console, "forecast: the recommended one, whose it is: simulator or law; halfway: the mean of these two")
