"""Judge claims: whether a measured quantity lies in the range that a claim expects, and how informative that is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rftlab.studies.data.results.stats import Estimate, interval

HALF = 0.5
"""Share of shuffled labels that reach a verdict above which the verdict says little."""
_EDGE = 1e-9
"""Slack for differences of published decimals, which floating point does not represent exactly."""
HOLDS, FAILS, UNDECIDED = "reproduced", "not reproduced", "undecided"
NOT_APPLICABLE, NOT_REPORTED = "not applicable", "not reported"
MORE, LESS, BOTH = "more than claimed", "less than claimed", "in parts more, in parts less than claimed"
_WORDS = {1.0: HOLDS, 0.0: UNDECIDED, -1.0: FAILS}


class Part(NamedTuple):
    """Part of a claim: a quantity with its 95% interval, and the range in which the claim expects it. The numbers of
    shuffled labels are arrays (shuffles,)."""

    name: str
    measured: Estimate
    low: float
    high: float
    cells: tuple[str, ...] = ()
    """Designs that the quantity compares; empty where it is about all of them."""
    among: tuple[str, ...] = ()
    """Designs from which the compared one was picked as the best by these very numbers; empty where none was picked."""
    values: np.ndarray = np.empty(0)
    """Values behind `measured`, one value per seed or draw (..., rows); nan where a run is missing."""
    applies: np.ndarray | bool = True
    """Whether the claim applies to this pair."""
    note: str = ""
    """Source of the interval, where it does not come from seeds."""
    published: float = np.nan
    """Difference that the paper reports for this pair, where the range is around it; else nan."""

    @property
    def with_itself(self) -> bool:
        """Whether the best of several designs is the one that it is compared with, so that nothing is compared."""
        return len(self.cells) == 2 and self.cells[0] == self.cells[1]

    @property
    def code(self) -> np.ndarray:
        """Verdict as a number: 1 where the interval lies inside the range, -1 where outside, 0 across an end; nan where
        the claim does not apply."""
        inside = (self.low - _EDGE <= self.measured.low) & (self.measured.high <= self.high + _EDGE)
        outside = (self.measured.high < self.low - _EDGE) | (self.measured.low > self.high + _EDGE)
        return np.where(self.applies, np.where(inside, 1.0, np.where(outside, -1.0, 0.0)), np.nan)


def measure(
    name: str,
    values: np.ndarray,
    low: float,
    high: float,
    cells: tuple[str, ...] = (),
    among: tuple[str, ...] = (),
    applies: np.ndarray | bool = True,
) -> Part:
    """Return a part of a claim from one value per seed (..., rows)."""
    return Part(name, interval(values), low, high, cells, among, np.asarray(values), applies)


@dataclass(frozen=True)
class Claim:
    """Claim: a statement about test Pass@1, and the parts that decide it (none: it does not apply)."""

    name: str
    statement: str
    parts: Callable[..., list[Part]]
    source: str = "arXiv 2601.22532"
    """Source of the claim; "" for our own hypothesis, which no tally counts."""
    remark: str = ""
    """Caveat about the claim."""


class Judgement(NamedTuple):
    """Verdict on a claim, with the shares of shuffled labels that reach it."""

    verdict: str
    same: float = 0.0
    """Share of shuffles that reach the same verdict."""
    holds: float = 0.0
    """Share of shuffles in which the claim holds."""

    @property
    def little(self) -> bool:
        """Whether the verdict says little: in more than half of the shuffles it is the same, or the claim holds."""
        return self.verdict in _WORDS.values() and max(self.same, self.holds) > HALF

    @property
    def counted(self) -> bool:
        """Whether tallies count the verdict."""
        return self.verdict in _WORDS.values() and not self.little


class ClaimFinding(NamedTuple):
    """Verdict of runs on a claim, for one pair or source."""

    claim: Claim
    pair: str
    parts: list[Part]
    """Parts with the ranges of the claim: for a claim of the paper, its range over pairs."""
    within: Judgement
    """Verdict of `parts`."""
    held: tuple[Part, ...] = ()
    """Parts with ranges around the differences that the paper reports for this pair; empty where it reports none."""
    own: Judgement = Judgement(NOT_REPORTED)
    """Verdict of `held`. For a claim of the paper only this verdict may be called reproduced."""
    paper: str = NOT_REPORTED
    """Verdict of the paper's own numbers against its range."""

    @property
    def side(self) -> str:
        """Side of the range on which failing parts lie, by the pair's own published numbers where there are any."""
        return failed_side(list(self.held) or self.parts)

    @property
    def ours(self) -> bool:
        """Whether the claim is our own hypothesis, not the paper's."""
        return not self.claim.source


class Tally(NamedTuple):
    """Count of the verdicts that hold."""

    holds: int
    of: int
    expected: float
    """Number of verdicts that would hold and be counted if designs did not matter: the mean over shuffles."""
    little: int
    """Number of verdicts that say little and are not among `of`."""
    missed: int
    """Number of verdicts that say little and fail."""

    def said(self, hold: str, chance: str) -> str:
        """Return the count in words, always with that of shuffled labels. hold: words for what held verdicts do;
        chance: words for what the shuffles stand for."""
        little = f"say little, {self.missed} of them misses"
        if not self.of:
            return f"no verdict is counted: {self.little} {little}"
        known = f"{self.holds} of {self.of} {hold}; {self.expected:.1f} expected if {chance}"
        return f"{known} ({self.little} more {little})"


def tally(judgements: list[Judgement]) -> Tally:
    """Count the verdicts that hold, with the number expected for shuffled labels. The expected number is over all
    verdicts, not only over counted ones: the choice of the counted ones depends on the results, and would bias it."""
    counted = [one for one in judgements if one.counted]
    return Tally(
        sum(one.verdict == HOLDS for one in counted),
        len(counted),
        sum(one.holds for one in judgements if one.holds <= HALF),
        sum(one.little for one in judgements),
        sum(one.little and one.verdict == FAILS for one in judgements),
    )


def joint_verdict(parts: list[Part]) -> str:
    """Return the verdict on a claim from its parts."""
    return _word(_code(parts))


def judged(parts: list[Part], drawn: list[Part]) -> Judgement:
    """Return the verdict on a claim from its parts, and how often shuffled labels reach it, from their parts."""
    code, codes = _code(parts), _code(drawn)
    return Judgement(_word(code), float(np.mean(codes == code)), float(np.mean(codes == 1.0)))


def _code(parts: list[Part]) -> np.ndarray:
    """Return the least of the codes of the parts' verdicts; nan where a part does not apply, or there is none."""
    return np.min([part.code for part in parts], axis=0) if parts else np.asarray(np.nan)


def _word(code: np.ndarray) -> str:
    return _WORDS.get(float(code), NOT_APPLICABLE)


def failed_side(parts: list[Part]) -> str:
    """Return the side of the claimed range on which failing parts lie; "" where none fails."""
    failed = [part for part in parts if part.code == -1.0]
    above = any(part.measured.low > part.high for part in failed)
    below = any(part.measured.high < part.low for part in failed)
    return BOTH if above and below else MORE if above else LESS if below else ""
