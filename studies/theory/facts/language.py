"""The same numbers from runs of language models that come with rftlab: studies of three tasks with three seeds
(studies/assets/language.parquet), and runs with faults (planted_tiny.parquet)."""

import numpy as np

from rftlab.studies.data.paper.pairs import usual_pairs
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.files import data_frame
from rftlab.studies.theory.facts import numbers
from rftlab.studies.theory.facts.setting import DATA, Runs, ends, exponent

GRPO = "32x8-paper_text"
BUDGETS = (51_200, 153_600)
"""Rollouts at which 8, 16 and 32 a prompt have all been evaluated."""


def everywhere(cell: str = GRPO) -> list[Runs]:
    """The runs of a design by task: three of `tiny`, and two of SmolLM2 where it has any."""
    curves = shipped_runs()
    curves = curves[curves["cell"] == cell]
    return [[run for _, run in own.groupby("seed")] for _, own in curves.groupby("pair")]


def studied(cell: str = GRPO) -> Runs:
    """The runs of a design on the tasks of `tiny`, three seeds each."""
    return [run for runs in everywhere(cell) if runs[0]["pair"].iloc[0] in usual_pairs("llm") for run in runs]


def planted(name: str) -> Runs:
    """The planted runs of a name, a seed each, with the columns of other curves."""
    with (DATA / "planted_tiny.parquet").open("rb") as file:
        runs = data_frame(file)
    own = runs[runs["run"].str.fullmatch(rf"{name} s\d")]
    return [run.assign(planned_rounds=run["round"].max()) for _, run in own.groupby("run")]


def rollouts_grow() -> np.ndarray:
    """(runs,) doublings of the best of 8, 16 and 32 rollouts between BUDGETS."""
    return numbers.grown({f"K {k}": studied(f"32x{k}-paper_text") for k in (8, 16, 32)}, *BUDGETS)


def silence_rises() -> numbers.Measured:
    """(runs,) rise of the share of groups without a signal, which with GRPO are those without variance."""
    return numbers.rise("zero_signal_fraction")({"usual": studied()})


def high_rate() -> np.ndarray:
    """(runs,) ends at 10 and 100 times the rate over the usual end."""
    usual = ends(planted("mix97 usual")).mean()
    return ends(planted("mix97 rate 1e-3") + planted("mix97 rate 1e-2")) / usual


def raw_length() -> np.ndarray:
    """Return (runs,) ends of the raw reward with the sequence mean over the mean end with the token mean."""
    by_token = ends(planted("mix97 raw token_mean")).mean()
    return ends(planted("mix97 raw seq_mean_token_mean")) / by_token


def seeds_differ() -> numbers.Measured:
    """Deviation between the seeds of a task."""
    return numbers.pooled_deviation([ends(runs) for runs in (studied()[i : i + 3] for i in (0, 3, 6))])


def batch_speed() -> np.ndarray:
    """(runs,) exponent of B in rounds to half of the gain, from 32 to 128."""
    return exponent(studied(), studied("128x8-paper_text"), 4)


def credit_of_pairs() -> numbers.Measured:
    """Correlation over five pairs of a model and a task."""
    return numbers.credit({f"world {i}": runs for i, runs in enumerate(everywhere())})


def raw_rollouts() -> numbers.Measured:
    """(runs,) the number of `rollouts-count`."""
    return numbers.by_rollouts({"usual": studied(), "raw, K 1": studied("32x1-minimalist")})
