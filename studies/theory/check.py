"""Theory checks. Each has a statement, a formula, an experiment, and the rule that turns numbers into PASS, FAIL or
INCONCLUSIVE.

A check is an experiment that returns one or more comparisons, its claims. It also runs on its mutants, named wrong
estimators (or wrong formulas), and every claim must FAIL on at least one of them: a claim that cannot fail proves
nothing.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"
Tier = Literal["fast", "slow"]

EXACT_ERROR = 1e-10
"""Relative error allowed where both sides are computed exactly."""
Z_LIMIT, LARGEST_ERROR = 4.0, 0.01
"""A Monte Carlo mean may be this many standard errors off, and its standard error at most this part of the value."""
SLOPE_BAND = 0.03
"""The interval of a measured exponent must lie within this of the theory's."""
ROUNDING = 1e-12
"""Quantities that are compared are of order 1; what is smaller than this comes from rounding."""
ONE_SIDED = 3.0902
"""Standard normal quantile of 99.9%."""


def five_digits(value: float) -> str:
    """A number with five significant digits, two where it is nothing but rounding."""
    return f"{value:.5g}" if abs(value) > 1e-12 or value == 0 else f"{value:.1e}"


class MeasuredValue(NamedTuple):
    """One number of the theory beside the number measured."""

    name: str
    expected: float
    measured: float
    low: float
    """Lower end of the measured number's interval; equal to `measured` where it is exact."""
    high: float
    verdict: str
    is_bound: bool = False
    """The theory only says that the number is above `expected`."""

    @property
    def expected_text(self) -> str:
        """The formula, in print."""
        return ("> " if self.is_bound else "") + five_digits(self.expected)

    @property
    def measured_text(self) -> str:
        """The measured number, in print."""
        return five_digits(self.measured)

    @property
    def interval_text(self) -> str:
        """The interval of the measured number, in print; empty where it is exact."""
        low, high = self.low, self.high
        if low == high:
            return ""
        digits = min(8, max(4, math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))) + 1))
        return f"[{low:.{digits}g}, {high:.{digits}g}]"


Claims = Iterator[MeasuredValue]


def exact(name: str, expected: float, measured: float, tolerance: float = EXACT_ERROR) -> MeasuredValue:
    """Both sides computed without sampling: the relative error must be at most `tolerance`."""
    error = abs(measured - expected) / max(abs(expected), 1e-300) if expected else abs(measured)
    return MeasuredValue(name, expected, measured, measured, measured, PASS if error <= tolerance else FAIL)


def sampled(name: str, expected: float, values: np.ndarray, slack: float = 0.0) -> MeasuredValue:
    """Mean of independent `values` against `expected`; `slack` is a relative bias that the theory allows (a finite
    step size, say)."""
    values = np.asarray(values, dtype=np.float64)
    return estimated(name, expected, float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)), slack)


def estimated(name: str, expected: float, mean: float, error: float, slack: float = 0.0) -> MeasuredValue:
    """A mean with a known standard error against `expected`."""
    excess = float(np.maximum(0.0, abs(mean - expected) - slack * abs(expected)))
    verdict = FAIL if not excess < Z_LIMIT * error else INCONCLUSIVE if error > LARGEST_ERROR * abs(expected) else PASS
    if error == 0.0:
        verdict = PASS if excess == 0.0 else FAIL
    return MeasuredValue(name, expected, mean, mean - 1.96 * error, mean + 1.96 * error, verdict)


def rate(name: str, expected: float, slope: float, low: float, high: float) -> MeasuredValue:
    """A log-log slope with its bootstrap interval against the theory's exponent."""
    inside = expected - SLOPE_BAND <= low and high <= expected + SLOPE_BAND
    outside = high < expected - SLOPE_BAND or low > expected + SLOPE_BAND or not np.isfinite(slope)
    return MeasuredValue(name, expected, slope, low, high, PASS if inside else FAIL if outside else INCONCLUSIVE)


def positive(name: str, mean: float, error: float = 0.0) -> MeasuredValue:
    """The claim that a quantity is above 0, by a one-sided 99.9% interval; error 0 where it is exact. A difference that
    is 0 but for rounding (ROUNDING) is not above 0."""
    low, high = mean - ONE_SIDED * error, mean + ONE_SIDED * error
    verdict = PASS if low > ROUNDING else FAIL if high <= ROUNDING else INCONCLUSIVE
    return MeasuredValue(name, 0.0, mean, low, high, verdict, is_bound=True)


def log_log_slope(x: np.ndarray, samples: np.ndarray) -> tuple[float, float, float]:
    """Log-log slope of the mean of samples (n, len(x)) against x, with its 95% bootstrap interval over the n rows."""
    rng, logs = np.random.default_rng(0), np.log(np.asarray(x, dtype=np.float64))
    samples, resamples = np.asarray(samples, dtype=np.float64), 200
    # whole rows, because the points of a row may share their randomness
    picks = rng.integers(0, len(samples), size=(resamples, len(samples)))
    slopes = [float(np.polyfit(logs, np.log(samples[pick].mean(axis=0)), 1)[0]) for pick in picks]
    low, high = np.quantile(slopes, [0.025, 0.975])
    return float(np.polyfit(logs, np.log(samples.mean(axis=0)), 1)[0]), float(low), float(high)


class Mutant(NamedTuple):
    """A wrong estimator, formula or procedure on which a check must FAIL."""

    text: str
    """The error, in a few words."""
    breaks: str = ""
    """Regular expression: every claim in whose name it is found must FAIL on this mutant. By default every claim."""

    def named(self, comparisons: Iterable[MeasuredValue]) -> list[MeasuredValue]:
        """The comparisons that must FAIL on this mutant."""
        return [comparison for comparison in comparisons if re.search(self.breaks, comparison.name)]


@dataclass(frozen=True)
class Check:
    """A statement of the theory of RFT estimators, and the experiment that decides it."""

    id: str
    statement: str
    """One sentence, in words."""
    formula: str
    """The formula as plain Unicode text."""
    source: str
    """Paper (authors, year, arXiv id), or `derived here`."""
    kind: Literal["exact", "sampled", "rate", "inequality"]
    mutants: tuple[Mutant, ...]
    """Between them they break every claim."""
    experiment: Callable[[int], list[MeasuredValue]]
    """experiment(0) runs the check, experiment(n) its n-th mutant; the claims have the same names in each."""
    tier: Tier = "fast"
    corrects: str = ""
    """A statement of the literature that differs, with the numbers; empty where there is none."""


@cache
def _statements() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("rftlab.studies") / "assets" / "theory.toml").read_text(encoding="utf-8"))


def theory_check(check_id: str) -> Callable[[Callable[[int], Claims]], Check]:
    """Make the decorated experiment, which yields its claims, the check of that name in assets/theory.toml, where the
    other fields of `Check` stand."""
    stated = dict(_statements()[check_id])
    mutants = tuple(Mutant(**mutant) for mutant in stated.pop("mutants"))
    return lambda experiment: Check(
        check_id, experiment=lambda mutant: list(experiment(mutant)), mutants=mutants, **stated
    )


def worst_verdict(comparisons: list[MeasuredValue]) -> str:
    """FAIL where one comparison fails, else INCONCLUSIVE where one is, else PASS."""
    verdicts = {comparison.verdict for comparison in comparisons}
    return next(
        (verdict for verdict in (FAIL, INCONCLUSIVE) if verdict in verdicts), PASS if comparisons else INCONCLUSIVE
    )


def verdict_on_mutant(mutant: Mutant, comparisons: list[MeasuredValue]) -> str:
    """FAIL where every comparison that the mutant names fails, else the verdict of the first that does not."""
    named = mutant.named(comparisons)
    return next((c.verdict for c in named if c.verdict != FAIL), FAIL if named else INCONCLUSIVE)


def untouched(runs: Iterable[list[MeasuredValue]]) -> list[str]:
    """Names of the claims of a check that pass, or are inconclusive, on each of its mutants' `runs`."""
    runs = list(runs)
    broken = {c.name for comparisons in runs for c in comparisons if c.verdict == FAIL}
    return list(dict.fromkeys(c.name for comparisons in runs for c in comparisons if c.name not in broken))
