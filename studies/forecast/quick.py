"""Forecasts without a simulator: the law's and the plain ones, in one table of functions."""

import numpy as np

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.studies.forecast.evidence import Evidence, OtherPair
from rftlab.studies.forecast.law.curve import KnownRun, LawCurve, fit_curve, forecast, learnt
from rftlab.studies.forecast.law.limits import spoils
from rftlab.studies.forecast.plain import CellForecast, Forecaster, bare, gain, sigmoid, still


def law(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> CellForecast:
    """One curve against tau (studies/forecast/law/curve.py) through all known points but those of runs that a rate
    spoilt; where other pairs are known, the medians of its prior are theirs. nan without the base model, measured or
    guessed, or a point after round 0."""
    column, base = SPLITS.index(split), evidence.base(split)
    tried = evidence.tried(split)
    measured = [run for run in evidence.runs if np.isfinite(run.values[:, column]).any()]
    runs = [
        KnownRun(run.design, evidence.steps(run)[later], run.values[later, column])
        for run, one in zip(measured, tried, strict=True)
        if (later := (run.rounds > 0) & np.isfinite(run.values[:, column])).any() and not spoils(one, tried)
    ]
    if np.isnan(base) or not runs:
        return bare(np.full(len(cells), np.nan))
    prior = learnt([curve_of(other, column) for other in evidence.others])
    within = evidence.guessed_base[1:] if evidence.guessed_base else None
    found = forecast(base, runs, evidence.noise, cells, prior=prior, base_within=within)
    return CellForecast(found.median, found.low, found.high, found.expected)


def curve_of(other: OtherPair, column: int) -> LawCurve:
    """The law's curve through the ends of another pair."""
    known = [
        KnownRun(design, np.array([float(design.rounds)]), np.array([end]))
        for design, end in zip(other.designs, other.ends[:, column], strict=True)
        if np.isfinite(end)
    ]
    return fit_curve(float(other.base[column]), known, other.noise.ratios)


QUICK: dict[str, Forecaster] = {"law": law, "still": still, "gain": gain, "sigmoid": sigmoid}
"""By name, in the order of tables."""


def quick_forecasts(evidence: Evidence, cells: tuple[Design, ...], split: str = "test") -> dict[str, CellForecast]:
    """What each says."""
    return {name: forecaster(evidence, cells, split) for name, forecaster in QUICK.items()}


def forecasts_at(
    evidence: Evidence, cells: tuple[Design, ...], rates: tuple[float | None, ...], split: str = "test"
) -> dict[str, CellForecast]:
    """`quick_forecasts` of cells that have a learning rate each; None: that of the known runs."""
    parts, order = [], []
    for rate in dict.fromkeys(rates):
        at = [i for i, one in enumerate(rates) if one == rate]
        parts.append(quick_forecasts(evidence._replace(learning_rate=rate), tuple(cells[i] for i in at), split))
        order += at
    places = np.argsort(order)
    return {name: _joined([part[name] for part in parts], places) for name in QUICK}


def _joined(parts: list[CellForecast], places: np.ndarray) -> CellForecast:
    values, low, high = (np.concatenate(column)[places] for column in list(zip(*parts, strict=True))[:3])
    draws = [part.draws for part in parts if part.draws is not None]
    return CellForecast(values, low, high, np.concatenate(draws, axis=1)[:, places] if draws else None)


def columns_of(forecasts: dict[str, CellForecast]) -> dict[str, np.ndarray]:
    """Columns of a table: each forecast by its name, and NAME_low and NAME_high of those that have an interval."""
    found: dict[str, np.ndarray] = {}
    for name, one in forecasts.items():
        found |= {name: one.values}
        if one.draws is not None:
            found |= {f"{name}_low": one.low, f"{name}_high": one.high}
    return found
