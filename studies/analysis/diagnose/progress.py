"""How much a run still learns, against how much its numbers jump."""

from typing import NamedTuple

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.levels import fall_of
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun
from rftlab.studies.analysis.diagnose.outlook import Outlook, outlook
from rftlab.studies.analysis.diagnose.robust import noise, trend
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND, PLATEAU_KIND = "noise above progress", "plateau"


class Longer(NamedTuple):
    """What half as many rounds again would bring, with a 95% interval."""

    rounds: float
    gain: float
    low: float
    high: float
    outlook: Outlook


def _line(seen: ObservedRun) -> Line | None:
    """Where progress is measured: Pass@1 on the test set, or what training logs where that has too few points."""
    return seen.progress(2 * int(limit("points"))) or seen.progress(int(limit("points")))


def gain_of(line: Line) -> tuple[float, float]:
    """Last quarter less the first value (the first three of a training metric), and the deviation of one value."""
    start = float(line.values[0]) if line.rounds[0] == 0 else float(np.median(line.values[:3]))
    return float(np.median(line.last())) - start, noise(line.values)


def noise_above_progress(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether no progress can be told from noise over the whole run."""
    line = _line(seen)
    if line is None:
        return Unjudged(KIND, f"Pass@1 or reward at {limit('points'):g} rounds or more")
    fall = fall_of(line)
    if fall and fall.share >= limit("drawdown"):
        return None
    gain, spread = gain_of(line)
    found, span = trend(line.rounds, line.values), line.rounds[-1] - line.rounds[0]
    if found.p <= limit("level") or abs(gain) > limit("changed") * spread:
        return None
    return Finding(
        KIND,
        "change",
        "no progress can be told from noise",
        (
            f"{line.metric} changes by {gain:+.3f}, {line.where}; one value varies by {spread:.3f}",
            f"trend over these rounds {found.low * span:+.3f} to {found.high * span:+.3f} (95%), p = {found.p:.2g}",
        ),
        f"p above {limit('level'):g}, change below {limit('changed'):g} deviations",
        "more prompts a round and a larger evaluation, to see it; a higher learning rate or easier prompts, to learn",
    )


def longer(line: Line) -> Longer | None:
    """What a longer run is worth; None where numbers are too large, or all at one round."""
    part = limit("longer")
    found = outlook(line.rounds, line.values, part) if line.rounds[-1] > line.rounds[0] else None
    if found is None:
        return None
    low, high = found.interval()
    if line.metric == "pass_at_1":  # between 0 and 1
        now = float(np.clip(line.last().mean(), 0, 1))
        low, high = (float(np.clip(end, -now, 1 - now)) for end in (low, high))
    return Longer(part * (line.rounds[-1] - line.rounds[0]), found.mean, low, high, found)


def plateau(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the run has gained and gains no more."""
    line = _line(seen)
    if line is None:
        return Unjudged(PLATEAU_KIND, f"Pass@1 or reward at {limit('points'):g} rounds or more")
    gain, spread = gain_of(line)
    if not gain > max(limit("changed") * spread, limit("reward_still")):
        return None
    more = longer(line)
    if more is None:
        return None
    most = limit("plateau") * gain
    chance = more.outlook.chance(most)
    worth = f"{more.rounds:.0f} more rounds are worth {more.low:+.3f} to {more.high:+.3f} (95%)"
    if chance < limit("plateau_sure"):
        return None if chance < 0.5 else Unjudged(PLATEAU_KIND, f"less noise or more rounds: {worth}")
    return Finding(
        PLATEAU_KIND,
        "note",
        "the run gains no more",
        (
            f"{line.metric} gained {gain:+.3f} by round {line.rounds[-1]}",
            f"{worth}; at most {most:.3f} with probability {chance:.2f}",
        ),
        f"at most {limit('plateau'):g} of the gain so far, with probability {limit('plateau_sure'):g}",
        "stop here, or change something: new prompts, more rollouts a prompt, a lower learning rate",
    )
