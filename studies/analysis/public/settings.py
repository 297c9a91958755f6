"""Compare the settings of public runs with how the runs ended: learning rates, rollouts K, updates and KL.

`public_settings.csv` has a row for every setting of a source: runs, how many of them failed, and the mean end over that
of the source's best setting. `python -m dev.public_settings FOLDER..` makes it from collections of public runs; its
docstring says what failed means. Runs without a baseline or with another prompt are left out.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import hypergeom

from rftlab.studies.analysis.public.store import csv_table

SETTINGS = "public_settings.csv"
GOOD = 0.9
"""Fraction of a source's best end from which a learning rate counts as good."""
LIKE = 4.0
"""Largest factor between the sizes of two models that are compared."""
RESPONSES = 256
"""Responses per step of the runs that vary the learning rate. Adam's rule says that rates grow at most with the square
root of this number (Malladi et al. 2205.10287); no public run tests it."""


class RateAxis(NamedTuple):
    """Runs of one source and one model at several learning rates."""

    source: str
    model: str
    rates: np.ndarray
    """Learning rates (n,), rising."""
    ends: np.ndarray
    """Mean end at each rate as a fraction of the best mean end (n,)."""
    failed: np.ndarray
    """Number of failed runs at each rate (n,)."""
    runs: np.ndarray

    @property
    def good(self) -> np.ndarray:
        """Rates at which most runs held and the mean end is within GOOD of the best."""
        return self.rates[(self.ends >= GOOD) & (2 * self.failed < self.runs)]

    @property
    def edge(self) -> float:
        """The lowest rate above the good ones at which most runs failed; inf where none did."""
        beyond = self.rates[(2 * self.failed > self.runs) & (self.rates > self.good.max())]
        return float(beyond.min(initial=np.inf))

    def end_at(self, rate: float) -> float:
        """Return the mean end at a rate over the best one, linear in the rate's logarithm; nan outside of the rates."""
        return float(np.interp(np.log(rate), np.log(self.rates), self.ends, np.nan, np.nan))


class RateAdvice(NamedTuple):
    """Learning rate that public runs support, with the range of good rates around it."""

    value: float
    """Lowest over sources of the highest good rate of each source."""
    good: tuple[float, float]
    """Lowest and highest good rate over all sources."""
    low: float
    high: float
    """Range of good rates, widened by Adam's rule (a guess) where a step has more or fewer responses."""
    edge: float
    """Lowest rate at which most runs of a source failed; inf where there is none."""
    axes: tuple[RateAxis, ...]


@cache
def public_settings() -> pd.DataFrame:
    """Return the shipped table of settings: source, model, billions, lora, precision, prompts, rollouts, updates, rate,
    kl, runs, failed, end and reference; nan where the source does not say."""
    return csv_table(SETTINGS).fillna({"precision": ""})


def alike_settings(billions: float | None, lora: bool, precision: str | None) -> pd.DataFrame:
    """Return the settings of models of similar size with the same use of LoRA, and of this precision as far as is
    known."""
    table = public_settings()
    known = table["lora"] == lora
    if billions:
        known &= np.abs(np.log(table["billions"] / billions)) <= np.log(LIKE) + 1e-9
    if precision:
        known &= table["precision"].isin([precision, ""])
    return table[known]


def rate_axes(table: pd.DataFrame) -> tuple[RateAxis, ...]:
    """Return the sources and models for which runs with one update per round were made at several learning rates."""
    one = table[table["updates"].fillna(1) == 1]
    axes = []
    for (source, model), rows in one.groupby(["source", "model"]):
        if rows["rate"].nunique() > 1:
            weighed = rows.assign(end=rows["end"] * rows["runs"]).groupby("rate")[["end", "failed", "runs"]].sum()
            ends = (weighed["end"] / weighed["runs"]).to_numpy()
            counts = weighed["failed"].to_numpy(), weighed["runs"].to_numpy()
            axes.append(RateAxis(str(source), str(model), weighed.index.to_numpy(float), ends / ends.max(), *counts))
    return tuple(axes)


def advise_rate(
    billions: float | None, lora: bool = False, precision: str | None = None, responses: int | None = None
) -> RateAdvice | None:
    """Return the learning rate that public runs support; None without runs at several. responses: number per step."""
    axes = rate_axes(alike_settings(billions, lora, precision))
    return _advised(axes, responses) if axes else None


def _advised(axes: tuple[RateAxis, ...], responses: int | None) -> RateAdvice:
    # Adam divides a gradient by its noise, which falls with the root of the batch
    ratio = ((responses or RESPONSES) / RESPONSES) ** 0.5
    low, high = min(one.good.min() for one in axes), max(one.good.max() for one in axes)
    value = min(one.good.max() for one in axes)
    edge = min(one.edge for one in axes)
    good = float(low), float(high)
    return RateAdvice(float(value), good, float(low * min(1, ratio)), float(high * max(1, ratio)), edge, axes)


def judge_rate(rate: float, advice: RateAdvice) -> str:
    """Return usual, low, high or dangerous: how a learning rate lies to the range of good rates of an advice."""
    if rate >= advice.edge and rate > advice.value:
        return "dangerous"
    # no source tells rates that are nearly usual from usual ones, and the highest that a log has may be decayed
    return "low" if rate < 0.8 * advice.low else "high" if rate > advice.high else "usual"


def usual_edge(table: pd.DataFrame) -> float:
    """Return the learning rate from which runs usually fail: the median, in logarithms, over the sources of a table in
    which most runs failed from some rate on. nan where there are fewer than two of them."""
    edges = [one.edge for one in rate_axes(table) if np.isfinite(one.edge)]
    return float(np.exp(np.median(np.log(edges)))) if len(edges) > 1 else float("nan")


def left_out_ends() -> np.ndarray:
    """Return the scores of the rule for learning rates, rising. Each axis is left out in turn, and its score is its end
    at the rate that the other sources advise, as a fraction of its best end."""
    axes = rate_axes(public_settings())
    rules = [_advised(tuple(one for one in axes if one.source != axis.source), None).value for axis in axes]
    return np.sort([axis.end_at(rate) for axis, rate in zip(axes, rules, strict=True)])


def describe_advice(advice: RateAdvice) -> str:
    """Return a sentence about the advised learning rate and the range of good rates."""
    (low, high), ends = advice.good, (advice.low, advice.high)
    wider = "" if ends == advice.good else f" ({ends[0]:.2g} to {ends[1]:.2g} at your batch, a guess)"
    fails = "" if np.isinf(advice.edge) else f". In one source most runs failed from {advice.edge:g} on"
    sources = f"each of {len(advice.axes)} public sources" if len(advice.axes) > 1 else "the one public source"
    return (
        f"in {sources} that varied it {advice.value:g} or a higher rate did well. The best rates of each lie between "
        f"{low:.2g} and {high:.2g}{wider}{fails}"
    )


def rate_evidence(advice: RateAdvice) -> list[str]:
    """Return lines with the numbers behind an advised learning rate: one for each source, then how far to trust it."""
    lines = []
    for axis in advice.axes:
        zipped = zip(axis.rates, axis.ends, axis.failed, axis.runs, strict=True)
        ends = ", ".join(f"{rate:g}: {end:.2f}" + (f" ({bad} of {n} failed)" if bad else "")
                         for rate, end, bad, n in zipped)  # fmt: skip
        lines.append(f"{axis.source}, {axis.model}, end over the best end by rate: {ends}")
    worth = left_out_ends()
    lines.append(
        f"trust: with each source left out in turn, the rate that the others support reached {worth[0]:.2f} to "
        f"{worth[-1]:.2f} of that source's best end (median {np.median(worth):.2f})"
    )
    lines.append("these runs had 32 prompts x 8 rollouts, where they say, 50 to 200 steps; beyond is Adam's root rule")
    return lines


def shuffled_failures(table: pd.DataFrame, most: float) -> float:
    """Return the share of all assignments of outcomes to runs, within each source, in which at least as many runs with
    more than `most` updates fail as did. table: columns source, updates, runs and failed."""
    chances, known = np.ones(1), table[table["updates"].notna()]
    for _, own in known.groupby("source"):
        many = int(own.loc[own["updates"] > most, "runs"].sum())
        dealt = hypergeom(own["runs"].sum(), own["failed"].sum(), many).pmf(np.arange(many + 1))
        chances = np.convolve(chances, dealt)
    return float(chances[known.loc[known["updates"] > most, "failed"].sum() :].sum())


def describe_shuffled(most: float) -> str:
    """Return words about how often shuffled outcomes speak as much against more than `most` updates."""
    chance = shuffled_failures(public_settings(), most)
    return f"as many fail in {chance:.0%} of shuffles of the outcomes within their sources"


def setting_lines(rows: pd.DataFrame) -> list[str]:
    """Return a line of evidence for each source and reference in rows of the table of settings."""
    lines = []
    for (source, reference), own in rows.groupby(["source", "reference"]):
        counts = f"{own['runs'].sum()} runs, {own['failed'].sum()} failed"
        rates = ", ".join(f"{rate:g}" for rate in sorted(own["rate"].unique()))
        lines.append(f"{source} ({reference}): {counts}; {own['billions'].iloc[0]:g}B, rate {rates}")
    return lines
