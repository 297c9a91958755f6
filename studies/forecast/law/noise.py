"""r and phi from measured gradients, with their errors."""

from math import hypot, inf, sqrt
from typing import NamedTuple

from rftlab.shared.effective_batch import NoiseRatios
from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.pilot.pilot import Base, Gradient

SURE = 2.0
"""Errors by which phi must differ from 1 to be believed."""


class MeasuredNoise(NamedTuple):
    """r and phi of shared/effective_batch.py, with standard errors."""

    between: float
    between_error: float
    gain: float
    gain_error: float

    @property
    def ratios(self) -> NoiseRatios:
        """What is believed: an r below 0 is 0, and phi is 1 where it does not differ from 1 by two errors."""
        sure = abs(self.gain - 1) >= SURE * self.gain_error and self.gain > 0
        return NoiseRatios(max(0.0, self.between), self.gain if sure else 1.0)


def measured(raw: Gradient, centred: Gradient) -> MeasuredNoise:
    """r and phi from the noise of raw and of centred rewards.

    Noise between prompts is the same of both in theory: the mean by inverse variances counts. Centred rewards have the
    price of a baseline from `group` responses, which is taken out. Raises UserError where a group has one response, or
    no noise was found.
    """
    check(centred.group > 1, f"gradients of groups of {centred.group}; allowed: 2 or more responses")
    check(
        raw.within > 0 and centred.within > 0, "gradients without noise within a prompt: r and phi cannot be measured"
    )
    errors = (raw.between_error, centred.between_error)
    weights = [1 / error**2 if error > 0 else inf for error in errors]
    values = (raw.between, centred.between)
    if inf in weights:
        weights = [float(weight == inf) for weight in weights]
    between = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    error = 0.0 if 0 in errors else 1 / sqrt(sum(weights))
    gain = centred.within / raw.within * (centred.group - 1) / centred.group
    relative = hypot(raw.within_error / raw.within, centred.within_error / centred.within)
    return MeasuredNoise(between / raw.within, error / raw.within, gain, gain * relative)


def of_base(base: Base) -> MeasuredNoise:
    """r and phi that a pilot measured: half way through the baseline's run where it went there, else of the base
    model. Errors: of the ratios themselves where the pilot kept them; else from those of their parts, as if raw and
    centred rewards were of different responses."""
    found = base.midway or base
    if found.ratios is None:
        return measured(found.raw, found.centred)
    r, phi = found.ratios.between, found.ratios.gain
    return MeasuredNoise(r.value, r.error, phi.value, phi.error)
