"""The league's figure: how far each entrant is from GRPO, with corrected intervals, at equal rounds and at equal
rollouts."""

import numpy as np
import pandas as pd

from rftlab.shared.cards import CARDS
from rftlab.studies.estimators.league.league import BUDGETS
from rftlab.studies.report.chart import (
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    dots,
    error_bars,
    names,
    rule_at,
)

_TITLES = {"rounds": "at equal rounds", "rollouts": "at equal rollouts"}


def league(ranked: pd.DataFrame) -> Drawn:
    """Rows of `rftlab.studies.estimators.league.league.table`: one line per entrant, in the order at equal rollouts;
    the dashed line is the minimalist baseline."""
    order = list(ranked[ranked["budget"] == "rollouts"]["entrant"])
    colours = dict(zip(dict.fromkeys(CARDS[name].family for name in CARDS if name in order), PALETTE, strict=False))
    parts = [ranked[ranked["budget"] == budget].set_index("entrant").loc[order] for budget in BUDGETS]
    panels = tuple(_panel(_TITLES[budget], part, colours) for budget, part in zip(BUDGETS, parts, strict=True))
    keys = tuple(LegendKey(family, dots(colour)) for family, colour in colours.items())
    return Chart(panels, (8.6, 1.3 + 0.165 * len(order)), len(panels), keys, share_y="all"), ranked


def _panel(title: str, part: pd.DataFrame, colours: dict[str, str]) -> Panel:
    shapes = [rule_at(0.0, MarkStyle(width=1.0))]
    if "minimalist" in part.index:
        shapes.append(rule_at(part.loc["minimalist", "vs_grpo"]))
    series, places = [], np.arange(len(part))
    for family, colour in colours.items():
        own = (part["family"] == family).to_numpy() & (part.index != "grpo")
        one = PlotSeries(part["vs_grpo"][own], places[own], dots(colour), family)
        series.append(error_bars(one, part["vs_grpo_low"][own], part["vs_grpo_high"][own], along=0))
    if "grpo" in part.index:
        place = list(part.index).index("grpo")
        series.append(
            PlotSeries([0.0], [place], MarkStyle(colours[part.loc["grpo", "family"]], "", marker="D"), "grpo")
        )
    lost = [place for place, value in zip(places, part["vs_grpo"], strict=True) if np.isnan(value)]
    remarks = tuple(Remark(0.0, float(place), "diverged") for place in lost if part.index[place] != "grpo")
    y = names("", list(part.index), downward=True)
    return Panel(title, PlotAxis("test Pass@1 minus GRPO's"), y, tuple(series), tuple(shapes), remarks)
