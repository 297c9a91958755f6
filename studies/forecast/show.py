"""Calibrations, forecasts and scores as tables for the terminal."""

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.combine import MISFIT
from rftlab.studies.forecast.evidence import noise_text
from rftlab.studies.forecast.forecast import CLOSE, DesignForecasts, Request, fits, knob_table
from rftlab.studies.forecast.forecasters import QUICK

FOUND, VAGUE = 0.5, 0.85
"""Shares of a knob's prior spread: below the first it was found, above the second nothing was learned."""


SHORT_NAMES = {"simulator": "sim."}
"""Headings of narrow tables."""


def show_posterior(
    console: Console, posterior: Posterior, title: str, labels: list[str], unused: pd.DataFrame | None = None
) -> None:
    """Print which parameters were found, which were not, and whether the simulation fits. labels: of the runs of the
    evidence; unused: `checks` of numbers that the calibration did not use."""
    columns = ("parameter", "prior", "posterior (80%)", Column("spread left", ".2f"), "")
    table = Table(*columns, title=f"{title}: parameters of the simulator")
    for row in knob_table(posterior).itertuples():
        verdict = "found" if row.left < FOUND else "not identified" if row.left > VAGUE else "partly"
        prior = f"{row.prior:.3g} [{row.prior_low:.3g}, {row.prior_high:.3g}]"
        table.add(row.knob, prior, f"{row.median:.3g} [{row.low:.3g}, {row.high:.3g}]", row.left, verdict)
    console.print(table)
    fit = Table("design", "measured", "simulated", "difference", title="does it fit? Pass@1 at the end of the runs")
    ends = [run.values[-1, 1] for run in posterior.evidence.runs]
    for cell, measured, simulated in zip(labels, ends, fits(posterior).T, strict=True):
        mean, (low, high) = simulated.mean(), np.quantile(simulated, [0.1, 0.9])
        interval = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        fit.add(Text(short_label(cell)), f"{measured:.3f}", interval, f"{mean - measured:+.3f}")
    console.print(fit)
    for row in () if unused is None else unused.itertuples():
        simulated = f"simulated {row.simulated:.3f} [{row.low:.3f}, {row.high:.3f}]"
        say(console, f"not used by the calibration: {row.what}: measured {row.measured:.3f}, {simulated}")
    power = f"; the likelihood was taken to the power {posterior.temperature:.2f} to keep so many"
    tempered = "" if posterior.temperature == 1 else power
    tried = f"{len(posterior.weights)} parameter sets were tried"
    say(console, f"{tried}, {posterior.effective:.0f} of them count{tempered}")


def show_forecasts(console: Console, made: DesignForecasts, request: Request) -> None:
    """The forecast of every design and the recommendation; with a pilot what it saves of the grid."""
    pilot = request.pilot
    names = tuple(name for name in QUICK if pilot is None or name not in ("curve", "steps"))  # more do not fit
    beside = [name for name in columns_beside(made.source, made.misfit, names) if made.table[name].notna().any()]
    rates = [Column(SHORT_NAMES.get(name, name), ".3f") for name in beside]
    spent = Column("cost", ".1%") if pilot else Column("rollouts", ",")
    columns = ("design", spent, Column("forecast", ".3f"), "80%", Column("measured", ".3f"), Column("best", ".0%"))
    table = Table(*columns, *rates, title=f"{request.name}: test Pass@1 after {request.rounds} rounds")
    table.layout["padding"] = (0, 1, 0, 0)  # ten columns on a terminal of 80
    for row in made.table.itertuples():
        style = "bold green" if row.cell == made.recommended else "" if row.in_budget else "dim"
        cost = row.share if pilot else row.rollouts
        cells = (short_label(row.cell), cost, row.forecast, f"{row.low:.3f}-{row.high:.3f}", row.measured, row.best)
        table.add(*cells, *(getattr(row, name) for name in beside), style=style)
    console.print(table)
    say_outside(console, made.table)
    near = f"within {CLOSE} of the best design in budget"
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
    """Share of the grid's rollouts that need not be spent: all but the pilot's and one run of the recommended design,
    where the pilot has none. nan without a pilot."""
    if request.pilot is None:
        return float("nan")
    chosen = made.table[(made.table["cell"] == made.recommended) & made.table["measured"].isna()]
    return 1 - request.pilot.fraction - float(chosen["share"].sum())


def say_outside(console: Console, table: pd.DataFrame) -> None:
    """A line for each reason why designs are outside what was measured."""
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


def columns_beside(source: str, misfit: float, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the columns beside the recommended forecast: those of `names`, and the simulator where it was asked and
    is not the one."""
    others = () if source == "simulator" or np.isnan(misfit) else ("simulator",)
    return (*others, *(name for name in names if name != source))


def whose(source: str, misfit: float) -> str:
    """Whose forecast is recommended, and why. misfit: nan where no simulator was asked."""
    if source == "curve":
        return "the forecast is the known curve's, which is what runs of pre-trained models are forecast by"
    if np.isnan(misfit):
        return f"the forecast is the {source}'s; the simulator was not asked (--quick)"
    seen = f"worlds that fit end the known runs {misfit:.3f} from what was measured, on average"
    return f"the forecast is the {source}'s: {seen} (the simulator's up to {MISFIT}, else the law's)"
