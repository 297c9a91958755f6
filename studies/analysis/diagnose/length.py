"""Responses that grow while the reward does not."""

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import trend
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "length without reward"


def length_growing(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the last half bought tokens and no reward."""
    points = int(limit("points"))
    line = seen.first(("train", "response_length"), ("test", "response_length"), least=2 * points)
    reward = seen.reward(2 * points) or seen.progress(2 * points)
    if line is None or reward is None:
        return Unjudged(KIND, f"response_length and a reward at {2 * points} rounds or more")
    late, paid = line.tail(0.5), reward.tail(0.5)
    grown, gained = trend(late.rounds, late.values), trend(paid.rounds, paid.values)
    span, start = late.rounds[-1] - late.rounds[0], float(np.median(late.values[: max(3, len(late) // 6)]))
    relative = grown.slope * span / start if start > 0 else 0.0
    gain = gained.slope * (paid.rounds[-1] - paid.rounds[0])
    if relative < limit("length_growth") or grown.low <= 0 or gain >= limit("reward_still"):
        return None
    return Finding(
        KIND,
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
