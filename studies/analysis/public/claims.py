"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts, each a quantity with an interval and the range in which the claim wants it; verdicts are those of
rftlab.studies.data.results.claims. Where a cell was repeated, the interval is Welch's over runs. Where it was run once,
the interval of a difference is that of unintended repeats (`single_interval`): wide, and honest
about it. Intervals are not corrected for the number of claims. No part: the source cannot test it as it is.

The noise comes first: how far runs of one configuration differ. Curves of different learning rates meet on an axis of
their own. Sources whose numbers are not shipped have facts: statistics that dev.public_runs took from the collection.
"""

import csv
import json
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit, logit

from rftlab.studies.analysis.public.store import BY_NAME, DATA, Collection, curves, of_source, runs, score_rows
from rftlab.studies.data.results.stats import Estimate, Mean, interval, mean
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Judgement, Part, joint_verdict


def at(rows: pd.DataFrame, axis: str, x: float) -> np.ndarray:
    """Test Pass@1 of each run (n,) at x of the axis (round, rollouts, seconds), linear between evaluations; runs that
    do not reach from below x to above it are left out."""
    return values_at(curves_on(rows, axis), x)


def curves_on(rows: pd.DataFrame, axis: str) -> list[np.ndarray]:
    """Of each run, in the order of their names, places on the axis and test Pass@1 there (2, evaluations)."""
    ordered = rows.sort_values(axis)
    return [own[[axis, "value"]].to_numpy(np.float64).T for _, own in ordered.groupby("run_id")]


def values_at(curves: list[np.ndarray], x: float) -> np.ndarray:
    """As `at`, of curves that `curves_on` made: where one is read at many places."""
    return np.array([np.interp(x, where, value) for where, value in curves if where[0] <= x <= where[-1]])


def fit_sigmoid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Floor, ceiling, slope and log of the middle of a sigmoid in log x (n,) that is closest to y (n,); the best of
    six starts, floor and ceiling within [0, 1]."""
    logs = np.log(x)
    starts = [
        [logit(0.05), logit(0.9), slope, logs.mean() + shift] for slope in (0.7, 1.5, 3.0) for shift in (-1.0, 1.0)
    ]
    tries = (least_squares(lambda q: _sigmoid(q, logs) - y, start, max_nfev=2000) for start in starts)
    return min(tries, key=lambda fit: fit.cost).x


def sigmoid_at(fitted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of a fit at x (n,)."""
    return _sigmoid(fitted, np.log(x))


def _sigmoid(q: np.ndarray, logs: np.ndarray) -> np.ndarray:
    floor, ceiling = expit(q[0]), expit(q[1])
    return floor + (ceiling - floor) * expit(q[2] * (logs - q[3]))


def left_out_errors(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Root mean square error on each group (G,), sorted by its name, of the sigmoid fitted to the others."""
    errors = []
    for group in np.unique(groups):
        own = groups == group
        errors.append(np.sqrt(np.mean((sigmoid_at(fit_sigmoid(x[~own], y[~own]), x[own]) - y[own]) ** 2)))
    return np.array(errors)


SIX_HOURS = 21600.0
"""Seconds after which runs of PODS end."""


class PairNoise(NamedTuple):
    """How far two single runs of one configuration differ in test Pass@1."""

    scale: float
    """Root mean square of the difference, over evaluations and pairs."""
    pairs: int
    """Pairs that it was estimated from."""


class Spread(NamedTuple):
    """How far repeats of a configuration differ."""

    source: str
    configuration: str
    repeats: int
    measure: str
    value: float


def without_repeat(run_ids: pd.Series) -> pd.Series:
    """Configuration of runs of PODS: the run id without the repeat."""
    return run_ids.str.rsplit("/", n=1).str[0]


def cell_spreads(curves: pd.DataFrame) -> list[Spread]:
    """Deviation between the runs of each cell of PODS on GSM8K after six hours."""
    last = score_rows(curves, "gsm8k")
    last = last[last["seconds"] == SIX_HOURS]
    return [
        Spread(
            "pods",
            str(cell).removeprefix("pods/gsm8k-"),
            len(rows),
            "deviation between runs",
            float(rows["value"].std()),
        )
        for cell, rows in last.groupby(without_repeat(last["run_id"]))
    ]


def single_interval(difference: float, noise: PairNoise) -> Estimate:
    """95% interval of a difference of two single runs; Student's t with one degree of freedom a pair, because a
    pair's evaluations rise and fall together."""
    return Mean(difference, noise.scale, noise.pairs).interval()


LAST = 5
"""Evaluations over which two single runs are compared: the last that both have."""
COLLAPSED = ("shibuki/lr7e-5", "shibuki/lr2e-4")
"""Learning rates that collapse or stall, as their curves show."""


def _cells(after: str, before: str, axis: str, x: float, low: float, high: float) -> Callable:
    """Two cells of PODS at the same point of an axis, on GSM8K."""

    def parts(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
        rows = score_rows(curves, "gsm8k")
        cells = without_repeat(rows["run_id"])
        sides = [at(rows[cells == f"pods/gsm8k-{name}"], axis, x) for name in (after, before)]
        note = f"{sides[0].size} and {sides[1].size} runs"
        return [Part(f"{after} − {before}", mean(sides[0]).less(mean(sides[1])).interval(), low, high, note=note)]

    return parts


def _singles(*pairs: tuple[str, str], low: float, high: float) -> Callable:
    """Pairs of single runs, over the last evaluations that both have."""

    def parts(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
        table = score_rows(curves).pivot(index="round", columns="run_id", values="value")
        return [_single(table, after, before, noise, low, high) for after, before in pairs]

    return parts


def _single(table: pd.DataFrame, after: str, before: str, noise: PairNoise, low: float, high: float) -> Part:
    differences = (table[after] - table[before]).dropna().iloc[-LAST:]
    name = " − ".join(run.partition("/")[2] for run in (after, before))
    note = f"a run each, noise of {noise.pairs} pairs"
    return Part(name, single_interval(float(differences.mean()), noise), low, high, note=note)


def rate_points(curves: pd.DataFrame, collapsed: bool) -> pd.DataFrame:
    """Test scores after round 0 of the runs whose learning rate alone differs: run_id, round, value and rate; those
    that collapse only where asked."""
    rows = score_rows(curves)
    rows = rows[rows["run_id"].str.startswith("shibuki/lr") & (rows["round"] > 0)]
    rows = rows if collapsed else rows[~rows["run_id"].isin(COLLAPSED)]
    return rows.assign(rate=rows["run_id"].str.removeprefix("shibuki/lr").astype(float))


def _one_axis(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
    rows = rate_points(curves, collapsed=False)
    y, rate, steps = (rows[name].to_numpy(float) for name in ("value", "rate", "round"))
    errors = [left_out_errors(x, y, rate) for x in (steps, rate * steps)]
    gains = errors[0] - errors[1]
    name = "error of a left-out rate, by steps less by rate × steps"
    return [Part(name, interval(gains), 0.0, np.inf, note=f"{gains.size} learning rates")]


def _nothing(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
    return []


def _parts(axis: str, at: str, differences: str, low: str, high: str) -> Callable:
    """The quantities of a row of public_claims.csv: `last` compares single runs, rounds, rollouts and seconds cells."""
    pairs = [(after, before) for after, _, before in (one.partition(" - ") for one in differences.split("; "))]
    bounds = float(low or "-inf"), float(high or "inf")
    if axis == "last":
        return _singles(*pairs, low=bounds[0], high=bounds[1])
    if axis == "rate x steps":
        return _one_axis
    after, before = pairs[0]
    return _cells(after, before, axis, float(at), *bounds) if axis else _nothing


def _read() -> tuple[Claim, ...]:
    rows = csv.DictReader((DATA / "public_claims.csv").read_text(encoding="utf-8").splitlines())
    quantity = ("axis", "at", "differences", "low", "high")
    return tuple(
        Claim(row["name"], row["statement"], _parts(*(row[name] for name in quantity)), row["source"], row["remark"])
        for row in rows
    )


CLAIMS = _read()
"""In the order in which they are shown."""


def find(claim: Claim, parts: list[Part]) -> ClaimFinding:
    """Return the verdict of these parts on a claim. Labels of a source's cells are not shuffled."""
    return ClaimFinding(claim, claim.source, parts, Judgement(joint_verdict(parts)))


def judge_source(source: str, curves: pd.DataFrame, noise: PairNoise) -> list[ClaimFinding]:
    """A finding for every claim about a source, from its curves and the noise of single runs."""
    return [find(claim, claim.parts(curves, noise)) for claim in CLAIMS if claim.source == source]


FACTS = "public_facts.json"


class AxisFit(NamedTuple):
    """Errors (root mean square) of one sigmoid for the curves of several learning rates."""

    rates: int
    evaluations: int
    steps: float
    """Of a sigmoid of steps."""
    rate_steps: float
    """Of a sigmoid of rate x steps."""


class PublicFacts(NamedTuple):
    """Statistics of the sources that are not shipped."""

    noise: PairNoise
    spreads: list[Spread]
    fits: list[AxisFit]
    """With the rates that collapse, then without."""
    parts: dict[tuple[str, str], list[Part]]
    """By claim and source."""


@cache
def facts() -> PublicFacts:
    """The data that come with the package."""
    whole = json.loads((DATA / FACTS).read_text(encoding="utf-8"))
    parts: dict[tuple[str, str], list[Part]] = {}
    for row in whole["parts"]:
        low, high = (end if row[name] is None else row[name] for name, end in (("low", -np.inf), ("high", np.inf)))
        measured = Part(row["name"], Estimate(**row["measured"]), low, high, note=row["repeats"])
        parts.setdefault((row["claim"], row["source"]), []).append(measured)
    return PublicFacts(
        PairNoise(**whole["noise"]),
        [Spread(**row) for row in whole["spreads"]],
        [AxisFit(**row) for row in whole["fits"]],
        parts,
    )


@cache
def findings() -> tuple[ClaimFinding, ...]:
    """Every claim in its order: from the numbers where they are shipped, else from the facts."""
    known, own = facts(), Collection(runs(), curves(), None)
    live = {
        (finding.claim.name, source): finding
        for source in dict.fromkeys(claim.source for claim in CLAIMS)
        if BY_NAME[source].shipped
        for finding in judge_source(source, of_source(own, source), known.noise)
    }
    return tuple(
        live.get((claim.name, claim.source)) or find(claim, known.parts[claim.name, claim.source]) for claim in CLAIMS
    )


def spreads() -> list[Spread]:
    """How far repeats differ, in every source that has any."""
    own = Collection(runs(), curves(), None)
    return cell_spreads(of_source(own, "pods")) + facts().spreads
