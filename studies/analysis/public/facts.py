"""Facts about the sources whose numbers are not shipped: statistics that dev.public_runs took
from the collection."""

import json
from functools import cache
from typing import NamedTuple

import numpy as np

from rftlab.studies.analysis.public.claims import CLAIMS, find, judge_source
from rftlab.studies.analysis.public.repeats import PairNoise, Spread, cell_spreads
from rftlab.studies.analysis.public.sources import BY_NAME
from rftlab.studies.analysis.public.store import DATA, Collection, curves, of_source, runs
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.data.results.verdicts import ClaimFinding, Part

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
