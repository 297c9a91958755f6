"""Run `rftlab predict`: calibrate, forecast, print tables, and write a figure and a page.

The page is one self-contained HTML file with the parts of the report.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.paper.pairs import usual_pairs
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.finish import count_threads
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.evidence import Evidence, noise_text
from rftlab.studies.forecast.forecast import (
    CLOSE,
    DesignForecasts,
    Request,
    calibrated_to,
    check_budget,
    fits,
    forecast_designs,
    knob_table,
    spread_line,
)
from rftlab.studies.forecast.forecasters import QUICK, left_out_errors
from rftlab.studies.forecast.predict import MISFIT, forecast_from, simulated_ends
from rftlab.studies.forecast.record import design_lines
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

FOUND, VAGUE = 0.5, 0.85
"""Shares of a knob's prior spread that are left: below the first it was found, above the second nothing was learned."""


SHORT_NAMES = {"simulator": "sim."}
"""Shorter names of forecasters in the headings of narrow tables."""


def show_posterior(console: Console, posterior: Posterior, title: str) -> None:
    """Print which parameters were found, which were not, and whether the simulation fits."""
    columns = ("parameter", "prior", "posterior (80%)", Column("spread left", ".2f"), "")
    table = Table(*columns, title=f"{title}: parameters of the simulator")
    for row in knob_table(posterior).itertuples():
        verdict = "found" if row.left < FOUND else "not identified" if row.left > VAGUE else "partly"
        prior = f"{row.prior:.3g} [{row.prior_low:.3g}, {row.prior_high:.3g}]"
        table.add(row.knob, prior, f"{row.median:.3g} [{row.low:.3g}, {row.high:.3g}]", row.left, verdict)
    console.print(table)
    fit = Table("design", "measured", "simulated", "difference", title="does it fit? Pass@1 at the end of the runs")
    for run, simulated in zip(posterior.evidence.runs, fits(posterior).T, strict=True):
        mean, (low, high) = simulated.mean(), np.quantile(simulated, [0.1, 0.9])
        measured, interval = run.values[-1, 1], f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        fit.add(short_label(run.label), f"{measured:.3f}", interval, f"{mean - measured:+.3f}")
    console.print(fit)
    power = f"; the likelihood was taken to the power {posterior.temperature:.2f} to keep so many"
    tempered = "" if posterior.temperature == 1 else power
    tried = f"{len(posterior.weights)} parameter sets were tried"
    say(console, f"{tried}, {posterior.effective:.0f} of them count{tempered}")


def show_forecasts(console: Console, made: DesignForecasts, request: Request) -> None:
    """Print the forecast of every design and the recommendation; with a pilot also what it saves of the grid."""
    pilot = request.pilot
    left = {made.source} if pilot is None else {made.source, "curve", "steps"}  # more columns do not fit
    beside = [name for name in ("simulator", *QUICK) if name not in left and made.table[name].notna().any()]
    rates = [Column(SHORT_NAMES.get(name, name), ".3f") for name in beside]
    spent = Column("cost", ".1%") if pilot else Column("rollouts", ",")
    columns = ("design", spent, Column("forecast", ".3f"), "80%", Column("measured", ".3f"), Column("best", ".0%"))
    table = Table(*columns, *rates, title=f"{request.name}: test Pass@1 after {request.evidence.rounds} rounds")
    table.layout["padding"] = (0, 1, 0, 0)  # ten columns on a terminal of 80
    for row in made.table.itertuples():
        style = "bold green" if row.cell == made.recommended else "" if row.in_budget else "dim"
        cost = row.share if pilot else row.rollouts
        cells = (short_label(row.cell), cost, row.forecast, f"{row.low:.2f}-{row.high:.2f}", row.measured, row.best)
        table.add(*cells, *(getattr(row, name) for name in beside), style=style)
    console.print(table)
    say_outside(console, made.table)
    near = f"within {CLOSE} of the best design in budget"
    near += " and within what was measured" * bool((made.table["outside"] != "").any())
    for row in made.table[made.table["cell"] == made.recommended].itertuples():
        likely = "" if np.isnan(row.best) else f"; with {row.best:.0%} it is {near}"
        say(console, f"recommended: {short_label(row.cell)}, {row.forecast:.3f}{likely}")
    if not made.recommended:
        say(console, NOTHING)
    best = f"best = probability to be {near}"
    if pilot:
        cost = f"the pilot cost {pilot.fraction:.1%} of the grid's rollouts; with one run of this design"
        say(console, f"{cost} {saved_share(made, request):.0%} of them need not be spent")
        best = f"cost = of the grid's {made.table['rollouts'].sum() / 1000:,.0f}k rollouts; {best}"
    say(console, best)
    say(console, whose(made.source, made.misfit))
    if pilot:  # else it is one of the remarks
        say(console, noise_text(request.evidence.noise))
    say(console, f"beside it: {BESIDE_TEXT}")


def saved_share(made: DesignForecasts, request: Request) -> float:
    """Return the share of the grid's rollouts that need not be spent, nan without a pilot. Spent are those of the
    pilot, and those of one run of the recommended design where the pilot has none."""
    if request.pilot is None:
        return float("nan")
    chosen = made.table[(made.table["cell"] == made.recommended) & made.table["measured"].isna()]
    return 1 - request.pilot.fraction - float(chosen["share"].sum())


def say_outside(console: Console, table: pd.DataFrame) -> None:
    """Print a line for each reason why designs are outside what was measured."""
    for reason, own in table[table["outside"] != ""].groupby("outside", sort=False):
        cells = [short_label(str(cell)) for cell in own["cell"]]
        more = f" and {len(cells) - 6} more" if len(cells) > 6 else ""
        say(console, f"outside what was measured: {', '.join(cells[:6])}{more}: {reason}", "yellow")


NOTHING = "nothing is recommended: every design in budget is outside what was measured"
BESIDE_TEXT = (
    "law = one curve in rounds of effective batch; curve = the nearest known run, where it had learned for as long; "
    "steps = the same at equal rate x rounds. still = the end of the nearest known run; gain = the baseline and other "
    "pairs' mean gain; sigmoid = a saturating curve in rollouts (docs/forecast.md)"
)


def whose(source: str, misfit: float) -> str:
    """Say whose forecast is recommended, and why. misfit: nan where no simulator was asked."""
    if source == "curve":
        return "the forecast is the known curve's, which is what runs of pre-trained models are forecast by"
    if np.isnan(misfit):
        return f"the forecast is the {source}'s; the simulator was not asked (--quick)"
    seen = f"worlds that fit end the known runs {misfit:.3f} from what was measured, on average"
    return f"the forecast is the {source}'s: {seen} (the simulator's up to {MISFIT}, else the law's)"


PAGE = "forecast.html"
OWN = ("cell", "rollouts", "share", "forecast", "low", "high", "measured", "best", "in_budget", "outside")
"""Columns that are no forecasts of other methods; the page shows each in a way of its own."""
TRUST = (
    "How far to trust it: not far. On two tasks of SmolLM2-135M the law was off by 0.053, `still` by 0.053 and the "
    "simulator by 0.436 (docs/forecast.md)."
)


def left_out_text(evidence: Evidence) -> str:
    """Say how well the law forecasts each known run from the others."""
    law, mean = left_out_errors(evidence)
    if np.isnan(law):
        return "Fewer than three runs are known, so that the law is not tested on them."
    said = f"Each known run forecast from the others: the law is {law:.3f} off, and the others' mean end {mean:.3f}."
    alike = " The designs that were run end alike, and what the law says of other designs is a guess."
    return said + alike * (law >= mean)


def trust(request: Request, posterior: Posterior | None) -> list[str]:
    """Return sentences on how far to trust a forecast; none for the pairs of `tiny`, where forecasts hold."""
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
    for remark in request.evidence.remarks:
        say(console, remark, "dim")
    posterior, simulated = None, None
    if not quick:
        posterior = calibrated_to(console, request, root, seed, threads, quiet)
        show_posterior(console, posterior, request.name)
        if request.pilot is not None:
            say(console, spread_line(posterior, request.pilot))
        designs = tuple(request.designs.values())
        with step_progress(console, "forecasting", quiet) as step:
            ends = simulated_ends(posterior, designs, count_threads(threads), step)
        simulated = forecast_from(posterior, designs, ends, request.evidence.questions, seed)
    made = forecast_designs(request, simulated, budget)
    show_forecasts(console, made, request)
    notes = trust(request, posterior) + [left_out_text(request.evidence)] * (made.source == "law")
    for note in notes:
        say(console, note, "dim")
    figure, numbers = grid_figure(made.table, request.title.replace("$", r"\$"))
    place = save_chart(figure, folder_below(root, "forecast", request.slug), "forecast", numbers)
    say(console, f"forecast: {place}")
    page = write_page(place.parent, request.title, made.table, made.recommended, [*request.evidence.remarks, *notes])
    say(console, f"page: {page}")


def grid_figure(table: pd.DataFrame, title: str) -> Drawn:
    """Return a chart of the forecasts of all cells, best on top, with 80% intervals, and its numbers. Diamonds are what
    the pilot measured; beside a name are the rollouts of a run."""
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
    """Write folder/forecast.html and return its path; the figure's files lie beside it. table: a row a design, as
    `DesignForecasts.table`. recommended: "" for none. notes: sentences on how far to trust it."""
    chart, _ = grid_figure(table, "")
    context = {
        "title": title,
        "figures": {"forecast": Markup(chart_html(chart))},
        "rows": [_row(row) for row in table.sort_values("forecast", ascending=False).to_dict("records")],
        "chosen": next((_row(row) for row in table[table["cell"] == recommended].to_dict("records")), None),
        "nothing": NOTHING,
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
    """Return the columns of other forecasts with a value, and whether the table has NAME_low and NAME_high of each."""
    others = [str(name) for name in table if name not in OWN and table[name].notna().any()]
    bounds = {f"{name}_{end}" for name in others for end in ("low", "high")}
    return {name: f"{name}_low" in others for name in others if name not in bounds}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"design": short_label(str(row["cell"])), "name": str(row["cell"])}


def seen(table: pd.DataFrame, recommended: str) -> list[str]:
    """Return sentences on whether the recommended design differs significantly, and on the fit to known designs."""
    own = table.set_index("cell").loc[recommended]
    within = table[table["in_budget"] & (table["cell"] != recommended)]
    level = int((within["high"] >= own["low"]).sum())
    said = [
        f"The 80% intervals of {level} of {len(within)} other designs in budget reach into that of the recommended "
        f"one: {'it is not told apart from them' if level else 'it stands alone'}."
    ] * bool(len(within))
    known = table.dropna(subset=["measured"])
    if len(known):
        off = float(np.abs(known["forecast"] - known["measured"]).mean())
        inside = int(((known["low"] <= known["measured"]) & (known["measured"] <= known["high"])).sum())
        said.append(
            f"The forecast of the {len(known)} designs that were run is {off:.3f} off on average, and the 80% interval "
            f"has {inside}. The forecast had seen them: expect larger errors of others."
        )
    return said
