"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts, each a quantity with an interval and the range in which the claim wants it; verdicts are those of
rftlab.studies.data.results.claims. Where a cell was repeated, the interval is Welch's over runs. Where it was run once,
the interval of a difference is that of unintended repeats (rftlab.studies.analysis.public.repeats): wide, and honest
about it. Intervals are not corrected for the number of claims. No part: the source cannot test it as it is.
"""

import csv
from collections.abc import Callable

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.axes import at, left_out_errors
from rftlab.studies.analysis.public.repeats import PairNoise, single_interval, without_repeat
from rftlab.studies.analysis.public.store import DATA, score_rows
from rftlab.studies.data.results.stats import interval, mean
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Judgement, Part, joint_verdict

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
