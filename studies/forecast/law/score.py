"""How well the law ranks designs, and how far off its forecasts are, where both are known."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.forecast.law.curve import forecast
from rftlab.studies.forecast.law.levels import RankedPair

FEWEST = 3
"""Designs below which a rank correlation says nothing."""


class LawScore(NamedTuple):
    """Of a pair; nan where a number cannot be had. Spearman rank correlations with the Pass@1 at the end."""

    noise: NoiseRatios
    """r and phi; of several, those that rank best."""
    law: float
    at_base: float
    """The law with r and phi of the base policy."""
    plain: float
    """B / (r + 1/K): no word of baselines."""
    rollouts: float
    """Rollouts of the run, support included."""
    prompts: float
    """Prompts of the run."""
    regret: float
    """At equal rollouts a round: Pass@1 of the best design less that of the one that the law puts first."""
    held_out: int
    """Designs that were forecast."""
    error: float
    """Mean absolute error of the forecasts of designs whose runs were not known."""
    covered: float
    """Share of them within the 80% interval."""


def law_times(designs: tuple[Design, ...], noise: NoiseRatios, plain: bool = False) -> np.ndarray:
    """tau (n,) at the end of each design."""
    return np.array([design.rounds * time_per_round(design, noise, plain) for design in designs])


def rank_agreement(values: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where all values or all truths are alike, nan for fewer than three."""
    values, truth = np.asarray(values), np.asarray(truth)
    if len(truth) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(truth) == 0 else float(stats.spearmanr(values, truth).statistic)


def score_law(pair: RankedPair) -> LawScore:
    """All of it for a pair."""
    designs, ends, base = pair.designs, pair.ends, pair.base_noise
    ranks = [rank_agreement(law_times(designs, noise), ends) for noise in pair.noise]
    law = max(ranks, key=lambda value: np.nan_to_num(value, nan=-2))
    best = pair.noise[ranks.index(law)]
    return LawScore(
        best,
        law,
        rank_agreement(law_times(designs, base), ends) if base else float("nan"),
        rank_agreement(law_times(designs, best, plain=True), ends),
        rank_agreement(np.array([design.rounds * design.round_rollouts for design in designs]), ends),
        rank_agreement(np.array([design.rounds * design.batch_size for design in designs]), ends),
        regret(pair, best),
        *forecast_errors(pair),
    )


def regret(pair: RankedPair, noise: NoiseRatios) -> float:
    """Of the law's choice among designs without window or support that spend the most common number of rollouts."""
    plain = [i for i, one in enumerate(pair.designs) if one.replay_window == one.support_rollouts == 0]
    spent = np.array([pair.designs[i].round_rollouts for i in plain])
    values, counts = np.unique(spent, return_counts=True)
    if not counts.size or counts.max() < FEWEST:
        return float("nan")
    alike = [i for i, size in zip(plain, spent, strict=True) if size == values[counts.argmax()]]
    chosen = max(alike, key=lambda i: time_per_round(pair.designs[i], noise))
    return float(pair.ends[alike].max() - pair.ends[chosen])


def forecast_errors(pair: RankedPair) -> tuple[int, float, float]:
    """Designs forecast, mean absolute error, and share within the 80% interval, of those with no known run."""
    seen = {label(run.design) for run in pair.known}
    held = [i for i, one in enumerate(pair.designs) if label(one) not in seen]
    if not held or not pair.known or pair.error is None:
        return 0, float("nan"), float("nan")
    predicted = forecast(pair.base, list(pair.known), pair.error, tuple(pair.designs[i] for i in held))
    truth = pair.ends[held]
    inside = (predicted.low <= truth) & (truth <= predicted.high)
    return len(held), float(np.abs(predicted.values - truth).mean()), float(inside.mean())
