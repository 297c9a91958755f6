"""Forecasts by the law: one curve of Pass@1 against tau for all designs of a pair, fitted to the runs that are known.

    logit P(tau) = logit p0 + a tau^q        tau = t sqrt(B_eff / B_eff(32, 1 raw))

The form was chosen in sight of runs of SmolLM2 and is no theory: it has neither a ceiling nor a way back, so it cannot
be right where curves level off or fall. a and q are fitted to all points together, with a loss that a run which does
not fit cannot rule (soft L1), and a prior on log q for pairs of which little is known.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit, ndtr, ndtri

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.shared.errors import check
from rftlab.studies.law.noise import MeasuredNoise

NOISE = 0.03
"""Standard deviation of a run's Pass@1 about the curve, before anything is fitted: seeds and questions."""
POWER, POWER_SPREAD = 0.6, 0.5
"""Median of q, and deviation of log q: the prior."""
LEAST = 0.002
"""Pass@1 that stands for 0, and its distance from 1 for 1."""
WORLDS, DRAWS = 40, 25
"""Draws of r and phi, to each of which the curve is fitted, and forecasts drawn from each fit."""
Fitted = tuple[float, float]
"""Logit gain at the largest tau of the points, and log q."""


class KnownRun(NamedTuple):
    """Known points of a run: rounds (n,) after round 0, and Pass@1 (n,)."""

    design: Design
    rounds: np.ndarray
    values: np.ndarray


class LawCurve(NamedTuple):
    """A fitted curve: logit P = logit p0 + gain (tau / top)^q."""

    base: float
    """p0."""
    gain: float
    """Logit gained at the largest tau of the points."""
    power: float
    """q."""
    top: float
    """The largest tau of the points."""
    covariance: np.ndarray
    """(2, 2) of gain and log q."""
    residual: float
    """Root mean square of the points about the curve, at least NOISE."""

    @property
    def scale(self) -> float:
        """a."""
        return self.gain / self.top**self.power

    def at(self, tau: np.ndarray) -> np.ndarray:
        """Pass@1 (n,) at tau (n,)."""
        return expit(logit(self.base) + self.gain * (np.asarray(tau, dtype=np.float64) / self.top) ** self.power)


class LawForecast(NamedTuple):
    """Test Pass@1 (designs,) at the end of single runs: median and central 80% interval."""

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def fit_curve(
    base: float, runs: list[KnownRun], noise: NoiseRatios, plain: bool = False, start: Fitted | None = None
) -> LawCurve:
    """The curve through the points of all runs, from the base model's Pass@1.

    plain: tau without what a baseline does. start: where the search begins, of several places if left out. Raises
    UserError without a point after round 0.
    """
    tau = np.concatenate([np.zeros(0), *(run.rounds * time_per_round(run.design, noise, plain) for run in runs)])
    values = np.concatenate([np.zeros(0), *(run.values for run in runs)])
    check(tau.size > 0 and bool((tau > 0).all()), "no point of a run after round 0; allowed: one or more")
    p0, top = float(np.clip(base, LEAST, 1 - LEAST)), float(tau.max())

    def residuals(x: np.ndarray) -> np.ndarray:
        found = expit(logit(p0) + x[0] * (tau / top) ** np.exp(x[1]))
        return np.append((found - values) / NOISE, (x[1] - np.log(POWER)) / POWER_SPREAD)

    last = float(logit(np.clip(values[tau.argmax()], LEAST, 1 - LEAST)) - logit(p0))
    starts = [start] if start else [(gain, np.log(power)) for gain in (last, 0.5) for power in (0.3, POWER, 1.2)]
    found = min((least_squares(residuals, x, loss="soft_l1") for x in starts), key=lambda fit: fit.cost)
    residual = max(NOISE, float(np.sqrt(np.mean((residuals(found.x)[:-1] * NOISE) ** 2))))
    spread = np.linalg.pinv(found.jac.T @ found.jac) * (residual / NOISE) ** 2
    return LawCurve(p0, float(found.x[0]), float(np.exp(found.x[1])), top, spread, residual)


def forecast(
    base: float, runs: list[KnownRun], noise: MeasuredNoise, designs: tuple[Design, ...], seed: int = 0
) -> LawForecast:
    """Pass@1 of designs at their rounds, from points of some runs. Its spread is that of the fit, of r and phi, and of
    single runs about the curve. Takes a fraction of a second; equal arguments give equal numbers."""
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 36], dtype=np.uint64)))
    first, found = fit_curve(base, runs, noise.ratios), []
    for ratios in drawn(noise, WORLDS):
        curve = fit_curve(base, runs, ratios, start=(first.gain, float(np.log(first.power))))
        tau = np.array([design.rounds * time_per_round(design, ratios) for design in designs])
        root = np.linalg.cholesky(curve.covariance + 1e-9 * np.eye(2))
        for shift in rng.standard_normal((DRAWS, 2)) @ root.T:
            moved = curve._replace(gain=curve.gain + shift[0], power=curve.power * float(np.exp(shift[1])))
            found.append(moved.at(tau) + curve.residual * rng.standard_normal(tau.size))
    return LawForecast(*np.clip(np.quantile(found, [0.5, 0.1, 0.9], axis=0), 0.0, 1.0))


def drawn(noise: MeasuredNoise, n: int) -> list[NoiseRatios]:
    """n pairs of r and phi within their errors, evenly spread over what is likely: r is normal and not below 0, phi
    log-normal about what is believed."""
    believed, chances = noise.ratios, (np.arange(n) + 0.5) / n
    between, gain = np.full(n, believed.between), np.full(n, believed.gain)
    if noise.between_error > 0:
        below = ndtr(-noise.between / noise.between_error)
        between = noise.between + noise.between_error * ndtri(below + (1 - below) * chances)
    if noise.gain > 0:
        shuffled = chances[np.random.default_rng(0).permutation(n)]
        gain = believed.gain * np.exp(noise.gain_error / noise.gain * ndtri(shuffled))
    return [NoiseRatios(max(0.0, float(r)), float(phi)) for r, phi in zip(between, gain, strict=True)]
