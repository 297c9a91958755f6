"""What a longer run is worth: a curve's value later on, as a distribution.

A curve is a + b h(t) + drift + noise. h is one of a family of shapes (saturating, straight, a step up now or soon,
accelerating, a jump that goes on slowly), the drift a Wiener process, the noise independent. For every shape, size of
drift and size of noise the posterior is Gaussian (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, section 2.7: explicit basis functions); their mixture, weighted by marginal likelihoods, is the outlook.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import expit, ndtr

from rftlab.studies.analysis.diagnose.observed import noise

SATURATING = np.geomspace(0.02, 2, 9)
"""Times after which exponentials have brought 63%, in lengths of the run."""
SLOWER = (0.01, 0.05, 0.2)
"""Times of 1 - (1 + t / time)^-1/2, which saturates as slowly as published curves do."""
STEPS = (
    *((middle, width) for middle in (0.15, 0.3, 0.45, 0.6, 0.75, 0.9) for width in (0.03, 0.1)),
    *((middle, width) for middle in (1.05, 1.2, 1.4) for width in (0.1, 0.2)),
)
"""Middles and widths of logistic steps: past ones, and ones that have hardly begun."""
ACCELERATING = (0.3, 0.7)
JUMPS = tuple(product((0.5, 0.7, 0.85), (0.02, 0.06, 0.15)))
"""Two phases, as where the format is learnt first: the part that comes at once, and its time; the rest is straight."""
DRIFTS = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Standard deviations of the drift over the run, in heights of the curve. Never 0: real curves wander."""
NOISES = (0.7, 1.0, 1.5)
"""Multiples of the noise that second differences show."""
MOST = 40
"""Values that are looked at; of more, means of neighbours."""
POINTS = 800
"""Of the distribution function, between which an end of an interval lies."""
_FLAT = 10.0
"""Prior standard deviation of a, in heights of the curve."""
_KEPT = 1e-5
"""Least weight of a part of the mixture."""


@dataclass(frozen=True)
class Outlook:
    """A mixture of normal distributions of the gain from the end of a curve on."""

    weights: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    @property
    def mean(self) -> float:
        """Of the gain."""
        return float(self.weights @ self.means)

    def chance(self, most: float) -> float:
        """Probability that the gain is at most this."""
        return float(self.weights @ ndtr((most - self.means) / self.deviations))

    def interval(self, part: float = 0.95) -> tuple[float, float]:
        """The middle part of the distribution."""
        wide = 5 * self.deviations
        grid = np.linspace(float((self.means - wide).min()), float((self.means + wide).max()), POINTS)
        below = ndtr((grid[:, None] - self.means) / self.deviations) @ self.weights
        low, high = np.interp(((1 - part) / 2, (1 + part) / 2), below, grid)
        return float(low), float(high)


def shapes(t: np.ndarray) -> np.ndarray:
    """Values (S, n) at times t (n,), in lengths of the run; 0 at 0, 1 at 1."""
    return _raw(t) / _raw(np.ones(1))


def _raw(t: np.ndarray) -> np.ndarray:
    curves = [1 - np.exp(-t / tau) for tau in SATURATING]
    curves += [1 - (1 + t / tau) ** -0.5 for tau in SLOWER]
    curves += [t]
    curves += [expit((t - middle) / width) - expit(-middle / width) for middle, width in STEPS]
    curves += [np.expm1(t / tau) for tau in ACCELERATING]
    curves += [part * np.expm1(-t / tau) / np.expm1(-1 / tau) + (1 - part) * t for part, tau in JUMPS]
    return np.array(curves)


def outlook(rounds: np.ndarray, values: np.ndarray, ahead: float) -> Outlook | None:
    """Of a curve with values (n,) at rounds (n,), n >= 4, and its gain after `ahead` lengths of the run; None where
    numbers are too large to compute with.

    The noise is the value's own: what is foreseen is the curve, not one evaluation of it.
    """
    t, y, counts = _thinned((rounds - rounds[0]) / (rounds[-1] - rounds[0]), values)
    spread = noise(values)
    height = max(float(np.ptp(np.convolve(y, np.full(3, 1 / 3), "valid"))), spread)
    if not np.isfinite(height) or height == 0:
        return Outlook(np.ones(1), np.zeros(1), np.full(1, 1e-9)) if height == 0 else None
    y, spread = (y - np.median(y)) / height, max(spread / height, 1e-3)
    at = shapes(np.concatenate([t, [1, 1 + ahead]]))
    noises, drifts = (column.ravel() for column in np.meshgrid(NOISES, np.square(DRIFTS)))
    parts = _posterior(t, y, (spread * noises[:, None]) ** 2 / counts, drifts, at, ahead)
    logs, means, variances = (column.ravel() for column in parts)
    weights = np.exp(logs - logs.max())
    kept = weights > _KEPT * weights.sum()
    deviations = height * np.sqrt(np.maximum(variances[kept], 1e-18))
    return Outlook(weights[kept] / weights[kept].sum(), height * means[kept], deviations)


def _thinned(t: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times and values, of many the means of neighbours, and how many are behind each."""
    if len(t) <= MOST:
        return t, values, np.ones(len(t))
    parts = np.array_split(np.arange(len(t)), MOST)
    means = [np.array([column[part].mean() for part in parts]) for column in (t, values)]
    return means[0], means[1], np.array([len(part) for part in parts], dtype=float)


def _posterior(
    t: np.ndarray, y: np.ndarray, variances: np.ndarray, drifts: np.ndarray, at: np.ndarray, ahead: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every size and shape (C, S): log marginal likelihood, and mean and variance of the gain.

    variances (C, n): of the noise. drifts (C,): variance of the Wiener process at time 1. at (S, n + 2): the shapes at
    t, now and later. a and the drift are a random walk, so a Kalman filter, the same for y and for every shape, makes
    the values independent of each other. The prior of b is normal with the height of the curve, which is 1 here.
    """
    columns, rise = np.vstack([y, at[:, :-2]]), at[:, -1] - at[:, -2]
    state, variance = np.zeros((len(drifts), len(columns))), np.full(len(drifts), _FLAT**2)
    log, by_y, by_shape = np.zeros((len(drifts), 1)), np.zeros_like(state), np.zeros_like(state)
    for i, step in enumerate(np.diff(t, prepend=0.0)):
        variance = variance + drifts * step
        whole = variance + variances[:, i]
        error, gain = columns[:, i] - state, variance / whole
        state, variance = state + gain[:, None] * error, variance * (1 - gain)
        log[:, 0] += np.log(whole)
        by_y += error * error[:, :1] / whole[:, None]
        by_shape += error**2 / whole[:, None]
    precision = 1 + by_shape[:, 1:]
    b = by_y[:, 1:] / precision
    log = -0.5 * (log + by_y[:, :1] - b**2 * precision + np.log(precision))
    # what the drift does after now is independent of all that was seen
    return log, b * rise, drifts[:, None] * ahead + rise**2 / precision
