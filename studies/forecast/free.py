"""`rftlab predict` of imported runs: free designs, and how far to trust a forecast of them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import Table, say
from rftlab.studies.data.runs.finish import threads_of
from rftlab.studies.data.runs.progress import steps_of
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.asked import FreeDesign, designs_from
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.combine import ForecastSource, best_of, outside, recommended
from rftlab.studies.forecast.forecast import fits, fitted
from rftlab.studies.forecast.forecasters import forecast_columns, forecasts_at
from rftlab.studies.forecast.imported import (
    Imported,
    check_calibration,
    imported_evidence,
    rates_of,
)
from rftlab.studies.forecast.law.curve import bare
from rftlab.studies.forecast.page import grid_figure, write_page
from rftlab.studies.forecast.predict import Forecast, predict
from rftlab.studies.forecast.show import BESIDE_TEXT, NOTHING, columns_beside, say_outside, show_posterior, whose
from rftlab.studies.report.draw import save

TRUST = (
    "How far to trust it: not far. On two tasks of SmolLM2-135M the law was off by 0.053, `still` by 0.053 and the "
    "simulator by 0.436; on public runs the law was no better than `still`, but at other learning rates "
    "(docs/predict.md)."
)


def _opened(console: Console, found: Imported, root: Path) -> None:
    open_store(root)
    for remark in found.remarks:
        say(console, remark, "dim")


def _posterior(console: Console, found: Imported, root: Path, seed: int, threads: int, quiet: bool) -> Posterior:
    _opened(console, found, root)
    return fitted(console, found.slug, found.evidence, root, seed, threads, quiet)


def trust(posterior: Posterior) -> str:
    """In plain sentences, with what this calibration itself shows."""
    off = fits(posterior).mean(axis=0) - [run.values[-1, 1] for run in posterior.evidence.runs]
    return f"{TRUST} Here the worlds that fit end the runs up to {np.abs(off).max():.3f} from what was measured."


class FreeForecast(NamedTuple):
    """Forecasts of free designs."""

    table: pd.DataFrame
    """A row a design: cell (BxK or BxK@RATE), rollouts, forecast, low, high (80%), measured (nan where no run has it),
    in_budget, outside (why it is beyond what was measured, "" where it is not), simulator, law, still, gain,
    sigmoid."""
    recommended: str
    """The best in budget; "" where all are outside what was measured."""
    source: ForecastSource
    """Whose forecast is in the column of that name."""
    misfit: float
    """Of the simulator at the ends of the known runs; nan where it was not asked."""


def predict_imported(
    console: Console,
    name: str,
    texts: tuple[str, ...],
    budget: int | None,
    root: Path,
    seed: int,
    threads: int,
    quiet: bool,
    quick: bool = False,
    base: float | None = None,
    questions: int | None = None,
) -> None:
    """Forecast designs BxK or BxK@RATE, print, write root/forecast/NAME/forecast.csv and a figure. quick: without the
    simulator, which knows one learning rate alone. base, questions: as `imported_evidence` takes them."""
    found = imported_evidence(name, root, base, questions)
    asked = designs_from(texts, found, quick)
    designs = tuple(one.design for one in asked)
    if not quick:
        check_calibration(found)
        named = [one.label for one in asked if one.learning_rate is not None]
        check(not named, f"designs {', '.join(named)}: the simulator forecasts at the runs' learning rate; add --quick")
    least = min(design.round_rollouts * design.rounds for design in designs)
    check(budget is None or budget >= least, f"budget = {budget} rollouts; allowed: {least} or more with these designs")
    simulated, notes = None, [TRUST]
    if quick:
        _opened(console, found, root)
    else:
        posterior = _posterior(console, found, root, seed, threads, quiet)
        show_posterior(console, posterior, name, list(found.labels))
        notes = [trust(posterior)]
        with steps_of(console, "forecasting", quiet) as step:
            simulated = predict(posterior, designs, found.questions, seed, threads_of(threads), step)
    made = _table(found, asked, simulated, budget)
    show(console, made, found)
    say(console, notes[0], "dim")
    figure, numbers = grid_figure(made.table, f"{name}: forecast".replace("$", r"\$"))
    place = save(figure, folder_below(root, "forecast", found.slug), "forecast", numbers)
    say(console, f"forecast: {place}")
    page = write_page(place.parent, f"{name}: forecast", made.table, made.recommended, [*found.remarks, *notes])
    say(console, f"page: {page}")


def _table(
    found: Imported, asked: tuple[FreeDesign, ...], simulated: Forecast | None, budget: int | None
) -> FreeForecast:
    designs, rates = (tuple(column) for column in zip(*asked, strict=True))
    measured = _measured(found)
    forecasts = forecasts_at(found.evidence, designs, rates)
    far = outside(found.evidence, designs, rates, "test")
    source, forecast = recommended(simulated, forecasts["law"], far)
    table = pd.DataFrame(
        {
            "cell": [one.label for one in asked],
            "rollouts": [design.round_rollouts * design.rounds for design in designs],
            "forecast": forecast.values,
            "low": forecast.low,
            "high": forecast.high,
            "measured": [measured.get(one.label, np.nan) for one in asked],
            "outside": far,
        }
    )
    nothing = bare(np.full(len(designs), np.nan))
    table = table.assign(**forecast_columns({"simulator": simulated.forecast if simulated else nothing} | forecasts))
    table["in_budget"] = table["rollouts"] <= (budget if budget is not None else table["rollouts"].max())
    return FreeForecast(table, best_of(table), source, simulated.misfit if simulated else np.nan)


def _measured(found: Imported) -> dict[str, float]:
    """Where each known run ended, by its label with its learning rate, and without where all have one."""
    runs, ends = found.evidence.runs, {}
    several = len(rates_of(found)) > 1
    for run in runs:
        for rate in (run.learning_rate,) if several else (run.learning_rate, None):
            ends[FreeDesign(run.design, rate).label] = float(run.values[-1, 1])
    return ends


def show(console: Console, made: FreeForecast, found: Imported) -> None:
    """The forecast of every design, and the best."""
    beside = columns_beside(made.source, made.misfit, ("law", "still", "sigmoid"))
    title = f"{found.name}: test Pass@1 after {found.rounds} rounds"
    table = Table("design", "rollouts", "forecast", "80%", "measured", *beside, title=title)
    for row in made.table.itertuples():
        values = (row.measured, *(getattr(row, name) for name in beside))
        known = ("" if np.isnan(value) else f"{value:.3f}" for value in values)
        style = "bold green" if row.cell == made.recommended else "" if row.in_budget else "dim"
        interval = f"{row.low:.3f}-{row.high:.3f}"
        table.add(row.cell, f"{row.rollouts:,}", f"{row.forecast:.3f}", interval, *known, style=style)
    console.print(table)
    where = "" if made.table["in_budget"].all() else " in budget"
    say_outside(console, made.table)
    say(console, f"highest forecast{where}: {made.recommended}" if made.recommended else NOTHING, "dim")
    say(console, whose(made.source, made.misfit), "dim")
    say(console, f"beside it: {BESIDE_TEXT}", "dim")
