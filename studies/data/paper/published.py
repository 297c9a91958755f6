"""Level `published`: Pass@1 endpoints that the paper reports (arXiv 2601.22532, temperature 1.0, read from its
text)."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rftlab.shared.cards import preset
from rftlab.shared.design import Design


class Endpoint(NamedTuple):
    """One reported number. advantage: none (base model), reward, grpo."""

    model: str
    dataset: str
    split: str
    advantage: str
    batch_size: int
    rollouts: int
    support_rollouts: int
    replay_rollouts: int
    pass_at_1: float


_PAPER_ESTIMATORS = tuple(preset(name) for name in ("minimalist", "paper_text", "paper_code"))


@cache
def endpoints() -> tuple[Endpoint, ...]:
    """Every reported endpoint."""
    text = (files("rftlab.studies") / "assets" / "endpoints.csv").read_text(encoding="utf-8")
    numbers = ("batch_size", "rollouts", "support_rollouts", "replay_rollouts")
    return tuple(
        Endpoint(
            row["model"],
            row["dataset"],
            row["split"],
            row["advantage"],
            pass_at_1=float(row["pass_at_1"]),
            **{name: int(row[name]) for name in numbers},
        )
        for row in csv.DictReader(text.splitlines())
    )


def published(model: str, dataset: str, split: str, design: Design | None) -> float | None:
    """The reported Pass@1 of a design after training, or of the base model (design None); None where none is
    reported."""
    key = ("none", 0, 0, 0, 0)
    if design is not None:
        if design.estimator not in _PAPER_ESTIMATORS or design.epochs * design.minibatches > 1:
            return None
        advantage = "reward" if design.estimator.advantage.baseline == "none" else "grpo"
        key = (advantage, design.batch_size, design.rollouts, design.support_rollouts, design.replayed)
    for e in endpoints():
        if (e.model, e.dataset, e.split) == (model, dataset, split) and (e.advantage, *e[4:8]) == key:
            return e.pass_at_1
    return None
