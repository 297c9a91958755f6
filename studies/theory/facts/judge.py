"""From the number of a fact to a verdict."""

from typing import NamedTuple

import numpy as np

from rftlab.studies.data.results.stats import NONE, Estimate, interval
from rftlab.studies.theory.facts.facts import Fact
from rftlab.studies.theory.facts.numbers import Measured

YES, NO, OPPOSITE, UNMEASURED, NOT_RUN = "yes", "no", "opposite", "not measurable", "not run"


class FactVerdict(NamedTuple):
    """What a world, or `tiny`, says of a fact."""

    verdict: str
    measured: Estimate = NONE
    runs: int = 0
    """Values behind it; 0 where the interval is of the measure itself."""
    is_sure: bool = True
    """Whether the whole interval says so."""

    @property
    def is_known(self) -> bool:
        """Whether there is a number."""
        return bool(np.isfinite(self.measured.value))


def judge_fact(fact: Fact, measured: Measured | None) -> FactVerdict:
    """yes where the interval lies in the fact's range; opposite where it lies as far beyond the value of no
    effect on the other side; else no, which is sure where the interval lies outside the range."""
    if measured is None:
        return FactVerdict(NOT_RUN)
    values = np.empty(0) if isinstance(measured, Estimate) else np.asarray(measured)[np.isfinite(measured)]
    number = measured if isinstance(measured, Estimate) else interval(values) if values.size else NONE
    if not np.isfinite(number.value):
        return FactVerdict(UNMEASURED)
    inside = fact.low <= number.low and number.high <= fact.high
    outside = number.high < fact.low or number.low > fact.high
    below = fact.none <= fact.low and number.high <= 2 * fact.none - fact.low
    above = fact.none >= fact.high and number.low >= 2 * fact.none - fact.high
    verdict = YES if inside else OPPOSITE if below or above else NO
    return FactVerdict(verdict, number, values.size, inside or outside)
