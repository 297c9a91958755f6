"""Tables of facts: each is a row of studies/assets/facts.csv, with the simulated runs and the number that test it, and
the same number from runs of language models that come with rftlab: studies of three tasks with three seeds
(studies/assets/language.parquet), and runs with faults (planted_tiny.parquet)."""

import csv
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.surrogate import Clip
from rftlab.studies.data.paper.pairs import usual_pairs
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.results.stats import pooled_deviation
from rftlab.studies.data.runs.files import data_frame
from rftlab.studies.theory.facts import numbers
from rftlab.studies.theory.facts.numbers import DATA, GRPO, Measure, Measured, RunChange, Runs, change, ends, exponent

CELL = "32x8-paper_text"
BUDGETS = (51_200, 153_600)
"""Numbers of rollouts at which designs with 8, 16 and 32 rollouts per prompt have all been evaluated."""


def everywhere(cell: str = CELL) -> list[Runs]:
    """Return the shipped runs of a design by task: three tasks of `tiny`, and two of SmolLM2 where it has any."""
    curves = shipped_runs()
    curves = curves[curves["cell"] == cell]
    return [[run for _, run in own.groupby("seed")] for _, own in curves.groupby("pair")]


def studied(cell: str = CELL) -> Runs:
    """Return the shipped runs of a design on the tasks of `tiny`, three seeds each."""
    return [run for runs in everywhere(cell) if runs[0]["pair"].iloc[0] in usual_pairs("llm") for run in runs]


def planted(name: str) -> Runs:
    """Return the shipped runs with a planted fault of this name, one per seed, with the columns of other curves."""
    with (DATA / "planted_tiny.parquet").open("rb") as file:
        runs = data_frame(file)
    own = runs[runs["run"].str.fullmatch(rf"{name} s\d")]
    return [run.assign(planned_rounds=run["round"].max()) for _, run in own.groupby("run")]


class Fact(NamedTuple):
    """Fact, with the runs and the number that test it."""

    name: str
    statement: str
    source: str
    quantity: str
    """Measured number in words."""
    low: float
    high: float
    """Range in which the 95% interval of the number must lie to show the fact."""
    none: float
    """Value of the number without an effect; nan where there is no opposite effect."""
    settings: dict[str, RunChange]
    measure: Measure
    tiny: Callable[[], Measured] | None
    """Function that returns the number from runs of language models that come with rftlab."""

    @property
    def wanted(self) -> str:
        """Range of the number in words."""
        if np.isinf(self.low):
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" if np.isinf(self.high) else f"{self.low:g} to {self.high:g}"


def _grpo(**parts: Any) -> dict[str, Any]:
    """Return fields of a design with these parts of GRPO replaced."""
    return {"estimator": replace(GRPO, **parts)}


USUAL, FINE = change(measured=True), change(measured=True, evaluations=20)
GRID = {f"K {k}": change(8192 // k, 16, {"rollouts": k}) for k in (2, 4, 8, 16, 32, 64)}
"""Runs with the same number of rollouts for each K."""
RATES = {"usual": USUAL} | {f"rate x{rate}": change(rate=rate) for rate in (2, 4, 8, 16, 32)}
BATCHES = {f"B {b}": change(evaluations=20, design={"batch_size": b}) for b in (8, 32, 128, 512)}
PASSES = {f"{n} passes": change(200, design={"epochs": n}) for n in (2, 16)}
VARIED = {
    f"world {form} {align}": change(world=(("base_format", form), ("align", align)))
    for form in (-4.0, -2.0, 0.0, 2.0)
    for align in (0.4, 0.7)
}
"""Runs in worlds that differ in the base policy's format rate and in how well it knows the answer."""
LAGS = {
    f"{word} rate{', lag 16' if lag else ''}": change(rate=rate, lag=lag)
    for word, rate in (("high", 4.0), ("low", 0.25))
    for lag in (0, 16)
}
RAW = {
    f"raw, {kind}": change(design=_grpo(advantage=Advantage("none"), aggregation=Aggregation(kind)))
    for kind in ("seq_mean_token_mean", "token_mean")
}
RAW_1 = change(3200, 32, _grpo(advantage=Advantage("none")) | {"rollouts": 1})
DR_GRPO = change(
    measured=True, design=_grpo(advantage=Advantage("group_mean"), aggregation=Aggregation("seq_mean_token_sum"))
)
CLIPS = {
    f"clip {high}": change(measured=True, spelled=True, design=_grpo(surrogate=Clip(high=high)) | {"minibatches": 4})
    for high in (0.2, 0.28)
}
FEW = {"batch_size": 8, "rollouts": 32}
QUESTIONS = {"all questions": change(design=FEW), "8 questions": change(design=FEW, world=(("n_train", 8),))}
BF16 = {f"rate {part}": change(800, 40, rate=4 * part, bf16=1e-5 * part) for part in (0.25, 1.0)}
FP32 = {f"rate {part}": change(evaluations=20, rate=part) for part in (0.25, 1.0)}
TRIES = {"once": change(evaluations=20), "tries": change(evaluations=20, design={"sampling": Sampling(4)})}

DECIDED: dict[str, tuple[dict[str, RunChange], Measure, Callable[[], Measured] | None]] = {
    "rollouts-grow": (
        GRID,
        partial(numbers.growth, before=1 / 16, after=1),
        lambda: numbers.grown({f"K {k}": studied(f"32x{k}-paper_text") for k in (8, 16, 32)}, *BUDGETS),
    ),
    "rollouts-saturate": (GRID, numbers.saturated_growth, None),
    "reward-entropy": ({"usual": FINE}, numbers.reward_follows_entropy, None),
    "entropy-early": ({"usual": FINE}, numbers.early_fall, None),
    # with CELL the groups without a signal are those without variance
    "zero-variance": (
        {"usual": FINE},
        numbers.rise("train_zero_variance_fraction"),
        lambda: numbers.rise("zero_signal_fraction")({"usual": studied()}),
    ),
    # at 10 and 100 times the usual rate
    "rate-collapse": (
        RATES,
        numbers.ratio("rate x16", "usual"),
        lambda: ends(planted("mix97 rate 1e-3") + planted("mix97 rate 1e-2")) / ends(planted("mix97 usual")).mean(),
    ),
    "rate-lottery": (RATES, numbers.lottery, None),
    "passes-collapse": (PASSES, numbers.ratio("16 passes", "2 passes"), None),
    "raw-length": (
        {"usual": USUAL} | RAW,
        numbers.by_length,
        lambda: ends(planted("mix97 raw seq_mean_token_mean")) / ends(planted("mix97 raw token_mean")).mean(),
    ),
    "narrowing": ({"usual": USUAL}, numbers.narrowed, None),
    "wrong-lengths": ({"usual": USUAL, "Dr. GRPO": DR_GRPO}, numbers.wrong_lengths, None),
    "clip-higher": (CLIPS, numbers.kept_entropy, None),
    "lag": (LAGS, numbers.lag_harm, None),
    "seeds": ({"usual": USUAL}, numbers.spread, lambda: pooled_deviation([*ends(studied()).reshape(3, 3)])),
    "rate-fp32": (FP32, numbers.speed("rate 0.25", "rate 1.0", 4), None),
    "rate-bf16": (BF16, numbers.speed("rate 0.25", "rate 1.0", 4), None),
    "batch-helps": (
        BATCHES,
        numbers.speed("B 32", "B 512", 16),
        lambda: exponent(studied(), studied("128x8-paper_text"), 4),
    ),
    "batch-saturates": (BATCHES, numbers.saturation, None),
    "kl-costs": (
        {"usual": USUAL, "KL": change(design=_grpo(kl=KL("k3", 0.1)))},
        numbers.difference("usual", "KL"),
        None,
    ),
    "credit": (
        VARIED,
        numbers.credit,
        lambda: numbers.credit({f"world {i}": runs for i, runs in enumerate(everywhere())}),
    ),
    "rollouts-count": (
        {"usual": FINE, "raw, K 1": RAW_1},
        numbers.by_rollouts,
        lambda: numbers.by_rollouts({"usual": studied(), "raw, K 1": studied("32x1-minimalist")}),
    ),
    "few-questions": (QUESTIONS, numbers.few_questions, None),
    "dynamic-sampling": (TRIES, numbers.speed("once", "tries", np.e), None),
}
"""Runs of each fact by its name, its number from them, and the same number from language models."""


def _fact(name: str, low: str, high: str, none: str, **texts: str) -> Fact:
    settings, measure, tiny = DECIDED[name]
    said = (name, texts["statement"], texts["source"], texts["quantity"])
    return Fact(*said, float(low), float(high), float(none or "nan"), settings, measure, tiny)


_TABLE = (DATA / "facts.csv").read_text(encoding="utf-8")
FACTS = tuple(_fact(**row) for row in csv.DictReader(_TABLE.splitlines()))
