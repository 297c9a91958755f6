"""Compute the forecasts of `rftlab predict`, as data, for any designs that a command line names (BxK, and BxK@RATE).
studies/forecast/run.py prints and writes them."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.analysis.source import free_source
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.results.stats import weighted_quantiles
from rftlab.studies.data.runs.finish import count_threads
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.forecast.calibrate import Posterior, calibrated
from rftlab.studies.forecast.evidence import Evidence, language_others, noise_text, pilot_evidence, whole_pairs
from rftlab.studies.forecast.forecasters import LearningRates, forecast_columns
from rftlab.studies.forecast.imported import MAX_ROLLOUTS, check_calibration, imported_evidence
from rftlab.studies.forecast.knobs import answer_rates
from rftlab.studies.forecast.law.curve import CellForecast
from rftlab.studies.forecast.law.noise import file_noise
from rftlab.studies.forecast.pilot.passrates import rate_variances
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, PilotMeasurements, at_rounds, pilot_from
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot, shipped_base, shipped_pairs
from rftlab.studies.forecast.predict import ForecastSource, all_forecasts, particle_ends
from rftlab.studies.report.figures import pretty


def designs_from(
    texts: tuple[str, ...], name: str, known: Evidence, quick: bool = False
) -> dict[str, tuple[Design, float | None]]:
    """Return designs by label, each with its learning rate, from texts BxK or BxK@RATE; those of the runs without any
    text.

    A rate is None for that of the runs. Advantage, updates and, where runs have several learning rates, the usual one
    are those of the first known run; rounds are those of the longest. Raises UserError for any other text, and unless
    `quick` for what is too large for the simulator.
    """
    runs, several = known.runs, len(known.rates) > 1
    asked = [_parsed(text) for text in texts] or [
        (run.design.batch_size, run.design.rollouts, run.learning_rate if several else None) for run in runs
    ]
    if several or any(rate is not None for *_, rate in asked):
        told = all(run.learning_rate is not None for run in runs)
        check(told, f"{name}: a learning rate is not known; allowed: runs that all have one (#RUN)")
    usual, first = runs[0].learning_rate if several else None, runs[0].design
    designs = {}
    for batch, rollouts, rate in asked:
        parts = first.minibatches if batch % first.minibatches == 0 else 1
        design = Design(batch, rollouts, estimator=first.estimator, rounds=known.rounds, eval_every=known.rounds,
                        epochs=first.epochs, minibatches=parts)  # fmt: skip
        designs[design_label(design, rate or usual)] = design, rate or usual
    if quick:
        return designs
    widest, there = max(one.batch_size for one, _ in designs.values()), known.facts.n_train
    check(widest <= there, f"a design of {widest} prompts; allowed: at most {there}, the training questions")
    most = max(one.batch_size * one.rollouts * one.rounds for one, _ in designs.values())
    check(most <= MAX_ROLLOUTS, f"a design of {most:,} rollouts; allowed: at most {MAX_ROLLOUTS:,}")
    return designs


def design_label(design: Design, rate: float | None) -> str:
    """Return BxK, with the learning rate of a design where one was named: 32x8@1e-05."""
    return f"{design.batch_size}x{design.rollouts}" + ("" if rate is None else f"@{rate:g}")


def _parsed(text: str) -> tuple[int, int, float | None]:
    """Return B, K and the learning rate of BxK or BxK@RATE; the rate is None where none is named."""
    sizes, at, rate = text.partition("@")
    batch, _, rollouts = sizes.partition("x")
    whole = all(part.isdecimal() and part.isascii() and 1 <= int(part[:9]) <= 65536 for part in (batch, rollouts))
    check(whole, f"design = {text!r}; allowed: BxK or BxK@RATE, such as 32x8 or 32x8@1e-6, B and K from 1 to 65536")
    if not at:
        return int(batch), int(rollouts), None
    try:
        value = float(rate)
    except ValueError:
        value = 0.0
    check(0 < value <= 1, f"design = {text!r}; allowed: a learning rate above 0 and up to 1 behind @")
    return int(batch), int(rollouts), value


CLOSE = 0.02
"""Difference of Pass@1 up to which a design counts as equal to the best one."""


class Request(NamedTuple):
    """Designs to forecast, and the runs that are known."""

    name: str
    """Name of the pair, or of the source of runs as the user wrote it."""
    slug: str
    """Name in a form that a folder can have."""
    title: str
    evidence: Evidence
    designs: dict[str, Design]
    """Designs by label, with their rounds."""
    rates: LearningRates
    """Learning rates of the designs; None for that of the known runs."""
    measured: dict[str, float]
    """Test Pass@1 at the end of the designs that were run, by label."""
    pilot: PilotMeasurements | None = None
    """Pilot that the known runs are from; the designs are then its whole grid. None for imported runs."""


def find_pilot(root: Path, pair: str) -> PilotMeasurements:
    """Return the pilot in a results folder, else one made of the reference runs that come with rftlab. Raises UserError
    where there is neither."""
    start_at(pair, "llm")
    if path_kind(pilot_path(root, pair)):
        return read_pilot(root, pair)
    curves = shipped_runs()
    there = set(curves.loc[(curves["pair"] == pair) & (curves["seed"] == 0), "cell"])
    known = tuple(cell for cell in PILOT_CELLS if cell in there)
    if pair in shipped_pairs() and known:
        return pilot_from(curves, shipped_base(pair), known)
    raise UserError(f"{pilot_path(root, pair)} is missing; run `rftlab pilot --pair {pair} --results {root}` first")


def request_from_pilot(pilot: PilotMeasurements) -> Request:
    """Return a request for the whole grid at the rounds of a pilot. Its evidence is the pilot's runs and the other
    pairs that come with rftlab."""
    curves, name = shipped_runs(), pilot.base.pair
    evidence = pilot_evidence(pilot)._replace(others=language_others(curves, name, whole_pairs(curves)))
    return Request(
        name,
        name,
        f"{pretty(name)}: forecast from a pilot",
        evidence,
        at_rounds(CELLS, pilot.rounds),
        (None,) * len(CELLS),
        {run.cell: float(run.curve.test_pass_at_1[-1]) for run in pilot.runs if not run.diverged},
        pilot,
    )


def request_from_runs(
    name: str, root: Path, texts: tuple[str, ...], quick: bool, base: float | None, questions: int | None
) -> Request:
    """Return a request for designs BxK or BxK@RATE from imported runs; without texts for the designs of the runs.

    quick: without the simulator, which knows one learning rate alone. base, questions: as `imported_evidence` takes
    them.
    """
    known = imported_evidence(name, root, base, questions)
    asked = designs_from(texts, name, known, quick)
    rates = tuple(rate for _, rate in asked.values())
    if not quick:
        check_calibration(name, known)
        named = [label for label, (_, rate) in asked.items() if rate is not None]
        check(not named, f"designs {', '.join(named)}: the simulator forecasts at the runs' learning rate; add --quick")
    measured = {}
    for run in known.runs:  # also by a label without the rate where all runs have one rate
        for rate in (run.learning_rate,) if len(known.rates) > 1 else (run.learning_rate, None):
            measured[design_label(run.design, rate)] = float(run.values[-1, 1])
    designs, slug = {label: design for label, (design, _) in asked.items()}, free_source(name).slug
    return Request(name, slug, f"{name}: forecast", known, designs, rates, measured)


def with_noise(request: Request, path: Path) -> Request:
    """Return the request with r and phi from a file in the place of guesses. Raises UserError as `file_noise` does."""
    noise, said = file_noise(path)
    evidence = request.evidence
    kept = tuple(remark for remark in evidence.remarks if remark != noise_text(evidence.noise))
    return request._replace(evidence=evidence._replace(noise=noise, remarks=(*kept, *said, noise_text(noise))))


def calibrated_to(console: Console, request: Request, root: Path, seed: int, threads: int, quiet: bool) -> Posterior:
    """Return the posterior given a request's evidence, going on from what the results folder has of it. Raises
    UserError where nothing can be learned from the evidence."""
    if (pilot := request.pilot) is not None:
        check(len(pilot.runs) > 0, "the pilot has no runs; allowed: one design or more (rftlab pilot --designs)")
        check(
            any(part.strict.any() for part in pilot.base.splits.values()),
            "no response of the base model was right: there is nothing to learn from, and nothing to calibrate",
        )
    with step_progress(console, "simulating", quiet) as step:
        warn = partial(say, console, style="yellow")
        return calibrated(root, request.slug, request.evidence, seed, count_threads(threads), step, warn)


def knob_table(posterior: Posterior) -> pd.DataFrame:
    """Return a table of each knob's prior and posterior: medians, 80% intervals, and `left`, the share of the prior's
    spread that is left (0: found, 1: nothing learned)."""
    rows = []
    for i, knob in enumerate(posterior.evidence.facts.family.knobs):
        own = posterior.particles.coordinates[:, i]
        mean = float(posterior.weights @ own)
        left = float(np.sqrt(posterior.weights @ (own - mean) ** 2))
        after = knob.value(weighted_quantiles(posterior.weights, own, [0.1, 0.5, 0.9]))
        prior = knob.value(np.array([-1.2816, 0.0, 1.2816]))
        rows.append((knob.name, *prior, *after, left))
    names = ("prior_low", "prior", "prior_high", "low", "median", "high", "left")
    return pd.DataFrame(rows, columns=["knob", *names])


def fits(posterior: Posterior) -> np.ndarray:
    """Return test Pass@1 (sets, runs) at the end of the known runs, by the posterior's resampled parameter sets."""
    designs = [run.design for run in posterior.evidence.runs]
    return np.array([particle_ends(posterior, int(index), designs)[:, 1] for index in np.unique(posterior.draws)])


def spread_line(posterior: Posterior, pilot: PilotMeasurements) -> str:
    """Return a posterior-predictive check as a sentence: the spread of pass rates, which the calibration did not use,
    as it was measured and as the parameter sets simulate it (mean and 80% interval)."""
    environments = [linear_environment(posterior.simulation(int(i))) for i in np.unique(posterior.draws)]
    formed = posterior.evidence.facts.formed or 0.0
    spreads = [answer_rates(environment).std() * formed for environment in environments]
    variance = float(np.mean([rate_variances(part.strict, part.samples)[0] for part in pilot.base.splits.values()]))
    low, high = np.quantile(spreads, [0.1, 0.9])
    return (
        "not used by the calibration: spread of the base model's pass rates over questions: measured "
        f"{np.sqrt(max(variance, 0.0)):.3f}, simulated {np.mean(spreads):.3f} [{low:.3f}, {high:.3f}]"
    )


class DesignForecasts(NamedTuple):
    """Forecasts of several designs, and the one that is recommended."""

    table: pd.DataFrame
    """A row per design: cell, rollouts, forecast, low, high (80%), measured (nan where it was not run), in_budget, and
    the forecast of the simulator, of the law and of each plain method. `share` (with a pilot) is that of the grid's
    rollouts. `best` is the chance that the design is within CLOSE of the best one in budget, nan where the forecast has
    no draws. `outside` is the reason why it is beyond what was measured, "" where it is not."""
    recommended: str
    """Cell of the cheapest design in budget whose forecast is within CLOSE of the highest; "" where all are outside
    what was measured."""
    source: ForecastSource = "simulator"
    """Name of the forecaster whose values are in the column `forecast`."""
    misfit: float = 0.0
    """Mean error of the simulator at the ends of the known runs; nan where it was not asked."""


def check_budget(request: Request, budget: int | None) -> None:
    """Raise UserError for a budget below the cost of every design. It is fast enough to precede a calibration."""
    least = min(design.rounds * design.round_rollouts for design in request.designs.values())
    check(
        budget is None or budget >= least,
        f"budget = {budget} rollouts; allowed: {least} or more, what the cheapest design spends in "
        f"{request.evidence.rounds} rounds",
    )


def forecast_designs(request: Request, simulated: CellForecast | None, budget: int | None = None) -> DesignForecasts:
    """Return forecasts of all designs of a request. simulated: the forecast of `forecast_from`, None without a
    simulator. budget: rollouts that a run may spend, None for any."""
    check_budget(request, budget)
    designs = tuple(request.designs.values())
    spent = np.array([design.rounds * design.round_rollouts for design in designs])
    within = spent <= (budget if budget is not None else spent.max())
    source, outside, forecasts = all_forecasts(request.evidence, designs, rates=request.rates, simulated=simulated)
    chosen = forecasts.pop("forecast")
    columns = {"cell": list(request.designs), "rollouts": spent}
    if request.pilot is not None:
        columns["share"] = spent / request.pilot.grid_rollouts
    columns |= {
        "forecast": chosen.values,
        "low": chosen.low,
        "high": chosen.high,
        "measured": [request.measured.get(cell, np.nan) for cell in request.designs],
        "best": _chances(chosen, within & ~np.array([bool(reason) for reason in outside])),
        "in_budget": within,
        "outside": outside,
    }
    table = pd.DataFrame(columns | forecast_columns(forecasts))
    inside = table[table["in_budget"] & (table["outside"] == "") & table["forecast"].notna()]
    # the highest forecast alone would be noise's choice where designs are about equal
    near = inside[inside["forecast"] >= inside["forecast"].max() - CLOSE]
    best = near.sort_values(["rollouts", "forecast"], ascending=[True, False])["cell"]
    return DesignForecasts(table, "" if best.empty else str(best.iloc[0]), source, forecasts["simulator"].misfit)


def _chances(forecast: CellForecast, within: np.ndarray) -> np.ndarray:
    """Return the chance that each cell's expected Pass@1 is within CLOSE of the best one of those that may be
    recommended, `within`. It is nan for the others, without draws, and where fewer than two may be."""
    if forecast.draws is None or within.sum() < 2:
        return np.full(len(within), np.nan)
    best = forecast.draws[:, within].max(axis=1, keepdims=True)
    return np.where(within, (forecast.draws >= best - CLOSE).mean(axis=0), np.nan)
