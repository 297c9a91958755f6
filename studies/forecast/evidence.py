"""The evidence that a simulation is compared with: points of the learning curves of a pilot, and how far a right
simulation may be from them.

Four things keep a simulated curve from a measured one: the seed of either run, the questions of an evaluation, and what
the simulator leaves out. The last is common to the points of a run, so those of one run are correlated.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rftlab.shared.curve import SPLITS, Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast.knobs import LONG, SHORT, Facts, paced
from rftlab.studies.forecast.law.limits import TriedRun
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise
from rftlab.studies.forecast.pilot.pilot import PilotMeasurements

SEED_NOISE = 0.02
"""Standard deviation of Pass@1 over training seeds, about that of the `tiny` reference runs (0.015 and 0.023)."""
DISCREPANCY = 0.03
"""Standard deviation of what the simulator leaves out, common to a run."""
FREEDOM = 4.0
"""Degrees of freedom of a run's residuals, where there are several runs."""
POINTS = 6
"""Points of a curve that are compared, evenly spaced, the last one among them."""


MANY_TOKENS = 32
"""Tokens of a response that is no longer short."""


class Observed(NamedTuple):
    """A run's Pass@1 at some rounds: train and test (points, 2), nan where one was not measured, and the standard
    errors of their evaluations, alike."""

    design: Design
    rounds: np.ndarray
    values: np.ndarray
    errors: np.ndarray
    learning_rate: float | None = None
    """Read by forecasts at another rate alone; None where nobody asks or nobody told."""
    behind: int = 1
    """Runs of which the values are means."""
    test_curve: tuple[np.ndarray, np.ndarray] | None = None
    """All rounds and test Pass@1 that are known, where that is more than `rounds` and `values`."""

    def residual(self, curve: Curve) -> np.ndarray:
        """Measured less simulated (points, 2); a simulation that diverged counts as 0 from there on."""
        simulated = np.stack(
            [
                np.interp(self.rounds, curve.round, column, right=0.0)
                for column in (curve.train_pass_at_1, curve.test_pass_at_1)
            ],
            axis=1,
        )
        return self.values - simulated

    def log_likelihood(self, curve: Curve, freedom: float) -> float:
        """Of the measured points given a simulated run, up to a constant: a multivariate t, normal where `freedom`
        is infinite."""
        measured = np.isfinite(self.values.ravel())
        residual = self.residual(curve).ravel()[measured]
        covariance = np.diag(self.errors.ravel()[measured] ** 2 + 2 * SEED_NOISE**2) + DISCREPANCY**2
        distance = float(residual @ np.linalg.solve(covariance, residual))
        if np.isinf(freedom):
            return -0.5 * distance
        return -0.5 * (freedom + residual.size) * float(np.log1p(distance / freedom))


TYPICAL = MeasuredNoise(0.04, 0.04, 0.45, 0.25)
"""r and phi where nobody measured them, with spreads that reach from the six simulated pairs of the paper after 100
rounds (0.0004 to 0.05, 0.11 to 0.66) to the pilots of `tiny` (0.07 to 0.08, 1)."""


def noise_text(noise: MeasuredNoise) -> str:
    """Which r and phi forecasts take, and whether somebody measured them."""
    values = f"r = {noise.between:.3g} ± {noise.between_error:.2g}, phi = {noise.gain:.3g} ± {noise.gain_error:.2g}"
    if noise != TYPICAL:
        return f"r and phi, measured from gradients: {values}"
    return (
        f"guessed: {values}; nobody measured them here, and these are defaults, chosen for the paper's simulated pairs "
        "and the base models of `tiny`"
    )


UNMEASURED = (0.045, 3)
"""Deviation between repeats at Pass@1 1/2, and the degrees of freedom that it counts as, before any are measured.
RepeatSpread of public runs that hold differ by 0.01 to 0.12 at the end (docs/forecast.md)."""


class RepeatSpread(NamedTuple):
    """How far ends of repeats differ, at Pass@1 1/2: in proportion to sqrt(p (1 - p)) elsewhere."""

    squares: float = 0.0
    """Sum of squares of measured deviations from the mean of their repeats."""
    measured: int = 0
    """Their degrees of freedom."""

    @property
    def freedom(self) -> int:
        """Degrees of freedom, those of UNMEASURED among them."""
        return UNMEASURED[1] + self.measured

    @property
    def deviation(self) -> float:
        """Standard deviation: what was measured and UNMEASURED, each with its degrees of freedom."""
        return float(np.sqrt((UNMEASURED[1] * UNMEASURED[0] ** 2 + self.squares) / self.freedom))


class OtherPair(NamedTuple):
    """A pair of which all is known that a forecast of another one may use: train and test Pass@1."""

    base: np.ndarray
    """(2,) of the base model."""
    designs: tuple[Design, ...]
    """With their rounds."""
    ends: np.ndarray
    """(designs, 2) after training; nan where one is not known."""
    noise: MeasuredNoise = TYPICAL


class Evidence(NamedTuple):
    """All that forecasts may look at. A calibration looks at facts and runs alone."""

    facts: Facts
    runs: tuple[Observed, ...]
    noise: MeasuredNoise = TYPICAL
    """r and phi of the law."""
    others: tuple[OtherPair, ...] = ()
    guessed_base: tuple[float, float, float] | None = None
    """Pass@1 of the base model where nobody measured it: a guess, and the bounds that it is drawn between."""
    precision: str | None = None
    """Of the weights, fp32 or bf16; None where that is not known."""
    repeats: RepeatSpread = RepeatSpread()
    imported: bool = False
    """Whether the runs are other people's."""

    def tried(self, split: str = "test") -> list[TriedRun]:
        """The runs for the limits of forecasts (studies/forecast/law/limits.py)."""
        column = SPLITS.index(split)
        return [
            TriedRun(run.design, run.learning_rate, run.values[seen, column], run.errors[seen, column])
            for run in self.runs
            if (seen := np.isfinite(run.values[:, column])).any()
        ]

    def base(self, split: str = "test") -> float:
        """Pass@1 of the base model, measured or guessed; nan where neither is known."""
        if self.facts.strict is not None:
            return self.facts.strict
        bases = [run.values[0, SPLITS.index(split)] for run in self.runs if run.rounds[0] == 0]
        return float(np.mean(bases)) if bases else self.guessed_base[0] if self.guessed_base else float("nan")

    @property
    def freedom(self) -> float:
        """Degrees of freedom of residuals: heavy tails, so that a run which the simulator cannot do does not spoil
        the others; none for a single run."""
        return FREEDOM if len(self.runs) > 1 else np.inf


def observe_curve(design: Design, curve: Curve, questions: tuple[int, int], responses: int = 1) -> Observed:
    """POINTS points of a curve, or all it has after round 0. questions: behind a train and a test Pass@1; responses:
    to each of them."""
    last = len(curve.round) - 1
    at = (
        np.unique(np.round(np.linspace(last / POINTS, last, POINTS)).astype(int))
        if last >= POINTS
        else np.arange(1, last + 1)
    )
    values = np.stack([curve.train_pass_at_1[at], curve.test_pass_at_1[at]], axis=1)
    inner = np.clip(values, 0.01, 0.99)
    every = int(curve.round[at[0]])
    if (np.diff(curve.round[at]) == every).all():
        design = replace(design, eval_every=every)
    errors = np.sqrt(inner * (1 - inner) / (np.array(questions) * responses))
    return Observed(design, curve.round[at], values, errors)


def pilot_evidence(pilot: PilotMeasurements) -> Evidence:
    """The evidence of a pilot. Responses of up to MANY_TOKENS tokens on average count as short."""
    base = pilot.base
    parts = base.splits.values()
    strict, formed = (
        float(np.average([part.rate(name) for part in parts], weights=[len(part.strict) for part in parts]))
        for name in ("strict", "well_formed")
    )
    family = SHORT if base.test.lengths.mean <= MANY_TOKENS else LONG
    runs = tuple(
        observe_curve(run.design, run.curve, (run.train_questions, run.test_questions), run.responses)
        for run in pilot.runs
    )
    facts = Facts(paced(family, pilot.rounds), base.n_train, base.n_test, strict, formed)
    try:
        noise = pilot_noise(base)
    except UserError:  # a pilot whose gradients have no noise to measure
        noise = TYPICAL
    return Evidence(facts, runs, noise)
