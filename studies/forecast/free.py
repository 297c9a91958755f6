"""`rftlab calibrate` and `predict` of imported runs: free designs, and how far to trust a forecast of them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rftlab.shared.design import Design
from rftlab.shared.errors import check
from rftlab.shared.folders import folder_below
from rftlab.studies.forecast import plain
from rftlab.studies.forecast.calibrate import Posterior
from rftlab.studies.forecast.figures import grid_figure
from rftlab.studies.forecast.forecast import fits, fitted
from rftlab.studies.forecast.imported import Imported, designs_from, imported_evidence
from rftlab.studies.forecast.page import write_page
from rftlab.studies.forecast.predict import predict
from rftlab.studies.forecast.show import show_posterior
from rftlab.studies.logs.show import say
from rftlab.studies.report.figures import save
from rftlab.studies.runs.finish import threads_of
from rftlab.studies.runs.progress import steps_of
from rftlab.studies.runs.store import open_store

TRUST = (
    "How far to trust it: not far. Forecasts of pre-trained models do not hold yet: the one that could be checked "
    "(SmolLM2-135M, docs/predict.md) was off by 0.498, where the nearest run was off by 0.125."
)


def calibrate_imported(console: Console, name: str, root: Path, seed: int, threads: int, quiet: bool) -> None:
    """Calibrate on imported runs, and print what was found."""
    found = imported_evidence(name, root)
    posterior = _posterior(console, found, root, seed, threads, quiet)
    show_posterior(console, posterior, name, list(found.labels))
    say(console, trust(posterior))


def _posterior(console: Console, found: Imported, root: Path, seed: int, threads: int, quiet: bool) -> Posterior:
    open_store(root)
    for remark in found.remarks:
        say(console, remark)
    return fitted(console, found.slug, found.evidence, root, seed, threads, quiet)


def trust(posterior: Posterior) -> str:
    """In plain sentences, with what this calibration itself shows."""
    off = fits(posterior).mean(axis=0) - [run.values[-1, 1] for run in posterior.evidence.runs]
    return f"{TRUST} Here the worlds that fit end the runs up to {np.abs(off).max():.3f} from what was measured."


class FreeForecast(NamedTuple):
    """Forecasts of free designs."""

    table: pd.DataFrame
    """A row a design: cell (BxK), rollouts, forecast, low, high (80%), measured (nan where no run has it), in_budget,
    still, sigmoid."""
    recommended: str
    """The best in budget."""


def predict_imported(
    console: Console,
    name: str,
    texts: tuple[str, ...],
    budget: int | None,
    root: Path,
    seed: int,
    threads: int,
    quiet: bool,
) -> None:
    """Forecast designs BxK, print, write root/forecast/NAME/forecast.csv and a figure."""
    found = imported_evidence(name, root)
    designs = designs_from(texts, found)
    least = min(plain.per_round(design) * design.rounds for design in designs)
    check(budget is None or budget >= least, f"budget = {budget} rollouts; allowed: {least} or more with these designs")
    posterior = _posterior(console, found, root, seed, threads, quiet)
    with steps_of(console, "forecasting", quiet) as step:
        forecast = predict(posterior, designs, found.questions, seed, threads_of(threads), step)
    made = _table(found, designs, forecast, budget)
    show(console, made, found)
    say(console, trust(posterior))
    figure, numbers = grid_figure(made.table, f"{name}: forecast".replace("$", r"\$"))
    place = save(figure, folder_below(root, "forecast", found.slug), "forecast", numbers)
    console.print(f"forecast: {place}", markup=False, highlight=False, soft_wrap=True)
    page = write_page(place.parent, f"{name}: forecast", made.table, made.recommended, [trust(posterior)])
    console.print(f"page: {page}", markup=False, highlight=False, soft_wrap=True)


def _table(found: Imported, designs: tuple[Design, ...], forecast, budget: int | None) -> FreeForecast:
    runs = found.evidence.runs
    measured = {(run.design.batch_size, run.design.rollouts): float(run.values[-1, 1]) for run in runs}
    low, high = forecast.interval()
    table = pd.DataFrame(
        {
            "cell": [f"{design.batch_size}x{design.rollouts}" for design in designs],
            "rollouts": [plain.per_round(design) * design.rounds for design in designs],
            "forecast": forecast.mean,
            "low": low,
            "high": high,
            "measured": [measured.get((design.batch_size, design.rollouts), np.nan) for design in designs],
            "still": plain.still(found.evidence, designs),
            "sigmoid": plain.sigmoid(found.evidence, designs),
        }
    )
    table["in_budget"] = table["rollouts"] <= (budget if budget is not None else table["rollouts"].max())
    return FreeForecast(table, str(table[table["in_budget"]].sort_values("forecast").iloc[-1]["cell"]))


def show(console: Console, made: FreeForecast, found: Imported) -> None:
    """The forecast of every design, and the best."""
    table = Table(title=Text(f"{found.name}: test Pass@1 after {found.rounds} rounds"), title_justify="left", box=None)
    for i, column in enumerate(("design", "rollouts", "forecast", "80%", "measured", "still", "sigmoid")):
        table.add_column(column, justify="right" if i else "left")
    for row in made.table.itertuples():
        known = ("" if np.isnan(value) else f"{value:.3f}" for value in (row.measured, row.still, row.sigmoid))
        style = "bold green" if row.cell == made.recommended else "" if row.in_budget else "dim"
        interval = f"{row.low:.3f}-{row.high:.3f}"
        table.add_row(row.cell, f"{row.rollouts:,}", f"{row.forecast:.3f}", interval, *known, style=style)
    console.print(table)
    say(console, f"highest forecast{' in budget' if not made.table['in_budget'].all() else ''}: {made.recommended}")
    say(console, "plain forecasts: still = the nearest run; sigmoid = a saturating curve in rollouts")
