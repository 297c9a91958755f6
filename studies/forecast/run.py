"""The command `rftlab predict`: calibrate, forecast, print, and write a figure and a page, one self-contained HTML file
with the parts of the report."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.pairs import usual_pairs
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.forecast import (
    Request,
    calibrated_to,
    check_budget,
    checks,
    fits,
    forecast_designs,
    simulated_forecast,
)
from rftlab.studies.forecast.record import design_lines
from rftlab.studies.forecast.show import NOTHING, show_forecasts, show_posterior
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
from rftlab.studies.report.draw import save_chart
from rftlab.studies.report.report import template
from rftlab.studies.report.svg import chart_html

PAGE = "forecast.html"
OWN = ("cell", "rollouts", "share", "forecast", "low", "high", "measured", "best", "in_budget", "outside")
"""Columns that the page shows in a way of its own; all others are forecasts beside it."""
TRUST = (
    "How far to trust it: not far. On two tasks of SmolLM2-135M the law was off by 0.053, `still` by 0.053 and the "
    "simulator by 0.436 (docs/forecast.md)."
)


def trust(request: Request, posterior: Posterior | None) -> list[str]:
    """How far to trust a forecast, in plain sentences; none for the pairs of `tiny`, where forecasts hold."""
    if request.evidence.imported:
        known = {run.learning_rate for run in request.evidence.runs}
        return design_lines(other_rate=bool(set(request.rates) - known - {None}))
    if request.name in usual_pairs("llm"):
        return []
    if posterior is None:
        return [TRUST]
    off = fits(posterior).mean(axis=0) - [run.values[-1, 1] for run in posterior.evidence.runs]
    return [f"{TRUST} Here the worlds that fit end the runs up to {np.abs(off).max():.3f} from what was measured."]


def run_forecast(
    console: Console,
    request: Request,
    budget: int | None,
    root: Path,
    seed: int,
    threads: int,
    quiet: bool,
    quick: bool,
) -> None:
    """Forecast, print, and write root/forecast/NAME/forecast.csv, a figure and a page. quick: without the simulator."""
    check_budget(request, budget)
    open_store(root)
    for remark in request.remarks:
        say(console, remark, "dim")
    posterior, simulated = None, None
    if not quick:
        posterior = calibrated_to(console, request, root, seed, threads, quiet)
        unused = None if request.pilot is None else checks(posterior, request.pilot)
        show_posterior(console, posterior, request.name, list(request.known), unused)
        simulated = simulated_forecast(console, request, posterior, seed, threads, quiet)
    made = forecast_designs(request, simulated, budget)
    show_forecasts(console, made, request)
    notes = trust(request, posterior)
    for note in notes:
        say(console, note, "dim")
    figure, numbers = grid_figure(made.table, request.title.replace("$", r"\$"))
    place = save_chart(figure, folder_below(root, "forecast", request.slug), "forecast", numbers)
    say(console, f"forecast: {place}")
    page = write_page(place.parent, request.title, made.table, made.recommended, [*request.remarks, *notes])
    say(console, f"page: {page}")


def grid_figure(table: pd.DataFrame, title: str) -> Drawn:
    """Forecasts of all cells, best on top, with 80% intervals; what the pilot measured as diamonds, the rollouts of
    a run beside the name."""
    numbers = table.sort_values("forecast", ignore_index=True)
    places = np.arange(len(numbers))
    forecast = PlotSeries(numbers["forecast"], places, dots(PALETTE[0]), "forecast, 80%")
    measured = PlotSeries(numbers["measured"], places, diamonds(PALETTE[3]), "measured")
    shown = (error_bars(forecast, numbers["low"], numbers["high"], along=0), measured)
    texts = [f"{short_label(row.cell)}   {row.rollouts / 1000:,.0f}k" for row in numbers.itertuples()]
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
    return row | {"design": short_label(str(row["cell"])), "name": str(row["cell"])}


def seen(table: pd.DataFrame, recommended: str) -> list[str]:
    """Return lines on the trust in the table: whether designs differ significantly, and how it fits the known ones."""
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
            f"The forecast of the {len(known)} designs that were run is {off:.3f} off on average, and the 80% interval "
            f"has {inside}. The forecast had seen them: expect larger errors of others."
        )
    return said
