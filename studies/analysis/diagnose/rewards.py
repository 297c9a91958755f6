"""The parts of a reward: groups without a signal, format alone, responses that grow while it does not."""

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged, limit
from rftlab.studies.analysis.diagnose.observed import SILENT, Line, ObservedRun, noise, trend

NO_SIGNAL, FORMAT_ONLY, LENGTH = "no signal", "format only", "length without reward"


def no_signal(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether most groups teach nothing."""
    if seen.design.rollouts == 1:
        return Unjudged(NO_SIGNAL, "groups of several rollouts; this run has one rollout a prompt")
    line = seen.first(SILENT, least=3)
    if line is None:
        return _from_reward(seen)
    share = float(np.median(line.last()))
    if share < limit("silent_groups"):
        return None
    evidence = [f"{share:.2f} of the groups, {line.tail(0.25).where}", *_split(seen, share)]
    return _finding(seen, share, evidence)


def _finding(seen: ObservedRun, share: float, evidence: list[str]) -> Finding:
    level = _reward(seen)
    if seen.design.prompts:
        teach = (1 - share) * seen.design.prompts
        evidence.append(f"about {teach:.1f} of {seen.design.prompts} prompts of a round teach")
    hard = level is not None and level < 0.5
    advice = (
        "easier prompts, more rollouts a prompt, or a reward with parts; prompts never solved cost and teach nothing"
        if hard
        else "harder prompts, or leave out those that are always solved (dynamic sampling)"
    )
    return Finding(
        NO_SIGNAL,
        "change",
        "most groups are all right or all wrong, so most rollouts teach nothing",
        tuple(evidence),
        f"{limit('silent_groups'):g} of the groups or more, median of the last quarter",
        advice,
    )


def _reward(seen: ObservedRun) -> float | None:
    line = seen.first(("train", "pass_at_1"))
    if line is None and seen.design.rollouts:
        mean = seen.first(("train", "reward_mean"))
        line = mean if mean is not None and mean.values.min() >= 0 and mean.values.max() <= 1 else None
    return None if line is None else float(np.median(line.last()))


def _split(seen: ObservedRun, share: float) -> list[str]:
    """Bounds on the share that is all right: a mixed group has between 1 and K - 1 right answers of K."""
    level, k = _reward(seen), seen.design.rollouts
    if level is None or not k or k < 2:
        return []
    low = max(0.0, level - (1 - share) * (k - 1) / k)
    high = min(share, level - (1 - share) / k)
    if high < low:  # the two metrics are of other batches
        return []
    return [f"{low:.2f} to {high:.2f} all right, {share - high:.2f} to {share - low:.2f} all wrong"]


def _from_reward(seen: ObservedRun) -> Finding | Unjudged | None:
    """Without the metric: groups of K at mean rate p have zero variance in p^K + (1-p)^K of cases at least, since that
    is convex in p and the mean over prompts is above it."""
    line, k = seen.first(("train", "pass_at_1"), least=3), seen.design.rollouts
    if line is None or not k:
        return Unjudged(NO_SIGNAL, "zero_signal_fraction, or Pass@1 of training and the rollouts a prompt")
    level = float(np.median(line.last()))
    share = level**k + (1 - level) ** k
    if share < limit("silent_groups"):
        return Unjudged(NO_SIGNAL, f"zero_signal_fraction; Pass@1 alone says {share:.2f} or more of the groups")
    return _finding(seen, share, [f"at least {share:.2f} of groups of {k}, because Pass@1 of training is {level:.3f}"])


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
    return jump or Unjudged(FORMAT_ONLY, "format_rate, or Pass@1 under a strict and a flexible grader (test_flexible)")


def ends(line: Line) -> tuple[float, float]:
    """The first value, and the median of the last quarter."""
    return float(line.values[0]), float(np.median(line.last()))


def _gained(line: Line) -> bool:
    before, after = ends(line)
    spread = np.nan_to_num(noise(line.values))
    return after - before > max(limit("changed") * spread, limit("reward_still"))


def _by_format(strict: Line, format_rate: Line) -> Finding | None:
    """Pass@1 = format f x correct given format g. The format's part of the change f1 g1 - f0 g0 is
    (f1 - f0)(g0 + g1)/2 (Shapley's value of two factors)."""
    (p0, p1), (f0, f1) = ends(strict), ends(format_rate)
    graded_without = p0 > f0 + 0.01 or p1 > f1 + 0.01
    if graded_without or not _gained(strict) or not 0 < f0 < limit("format_low") or f1 <= 0:
        return None
    share = (f1 - f0) * (p0 / f0 + p1 / f1) / 2 / (p1 - p0)
    if share < limit("format_share"):
        return None
    return _format_finding(
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
    return _format_finding(share, evidence)


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
        FORMAT_ONLY,
        "note",
        "much of the gain may be the format; the log does not show it",
        (f"Pass@1 {p0:.3f} at round {strict.rounds[0]}, half of its gain by round {at}, {p1:.3f} at the end",),
        f"{limit('start'):g} or less at the start, half of the gain in {limit('jump'):.0%} of the rounds",
        "grade the untrained model leniently or under a prompt with examples, and claim only what is beyond it",
    )


def _format_finding(share: float, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        FORMAT_ONLY,
        "note",
        f"{min(share, 1.0):.0%} of the gain is the format, not more right answers",
        evidence,
        f"{limit('format_share'):.0%} of the gain or more",
        "grade the untrained model leniently or under a prompt with examples, and claim only what is beyond it",
    )


def length_growing(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the last half bought tokens and no reward."""
    points = int(limit("points"))
    line = seen.first(("train", "response_length"), ("test", "response_length"), least=2 * points)
    reward = seen.reward(2 * points) or seen.progress(2 * points)
    if line is None or reward is None:
        return Unjudged(LENGTH, f"response_length and a reward at {2 * points} rounds or more")
    late, paid = line.tail(0.5), reward.tail(0.5)
    grown, gained = trend(late.rounds, late.values), trend(paid.rounds, paid.values)
    span, start = late.rounds[-1] - late.rounds[0], float(np.median(late.values[: max(3, len(late) // 6)]))
    relative = grown.slope * span / start if start > 0 else 0.0
    gain = gained.slope * (paid.rounds[-1] - paid.rounds[0])
    if relative < limit("length_growth") or grown.low <= 0 or gain >= limit("reward_still"):
        return None
    return Finding(
        LENGTH,
        "change",
        "responses grow and the reward does not",
        (
            f"responses grow by {relative:.0%} (at least {grown.low * span / start:.0%}), {late.where}",
            f"{reward.metric} changes by {gain:+.3f} over these rounds",
            *_truncated(seen),
        ),
        f"{limit('length_growth'):.0%} longer over the last half, reward up by less than {limit('reward_still'):g}",
        "a mean over all tokens or a constant divisor in place of a mean per response; a length penalty; "
        "read what the new tokens say",
    )


def _truncated(seen: ObservedRun) -> list[str]:
    line: Line | None = seen.first(("train", "truncated_fraction"), least=3)
    return [] if line is None else [f"{float(np.median(line.last())):.2f} of the responses are cut off at the end"]
