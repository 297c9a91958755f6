"""Compute the agreement of levels: errors, rank correlations and best cells of the designs that two levels share, and
the signs of every claim of `studies/data/results/claims.py`. Intervals come from hierarchical paired resampling.

A draw stands for another experiment of the same kind. Its first stage is about seeds: all cells of a level, both splits
and the base model move together along the deviations of the seeds that ran. The random weights have the tails of
Student's t, so that a difference of two designs gets its t interval also from three seeds. The second stage is about
questions: every Pass@1 that was measured with sampled responses gets their binomial noise. Outcomes by question are not
kept, so questions are redrawn through this standard error. It is never too small, because a seed's own deviation
contains a part of it too. A published number has no seeds: its noise is the rounding and the test set's alone. Levels
are drawn independently of each other.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rftlab.shared.curve import SPLITS
from rftlab.studies.analysis.compare.levels import CurveSet, Finals
from rftlab.studies.data.results.claims import CLAIMS
from rftlab.studies.data.results.endpoints import Measured, measure_pair
from rftlab.studies.data.results.stats import CONFIDENCE, NONE, Estimate, winners_curse
from rftlab.studies.data.results.verdicts import Claim, Part

DRAWS = 4000
FEWEST = 3
"""Least number of cells for a rank correlation."""


class Agreement(NamedTuple):
    """Agreement of two levels on the cells that both have."""

    first: str
    second: str
    split: str
    cells: int
    error: Estimate
    """Mean absolute difference of Pass@1 after training."""
    gain_error: Estimate
    """Mean absolute difference of the gain in Pass@1 over each level's base model."""
    kendall: Estimate
    """Kendall's tau-b of the order of designs; nan with fewer than FEWEST designs."""
    spearman: Estimate


class Best(NamedTuple):
    """Design with the highest test Pass@1 at a level."""

    level: str
    cell: str
    among: int
    observed: float
    corrected: float
    """Observed Pass@1 minus what picking the best adds on average."""
    share: float
    """Fraction of the draws in which this design is the best; nan, as is `corrected`, where there are no draws."""


def resample(own: CurveSet, generator: np.random.Generator, draws: int = DRAWS) -> Finals:
    """Draw the mean Pass@1 after training by resampling seeds and questions. The result has a row per draw (an even
    number) and the columns of `own.finals`; it is nan where no spread is known, as for one run without questions.

    Draws come in pairs that lie opposite each other around the measured mean, so their mean is the measured one.
    """
    n, seeds = draws // 2, own.seeds
    weights = np.full((n, seeds), 0.0 if own.responses["test"] or own.rounding else np.nan)  # one seed shows no spread
    if seeds > 1:
        # a normal over the root of chi-square / freedom has the tails of Student's t
        weights = generator.standard_normal((n, seeds)) / np.sqrt(generator.chisquare(seeds - 1, (n, 1)) / (seeds - 1))
    return {
        split: _drawn(own.finals[split], weights, own.responses[split], own.rounding, generator) for split in SPLITS
    }


def _drawn(
    table: pd.DataFrame, weights: np.ndarray, responses: int, rounding: float, generator: np.random.Generator
) -> pd.DataFrame:
    """Return draws (2n, cells) around the means of `table` (seeds, cells), from weights (n, seeds)."""
    values, means = table.to_numpy(), table.mean().to_numpy()
    runs = np.isfinite(values).sum(axis=0)
    scale = np.sqrt(np.maximum(runs * (runs - 1), 1))
    moved = weights @ np.nan_to_num(values - means) / scale
    if responses:
        moved += generator.standard_normal(moved.shape) * _question_error(means, responses * np.maximum(runs, 1))
    if rounding:
        moved += generator.uniform(-rounding / 2, rounding / 2, moved.shape)
    # antithetic pairs: a draw and its mirror image average to the measured mean
    return pd.DataFrame(means + np.concatenate([moved, -moved]), columns=table.columns)


def _question_error(means: np.ndarray, responses: np.ndarray | int) -> np.ndarray:
    inside = np.clip(means, 0.0, 1.0)
    return np.sqrt(inside * (1 - inside) / responses)


def estimate(value: float, drawn: np.ndarray, low: float, high: float) -> Estimate:
    """Return a basic bootstrap interval within the statistic's bounds: the draws' quantiles mirrored at the measured
    value.

    Noise raises an absolute error and lowers a rank correlation, and a draw has it once more than the measurement.
    Mirroring subtracts this bias, which plain quantiles would add again. The interval contains the measured value.
    Without draws it is the whole range of the statistic.
    """
    if not np.isfinite(value):
        return NONE
    if not np.isfinite(drawn).any():
        return Estimate(value, low, high)
    below, above = np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(
        value, float(np.clip(2 * value - above, low, value)), float(np.clip(2 * value - below, value, high))
    )


def in_order(measured: Estimate, statistic: Callable, a: np.ndarray, b: np.ndarray) -> Estimate:
    """Return a rank correlation of two levels (cells,) with 0 in its interval, unless at most 5% of the shuffles of the
    designs agree as much. Designs of equal quality also have an order, by noise."""
    shuffled = np.random.default_rng(0).permuted(np.tile(a, (DRAWS, 1)), axis=1)
    reached = np.abs(statistic(shuffled, np.tile(b, (DRAWS, 1)))) >= abs(measured.value) - 1e-9
    if reached.mean() <= 1 - CONFIDENCE:
        return measured
    return Estimate(measured.value, min(measured.low, 0.0), max(measured.high, 0.0))


def mean_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference along the last axis."""
    return np.abs(a - b).mean(axis=-1)


def kendall(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b along the last axis: concordant minus discordant pairs, over the geometric mean of the
    numbers of untied pairs of each; nan where all values of one are tied."""
    i, j = np.triu_indices(a.shape[-1], 1)
    s, t = np.sign(a[..., i] - a[..., j]), np.sign(b[..., i] - b[..., j])
    with np.errstate(invalid="ignore"):
        return (s * t).sum(axis=-1) / np.sqrt(np.abs(s).sum(axis=-1) * np.abs(t).sum(axis=-1))


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation along the last axis, ties at their mean rank; nan where all values of one are
    tied."""
    x, y = (rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (a, b))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))


def common_cells(levels: Sequence[CurveSet]) -> list[str]:
    """Return the designs with an endpoint at all levels, in the order of the first level."""
    return [cell for cell in levels[0].cells if all(cell in own.cells for own in levels[1:])]


def agree(first: CurveSet, second: CurveSet, draws: dict[str, Finals]) -> list[Agreement]:
    """Return the agreement of two levels on train and on test, [] without common designs. draws: by the level's
    name."""
    cells = common_cells([first, second])
    return [_agree(first, second, split, cells, draws) for split in SPLITS if cells]


def _agree(first: CurveSet, second: CurveSet, split: str, cells: list[str], draws: dict[str, Finals]) -> Agreement:
    means = [own.finals[split].mean().to_frame().T for own in (first, second)]
    drawn = [draws[own.name][split] for own in (first, second)]

    def measure(statistic: Callable, low: float, gain: bool = False) -> Estimate:
        def gained(table: pd.DataFrame) -> np.ndarray:
            return table[cells].to_numpy() - (table[["base"]].to_numpy() if gain else 0.0)

        value, values = (statistic(*map(gained, tables)) for tables in (means, drawn))
        return estimate(float(value[0]), values, low, 1.0)

    both = [own.finals[split][cells].mean().to_numpy() for own in (first, second)]
    ranks = [
        in_order(measure(statistic, -1.0), statistic, *both) if len(cells) >= FEWEST else NONE
        for statistic in (kendall, spearman)
    ]
    errors = measure(mean_error, 0.0), measure(mean_error, 0.0, gain=True)
    return Agreement(first.name, second.name, split, len(cells), *errors, *ranks)


def standard_error(own: CurveSet, cells: list[str]) -> float:
    """Return the standard error of a cell's mean test Pass@1, with one variance for all cells; nan where it cannot be
    estimated."""
    table, rounding = own.finals["test"][cells], own.rounding**2 / 12
    runs = table.count()
    if (runs > 1).any():
        return float(np.sqrt((table.var() / runs)[runs > 1].mean() + rounding))
    responses = own.responses["test"]
    if not responses:
        return np.nan
    return float(np.sqrt((_question_error(table.mean().to_numpy(), responses) ** 2).mean() + rounding))


def curse(own: CurveSet, cells: list[str]) -> float:
    """Return how much better the best of the cells looks on test than it is, on average
    (`rftlab.studies.data.results.stats.winners_curse`)."""
    if len(cells) < 2:
        return 0.0
    error, means = standard_error(own, cells), own.finals["test"][cells].mean()
    return winners_curse(len(cells), error, float(np.sqrt(max(means.var() - error**2, 0.0))))


def best(own: CurveSet, draws: Finals, cells: list[str]) -> Best:
    """Return the design with the highest test Pass@1 among `cells`, corrected for having been picked."""
    means = own.finals["test"][cells].mean()
    chosen = means.idxmax()
    share = float((draws["test"][cells].dropna().idxmax(axis=1) == chosen).mean())
    return Best(own.name, chosen, len(cells), float(means[chosen]), float(means[chosen]) - curse(own, cells), share)


PLUS, MINUS, OPEN, MISSING = "+", "-", "0", ""
"""Signs of a quantity: its interval lies above 0, lies below 0, contains 0, or the level has no number."""
AGREE, DISAGREE, UNDECIDED, SINGLE = "agree", "disagree", "undecided", "not compared"


class Side(NamedTuple):
    """Quantity of a claim at one level."""

    name: str
    measured: Estimate
    sign: str
    cells: tuple[str, ...]
    """Designs that the quantity compares."""

    @property
    def missing(self) -> str:
        """Reason in words why the level has no number; "" where it has one."""
        return "" if self.sign != MISSING else "best itself" if self.cells else "not reported"


class ClaimRow(NamedTuple):
    """Quantity of a claim at all levels, in the order of the levels."""

    claim: str
    statement: str
    sides: list[Side]
    verdict: str

    @property
    def name(self) -> str:
        """Names of the compared designs; where levels differ in their best design, those of each level."""
        return " | ".join(dict.fromkeys(side.name for side in self.sides if side.name))


def compare_claims(levels: list[CurveSet], draws: dict[str, Finals]) -> list[ClaimRow]:
    """Return a row for every quantity of every claim that at least one level has. draws: by the level's name."""
    rows = []
    for claim in CLAIMS:
        sides = [_sides(claim, own, draws[own.name]) for own in levels]
        for row in zip_longest(*sides, fillvalue=_absent("")):
            if any(side.sign != MISSING for side in row):
                rows.append(ClaimRow(claim.name, claim.statement, list(row), sign_verdict([side.sign for side in row])))
    return rows


def sign_verdict(signs: list[str]) -> str:
    """Return `disagree` where two levels have opposite signs, `agree` where all levels with a number have the same
    sign, `not compared` with fewer than two numbers, else `undecided`."""
    known = [sign for sign in signs if sign != MISSING]
    if len(known) < 2:
        return SINGLE
    if {PLUS, MINUS} <= set(known):
        return DISAGREE
    return AGREE if len(set(known)) == 1 and known[0] != OPEN else UNDECIDED


def claim_verdicts(rows: list[ClaimRow]) -> dict[str, str]:
    """Return one verdict per claim: `disagree` if a part disagrees, else `undecided` if a part is, else `agree`."""
    verdicts_by_claim: dict[str, list[str]] = {}
    for row in rows:
        verdicts_by_claim.setdefault(row.claim, []).append(row.verdict)
    return {
        claim: next(verdict for verdict in (DISAGREE, UNDECIDED, AGREE, SINGLE) if verdict in verdicts)
        for claim, verdicts in verdicts_by_claim.items()
    }


def _sides(claim: Claim, own: CurveSet, draws: Finals) -> list[Side]:
    measured = measure_pair(own.curves, own.origin.place) if len(own.curves) else _ends(own.finals)
    return [_side(*parts, own) for parts in zip(claim.parts(measured), claim.parts(_ends(draws)), strict=True)]


def _ends(tables: Finals) -> Measured:
    return Measured(tuple(tables["test"].columns), tables["test"].to_numpy(float))


def _side(part: Part, drawn: Part, own: CurveSet) -> Side:
    known = set(own.finals["test"].columns)
    if not np.isfinite(part.values).any() or not set(part.among) <= known:
        return _absent("" if part.with_itself else part.name)
    if part.with_itself:
        return _absent("")._replace(cells=part.cells[:1])
    value, low, high = part.measured  # over seeds; kept for whole runs, which are not drawn, and with missing seeds
    if np.isfinite(drawn.values).any() and np.isfinite(part.values).all():
        low, high = np.nanquantile(drawn.values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    picked = np.nan_to_num(curse(own, list(part.among))) if part.among and part.values.any() else 0.0
    measured = Estimate(*(float(end - picked) for end in (value, low, high)))
    sign = PLUS if measured.low > 0 else MINUS if measured.high < 0 else OPEN
    return Side(part.name, measured, sign, part.cells)


def _absent(name: str) -> Side:
    return Side(name, NONE, MISSING, ())
