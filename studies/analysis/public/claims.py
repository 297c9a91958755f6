"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts. Each part is a quantity with an interval, and the range in which the claim expects it. Verdicts are
those of rftlab.studies.data.results.verdicts. Where a cell was repeated, the interval is Welch's over runs. Where it
was run once, the interval of a difference comes from unintended repeats of other configurations, which makes it wide.
Intervals are not corrected for the number of claims. A claim without parts cannot be tested with the source as it is.
Sources whose numbers are not shipped have parts that dev.public_runs computed from the collection; claims about fits to
their curves are judged there.
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
    """Return a curve for each run, in the order of run ids: places on the axis (round, rollouts, seconds) and the test
    Pass@1 there, each of shape (2, evaluations)."""
    ordered = rows.sort_values(axis)
    return [own[[axis, "value"]].to_numpy(np.float64).T for _, own in ordered.groupby("run_id")]


def values_at(curves: list[np.ndarray], x: float) -> np.ndarray:
    """Return the test Pass@1 (n,) of the runs at the place x of the axis that `curves_on` took, linear between
    evaluations. Runs that do not reach from below x to above it are left out."""
    return np.array([np.interp(x, where, value) for where, value in curves if where[0] <= x <= where[-1]])


SIX_HOURS = 21600.0
"""Seconds after which the runs of PODS end."""


def without_repeat(run_ids: pd.Series) -> pd.Series:
    """Return the configuration of each run of PODS: its run id without the repeat."""
    return run_ids.str.rsplit("/", n=1).str[0]


def cell_deviations(curves: pd.DataFrame) -> pd.Series:
    """Return the standard deviation of test Pass@1 between the runs of each cell of PODS on GSM8K after six hours."""
    last = score_rows(curves, "gsm8k")
    last = last[last["seconds"] == SIX_HOURS]
    cells = without_repeat(last["run_id"]).str.removeprefix("pods/gsm8k-")
    return last.groupby(cells)["value"].std()


LAST = 5
"""Number of evaluations over which two single runs are compared: the last ones that both have."""


def _single(table: pd.DataFrame, after: str, before: str, noise: Mean, low: float, high: float) -> Part:
    differences = (table[after] - table[before]).dropna().iloc[-LAST:]
    name = " − ".join(run.partition("/")[2] for run in (after, before))
    note = f"a run each, noise of {noise.freedom} pairs"
    return Part(name, noise._replace(value=float(differences.mean())).interval(), low, high, note=note)


def _parts(row: dict[str, str], curves: pd.DataFrame, noise: Mean) -> list[Part]:
    """Return the quantities of a row of public_claims.csv. With the axis `last`, single runs are compared over the last
    evaluations that both have. With rounds, rollouts or seconds, cells of PODS on GSM8K are compared at the same point
    of that axis. There are no quantities without an axis, or with `rate x steps`, which is a fit of dev.public_runs."""
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
"""Claims in the order in which they are shown."""


def find(claim: Claim, parts: list[Part]) -> ClaimFinding:
    """Return the finding on a claim: the joint verdict of its parts. Labels of a source's cells are not shuffled."""
    return ClaimFinding(claim, claim.source, parts, Judgement(joint_verdict(parts)))


FACTS = "public_facts.json"


class PublicFacts(NamedTuple):
    """Statistics of the sources that are not shipped."""

    noise: Mean
    """Difference in test Pass@1 between two single runs of one configuration. The value is 0, and the error is the root
    mean square of the difference over evaluations and pairs. There is one degree of freedom for each pair, because a
    pair's evaluations rise and fall together."""
    spreads: list[dict[str, Any]]
    """Differences between repeats of a configuration: source, configuration, repeats, measure and value."""
    fits: list[dict[str, float]]
    """Root mean square errors of one sigmoid against `steps` and against `rate_steps` (rate x steps), with the number
    of rates and evaluations; first with the rates that collapse, then without."""
    parts: dict[tuple[str, str], list[Part]]
    """Parts of the claims by claim and source."""


@cache
def facts() -> PublicFacts:
    """Read the statistics of the sources that are not shipped from the file that comes with the package."""
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
    """Return the finding on every claim, from its source's numbers where they are shipped, else from `facts`."""
    known, shipped = facts(), (runs(), curves())
    return tuple(
        find(claim, claim.parts(of_source(claim.source, *shipped), known.noise))
        if BY_NAME[claim.source].shipped
        else find(claim, known.parts[claim.name, claim.source])
        for claim in CLAIMS
    )
