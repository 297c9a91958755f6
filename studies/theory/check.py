"""Define theory checks. Each has a statement, a formula, an experiment, and the rule that turns numbers into PASS, FAIL
or INCONCLUSIVE.

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
"""Relative error that is allowed where both sides are computed exactly."""
Z_LIMIT, LARGEST_ERROR = 4.0, 0.01
"""Largest distance of a Monte Carlo mean in standard errors, and largest standard error as a part of the value."""
SLOPE_BAND = 0.03
"""Largest distance of the interval of a measured exponent from the theory's."""
ROUNDING = 1e-12
"""Size below which a difference is rounding: compared quantities are of order 1."""
ONE_SIDED = 3.0902
"""Standard normal quantile of 99.9%."""


def five_digits(value: float) -> str:
    """Return a number with five significant digits, or two where it is only rounding."""
    return f"{value:.5g}" if abs(value) > 1e-12 or value == 0 else f"{value:.1e}"


class MeasuredValue(NamedTuple):
    """Comparison of a number of the theory with the measured number."""

    name: str
    expected: float
    measured: float
    low: float
    """Lower end of the measured number's interval; equal to `measured` where it is exact."""
    high: float
    verdict: str
    is_bound: bool = False
    """Whether the theory says only that the number is above `expected`."""

    @property
    def expected_text(self) -> str:
        """Expected number as text."""
        return ("> " if self.is_bound else "") + five_digits(self.expected)

    @property
    def measured_text(self) -> str:
        """Measured number as text."""
        return five_digits(self.measured)

    @property
    def interval_text(self) -> str:
        """Interval of the measured number as text; "" where it is exact."""
        low, high = self.low, self.high
        if low == high:
            return ""
        digits = min(8, max(4, math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))) + 1))
        return f"[{low:.{digits}g}, {high:.{digits}g}]"


Claims = Iterator[MeasuredValue]


def exact(name: str, expected: float, measured: float, tolerance: float = EXACT_ERROR) -> MeasuredValue:
    """Compare two numbers that were computed without sampling: the relative error must be at most `tolerance`."""
    error = abs(measured - expected) / max(abs(expected), 1e-300) if expected else abs(measured)
    return MeasuredValue(name, expected, measured, measured, measured, PASS if error <= tolerance else FAIL)


def sampled(name: str, expected: float, values: np.ndarray, slack: float = 0.0) -> MeasuredValue:
    """Compare the mean of independent `values` with `expected`; `slack` is a relative bias that the theory allows (a
    finite step size, say)."""
    values = np.asarray(values, dtype=np.float64)
    return estimated(name, expected, float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)), slack)


def estimated(name: str, expected: float, mean: float, error: float, slack: float = 0.0) -> MeasuredValue:
    """Compare a mean that has a known standard error with `expected`."""
    excess = float(np.maximum(0.0, abs(mean - expected) - slack * abs(expected)))
    verdict = FAIL if not excess < Z_LIMIT * error else INCONCLUSIVE if error > LARGEST_ERROR * abs(expected) else PASS
    if error == 0.0:
        verdict = PASS if excess == 0.0 else FAIL
    return MeasuredValue(name, expected, mean, mean - 1.96 * error, mean + 1.96 * error, verdict)


def rate(name: str, expected: float, slope: float, low: float, high: float) -> MeasuredValue:
    """Compare a log-log slope and its bootstrap interval with the theory's exponent."""
    inside = expected - SLOPE_BAND <= low and high <= expected + SLOPE_BAND
    outside = high < expected - SLOPE_BAND or low > expected + SLOPE_BAND or not np.isfinite(slope)
    return MeasuredValue(name, expected, slope, low, high, PASS if inside else FAIL if outside else INCONCLUSIVE)


def positive(name: str, mean: float, error: float = 0.0) -> MeasuredValue:
    """Test the claim that a quantity is above 0, by a one-sided 99.9% interval; error 0 where it is exact. A difference
    that is 0 up to rounding (ROUNDING) is not above 0."""
    low, high = mean - ONE_SIDED * error, mean + ONE_SIDED * error
    verdict = PASS if low > ROUNDING else FAIL if high <= ROUNDING else INCONCLUSIVE
    return MeasuredValue(name, 0.0, mean, low, high, verdict, is_bound=True)


def log_log_slope(x: np.ndarray, samples: np.ndarray) -> tuple[float, float, float]:
    """Return the log-log slope against x of the mean of samples (n, len(x)), and its 95% bootstrap interval over
    rows."""
    rng, logs = np.random.default_rng(0), np.log(np.asarray(x, dtype=np.float64))
    samples, resamples = np.asarray(samples, dtype=np.float64), 200
    # whole rows, because the points of a row may share their randomness
    picks = rng.integers(0, len(samples), size=(resamples, len(samples)))
    slopes = [float(np.polyfit(logs, np.log(samples[pick].mean(axis=0)), 1)[0]) for pick in picks]
    low, high = np.quantile(slopes, [0.025, 0.975])
    return float(np.polyfit(logs, np.log(samples.mean(axis=0)), 1)[0]), float(low), float(high)


class Mutant(NamedTuple):
    """Mutant: a wrong estimator, formula or procedure on which a check must FAIL."""

    text: str
    """Error of the mutant in a few words."""
    breaks: str = ""
    """Regular expression: every claim whose name it matches must FAIL on this mutant. By default every claim."""

    def named(self, comparisons: Iterable[MeasuredValue]) -> list[MeasuredValue]:
        """Return the comparisons that must FAIL on this mutant."""
        return [comparison for comparison in comparisons if re.search(self.breaks, comparison.name)]


@dataclass(frozen=True)
class Check:
    """Check: a statement of the theory of RFT estimators, and the experiment that tests it."""

    id: str
    statement: str
    """Statement in one sentence."""
    formula: str
    """Formula as plain Unicode text."""
    source: str
    """Paper (authors, year, arXiv id), or `derived here`."""
    kind: Literal["exact", "sampled", "rate", "inequality"]
    mutants: tuple[Mutant, ...]
    """Mutants, which together break every claim."""
    experiment: Callable[[int], list[MeasuredValue]]
    """Function that runs the check for 0 and its n-th mutant for n; the claims have the same names in each."""
    tier: Tier = "fast"
    corrects: str = ""
    """Statement of the literature that differs, with the numbers; "" where there is none."""


@cache
def _statements() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("rftlab.studies") / "assets" / "theory.toml").read_text(encoding="utf-8"))


def theory_check(check_id: str) -> Callable[[Callable[[int], Claims]], Check]:
    """Turn the decorated experiment, which yields its claims, into the check of that id. The other fields of `Check`
    come from assets/theory.toml."""
    stated = dict(_statements()[check_id])
    mutants = tuple(Mutant(**mutant) for mutant in stated.pop("mutants"))
    return lambda experiment: Check(
        check_id, experiment=lambda mutant: list(experiment(mutant)), mutants=mutants, **stated
    )


def worst_verdict(comparisons: list[MeasuredValue]) -> str:
    """Return FAIL where a comparison fails, else INCONCLUSIVE where one is, else PASS."""
    verdicts = {comparison.verdict for comparison in comparisons}
    return next(
        (verdict for verdict in (FAIL, INCONCLUSIVE) if verdict in verdicts), PASS if comparisons else INCONCLUSIVE
    )


def verdict_on_mutant(mutant: Mutant, comparisons: list[MeasuredValue]) -> str:
    """Return FAIL where every comparison that the mutant names fails, else the verdict of the first that does not."""
    named = mutant.named(comparisons)
    return next((c.verdict for c in named if c.verdict != FAIL), FAIL if named else INCONCLUSIVE)


def untouched(runs: Iterable[list[MeasuredValue]]) -> list[str]:
    """Return the names of the claims of a check that FAIL on none of its mutants' `runs`."""
    runs = list(runs)
    broken = {c.name for comparisons in runs for c in comparisons if c.verdict == FAIL}
    return list(dict.fromkeys(c.name for comparisons in runs for c in comparisons if c.name not in broken))
