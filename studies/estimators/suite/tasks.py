"""Read the tasks of the suite from their table, and build the runs of an estimator on a task.

The meaning of a score depends on every number of `studies/assets/suite_tasks.csv`, and on the anchors in
`suite_anchors.csv`, which `python -m dev.suite anchors` makes. A change to a task needs a new `VERSION`, whose results
never mix with those of other versions.
"""

import csv
import json
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

from rftlab.shared.cards.card import Card
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.sim.config import Evaluation, Linear, Optimizer, Sampler, Simulation
from rftlab.studies.data.runs.points import RunSpec

VERSION = 2
ASSETS = files("rftlab.studies") / "assets"
RATES = (0.5, 1.0, 2.0)
"""Learning rates on every task, as multiples of the task's own; the middle one is the fixed rate."""
FIXED = 1.0
PARTS = 20
"""Number of equal parts of the grid of rollouts from 0 to the budget over which a cell is the mean."""
COMMON: dict[str, Any] = {"n_train": 2048, "n_test": 1024, "n_features": 128, "kappa": 3.0, "align": 0.6}
COMMON["base_format"] = 1.5
DESIGN: dict[str, Any] = {"batch_size": 32, "rollouts": 8, "rounds": 400}
PASS_AT_1 = "test_pass_at_1"


class SuiteTask(NamedTuple):
    """Task of the suite: its changes to COMMON and DESIGN, and the meaning of its score."""

    name: str
    isolates: str
    rate: float
    """Learning rate of Adam: the best of a coarse grid for RLOO."""
    seeds: int
    lag: int
    every: int
    """Number of rounds for which one policy of the sampler fills a queue."""
    metric: str
    environment: dict[str, Any]
    design: dict[str, Any]
    real: str
    """Fact about real runs that the task stands for."""
    silent: str
    """Conclusion that a score does not allow."""


def _read() -> dict[str, SuiteTask]:
    made = {name: kind if kind in (str, int, float) else json.loads for name, kind in SuiteTask.__annotations__.items()}
    with (ASSETS / "suite_tasks.csv").open() as file:
        rows = [{name: made[name](text) for name, text in row.items()} for row in csv.DictReader(file)]
    return {row["name"]: SuiteTask(**row) for row in rows}


TASKS = _read()


def task_pair(task: SuiteTask) -> str:
    """Return the name of a task of this version in the store."""
    return f"suite{VERSION}-{task.name}"


def task_design(task: SuiteTask, card: Card) -> Design:
    """Return a card's design on a task: the task's contexts, rollouts and rounds, and the card's own sampling where a
    group allows it. Raises UserError where the card cannot run there."""
    check(card.estimator is not None, f"{card.name} cannot run here. {card.note}")
    assert card.estimator is not None
    size = {**DESIGN, **task.design}
    k, every = size["rollouts"], size["rounds"] // PARTS
    sampling = replace(
        card.sampling,
        keep=min(card.sampling.keep, k // 2),
        tries=card.sampling.tries if k > 1 else 1,
    )
    window = max(card.replay_window, k) if card.replay_window else 0
    return Design(**size, replay_window=window, estimator=card.estimator, sampling=sampling, eval_every=every)


def task_point(task: SuiteTask, design: Design, factor: float, seed: int) -> RunSpec:
    """Return the run of a task at a multiple of its learning rate."""
    environment = Linear(**{**COMMON, **task.environment})
    evaluation: Evaluation = "exact" if task.metric == PASS_AT_1 else "full"
    optimizer = Optimizer(learning_rate=factor * task.rate)
    sampler = Sampler(task.lag, every=task.every)
    return RunSpec(
        task_pair(task), Simulation(environment, design, optimizer, sampler, evaluation=evaluation, seed=seed)
    )
