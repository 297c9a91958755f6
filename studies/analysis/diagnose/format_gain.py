"""Whether what was gained is the format of answers: the tag, the box, the marker."""

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import noise
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "format only"


def format_only(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether most of the gain of Pass@1 is answers that are now read, not answers that are now right."""
    for split in ("test", "train"):
        strict, format_rate = (seen.first((split, name), least=3) for name in ("pass_at_1", "format_rate"))
        if strict is not None and format_rate is not None:
            return _by_format(strict, format_rate)
    strict, flexible = seen.first(("test", "pass_at_1"), least=3), seen.first(("", "test_flexible"), least=3)
    if strict is not None and flexible is not None:
        return _by_grader(strict, flexible)
    jump = _jump(strict) if strict is not None else None
    return jump or Unjudged(KIND, "format_rate, or Pass@1 under a strict and a flexible grader (test_flexible)")


def ends(line: Line) -> tuple[float, float]:
    """The first value, and the median of the last quarter."""
    return float(line.values[0]), float(np.median(line.last()))


def _gained(line: Line) -> bool:
    before, after = ends(line)
    spread = np.nan_to_num(noise(line.values))
    return after - before > max(limit("changed") * spread, limit("reward_still"))


def _by_format(strict: Line, format_rate: Line) -> Finding | None:
    """Pass@1 = format f x correct given format g. Of the change f1 g1 - f0 g0 the format's part is
    (f1 - f0)(g0 + g1)/2 (Shapley's value of two factors)."""
    (p0, p1), (f0, f1) = ends(strict), ends(format_rate)
    graded_without = p0 > f0 + 0.01 or p1 > f1 + 0.01
    if graded_without or not _gained(strict) or not 0 < f0 < limit("format_low") or f1 <= 0:
        return None
    share = (f1 - f0) * (p0 / f0 + p1 / f1) / 2 / (p1 - p0)
    if share < limit("format_share"):
        return None
    return _finding(
        share,
        (
            f"Pass@1 {p0:.3f} to {p1:.3f}, format rate {f0:.3f} to {f1:.3f}, {strict.where}",
            f"right given the format: {p0 / f0:.3f} to {p1 / f1:.3f}",
        ),
    )


def _by_grader(strict: Line, flexible: Line) -> Finding | None:
    (p0, p1), (q0, q1) = ends(strict), ends(flexible)
    if not _gained(strict):
        return None
    share = 1 - (q1 - q0) / (p1 - p0)
    if share < limit("format_share"):
        return None
    evidence = (f"strict Pass@1 {p0:.3f} to {p1:.3f}, flexible {q0:.3f} to {q1:.3f}, {strict.where}",)
    return _finding(share, evidence)


def _jump(strict: Line) -> Finding | None:
    """Without either: from almost nothing half of the gain in the first rounds, as when a model learns a marker."""
    (p0, p1), first = (
        ends(strict),
        strict.values[strict.rounds <= strict.rounds[0] + limit("jump") * np.ptp(strict.rounds)],
    )
    if p0 > limit("start") or not _gained(strict) or first.max() - p0 < (p1 - p0) / 2:
        return None
    at = strict.rounds[int(np.argmax(strict.values >= p0 + (p1 - p0) / 2))]
    return Finding(
        KIND,
        "note",
        "much of the gain may be the format; the log cannot tell",
        (f"Pass@1 {p0:.3f} at round {strict.rounds[0]}, half of its gain by round {at}, {p1:.3f} at the end",),
        f"{limit('start'):g} or less at the start, half of the gain in {limit('jump'):.0%} of the rounds",
        "grade the untrained model leniently or under a prompt with examples, and claim only what is beyond it",
    )


def _finding(share: float, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        KIND,
        "note",
        f"{min(share, 1.0):.0%} of the gain is the format, not more right answers",
        evidence,
        f"{limit('format_share'):.0%} of the gain or more",
        "grade the untrained model leniently or under a prompt with examples, and claim only what is beyond it",
    )
