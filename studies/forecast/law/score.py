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


def taus(designs: tuple[Design, ...], noise: NoiseRatios, plain: bool = False) -> np.ndarray:
    """tau (n,) at the end of each design."""
    return np.array([design.rounds * time_per_round(design, noise, plain) for design in designs])


def rank(values: np.ndarray, ends: np.ndarray) -> float:
    """Spearman's rank correlation; nan for fewer than three designs, 0 where all values are alike."""
    if len(ends) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(ends) == 0 else float(stats.spearmanr(values, ends).statistic)


def score(found: RankedPair) -> LawScore:
    """All of it for a pair."""
    best = max(found.noise, key=lambda noise: np.nan_to_num(rank(taus(found.designs, noise), found.ends), nan=-2))
    base = found.base_noise
    spent = np.array([one.rounds * one.round_rollouts for one in found.designs])
    prompts = np.array([design.rounds * design.batch_size for design in found.designs])
    held_out, error, covered = forecast_errors(found)
    return LawScore(
        best,
        rank(taus(found.designs, best), found.ends),
        rank(taus(found.designs, base), found.ends) if base else float("nan"),
        rank(taus(found.designs, best, plain=True), found.ends),
        rank(spent, found.ends),
        rank(prompts, found.ends),
        regret(found, best),
        held_out,
        error,
        covered,
    )


def regret(found: RankedPair, noise: NoiseRatios) -> float:
    """Of the law's choice among designs without window or support that spend the most common number of rollouts."""
    plain = [i for i, one in enumerate(found.designs) if one.replay_window == one.support_rollouts == 0]
    spent = np.array([found.designs[i].batch_size * found.designs[i].rollouts for i in plain])
    values, counts = np.unique(spent, return_counts=True)
    if not counts.size or counts.max() < FEWEST:
        return float("nan")
    alike = [i for i, size in zip(plain, spent, strict=True) if size == values[counts.argmax()]]
    chosen = max(alike, key=lambda i: time_per_round(found.designs[i], noise))
    return float(found.ends[alike].max() - found.ends[chosen])


def forecast_errors(found: RankedPair) -> tuple[int, float, float]:
    """Designs forecast, mean absolute error, and share within the 80% interval, of those with no known run."""
    seen = {label(run.design) for run in found.known}
    held = [i for i, one in enumerate(found.designs) if label(one) not in seen]
    if not held or not found.known or found.error is None:
        return 0, float("nan"), float("nan")
    predicted = forecast(found.base, list(found.known), found.error, tuple(found.designs[i] for i in held))
    truth = found.ends[held]
    inside = (predicted.low <= truth) & (truth <= predicted.high)
    return len(held), float(np.abs(predicted.median - truth).mean()), float(inside.mean())
