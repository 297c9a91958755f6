"""Show verdicts on claims: their marks, their counts beside those of shuffled labels, and the table of quantities
behind them."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from rftlab.studies.console.table import Column, Table
from rftlab.studies.data.paper.pairs import Level
from rftlab.studies.data.results.endpoints import SHUFFLES
from rftlab.studies.data.results.verdicts import (
    BOTH,
    FAILS,
    HOLDS,
    LESS,
    MORE,
    NOT_APPLICABLE,
    NOT_REPORTED,
    UNDECIDED,
    ClaimFinding,
    Judgement,
    Part,
    Tally,
    tally,
)
from rftlab.studies.report.figures import by_dataset, pretty

VERDICTS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "?", NOT_APPLICABLE: "–"}
LITTLE = "says little"
MARKS = {**VERDICTS, LITTLE: "~", NOT_REPORTED: "·"}
STYLES = dict(zip(MARKS, ("green", "red", "yellow", "dim", "dim", "dim"), strict=True))
NAMES = {HOLDS: "holds", FAILS: "fails"}
"""Names of the marks of both kinds of verdicts."""
WITHIN = {HOLDS: "within the paper's range", FAILS: "outside the paper's range"}
"""Names of verdicts against the paper's range, none of which is a reproduction."""
SIDES = {MORE: "▲", LESS: "▼", BOTH: "▲▼"}
"""Marks beside the cross of a failed claim: on which side it fails."""
LEVELS = {"sim": "simulated", "llm": "language model"}
LEGEND = (
    "Two marks: against the pair's own published difference, within 0.02; then against the paper's range over pairs. "
    "Only the first may be called reproduced. The column paper: on how many pairs the paper's own numbers lie in its "
    "range, by the same rules."
)
HOW_SURE = (
    f"The expected counts come from {SHUFFLES} shuffles of the designs' labels within each pair. A verdict that more "
    "than half of the shuffles reach says little (~) and is not counted. Our own hypothesis is not counted."
)


class Count(NamedTuple):
    """Count of one level's verdicts of one kind."""

    name: str
    """Name of the level, with `in-sample` where it was fitted to the numbers that it is compared with."""
    verb: str
    """Words for claims that hold."""
    tally: Tally

    @property
    def words(self) -> str:
        """Count in a sentence, always with the note where it is in-sample."""
        return f"{self.name}: {self.tally.said(self.verb, 'designs did not matter')}"


def count_verdicts(level: Level, findings: list[ClaimFinding], changed: bool = False) -> list[Count]:
    """Return the counts of a level's verdicts: those against the paper's numbers for the pairs where there are any, and
    those against its range. The simulator was fitted to these numbers; one with settings that a study changed was
    not."""
    own = [f for f in findings if not f.ours]
    reported = any(f.held for f in own)
    name = LEVELS[level] + ", in-sample" * (level == "sim" and reported and not changed)
    counts = [Count(name, "within the paper's range", tally([f.within for f in own]))]
    return [Count(name, "reproduced", tally([f.own for f in own]))] * reported + counts


def mark_name(one: Judgement) -> str:
    """Return the name of the mark of a judgement."""
    return LITTLE if one.little else one.verdict


def judgement_words(one: Judgement, within: bool = False) -> str:
    """Return a judgement in words."""
    said = WITHIN.get(one.verdict, one.verdict) if within else one.verdict
    return f"{said}, which says little: shuffled labels reach it in {one.same:.0%}" if one.little else said


def ordered_pairs(findings: list[ClaimFinding]) -> list[str]:
    """Return the pairs of findings, those of a data set together."""
    return [pair for group in by_dataset(dict.fromkeys(f.pair for f in findings)).values() for pair in group]


def claim_rows(findings: list[ClaimFinding]) -> list[dict[str, Any]]:
    """Return one entry per claim, in order of first appearance: the claim, its finding per pair, and on how many of the
    pairs with published numbers these hold."""
    rows: dict[str, dict[str, Any]] = {}
    for f in findings:
        rows.setdefault(f.claim.name, {"claim": f.claim, "pairs": {}})["pairs"][f.pair] = f
    for row in rows.values():
        told = [f.paper for f in row["pairs"].values() if f.paper in (HOLDS, FAILS, UNDECIDED)]
        row["paper"] = f"{told.count(HOLDS)}/{len(told)}" if told else MARKS[NOT_REPORTED]
    return list(rows.values())


def measured_quantities(f: ClaimFinding) -> list[dict[str, Any]]:
    """Return one entry per measured quantity of a finding, with the range that is accepted over pairs and the number
    that the paper reports for this pair. A best design that would be compared with itself is left out."""
    rows: dict[str, dict[str, Any]] = {}
    for part in (*f.parts, *f.held):
        if not part.with_itself:
            row = rows.setdefault(part.name, {"quantity": part.name, "part": part, "published": np.nan, "range": None})
            if np.isfinite(part.published):
                row["published"] = part.published
            else:
                row["range"] = (part.low, part.high)
    return list(rows.values())


def found_words(part: Part) -> str:
    """Return a quantity with its interval in words."""
    measured = part.measured
    if not np.isfinite(measured.value):
        return part.note or "no finished run"
    bounds = f"[{measured.low:+.3f}, {measured.high:+.3f}]" if np.isfinite(measured.low) else "(one seed: no interval)"
    return f"{measured.value:+.3f} {bounds}"


def range_words(low: float, high: float) -> str:
    """Return a range in words."""
    if np.isfinite(low) and np.isfinite(high):
        return f"{low:+.2f} to {high:+.2f}"
    return f"at least {low:+.2f}" if np.isfinite(low) else f"at most {high:+.2f}"


def findings_table(findings: list[ClaimFinding]) -> pd.DataFrame:
    """Return one row per quantity: the measurement with its interval, the pair's published difference and the verdict
    on it, the paper's range and whether the claim is within it, and the paper's own verdict. For both verdicts it has
    the share of shuffles that reach it, the share in which the claim holds, and whether it is counted."""
    rows = []
    for f in findings:
        for row in measured_quantities(f):
            part, (low, high) = row["part"], row["range"] or (np.nan, np.nan)
            numbers = {"measured": part.measured.value, "low": part.measured.low, "high": part.measured.high}
            rows.append(
                {"claim": f.claim.name, "statement": f.claim.statement, "pair": f.pair, "quantity": part.name}
                | {name: value if np.isfinite(value) else np.nan for name, value in numbers.items()}
                | {"published": row["published"], **_columns("verdict", f.own, f.own.verdict), "side": f.side}
                | {"range_low": low, "range_high": high}
                | _columns("within", f.within, WITHIN.get(f.within.verdict, f.within.verdict))
                | {"paper": WITHIN.get(f.paper, f.paper), "ours": f.ours}
            )
    return pd.DataFrame(rows)


def _columns(name: str, one: Judgement, said: str) -> dict[str, Any]:
    return {name: said, f"{name}_shuffles": one.same, f"{name}_expected": one.holds, f"{name}_counted": one.counted}


def show_claims(console: Console, parts: list[tuple[Level, list[ClaimFinding], bool]]) -> None:
    """Print the verdicts as a matrix of claims and pairs, with counts and their certainty. parts: a level, its
    findings, and whether the study changed the pairs."""
    findings = [f for _, own, _ in parts for f in own]
    columns = ordered_pairs(findings)
    pairs = (Column(pretty(pair).replace(" · ", "\n"), align="center") for pair in columns)
    paper = Column("paper", align="left")
    table = Table("claim", paper, *pairs, pad_edge=False, collapse_padding=True)  # nine pairs in 80 columns
    for row in claim_rows(findings):
        table.add(row["claim"].name, row["paper"], *(_cell(row["pairs"].get(pair)) for pair in columns))
    console.print(Text("What was found", style="bold"))
    console.print(table)
    console.print(
        Text("  ").join(Text(f"{mark} {NAMES.get(name, name)}", STYLES[name]) for name, mark in MARKS.items())
    )
    console.print(LEGEND)
    for claim in dict.fromkeys(f.claim for f in findings):
        if claim.remark:
            console.print(Text(f"{claim.name}: {claim.remark}"))
    for part in parts:
        for count in count_verdicts(*part):
            console.print(Text(count.words, style="bold"))
    console.print(Text("How sure that is", style="bold"))
    console.print(HOW_SURE)


def _cell(f: ClaimFinding | None) -> Text:
    """Return the two marks of a finding."""
    if f is None:
        return Text("")
    return Text("").join(Text(MARKS[mark_name(one)], style=STYLES[mark_name(one)]) for one in (f.own, f.within))
