"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts, each a quantity with an interval and the range in which the claim wants it; verdicts are those of
rftlab.studies.data.results.claims. Where a cell was repeated, the interval is Welch's over runs. Where it was run once,
the interval of a difference is that of unintended repeats: wide, and honest about it. Intervals are not corrected for
the number of claims. No part: the source cannot test it as it is. Sources whose numbers are not shipped have parts that
dev.public_runs took from the collection.
"""

import csv
import json
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import expit, logit

from rftlab.studies.analysis.public.store import BY_NAME, DATA, curves, of_source, runs, score_rows
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
    middle = np.log(x).mean()
    starts = [[logit(0.05), logit(0.9), slope, middle + shift] for slope in (0.7, 1.5, 3.0) for shift in (-1.0, 1.0)]
    # least squares of a sigmoid has local minima, so that one start is not enough
    tries = (least_squares(lambda fitted: sigmoid_at(fitted, x) - y, start, max_nfev=2000) for start in starts)
    return min(tries, key=lambda fit: fit.cost).x


def sigmoid_at(fitted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of a fit at x (n,)."""
    floor, ceiling = expit(fitted[0]), expit(fitted[1])
    return floor + (ceiling - floor) * expit(fitted[2] * (np.log(x) - fitted[3]))


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


def without_repeat(run_ids: pd.Series) -> pd.Series:
    """Configuration of runs of PODS: the run id without the repeat."""
    return run_ids.str.rsplit("/", n=1).str[0]


def cell_deviations(curves: pd.DataFrame) -> pd.Series:
    """Deviation of test Pass@1 between the runs of each cell of PODS on GSM8K after six hours."""
    last = score_rows(curves, "gsm8k")
    last = last[last["seconds"] == SIX_HOURS]
    cells = without_repeat(last["run_id"]).str.removeprefix("pods/gsm8k-")
    return last.groupby(cells)["value"].std()


def single_interval(difference: float, noise: PairNoise) -> Estimate:
    """95% interval of a difference of two single runs; Student's t with one degree of freedom a pair, because a
    pair's evaluations rise and fall together."""
    return Mean(difference, noise.scale, noise.pairs).interval()


LAST = 5
"""Evaluations over which two single runs are compared: the last that both have."""
COLLAPSED = ("shibuki/lr7e-5", "shibuki/lr2e-4")
"""Learning rates that collapse or stall, as their curves show."""


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


def _one_axis(curves: pd.DataFrame) -> list[Part]:
    rows = rate_points(curves, collapsed=False)
    y, rate, steps = (rows[name].to_numpy(float) for name in ("value", "rate", "round"))
    errors = [left_out_errors(x, y, rate) for x in (steps, rate * steps)]
    gains = errors[0] - errors[1]
    name = "error of a left-out rate, by steps less by rate × steps"
    return [Part(name, interval(gains), 0.0, np.inf, note=f"{gains.size} learning rates")]


def _parts(row: dict[str, str], curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
    """The quantities of a row of public_claims.csv. Its axis `last` compares single runs over the last evaluations that
    both have; rounds, rollouts and seconds compare cells of PODS at the same point of that axis, on GSM8K."""
    axis, low, high = row["axis"], float(row["low"] or "-inf"), float(row["high"] or "inf")
    if not axis:
        return []
    if axis == "rate x steps":
        return _one_axis(curves)
    pairs = [one.split(" - ", 1) for one in row["differences"].split("; ")]
    if axis == "last":
        table = score_rows(curves).pivot(index="round", columns="run_id", values="value")
        return [_single(table, after, before, noise, low, high) for after, before in pairs]
    rows = score_rows(curves, "gsm8k")
    cells = without_repeat(rows["run_id"])
    sides = [at(rows[cells == f"pods/gsm8k-{name}"], axis, float(row["at"])) for name in pairs[0]]
    note = f"{sides[0].size} and {sides[1].size} runs"
    return [Part(" − ".join(pairs[0]), mean(sides[0]).less(mean(sides[1])).interval(), low, high, note=note)]


CLAIMS = tuple(
    Claim(row["name"], row["statement"], partial(_parts, row), row["source"], row["remark"])
    for row in csv.DictReader((DATA / "public_claims.csv").read_text(encoding="utf-8").splitlines())
)
"""In the order in which they are shown."""


def find(claim: Claim, parts: list[Part]) -> ClaimFinding:
    """Return the verdict of these parts on a claim. Labels of a source's cells are not shuffled."""
    return ClaimFinding(claim, claim.source, parts, Judgement(joint_verdict(parts)))


def judge_source(source: str, curves: pd.DataFrame, noise: PairNoise) -> list[ClaimFinding]:
    """A finding for every claim about a source, from its curves and the noise of single runs."""
    return [find(claim, claim.parts(curves, noise)) for claim in CLAIMS if claim.source == source]


FACTS = "public_facts.json"


class PublicFacts(NamedTuple):
    """Statistics of the sources that are not shipped."""

    noise: PairNoise
    spreads: list[dict[str, Any]]
    """How far repeats of a configuration differ: source, configuration, repeats, measure and value."""
    fits: list[dict[str, float]]
    """Errors (root mean square) of one sigmoid of steps and of rate_steps, rate x steps, for the curves of so many
    rates and evaluations; with the rates that collapse, then without."""
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
    return PublicFacts(PairNoise(**whole["noise"]), whole["spreads"], whole["fits"], parts)


@cache
def findings() -> tuple[ClaimFinding, ...]:
    """Every claim in its order: from the numbers where they are shipped, else from the facts."""
    known, shipped = facts(), (runs(), curves())
    return tuple(
        find(claim, claim.parts(of_source(claim.source, *shipped), known.noise))
        if BY_NAME[claim.source].shipped
        else find(claim, known.parts[claim.name, claim.source])
        for claim in CLAIMS
    )
