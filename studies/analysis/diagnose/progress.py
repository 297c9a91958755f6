"""How much a run still learns, against how much its numbers jump, and what its evaluation can see."""

from typing import NamedTuple

import numpy as np

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged, limit
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun, noise, trend
from rftlab.studies.analysis.diagnose.outlook import Outlook, outlook
from rftlab.studies.analysis.diagnose.stability import fall_from_best

NOISE, PLATEAU, EVALUATION = "noise above progress", "plateau", "evaluation too small"


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


def gained(line: Line) -> tuple[float, float]:
    """Last quarter less the first value (the first three of a training metric), and the deviation of one value."""
    start = float(line.values[0]) if line.rounds[0] == 0 else float(np.median(line.values[:3]))
    return float(np.median(line.last())) - start, noise(line.values)


def noise_above_progress(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether no progress can be told from noise over the whole run."""
    line = _line(seen)
    if line is None:
        return Unjudged(NOISE, f"Pass@1 or reward at {limit('points'):g} rounds or more")
    fall = fall_from_best(line)
    if fall and fall.share >= limit("drawdown"):
        return None
    gain, spread = gained(line)
    course, span = trend(line.rounds, line.values), line.rounds[-1] - line.rounds[0]
    if course.p <= limit("level") or abs(gain) > limit("changed") * spread:
        return None
    return Finding(
        NOISE,
        "change",
        "no progress can be told from noise",
        (
            f"{line.metric} changes by {gain:+.3f}, {line.where}; one value varies by {spread:.3f}",
            f"trend over these rounds {course.low * span:+.3f} to {course.high * span:+.3f} (95%), p = {course.p:.2g}",
        ),
        f"p above {limit('level'):g}, change below {limit('changed'):g} deviations",
        "more prompts a round and a larger evaluation, to see it; a higher learning rate or easier prompts, to learn",
    )


def longer(line: Line) -> Longer | None:
    """What a longer run is worth; None where numbers are too large, or all at one round."""
    part = limit("longer")
    ahead = outlook(line.rounds, line.values, part) if line.rounds[-1] > line.rounds[0] else None
    if ahead is None:
        return None
    low, high = ahead.interval()
    if line.metric == "pass_at_1":  # between 0 and 1
        now = float(np.clip(line.last().mean(), 0, 1))
        low, high = (float(np.clip(end, -now, 1 - now)) for end in (low, high))
    return Longer(part * (line.rounds[-1] - line.rounds[0]), ahead.mean, low, high, ahead)


def plateau(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the run has gained and gains no more."""
    line = _line(seen)
    if line is None:
        return Unjudged(PLATEAU, f"Pass@1 or reward at {limit('points'):g} rounds or more")
    gain, spread = gained(line)
    if not gain > max(limit("changed") * spread, limit("reward_still")):
        return None
    more = longer(line)
    if more is None:
        return None
    most = limit("plateau") * gain
    chance = more.outlook.chance(most)
    worth = f"{more.rounds:.0f} more rounds are worth {more.low:+.3f} to {more.high:+.3f} (95%)"
    if chance < limit("plateau_sure"):
        return None if chance < 0.5 else Unjudged(PLATEAU, f"less noise or more rounds: {worth}")
    return Finding(
        PLATEAU,
        "note",
        "the run gains no more",
        (
            f"{line.metric} gained {gain:+.3f} by round {line.rounds[-1]}",
            f"{worth}; at most {most:.3f} with probability {chance:.2f}",
        ),
        f"at most {limit('plateau'):g} of the gain so far, with probability {limit('plateau_sure'):g}",
        "stop here, or change something: new prompts, more rollouts a prompt, a lower learning rate",
    )


def visible(rate: float, questions: int) -> float:
    """The smallest difference of two Pass@1 that is seen: both measured on so many questions, once each."""
    return float(limit("seen") * np.sqrt(2) * sampling_error(rate, questions))


def evaluation_too_small(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the evaluation can see the difference: the one that is asked for, else from first to last."""
    line = seen.first(("test", "pass_at_1"), least=2)
    if line is None:
        return Unjudged(EVALUATION, "Pass@1 on a test set at two rounds or more")
    known = line.counts[np.isfinite(line.counts)]
    questions = seen.questions or (int(np.median(known)) if len(known) and np.median(known) >= 1 else None)
    if questions is None:
        return Unjudged(EVALUATION, "how many questions the test set has: --questions N")
    first, last = float(line.values[0]), float(line.values[-1])
    rate, gain = float(np.clip((first + last) / 2, 0, 1)), last - first
    # a rate of 0 or 1 has no measured error; half an answer stands for it
    least = visible(float(np.clip(rate, 0.5 / questions, 1 - 0.5 / questions)), questions)
    wanted = abs(gain) if seen.claim is None else seen.claim
    if wanted > least:
        return None
    needed = int(np.ceil(2 * limit("seen") ** 2 * max(rate * (1 - rate), 1e-4) / max(wanted, 1e-3) ** 2))
    return Finding(
        EVALUATION,
        "note",
        f"{questions} answers cannot show a difference of {wanted:.3f}",
        (
            f"Pass@1 {first:.3f} at round {line.rounds[0]}, {last:.3f} at round {line.rounds[-1]}",
            f"seen are differences above {least:.3f}; {max(wanted, 0.001):.3f} needs {needed} answers",
        ),
        f"{limit('seen'):g} standard errors of a difference of two rates",
        "more questions, or several answers to each; compare two models on the same questions, pair by pair",
    )
