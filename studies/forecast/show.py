"""Calibrations, forecasts and scores as tables for the terminal."""

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from rftlab.studies.console.table import Table, number, say
from rftlab.studies.data.results.claims import short
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.combine import MISFIT
from rftlab.studies.forecast.evidence import noise_text
from rftlab.studies.forecast.forecast import CLOSE, Grid, fits, knob_table
from rftlab.studies.forecast.forecasters import QUICK
from rftlab.studies.forecast.pilot.pilot import PilotMeasurements

FOUND, VAGUE = 0.5, 0.85
"""Of a knob's prior spread: below the first it was found, above the second nothing was learnt."""


SHORT_NAMES = {"simulator": "sim."}
"""Headings of narrow tables."""


def show_posterior(
    console: Console, posterior: Posterior, title: str, labels: list[str], unused: pd.DataFrame | None = None
) -> None:
    """What was found, what not, and whether it fits. labels: of the runs of the evidence; unused: `checks` of numbers
    that the calibration did not use."""
    table = Table(
        "parameter", "prior", "posterior (80%)", "spread left", "", title=f"{title}: parameters of the simulator"
    )
    for row in knob_table(posterior).itertuples():
        verdict = "simulated" if row.left < FOUND else "not identified" if row.left > VAGUE else "partly"
        table.add(
            row.knob,
            f"{row.prior:.3g} [{row.prior_low:.3g}, {row.prior_high:.3g}]",
            f"{row.median:.3g} [{row.low:.3g}, {row.high:.3g}]",
            f"{row.left:.2f}",
            verdict,
        )
    console.print(table)
    fit = Table("design", "measured", "simulated", "difference", title="does it fit? Pass@1 at the end of the runs")
    for cell, measured, simulated in zip(
        labels,
        [run.values[-1, 1] for run in posterior.evidence.runs],
        fits(posterior).T,
        strict=True,
    ):
        fit.add(
            Text(short(cell)),
            f"{measured:.3f}",
            f"{simulated.mean():.3f} [{np.quantile(simulated, 0.1):.3f}, {np.quantile(simulated, 0.9):.3f}]",
            f"{simulated.mean() - measured:+.3f}",
        )
    console.print(fit)
    for row in () if unused is None else unused.itertuples():
        say(
            console,
            f"not used by the calibration: {row.what}: measured {row.measured:.3f}, simulated "
            f"{row.simulated:.3f} [{row.low:.3f}, {row.high:.3f}]",
        )
    tempered = (
        ""
        if posterior.temperature == 1
        else f"; the likelihood was taken to the power {posterior.temperature:.2f} to keep so many"
    )
    say(
        console,
        f"{len(posterior.weights)} parameter sets were tried, {posterior.effective:.0f} of them count{tempered}",
    )


def show_grid(console: Console, grid: Grid, pilot: PilotMeasurements) -> None:
    """The forecast of every cell, the recommendation and what it saves."""
    beside = columns_beside(grid.source, grid.misfit, tuple(QUICK))
    table = Table(
        "design",
        "cost",
        "forecast",
        "80%",
        "measured",
        "best",
        *(SHORT_NAMES.get(name, name) for name in beside),
        title=f"{pilot.base.pair}: test Pass@1 after {pilot.rounds} rounds",
    )
    table.layout["padding"] = (0, 1, 0, 0)  # ten columns on a terminal of 80
    for row in grid.table.itertuples():
        chosen = row.cell == grid.recommended
        best = "" if np.isnan(row.best) else f"{row.best:.0%}"
        cells = (
            short(row.cell),
            f"{row.share:.1%}",
            f"{row.forecast:.3f}",
            f"{row.low:.3f}-{row.high:.3f}",
            number(row.measured),
            best,
        )
        table.add(
            *cells,
            *(number(getattr(row, name)) for name in beside),
            style="bold green" if chosen else "" if row.in_budget else "dim",
        )
    console.print(table)
    say_outside(console, grid.table)
    for row in grid.table[grid.table["cell"] == grid.recommended].itertuples():
        say(
            console,
            f"recommended: {short(row.cell)}, {row.forecast:.3f}; with {row.best:.0%} it is "
            f"within {CLOSE} of the best design in budget",
        )
    if not grid.recommended:
        say(console, NOTHING)
    say(
        console,
        f"the pilot cost {pilot.fraction:.1%} of the grid's rollouts; with one run of this design "
        f"{grid.saved:.0%} of them need not be spent",
    )
    say(
        console,
        f"cost = of the grid's {grid.table['rollouts'].sum() / 1000:,.0f}k rollouts; best = probability to be "
        f"within {CLOSE} of the best design in budget",
    )
    say(console, whose(grid.source, grid.misfit))
    say(console, noise_text(grid.noise))
    say(console, f"beside it: {BESIDE_TEXT}")


def say_outside(console: Console, table: pd.DataFrame) -> None:
    """A line for each reason why designs are outside what was measured."""
    for reason, own in table[table["outside"] != ""].groupby("outside", sort=False):
        cells = [short(str(cell)) for cell in own["cell"]]
        more = f" and {len(cells) - 6} more" if len(cells) > 6 else ""
        say(console, f"outside what was measured: {', '.join(cells[:6])}{more}: {reason}", "yellow")


NOTHING = "nothing is recommended: every design in budget is outside what was measured"
BESIDE_TEXT = (
    "law = one curve in rounds of effective batch (docs/law.md); still = the nearest known run; gain = the baseline "
    "and other pairs' mean gain; sigmoid = a saturating curve in rollouts"
)


def columns_beside(source: str, misfit: float, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the columns beside the recommended forecast: those of `names`, and the simulator where it was asked and
    is not the one."""
    others = () if source == "simulator" or np.isnan(misfit) else ("simulator",)
    return (*others, *(name for name in names if name != source))


def whose(source: str, misfit: float) -> str:
    """Whose forecast is recommended, and why. misfit: nan where no simulator was asked."""
    if np.isnan(misfit):
        return f"the forecast is the {source}'s; the simulator was not asked (--quick)"
    seen = f"worlds that fit end the known runs {misfit:.3f} from what was measured, on average"
    return f"the forecast is the {source}'s: {seen} (the simulator's up to {MISFIT}, else the law's)"
