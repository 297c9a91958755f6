"""A run as the checks see it: one line a metric, without gaps; what is missing is missing."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

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
        found = (self.lines.get(key) for key in wanted)
        return next((line for line in found if line is not None and len(line) >= least), None)

    def progress(self, least: int = 1) -> Line | None:
        """What a run is for: Pass@1 on the test set, else the reward of training."""
        return self.first(*PROGRESS, least=least)

    def reward(self, least: int = 1) -> Line | None:
        """The reward of training."""
        return self.first(*PROGRESS[1:], least=least)


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
