"""The page of a forecast, one self-contained HTML file with the parts of the report, and its figure."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from rftlab.shared.plumbing.files import write_file
from rftlab.studies.data.results.claims import short
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.forecast.show import NOTHING
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
from rftlab.studies.report.report import template
from rftlab.studies.report.svg import chart_html

PAGE = "forecast.html"
OWN = ("cell", "rollouts", "share", "forecast", "low", "high", "measured", "best", "in_budget", "outside")
"""Columns that the page shows in a way of its own; all others are forecasts beside it."""


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


def write_page(folder: Path, title: str, table: pd.DataFrame, recommended: str, notes: list[str]) -> Path:
    """Write folder/forecast.html and return its path; the figure's files lie beside it.

    table: a row a design, as `DesignForecasts.table`; columns that are not known are shown as forecasts
    beside. recommended: "" for none. notes: sentences on how far to trust it.
    """
    chart, _ = grid_figure(table, "")
    context = {
        "title": title,
        "figures": {"forecast": Markup(chart_html(chart))},
        "rows": [_row(row) for row in table.sort_values("forecast", ascending=False).to_dict("records")],
        "chosen": next((_row(row) for row in table[table["cell"] == recommended].to_dict("records")), None),
        "nothing": NOTHING,
        "shown": {name: name in table for name in OWN},
        "beside": other_forecasts(table),
        "facets": {},
        "trust": [*(seen(table, recommended) if recommended else []), *notes],
        "about": {"commit": commit(), **versions()},
    }
    text = template("forecast.html.j2").render(context)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / PAGE, text.encode())
    return folder / PAGE


def other_forecasts(table: pd.DataFrame) -> dict[str, bool]:
    """Columns of other forecasts that say anything, and whether the table has their interval, NAME_low to NAME_high."""
    others = [str(name) for name in table if name not in OWN and table[name].notna().any()]
    bounds = {f"{name}_{end}" for name in others for end in ("low", "high")}
    return {name: f"{name}_low" in others for name in others if name not in bounds}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"design": short(str(row["cell"])), "name": str(row["cell"])}


def seen(table: pd.DataFrame, recommended: str) -> list[str]:
    """What the table itself says about its trust: whether designs are told apart, and how it meets the known ones."""
    own = table.set_index("cell").loc[recommended]
    within = table[table["in_budget"] & (table["cell"] != recommended)]
    level = int((within["high"] >= own["low"]).sum())
    said = [
        f"The 80% intervals of {level} of {len(within)} other designs in budget reach into that of the recommended "
        f"one: {'it is not told apart from them' if level else 'it stands alone'}."
    ]
    known = table.dropna(subset=["measured"])
    if len(known):
        off = float(np.abs(known["forecast"] - known["measured"]).mean())
        inside = int(((known["low"] <= known["measured"]) & (known["measured"] <= known["high"])).sum())
        said.append(
            f"Of the {len(known)} designs that were run the forecast is {off:.3f} off on average, and the 80% interval "
            f"has {inside}. The forecast had seen them: of others expect more."
        )
    return said
