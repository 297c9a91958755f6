"""Every claim of `studies/data/results/claims.py` with the sign of its quantities at each level: where levels agree,
disagree, or leave it undecided."""

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from rftlab.studies.analysis.compare.agreement import curse
from rftlab.studies.analysis.compare.levels import CurveSet, Finals
from rftlab.studies.data.results.claims import CLAIMS
from rftlab.studies.data.results.measured import Measured, measure_pair
from rftlab.studies.data.results.stats import CONFIDENCE, NONE, Estimate
from rftlab.studies.data.results.verdicts import Claim, Part

PLUS, MINUS, OPEN, MISSING = "+", "-", "0", ""
"""Sign of a quantity: its interval lies above 0, below 0, holds 0; or the level has no number."""
AGREE, DISAGREE, UNDECIDED, SINGLE = "agree", "disagree", "undecided", "not compared"


class Side(NamedTuple):
    """A quantity at one level."""

    name: str
    measured: Estimate
    sign: str
    cells: tuple[str, ...]
    """The designs that it compares."""

    @property
    def missing(self) -> str:
        """In words why there is no number; "" where there is one."""
        return "" if self.sign != MISSING else "best itself" if self.cells else "not reported"


class ClaimRow(NamedTuple):
    """A quantity of a claim at all levels, in their order."""

    claim: str
    statement: str
    sides: list[Side]
    verdict: str

    @property
    def name(self) -> str:
        """The compared designs; where levels differ in their best design, that of each."""
        return " | ".join(dict.fromkeys(side.name for side in self.sides if side.name))


def compare_claims(levels: list[CurveSet], draws: dict[str, Finals]) -> list[ClaimRow]:
    """A row for every quantity of every claim that at least one level has. `draws` by the level's name."""
    rows = []
    for claim in CLAIMS:
        sides = [_sides(claim, own, draws[own.name]) for own in levels]
        for row in zip_longest(*sides, fillvalue=_absent("")):
            if any(side.sign != MISSING for side in row):
                rows.append(ClaimRow(claim.name, claim.statement, list(row), sign_verdict([side.sign for side in row])))
    return rows


def sign_verdict(signs: list[str]) -> str:
    """disagree where two levels have opposite signs; agree where all that have a number have the same; else
    undecided."""
    known = [sign for sign in signs if sign != MISSING]
    if len(known) < 2:
        return SINGLE
    if {PLUS, MINUS} <= set(known):
        return DISAGREE
    return AGREE if len(set(known)) == 1 and known[0] != OPEN else UNDECIDED


def claim_verdicts(rows: list[ClaimRow]) -> dict[str, str]:
    """One verdict per claim: disagree where a part does, undecided where one is, agree where all compared parts do."""
    verdicts_by_claim: dict[str, list[str]] = {}
    for row in rows:
        verdicts_by_claim.setdefault(row.claim, []).append(row.verdict)
    return {
        claim: next(verdict for verdict in (DISAGREE, UNDECIDED, AGREE, SINGLE) if verdict in verdicts)
        for claim, verdicts in verdicts_by_claim.items()
    }


def _sides(claim: Claim, own: CurveSet, draws: Finals) -> list[Side]:
    measured = measure_pair(own.curves, own.origin.place) if len(own.curves) else _ends(own.finals)
    return [_side(*parts, own) for parts in zip(claim.parts(measured), claim.parts(_ends(draws)), strict=True)]


def _ends(tables: Finals) -> Measured:
    return Measured(tuple(tables.test.columns), tables.test.to_numpy(float))


def _side(part: Part, drawn: Part, own: CurveSet) -> Side:
    known = set(own.finals.test.columns)
    if not np.isfinite(part.values).any() or not set(part.among) <= known:
        return _absent("" if part.with_itself else part.name)
    if part.with_itself:
        return _absent("")._replace(cells=part.cells[:1])
    measured = part.measured  # of whole runs, which are not drawn, the interval over seeds
    if np.isfinite(drawn.values).any():
        picked = curse(own, list(part.among)) if part.among and part.values.any() else 0.0
        low, high = np.nanquantile(drawn.values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        measured = Estimate(part.measured.value - picked, float(low) - picked, float(high) - picked)
    spread = own.seeds > 1 or own.responses["test"] > 0
    return Side(part.name, measured, _sign(measured) if spread else OPEN, part.cells)


def _absent(name: str) -> Side:
    return Side(name, NONE, MISSING, ())


def _sign(measured: Estimate) -> str:
    return PLUS if measured.low > 0 else MINUS if measured.high < 0 else OPEN
