"""Forecast designs without a simulator: by the law, by the known curve, and by four plain rules.

    law        one curve in rounds of effective batch through all known points (studies/forecast/law/curve.py)
    curve      the known run, read where it had learned for as long as the cell
    steps      a plain form of `curve`: the nearest known run at equal rate x rounds
    still      nothing changes: a cell ends where the pilot's run that is nearest in rollouts a round ended
    gain       other pairs' mean gain: the end of the pilot's baseline, and what the cell gains over the baseline on
               other pairs
    sigmoid    a saturating curve in compute, fitted to the pilot's curves and read at the rollouts of the cell (Khatri
               et al. 2510.13786)

Each is a function of the evidence, the designs, a split and learning rates, and gives a `CellForecast`. `QUICK` lists
them.

Forecasts that read a known curve let a design end where a known run was when it had learned for as long,

    time = rounds x sqrt(B_eff / B_ref) x rate^p x updates^(1/4)

B_eff is that of the law (rftlab.shared.effective_batch). p is 1 where steps are added to weights of full precision.
Where weights are bf16 and no copy of higher precision is kept, steps below half a unit in the last place are lost, and
p is larger: public runs have 1.5 to 2, weights drawn from N(0, 0.02^2) that are rounded after steps of Adam's size 1.9.
Updates of one round share their responses, so E epochs over m mini-batches are worth less than E sqrt(m) of check D35;
the fourth root was chosen on the public runs that docs/forecast.md scores. A curve is not extrapolated: beyond its end
a design ends where the run did, and studies/forecast/law/limits.py says where that is no forecast.
"""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

import numpy as np

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.studies.data.paper.experiments import BASELINE, label
from rftlab.studies.data.results.stats import t_errors, weighted_quantiles
from rftlab.studies.forecast.evidence import Evidence, OtherPair, RepeatSpread
from rftlab.studies.forecast.law.curve import (
    CellForecast,
    KnownRun,
    LawCurve,
    bare,
    draw_ratios,
    fit_curve,
    fit_saturating,
    forecast,
    learn_prior,
)
from rftlab.studies.forecast.law.limits import round_updates, run_held, spoils

RATE_POWERS = {"fp32": (1.0, 0.15), "bf16": (1.6, 0.3), None: (1.3, 0.35)}
"""Prior mean and standard deviation of p by the precision of weights; None where the precision is not known."""
UPDATES = 0.25
"""Power of the number of updates of a round in the time of a round."""
POWERS = np.linspace(0.4, 2.6, 45)
"""Grid of values of p on which its posterior is computed."""
OTHER_RATE = 1.75
"""Intervals at a learning rate that no known run has are wider by this factor: without it 80% intervals held 54% of the
public runs that docs/forecast.md scores, on which it was chosen."""
DRAWS = 100
"""Number of draws of p, r and phi, and of draws of a run's end for each of them."""
EARLY = np.linspace(0.0, 1.0, 9)[:-1] ** 2
"""Points before a first evaluation after round 0, as parts of its round. The curve is taken to rise up to there with
the root of the rounds, because runs learn fastest at first."""
NEARLY = 0.9
"""Part of a design's time up to which a known run must go to count as having reached it."""
RAW = label(BASELINE)
PARAMETERS = 3
"""Number of parameters of the saturating curve."""
LearningRates = tuple[float | None, ...]
"""Learning rates of cells. None, and an empty tuple, stand for the learning rate of the known runs."""
Forecaster = Callable[[Evidence, tuple[Design, ...], str, LearningRates], CellForecast]


def timed_runs(evidence: Evidence, split: str) -> list[KnownRun]:
    """Return the whole curves of known runs, from the untrained model on where its Pass@1 is known. Runs that lost what
    they had learned are left out, unless all did."""
    column, base, tried = SPLITS.index(split), evidence.base(split), evidence.tried(split)
    measured = [run for run in evidence.runs if np.isfinite(run.values[:, column]).any()]
    pairs = list(zip(measured, tried, strict=True))
    curves = []
    for run, one in [pair for pair in pairs if run_held(pair[1], tried)] or pairs:
        rounds, values = run.test_curve or (one.rounds, one.values)
        rounds, values = rounds[np.isfinite(values)].astype(np.float64), values[np.isfinite(values)]
        first = float(rounds[0])
        if first > 0 and np.isfinite(base):
            rise = base + (values[0] - base) * np.sqrt(EARLY)
            rounds, values = np.concatenate([first * EARLY, rounds]), np.append(rise, values)
        curves.append(one._replace(rounds=rounds, values=values, measured=first))
    return curves


def design_pace(design: Design, ratios: NoiseRatios) -> float:
    """Return the time of a round at equal learning rates: that of the law, with the updates of a round to the power
    UPDATES in the place of E sqrt(m)."""
    one = replace(design, epochs=1, minibatches=1)
    return time_per_round(one, ratios) * round_updates(design) ** UPDATES


def rate_ratio(rate: float | None, other: float | None) -> float:
    """Return one learning rate over another; 1 where one of them is not known."""
    return rate / other if rate and other else 1.0


def rate_powers(evidence: Evidence, split: str = "test") -> np.ndarray:
    """Return DRAWS equally likely values of p, in rising order.

    Its prior is normal (RATE_POWERS). Every known run is one observation: the mean distance of its points from the
    curves of the runs at other rates, read at equal time, in units of the deviation between two repeats.
    """
    middle, spread = RATE_POWERS[evidence.precision]
    runs, ratios = timed_runs(evidence, split), evidence.noise.ratios
    deviation = np.sqrt(2) * evidence.repeats.deviation
    logs = -0.5 * ((POWERS - middle) / spread) ** 2
    for run in runs:
        later = run.rounds > 0
        misfits = []
        for other in runs:
            ratio = rate_ratio(run.learning_rate, other.learning_rate)
            if ratio == 1:
                continue
            pace = design_pace(run.design, ratios) / design_pace(other.design, ratios)
            at = run.rounds[later] * pace * ratio ** POWERS[:, None]
            read = np.interp(at, other.rounds, other.values)
            squares = ((read - run.values[later]) / (deviation * unevenness(read))) ** 2
            known = at >= other.measured
            misfits.append(np.where(known, squares, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))
        if misfits:
            logs -= 0.5 * np.mean(misfits, axis=0)
    weights = np.exp(logs - logs.max())
    return weighted_quantiles(weights / weights.sum(), POWERS, (np.arange(DRAWS) + 0.5) / DRAWS)


def reading_text(evidence: Evidence) -> str:
    """Say by which rules learning rates and repeats count, and where these rules are from."""
    middle, spread = RATE_POWERS[evidence.precision]
    low, power, high = np.quantile(rate_powers(evidence), [0.1, 0.5, 0.9])
    kind = f"{evidence.precision} weights" if evidence.precision else "the precision of weights is not known, so that"
    several = len({run.learning_rate for run in evidence.runs}) > 1
    fitted = f", with the known rates {power:.2f} (80%: {low:.2f} to {high:.2f})" if several else ""
    apart, n = evidence.repeats.deviation, evidence.repeats.measured
    whose = f"{n} degrees of freedom of your repeats among what it is from" if n else "guessed, from public runs"
    return (
        f"{kind}: time goes with the learning rate to the power {middle:g} ± {spread:g}{fitted}; repeats at Pass@1 0.5 "
        f"differ by {apart:.3f}, {whose}"
    )


def unevenness(values: np.ndarray) -> np.ndarray:
    """Return 2 sqrt(p (1 - p)): the deviation of repeats at Pass@1 p over that at 1/2. p within 0.02 of 0 or 1 counts
    as 0.02 or 0.98."""
    inner = np.clip(values, 0.02, 0.98)
    return 2 * np.sqrt(inner * (1 - inner))


def read_at(runs: list[KnownRun], paces: np.ndarray, pace: float, rounds: float) -> tuple[float, float]:
    """Return Pass@1 of the known curves at the time of a design after `rounds` rounds, and the number of runs behind
    it.

    paces (runs,), pace: time of a round of each run and of the design. Of the runs that reached that time, or of all
    where none did, the one with the nearest pace counts, or the mean of several that are equally near.
    """
    at = rounds * pace / paces
    short = np.array([place * NEARLY > run.rounds[-1] for place, run in zip(at, runs, strict=True)])
    apart = np.abs(np.log(paces / pace)) + 1e6 * (short & ~short.all())
    nearest = np.flatnonzero(apart <= apart.min() + 1e-9)
    values = [np.interp(at[i], runs[i].rounds, runs[i].values) for i in nearest]
    return float(np.mean(values)), float(sum(runs[i].behind for i in nearest))


def curve(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """Forecast cells by the known curve at equal time. Intervals have the spread of p, r and phi, and by Student's t
    that of repeats, for the known run and for the new one."""
    runs = timed_runs(evidence, split)
    if not runs:
        return bare(np.full(len(cells), np.nan))
    asked = rates or (None,) * len(cells)
    powers = np.random.default_rng(0).permutation(rate_powers(evidence, split))
    read = np.empty((DRAWS, len(cells), 2))
    first = runs[0].learning_rate
    for i, (power, ratios) in enumerate(zip(powers, draw_ratios(evidence.noise, DRAWS), strict=True)):
        paces = np.array(
            [design_pace(run.design, ratios) * rate_ratio(run.learning_rate, first) ** power for run in runs]
        )
        for j, (cell, rate) in enumerate(zip(cells, asked, strict=True)):
            pace = design_pace(cell, ratios) * rate_ratio(rate, first) ** power
            read[i, j] = read_at(runs, paces, pace, cell.rounds)
    values, behind = read[..., 0], read[..., 1]
    middle, known = np.median(values, axis=0), {run.learning_rate for run in runs} | {None}
    stretch = np.array([OTHER_RATE if known != {None} and rate not in known else 1.0 for rate in asked])
    single = values[:, None] + _repeat_errors(evidence.repeats, values, behind, len(cells))
    single = np.clip(middle + stretch * (single - middle), 0.0, 1.0)
    low, high = np.quantile(single, [0.1, 0.9], axis=(0, 1))
    return CellForecast(middle, low, high, single.reshape(-1, len(cells)))


def _repeat_errors(repeats: RepeatSpread, values: np.ndarray, behind: np.ndarray, n_cells: int) -> np.ndarray:
    """Return errors (DRAWS, DRAWS, cells) of the known run and the new one about what both would do on average. Each
    value has DRAWS evenly likely errors, in an order of its own for each cell."""
    likely = t_errors(repeats.freedom, 2 * (np.arange(DRAWS) + 0.5) / DRAWS - 1) * repeats.deviation
    rng = np.random.default_rng(1)
    shuffled = np.stack([rng.permutation(likely) for _ in range(n_cells)], axis=1)
    return shuffled[None] * (unevenness(values) * np.sqrt(1 + 1 / behind))[:, None]


def steps(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """Forecast cells by the nearest known run at equal rate x rounds: `curve` without batch, updates and precision."""
    runs = timed_runs(evidence, split)
    if not runs:
        return bare(np.full(len(cells), np.nan))
    paces = np.array([rate_ratio(run.learning_rate, runs[0].learning_rate) for run in runs])
    asked = rates or (None,) * len(cells)
    read = [
        read_at(runs, paces, rate_ratio(rate, runs[0].learning_rate), cell.rounds)[0]
        for cell, rate in zip(cells, asked, strict=True)
    ]
    return bare(np.array(read))


def law(evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()) -> CellForecast:
    """Forecast cells by one curve against tau (studies/forecast/law/curve.py) through all known points, but those of
    runs that a learning rate spoiled. Where other pairs are known, the medians of its prior are theirs. Learning rates
    count as in `curve`, and so do the updates of imported runs. nan without a point after round 0, or the base model's
    Pass@1, measured or guessed."""
    column, base = SPLITS.index(split), evidence.base(split)
    tried = evidence.tried(split)
    if np.isnan(base) or not tried:
        return bare(np.full(len(cells), np.nan))
    power, own = float(np.median(rate_powers(evidence, split))), evidence.runs[0].learning_rate

    def worth(design: Design, rate: float | None) -> float:
        """Return the rounds at the first run's rate that a round is worth, apart from what the law itself computes."""
        updates = round_updates(design) ** UPDATES / (design.epochs * sqrt(design.minibatches))
        return rate_ratio(rate, own) ** power * (updates if evidence.imported else 1.0)

    runs = [
        KnownRun(run.design, run.rounds[later] * worth(run.design, run.learning_rate), run.values[later])
        for run in tried
        if (later := run.rounds > 0).any() and not spoils(run, tried)
    ]
    if not runs:
        return bare(np.full(len(cells), np.nan))
    asked = zip(cells, rates or (None,) * len(cells), strict=True)
    rounds = np.array([cell.rounds * worth(cell, rate) for cell, rate in asked])
    prior = learn_prior([_other_curve(other, column) for other in evidence.others])
    within = evidence.guessed_base[1:] if evidence.guessed_base else None
    return forecast(base, runs, evidence.noise, cells, prior=prior, base_within=within, rounds=rounds)


def left_out_errors(evidence: Evidence, split: str = "test") -> tuple[float, float]:
    """Return the mean error at the ends of known runs of the law fitted to the other runs, and of the others' mean end.
    Both are nan with fewer than three runs, or without the base model's Pass@1. Learning rates do not count."""
    base, ratios = evidence.base(split), evidence.noise.ratios
    runs = [
        KnownRun(run.design, run.rounds[later], run.values[later])
        for run in evidence.tried(split)
        if (later := run.rounds > 0).any()
    ]
    if np.isnan(base) or len(runs) < 3:
        return np.nan, np.nan
    errors = []
    for i, run in enumerate(runs):
        others = [*runs[:i], *runs[i + 1 :]]
        tau = run.rounds[-1:] * time_per_round(run.design, ratios)
        told = fit_curve(base, others, ratios).at(tau)[0], np.mean([other.values[-1] for other in others])
        errors.append(np.abs(np.array(told) - run.values[-1]))
    return tuple(np.mean(errors, axis=0).tolist())


def _other_curve(other: OtherPair, column: int) -> LawCurve:
    """Fit the law's curve to the ends of another pair."""
    known = [
        KnownRun(design, np.array([float(design.rounds)]), np.array([end]))
        for design, end in zip(other.designs, other.ends[:, column], strict=True)
        if np.isfinite(end)
    ]
    return fit_curve(float(other.base[column]), known, other.noise.ratios)


def still(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """Forecast that a cell ends where the nearest run in rollouts a round ended; equally near runs are averaged."""
    ends = np.array([run.values[-1, SPLITS.index(split)] for run in evidence.runs])
    spent = np.log([run.design.round_rollouts for run in evidence.runs])
    distances = np.abs(spent - np.log([[cell.round_rollouts] for cell in cells]))
    return bare(np.array([ends[np.isclose(row, row.min())].mean() for row in distances]))


def gain(evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()) -> CellForecast:
    """Forecast the end of the pilot's baseline plus the mean gain of each cell over the baseline on other pairs. nan
    where the pilot has no run of the baseline, or another pair lacks it or the cell."""
    column = SPLITS.index(split)
    own = [run.values[-1, column] for run in evidence.runs if label(run.design) == RAW]
    gains = [[_gain(other, cell, column) for cell in cells] for other in evidence.others]
    if not own or not gains:
        return bare(np.full(len(cells), np.nan))
    return bare(np.clip(own[0] + np.mean(gains, axis=0), 0.0, 1.0))


def _gain(other: OtherPair, cell: Design, column: int) -> float:
    ends = {label(design): end for design, end in zip(other.designs, other.ends[:, column], strict=True)}
    return float(ends.get(label(cell), np.nan) - ends.get(RAW, np.nan))


def sigmoid(
    evidence: Evidence, cells: tuple[Design, ...], split: str = "test", rates: LearningRates = ()
) -> CellForecast:
    """Forecast cells by a saturating curve in rollouts from the base model's Pass@1; nan without the latter, or with
    fewer points than parameters."""
    points = [
        (at * run.design.round_rollouts, value)
        for run in evidence.runs
        for at, value in zip(run.rounds, run.values[:, SPLITS.index(split)], strict=True)
        if at > 0
    ]
    base = evidence.base(split)
    if len(points) < PARAMETERS or np.isnan(base):
        return bare(np.full(len(cells), np.nan))
    spent, reached = np.log([point[0] for point in points]), np.array([point[1] for point in points])
    fitted = fit_saturating(base, spent, reached, (spent.min(), np.median(spent), spent.max()))
    return bare(fitted(np.log([cell.rounds * cell.round_rollouts for cell in cells])))


QUICK: dict[str, Forecaster] = {
    "law": law, "curve": curve, "steps": steps, "still": still, "gain": gain, "sigmoid": sigmoid
}  # fmt: skip
"""Forecasters without a simulator by name, in the order of tables."""


def forecast_columns(forecasts: dict[str, CellForecast]) -> dict[str, np.ndarray]:
    """Return columns of a table: each forecast by name, and NAME_low and NAME_high of those with an interval."""
    columns: dict[str, np.ndarray] = {}
    for name, one in forecasts.items():
        columns |= {name: one.values}
        if one.draws is not None:
            columns |= {f"{name}_low": one.low, f"{name}_high": one.high}
    return columns
