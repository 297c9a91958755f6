"""The same numbers from runs of language models that come with rftlab: studies of three tasks with three seeds
(studies/assets/language.parquet), and runs with faults (planted_tiny.parquet)."""

from functools import cache

import numpy as np
import pandas as pd

from rftlab.studies.data.paper.pairs import usual_pairs
from rftlab.studies.data.results.reference import shipped
from rftlab.studies.data.runs.files import data_frame
from rftlab.studies.theory.facts.setting import DATA, Runs, ends, exponent

GRPO = "32x8-paper_text"
BUDGETS = (51_200, 153_600)
"""Rollouts at which 8, 16 and 32 a prompt have all been evaluated."""


@cache
def _curves() -> pd.DataFrame:
    return shipped()


@cache
def _planted() -> pd.DataFrame:
    with (DATA / "planted_tiny.parquet").open("rb") as file:
        return data_frame(file)


def studied(cell: str = GRPO) -> Runs:
    """The runs of a design: three tasks of `tiny`, three seeds each."""
    return [run for run in everywhere(cell) if run["pair"].iloc[0] in usual_pairs("llm")]


def everywhere(cell: str = GRPO) -> Runs:
    """The same, and those of SmolLM2."""
    own = _curves()[_curves()["cell"] == cell]
    return [run for _, run in own.groupby(["pair", "seed"], sort=True)]


def planted(name: str) -> Runs:
    """The planted runs of a name, a seed each, with the columns of other curves."""
    own = _planted()[_planted()["run"].str.fullmatch(rf"{name} s\d")]
    return [run.assign(planned_rounds=run["round"].max()) for _, run in own.groupby("run", sort=True)]


def by_pair(runs: Runs) -> list[Runs]:
    """Runs of each task together."""
    names = dict.fromkeys(run["pair"].iloc[0] for run in runs)
    return [[run for run in runs if run["pair"].iloc[0] == name] for name in names]


def rollout_runs() -> dict[str, Runs]:
    """Runs of 8, 16 and 32 rollouts a prompt."""
    return {f"K {k}": studied(f"32x{k}-paper_text") for k in (8, 16, 32)}


def high_rate() -> np.ndarray:
    """(runs,) ends at 10 and 100 times the rate over the usual end."""
    usual = ends(planted("mix97 usual")).mean()
    return ends(planted("mix97 rate 1e-3") + planted("mix97 rate 1e-2")) / usual


def batch_speed() -> np.ndarray:
    """Exponent of B in rounds to half of the gain, from 32 to 128."""
    return exponent(studied(), studied("128x8-paper_text"), 4)
