"""A run as the checks see it, and what they say of it.

A run has one line a metric, without gaps, and statistics that noise, outliers and gaps do not mislead. Findings compare
them with the one table of thresholds; docs/lab/diagnose.md says which were chosen on simulated runs.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from scipy import ndimage, stats

from rftlab.shared.plumbing.notebook import table
from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries

Severity = Literal["stop", "change", "note"]
ORDER: tuple[Severity, ...] = ("stop", "change", "note")
"""stop: rounds from here on are lost. change: another setting would do better. note: what to know when reading it."""


class Finding(NamedTuple):
    """Something that is going on in a run."""

    kind: str
    """The check's name, as in `rftlab.studies.analysis.diagnose.CHECKS`."""
    severity: Severity
    what: str
    """One sentence."""
    evidence: tuple[str, ...]
    """Numbers and rounds, a sentence each."""
    threshold: str
    """The condition that was met, in words."""
    advice: str
    """Changes to try."""


class Unjudged(NamedTuple):
    """A check that the log does not allow."""

    kind: str
    needs: str
    """The metrics that the log would need."""


class Diagnosis(NamedTuple):
    """All that was found in a run."""

    name: str
    findings: tuple[Finding, ...]
    """The gravest first."""
    clear: tuple[str, ...]
    """Checks that found nothing."""
    unjudged: tuple[Unjudged, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        judged = len(self.clear) + len(self.findings)
        checks = f"{judged} of {judged + len(self.unjudged)} checks could be made"
        if not self.findings:
            return f"{self.name}: {'nothing wrong found' if judged else 'nothing can be said'}; {checks}"
        kinds = ", ".join(finding.kind for finding in self.findings)
        return f"{self.name}: {self.findings[0].severity}: {kinds}; {checks}"

    def _repr_html_(self) -> str:
        """A table for each finding, for notebooks."""
        tables = [
            table(f"{one.severity}: {one.kind}: {one.what}",
                  [*(("seen", seen) for seen in one.evidence), ("threshold", one.threshold), ("try", one.advice)])
            for one in self.findings
        ]  # fmt: skip
        rest = [("nothing found", ", ".join(self.clear)), *((f"{row.kind} needs", row.needs) for row in self.unjudged)]
        return "".join(tables) + table(self.verdict, rest)


THRESHOLDS = {
    "points": 12,  # values that a trend needs: with ten, Kendall's test does not separate a step from noise
    "few_points": 8,  # values that a fall needs: three at the top, three at the end, and some between
    "silent_groups": 0.8,  # share of groups without a signal, last quarter: simulated: others stay below
    "cut_off": 0.8,  # share of responses that are cut off: too few end for groups to differ
    "solved": 0.95,  # mean reward at which answers are right as they are: judgement
    "silent_rare": 0.9,  # share of groups without a signal where nothing is solved: nearly all
    "format_low": 0.5,  # format rate of the first value: else format was not what was missing
    "format_along": 0.25,  # part of the gain that came with half of the format's: judgement, below the half that is due
    "start": 0.02,  # Pass@1 of the first value that is almost nothing: below what guessing among 50 gives
    "jump": 0.1,  # part of the run that brings half of its gain: format is learnt first
    "format_share": 0.6,  # share of the gain that is format: a clear majority; less is usual early on
    "fall": 0.5,  # share of the best level that is lost: simulated: no healthy run loses it
    "errors": 4.0,  # standard errors of a fall: one false alarm in 30,000 looks
    "fall_shrunk": 2.0,  # standard errors off a peak, to choose one: of many one is high by chance
    "shuffled": 0.005,  # share of shuffles of a line that may fall as far as one that collapsed
    "entropy_burst": 3.0,  # entropy in multiples of its start: sampling, not learning, makes it grow so
    "entropy_gone": 0.05,  # entropy as a share of its start: 20 times fewer choices, in nats
    "length_left": 0.3,  # response length as a share of its start: reasoning that is gone, not tightened
    "alarm_long": 0.85,  # response length as a share of its limit: most responses are about to be cut
    "alarm_gradient": 2.5,  # gradient norm in multiples of its early median: public runs
    "alarm_entropy": 1.6,  # entropy in multiples of its start: public runs
    "alarm_entropy_least": 0.8,  # entropy that such a multiple must reach, in nats: public runs
    "length_growth": 0.2,  # relative growth of responses, last half: a fifth more tokens a round
    "reward_still": 0.02,  # gain of reward that counts as none: the size of most claimed improvements
    "drawdown": 0.2,  # share of the best level that is lost: simulated: see docs/lab/diagnose.md
    "clip_fraction": 0.2,  # share of tokens that are clipped, any tenth: the step leaves its trust region
    "clip_range": 0.05,  # half-width of a range that a large step leaves: PPO's 0.1 to 0.3; not GSPO's
    "kl": 0.1,  # KL to the policy that sampled, nats a token, any tenth: ratios of e^0.1 and more
    "spike": 20.0,  # gradient norm in multiples of its median: far outside of what batches differ by
    "silent_early": 0.2,  # part of the run by which groups may lose their variance: later it is what was learnt
    "silent_stuck": 0.85,  # share of groups that have zero variance so early: simulated: above most that are healthy
    # share of the groups with a signal in round 1 that have zero variance so early: simulated: between 0.56 and 0.62
    "silent_lost": 0.6,
    "stuck": 0.1,  # what the reward still gains after that: a healthy run of zero-variance groups goes on
    "stuck_missing": 0.33,  # the same as a share of what was missing, where less than that was: public runs
    "changed": 3.0,  # standard deviations that count as progress: one false alarm in 400
    "level": 0.05,  # p value of Kendall's test: usual
    "plateau": 0.15,  # part of the gain that the last half brought: simulated: most hits at the fewest alarms
    "mismatch_logp": 0.05,  # mean difference of log-probabilities: ratios of 1.05, which NeMo RL allows
    "mismatch_probs": 0.02,  # mean difference of probabilities: judgement, not measured
    "seen": 1.96,  # standard errors of a difference that is seen: 95%, both directions
}
"""Numbers that checks compare with, each with what it is and why it is that."""


def limit(name: str) -> float:
    """The number of a threshold."""
    return THRESHOLDS[name]


_CLIP = re.compile(r"clip (\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+(?:\.\d+)?(?:e-?\d+)?))?")
_SEQUENCE = re.compile(r"ratio of a sequence|\b(?:gspo|luspo)\b", re.IGNORECASE)


def is_narrow(loss: str) -> bool:
    """Whether a loss, in a design's words, clips what no large step is needed to leave: GSPO's ranges are 0.0003 and
    0.0004, and in healthy runs two orders of magnitude more of its tokens are clipped (arXiv 2507.18071, section
    5)."""
    ranges = [float(text) for widths in _CLIP.findall(loss) for text in widths if text]
    return _SEQUENCE.search(loss) is not None or 0 < max(ranges, default=0.0) < limit("clip_range")


class Line(NamedTuple):
    """Values of a metric by round, all finite; rounds rise."""

    metric: str
    rounds: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    """Responses or questions behind each value; nan where the log does not say."""

    def __len__(self) -> int:
        return len(self.values)

    def end(self, part: float = 0.25) -> float:
        """The median of the last part of the rounds."""
        return float(np.median(self.tail(part).values))

    def tail(self, part: float = 0.25) -> "Line":
        """The last part of the rounds, at least three values."""
        start = self.rounds[-1] - part * (self.rounds[-1] - self.rounds[0])
        first = min(int(np.searchsorted(self.rounds, start)), max(0, len(self) - 3))
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

    def enough(self, *wanted: tuple[str, str]) -> Line | None:
        """The first of these lines that has the values that a fall needs."""
        return self.first(*wanted, least=int(limit("few_points")))


SILENT, GRADIENT = ("train", "zero_signal_fraction"), ("train", "grad_norm")
REWARD = (("train", "pass_at_1"), ("train", "reward_mean"))
"""The reward of training."""
PROGRESS = (("test", "pass_at_1"), *REWARD)
"""The curves that judge a run: Pass@1 on the test set where it was logged, else training's reward."""


def observe(run: ImportedRun, questions: int | None = None, claim: float | None = None) -> ObservedRun:
    """The lines of a run. Where several tasks were tested, the one with most evaluations counts, then the
    one with most questions."""
    parts: dict[tuple[str, str], dict[str, list[MetricSeries]]] = {}
    for piece in run.pieces:
        parts.setdefault((piece.split, piece.metric), {}).setdefault(piece.task, []).append(piece)
    lines = {}
    for key, by_task in sorted(parts.items()):
        line = max((_line(key[1], pieces) for _, pieces in sorted(by_task.items())), key=_size)
        if len(line):
            lines[key] = line
    return ObservedRun(run.name, run.design, without_idle(lines), questions, claim)


def without_idle(lines: dict[tuple[str, str], Line]) -> dict[tuple[str, str], Line]:
    """The lines, that of gradients without rounds in which no group has a signal, if enough others are left: such
    gradients are a penalty's, or 0."""
    silent, line = lines.get(SILENT), lines.get(GRADIENT)
    if silent is None or line is None:
        return lines
    kept = ~np.isin(line.rounds, silent.rounds[silent.values >= 1])
    if kept.sum() < limit("points"):
        return lines
    return lines | {GRADIENT: Line(line.metric, line.rounds[kept], line.values[kept], line.counts[kept])}


def _size(line: Line) -> tuple[int, float]:
    known = line.counts[~np.isnan(line.counts)]
    return len(line), float(np.median(known)) if len(known) else 0.0


def _line(metric: str, pieces: list[MetricSeries]) -> Line:
    """The finite values of a metric on one task; of a round that is there twice the last."""
    numbers = [np.full(len(piece.rounds), np.nan) if piece.n is None else piece.n for piece in pieces]
    counts = np.concatenate(numbers).astype(np.float32).astype(float)
    rounds = np.concatenate([piece.rounds for piece in pieces]).astype(int)
    values = np.concatenate([piece.values for piece in pieces]).astype(float)
    kept = np.flatnonzero(np.isfinite(values))[::-1]
    at = kept[np.unique(rounds[kept], return_index=True)[1]]
    return Line(metric, rounds[at], values[at], counts[at])


SHUFFLES, PARTS, MOST_SHUFFLED = 200, 32, 1000
"""Shuffles of a line that its fall is compared with, the parts between which a fall is looked for, and the values that
are shuffled: means of neighbours where there are more."""
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


def trend(rounds: np.ndarray, values: np.ndarray) -> Trend:
    """Of values (n,) at rounds (n,), n >= 3."""
    count = min(BLOCKS, max(3, len(values) // 2)) if len(values) > BLOCKS else len(values)
    at = np.array([part.mean() for part in np.array_split(rounds.astype(float), count)])
    level = np.array([np.median(part) for part in np.array_split(values, count)])
    if np.ptp(level) == 0:
        return Trend(0.0, 0.0, 0.0, 1.0)
    slope, _, low, high = stats.theilslopes(level, at, 0.95)
    return Trend(float(slope), float(low), float(high), float(stats.kendalltau(at, level).pvalue))


def noise(values: np.ndarray) -> float:
    """Standard deviation of one value about a slow curve: from second differences, which a slope leaves alone; nan
    below 4 values."""
    if len(values) < 4:
        return float("nan")
    bends = np.diff(values, 2)
    # where most values are equal, as rewards of 0 are, the median is 0 and the standard deviation is not
    return float(max(np.median(np.abs(bends)) * 1.4826, bends.std() / 2) / np.sqrt(6))


def falls_in_order(values: np.ndarray, level: float) -> bool:
    """Whether the order of the values (n,) makes a fall, as few shuffles of them do: among many windows of noise one is
    high. level: the share of shuffles that may fall as far, by each of two tests. True where there are too few values
    to tell."""
    if len(values) < limit("points"):
        return True
    if len(values) > MOST_SHUFFLED:
        values = np.array([part.mean() for part in np.array_split(values, MOST_SHUFFLED)])
    rng = np.random.default_rng(0)
    rows = np.array([values, *(rng.permutation(values) for _ in range(SHUFFLES))])
    falls = _steepest(rows, PARTS), _steepest(rows, 1)
    return any(float(np.mean(fall[1:] >= fall[0])) <= level for fall in falls)


def _steepest(rows: np.ndarray, starts: int) -> np.ndarray:
    """For each row (n, m) the largest difference (n,) of the mean of a part and of all that follows it, in standard
    errors of values of variance 1. starts: places at which a part may begin, of which the first is the row's."""
    length = rows.shape[1]
    at = np.unique(np.linspace(0, length, min(length, PARTS) + 1).astype(int))
    begins, ends = np.triu_indices(len(at) - 1, 1)
    first, last = at[begins[begins < starts]], at[ends[begins < starts]]
    sums = np.concatenate([np.zeros((len(rows), 1)), rows.cumsum(axis=1)], axis=1)
    part = (sums[:, last] - sums[:, first]) / (last - first)
    rest = (sums[:, -1:] - sums[:, last]) / (length - last)
    return ((part - rest) / np.sqrt(1 / (last - first) + 1 / (length - last))).max(axis=1)


def start_level(values: np.ndarray) -> float:
    """Median of the first three values, from which a metric of training starts."""
    return float(np.median(values[:3]))


def start_length(values: np.ndarray) -> float:
    """The longest of the first three response lengths: some runs lose most of theirs within as many rounds."""
    return float(np.max(values[:3]))


def smooth(values: np.ndarray, part: float = 0.1) -> np.ndarray:
    """Running median over a part of the values, at least three; mirrored at the ends, where no value stands alone."""
    return ndimage.median_filter(values, size=window(values, part), mode="mirror")


def window(values: np.ndarray, part: float = 0.1) -> int:
    """Values under the window of `smooth`, an odd number."""
    return min(max(3, int(len(values) * part)), WIDEST, len(values)) | 1
