"""Compute the seeds and test questions that a difference needs, and test whether a measured difference is real.

Two things blur a Pass@1: the seed of the training run, with standard deviation sigma, and the test questions. With k
responses to each of n questions, whose pass rates have mean p and standard deviation s, the score of a question has
variance

    v = s^2 + (p (1-p) - s^2) / k

Two runs on different questions differ by chance with variance 2 v / n. On the same questions the pass rates cancel
where the runs differ by as much on every question, which leaves 2 (p (1-p) - s^2) / (k n). That is a lower bound.

Pass@1 at the end of imported runs is read here too, and which of them repeat each other.
"""

from collections import defaultdict
from fnmatch import fnmatchcase
from math import ceil, comb, inf, nan, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.analysis.imported.groups import common_stem, repeat_key
from rftlab.studies.analysis.source import free_source, is_free
from rftlab.studies.data.results.stats import Estimate, mean, pooled_deviation, power
from rftlab.studies.readers.run import ImportedRun, KnownDesign

CHANCE, LEVEL = 0.8, 0.05
"""Chance to find a difference that is there, as in `seeds_needed`, and chance to find one that is not."""
ROUNDING = 1e-12
"""Standard error of a Pass@1 below which runs count as equal, as rounded ones may be."""
MAX_SPLITS = 200_000
"""Largest number of ways to deal the runs, or of signs of pairs, that a permutation test counts."""


class Questions(NamedTuple):
    """Statistics of the test questions."""

    p: float
    """Pass@1: the mean pass rate over questions."""
    spread: float
    """Standard deviation of pass rates over questions; 0 where it is not known, which may overstate how many questions
    runs on the same ones need."""
    responses: int
    """Number of responses to each question."""

    def variance(self, same: bool) -> float:
        """Return the variance by chance of the difference of two scores, on the same question or on two."""
        within = (self.p * (1 - self.p) - self.spread**2) / self.responses
        return 2 * (within if same else self.spread**2 + within)


def check_spread(p: float, spread: float) -> float:
    """Return the bound sqrt(p (1 - p)) that the spread of pass rates with mean p must stay below. Raises UserError for
    a mean or a spread that no distribution has."""
    check(0 < p < 1, f"p = {p:g}; allowed: more than 0, less than 1")
    most = sqrt(p * (1 - p))
    check(0 <= spread < most, f"spread = {spread:g}; allowed: 0 to below sqrt(p (1 - p)) = {most:.3g}")
    return most


def checked_questions(p: float, spread: float, responses: int) -> Questions:
    """Return the statistics of test questions. Raises UserError where no distribution of pass rates has them."""
    check_spread(p, spread)
    check_count("responses", responses)
    return Questions(p, spread, responses)


def questions_needed(questions: Questions, difference: float, same: bool) -> int:
    """Return the test questions with which a two-sided z test finds a difference of Pass@1 with chance CHANCE, if seeds
    added no noise."""
    need = stats.norm.isf(LEVEL / 2) + stats.norm.ppf(CHANCE)
    return max(1, ceil(need**2 * questions.variance(same) / difference**2))


def sigma_of_difference(sigma: float, correlation: float) -> float:
    """Return the standard deviation of the difference of two runs with one seed: sigma sqrt(2 (1 - correlation))."""
    check(-1 <= correlation < 1, f"correlation = {correlation:g}; allowed: -1 to below 1")
    return sigma * sqrt(2 * (1 - correlation))


def smallest_difference(sigma: float, seeds: int, paired: bool) -> float:
    """Return the difference that `seeds` seeds an arm find with chance CHANCE. sigma: standard deviation of a run, or
    where paired of a difference."""
    high = 1.0
    while power(seeds, high, paired, LEVEL) < CHANCE:
        high *= 2
    return sigma * brentq(lambda effect: power(seeds, effect, paired, LEVEL) - CHANCE, 0.0, high)


class Difference(NamedTuple):
    """Difference of Pass@1 between two sides: runs b less runs a."""

    value: float
    low: float
    """Lower end of the 95% interval; -inf where the noise is unknown: one run a side, or runs that are all equal."""
    high: float
    p_value: float
    """Two-sided p-value of a t test (Welch's, or of the pairs) or of a z test; nan where none can be made."""
    sigma: float
    """Pooled standard deviation of a run; where paired, that of a difference."""
    permutation: float
    """Exact p-value over all ways to deal the runs to two sides, or all signs of the pairs; nan where it was not
    counted."""
    least: float
    """Smallest p-value that the permutation test can have with so few runs."""

    @property
    def seen(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def compare_runs(a: np.ndarray, b: np.ndarray, paired: bool, sigma: float | None = None) -> Difference:
    """Test whether runs with Pass@1 a and b differ. paired: a[i] and b[i] have one seed. sigma: standard deviation of a
    run, or where paired of a difference, where it is known from elsewhere; the test is then a z test."""
    check(len(a) > 0 and len(b) > 0, f"{len(a)} runs against {len(b)}; allowed: one or more on each side")
    check(not paired or len(a) == len(b), f"{len(a)} runs against {len(b)}; allowed: as many on each side in pairs")
    value = float(b.mean() - a.mean())
    counted = (nan, nan) if min(len(a), len(b)) < 2 else _permuted(a, b, paired)
    if sigma is not None:
        check(sigma > 0, f"sigma = {sigma:g}; allowed: more than 0")
        error = sigma * sqrt(1 / len(a) if paired else 1 / len(a) + 1 / len(b))
        width = stats.norm.isf(LEVEL / 2) * error
        return Difference(
            value, value - width, value + width, float(2 * stats.norm.sf(abs(value) / error)), sigma, *counted
        )
    measured = mean(b - a) if paired else mean(b).less(mean(a))
    if not measured.error >= ROUNDING:
        return Difference(value, -inf, inf, nan, nan, *counted)
    _, low, high = measured.interval(1 - LEVEL)
    p_value = float(2 * stats.t.sf(abs(value) / measured.error, measured.freedom))
    degrees = [len(a) - 1, len(b) - 1]
    pooled = np.average([a.var(ddof=1), b.var(ddof=1)], weights=degrees)
    return Difference(value, low, high, p_value, float((b - a).std(ddof=1) if paired else sqrt(pooled)), *counted)


def _permuted(a: np.ndarray, b: np.ndarray, paired: bool) -> tuple[float, float]:
    """Return the exact two-sided p-value of the difference of means, and the smallest that there can be; nan where
    there are too many ways to count."""
    ways = 2 ** len(a) if paired else comb(len(a) + len(b), len(b))
    if ways > MAX_SPLITS:
        return nan, nan

    def distance(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return np.abs(a.mean(axis=axis) - b.mean(axis=axis)).round(12)  # so that equal distances stay equal

    kind = "samples" if paired else "independent"
    test = stats.permutation_test((a, b), distance, permutation_type=kind, n_resamples=np.inf, alternative="greater")
    return float(test.pvalue), (2 if paired or len(a) == len(b) else 1) / ways


METRIC = "pass_at_1"


def selected(root: Path, name: str) -> tuple[list[ImportedRun], str | None]:
    """Return imported runs by NAME, NAME/TASK or NAME#RUN, or a public source by public:SOURCE, and the task that is
    named. Raises UserError where there are none."""
    source = free_source(name if is_free(name) else f"imported:{name}")
    return source.runs(root), source.task


def final_score(run: ImportedRun, task: str | None = None) -> float | None:
    """Return test Pass@1 at the last evaluation on a task, the mean over tasks where none is named; None where there is
    none."""
    rows = run.curves[(run.curves["split"] == "test") & (run.curves["metric"] == METRIC)]
    rows = rows if task is None else rows[rows["task"] == task]
    if not len(rows):
        return None
    return float(rows[rows["round"] == rows["round"].max()]["value"].mean())


def tasks_told(runs: list[ImportedRun], task: str | None) -> str:
    """Return the remark where scores are means over several test sets; "" where they are not."""
    parts = (piece for run in runs for piece in run.pieces)
    tasks = sorted({piece.task for piece in parts if (piece.split, piece.metric) == ("test", METRIC)})
    several = task is None and len(tasks) > 1
    return f"Pass@1 is the mean over {', '.join(tasks)}; NAME/TASK is one of them" if several else ""


def final_scores(runs: list[ImportedRun], task: str | None = None) -> dict[str, float]:
    """Return `final_score` by the runs' names, without runs that have none. Raises UserError where no run has one."""
    scores = {run.name: score for run in runs if (score := final_score(run, task)) is not None}
    names = ", ".join(sorted({str(metric) for run in runs for metric in run.curves["metric"].unique()})[:8])
    check(bool(scores), f"no run has {METRIC} of a test split; they have: {names}")
    return scores


def chosen(scores: dict[str, float], names: tuple[str, ...]) -> dict[str, float]:
    """Return scores of runs by name, each run once; in a name * stands for any characters. Raises UserError for a name
    that is not there."""
    picked: dict[str, float] = {}
    for name in names:
        own = {name: scores[name]} if name in scores else {n: s for n, s in scores.items() if fnmatchcase(n, name)}
        check(bool(own), f"no run {name!r} with a test Pass@1; there are: {', '.join(list(scores)[:12])}")
        picked |= own
    return picked


def chosen_sides(
    scores: dict[str, float], a: tuple[str, ...], b: tuple[str, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the `chosen` scores of two sides. Raises UserError for a run that is on both."""
    sides = chosen(scores, a), chosen(scores, b)
    both = [name for name in sides[0] if name in sides[1]]
    check(not both, f"{', '.join(both[:3])} on both sides; allowed: each run on one")
    return sides


def find_repeats(runs: list[ImportedRun], task: str | None = None) -> list[tuple[str, KnownDesign, np.ndarray]]:
    """Return name, design and scores (n,) of runs that repeat each other (`ImportedRun.repeats`), where two or more
    have one.

    The name is that of the first without its number, "" where they have none in common. Designs of which B or K is not
    known are left out, because nobody knows that they are equal.
    """
    groups: dict[tuple, dict[str, float]] = defaultdict(dict)
    for run in runs:
        score, (design, mark) = final_score(run, task), repeat_key(run)
        if score is not None and design.prompts is not None and design.rollouts is not None:
            groups[design, mark][run.name] = score
    return [
        (common_stem([*own]), design, np.array([*own.values()])) for (design, _), own in groups.items() if len(own) > 1
    ]


def pooled_sigma(groups: list[np.ndarray]) -> Estimate:
    """Return the standard deviation of a run over its repeats, pooled, with its 95% interval."""
    check(bool(groups), "no runs repeat a design; allowed: two or more runs of one, or --sigma")
    sigma = pooled_deviation(groups)
    check(sigma.value >= ROUNDING, "runs that repeat a design are all equal; allowed: some that differ, or --sigma")
    return sigma
