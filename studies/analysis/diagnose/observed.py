"""A run as the checks see it: one line a metric, without gaps; and statistics that noise, outliers and gaps do not
mislead."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import ndimage, stats

from rftlab.studies.readers.run import ImportedRun, KnownDesign

if TYPE_CHECKING:
    import pandas as pd


class Line(NamedTuple):
    """Values of a metric by round, all finite; rounds rise."""

    metric: str
    rounds: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    """Responses or questions behind each value; nan where the log does not say."""

    def __len__(self) -> int:
        return len(self.values)

    def last(self, part: float = 0.25, least: int = 3) -> np.ndarray:
        """The values of the last part of the rounds, at least so many."""
        return self.tail(part, least).values

    def tail(self, part: float, least: int = 3) -> "Line":
        """The last part of the rounds, at least so many values."""
        start = self.rounds[-1] - part * (self.rounds[-1] - self.rounds[0])
        first = min(int(np.searchsorted(self.rounds, start)), max(0, len(self) - least))
        return Line(self.metric, self.rounds[first:], self.values[first:], self.counts[first:])

    @property
    def where(self) -> str:
        """Rounds in words."""
        return f"rounds {self.rounds[0]} to {self.rounds[-1]}"


@dataclass(frozen=True)
class ObservedRun:
    """A run, and what its user knows beside the log."""

    name: str
    design: KnownDesign
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    """By split and metric; metrics without a name of ours by "" and the source's."""
    questions: int | None = None
    """Of an evaluation."""
    claim: float | None = None
    """Difference of Pass@1 that the user wants to see."""

    def first(self, *wanted: tuple[str, str], least: int = 1) -> Line | None:
        """The first of these lines, (split, metric), that has so many values."""
        lines = (self.lines.get(key) for key in wanted)
        return next((line for line in lines if line is not None and len(line) >= least), None)

    def progress(self, least: int = 1) -> Line | None:
        """Return the curve that judges a run: Pass@1 on the test set where it was logged, else training's reward."""
        return self.first(*PROGRESS, least=least)

    def reward(self, least: int = 1) -> Line | None:
        """The reward of training."""
        return self.first(*PROGRESS[1:], least=least)


SILENT = ("train", "zero_signal_fraction")
PROGRESS = (("test", "pass_at_1"), ("train", "pass_at_1"), ("train", "reward_mean"))


def observe(run: ImportedRun, questions: int | None = None, claim: float | None = None) -> ObservedRun:
    """The lines of a run. Where several tasks were tested, the one with most evaluations counts, then the
    one with most questions."""
    frame = run.curves[np.isfinite(run.curves["value"].to_numpy(dtype=float))]
    lines = {}
    for (split, metric), rows in frame.groupby(["split", "metric"], observed=True, sort=True):
        lines[str(split), str(metric)] = _line(str(metric), rows[rows["task"] == _task(rows)])
    return ObservedRun(run.name, run.design, lines, questions, claim)


def _task(rows: "pd.DataFrame") -> str:
    # NumPy, as this is asked for every metric of every run: a groupby of pandas was most of what diagnose costs
    tasks, task_of = np.unique(rows["task"].to_numpy(dtype=object), return_inverse=True)
    counts = rows["n"].to_numpy(dtype=float)
    sizes = [_size(counts[task_of == task]) for task in range(len(tasks))]
    return tasks[sizes.index(max(sizes))]


def _size(counts: np.ndarray) -> tuple[int, float]:
    known = counts[~np.isnan(counts)]
    return len(counts), float(np.median(known)) if len(known) else 0.0


def _line(metric: str, rows: "pd.DataFrame") -> Line:
    rows = rows.drop_duplicates("round", keep="last").sort_values("round")
    counts = rows["n"].to_numpy(dtype=float)
    return Line(metric, rows["round"].to_numpy(dtype=int), rows["value"].to_numpy(dtype=float), counts)


WIDEST = 201
"""Values under a running median."""
BLOCKS = 12
"""A trend is of so many medians of neighbours, which depend on each other less than the values do."""


class Trend(NamedTuple):
    """A line through values: Theil and Sen's slope a round, with a 95% interval; Kendall's p of no trend."""

    slope: float
    low: float
    high: float
    p: float
    spread: float
    """Standard deviation of the blocks about the line."""


def trend(rounds: np.ndarray, values: np.ndarray) -> Trend:
    """Of values (n,) at rounds (n,), n >= 3."""
    count = min(BLOCKS, max(3, len(values) // 2)) if len(values) > BLOCKS else len(values)
    at = np.array([part.mean() for part in np.array_split(rounds.astype(float), count)])
    level = np.array([np.median(part) for part in np.array_split(values, count)])
    if np.ptp(level) == 0:
        return Trend(0.0, 0.0, 0.0, 1.0, 0.0)
    slope, start, low, high = stats.theilslopes(level, at, 0.95)
    spread = float((level - start - slope * at).std(ddof=2)) if count > 2 else 0.0
    return Trend(float(slope), float(low), float(high), float(stats.kendalltau(at, level).pvalue), spread)


def noise(values: np.ndarray) -> float:
    """Standard deviation of one value about a slow curve: from second differences, which a slope leaves alone; nan
    below 4 values."""
    if len(values) < 4:
        return float("nan")
    bends = np.diff(values, 2)
    # where most values are equal, as rewards of 0 are, the median is 0 and the standard deviation is not
    return float(max(np.median(np.abs(bends)) * 1.4826, bends.std() / 2) / np.sqrt(6))


def start_level(values: np.ndarray) -> float:
    """Median of the first three values, from which a metric of training starts."""
    return float(np.median(values[:3]))


def start_length(values: np.ndarray) -> float:
    """The longest of the first three response lengths: some runs lose most of theirs within as many rounds."""
    return float(np.max(values[:3]))


def smooth(values: np.ndarray, part: float = 0.1, least: int = 3) -> np.ndarray:
    """Running median over a part of the values, at least so many; mirrored at the ends, where no value stands alone."""
    return ndimage.median_filter(values, size=window(values, part, least), mode="mirror")


def window(values: np.ndarray, part: float = 0.1, least: int = 3) -> int:
    """Values under the window of `smooth`, an odd number."""
    return min(max(least, int(len(values) * part)), WIDEST, len(values)) | 1
