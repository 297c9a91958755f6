"""The agreement of levels: errors, ranks and best cells of the designs that two levels share, with intervals from
hierarchical paired resampling.

A draw stands for another experiment of the same kind. Its first stage is about seeds: all cells of a level, both splits
and the base model move together along the deviations of the seeds that ran. The random weights have the tails of
Student's t, so that a difference of two designs gets its t interval also from three seeds. The second is about
questions: every Pass@1 that was measured with sampled responses gets their binomial noise. Outcomes by question are not
kept, so questions are redrawn through this standard error; it is never too small (a seed's own deviation holds some of
it too). A published number has no seeds: its noise is the rounding and the test set's alone. Levels are drawn
independently of each other.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rftlab.shared.curve import SPLITS
from rftlab.studies.analysis.compare.levels import CurveSet, Finals
from rftlab.studies.data.results.stats import CONFIDENCE, NONE, Estimate, winners_curse

DRAWS = 4000
FEWEST = 3
"""Cells that a rank agreement needs."""


class Agreement(NamedTuple):
    """How far two levels agree on the cells that both have."""

    first: str
    second: str
    split: str
    cells: int
    error: Estimate
    """Mean absolute difference of Pass@1 after training."""
    gain_error: Estimate
    """The same of the gain over each level's base model."""
    kendall: Estimate
    """Kendall's tau-b of the order of designs; nan with fewer than FEWEST."""
    spearman: Estimate


class Best(NamedTuple):
    """The design that is ahead on test at a level."""

    level: str
    cell: str
    among: int
    observed: float
    corrected: float
    """Less what picking the best adds on average."""
    share: float
    """Part of the draws in which it is ahead."""


def resample(own: CurveSet, generator: np.random.Generator, draws: int = DRAWS) -> Finals:
    """Draws of the mean Pass@1 after training: a row per draw (an even number), columns as those of `own.finals`.

    Draws come in pairs that lie opposite each other, so their mean is the measured one.
    """
    weights = _seed_weights(own.seeds, draws // 2, generator)
    return Finals(
        *(
            _drawn(table, weights, own.responses[split], own.rounding, generator)
            for split, table in zip(SPLITS, own.finals, strict=True)
        )
    )


def _seed_weights(seeds: int, n: int, generator: np.random.Generator) -> np.ndarray:
    """Weights (n, seeds) on the seeds' deviations: normal over the root of chi-square / freedom; zero with one seed,
    which shows no spread."""
    if seeds < 2:
        return np.zeros((n, seeds))
    return generator.standard_normal((n, seeds)) / np.sqrt(generator.chisquare(seeds - 1, (n, 1)) / (seeds - 1))


def _drawn(
    table: pd.DataFrame, weights: np.ndarray, responses: int, rounding: float, generator: np.random.Generator
) -> pd.DataFrame:
    """Draws (2n, cells) around the means of `table` (seeds, cells), from weights (n, seeds)."""
    values, means = table.to_numpy(), table.mean().to_numpy()
    runs = np.isfinite(values).sum(axis=0)
    scale = np.sqrt(np.maximum(runs * (runs - 1), 1))
    moved = weights @ np.nan_to_num(values - means) / scale
    if responses:
        moved += generator.standard_normal(moved.shape) * _question_error(means, responses * np.maximum(runs, 1))
    if rounding:
        moved += generator.uniform(-rounding / 2, rounding / 2, moved.shape)
    return pd.DataFrame(means + np.concatenate([moved, -moved]), columns=table.columns)


def _question_error(means: np.ndarray, responses: np.ndarray | int) -> np.ndarray:
    inside = np.clip(means, 0.0, 1.0)
    return np.sqrt(inside * (1 - inside) / responses)


def estimate(value: float, drawn: np.ndarray, low: float, high: float) -> Estimate:
    """Basic bootstrap interval, within the statistic's bounds: the draws' quantiles mirrored at the measured value.

    Noise raises an absolute error and lowers a rank agreement, in a draw once more than in the measurement. Mirroring
    takes that off; plain quantiles would put it in twice. The interval holds the measured value.
    """
    if not np.isfinite(value):
        return NONE
    below, above = np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(
        value, float(np.clip(2 * value - above, low, value)), float(np.clip(2 * value - below, value, high))
    )


def mean_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mean absolute difference along the last axis."""
    return np.abs(a - b).mean(axis=-1)


def kendall(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Kendall's tau-b along the last axis: concordant less discordant pairs over the root of the pairs untied in
    each; nan where all are tied."""
    i, j = np.triu_indices(a.shape[-1], 1)
    s, t = np.sign(a[..., i] - a[..., j]), np.sign(b[..., i] - b[..., j])
    with np.errstate(invalid="ignore"):
        return (s * t).sum(axis=-1) / np.sqrt(np.abs(s).sum(axis=-1) * np.abs(t).sum(axis=-1))


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Correlation of the ranks along the last axis, ties at their mean rank; nan where all are tied."""
    x, y = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (a, b))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))


def common_cells(first: CurveSet, second: CurveSet) -> list[str]:
    """Designs with an endpoint at both levels, in the order of the first."""
    return [cell for cell in first.cells if cell in second.cells]


def agree(first: CurveSet, second: CurveSet, draws: dict[str, Finals]) -> list[Agreement]:
    """Agreement of two levels on train and on test; none where they share no design. `draws` by the level's name."""
    cells = common_cells(first, second)
    return [_agree(first, second, split, cells, draws) for split in SPLITS if cells]


def _agree(first: CurveSet, second: CurveSet, split: str, cells: list[str], draws: dict[str, Finals]) -> Agreement:
    means = [getattr(own.finals, split).mean().to_frame().T for own in (first, second)]
    drawn = [getattr(draws[own.name], split) for own in (first, second)]

    def measure(statistic: Callable, view: Callable, low: float, high: float) -> Estimate:
        value, values = (statistic(*(view(table, cells) for table in tables)) for tables in (means, drawn))
        return estimate(float(value[0]), values, low, high)

    ranks = [
        measure(statistic, _passes, -1.0, 1.0) if len(cells) >= FEWEST else NONE for statistic in (kendall, spearman)
    ]
    errors = measure(mean_error, _passes, 0.0, 1.0), measure(mean_error, _gains, 0.0, 1.0)
    return Agreement(first.name, second.name, split, len(cells), *errors, *ranks)


def _passes(table: pd.DataFrame, cells: list[str]) -> np.ndarray:
    return table[cells].to_numpy()


def _gains(table: pd.DataFrame, cells: list[str]) -> np.ndarray:
    return table[cells].to_numpy() - table[["base"]].to_numpy()


def standard_error(own: CurveSet, cells: list[str]) -> float:
    """Standard error of a cell's mean test Pass@1, its variance taken as common to the cells."""
    table, rounding = own.finals.test[cells], own.rounding**2 / 12
    runs = table.count()
    if (runs > 1).any():
        return float(np.sqrt((table.var() / runs)[runs > 1].mean() + rounding))
    responses = own.responses["test"]
    return (
        float(np.sqrt((_question_error(table.mean().to_numpy(), responses) ** 2).mean() + rounding))
        if responses
        else 0.0
    )


def curse(own: CurveSet, cells: list[str]) -> float:
    """By how much the best of the cells looks better on test than it is, on average
    (`rftlab.studies.data.results.stats.winners_curse`)."""
    if len(cells) < 2:
        return 0.0
    error, means = standard_error(own, cells), own.finals.test[cells].mean()
    return winners_curse(len(cells), error, float(np.sqrt(max(means.var() - error**2, 0.0))))


def best(own: CurveSet, draws: Finals, cells: list[str]) -> Best:
    """The design with the highest test Pass@1 among `cells`, corrected for having been picked."""
    means = own.finals.test[cells].mean()
    chosen = means.idxmax()
    share = float((draws.test[cells].idxmax(axis=1) == chosen).mean())
    return Best(own.name, chosen, len(cells), float(means[chosen]), float(means[chosen]) - curse(own, cells), share)
