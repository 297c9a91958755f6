"""The evidence of a forecast: points of the learning curves of a pilot, how far a right simulation may be from them,
and the known numbers of other pairs: language models whose whole grids come with rftlab, and the numbers that the paper
publishes, rounded to 0.01.

Four things keep a simulated curve from a measured one: the seed of either run, the questions of an evaluation, and what
the simulator leaves out. The last is common to the points of a run, so those of one run are correlated.
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
"""Standard deviation of what the simulator leaves out, common to a run."""
FREEDOM = 4.0
"""Degrees of freedom of a run's residuals, where there are several runs."""
POINTS = 6
"""Points of a curve that are compared, evenly spaced, the last one among them."""

MANY_TOKENS = 32
"""Tokens of a response that is no longer short."""
ROUNDING = 0.01 / np.sqrt(12)
"""Standard deviation of what rounding does to a published number."""


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
    label: str = ""
    """Of the design: a cell of the grid, or what tells it from other runs of its source."""

    def residual(self, curve: Curve) -> np.ndarray:
        """Measured less simulated (points, 2); a simulation that diverged counts as 0 from there on."""
        columns = (curve.train_pass_at_1, curve.test_pass_at_1)
        simulated = [np.interp(self.rounds, curve.round, column, right=0.0) for column in columns]
        return self.values - np.stack(simulated, axis=1)

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
    edge: float = float("nan")
    """Learning rate from which public runs of models alike usually fail; nan where too few sources tell."""
    repeats: RepeatSpread = RepeatSpread()
    imported: bool = False
    """Whether the runs are other people's."""
    questions: int = 0
    """Behind a test Pass@1 of the runs; 0 where nobody asks, as of the paper's numbers."""
    rounds: int = 0
    """Of the longest of them, or of the grid that a pilot is a part of."""
    remarks: tuple[str, ...] = ()
    """Omissions and assumptions, in words."""

    @property
    def rates(self) -> list[float]:
        """Learning rates that are known of the runs, rising."""
        return sorted({run.learning_rate for run in self.runs if run.learning_rate is not None})

    def tried(self, split: str = "test") -> list[KnownRun]:
        """The runs with a value of a split, with those alone."""
        column = SPLITS.index(split)
        return [
            KnownRun(run.design, run.rounds[seen], run.values[seen, column], run.errors[seen, column],
                     run.learning_rate, run.behind)
            for run in self.runs
            if (seen := np.isfinite(run.values[:, column])).any()
        ]  # fmt: skip

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


def sampling_variance(values: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Variance of shares of so many responses. A share of 0 or 1 has that of 0.01 or 0.99, because its true one is not
    known to be 0."""
    inner = np.clip(values, 0.01, 0.99)
    return inner * (1 - inner) / responses


def observe_curve(design: Design, curve: Curve, questions: tuple[int, int], responses: int = 1) -> Observed:
    """POINTS points of a curve, or all it has after round 0. questions: behind a train and a test Pass@1; responses:
    to each of them."""
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
    """The evidence of a pilot. Responses of up to MANY_TOKENS tokens on average count as short."""
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
    """Pairs whose whole grid is there, and whose base model was measured for the package."""
    return [name for name in shipped_pairs() if set(CELLS) <= set(curves.loc[curves["pair"] == name, "cell"])]


def language_others(curves: pd.DataFrame, name: str, pairs: Iterable[str]) -> tuple[OtherPair, ...]:
    """All of `pairs` but the named one, from rows as in `Results.curves`: means over seeds."""
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
    """Pass@1 after the last planned round: a row per seed, a column per cell; 0 for a run that diverged, nan for one
    that is not there."""
    own = curves[(curves["pair"] == name) & curves["cell"].isin(CELLS)]
    last = own.sort_values("round").groupby(["seed", "cell"]).tail(1).set_index(["seed", "cell"])
    ends = last[f"{split}_pass_at_1"].where(last["round"] == last["planned_rounds"], 0.0).unstack()
    return ends[[cell for cell in CELLS if cell in ends]]


def paper_ends(name: str, split: str) -> pd.Series:
    """Published Pass@1 of the cells of the grid that are reported for a split."""
    one = pair(name)
    known = {cell: published(one.model, one.dataset, split, design) for cell, design in CELLS.items()}
    return pd.Series({cell: value for cell, value in known.items() if value is not None})


def paper_pairs() -> list[str]:
    """Pairs of the paper that are simulated."""
    return [name for name, one in PAIRS.items() if one.sim is not None and len(paper_ends(name, "test")) > 1]


def _published(name: str) -> OtherPair:
    one, columns = pair(name), [paper_ends(name, split) for split in SPLITS]
    base = [published(one.model, one.dataset, split, None) for split in SPLITS]
    cells = columns[SPLITS.index("test")].index
    ends = np.stack([column.reindex(cells).to_numpy(dtype=float) for column in columns], axis=1)
    designs = tuple(CELLS[cell] for cell in cells)
    return OtherPair(np.array([np.nan if value is None else value for value in base]), designs, ends)


def paper_evidence(name: str) -> Evidence:
    """The base model and experiment 1 of a pair, and the other published pairs with the same data set. The prior is
    theirs, whose presets were fitted to their own cells; nobody measured their r and phi."""
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
