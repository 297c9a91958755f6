"""Runs that broke: reward, format or responses that were there and are gone; entropy that bursts or dries up."""

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.levels import lasting_fall
from rftlab.studies.analysis.diagnose.observed import PROGRESS, Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import smooth
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND, ENTROPY_KIND = "collapse", "entropy gone"
LEVELS = (*PROGRESS, ("test", "format_rate"), ("train", "format_rate"))
ENTROPY, LENGTH = ("train", "entropy"), ("train", "response_length")


def collapse(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the run broke and stayed broken."""
    lines = [(key, seen.first(key, least=int(limit("few_points")))) for key in LEVELS]
    if all(line is None for _, line in lines):
        return Unjudged(KIND, f"Pass@1, reward or format rate at {limit('few_points'):g} rounds or more")
    evidence = []
    for (split, metric), line in lines:
        found = lasting_fall(line)
        if found and found.share >= limit("fall"):
            evidence.append(
                f"{split} {metric} {found.best:.3f} at round {found.best_round}, {found.last:.3f} at the end, "
                f"lower since round {found.since}"
            )
    evidence += _burst(seen) + _shrunk(seen)
    if not evidence:
        return None
    return Finding(
        KIND,
        "stop",
        "the policy broke and did not come back",
        tuple(evidence),
        f"{limit('fall'):.0%} of the best level lost and {limit('errors'):g} standard errors, entropy "
        f"{limit('entropy_burst'):g} times its start, or responses {limit('length_left'):g} of theirs, no more reward",
        "go back to a checkpoint before it; a lower learning rate, fewer updates a round, a clip or a KL penalty; "
        "read responses around that round",
    )


def _burst(seen: ObservedRun) -> list[str]:
    line = seen.first(ENTROPY, least=int(limit("few_points")))
    if line is None:
        return []
    start, last = _start(line), float(np.median(line.last(0.2)))
    if start <= 0 or last < limit("entropy_burst") * start:
        return []
    return [f"entropy {start:.3g} at the start, {last:.3g} at the end"]


def _shrunk(seen: ObservedRun) -> list[str]:
    """Responses that are a fraction of what they were, while reward does not rise."""
    line = seen.first(LENGTH, ("test", "response_length"), least=int(limit("few_points")))
    if line is None:
        return []
    start, last = _start(line), float(np.median(line.last(0.5)))
    if last > limit("length_left") * start or rises(seen.progress(), line.rounds):
        return []
    return [f"responses of {start:.0f} tokens at the start, {last:.0f} in the last half"]


def _start(line: Line) -> float:
    """Median of the first twentieth, at least three values."""
    return float(np.median(line.values[: max(3, len(line) // 20)]))


def rises(line: Line | None, rounds: np.ndarray) -> bool:
    """Whether the level of the last quarter is above that of the quarter after a tenth of the rounds."""
    if line is None or len(line) < limit("few_points"):
        return False
    span = line.rounds[-1] - line.rounds[0]
    early = line.values[(line.rounds >= line.rounds[0] + 0.1 * span) & (line.rounds <= line.rounds[0] + 0.35 * span)]
    return bool(len(early)) and float(np.median(line.last())) > float(np.median(early)) + limit("reward_still")


def entropy_gone(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the policy is all but deterministic, so that rollouts of a prompt are one response."""
    line = seen.first(ENTROPY, least=int(limit("few_points")))
    if line is None:
        return Unjudged(ENTROPY_KIND, f"entropy at {limit('few_points'):g} rounds or more")
    start, last = _start(line), float(np.median(line.last(0.2)))
    if start <= 0 or last > limit("entropy_gone") * start:
        return None
    below = line.rounds[int(np.argmax(smooth(line.values) <= limit("entropy_gone") * start))]
    return Finding(
        ENTROPY_KIND,
        "note",
        "the policy hardly explores any more",
        (f"entropy {start:.3g} at the start, {last:.3g} at the end, below that since round {below}",),
        f"{limit('entropy_gone'):g} of the start or less, median of the last fifth",
        "no harm while reward rises; else a higher upper clip, an entropy bonus, a higher temperature or new prompts",
    )
