"""Steps that are too large: the policy leaves what its samples can vouch for."""

import re

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.levels import fall_of
from rftlab.studies.analysis.diagnose.observed import PROGRESS, Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import noise, smooth
from rftlab.studies.analysis.diagnose.signal import SILENT
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "step too large"
_CLIP = re.compile(r"clip (\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+(?:\.\d+)?(?:e-?\d+)?))?")
_SEQUENCE = re.compile(r"ratio of a sequence|\b(?:gspo|luspo)\b", re.IGNORECASE)
GRADIENT = ("train", "grad_norm")


def step_too_large(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether anything that a large step does is seen."""
    signs = (_drawdown, _clipped, _far, _spikes, _silent_early)
    found = [sign(seen) for sign in signs]
    if all(sentence is None for sentence in found):
        return Unjudged(KIND, f"reward, clip_fraction, KL or grad_norm at {limit('few_points'):g} rounds or more")
    evidence = tuple(sentence for sentence in found if sentence)
    if not evidence:
        return None
    return Finding(
        KIND,
        "change",
        "the policy moves further than its samples vouch for",
        evidence,
        f"any of: {limit('drawdown'):.0%} of the best level lost, clip fraction {limit('clip_fraction'):g}, KL "
        f"{limit('kl'):g}, gradients {limit('spike'):g} times their median before a fall, groups "
        f"silent by {limit('silent_early'):.0%} of the run",
        "a learning rate a third of this one, or fewer updates a round; larger batches; clip gradients by norm",
    )


def _enough(seen: ObservedRun, *wanted: tuple[str, str]) -> Line | None:
    return seen.first(*wanted, least=int(limit("few_points")))


def _drawdown(seen: ObservedRun) -> str | None:
    """A fall of the reward or of Pass@1; None where none can be seen, "" where there is none."""
    lines = [(key[0], line) for key in PROGRESS if (line := _enough(seen, key)) is not None]
    for split, line in lines:
        found = fall_of(line)
        if found and found.share >= limit("drawdown") and found.best - found.last >= limit("reward_still"):
            return f"{split} {line.metric} {found.best:.3f} at round {found.best_round}, {found.last:.3f} at the end"
    return "" if lines else None


def _clipped(seen: ObservedRun) -> str | None:
    """Tokens that leave a clip range of a usual width; of a narrow one, or of a sequence's ratio, they tell nothing."""
    line = _enough(seen, ("train", "clip_fraction"))
    if line is None or _narrow(seen.design.loss or ""):
        return None
    return _high(line, limit("clip_fraction"), "of the tokens are clipped")


def _narrow(loss: str) -> bool:
    """Whether a loss, in a design's words, clips what no large step is needed to leave: GSPO's ranges are 0.0003 and
    0.0004, and in healthy runs two orders of magnitude more of its tokens are clipped (arXiv 2507.18071, section
    5)."""
    ranges = [float(text) for found in _CLIP.findall(loss) for text in found if text]
    return _SEQUENCE.search(loss) is not None or 0 < max(ranges, default=0.0) < limit("clip_range")


def _far(seen: ObservedRun) -> str | None:
    line = _enough(seen, ("train", "kl"))
    return None if line is None else _high(line, limit("kl"), "nats a token is the KL to the policy that sampled")


def _high(line: Line, most: float, what: str) -> str:
    level = smooth(np.abs(line.values))
    at = int(np.argmax(level))
    return f"{level[at]:.3g} {what}, about round {line.rounds[at]}" if level[at] >= most else ""


def _spikes(seen: ObservedRun) -> str | None:
    """Gradients far above their median before the reward falls."""
    line, reward = _enough(seen, GRADIENT), seen.reward(int(limit("few_points")))
    if line is None or reward is None:
        return None
    middle = float(np.median(line.values))
    for at in np.flatnonzero(line.values > limit("spike") * middle) if middle > 0 else ():
        width = max(3, len(reward) // 20)
        cut = int(np.searchsorted(reward.rounds, line.rounds[at]))
        before, after = reward.values[max(0, cut - width) : cut], reward.values[cut + 1 : cut + 1 + width]
        error = limit("changed") * noise(reward.values)
        if min(len(before), len(after)) >= 3 and np.median(before) - np.median(after) > error:
            return (
                f"gradient norm {line.values[at]:.3g} at round {line.rounds[at]}, {line.values[at] / middle:.0f} times "
                f"its median; reward {np.median(before):.3f} before, {np.median(after):.3f} after"
            )
    return ""


def _silent_early(seen: ObservedRun) -> str | None:
    """Groups that fall silent within the first rounds at a reward that then stays: each prompt is answered in one way,
    right or wrong, before it was learnt. What counts is how many of those that had a signal in the first round lost it:
    prompts that are never solved are silent from the start, whatever the step."""
    line, reward = (
        _enough(seen, SILENT),
        _enough(seen, ("train", "reward_mean")) or _enough(seen, ("train", "pass_at_1")),
    )
    if line is None or reward is None or seen.design.rollouts == 1:
        return None
    until = line.rounds[0] + limit("silent_early") * (line.rounds[-1] - line.rounds[0])
    early, paid = line.values[line.rounds <= until][-3:], reward.values[reward.rounds <= until][-3:]
    if min(len(early), len(paid)) < 3:
        return ""
    share, level, last = float(np.median(early)), float(np.median(paid)), float(np.median(reward.last()))
    first = float(line.values[0])
    lost = (share - first) / (1 - first) if first < 1 else 0.0
    silent = share >= limit("silent_stuck") and share > first + limit("reward_still") and lost >= limit("silent_lost")
    if not silent or not 0.05 < level < 0.9 or last - level > limit("stuck"):
        return ""
    return f"{share:.2f} of the groups are silent by round {until:.0f}; reward {level:.2f} then, {last:.2f} at the end"
