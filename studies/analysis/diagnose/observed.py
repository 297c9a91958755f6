"""Prepare a run for the checks of a diagnosis, and describe their findings.

A run has one line per metric, without gaps, and statistics that are robust to noise, outliers and gaps. Findings
compare these statistics with one table of thresholds; docs/lab/diagnose.md says which were chosen on simulated runs.
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
"""stop: rounds from here on are lost. change: another setting would do better. note: to be known when reading the
run."""


class Finding(NamedTuple):
    """Finding of a check on a run."""

    kind: str
    """Name of the check, as in `rftlab.studies.analysis.diagnose.CHECKS`."""
    severity: Severity
    what: str
    """Description of the finding in one sentence."""
    evidence: tuple[str, ...]
    """Sentences of evidence, with numbers and rounds."""
    threshold: str
    """Condition that was met, in words."""
    advice: str
    """Changes of settings to try."""


class Unjudged(NamedTuple):
    """Check that the log does not allow."""

    kind: str
    needs: str
    """Metrics that the log would need."""


class Diagnosis(NamedTuple):
    """Diagnosis of a run: findings, checks that found nothing, and checks that could not be made."""

    name: str
    findings: tuple[Finding, ...]
    """Findings, the most severe first."""
    clear: tuple[str, ...]
    """Names of the checks that found nothing."""
    unjudged: tuple[Unjudged, ...]

    @property
    def verdict(self) -> str:
        """Summary of the diagnosis in one line."""
        judged = len(self.clear) + len(self.findings)
        checks = f"{judged} of {judged + len(self.unjudged)} checks could be made"
        if not self.findings:
            return f"{self.name}: {'nothing wrong found' if judged else 'nothing can be said'}; {checks}"
        kinds = ", ".join(finding.kind for finding in self.findings)
        return f"{self.name}: {self.findings[0].severity}: {kinds}; {checks}"

    def _repr_html_(self) -> str:
        """Return a table for each finding as HTML, for notebooks."""
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
    "silent_groups": 0.8,  # share of groups without a signal, last quarter: other simulated runs stay below
    "cut_off": 0.8,  # share of responses that are cut off: too few end for groups to differ
    "solved": 0.95,  # mean reward at which answers are right as they are: judgement
    "silent_rare": 0.9,  # share of groups without a signal where nothing is solved: nearly all
    "format_low": 0.5,  # format rate of the first value, at most: above it the format was not missing
    "format_along": 0.25,  # part of the gain that came with half of the format's: judgement, below the half that is due
    "start": 0.02,  # Pass@1 of the first value that is almost nothing: below what guessing among 50 gives
    "jump": 0.1,  # part of the run that brings half of its gain: format is learnt first
    "format_share": 0.6,  # share of the gain that is format: a clear majority; less is usual early on
    "fall": 0.5,  # share of the best level that is lost: no healthy simulated run loses it
    "errors": 4.0,  # standard errors of a fall: one false alarm in 30,000 looks
    "fall_shrunk": 2.0,  # standard errors subtracted from peaks to choose one: of many, one is high by chance
    "shuffled": 0.005,  # share of shuffles of a line that may fall as far as the line itself
    "entropy_burst": 3.0,  # entropy in multiples of its start: sampling, not learning, makes it grow this much
    "entropy_gone": 0.05,  # entropy as a share of its start: 20 times fewer choices, in nats
    "length_left": 0.3,  # response length as a share of its start: the reasoning is gone, not shortened
    "alarm_long": 0.85,  # response length as a share of its limit: most responses are about to be cut
    "alarm_gradient": 2.5,  # gradient norm in multiples of its early median: chosen on public runs
    "alarm_entropy": 1.6,  # entropy in multiples of its start: chosen on public runs
    "alarm_entropy_least": 0.8,  # entropy in nats that such a multiple must reach: chosen on public runs
    "length_growth": 0.2,  # relative growth of responses, last half: a fifth more tokens a round
    "reward_still": 0.02,  # gain of reward that counts as none: the size of most claimed improvements
    "drawdown": 0.2,  # share of the best level that is lost: chosen on simulated runs, see docs/lab/diagnose.md
    "clip_fraction": 0.2,  # share of tokens that are clipped, any tenth: the step leaves its trust region
    "clip_range": 0.05,  # least half-width of a range that only large steps leave: PPO's 0.1 to 0.3, not GSPO's
    "kl": 0.1,  # KL to the policy that sampled, nats a token, any tenth: ratios of e^0.1 and more
    "spike": 20.0,  # gradient norm in multiples of its median: far more than batches differ by
    "silent_early": 0.2,  # part of the run in which a loss of variance is early: later, learning causes it
    "silent_stuck": 0.85,  # share of groups with zero variance that early: above most healthy simulated runs
    # share of the groups with a signal in round 1 that lose it that early: between 0.56 and 0.62 in simulated runs
    "silent_lost": 0.6,
    "stuck": 0.1,  # gain of the reward after that, at most: a healthy run of zero-variance groups gains more
    "stuck_missing": 0.33,  # the same as a share of the missing reward, where it is less: chosen on public runs
    "changed": 3.0,  # standard deviations that count as progress: one false alarm in 400
    "level": 0.05,  # p value of Kendall's test: the usual one
    "plateau": 0.15,  # part of the gain that the last half brought: most hits at the fewest alarms, simulated
    "mismatch_logp": 0.05,  # mean difference of log-probabilities: ratios of 1.05, which NeMo RL allows
    "mismatch_probs": 0.02,  # mean difference of probabilities: judgement, not measured
    "seen": 1.96,  # standard errors of a significant difference: 95%, both directions
}
"""Thresholds of the checks; the comments say what each number is and why it was chosen."""


def limit(name: str) -> float:
    """Return the threshold of this name."""
    return THRESHOLDS[name]


_CLIP = re.compile(r"clip (\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+(?:\.\d+)?(?:e-?\d+)?))?")
_SEQUENCE = re.compile(r"ratio of a sequence|\b(?:gspo|luspo)\b", re.IGNORECASE)


def is_narrow(loss: str) -> bool:
    """Whether a loss, in a design's words, has a clip range so narrow that tokens leave it without a large step. GSPO's
    ranges are 0.0003 and 0.0004, and in healthy runs two orders of magnitude more of its tokens are clipped (arXiv
    2507.18071, section 5)."""
    ranges = [float(text) for widths in _CLIP.findall(loss) for text in widths if text]
    return _SEQUENCE.search(loss) is not None or 0 < max(ranges, default=0.0) < limit("clip_range")


class Line(NamedTuple):
    """Finite values of a metric at rising rounds."""

    metric: str
    rounds: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    """Number of responses or questions behind each value; nan where the log does not say."""

    def __len__(self) -> int:
        return len(self.values)

    def end(self, part: float = 0.25) -> float:
        """Return the median over the last part of the rounds."""
        return float(np.median(self.tail(part).values))

    def tail(self, part: float = 0.25) -> "Line":
        """Return the line over the last part of the rounds, at least three values."""
        start = self.rounds[-1] - part * (self.rounds[-1] - self.rounds[0])
        first = min(int(np.searchsorted(self.rounds, start)), max(0, len(self) - 3))
        return Line(self.metric, self.rounds[first:], self.values[first:], self.counts[first:])

    @property
    def where(self) -> str:
        """First and last round in words."""
        return f"rounds {self.rounds[0]} to {self.rounds[-1]}"


@dataclass(frozen=True)
class ObservedRun:
    """Lines of a run, with what its user knows beside the log."""

    name: str
    design: KnownDesign
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    """Lines by split and metric. A metric that rftlab has no name for has the split "" and the source's name."""
    questions: int | None = None
    """Number of questions in an evaluation."""
    claim: float | None = None
    """Difference of Pass@1 that the user wants to detect."""

    def first(self, *wanted: tuple[str, str], least: int = 1) -> Line | None:
        """Return the first of these lines, (split, metric), with at least so many values."""
        lines = (self.lines.get(key) for key in wanted)
        return next((line for line in lines if line is not None and len(line) >= least), None)

    def enough(self, *wanted: tuple[str, str]) -> Line | None:
        """Return the first of these lines with enough values to detect a fall."""
        return self.first(*wanted, least=int(limit("few_points")))


SILENT, GRADIENT = ("train", "zero_signal_fraction"), ("train", "grad_norm")
REWARD = (("train", "pass_at_1"), ("train", "reward_mean"))
"""Keys of training's reward."""
PROGRESS = (("test", "pass_at_1"), *REWARD)
"""Keys of the curves that judge a run: Pass@1 on the test set where it was logged, else training's reward."""


def observe(run: ImportedRun, questions: int | None = None, claim: float | None = None) -> ObservedRun:
    """Return the lines of a run. Where several tasks were tested, the one with most evaluations counts, then the one
    with most questions."""
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
    """Return the lines. That of gradients loses the rounds in which no group has a signal, if enough others are left:
    gradients of such rounds are those of a penalty, or 0."""
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
    """Return the finite values of a metric on one task; where a round is logged twice, the last value."""
    numbers = [np.full(len(piece.rounds), np.nan) if piece.n is None else piece.n for piece in pieces]
    counts = np.concatenate(numbers).astype(np.float32).astype(float)
    rounds = np.concatenate([piece.rounds for piece in pieces]).astype(int)
    values = np.concatenate([piece.values for piece in pieces]).astype(float)
    kept = np.flatnonzero(np.isfinite(values))[::-1]
    at = kept[np.unique(rounds[kept], return_index=True)[1]]
    return Line(metric, rounds[at], values[at], counts[at])


SHUFFLES, PARTS, MOST_SHUFFLED = 200, 32, 1000
"""Number of shuffles of a line that its fall is compared with, number of parts between which a fall is looked for, and
largest number of shuffled values: neighbours are averaged where there are more."""
WIDEST = 201
"""Largest number of values under a running median."""
BLOCKS = 12
"""Number of medians of neighbours that a trend is fitted to; they depend on each other less than the values do."""


class Trend(NamedTuple):
    """Linear trend: Theil and Sen's slope per round with its 95% interval, and Kendall's p-value of no trend."""

    slope: float
    low: float
    high: float
    p: float


def trend(rounds: np.ndarray, values: np.ndarray) -> Trend:
    """Return the linear trend of values (n,) at rounds (n,), n >= 3."""
    count = min(BLOCKS, max(3, len(values) // 2)) if len(values) > BLOCKS else len(values)
    at = np.array([part.mean() for part in np.array_split(rounds.astype(float), count)])
    level = np.array([np.median(part) for part in np.array_split(values, count)])
    if np.ptp(level) == 0:
        return Trend(0.0, 0.0, 0.0, 1.0)
    slope, _, low, high = stats.theilslopes(level, at, 0.95)
    return Trend(float(slope), float(low), float(high), float(stats.kendalltau(at, level).pvalue))


def noise(values: np.ndarray) -> float:
    """Return the standard deviation of one value around a slow curve, from second differences, which a slope does not
    change; nan with fewer than 4 values."""
    if len(values) < 4:
        return float("nan")
    bends = np.diff(values, 2)
    # where most values are equal, as rewards of 0 are, the median is 0 and the standard deviation is not
    return float(max(np.median(np.abs(bends)) * 1.4826, bends.std() / 2) / np.sqrt(6))


def falls_in_order(values: np.ndarray, level: float) -> bool:
    """Whether the values (n,) fall further in their order than in almost all shuffles. It is needed because one of many
    windows of noise is high by chance. level: the share of shuffles that may fall as far, in at least one of two tests.
    True where there are too few values to test."""
    if len(values) < limit("points"):
        return True
    if len(values) > MOST_SHUFFLED:
        values = np.array([part.mean() for part in np.array_split(values, MOST_SHUFFLED)])
    rng = np.random.default_rng(0)
    rows = np.array([values, *(rng.permutation(values) for _ in range(SHUFFLES))])
    falls = _steepest(rows, PARTS), _steepest(rows, 1)
    return any(float(np.mean(fall[1:] >= fall[0])) <= level for fall in falls)


def _steepest(rows: np.ndarray, starts: int) -> np.ndarray:
    """Return, for each row of (n, m), the largest difference (n,) between the mean of a part and that of all that
    follows, in standard errors of values of variance 1. starts: number of places, from the row's start, at which a part
    may begin."""
    length = rows.shape[1]
    at = np.unique(np.linspace(0, length, min(length, PARTS) + 1).astype(int))
    begins, ends = np.triu_indices(len(at) - 1, 1)
    first, last = at[begins[begins < starts]], at[ends[begins < starts]]
    sums = np.concatenate([np.zeros((len(rows), 1)), rows.cumsum(axis=1)], axis=1)
    part = (sums[:, last] - sums[:, first]) / (last - first)
    rest = (sums[:, -1:] - sums[:, last]) / (length - last)
    return ((part - rest) / np.sqrt(1 / (last - first) + 1 / (length - last))).max(axis=1)


def start_level(values: np.ndarray) -> float:
    """Return the median of the first three values, the level from which a training metric starts."""
    return float(np.median(values[:3]))


def start_length(values: np.ndarray) -> float:
    """Return the largest of the first three response lengths: some runs lose most of their length as early as that."""
    return float(np.max(values[:3]))


def smooth(values: np.ndarray, part: float = 0.1) -> np.ndarray:
    """Return the running median over a part of the values, at least three; mirrored at the ends."""
    return ndimage.median_filter(values, size=window(values, part), mode="mirror")


def window(values: np.ndarray, part: float = 0.1) -> int:
    """Return the number of values under the window of `smooth`, an odd number."""
    return min(max(3, int(len(values) * part)), WIDEST, len(values)) | 1
