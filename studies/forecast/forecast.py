"""`rftlab predict` and `rftlab dev score`: what they compute, as data. studies/forecast/show.py prints it."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import linear_of, start_at
from rftlab.studies.data.results.reference import shipped
from rftlab.studies.data.runs.finish import threads_of
from rftlab.studies.data.runs.progress import steps_of
from rftlab.studies.forecast.calibrate import Posterior, calibrated
from rftlab.studies.forecast.combine import ForecastSource, best_of, outside, recommended
from rftlab.studies.forecast.evidence import TYPICAL, Evidence, evidence_of
from rftlab.studies.forecast.forecasters import forecast_columns, quick_forecasts
from rftlab.studies.forecast.knobs import answer_rates
from rftlab.studies.forecast.law.curve import CellForecast, bare
from rftlab.studies.forecast.law.noise import MeasuredNoise
from rftlab.studies.forecast.others import language_others, whole_pairs
from rftlab.studies.forecast.pilot.grid import CELLS, PILOT_CELLS
from rftlab.studies.forecast.pilot.passrates import moments
from rftlab.studies.forecast.pilot.pilot import PilotMeasurements, pilot_from
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot, shipped_base, shipped_pairs
from rftlab.studies.forecast.predict import Forecast, particle_ends, predict

CLOSE = 0.02
"""A design that is this near to the best one is as good."""


def pilot_of(root: Path, pair: str) -> PilotMeasurements:
    """The pilot in a results folder, else one made of the reference runs that come with rftlab. Raises UserError
    where there is neither."""
    start_at(pair, "llm")
    if path_kind(pilot_path(root, pair)):
        return read_pilot(root, pair)
    curves = shipped()
    there = set(curves.loc[(curves["pair"] == pair) & (curves["seed"] == 0), "cell"])
    known = tuple(cell for cell in PILOT_CELLS if cell in there)
    if pair in shipped_pairs() and known:
        return pilot_from(curves, shipped_base(pair), known)
    raise UserError(f"{pilot_path(root, pair)} is missing; run `rftlab pilot --pair {pair} --results {root}` first")


def posterior_of(
    console: Console, pilot: PilotMeasurements, root: Path, seed: int, threads: int, quiet: bool
) -> Posterior:
    """The posterior of a pilot, from the results folder as far as it is there."""
    check(len(pilot.runs) > 0, "the pilot has no runs; allowed: one design or more (rftlab pilot --designs)")
    check(
        pilot.base.test.strict.sum() + pilot.base.train.strict.sum() > 0,
        "no response of the base model was right: there is nothing to learn from, and nothing to calibrate",
    )
    return fitted(console, pilot.base.pair, pilot_evidence(pilot), root, seed, threads, quiet)


def pilot_evidence(pilot: PilotMeasurements) -> Evidence:
    """What a pilot says, and what is known of the pairs that come with rftlab."""
    curves = shipped()
    return evidence_of(pilot)._replace(others=language_others(curves, pilot.base.pair, whole_pairs(curves)))


def fitted(
    console: Console, name: str, evidence: Evidence, root: Path, seed: int, threads: int, quiet: bool
) -> Posterior:
    """The posterior of any evidence, from the results folder as far as it is there under that name."""
    with steps_of(console, "simulating", quiet) as step:
        return calibrated(
            root,
            name,
            evidence,
            seed,
            threads_of(threads),
            step,
            lambda text: console.print(text, style="yellow", markup=False),
        )


def knob_table(posterior: Posterior) -> pd.DataFrame:
    """Prior and posterior of each knob: medians, 80% intervals, and how much of the prior's spread is left (0:
    found, 1: nothing learnt)."""
    rows = []
    for i, knob in enumerate(posterior.evidence.facts.family.knobs):
        own = posterior.particles.coordinates[:, i]
        mean = float(posterior.weights @ own)
        left = float(np.sqrt(posterior.weights @ (own - mean) ** 2))
        order = np.argsort(own)
        at = np.interp([0.1, 0.5, 0.9], np.cumsum(posterior.weights[order]), own[order])
        prior, found = knob.value(np.array([-1.2816, 0.0, 1.2816])), knob.value(at)
        rows.append((knob.name, *prior, *found, left))
    names = ("prior_low", "prior", "prior_high", "low", "median", "high", "left")
    return pd.DataFrame(rows, columns=["knob", *names])


def fits(posterior: Posterior) -> np.ndarray:
    """Test Pass@1 at the end of the pilot's runs, as the parameter sets simulate it: (sets, runs)."""
    designs = [run.design for run in posterior.evidence.runs]
    return np.array([particle_ends(posterior, int(index), designs)[:, 1] for index in np.unique(posterior.draws)])


def checks(posterior: Posterior, pilot: PilotMeasurements) -> pd.DataFrame:
    """Posterior-predictive checks of numbers that the calibration did not use: measured, simulated (mean and 80%
    interval of the parameter sets)."""
    evidence = posterior.evidence
    rows = []
    if evidence.facts.formed is not None:
        found = [
            answer_rates(linear_of(posterior.simulation(int(i)))).std() * evidence.facts.formed
            for i in np.unique(posterior.draws)
        ]
        variance = float(
            np.mean([moments(part.strict, part.samples).variance for part in (pilot.base.train, pilot.base.test)])
        )
        rows.append(
            (
                "spread of the base model's pass rates over questions",
                float(np.sqrt(max(variance, 0.0))),
                *_around(found),
            )
        )
    return pd.DataFrame(rows, columns=["what", "measured", "simulated", "low", "high"])


def _around(values: list[float]) -> tuple[float, float, float]:
    low, high = np.quantile(values, [0.1, 0.9])
    return float(np.mean(values)), float(low), float(high)


class Grid(NamedTuple):
    """A forecast of the whole grid with what it costs and what each forecast says."""

    table: pd.DataFrame
    """A row per cell: cell, rollouts, share (of the grid's rollouts), forecast, low, high, measured (nan where the
    pilot did not run it), best (chance that the cell is within CLOSE of the best one in budget), in_budget, outside
    (why it is beyond what was measured, "" where it is not), and the simulator's, the law's and each plain forecast."""
    recommended: str
    """"" where every cell in budget is outside what was measured."""
    saved: float
    """Share of the grid's rollouts that need not be spent: all but the pilot's and one run of the recommended
    design, where the pilot has none."""
    source: ForecastSource = "simulator"
    """Whose forecast is in the column of that name."""
    misfit: float = 0.0
    """Of the simulator at the ends of the pilot's runs; nan where it was not asked."""
    noise: MeasuredNoise = TYPICAL
    """r and phi of the law."""


def check_budget(pilot: PilotMeasurements, budget: int | None) -> None:
    """Raise UserError for a budget that no design keeps; cheap, so that it can come before a calibration."""
    least = pilot.rounds * min(cell.round_rollouts for cell in CELLS.values())
    check(
        budget is None or budget >= least,
        f"budget = {budget} rollouts; allowed: {least} or more, what the cheapest design spends in "
        f"{pilot.rounds} rounds",
    )


def grid_of(
    posterior: Posterior,
    pilot: PilotMeasurements,
    budget: int | None,
    seed: int,
    threads: int,
    console: Console,
    quiet: bool,
) -> Grid:
    """Forecast all cells with a calibrated simulator too. budget: rollouts that a run may spend, None for any."""
    check_budget(pilot, budget)
    with steps_of(console, "forecasting", quiet) as step:
        cells = designs_of(pilot)
        simulated = predict(posterior, cells, pilot.base.n_test, seed, threads_of(threads), step)
    return grid_from(posterior.evidence, simulated, pilot, budget)


def designs_of(pilot: PilotMeasurements) -> tuple[Design, ...]:
    """All cells of the grid, for the rounds of the pilot."""
    return tuple(replace(cell, rounds=pilot.rounds, eval_every=pilot.rounds) for cell in CELLS.values())


def grid_from(
    evidence: Evidence, simulated: Forecast | None, pilot: PilotMeasurements, budget: int | None = None
) -> Grid:
    """The forecast of all cells. simulated: the simulator's, of `designs_of`; None without one."""
    designs = designs_of(pilot)
    spent = np.array([design.rounds * design.round_rollouts for design in designs])
    check_budget(pilot, budget)
    within = spent <= (budget if budget is not None else spent.max())
    forecasts = quick_forecasts(evidence, designs)
    far = outside(evidence, designs, (None,) * len(designs), "test")
    source, forecast = recommended(simulated, forecasts["law"], far)
    shown = {"simulator": bare(np.full(len(designs), np.nan)) if simulated is None else simulated.forecast} | forecasts
    measured = {run.cell: float(run.curve.test_pass_at_1[-1]) for run in pilot.runs if not run.diverged}
    cells = [label(design) for design in designs]
    table = pd.DataFrame(
        {
            "cell": cells,
            "rollouts": spent,
            "share": spent / pilot.grid_rollouts,
            "forecast": forecast.values,
            "low": forecast.low,
            "high": forecast.high,
            "measured": [measured.get(cell, np.nan) for cell in cells],
            "best": _chances(forecast, within),
            "in_budget": within,
            "outside": far,
        }
        | forecast_columns(shown)
    )
    chosen = best_of(table)
    still_to_run = 0.0 if chosen in ("", *measured) else float(table.loc[table["cell"] == chosen, "share"].iloc[0])
    misfit = np.nan if simulated is None else simulated.misfit
    return Grid(table, chosen, 1 - pilot.fraction - still_to_run, source, misfit, evidence.noise)


def _chances(forecast: CellForecast, within: np.ndarray) -> np.ndarray:
    """Chance that each cell's expected Pass@1 is within CLOSE of the best one in budget; nan beyond it."""
    assert forecast.draws is not None
    best = forecast.draws[:, within].max(axis=1, keepdims=True)
    return np.where(within, (forecast.draws >= best - CLOSE).mean(axis=0), np.nan)
