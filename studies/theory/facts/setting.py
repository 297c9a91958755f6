"""A run of a fact: what it changes in the usual run of a world, (32, 8) with GRPO and no KL penalty, and what is read
from such runs."""

from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Evaluation, Sampler, Simulation
from rftlab.studies.data.paper.pairs import linear_environment

GRPO = Estimator(aggregation=Aggregation("seq_mean_token_mean"))
SPELLED: dict[str, Any] = {"style_tokens": 15.0, "exploration": 3.0}
"""Fields of an environment whose responses have style tokens that explore."""


class RunChange(NamedTuple):
    """A design, and what else is not a world's own."""

    design: Design
    rate: float = 1.0
    """The learning rate, as a multiple of the world's."""
    bf16: float = 0.0
    """The rate of bf16 weights that it stands for."""
    lag: int = 0
    measured: bool = False
    """With the measures of `rftlab.sim.round.measures`."""
    spelled: bool = False
    """In worlds with short answers: with the style tokens of SPELLED, in place of virtual lengths."""
    world: tuple[tuple[str, Any], ...] = ()
    """Fields of the environment."""

    def run(self, start: Simulation, seed: int) -> Simulation:
        """The run in the world of `start`."""
        environment = replace(linear_environment(start), **dict(self.world))
        if self.spelled and environment.verbosity > 0:
            environment = replace(environment, **SPELLED)
        rate = self.rate * start.optimizer.learning_rate
        optimizer = replace(start.optimizer, learning_rate=rate, bf16_rate=self.bf16)
        evaluation: Evaluation = "full" if self.measured else "exact"
        return Simulation(environment, self.design, optimizer, Sampler(self.lag), evaluation=evaluation, seed=seed)


def change(rounds: int = 400, evaluations: int = 4, design: dict[str, Any] | None = None, **rest: Any) -> RunChange:
    """A change with these fields of the usual design, and these of `RunChange`."""
    fields: dict[str, Any] = {"rollouts": 8, "estimator": GRPO} | (design or {})
    return RunChange(Design(rounds=rounds, eval_every=rounds // evaluations, **fields), **rest)


DATA = files("rftlab.studies") / "assets"
TEST = "test_pass_at_1"
Runs = list[pd.DataFrame]
"""Curves of one setting, a seed each; columns as of `rftlab.studies.data.runs.runner.Results`."""


def value(run: pd.DataFrame, column: str = TEST, at: int = -1) -> float:
    """An entry of a column, the last by default; 0 at the end of a run that diverged."""
    if at == -1 and run["round"].iloc[-1] < run["planned_rounds"].iloc[-1]:
        return 0.0
    return float(run[column].iloc[at])


def ends(runs: Runs, column: str = TEST) -> np.ndarray:
    """(seeds,) last values."""
    return np.array([value(run, column) for run in runs])


def end_changes(runs: Runs, column: str = TEST) -> np.ndarray:
    """(seeds,) last values less the first."""
    return ends(runs, column) - np.array([value(run, column, 0) for run in runs])


def at_rollouts(run: pd.DataFrame, rollouts: float) -> float:
    """Test Pass@1 after so many rollouts, on the line between evaluations; nan beyond the last."""
    return float(np.interp(rollouts, run["rollouts"], run[TEST], right=np.nan))


def rounds_to(run: pd.DataFrame, target: float) -> float:
    """Rounds until test Pass@1 reaches `target`, on the line between evaluations; nan where it does not."""
    scores, rounds = run[TEST].to_numpy(), run["round"].to_numpy()
    there = np.flatnonzero(scores >= target)
    if there.size == 0 or there[0] == 0:
        return float("nan")
    after = there[0]
    part = (target - scores[after - 1]) / (scores[after] - scores[after - 1])
    return float(rounds[after - 1] + part * (rounds[after] - rounds[after - 1]))


def exponent(slow: Runs, fast: Runs, factor: float, share: float = 0.5) -> np.ndarray:
    """(seeds,) x where a knob that is `factor` times as large needs 1 / factor^x of the rounds to `share` of the slower
    runs' gain; nan where either does not get there."""
    values = []
    for a, b in zip(slow, fast, strict=True):
        first = value(a, at=0)
        target = first + share * (value(a) - first)
        values.append(np.log(rounds_to(a, target) / rounds_to(b, target)) / np.log(factor))
    return np.array(values)
