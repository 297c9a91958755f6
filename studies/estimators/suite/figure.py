"""Draw the profile of estimators: their score on each task, over the scores of the table of record."""

import numpy as np
import pandas as pd

from rftlab.studies.estimators.suite.scores import best_rows
from rftlab.studies.estimators.suite.tasks import FIXED, TASKS
from rftlab.studies.report.chart import (
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    colours,
    dots,
    error_bars,
    names,
    rule_at,
)

LOWEST, HIGHEST = -0.6, 1.2
"""Ends of the axis of scores; scores beyond are drawn at the edge."""
SPREAD = 0.3
"""Largest distance of a mark from its task's line."""
MOST = 8
"""Largest number of estimators with a colour and a place in the legend."""


def suite_profile(tasks: pd.DataFrame, known: pd.DataFrame) -> Drawn:
    """Draw the scores of `rftlab.studies.estimators.suite.scores.profile` over those of the record: at the fixed rate
    with 95% intervals, and at the best of three rates."""
    shown = list(dict.fromkeys(tasks["estimator"]))[:MOST]
    order = [task for task in TASKS if task in set(tasks["task"])]
    parts = [("fixed rate", lambda rows: rows[rows["rate"] == FIXED]), ("best of three rates", best_rows)]
    panels = tuple(_panel(title, chosen(tasks), chosen(known), shown, order) for title, chosen in parts)
    keys = [LegendKey(name, dots(colour)) for name, colour in zip(shown, colours(len(shown)), strict=True)]
    keys.append(LegendKey("table of record", _others()))
    size = (7.2, 1.3 + 0.32 * len(order))
    return Chart(panels, size, len(panels), tuple(keys), share_y="all"), tasks


def _others() -> MarkStyle:
    return MarkStyle("#bbbbbb", "", marker="|", size=7.0, width=1.0)


def _panel(title: str, tasks: pd.DataFrame, known: pd.DataFrame, shown: list[str], order: list[str]) -> Panel:
    places = {task: place for place, task in enumerate(order)}
    series = [PlotSeries(*_marks(known[known["task"].isin(order)], places, 0.0), _others(), "table of record")]
    for i, (name, colour) in enumerate(zip(shown, colours(len(shown)), strict=True)):
        own = tasks[tasks["estimator"] == name]
        shift = SPREAD * (2 * i / (len(shown) - 1) - 1) if len(shown) > 1 else 0.0
        half = own["half"].to_numpy()
        one = PlotSeries(*_marks(own, places, shift), dots(colour), name)
        low, high = (np.clip(own["score"] + sign * half, LOWEST, HIGHEST) for sign in (-1, 1))
        series.append(error_bars(one, low, high, along=0))
    x = PlotAxis("score: 0 untrained, 1 with 16 x the rollouts", low=LOWEST, high=HIGHEST)
    return Panel(title, x, names("", order, downward=True), tuple(series), (rule_at(0.0), rule_at(1.0)))


def _marks(rows: pd.DataFrame, places: dict[str, int], shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores, clipped to the axis, and the places of rows."""
    return np.clip(rows["score"].to_numpy(), LOWEST, HIGHEST), rows["task"].map(places).to_numpy() + shift
