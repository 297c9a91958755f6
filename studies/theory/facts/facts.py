"""The table of facts: a row of data each (studies/assets/facts.csv), with the runs and the number that decide it."""

import csv
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rftlab.studies.theory.facts import language
from rftlab.studies.theory.facts.numbers import (
    Measure,
    Measured,
    by_length,
    by_rollouts,
    credit,
    deviation,
    difference,
    early_fall,
    few_questions,
    grown,
    growth,
    kept_entropy,
    lag_harm,
    lottery,
    narrowed,
    ratio,
    reward_follows_entropy,
    rise,
    saturated_growth,
    saturation,
    speed,
    spread,
    wrong_lengths,
)
from rftlab.studies.theory.facts.setting import DATA, RunChange, ends


class Fact(NamedTuple):
    """A fact, and what decides it."""

    name: str
    statement: str
    source: str
    quantity: str
    """The number that is measured, in words."""
    low: float
    high: float
    """The fact is shown where the 95% interval of the number lies between these."""
    none: float
    """The number where nothing of the kind happens; nan where there is no opposite."""
    settings: dict[str, RunChange]
    measure: Measure
    tiny: Callable[[], Measured] | None
    """The same number from runs of language models that come with rftlab."""

    @property
    def wanted(self) -> str:
        """The range in words."""
        if np.isinf(self.low):
            return f"at most {self.high:g}"
        return f"at least {self.low:g}" if np.isinf(self.high) else f"{self.low:g} to {self.high:g}"


USUAL, FINE = RunChange(measured=True), RunChange(measured=True, evaluations=20)
GRID = {f"K {k}": RunChange(rollouts=k, rounds=8192 // k, evaluations=16) for k in (2, 4, 8, 16, 32, 64)}
"""As many rollouts for each K."""
RATES = {"usual": USUAL} | {f"rate x{rate}": RunChange(rate=rate) for rate in (2, 4, 8, 16, 32)}
BATCHES = {f"B {b}": RunChange(batch_size=b, evaluations=20) for b in (8, 32, 128, 512)}
VARIED = {
    f"world {form} {align}": RunChange(world=(("base_format", form), ("align", align)))
    for form in (-4.0, -2.0, 0.0, 2.0)
    for align in (0.4, 0.7)
}
"""Worlds that differ in how often the base policy has the format, and in how well it knows the answer."""
LAGS = {
    f"{word} rate{', lag 16' if lag else ''}": RunChange(rate=rate, lag=lag)
    for word, rate in (("high", 4.0), ("low", 0.25))
    for lag in (0, 16)
}
RAW = {f"raw, {kind}": RunChange(raw=True, aggregation=kind) for kind in ("seq_mean_token_mean", "token_mean")}
QUESTIONS = {
    "all questions": RunChange(batch_size=8, rollouts=32),
    "8 questions": RunChange(batch_size=8, rollouts=32, world=(("n_train", 8),)),
}
BF16 = {f"rate {part}": RunChange(rate=4 * part, bf16=1e-5 * part, rounds=800, evaluations=40) for part in (0.25, 1.0)}
FP32 = {f"rate {part}": RunChange(rate=part, evaluations=20) for part in (0.25, 1.0)}

DECIDED: dict[str, tuple[dict[str, RunChange], Measure, Callable[[], Measured] | None]] = {
    "rollouts-grow": (GRID, growth(1 / 16, 1), lambda: grown(language.rollout_runs(), *language.BUDGETS)),
    "rollouts-saturate": (GRID, saturated_growth, None),
    "reward-entropy": ({"usual": FINE}, reward_follows_entropy, None),
    "entropy-early": ({"usual": FINE}, early_fall, None),
    "zero-variance": (
        {"usual": FINE},
        rise("train_zero_variance_fraction"),
        lambda: rise("zero_signal_fraction")({"usual": language.studied()}),
    ),
    "rate-collapse": (RATES, ratio("rate x16", "usual"), language.high_rate),
    "rate-lottery": (RATES, lottery, None),
    "passes-collapse": (
        {f"{n} passes": RunChange(epochs=n, rounds=200) for n in (2, 16)},
        ratio("16 passes", "2 passes"),
        None,
    ),
    "raw-length": ({"usual": USUAL} | RAW, by_length, None),
    "narrowing": ({"usual": USUAL}, narrowed, None),
    "wrong-lengths": (
        {"usual": USUAL, "Dr. GRPO": USUAL._replace(centred=True, aggregation="seq_mean_token_sum")},
        wrong_lengths,
        None,
    ),
    "clip-higher": (
        {f"clip {high}": USUAL._replace(minibatches=4, high=high, spelled=True) for high in (0.2, 0.28)},
        kept_entropy,
        None,
    ),
    "lag": (LAGS, lag_harm, None),
    "seeds": (
        {"usual": USUAL},
        spread,
        lambda: deviation([ends(runs) for runs in language.by_pair(language.studied())]),
    ),
    "rate-fp32": (FP32, speed("rate 0.25", "rate 1.0", 4), None),
    "rate-bf16": (BF16, speed("rate 0.25", "rate 1.0", 4), None),
    "batch-helps": (BATCHES, speed("B 32", "B 512", 16), language.batch_speed),
    "batch-saturates": (BATCHES, saturation, None),
    "kl-costs": ({"usual": USUAL, "KL": RunChange(kl=0.1)}, difference("usual", "KL"), None),
    "credit": (
        VARIED,
        credit,
        lambda: credit({f"world {i}": runs for i, runs in enumerate(language.by_pair(language.everywhere()))}),
    ),
    "rollouts-count": (
        {"usual": FINE, "raw, K 1": RunChange(raw=True, rollouts=1, rounds=3200, evaluations=32)},
        by_rollouts,
        lambda: by_rollouts({"usual": language.studied(), "raw, K 1": language.studied("32x1-minimalist")}),
    ),
    "few-questions": (QUESTIONS, few_questions, None),
    "dynamic-sampling": (
        {"once": RunChange(evaluations=20), "tries": RunChange(tries=4, evaluations=20)},
        speed("once", "tries", np.e),
        None,
    ),
}
"""By the name of a fact: its runs, its number, and the same of language models."""


def _read() -> tuple[Fact, ...]:
    rows = csv.DictReader((DATA / "facts.csv").read_text(encoding="utf-8").splitlines())
    return tuple(_fact(**row) for row in rows)


def _fact(name: str, low: str, high: str, none: str, **texts: str) -> Fact:
    settings, measure, tiny = DECIDED[name]
    said = (name, texts["statement"], texts["source"], texts["quantity"])
    return Fact(*said, float(low), float(high), float(none or "nan"), settings, measure, tiny)


FACTS = _read()
