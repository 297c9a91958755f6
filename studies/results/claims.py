"""The paper's key insights as testable statements, each with a verdict per pair.

A claim is one or more parts; a part is a quantity measured once per seed (a paired difference, since designs share
their random numbers) and the range the claim allows. The part holds where its 95% interval lies inside the range, fails
where it lies outside, and is undecided otherwise. A claim is reproduced where all parts hold, not reproduced where one
fails, else undecided. Intervals are not corrected for the number of claims.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.studies.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.paper.pairs import pair
from rftlab.studies.paper.published import published
from rftlab.studies.results.endpoints import finals
from rftlab.studies.results.stats import Interval, interval

ROUNDING = 0.01
"""Slack of a range that the paper gives: a difference of two numbers rounded to 0.01."""
SAME = 0.02
"""Two designs match where they differ by at most this: one standard error of a difference on GSM8K's test set."""
STILL = 0.02
"""A baseline that gains less than this has not moved."""
HOLDS, FAILS, UNDECIDED, NOT_APPLICABLE = "reproduced", "not reproduced", "undecided", "not applicable"
MORE, LESS, BOTH = "more than claimed", "less than claimed", "in parts more, in parts less than claimed"

_CELLS = {e.name: [label(cell) for cell in e.cells] for e in EXPERIMENTS.values()}
_RAW = label(BASELINE)
_SUPPORTED = _CELLS["advantage"][1]
_K8, _K64 = _CELLS["rollouts"][1], _CELLS["rollouts"][-1]
_B128 = _CELLS["batch"][-1]
_SPLITS, _REPLAYED = _CELLS["tradeoff"][:-1], _CELLS["tradeoff"][-1]
_B2048 = _CELLS["ceiling"][-1]
_DESIGNS = {label(cell): cell for e in EXPERIMENTS.values() for cell in e.cells}


class ClaimPart(NamedTuple):
    """A quantity per seed, and the range in which the claim wants its mean."""

    name: str
    values: pd.Series
    low: float
    high: float
    cells: tuple[str, ...] = ()
    """The designs that it compares; none where it is about all of them."""
    among: tuple[str, ...] = ()
    """Where one of them is the best of several by these very numbers: of which."""

    @property
    def with_itself(self) -> bool:
        """Whether the best of several turned out to be what it is compared with, so that there is nothing to say."""
        return len(self.cells) == 2 and self.cells[0] == self.cells[1]


class ClaimFinding(NamedTuple):
    """A claim's verdict on one pair."""

    claim: str
    statement: str
    pair: str
    published: str
    measured: str
    verdict: str
    side: str = ""
    """Of one that is not reproduced: whether its parts lie above what is claimed (`MORE`), below it (`LESS`), or some
    above and some below (`BOTH`)."""


class Finals(NamedTuple):
    """Final Pass@1 of one pair: one row per seed, one column per cell."""

    train: pd.DataFrame
    test: pd.DataFrame


def _gain(table: pd.DataFrame, better: str, worse: str) -> pd.Series:
    """Difference per seed; empty where a design has no finished run."""
    return (table[better] - table[worse]).dropna() if better in table and worse in table else pd.Series(dtype=float)


def short(cell: str) -> str:
    """A cell's label without its estimator."""
    return cell.removesuffix("-paper_text").replace("-minimalist", " raw")


def _difference(
    table: pd.DataFrame, after: str, before: str, low: float, high: float, among: tuple[str, ...] = ()
) -> ClaimPart:
    return ClaimPart(
        f"{short(after)} - {short(before)}", _gain(table, after, before), low, high, (after, before), among
    )


def _matches(table: pd.DataFrame, cells: list[str]) -> list[ClaimPart]:
    return [_difference(table, cell, cells[0], -SAME, SAME) for cell in cells[1:]]


def _rollouts(f: Finals) -> list[ClaimPart]:
    bend = _gain(f.test, _K8, _SUPPORTED) - _gain(f.test, _K64, _K8)
    return [
        _difference(f.test, _K64, _SUPPORTED, 0.04 - ROUNDING, 0.17 + ROUNDING),
        ClaimPart("gain from 1 to 8 less gain from 8 to 64", bend.dropna(), 0.0, np.inf, (_SUPPORTED, _K8, _K64)),
    ]


def _designs(table: pd.DataFrame) -> list[str]:
    return [cell for cell in table.columns if cell != "base"]


def _best(table: pd.DataFrame, cells: list[str]) -> str:
    """The cell with the highest mean among those that finished."""
    return table.reindex(columns=cells).mean().fillna(-np.inf).idxmax()


def _tradeoff(f: Finals) -> list[ClaimPart]:
    return [
        _difference(f.test, _K8, _SPLITS[-1], 0.0, np.inf),
        _difference(f.test, _K8, _SPLITS[0], 0.0, np.inf),
        _difference(f.test, _best(f.test, _SPLITS), _K8, -np.inf, SAME, tuple(_SPLITS)),
    ]


def _together(f: Finals) -> list[ClaimPart]:
    cells = _designs(f.test)
    ranks = f.train[cells].rank(axis=1).corrwith(f.test[cells].rank(axis=1), axis=1)
    return [ClaimPart("rank correlation of train and test", ranks.dropna(), 0.5, np.inf)]


def _stuck(f: Finals) -> list[ClaimPart]:
    if interval(_gain(f.test, _RAW, "base")).high >= STILL:
        return []
    return [_difference(f.test, _best(f.test, _designs(f.test)), "base", -np.inf, STILL, tuple(_designs(f.test)))]


@dataclass(frozen=True)
class Claim:
    """A statement about test Pass@1 after training, and the parts that decide it (none: it does not apply)."""

    name: str
    statement: str
    parts: Callable[[Finals], list[ClaimPart]]
    compared: tuple[str, str] | None = None
    """Two cells whose reported difference is shown beside the measured one; `base` is the base model."""


def _within(name: str, statement: str, after: str, before: str, low: float, high: float) -> Claim:
    """The claim that one design gains between low and high over another."""
    return Claim(name, statement, lambda f: [_difference(f.test, after, before, low, high)], (after, before))


CLAIMS: tuple[Claim, ...] = (
    _within(
        "1 baseline",
        "The minimalist baseline improves test Pass@1 by 0.00 to 0.60.",
        _RAW,
        "base",
        0.00 - ROUNDING,
        0.60 + ROUNDING,
    ),
    _within(
        "2 advantage", "The group advantage adds 0.00 to 0.10.", _SUPPORTED, _RAW, 0.00 - ROUNDING, 0.10 + ROUNDING
    ),
    Claim("3 rollouts", "Rollouts 1 to 64 add 0.04 to 0.17, with diminishing returns.", _rollouts, (_K64, _SUPPORTED)),
    _within(
        "4 batch size",
        "Batch 32 to 128 adds up to 0.05, and costs at most 0.02.",
        _B128,
        _K8,
        -0.02 - ROUNDING,
        0.05 + ROUNDING,
    ),
    Claim(
        "5 trade-off",
        "At 256 rollouts a round the optimum is interior, near (32, 8), with (256, 1) below it.",
        _tradeoff,
        (_K8, _SPLITS[-1]),
    ),
    _within(
        "5 fallback",
        "(256, 1) loses by its missing baseline: a replay window raises it.",
        _REPLAYED,
        _SPLITS[-1],
        0.0,
        np.inf,
    ),
    Claim(
        "6a replay, text",
        "Replayed rewards match (32, 8, 0) at 32 queries a round.",
        lambda f: _matches(f.test, _CELLS["replay_text"]),
    ),
    Claim(
        "6b replay, code",
        "Replayed rewards match (32, 8, 0) at 256 rollouts a round.",
        lambda f: _matches(f.test, _CELLS["replay_code"]),
        (_REPLAYED, _K8),
    ),
    _within(
        "7 ceiling",
        "With replay, batch 256 to 2048 adds 0.01 to 0.05.",
        _B2048,
        _REPLAYED,
        0.01 - ROUNDING,
        0.05 + ROUNDING,
    ),
    Claim("8 train and test", "Train and test Pass@1 move together.", _together),
    Claim("9 stuck pairs", "A pair that the baseline does not move is not moved by anything else.", _stuck),
)


def verdict_of(parts: list[ClaimPart]) -> str:
    """Verdict of a claim from its parts."""
    if not parts:
        return NOT_APPLICABLE
    return all_of([verdict_in(interval(part.values), part.low, part.high) for part in parts])


def all_of(verdicts: list[str]) -> str:
    """Verdict of a claim from those of its parts."""
    if FAILS in verdicts:
        return FAILS
    return UNDECIDED if UNDECIDED in verdicts else HOLDS


def verdict_in(measured: Interval, low: float, high: float) -> str:
    """Whether an interval lies inside the range from low to high, outside, or across an end."""
    if low <= measured.low and measured.high <= high:
        return HOLDS
    return FAILS if measured.high < low or measured.low > high else UNDECIDED


def side_of(parts: list[ClaimPart]) -> str:
    """On which side of what is claimed the parts lie that fail; "" where none does."""
    known = [(interval(part.values), part) for part in parts]
    above = any(measured.low > part.high for measured, part in known)
    below = any(measured.high < part.low for measured, part in known)
    return BOTH if above and below else MORE if above else LESS if below else ""


def judge(curves: pd.DataFrame, pairs: list[str]) -> list[ClaimFinding]:
    """A finding for every claim and pair. `curves` must hold all seven experiments."""
    findings = []
    for name in pairs:
        tables = Finals(*(finals(curves, name, split) for split in ("train", "test")))
        for claim in CLAIMS:
            parts = [part for part in claim.parts(tables) if not part.with_itself]
            findings.append(
                ClaimFinding(
                    claim.name,
                    claim.statement,
                    name,
                    _reported(claim, name),
                    "; ".join(map(_words, parts)),
                    verdict_of(parts),
                    side_of(parts),
                )
            )
    return findings


def _words(part: ClaimPart) -> str:
    measured = interval(part.values)
    if part.values.empty:
        return f"{part.name}: no finished run"
    bounds = f"[{measured.low:+.3f}, {measured.high:+.3f}]" if np.isfinite(measured.low) else "(one seed: no interval)"
    return f"{part.name}: {measured.mean:+.3f} {bounds}"


def _reported(claim: Claim, pair_name: str) -> str:
    if claim.compared is None:
        return ""
    known = pair(pair_name)
    after, before = (published(known.model, known.dataset, "test", _DESIGNS.get(cell)) for cell in claim.compared)
    return "" if after is None or before is None else f"{after - before:+.2f}"
