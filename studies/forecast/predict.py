"""Forecast every cell of a grid from a posterior of the simulator.

Every parameter set simulates the cells. The part that the simulator leaves out is a Gaussian process over designs
(Kennedy and O'Hagan 2001), which carries the difference between a set's curves and the pilot's over to cells like those
of the pilot. A forecast is about one run, so it has the spread of parameters, of discrepancy, of training seeds and of
the questions of an evaluation.

The recommended forecast from a pilot is the simulator's where its worlds do what the known runs did, else the law's;
from imported runs it is the known curve's. The known runs alone decide between the first two: a world that does not end
the runs that it was fitted to where they ended knows nothing of others. The law then has the same runs and makes fewer
assumptions. On runs of pre-trained models neither was ahead of reading the known curve (docs/forecast.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import noop
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.data.runs.runner import workers
from rftlab.studies.forecast.calibrate import Posterior, Progress
from rftlab.studies.forecast.evidence import DISCREPANCY, SEED_NOISE, Evidence
from rftlab.studies.forecast.forecasters import QUICK, LearningRates
from rftlab.studies.forecast.law.curve import LEVEL, CellForecast, bare
from rftlab.studies.forecast.law.limits import FAILING, beyond, compares_nothing, may_hold

REACH = 1.5
"""Length scale of the discrepancy between designs, in doublings of batch size or rollouts."""
UNLIKE = 1.0
"""Distance, in the same units, between a design with raw rewards and one with a group's advantage."""
REPEATS = 25
"""Forecasts drawn from each parameter set."""


def simulated_ends(
    posterior: Posterior, cells: tuple[Design, ...], threads: int, progress: Progress = noop
) -> np.ndarray:
    """Return train and test Pass@1 (sets, cells + runs, 2) at the end of the cells and of the evidence's runs, by the
    sets that stand for the posterior. progress: called with the number of different sets done, and of all."""
    runs = posterior.evidence.runs
    wanted = [replace(cell, eval_every=cell.rounds) for cell in cells] + [run.design for run in runs]
    sets, again = np.unique(posterior.draws, return_inverse=True)  # a set that stands for several is simulated once
    ends = np.empty((len(sets), len(wanted), len(SPLITS)))
    with workers(threads) as pool:
        for row, values in enumerate(pool.map(lambda index: particle_ends(posterior, int(index), wanted), sets)):
            ends[row] = values
            progress(row + 1, len(ends))
    return ends[again]


def forecast_from(
    posterior: Posterior, cells: tuple[Design, ...], ends: np.ndarray, questions: int, seed: int, split: str = "test"
) -> CellForecast:
    """Forecast a split's Pass@1 of cells from simulated ends (`simulated_ends`).

    Draws are of the expected result of an evaluation, the interval is that of one run's evaluation with `questions`
    questions. Every set trains with a seed of its own, so both have the spread of training.
    """
    runs, column = posterior.evidence.runs, SPLITS.index(split)
    simulated, at_runs = ends[:, : len(cells), column], ends[:, len(cells) :, column]
    measured = np.array([run.values[-1, column] for run in runs])
    errors = np.array([run.errors[-1, column] for run in runs])
    rng = np.random.Generator(np.random.Philox(seed))
    expected = _carried_over(cells, [run.design for run in runs], simulated, measured - at_runs, errors, rng)
    inner = np.clip(expected, 0.0, 1.0)
    single = inner + rng.standard_normal(inner.shape) * np.sqrt(inner * (1 - inner) / questions)
    low, high = np.quantile(np.clip(single, 0.0, 1.0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return CellForecast(inner.mean(axis=0), low, high, inner, misfit(posterior, ends[:, len(cells) :]))


def misfit(posterior: Posterior, at_runs: np.ndarray) -> float:
    """Return the mean distance between the sets' mean ends of the known runs (sets, runs, 2) and the measured ones,
    over runs and splits; 0 without runs."""
    known = np.array([run.values[-1] for run in posterior.evidence.runs]).reshape(-1, len(SPLITS))
    off = np.abs(at_runs.mean(axis=0) - known)
    return float(off[np.isfinite(off)].mean()) if np.isfinite(off).any() else 0.0


def particle_ends(posterior: Posterior, index: int, cells: list[Design]) -> np.ndarray:
    """Return one particle's train and test Pass@1 (cells, 2) after training; 0 for a run that diverged."""
    start = posterior.simulation(index)
    world = build(start.environment)
    ends = np.zeros((len(cells), len(SPLITS)))
    for row, design in enumerate(cells):
        done = simulate(replace(start, design=design), world)
        if done.diverged_at is None:
            ends[row] = done.curve.train_pass_at_1[-1], done.curve.test_pass_at_1[-1]
    return ends


def _carried_over(
    cells, at, simulated: np.ndarray, residual: np.ndarray, errors: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return draws (REPEATS x sets, cells) of simulated + discrepancy, given residuals (sets, runs) at designs `at`."""
    among, across, within = covariance(at, at), covariance(cells, at), covariance(cells, cells)
    gain = np.linalg.solve(among + np.diag(errors**2 + 2 * SEED_NOISE**2), across.T).T
    left = within - gain @ across.T
    values, vectors = np.linalg.eigh((left + left.T) / 2)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    middle = np.repeat(simulated + residual @ gain.T, REPEATS, axis=0)
    return middle + rng.standard_normal(middle.shape) @ root.T


def covariance(a: Sequence[Design], b: Sequence[Design]) -> np.ndarray:
    """Return the prior covariance (a, b) between designs of what the simulator leaves out."""
    left, right = (np.array([_place(design) for design in designs]) for designs in (a, b))
    distance = ((left[:, None] - right[None]) ** 2).sum(axis=2)
    return DISCREPANCY**2 * np.exp(-0.5 * distance / REACH**2)


def _place(design: Design) -> tuple[float, float, float]:
    """Return a design as a point. A response that is compared with no other has the raw reward, whatever its estimator
    says."""
    raw = design.estimator.advantage.baseline == "none" or compares_nothing(design)
    return np.log2(design.batch_size), np.log2(design.rollouts), UNLIKE * raw


MISFIT = 0.1
"""Mean distance from the ends of the known runs above which the simulator is not recommended. Chosen by hand, between
the `tiny` pilots (0.02 to 0.05) and SmolLM2 (0.3)."""
ForecastSource = Literal["simulator", "law", "curve"]


def recommended(
    simulated: CellForecast | None,
    law: CellForecast,
    outside: Sequence[str] = (),
    curve: CellForecast | None = None,
    hold: Sequence[bool] = (),
) -> tuple[ForecastSource, CellForecast]:
    """Return the name of the recommended forecaster and its forecast.

    simulated: None where nothing was calibrated. It is recommended in any case where the law has no forecast. curve:
    the known curve's forecast, which is recommended where it is given, for imported runs. outside: the reason why each
    cell is beyond what was measured, "" where it is not (studies/forecast/law/limits.py); such a cell gets a low
    forecast with a wide interval. hold: which of these cells are likely to hold all the same; they get the law's
    forecast, with an interval from the same low end.
    """
    source: ForecastSource
    if curve is not None:
        source, forecast = "curve", curve
    elif simulated is not None and (simulated.misfit <= MISFIT or law.draws is None):
        source, forecast = "simulator", simulated
    else:
        source, forecast = "law", law
    far = np.array([bool(reason) for reason in outside])
    if not far.any():
        return source, forecast
    middle, low, high = FAILING
    rises = far & np.array(hold or np.zeros(len(far)), dtype=bool)
    # a higher rate leads beyond the end of the known curve, and the law alone goes on from there
    further = np.where(np.isfinite(law.values), law.values, forecast.values)
    values = np.where(rises, further, np.where(far, middle, forecast.values))
    wide = np.fmax(forecast.high, np.where(rises, np.fmax(law.high, high), high))
    return source, CellForecast(
        values, np.where(far, low, forecast.low), np.where(far, wide, forecast.high), forecast.draws
    )


def all_forecasts(
    evidence: Evidence,
    cells: tuple[Design, ...],
    split: str = "test",
    rates: LearningRates = (),
    simulated: CellForecast | None = None,
) -> tuple[ForecastSource, list[str], dict[str, CellForecast]]:
    """Return the recommended forecaster, for each cell the reason why it is beyond what was measured ("" where it is
    not), and forecasts by name: the recommended one (`forecast`), the simulator's, nan without one, and those of
    QUICK."""
    quick, runs = {name: quick(evidence, cells, split, rates) for name, quick in QUICK.items()}, evidence.tried(split)
    known = rates or (None,) * len(cells)
    outside = [beyond(cell, rate, runs) for cell, rate in zip(cells, known, strict=True)]
    hold = [may_hold(cell, rate, runs, evidence.edge) for cell, rate in zip(cells, known, strict=True)]
    source, chosen = recommended(simulated, quick["law"], outside, quick["curve"] if evidence.imported else None, hold)
    asked = bare(np.full(len(cells), np.nan)) if simulated is None else simulated
    return source, outside, {"forecast": chosen, "simulator": asked} | quick
