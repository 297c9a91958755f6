"""Compute what compares groups of runs: base, end and gain, values at equal rounds and rollouts, noise, designs that
two levels have in common, and the recommended design (studies/report/choose.py recommends for pairs)."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from rftlab.studies.analysis.imported.groups import Group, RunGroups
from rftlab.studies.data.results.claims import SAME, STILL
from rftlab.studies.data.results.stats import Estimate, Mean, binomial_error, mean
from rftlab.studies.report.choose import FEW_SEEDS, Advice, Trust, doubted


class Ends(NamedTuple):
    """Base, end, gain and noise of a group of runs."""

    side: str
    group: Group
    base: Mean
    end: Mean
    gain: Mean
    at_rounds: float
    """Value at the round that every group has reached."""
    at_rollouts: float
    """Value at the number of rollouts that every group has reached; nan where B or K is not known."""
    at_seconds: float
    """Value at the seconds of training that every timed group has reached; nan where the logs are not timed."""
    between_runs: float
    """Standard deviation of the end over runs; nan with one run."""
    between_evaluations: float
    """Standard deviation of an evaluation around a smooth curve, from second differences; nan with fewer than four."""
    of_questions: float
    """Binomial standard error of one evaluation; nan where the number of responses is not known."""


UNKNOWN = Estimate(np.nan, -np.inf, np.inf)
"""Difference of two single runs, whose spread is not known."""
_PLAIN = ("at_rounds", "at_rollouts", "at_seconds", "between_runs", "between_evaluations", "of_questions")


class CommonDesign(NamedTuple):
    """Design that two levels have in common, with their results."""

    first: Ends
    second: Ends
    unknown: tuple[str, ...]
    """Facts that are unknown for one of the two designs and therefore taken as equal."""
    end: Mean
    """End of the second minus end of the first."""
    gain: Mean


def shared_places(sides: list[RunGroups]) -> tuple[int, int | None, float | None]:
    """Return the places at which groups are compared: rounds that every group with a curve reached, rollouts (None
    where no group has B and K), and seconds of training that every timed group reached (None where none is timed)."""
    groups = [group for side in sides for group in side.groups if group.drawn]
    spent = [group.last * group.per_round for group in groups if group.per_round]
    took = [float(one.curves.groupby("run", observed=True)["seconds"].max().min()) for one in groups if one.timed]
    return min((group.last for group in groups), default=0), min(spent, default=None), min(took, default=None)


def measure_ends(side: RunGroups, rounds: int, rollouts: int | None, seconds: float | None) -> list[Ends]:
    """Return base, end, gain and noise of each group of a level."""
    return [_ends(side.name, group, rounds, rollouts, seconds) for group in side.groups]


def _ends(side: str, group: Group, rounds: int, rollouts: int | None, seconds: float | None) -> Ends:
    runs = [run.sort_values("round") for _, run in group.curves.groupby("run", sort=False, observed=True)]
    firsts = [run.iloc[0] for run in runs if run["round"].iloc[0] == 0]
    lasts = [run.iloc[-1] for run in runs]
    base, end = _mean(firsts, group.exact), _mean(lasts, group.exact)
    gains = [run["value"].iloc[-1] - run["value"].iloc[0] for run in runs if run["round"].iloc[0] == 0]
    spent = rollouts / group.per_round if rollouts and group.per_round else np.nan
    numbers = np.array([row["n"] for row in lasts])
    middle = float(np.clip(end.value, 0.0, 1.0)) if np.isfinite(end.value) else np.nan
    known = not group.exact and np.isfinite(numbers).any() and group.curves["value"].between(0, 1).all()
    return Ends(
        side,
        group,
        base,
        end,
        _gain(gains, base, end),
        _at(runs, rounds) if group.drawn else np.nan,
        _at(runs, spent) if group.drawn else np.nan,
        _at(runs, seconds, "seconds") if group.timed and seconds is not None else np.nan,
        float(np.std([row["value"] for row in lasts], ddof=1)) if len(runs) > 1 else np.nan,
        roughness([run["value"].to_numpy() for run in runs]) if group.drawn and not group.exact else np.nan,
        float(np.sqrt(middle * (1 - middle) / np.nanmean(numbers))) if known else np.nan,
    )


def _mean(rows: list[pd.Series], exact: bool) -> Mean:
    """Return the mean of an evaluation over runs with its error; with one run, its binomial error where known."""
    if not rows:
        return Mean(np.nan)
    over_runs, n = mean([row["value"] for row in rows]), rows[0]["n"]
    if over_runs.error > 0:
        return over_runs
    value = over_runs.value
    if exact or not np.isfinite(n) or not 0 <= value <= 1:
        return Mean(value)
    return Mean(value, binomial_error(value, n), np.inf)


def _gain(gains: list[float], base: Mean, end: Mean) -> Mean:
    """Return the mean gain with its error over runs, or of one run with the errors of its two evaluations."""
    within = mean(gains)
    return within if not gains or within.error > 0 else end.less(base._replace(value=end.value - within.value))


def _at(runs: list[pd.DataFrame], place: float, axis: str = "round") -> float:
    """Return the mean over runs at a place of an axis, linear between evaluations; nan where a run does not reach from
    before to after it."""
    values = [np.interp(place, run[axis], run["value"], left=np.nan, right=np.nan) for run in runs]
    return float(np.mean(values)) if np.isfinite(place) else np.nan


def roughness(curves: list[np.ndarray]) -> float:
    """Return the standard deviation of independent normal noise on smooth curves at about equal distances. Second
    differences have six times its variance; their median is used, so that a steep start does not count as noise."""
    sizes = np.concatenate([np.abs(np.diff(values, 2)) for values in curves] or [np.empty(0)])
    return float(np.median(sizes) / (ndtri(0.75) * np.sqrt(6))) if len(sizes) > 1 else np.nan


def common(first: list[Ends], second: list[Ends]) -> list[CommonDesign]:
    """Return the designs of two levels with equal B and K, and with equal updates and advantage as far as known."""
    shared = []
    for a in first:
        for b in second:
            unknown = _alike(a.group, b.group)
            if unknown is not None:
                shared.append(CommonDesign(a, b, unknown, b.end.less(a.end), b.gain.less(a.gain)))
    return shared


def _alike(first: Group, second: Group) -> tuple[str, ...] | None:
    """Return the facts that are not known for both designs; None where a fact differs, or B or K is not known."""
    unknown = []
    for name in ("prompts", "rollouts", "updates_per_round", "advantage"):
        own, other = getattr(first.design, name), getattr(second.design, name)
        missing = own is None or other is None
        if (not missing and own != other) or (missing and name in ("prompts", "rollouts")):
            return None
        if missing:
            unknown.append(name)
    return tuple(unknown)


def ends_table(ends: list[Ends]) -> pd.DataFrame:
    """Return the results of groups as a table with a row per group."""
    rows = [
        {
            "level": one.side,
            "model": one.group.model,
            "task": one.group.task,
            "design": one.group.label,
            "runs": len(one.group.runs),
            "rounds": one.group.last,
            "rollouts": one.group.last * one.group.per_round if one.group.per_round else np.nan,
            "base": one.base.value,
            "end": one.end.value,
            "end_half": one.end.half,
            "gain": one.gain.value,
            "gain_half": one.gain.half,
            **{name: getattr(one, name) for name in _PLAIN},
        }
        for one in ends
    ]
    return pd.DataFrame(rows)


def advice_on(ends: list[Ends]) -> list[Advice]:
    """Return the recommended design for each level, model and task. Runs are independent here, so differences have
    Welch's intervals. A design with one run has no interval, so only the best itself is surely as good as the best."""
    places: dict[tuple[str, str], list[Ends]] = {}
    for one in ends:
        if np.isfinite(one.end.value):
            places.setdefault((one.side, one.group.place), []).append(one)
    return [_advice(side, place, own) for (side, place), own in places.items()]


def _advice(side: str, place: str, own: list[Ends]) -> Advice:
    best = max(own, key=lambda one: one.end.value)
    told = [min(len(one.group.runs), len(best.group.runs)) > 1 for one in own]
    gaps = [best.end.less(one.end).interval() if known else UNKNOWN for one, known in zip(own, told, strict=True)]
    close = [one for one, gap in zip(own, gaps, strict=True) if one is best or gap.high <= SAME]
    chosen = min(close, key=lambda one: (one.group.per_round or np.inf, -one.end.value))
    cheap = [(one.group.per_round or np.inf) <= (chosen.group.per_round or np.inf) and one is not best for one in own]
    rivals = sum(cheap and gap.low <= 0 and gap.high > SAME for cheap, gap in zip(cheap, gaps, strict=True))
    moved = best.gain.interval().high >= STILL or not np.isfinite(best.gain.value)
    return Advice(
        place,
        place,
        side,
        chosen.group.label if moved else "",
        chosen.group.per_round or 0,
        chosen.end.interval(),
        chosen.gain.interval(),
        best.group.label,
        best.end.interval(),
        len(own),
        "",
        0,
        *doubted(*_trust(own), rivals),
    )


def _trust(own: list[Ends]) -> tuple[Trust, tuple[str, ...]]:
    """Return how far to trust the advice and why: `low` with a single design or fewer than three runs of some design,
    else `fair`, because designs that were not planned together may differ in more than what is known of them."""
    fewest = min(len(one.group.runs) for one in own)
    runs = f"{fewest} run{'s' * (fewest > 1)} of the design with the fewest"
    if len(own) == 1:
        return "low", (f"{fewest} run{'s' * (fewest > 1)}", "one design, so nothing is compared")
    reasons = (runs, "designs may differ in more than their logs tell")
    return ("low" if fewest < FEW_SEEDS else "fair"), reasons
