"""Evidence for a forecast: points of the learning curves of a pilot, and known numbers of other pairs.

Other pairs are language models whose whole grids come with rftlab, and pairs of the paper, whose published numbers are
rounded to 0.01. Four things keep a simulated curve from a measured one: the seed of either run, the questions of an
evaluation, and what the simulator leaves out. The last is common to the points of a run, so their errors are
correlated.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS, Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.paper.experiments import BASELINE, published
from rftlab.studies.data.paper.pairs import PAIRS, linear_environment, pair, start_at
from rftlab.studies.forecast.knobs import LONG, SHORT, Facts, informed, paced
from rftlab.studies.forecast.law.curve import KnownRun
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise
from rftlab.studies.forecast.pilot.pilot import CELLS, PilotMeasurements, at_rounds
from rftlab.studies.forecast.pilot.store import shipped_base, shipped_pairs

SEED_NOISE = 0.02
"""Standard deviation of Pass@1 over training seeds, about that of the `tiny` reference runs (0.015 and 0.023)."""
DISCREPANCY = 0.03
"""Standard deviation of the error in Pass@1 from what the simulator leaves out, which the points of a run share."""
FREEDOM = 4.0
"""Degrees of freedom of the t distribution of a run's residuals, where there are several runs."""
POINTS = 6
"""Points of a curve that are compared, evenly spaced, the last one among them."""

MANY_TOKENS = 32
"""Largest mean number of tokens at which responses count as short."""
ROUNDING = 0.01 / np.sqrt(12)
"""Standard deviation of the rounding error of a published number."""


class Observed(NamedTuple):
    """Pass@1 of a known run at some rounds: train and test `values` (points, 2), nan where one was not measured, and
    the standard errors of their evaluations, `errors` (points, 2)."""

    design: Design
    rounds: np.ndarray
    values: np.ndarray
    errors: np.ndarray
    learning_rate: float | None = None
    """Learning rate, which only forecasts at another rate read; None where it is not needed or not known."""
    behind: int = 1
    """Number of runs whose mean the values are."""
    test_curve: tuple[np.ndarray, np.ndarray] | None = None
    """All known rounds and test Pass@1, where `rounds` and `values` hold only a part of them."""
    label: str = ""
    """Label of the design: a cell of the grid, or what tells it from other runs of its source."""

    def residual(self, curve: Curve) -> np.ndarray:
        """Return measured less simulated Pass@1 (points, 2). A simulation that diverged counts as 0 from there on."""
        columns = (curve.train_pass_at_1, curve.test_pass_at_1)
        simulated = [np.interp(self.rounds, curve.round, column, right=0.0) for column in columns]
        return self.values - np.stack(simulated, axis=1)

    def log_likelihood(self, curve: Curve, freedom: float) -> float:
        """Return the log-likelihood of the measured points given a simulated run, up to a constant: that of a
        multivariate t, normal where `freedom` is infinite."""
        measured = np.isfinite(self.values.ravel())
        residual = self.residual(curve).ravel()[measured]
        covariance = np.diag(self.errors.ravel()[measured] ** 2 + 2 * SEED_NOISE**2) + DISCREPANCY**2
        distance = float(residual @ np.linalg.solve(covariance, residual))
        if np.isinf(freedom):
            return -0.5 * distance
        return -0.5 * (freedom + residual.size) * float(np.log1p(distance / freedom))


TYPICAL = MeasuredNoise(0.04, 0.04, 0.45, 0.25)
"""Noise ratios r and phi where nobody measured them, with spreads that reach from the six simulated pairs of the paper
after 100 rounds (0.0004 to 0.05, 0.11 to 0.66) to the pilots of `tiny` (0.07 to 0.08, 1)."""


def noise_text(noise: MeasuredNoise) -> str:
    """Say which noise ratios r and phi forecasts take, and whether they were measured."""
    values = f"r = {noise.between:.3g} ± {noise.between_error:.2g}, phi = {noise.gain:.3g} ± {noise.gain_error:.2g}"
    if noise != TYPICAL:
        return f"r and phi, measured from gradients: {values}"
    return (
        f"guessed: {values}; nobody measured them here, and these are defaults, chosen for the paper's simulated pairs "
        "and the base models of `tiny`"
    )


UNMEASURED = (0.045, 3)
"""Prior of a RepeatSpread: the deviation between repeats at Pass@1 1/2, and the degrees of freedom that it counts as.
Repeats of public runs that kept what they learned differ by 0.01 to 0.12 at the end (docs/forecast.md)."""


class RepeatSpread(NamedTuple):
    """Deviation between the ends of repeats of a run at Pass@1 1/2. At p it is in proportion to sqrt(p (1 - p))."""

    squares: float = 0.0
    """Sum of squares of measured deviations from the mean of their repeats."""
    measured: int = 0
    """Degrees of freedom of `squares`."""

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `deviation`: the measured ones and those of UNMEASURED."""
        return UNMEASURED[1] + self.measured

    @property
    def deviation(self) -> float:
        """Standard deviation between repeats, pooled from UNMEASURED and the measured one by degrees of freedom."""
        return float(np.sqrt((UNMEASURED[1] * UNMEASURED[0] ** 2 + self.squares) / self.freedom))


class OtherPair(NamedTuple):
    """Train and test Pass@1 of another pair, which a forecast may use."""

    base: np.ndarray
    """Train and test Pass@1 (2,) of the base model."""
    designs: tuple[Design, ...]
    """Designs that were run, with their rounds."""
    ends: np.ndarray
    """Train and test Pass@1 (designs, 2) after training; nan where one is not known."""
    noise: MeasuredNoise = TYPICAL


class Evidence(NamedTuple):
    """Everything that a forecast may use. A calibration uses `facts` and `runs` alone."""

    facts: Facts
    runs: tuple[Observed, ...]
    noise: MeasuredNoise = TYPICAL
    """Noise ratios r and phi for the law."""
    others: tuple[OtherPair, ...] = ()
    guessed_base: tuple[float, float, float] | None = None
    """Pass@1 of a base model that nobody measured: a guess, and the bounds between which it is drawn."""
    precision: str | None = None
    """Precision of the weights, fp32 or bf16; None where it is not known."""
    edge: float = float("nan")
    """Learning rate from which public runs of models alike usually fail; nan where too few sources tell."""
    repeats: RepeatSpread = RepeatSpread()
    imported: bool = False
    """Whether the runs were imported from logs of other programs."""
    questions: int = 0
    """Questions behind a test Pass@1 of the runs; 0 where no forecast needs them, as with the paper's numbers."""
    rounds: int = 0
    """Rounds of the longest run, or of the grid that a pilot is a part of."""
    remarks: tuple[str, ...] = ()
    """Sentences on what was left out and what was assumed."""

    @property
    def rates(self) -> list[float]:
        """Known learning rates of the runs, in rising order."""
        return sorted({run.learning_rate for run in self.runs if run.learning_rate is not None})

    def tried(self, split: str = "test") -> list[KnownRun]:
        """Return the runs with a measured Pass@1 of a split, reduced to their points of that split."""
        column = SPLITS.index(split)
        return [
            KnownRun(run.design, run.rounds[seen], run.values[seen, column], run.errors[seen, column],
                     run.learning_rate, run.behind)
            for run in self.runs
            if (seen := np.isfinite(run.values[:, column])).any()
        ]  # fmt: skip

    def base(self, split: str = "test") -> float:
        """Return Pass@1 of the base model, measured or guessed; nan where neither is known."""
        if self.facts.strict is not None:
            return self.facts.strict
        bases = [run.values[0, SPLITS.index(split)] for run in self.runs if run.rounds[0] == 0]
        return float(np.mean(bases)) if bases else self.guessed_base[0] if self.guessed_base else float("nan")

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the t distribution of residuals: infinite for a single run. Heavy tails keep a run that
        the simulator cannot reproduce from spoiling the others."""
        return FREEDOM if len(self.runs) > 1 else np.inf


def sampling_variance(values: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Return the variance of shares among `responses` responses. A share of 0 or 1 has that of 0.01 or 0.99, because
    the true share is not known to be 0 or 1."""
    inner = np.clip(values, 0.01, 0.99)
    return inner * (1 - inner) / responses


def observe_curve(design: Design, curve: Curve, questions: tuple[int, int], responses: int = 1) -> Observed:
    """Return POINTS evenly spaced points of a curve as an observed run, or all after round 0 where it has fewer.

    questions: numbers behind a train and a test Pass@1; responses: number for each question.
    """
    last = len(curve.round) - 1
    spaced = np.round(np.linspace(last / POINTS, last, POINTS)).astype(int)
    at = np.unique(spaced) if last >= POINTS else np.arange(1, last + 1)
    values = np.stack([curve.train_pass_at_1[at], curve.test_pass_at_1[at]], axis=1)
    every = int(curve.round[at[0]])
    if (np.diff(curve.round[at]) == every).all():
        design = replace(design, eval_every=every)
    errors = np.sqrt(sampling_variance(values, np.array(questions) * responses))
    return Observed(design, curve.round[at], values, errors)


def pilot_evidence(pilot: PilotMeasurements) -> Evidence:
    """Return the evidence of a pilot. Responses of up to MANY_TOKENS tokens on average count as short."""
    base = pilot.base
    parts = base.splits.values()
    strict, formed = (
        float(np.average([part.rate(name) for part in parts], weights=[len(part.strict) for part in parts]))
        for name in ("strict", "well_formed")
    )
    family = SHORT if base.test.lengths.mean <= MANY_TOKENS else LONG
    runs = tuple(
        observe_curve(run.design, run.curve, (run.train_questions, run.test_questions), run.responses)._replace(
            label=run.cell
        )
        for run in pilot.runs
    )
    facts = Facts(paced(family, pilot.rounds), base.n_train, base.n_test, strict, formed)
    try:
        noise = pilot_noise(base)
    except UserError:  # a pilot whose gradients have no noise to measure
        noise = TYPICAL
    return Evidence(facts, runs, noise, questions=base.n_test, rounds=pilot.rounds)


def whole_pairs(curves: pd.DataFrame) -> list[str]:
    """Return the pairs with runs of the whole grid in `curves`, whose base model's measurements come with rftlab."""
    return [name for name in shipped_pairs() if set(CELLS) <= set(curves.loc[curves["pair"] == name, "cell"])]


def language_others(curves: pd.DataFrame, name: str, pairs: Iterable[str]) -> tuple[OtherPair, ...]:
    """Return all of `pairs` but the named one as OtherPair, from rows as in `Results.curves`, with means over seeds."""
    return tuple(_language(curves[curves["pair"] == other], other) for other in pairs if other != name)


def _language(own: pd.DataFrame, name: str) -> OtherPair:
    tables = [finals(own, name, split) for split in SPLITS]
    rounds = int(own["planned_rounds"].max())
    designs = tuple(at_rounds(tables[0].columns, rounds).values())
    start = own[own["round"] == 0]
    base = np.array([start[f"{split}_pass_at_1"].mean() for split in SPLITS])
    ends = np.stack([table.mean().to_numpy() for table in tables], axis=1)
    return OtherPair(base, designs, ends, pilot_noise(shipped_base(name)))


def finals(curves: pd.DataFrame, name: str, split: str = "test") -> pd.DataFrame:
    """Return Pass@1 after the last planned round, with a row per seed and a column per cell. It is 0 for a run that
    diverged and nan for one that is missing."""
    own = curves[(curves["pair"] == name) & curves["cell"].isin(CELLS)]
    last = own.sort_values("round").groupby(["seed", "cell"]).tail(1).set_index(["seed", "cell"])
    ends = last[f"{split}_pass_at_1"].where(last["round"] == last["planned_rounds"], 0.0).unstack()
    return ends[[cell for cell in CELLS if cell in ends]]


def paper_ends(name: str, split: str) -> pd.Series:
    """Return the published Pass@1 of those cells of the grid that are reported for a split."""
    one = pair(name)
    known = {cell: published(one.model, one.dataset, split, design) for cell, design in CELLS.items()}
    return pd.Series({cell: value for cell, value in known.items() if value is not None})


def paper_pairs() -> list[str]:
    """Return the pairs of the paper that are simulated and have more than one published test Pass@1."""
    return [name for name, one in PAIRS.items() if one.sim is not None and len(paper_ends(name, "test")) > 1]


def _published(name: str) -> OtherPair:
    one, columns = pair(name), [paper_ends(name, split) for split in SPLITS]
    base = [published(one.model, one.dataset, split, None) for split in SPLITS]
    cells = columns[SPLITS.index("test")].index
    ends = np.stack([column.reindex(cells).to_numpy(dtype=float) for column in columns], axis=1)
    designs = tuple(CELLS[cell] for cell in cells)
    return OtherPair(np.array([np.nan if value is None else value for value in base]), designs, ends)


def paper_evidence(name: str) -> Evidence:
    """Return what the paper publishes of a pair as evidence: its base model, its experiment 1, and the other pairs with
    the same data set. The prior is that of the other pairs, whose presets were fitted to their own cells. Nobody
    measured r and phi of any of them."""
    known, run = pair(name), start_at(name, "sim")
    others = [other for other in paper_pairs() if other != name and pair(other).dataset == known.dataset]
    values = np.array(
        [[published(known.model, known.dataset, split, design) for split in SPLITS] for design in (None, BASELINE)]
    )
    environment = linear_environment(run)
    questions = np.array([environment.n_train, environment.n_test])
    errors = np.sqrt(sampling_variance(values, questions) + ROUNDING**2)
    design = replace(BASELINE, rounds=run.design.rounds, eval_every=run.design.rounds)
    facts = Facts(informed(LONG, [start_at(other, "sim") for other in others]), environment.n_train, environment.n_test)
    known_run = Observed(design, np.array([0, run.design.rounds]), values, errors)
    return Evidence(facts, (known_run,), others=tuple(map(_published, others)))
