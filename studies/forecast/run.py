"""The command `rftlab predict`: calibrate, forecast, print, write."""

from pathlib import Path

import numpy as np
from rich.console import Console

from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.pairs import usual_pairs
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
from rftlab.studies.forecast.page import grid_figure, write_page
from rftlab.studies.forecast.show import show_forecasts, show_posterior
from rftlab.studies.report.draw import save

TRUST = (
    "How far to trust it: not far. On two tasks of SmolLM2-135M the law was off by 0.053, `still` by 0.053 and the "
    "simulator by 0.436; on public runs the law was no better than `still`, but at other learning rates "
    "(docs/predict.md)."
)


def trust(posterior: Posterior | None) -> str:
    """How far to trust a forecast, in plain sentences, with what the calibration itself shows."""
    if posterior is None:
        return TRUST
    off = fits(posterior).mean(axis=0) - [run.values[-1, 1] for run in posterior.evidence.runs]
    return f"{TRUST} Here the worlds that fit end the runs up to {np.abs(off).max():.3f} from what was measured."


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
    # forecasts hold on the pairs of `tiny`
    notes = [] if request.name in usual_pairs("llm") else [trust(posterior)]
    for note in notes:
        say(console, note, "dim")
    figure, numbers = grid_figure(made.table, request.title.replace("$", r"\$"))
    place = save(figure, folder_below(root, "forecast", request.slug), "forecast", numbers)
    say(console, f"forecast: {place}")
    page = write_page(place.parent, request.title, made.table, made.recommended, [*request.remarks, *notes])
    say(console, f"page: {page}")
