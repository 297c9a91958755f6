"""Check a run's stability: falls from the best level, entropy that rises or vanishes, steps that are too large
(clipping, KL, gradients), and a sampler that differs from the trainer."""

import re
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from rftlab.studies.analysis.diagnose.observed import (
    GRADIENT,
    PROGRESS,
    REWARD,
    SILENT,
    WIDEST,
    Finding,
    Line,
    ObservedRun,
    Unjudged,
    falls_in_order,
    is_narrow,
    limit,
    noise,
    smooth,
    start_length,
    start_level,
    window,
)

COLLAPSE, ENTROPY_GONE, STEP, SAMPLER = ("collapse", "entropy gone", "step too large", "sampler and trainer apart")


class Fall(NamedTuple):
    """Fall of a line from its best level to its last one."""

    best: float
    best_round: int
    last: float
    since: int
    """First round from which values stay below the middle of the best and the last level."""
    share: float
    """Share of the best level that was lost: (best - last) / best, or over best minus the lowest value where values are
    below 0. In a lasting fall the best is reduced by its error where only the line's noise shows that error."""


def fall_from_best(line: Line | None) -> Fall | None:
    """Return the fall of a line of rates or rewards; None where it is within noise, or the line is too short."""
    if line is None or len(line) < limit("few_points"):
        return None
    level, last = smooth(line.values), line.end(0.2)
    at = int(np.argmax(level))
    best, error = float(level[at]), _error(line, at)
    at = _highest(line, at, window(line.values))
    if np.isfinite(line.counts[0]) and line.values[0] > best:  # one value is enough where its error is known
        at, best, error = 0, float(line.values[0]), float(np.nanmax([_binomial(line, 0), noise(line.values)]))
    if not best > _floor(line) or not best - last > limit("errors") * error:
        return None
    # where the error is known only from the line's noise, the highest of many windows is high by chance
    ordered = _has_counts(line) or falls_in_order(line.values, limit("level"))
    return _fall(line, at, best, last) if ordered else None


def _highest(line: Line, at: int, width: int) -> int:
    """Return the index of the highest value in a window of that width around an index."""
    first = max(0, at - width // 2)
    return first + int(np.argmax(line.values[first : at + width // 2 + 1]))


def _fall(line: Line, at: int, best: float, last: float) -> Fall:
    above = np.flatnonzero(smooth(line.values, 0.0) > (best + last) / 2)
    since = line.rounds[min(max(at, int(above[-1]) if len(above) else 0) + 1, len(line) - 1)]
    return Fall(best, int(line.rounds[at]), last, int(since), (best - last) / (best - _floor(line)))


def _floor(line: Line) -> float:
    """Return the level that counts as nothing: 0, or the lowest value of a reward that may be below it."""
    return min(0.0, float(line.values.min()))


def _binomial(line: Line, at: int) -> float:
    p, n = float(np.clip(line.values[at], 0, 1)), line.counts[at]
    return float(np.sqrt(p * (1 - p) / n)) if n >= 1 else float("nan")


def _error(line: Line, at: int) -> float:
    """Return the error of a median of three values against the last level: sqrt(2/3) of one value's, as for means."""
    seen = noise(line.values)
    known = _binomial(line, at) if np.isfinite(line.counts[at]) and line.metric != "reward_mean" else 0.0
    return float(np.sqrt(2 / 3) * np.nanmax([seen, known]))


def lasting_fall(line: Line | None) -> Fall | None:
    """Return the fall over a whole run, found with running medians of every width.

    A narrow median shows a short peak, and a wide one a small fall of noisy values. The level that counts has the
    highest value minus its own error, among those that lie above the end by the required number of standard errors.
    """
    if line is None or len(line) < limit("few_points"):
        return None
    end = line.tail(0.2)
    last, spread = float(np.median(end.values)), noise(line.values)
    highest, most, least = None, -np.inf, limit("start") if line.metric == "pass_at_1" else _floor(line)
    for width in _widths(line):
        whole = slice(width // 2, len(line) - max(width // 2, len(end)))  # windows that lie within the run
        level = ndimage.median_filter(line.values, size=width, mode="mirror")[whole]
        if len(level) == 0:
            continue
        at = whole.start + int(np.argmax(level))
        best, error = float(level.max()), spread * np.sqrt(_of_median(width) + _of_median(len(end)))
        # a narrow window has the highest level by chance, so each level counts less its own error
        certain = best - limit("fall_shrunk") * error
        falls = best > least and best - last > limit("errors") * error
        if falls and certain > most and _counted(line, best, last, width, len(end)):
            highest, most = (at, width, best), certain
    if highest is None:
        return None
    at, width, best = highest
    # the level is that of the window; the round is that of the highest value in the window
    fall = _fall(line, _highest(line, at, width), best, last)
    if _has_counts(line):
        return fall
    certain = fall._replace(share=(most - last) / (most - _floor(line)))
    return certain if falls_in_order(line.values, limit("shuffled")) else None


def _has_counts(line: Line) -> bool:
    return bool(np.isfinite(line.counts).all()) and line.metric != "reward_mean"


def _widths(line: Line) -> list[int]:
    """Return the widths of running medians; 1 is included where the error of a single value is known."""
    widest = min(len(line) // 2, WIDEST)
    return ([1] if _has_counts(line) else []) + [2**k + 1 for k in range(1, 8) if 2**k + 1 <= max(widest, 3)]


def _of_median(width: int) -> float:
    """Return the variance of a median of so many values of variance 1 (pi / 2 times that of a mean)."""
    return 1.0 if width == 1 else np.pi / 2 / width


def _counted(line: Line, best: float, last: float, width: int, end: int) -> bool:
    """Whether two rates differ by more than sampling of so many answers explains. Arcsines of roots are compared, whose
    variance is 1 / 4n at every rate. True where the number of answers is not known."""
    count = float(np.median(line.counts))
    if not count >= 1 or line.metric == "reward_mean":
        return True
    arcs = [np.arcsin(np.sqrt(np.clip(rate, 0, 1))) for rate in (best, last)]
    return bool(2 * (arcs[0] - arcs[1]) > limit("errors") * np.sqrt((1 / width + 1 / end) / count))


LEVELS = (*PROGRESS, ("test", "format_rate"), ("train", "format_rate"))
ENTROPY, LENGTH = ("train", "entropy"), ("train", "response_length")


def collapse(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether the run collapsed and did not recover."""
    lines = [(key, seen.enough(key)) for key in LEVELS]
    if all(line is None for _, line in lines):
        return Unjudged(COLLAPSE, f"Pass@1, reward or format rate at {limit('few_points'):g} rounds or more")
    evidence = []
    for (split, metric), line in lines:
        fall = lasting_fall(line)
        if fall and fall.share >= limit("fall"):
            evidence.append(
                f"{split} {metric} {fall.best:.3f} around round {fall.best_round}, {fall.last:.3f} at the end, "
                f"lower since round {fall.since}"
            )
    evidence += _burst(seen) + _shrunk(seen)
    if not evidence:
        return None
    what, state, advice = _collapsed_kind(seen)
    return Finding(
        COLLAPSE,
        "stop",
        what,
        (*evidence, *state),
        f"{limit('fall'):.0%} of the best level lost and {limit('errors'):g} standard errors, entropy "
        f"{limit('entropy_burst'):g} times its start, or responses {limit('length_left'):g} of theirs, no more reward",
        advice,
    )


BROKEN = (
    "go back to a checkpoint before it; a lower learning rate, fewer updates a round, a clip or a KL penalty; "
    "read responses around that round"
)
SHORT = (
    "a token mean or a constant divisor in place of a mean per response, or a group's baseline: a raw reward with a "
    "mean per response pays more for a token of a short answer, and is the usual cause; then from an earlier checkpoint"
)


def _collapsed_kind(seen: ObservedRun) -> tuple[str, tuple[str, ...], str]:
    """Return the kind of collapse, how responses look at the end, and advice: short and well formed, or broken."""
    lines = [seen.enough(("train", metric), ("test", metric)) for metric in ("response_length", "format_rate")]
    start = np.nan if lines[0] is None else start_length(lines[0].values)
    last, rate = (np.nan if line is None else line.end(0.2) for line in lines)
    texts = [f"{last:.0f} tokens, {start:.0f} at the start", f"{rate:.2f} well formed"]
    texts = [text for text, line in zip(texts, lines, strict=True) if line is not None]
    state: tuple[str, ...] = (f"responses at the end: {', '.join(texts)}",) if texts else ()
    if last <= limit("length_left") * start and rate >= limit("format_low"):
        design = [seen.design.advantage and f"advantage {seen.design.advantage}", seen.design.loss]
        told = ", ".join(filter(None, design))
        state += (told,) if told else ()
        return "responses became short and stayed well formed: a bias of the length", state, SHORT
    is_long = last >= limit("alarm_long") * (seen.design.response_limit or np.inf)
    if is_long or rate < limit("format_low"):
        how = "long" if is_long else "malformed"
        return f"the policy broke, its responses are {how}, and it did not come back", state, BROKEN
    missing = [name for name, line in zip(("response_length", "format_rate"), lines, strict=True) if line is None]
    unknown = (f"short and well formed, or broken: unknown without {' and '.join(missing)}",) if missing else ()
    return "the policy broke and did not come back", state + unknown, BROKEN


def _burst(seen: ObservedRun) -> list[str]:
    line = seen.enough(ENTROPY)
    if line is None:
        return []
    start, last = start_level(line.values), line.end(0.2)
    if start <= 0 or last < limit("entropy_burst") * start or not falls_in_order(-line.values, limit("shuffled")):
        return []
    return [f"entropy {start:.3g} at the start, {last:.3g} at the end"]


def _shrunk(seen: ObservedRun) -> list[str]:
    """Return evidence that responses shrank to a fraction of their first length while the reward does not rise."""
    line = seen.enough(LENGTH, ("test", "response_length"))
    if line is None:
        return []
    start, last = start_length(line.values), line.end(0.5)
    if start <= 0 or last > limit("length_left") * start or rises(seen.first(*PROGRESS), line.rounds):
        return []
    return [f"responses of {start:.0f} tokens at the start, {last:.0f} in the last half"]


def rises(line: Line | None, rounds: np.ndarray) -> bool:
    """Whether the level of the last quarter is above that of the rounds between a tenth and 35% of the run."""
    if line is None or len(line) < limit("few_points"):
        return False
    span = line.rounds[-1] - line.rounds[0]
    early = line.values[(line.rounds >= line.rounds[0] + 0.1 * span) & (line.rounds <= line.rounds[0] + 0.35 * span)]
    return bool(len(early)) and line.end() > float(np.median(early)) + limit("reward_still")


def entropy_gone(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether the policy is nearly deterministic, so that the rollouts of a prompt are one response."""
    line = seen.enough(ENTROPY)
    if line is None:
        return Unjudged(ENTROPY_GONE, f"entropy at {limit('few_points'):g} rounds or more")
    start, last = start_level(line.values), line.end(0.2)
    if start <= 0:
        return Unjudged(ENTROPY_GONE, "entropy above 0 at the start")
    if last > limit("entropy_gone") * start:
        return None
    below = line.rounds[int(np.argmax(smooth(line.values) <= limit("entropy_gone") * start))]
    return Finding(
        ENTROPY_GONE,
        "note",
        "the policy hardly explores any more",
        (f"entropy {start:.3g} at the start, {last:.3g} at the end, below that since round {below}",),
        f"{limit('entropy_gone'):g} of the start or less, median of the last fifth",
        "no harm while reward rises; else a higher upper clip, an entropy bonus, a higher temperature or new prompts",
    )


def step_too_large(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether any sign of steps that are too large is seen."""
    signs = (_drawdown, _clipped, _far, _spikes, _silent_early)
    signs_seen = [sign(seen) for sign in signs]
    if all(sentence is None for sentence in signs_seen):
        return Unjudged(STEP, f"reward, clip_fraction, KL or grad_norm at {limit('few_points'):g} rounds or more")
    evidence = tuple(sentence for sentence in signs_seen if sentence)
    if not evidence:
        return None
    return Finding(
        STEP,
        "change",
        "the policy moves further than its samples vouch for",
        evidence,
        f"any of: {limit('drawdown'):.0%} of the best level lost, clip fraction {limit('clip_fraction'):g}, KL "
        f"{limit('kl'):g}, gradients {limit('spike'):g} times their median before a fall, "
        f"zero-variance groups by {limit('silent_early'):.0%} of the run",
        "a learning rate a third of this one, or fewer updates a round; larger batches; clip gradients by norm",
    )


def _drawdown(seen: ObservedRun) -> str | None:
    """Return evidence of a fall of the reward or of Pass@1; None where there is no curve, "" where there is no fall."""
    lines = [(key[0], line) for key in PROGRESS if (line := seen.enough(key)) is not None]
    for split, line in lines:
        fall = fall_from_best(line)
        if fall and fall.share >= limit("drawdown") and fall.best - fall.last >= limit("reward_still"):
            return f"{split} {line.metric} {fall.best:.3f} around round {fall.best_round}, {fall.last:.3f} at the end"
    return "" if lines else None


def _clipped(seen: ObservedRun) -> str | None:
    """Return evidence of clipped tokens; None for a narrow clip range or a sequence's ratio, where they mean
    nothing."""
    line = seen.enough(("train", "clip_fraction"))
    if line is None or is_narrow(seen.design.loss or ""):
        return None
    return _high(line, limit("clip_fraction"), "of the tokens are clipped")


def _far(seen: ObservedRun) -> str | None:
    line = seen.enough(("train", "kl"))
    return None if line is None else _high(line, limit("kl"), "nats a token is the KL to the policy that sampled")


def _high(line: Line, most: float, what: str) -> str:
    level = smooth(np.abs(line.values))
    at = int(np.argmax(level))
    return f"{level[at]:.3g} {what}, about round {line.rounds[at]}" if level[at] >= most else ""


def _spikes(seen: ObservedRun) -> str | None:
    """Return evidence of gradients far above their median before the reward falls."""
    line, reward = seen.enough(GRADIENT), seen.enough(*REWARD)
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
    """Return evidence of groups that lose their variance early, at a reward that then stays: each prompt is answered in
    one way, right or wrong, before it was learnt. The check counts the lost part of the groups with a signal in the
    first round, because prompts that are never solved have zero variance from the start, whatever the step."""
    line, reward = seen.enough(SILENT), seen.enough(*REWARD[::-1])
    if line is None or reward is None or seen.design.rollouts == 1:
        return None
    until = line.rounds[0] + limit("silent_early") * (line.rounds[-1] - line.rounds[0])
    early, paid = line.values[line.rounds <= until][-3:], reward.values[reward.rounds <= until][-3:]
    if min(len(early), len(paid)) < 3:
        return ""
    share, level, last = float(np.median(early)), float(np.median(paid)), reward.end()
    first = float(line.values[0])
    lost = (share - first) / (1 - first) if first < 1 else 0.0
    seen_rise = max(limit("reward_still"), limit("changed") * noise(line.values))
    silent = share >= limit("silent_stuck") and share - first > seen_rise and lost >= limit("silent_lost")
    gains = last - level > min(limit("stuck"), limit("stuck_missing") * (1 - level))
    if not silent or not 0.05 < level < 0.9 or gains:
        return ""
    then = f"reward {level:.2f} then, {last:.2f} at the end"
    return f"{share:.2f} of the groups have zero variance by round {until:.0f}; {then}"


_LOGP = re.compile(
    r"mismatch|sampling/sampling_logp_difference/mean|(?:train/)?train_rollout_logprob_abs_diff"
    r"|rollout_corr/log_?prob_abs_diff(?:/mean)?"
)
"""Names of the mean |difference| of log-probabilities of sampler and trainer in rftlab, TRL, slime and verl."""
_PROBS = ("train", "rollout_probs_diff")


def mismatch(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether sampler and trainer disagree on the tokens' probabilities, so that ratios are wrong from the
    start."""
    by_logp = [line for (_, name), line in seen.lines.items() if _LOGP.fullmatch(name)]
    lines = [(line, "mismatch_logp", "log-probabilities") for line in by_logp if len(line) >= 3]
    probs = seen.first(_PROBS, least=3)
    lines += [(probs, "mismatch_probs", "probabilities")] if probs is not None else []
    if not lines:
        return Unjudged(SAMPLER, "rollout_probs_diff (verl), sampling_logp_difference (TRL), mismatch (rftlab)")
    evidence = []
    for line, name, what in lines:
        values = smooth(np.abs(line.values))
        at = int(np.argmax(values))
        if values[at] >= limit(name):
            where = f"about round {line.rounds[at]}, {values[0]:.3g} at the start"
            evidence.append(f"{what} differ by {values[at]:.3g} on average {where}")
    if not evidence:
        return None
    return Finding(
        SAMPLER,
        "change",
        "sampler and trainer give the same tokens other probabilities",
        tuple(evidence),
        f"mean difference of log-probabilities {limit('mismatch_logp'):g}, probabilities {limit('mismatch_probs'):g}",
        "look at temperature, top-p and the weights the sampler holds; the same precision in both; "
        "truncated importance weights as a repair",
    )
