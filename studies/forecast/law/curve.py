"""Forecasts by the law: one curve of Pass@1 against tau for all designs of a pair, fitted to the runs that are known.

    P(tau) = A expit(logit(p0 / A) + a tau^q)        tau = t sqrt(B_eff / B_eff(32, 1 raw))

It goes from the base model's p0 towards a ceiling A. The form without a ceiling (A = 1) was chosen after seeing runs of
SmolLM2, the ceiling after seeing `tiny` and the paper's numbers; neither is theory. The curve has no turning point, so
it cannot be right where runs collapse. a, q and A are fitted to all points together. With several runs the loss is soft
L1, so that one run which does not fit cannot dominate. q and A have a prior, from other pairs if any (`learn_prior`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit, ndtr, ndtri

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.law.noise import MeasuredNoise

NOISE = 0.03
"""Standard deviation of a run's Pass@1 about the curve by seeds and questions, as it is assumed before a fit."""
LEAST = 0.002
"""Smallest Pass@1 of a base model in a fit, and its smallest distance from 1."""
LEVEL = 0.8
"""Level of the intervals of forecasts."""
WORLDS, DRAWS = 100, 10
"""Number of draws of r and phi, to each of which a curve is fitted, and of forecasts drawn from each fit."""
FAR = np.array([12.0, 2.5, 8.0])
"""Largest absolute values of the fitted parameters (`LawCurve.x`)."""
ROOM = 1e-3
"""Smallest height of a ceiling above the base model's Pass@1."""


class CurvePrior(NamedTuple):
    """Prior of a curve: normal in log q and in the logit of (A - p0) / (1 - p0)."""

    power: float = 0.6
    """Median of the exponent q."""
    power_spread: float = 0.5
    ceiling: float = 0.6
    """Median of (A - p0) / (1 - p0)."""
    ceiling_spread: float = 1.0

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """Return (2,): log q and that logit, each less its median and in standard deviations."""
        middle = np.array([np.log(self.power), logit(self.ceiling)])
        return (x[1:] - middle) / [self.power_spread, self.ceiling_spread]

    def moved(self, rng: np.random.Generator) -> "CurvePrior":
        """Return the prior with its medians drawn from it."""
        power, ceiling = rng.standard_normal(2) * [self.power_spread, self.ceiling_spread]
        moved = float(expit(logit(self.ceiling) + ceiling))
        return self._replace(power=self.power * float(np.exp(power)), ceiling=moved)


VAGUE = CurvePrior()
"""Prior where no other pairs are known, chosen by hand after seeing the same runs as the form."""


class KnownRun(NamedTuple):
    """Known part of a run: Pass@1 (n,) of one split after rounds (n,), rising."""

    design: Design
    rounds: np.ndarray
    values: np.ndarray
    errors: np.ndarray = np.empty(0)
    """Standard errors (n,), which only the limits of forecasts use (studies/forecast/law/limits.py)."""
    learning_rate: float | None = None
    behind: int = 1
    """Number of runs whose mean the values are."""
    measured: float = 0.0
    """First round that was evaluated; the values before it are a guess."""


class LawCurve(NamedTuple):
    """Fitted curve: P = A expit(logit(p0 / A) + gain (tau / top)^q)."""

    base: float
    """Pass@1 of the base model, p0."""
    x: np.ndarray
    """Fitted parameters (3,): logit gained at the largest tau, log q, and the logit of (A - p0) / (1 - p0)."""
    top: float
    """Largest tau of the points."""
    residual: float
    """Root mean square distance of the points from the curve, at least NOISE."""

    @property
    def power(self) -> float:
        """Exponent q of the curve."""
        return float(np.exp(self.x[1]))

    @property
    def ceiling(self) -> float:
        """Ceiling A of the curve."""
        return self.base + max(ROOM, (1 - self.base) * float(expit(self.x[2])))

    def at(self, tau: np.ndarray) -> np.ndarray:
        """Return Pass@1 (n,) at tau (n,)."""
        passed = np.asarray(tau, dtype=np.float64) / self.top
        return self.ceiling * expit(logit(self.base / self.ceiling) + self.x[0] * passed**self.power)


class CellForecast(NamedTuple):
    """Forecast of cells after training: Pass@1 (cells,), nan where there is no forecast."""

    values: np.ndarray
    low: np.ndarray
    """Lower end of the central interval of single runs at LEVEL; nan where a forecast has none."""
    high: np.ndarray
    draws: np.ndarray | None = None
    """Joint draws (draws, cells) of Pass@1, expected over an evaluation's questions; None where there are none."""
    misfit: float = float("nan")
    """Mean distance between a simulator's ends of the known runs and the measured ones; nan for other forecasts."""


def bare(values: np.ndarray) -> CellForecast:
    """Return a forecast of `values` without an interval."""
    none = np.full(len(values), np.nan)
    return CellForecast(values, none, none)


def fit_saturating(
    base: float,
    logs: np.ndarray,
    values: np.ndarray,
    starts: Sequence[float],
    bounds: tuple[tuple[float, ...], tuple[float, ...]] = ((-np.inf,) * 3, (np.inf,) * 3),
) -> Callable[[np.ndarray], np.ndarray]:
    """Fit the plain curve that the law is compared with, R0 + (A - R0) / (1 + (t_mid / t)^b) (Khatri et al.
    2510.13786), to values (n,) at logs (n,) of t, from the base R0. Return it as a function of log t.

    starts: values of log t_mid from which the search begins; bounds: of the logit of A, of log b and of log t_mid.
    """

    def curve(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        return base + (expit(x[0]) - base) * expit(np.exp(x[1]) * (at - x[2]))

    fits = [least_squares(lambda x: curve(x, logs) - values, (0.0, 0.0, middle), bounds=bounds) for middle in starts]
    best = min(fits, key=lambda fit: fit.cost).x
    return lambda at: curve(best, at)


def fit_curve(
    base: float,
    runs: list[KnownRun],
    noise: NoiseRatios,
    start: np.ndarray | None = None,
    prior: CurvePrior = VAGUE,
) -> LawCurve:
    """Fit the law's curve to the points of all runs, from the base model's Pass@1.

    start: where the search begins; None for several places. Raises UserError without a point after round 0.
    """
    tau = np.concatenate([np.zeros(0), *(run.rounds * time_per_round(run.design, noise) for run in runs)])
    values = np.concatenate([np.zeros(0), *(run.values for run in runs)])
    check(tau.size > 0 and bool((tau > 0).all()), "no point of a run after round 0; allowed: one or more")
    empty = LawCurve(float(np.clip(base, LEAST, 1 - LEAST)), np.zeros(3), float(tau.max()), NOISE)

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.append((empty._replace(x=x).at(tau) - values) / NOISE, prior.residuals(x))

    loss = "soft_l1" if len(runs) > 1 else "linear"
    if start is None:  # slow and fast, up and down, low and high ceilings
        middles = (0.0, 2.0, float(logit(prior.ceiling)))
        starts = [np.array([gain, np.log(q), at]) for gain in (-0.5, 1.0, 4.0) for q in (0.3, 1.2) for at in middles]
    else:
        starts = [np.clip(start, -0.99 * FAR, 0.99 * FAR)]
    best = min((least_squares(residuals, x, loss=loss, bounds=(-FAR, FAR)) for x in starts), key=lambda fit: fit.cost)
    residual = float(np.sqrt(np.mean((residuals(best.x)[:-2] * NOISE) ** 2)))
    return empty._replace(x=best.x, residual=max(NOISE, residual))


def learn_prior(others: list[LawCurve]) -> CurvePrior:
    """Return the prior with its medians at the mean of other pairs' curves; VAGUE where there are none."""
    if not others:
        return VAGUE
    x = np.mean([curve.x for curve in others], axis=0)
    return VAGUE._replace(power=float(np.exp(x[1])), ceiling=float(expit(x[2])))


def forecast(
    base: float,
    runs: list[KnownRun],
    noise: MeasuredNoise,
    designs: tuple[Design, ...],
    prior: CurvePrior = VAGUE,
    base_within: tuple[float, float] | None = None,
    rounds: np.ndarray | None = None,
) -> CellForecast:
    """Forecast Pass@1 of designs from points of runs, after rounds (designs,) or, where these are None, their own.

    The spread is that of r and phi, of the fit, and of single runs about the curve, which `draws` (WORLDS, designs) are
    without. Each draw of r and phi has a curve of its own, fitted with the runs and the prior's medians moved within
    their spreads (randomized maximum likelihood), because pace and ceiling are far from normal where a curve levels
    off. base_within: bounds between which a base model that nobody measured is drawn evenly. Takes a second or less;
    equal arguments give equal numbers.
    """
    rng = np.random.Generator(np.random.Philox(key=np.array([0, 36], dtype=np.uint64)))
    first, curves, single = fit_curve(base, runs, noise.ratios, prior=prior), [], []
    at = np.array([design.rounds for design in designs]) if rounds is None else rounds
    low, high = base_within or (base, base)
    bases = low + (high - low) * (np.random.default_rng(0).permutation(WORLDS) + 0.5) / WORLDS
    for start, ratios in zip(bases, draw_ratios(noise, WORLDS), strict=True):
        moved = [run._replace(values=run.values + first.residual * rng.standard_normal()) for run in runs]
        curve = fit_curve(float(start), moved, ratios, start=first.x, prior=prior.moved(rng))
        tau = at * np.array([time_per_round(design, ratios) for design in designs])
        curves.append(curve.at(tau))
        single.append(curves[-1] + first.residual * rng.standard_normal((DRAWS, tau.size)))
    median, below, above = np.clip(np.quantile(np.concatenate(single), [0.5, 0.1, 0.9], axis=0), 0.0, 1.0)
    return CellForecast(median, below, above, np.array(curves))


def draw_ratios(noise: MeasuredNoise, n: int) -> list[NoiseRatios]:
    """Return n pairs of r and phi, evenly spread over their distributions: r is normal and not below 0, phi log-normal
    about the value that forecasts use."""
    believed, chances = noise.ratios, (np.arange(n) + 0.5) / n
    between, gain = np.full(n, believed.between), np.full(n, believed.gain)
    if noise.between_error > 0:
        below = ndtr(-noise.between / noise.between_error)
        between = noise.between + noise.between_error * ndtri(below + (1 - below) * chances)
    if noise.gain > 0:
        shuffled = chances[np.random.default_rng(0).permutation(n)]
        gain = believed.gain * np.exp(noise.gain_error / noise.gain * ndtri(shuffled))
    return [NoiseRatios(max(0.0, float(r)), float(phi)) for r, phi in zip(between, gain, strict=True)]
