"""Verdicts: whether what was measured lies in the range in which a claim wants it, and how much that says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rftlab.studies.data.results.stats import Estimate, interval

HALF = 0.5
"""A verdict that a larger share of shuffled labels reaches too says little."""
_EDGE = 1e-9
"""Published numbers are decimals; their differences are not, quite."""
HOLDS, FAILS, UNDECIDED = "reproduced", "not reproduced", "undecided"
NOT_APPLICABLE, NOT_REPORTED = "not applicable", "not reported"
MORE, LESS, BOTH = "more than claimed", "less than claimed", "in parts more, in parts less than claimed"
_WORDS = {1.0: HOLDS, 0.0: UNDECIDED, -1.0: FAILS}


class Part(NamedTuple):
    """A quantity with its 95% interval, and the range in which a claim wants it. The numbers of shuffled labels are
    arrays (shuffles,)."""

    name: str
    measured: Estimate
    low: float
    high: float
    cells: tuple[str, ...] = ()
    """The designs that it compares; none where it is about all of them."""
    among: tuple[str, ...] = ()
    """Where one of them is the best of several by these very numbers: of which."""
    values: np.ndarray = np.empty(0)
    """The values behind `measured`, one value per seed or draw (..., rows); nan where a run is missing."""
    applies: np.ndarray | bool = True
    """Whether the claim is about this pair."""
    note: str = ""
    """The source of the interval, where that is not seeds."""
    published: float = np.nan
    """The difference that the paper reports for this pair, where the range is what is accepted about it."""

    @property
    def with_itself(self) -> bool:
        """Whether the best of several turned out to be what it is compared with, so that there is nothing to say."""
        return len(self.cells) == 2 and self.cells[0] == self.cells[1]

    @property
    def code(self) -> np.ndarray:
        """1 where the interval lies inside the range, -1 where outside, 0 across an end; nan where it does not
        apply."""
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
    """A part from one value per seed (..., rows)."""
    return Part(name, interval(values), low, high, cells, among, np.asarray(values), applies)


@dataclass(frozen=True)
class Claim:
    """A statement about test Pass@1, and the parts that decide it (none: it does not apply)."""

    name: str
    statement: str
    parts: Callable[..., list[Part]]
    source: str = "arXiv 2601.22532"
    """Whose claim it is; "" where it is our own hypothesis, which no tally counts."""
    remark: str = ""
    """A caveat."""


class Judgement(NamedTuple):
    """A verdict, and how much it says."""

    verdict: str
    same: float = 0.0
    """Share of shuffles that reach this very verdict."""
    holds: float = 0.0
    """Share of shuffles in which the claim holds."""

    @property
    def little(self) -> bool:
        """Whether it says little: in more than half of the cases shuffled labels reach it, or fulfil the claim."""
        return self.verdict in _WORDS.values() and max(self.same, self.holds) > HALF

    @property
    def counted(self) -> bool:
        """Whether tallies count it."""
        return self.verdict in _WORDS.values() and not self.little


class ClaimFinding(NamedTuple):
    """The verdict of runs on a claim, on one pair or source."""

    claim: Claim
    pair: str
    parts: list[Part]
    """Against what the claim wants: of the paper, its range over pairs."""
    within: Judgement
    """Of these parts."""
    held: tuple[Part, ...] = ()
    """The same against the differences that the paper reports for this pair; none where it reports none."""
    own: Judgement = Judgement(NOT_REPORTED)
    """Of these: of a claim of the paper this verdict alone may be called reproduced."""
    paper: str = NOT_REPORTED
    """Verdict of the paper's own numbers against its range."""

    @property
    def side(self) -> str:
        """On which side of what is claimed the parts lie that fail, held to the pair's own numbers where there are
        any."""
        return failed_side(list(self.held) or self.parts)

    @property
    def ours(self) -> bool:
        """Whether the claim is our own hypothesis."""
        return not self.claim.source


class Tally(NamedTuple):
    """How many verdicts hold."""

    holds: int
    of: int
    expected: float
    """How many of all would hold and be counted if designs did not matter: the mean over shuffles."""
    little: int
    """Verdicts that say little and are not among `of`."""
    missed: int
    """How many of these do not hold."""

    def said(self, hold: str, chance: str) -> str:
        """The count in words, never without that of shuffled labels. hold: what held verdicts do; chance: what the
        shuffles stand for."""
        little = f"say little, {self.missed} of them misses"
        if not self.of:
            return f"no verdict is counted: {self.little} {little}"
        known = f"{self.holds} of {self.of} {hold}; {self.expected:.1f} expected if {chance}"
        return f"{known} ({self.little} more {little})"


def tally(judgements: list[Judgement]) -> Tally:
    """The count of what holds, with that of shuffled labels. Theirs is over all verdicts, not those alone that are
    counted: which are counted depends on how they went, and would flatter."""
    counted = [one for one in judgements if one.counted]
    return Tally(
        sum(one.verdict == HOLDS for one in counted),
        len(counted),
        sum(one.holds for one in judgements if one.holds <= HALF),
        sum(one.little for one in judgements),
        sum(one.little and one.verdict == FAILS for one in judgements),
    )


def joint_verdict(parts: list[Part]) -> str:
    """Verdict of a claim from its parts."""
    return _word(_code(parts))


def judged(parts: list[Part], drawn: list[Part]) -> Judgement:
    """Verdict of a claim from its parts, and how often shuffled labels reach it, from theirs."""
    code, codes = _code(parts), _code(drawn)
    return Judgement(_word(code), float(np.mean(codes == code)), float(np.mean(codes == 1.0)))


def _code(parts: list[Part]) -> np.ndarray:
    """Codes of the parts' verdicts, joined: the least of them; nan where one does not apply, or there is none."""
    return np.min([part.code for part in parts], axis=0) if parts else np.asarray(np.nan)


def _word(code: np.ndarray) -> str:
    return _WORDS.get(float(code), NOT_APPLICABLE)


def failed_side(parts: list[Part]) -> str:
    """On which side of what is claimed the parts lie that fail; "" where none does."""
    failed = [part for part in parts if part.code == -1.0]
    above = any(part.measured.low > part.high for part in failed)
    below = any(part.measured.high < part.low for part in failed)
    return BOTH if above and below else MORE if above else LESS if below else ""
