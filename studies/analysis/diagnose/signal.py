"""Groups without a signal: all right or all wrong, so that a group's advantages are zero."""

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import trend
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "no signal"
SILENT = ("train", "zero_signal_fraction")


def no_signal(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether most groups teach nothing."""
    if seen.design.rollouts == 1:
        return Unjudged(KIND, "groups of several rollouts; this run has one rollout a prompt")
    line = seen.first(SILENT, least=3)
    if line is None:
        return _from_reward(seen)
    share = float(np.median(line.last()))
    if share < limit("silent_groups"):
        return None
    evidence = [f"{share:.2f} of the groups, {line.tail(0.25).where}", *_split(seen, share), *_outlook(line)]
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
        KIND,
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


def _outlook(line: Line) -> list[str]:
    """What the share will be after half as many rounds again, if it goes on as in the last half."""
    half = line.tail(0.5)
    if len(half) < limit("points"):
        return []
    ahead = limit("longer") * (line.rounds[-1] - line.rounds[0])
    found, now = trend(half.rounds, half.values), float(np.median(line.last()))
    low, high = (float(np.clip(now + slope * ahead, 0, 1)) for slope in (found.low, found.high))
    until = line.rounds[-1] + ahead
    return [f"{low:.2f} to {high:.2f} by round {until:.0f}, if it goes on as since round {half.rounds[0]}"]


def _from_reward(seen: ObservedRun) -> Finding | Unjudged | None:
    """Without the metric: groups of K at mean rate p are silent in p^K + (1-p)^K of cases at least, since that is
    convex in p and the mean over prompts is above it."""
    line, k = seen.first(("train", "pass_at_1"), least=3), seen.design.rollouts
    if line is None or not k:
        return Unjudged(KIND, "zero_signal_fraction, or Pass@1 of training and the rollouts a prompt")
    level = float(np.median(line.last()))
    share = level**k + (1 - level) ** k
    if share < limit("silent_groups"):
        return Unjudged(KIND, f"zero_signal_fraction; Pass@1 alone says {share:.2f} or more of the groups")
    return _finding(seen, share, [f"at least {share:.2f} of groups of {k}, because Pass@1 of training is {level:.3f}"])
