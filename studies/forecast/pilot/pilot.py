"""Pilots as plain data, without torch: the answers of a pair's base model, the noise of its gradients, and the curves
of a few runs of the grid of designs that forecasts are made for.

n questions have m responses each, and counts of responses are (n,). Rates are counts / m, with sampling noise that
studies/forecast/pilot/passrates.py takes out.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_choice
from rftlab.studies.data.paper.experiments import CELLS, PILOT_CELLS
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.forecast.pilot.headroom import Headroom
from rftlab.studies.forecast.pilot.noise import Gradient, GradientRatios


def check_cells(cells: tuple[str, ...]) -> None:
    """Raise UserError unless cells are different designs of the grid."""
    for cell in cells:
        check_choice("design", cell, tuple(CELLS))
    check(len(set(cells)) == len(cells), f"designs: {', '.join(cells)} names one twice")


def at_rounds(names: Iterable[str], rounds: int) -> dict[str, Design]:
    """Return cells of the grid by name, each as a run of so many rounds."""
    return {name: replace(CELLS[name], rounds=rounds, eval_every=rounds) for name in names}


def midway_round(design: Design) -> int:
    """Return the round half way through a run, where r and phi are measured beside those of the base policy."""
    return max(1, design.rounds // 2)


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles of response lengths."""


class Spent(NamedTuple):
    """Cost of a part of a pilot."""

    rollouts: int
    tokens: int
    """Tokens of the responses."""
    seconds: float


class Lengths(NamedTuple):
    """Tokens of the responses to a split; nan where there is no such response."""

    mean: float
    deviation: float
    quantiles: np.ndarray
    """Quantiles of the tokens at the levels QUANTILES."""
    right: float
    """Mean tokens of the strictly right responses."""
    wrong: float
    """Mean tokens of the other responses."""
    cut: float
    """Share of responses that reached the limit without an end."""


class Answers(NamedTuple):
    """Counts (n,) of m responses of the base model to each of n questions of a split."""

    samples: int
    """Number m of responses to each question."""
    strict: np.ndarray
    """Right answers in the required format: what earns a reward."""
    flexible: np.ndarray
    """Right answers in any format."""
    well_formed: np.ndarray
    """Answers in the required format, right or wrong."""
    lengths: Lengths

    def rate(self, name: str) -> float:
        """Return the share of all responses that count as `strict`, `flexible` or `well_formed`."""
        return float(getattr(self, name).mean() / self.samples)


class Midway(NamedTuple):
    """Gradients of the policy half way through the run of the baseline, raw and centred as those of `Base`.

    Training soon leaves the base policy, and r and phi with it.
    """

    round: int
    raw: Gradient
    centred: Gradient
    ratios: GradientRatios | None
    spent: dict[str, Spent]


class Base(NamedTuple):
    """Measurements on the base model of a pair, and half way through the baseline's run."""

    pair: str
    n_train: int
    """Questions of the whole training split; a part of them was evaluated."""
    n_test: int
    train: Answers | None
    """Answers to training questions; None where none was asked, and then there are no gradients."""
    test: Answers
    raw: Gradient | None
    """Gradients with the raw reward as weight, A = r."""
    centred: Gradient | None
    """Gradients with each reward less the mean of the others of its group; they have the same signal and the same
    variance between contexts."""
    spent: dict[str, Spent]
    """Costs by part: train, test, gradients, and what was asked further."""
    ratios: GradientRatios | None = None
    """r and phi with intervals; None in files of versions that did not keep them, and where there is no estimate."""
    headroom: Headroom | None = None
    """Abilities before training; None in files of versions that did not measure them."""
    midway: Midway | None = None
    """Gradients half way through the baseline's run; None where they were not measured."""

    @property
    def splits(self) -> dict[str, Answers]:
        """Answers of the splits whose questions were asked."""
        both = {"train": self.train, "test": self.test}
        return {name: answers for name, answers in both.items() if answers is not None}


class PilotRun(NamedTuple):
    """Training run of the grid, or its first part."""

    cell: str
    """Label of its design, one of CELLS."""
    seed: int
    planned_rounds: int
    curve: Curve
    train_questions: int
    """Questions behind a train Pass@1 of the curve, the same ones each time."""
    test_questions: int
    responses: int
    """Sampled responses to each of these questions."""
    evaluated: int
    """Responses of all evaluations, greedy ones included; they are no rollouts of the curve."""

    @property
    def design(self) -> Design:
        """Design with the rounds and the evaluations of this run."""
        every = int(self.curve.round[1]) if len(self.curve.round) > 1 else self.planned_rounds
        return replace(CELLS[self.cell], rounds=self.planned_rounds, eval_every=every)

    @property
    def diverged(self) -> bool:
        """Whether the curve ends before the run was to end."""
        return int(self.curve.round[-1]) < self.planned_rounds

    @property
    def spent(self) -> Spent:
        """Rollouts of the run and their tokens; seconds include its evaluations."""
        return Spent(int(self.curve.rollouts[-1]), int(self.curve.tokens[-1]), float(self.curve.seconds[-1]))


class PilotMeasurements(NamedTuple):
    """All measurements of a pilot on a pair, and the grid that it is a small part of."""

    base: Base
    runs: tuple[PilotRun, ...]
    rounds: int
    """Rounds of a run of the grid; 0 for a model that has none."""
    eval_every: int

    @property
    def spent(self) -> dict[str, Spent]:
        """Cost of each part; evaluations of the runs are in their seconds alone."""
        later = self.base.midway.spent if self.base.midway else {}
        return self.base.spent | later | {f"run {run.cell}": run.spent for run in self.runs}

    @property
    def total(self) -> Spent:
        """Cost of all parts together."""
        return Spent(*(sum(column) for column in zip(*self.spent.values(), strict=True)))

    @property
    def grid_rollouts(self) -> int:
        """Rollouts of the grid's 25 runs, one seed, without evaluations."""
        return self.rounds * sum(cell.round_rollouts for cell in CELLS.values())

    @property
    def fraction(self) -> float:
        """Rollouts of the pilot over those of the grid."""
        return self.total.rollouts / self.grid_rollouts


def pilot_from(
    curves: pd.DataFrame, base: Base, cells: tuple[str, ...] = PILOT_CELLS, seed: int = 0
) -> PilotMeasurements:
    """Return a pilot made from runs that are there already.

    curves: rows as in `Results.curves`; those of other pairs, cells and seeds are ignored. Raises UserError where a run
    is missing, or there several times with different rounds.
    """
    check_cells(cells)
    usual = start_at(base.pair, "llm").design
    own = curves[(curves["pair"] == base.pair) & (curves["seed"] == seed)]
    return PilotMeasurements(
        base, tuple(_run(own[own["cell"] == cell], base, cell, seed) for cell in cells), usual.rounds, usual.eval_every
    )


def _run(rows: pd.DataFrame, base: Base, cell: str, seed: int) -> PilotRun:
    known = rows["planned_rounds"].unique()
    check(len(known) == 1, f"{base.pair}, {cell}, seed {seed}: {len(known)} runs; a pilot needs one")
    rows = rows.sort_values("round")
    evaluation = start_at(base.pair, "llm").evaluation
    train_questions = min(evaluation.train_subset or base.n_train, base.n_train)
    test_questions = min(evaluation.test_subset or base.n_test, base.n_test)
    looks = len(rows) * (evaluation.samples + evaluation.greedy)
    curve = Curve(*(rows[name].to_numpy() for name in Curve._fields))
    return PilotRun(
        cell=cell,
        seed=seed,
        planned_rounds=int(known[0]),
        curve=curve,
        train_questions=train_questions,
        test_questions=test_questions,
        responses=evaluation.samples,
        evaluated=looks * (train_questions + test_questions),
    )
