"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts, each a quantity with an interval and the range in which the claim wants it; verdicts are those of
rftlab.studies.data.results.claims. Where a cell was repeated, the interval is Welch's over runs. Where it was run once,
the interval of a difference is that of unintended repeats: wide, and honest about it. Intervals are not corrected for
the number of claims. No part: the source cannot test it as it is. Sources whose numbers are not shipped have parts that
dev.public_runs took from the collection; claims about fits to their curves are judged there.
"""

import csv
import json
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.store import BY_NAME, DATA, curves, of_source, runs, score_rows
from rftlab.studies.data.results.stats import Estimate, Mean, mean
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Judgement, Part, joint_verdict


def curves_on(rows: pd.DataFrame, axis: str) -> list[np.ndarray]:
    """Of each run, in the order of their names, places on the axis (round, rollouts, seconds) and test Pass@1 there
    (2, evaluations)."""
    ordered = rows.sort_values(axis)
    return [own[[axis, "value"]].to_numpy(np.float64).T for _, own in ordered.groupby("run_id")]


def values_at(curves: list[np.ndarray], x: float) -> np.ndarray:
    """Test Pass@1 of each run (n,) at x of the axis that `curves_on` took, linear between evaluations; runs that do not
    reach from below x to above it are left out."""
    return np.array([np.interp(x, where, value) for where, value in curves if where[0] <= x <= where[-1]])


SIX_HOURS = 21600.0
"""Seconds after which runs of PODS end."""


def without_repeat(run_ids: pd.Series) -> pd.Series:
    """Configuration of runs of PODS: the run id without the repeat."""
    return run_ids.str.rsplit("/", n=1).str[0]


def cell_deviations(curves: pd.DataFrame) -> pd.Series:
    """Deviation of test Pass@1 between the runs of each cell of PODS on GSM8K after six hours."""
    last = score_rows(curves, "gsm8k")
    last = last[last["seconds"] == SIX_HOURS]
    cells = without_repeat(last["run_id"]).str.removeprefix("pods/gsm8k-")
    return last.groupby(cells)["value"].std()


LAST = 5
"""Evaluations over which two single runs are compared: the last that both have."""


def _single(table: pd.DataFrame, after: str, before: str, noise: Mean, low: float, high: float) -> Part:
    differences = (table[after] - table[before]).dropna().iloc[-LAST:]
    name = " − ".join(run.partition("/")[2] for run in (after, before))
    note = f"a run each, noise of {noise.freedom} pairs"
    return Part(name, noise._replace(value=float(differences.mean())).interval(), low, high, note=note)


def _parts(row: dict[str, str], curves: pd.DataFrame, noise: Mean) -> list[Part]:
    """The quantities of a row of public_claims.csv. Its axis `last` compares single runs over the last evaluations that
    both have; rounds, rollouts and seconds compare cells of PODS at the same point of that axis, on GSM8K. None without
    an axis; `rate x steps` is a fit of dev.public_runs."""
    axis, low, high = row["axis"], float(row["low"] or "-inf"), float(row["high"] or "inf")
    if axis in ("", "rate x steps"):
        return []
    pairs = [one.split(" - ", 1) for one in row["differences"].split("; ")]
    if axis == "last":
        table = score_rows(curves).pivot(index="round", columns="run_id", values="value")
        return [_single(table, after, before, noise, low, high) for after, before in pairs]
    rows = score_rows(curves, "gsm8k")
    cells = without_repeat(rows["run_id"])
    own = (curves_on(rows[cells == f"pods/gsm8k-{name}"], axis) for name in pairs[0])
    sides = [values_at(each, float(row["at"])) for each in own]
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


FACTS = "public_facts.json"


class PublicFacts(NamedTuple):
    """Statistics of the sources that are not shipped."""

    noise: Mean
    """How far two single runs of one configuration differ in test Pass@1: 0, with the root mean square of the
    difference over evaluations and pairs, and a degree of freedom a pair, because a pair's evaluations rise and fall
    together."""
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
    noise = Mean(0.0, whole["noise"]["scale"], whole["noise"]["pairs"])
    return PublicFacts(noise, whole["spreads"], whole["fits"], parts)


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
