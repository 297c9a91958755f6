"""How much a run still learns, against how much its numbers jump, and what its evaluation can see."""

import numpy as np

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged, limit
from rftlab.studies.analysis.diagnose.observed import PROGRESS, SILENT, Line, ObservedRun, noise, start_level, trend
from rftlab.studies.analysis.diagnose.stability import fall_from_best

NOISE, PLATEAU, EVALUATION = "noise above progress", "plateau", "evaluation too small"
OVERFITTING, OUT_OF_REACH = "train rises, test falls", "out of reach"


def _line(seen: ObservedRun) -> Line | None:
    """Where progress is measured: Pass@1 on the test set, or what training logs where that has too few points."""
    return seen.progress(2 * int(limit("points"))) or seen.progress(int(limit("points")))


def gained(line: Line) -> tuple[float, float]:
    """Last quarter less the first value (the first three of a training metric), and the deviation of one value."""
    return float(np.median(line.last())) - _start(line), noise(line.values)


def _start(line: Line) -> float:
    """The untrained model's value, else the level of the first rounds."""
    return float(line.values[0]) if line.rounds[0] == 0 else start_level(line.values)


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


def plateau(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the run has gained, and gained no more over its last half."""
    line = _line(seen)
    if line is None:
        return Unjudged(PLATEAU, f"Pass@1 or reward at {limit('points'):g} rounds or more")
    gain, spread = gained(line)
    fall = fall_from_best(line)
    if not gain > max(limit("changed") * spread, limit("reward_still")) or (fall and fall.share >= limit("drawdown")):
        return None
    half = line.tail(0.5)
    course, span = trend(half.rounds, half.values), half.rounds[-1] - half.rounds[0]
    low, middle, high = (slope * span for slope in (course.low, course.slope, course.high))
    brought, most = f"its last half brought {low:+.3f} to {high:+.3f} (95%)", limit("plateau") * gain
    if high > most:
        return None if middle > most else Unjudged(PLATEAU, f"less noise or more rounds: {brought}")
    return Finding(
        PLATEAU,
        "note",
        "the run gains no more",
        (f"{line.metric} gained {gain:+.3f} by round {line.rounds[-1]}; {brought}",),
        f"at most {limit('plateau'):g} of the gain so far over the last half, for certain",
        "stop here, or change something: new prompts, more rollouts a prompt, a lower learning rate",
    )


def overfitting(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the test set loses what training still gains."""
    least = int(limit("few_points"))
    test, train = seen.first(PROGRESS[0], least=least), seen.reward(least)
    if test is None or train is None:
        return Unjudged(OVERFITTING, f"Pass@1 on a test set and reward of training, {least} rounds or more of each")
    fall = fall_from_best(test)
    if fall is None or fall.best - fall.last < limit("reward_still"):
        return None
    before = train.values[train.rounds <= max(fall.best_round, train.rounds[0])][-max(3, len(train) // 8) :]
    after = train.last()
    risen = float(np.median(after) - np.median(before))
    error = noise(train.values) * np.sqrt(np.pi / 2 * (1 / len(before) + 1 / len(after)))
    recovers = np.median(after) < fall.best  # training too fell, and is not yet where the test set once was
    if recovers or risen < max(limit("reward_still"), limit("changed") * error):
        return None
    return Finding(
        OVERFITTING,
        "change",
        "training gains what the test set does not show",
        (
            f"test {test.metric} {fall.best:.3f} at round {fall.best_round}, {fall.last:.3f} at the end",
            f"train {train.metric} {np.median(before):.3f} by then, {np.median(after):.3f} at the end",
        ),
        f"test Pass@1 down by {limit('reward_still'):g} and {limit('errors'):g} standard errors since its best round, "
        f"training up by {limit('reward_still'):g} and {limit('changed'):g} since then",
        f"the checkpoint of round {fall.best_round}; more training prompts or fewer passes over them; where the reward "
        "is not Pass@1, read responses that are paid and wrong",
    )


def out_of_reach(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether hardly any response was ever right, so that there is nothing to learn from."""
    least, most = int(limit("few_points")), limit("start")
    lines = [(key[0], line) for key in PROGRESS if (line := seen.first(key, least=least)) is not None]
    lines = [(split, line) for split, line in lines if line.values.min() >= 0 and line.values.max() <= 1]
    if not lines:
        return Unjudged(OUT_OF_REACH, f"Pass@1, or a reward between 0 and 1, at {least} rounds or more")
    silent = seen.first(SILENT, least=3)
    same = None if silent is None else float(np.median(silent.values))
    rare = all(max(_start(line), float(np.quantile(line.values, 0.9))) <= most for _, line in lines)
    if not rare or (same is not None and same < limit("silent_rare")):
        return None
    evidence = [
        f"{split} {line.metric} at most {np.quantile(line.values, 0.9):.3f} in nine of ten rounds, {line.where}"
        for split, line in lines
    ]
    evidence += [] if same is None else [f"{same:.2f} of the groups have zero variance"]
    return Finding(
        OUT_OF_REACH,
        "stop",
        "the base model cannot do it: hardly any response was ever right, so nothing is learnt",
        tuple(evidence),
        f"{most:g} or less in nine of ten rounds, {limit('silent_rare'):g} of the groups or more without variance, "
        "where the log has them",
        "grade some responses by hand: the answer may be right and its format wrong; the prompt and format that the "
        "model knows, or examples in the prompt; easier questions; a reward with parts",
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
