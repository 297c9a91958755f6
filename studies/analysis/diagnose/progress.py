"""Check a run's progress against its noise, the size of its evaluation, and the parts of its reward: groups without a
signal, gains of format alone, and responses that grow while the reward does not."""

import numpy as np

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.analysis.diagnose.observed import (
    PROGRESS,
    REWARD,
    SILENT,
    Finding,
    Line,
    ObservedRun,
    Unjudged,
    limit,
    noise,
    smooth,
    start_level,
    trend,
)
from rftlab.studies.analysis.diagnose.stability import fall_from_best

NOISE, PLATEAU, EVALUATION = "noise above progress", "plateau", "evaluation too small"
OVERFITTING, OUT_OF_REACH = "train rises, test falls", "out of reach"


def _line(seen: ObservedRun) -> Line | None:
    """Return the line that shows progress: test Pass@1, or training's reward where that has too few points."""
    points = int(limit("points"))
    return seen.first(*PROGRESS, least=2 * points) or seen.first(*PROGRESS, least=points)


def gained(line: Line) -> tuple[float, float]:
    """Return the gain from the start (`_start`) to the last quarter, and the standard deviation of one value."""
    return line.end() - _start(line), noise(line.values)


def _start(line: Line) -> float:
    """Return the untrained model's value, or the level of the first rounds where it was not evaluated."""
    return float(line.values[0]) if line.rounds[0] == 0 else start_level(line.values)


def noise_above_progress(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether noise hides any progress over the whole run."""
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
    """Check whether the run gained, but no more over its last half."""
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
    """Check whether test Pass@1 falls while training's reward still rises."""
    test, train = seen.enough(PROGRESS[0]), seen.enough(*REWARD)
    if test is None or train is None:
        needs = f"Pass@1 on a test set and reward of training, {limit('few_points'):g} rounds or more of each"
        return Unjudged(OVERFITTING, needs)
    fall = fall_from_best(test)
    if fall is None or fall.best - fall.last < limit("reward_still"):
        return None
    before = train.values[train.rounds <= max(fall.best_round, train.rounds[0])][-max(3, len(train) // 8) :]
    after = train.tail().values
    risen = float(np.median(after) - np.median(before))
    error = noise(train.values) * np.sqrt(np.pi / 2 * (1 / len(before) + 1 / len(after)))
    recovers = np.median(after) < fall.best  # training fell too, and is still below the best test level
    if recovers or risen < max(limit("reward_still"), limit("changed") * error):
        return None
    return Finding(
        OVERFITTING,
        "change",
        "training gains what the test set does not show",
        (
            f"test {test.metric} {fall.best:.3f} around round {fall.best_round}, {fall.last:.3f} at the end",
            f"train {train.metric} {np.median(before):.3f} by then, {np.median(after):.3f} at the end",
        ),
        f"test Pass@1 down by {limit('reward_still'):g} and {limit('errors'):g} standard errors since its best round, "
        f"training up by {limit('reward_still'):g} and {limit('changed'):g} since then",
        f"the checkpoint of round {fall.best_round}; more training prompts or fewer passes over them; where the reward "
        "is not Pass@1, read responses that are paid and wrong",
    )


def out_of_reach(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether hardly any response was ever right, so that there is nothing to learn from."""
    most = limit("start")
    lines = [(key[0], line) for key in PROGRESS if (line := seen.enough(key)) is not None]
    lines = [(split, line) for split, line in lines if line.values.min() >= 0 and line.values.max() <= 1]
    if not lines:
        return Unjudged(OUT_OF_REACH, f"Pass@1, or a reward between 0 and 1, at {limit('few_points'):g} rounds or more")
    silent = seen.first(SILENT, least=3)
    same = None if silent is None else float(np.median(silent.values))
    rare = all(max(_start(line), float(np.quantile(line.values, 0.9))) <= most for _, line in lines)
    learns = any(_rises_for_certain(line) for _, line in lines if len(line) >= limit("points"))
    if not rare or learns or (same is not None and same < limit("silent_rare")):
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


def _rises_for_certain(line: Line) -> bool:
    """Whether a line rises beyond its noise, however little, because the scale of a reward is arbitrary."""
    gain, spread = gained(line)
    course = trend(line.rounds, line.values)
    return gain > limit("changed") * spread and course.low > 0 and course.p <= limit("level")


def visible(rate: float, questions: int) -> float:
    """Return the smallest significant difference of two Pass@1, each measured once on so many questions."""
    return float(limit("seen") * np.sqrt(2) * sampling_error(rate, questions))


def evaluation_too_small(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether the evaluation is too small for the claimed difference, or for that from first to last."""
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
    wanted = max(abs(gain) if seen.claim is None else seen.claim, 0.001)
    if wanted > least:
        return None
    # two rates of n answers each differ by wanted = seen * sqrt(2 p (1 - p) / n), solved for n
    needed = int(np.ceil(questions * (least / wanted) ** 2))
    return Finding(
        EVALUATION,
        "note",
        f"{questions} answers cannot show a difference of {wanted:.3f}",
        (
            f"Pass@1 {first:.3f} at round {line.rounds[0]}, {last:.3f} at round {line.rounds[-1]}",
            f"seen are differences above {least:.3f}; {wanted:.3f} needs {needed} answers",
        ),
        f"{limit('seen'):g} standard errors of a difference of two rates",
        "more questions, or several answers to each; compare two models on the same questions, pair by pair",
    )


NO_SIGNAL, FORMAT_ONLY, LENGTH = "no signal", "format only", "length without reward"
GRADE = "grade the untrained model leniently or under a prompt with examples, and claim only what is beyond it"


def no_signal(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether most groups have zero variance and teach nothing."""
    if seen.design.rollouts == 1:
        return Unjudged(NO_SIGNAL, "groups of several rollouts; this run has one rollout a prompt")
    line = seen.first(SILENT, least=3)
    if line is None:
        return _from_reward(seen)
    share = line.end()
    if share < limit("silent_groups"):
        return None
    evidence = [f"{share:.2f} of the groups, {line.tail().where}", *_split(seen, share)]
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
        if level is not None
        else "prompts that are solved at times: the log does not say whether these are too hard or too easy"
    )
    cut = seen.first(("train", "truncated_fraction"), least=3)
    unsolved = level is None or level < limit("solved")
    if unsolved and cut is not None and cut.end() >= limit("cut_off"):
        evidence.append(f"{cut.end():.2f} of the responses are cut off at the end")
        advice = "a higher response limit, or a shorter way to answer: what is cut off is graded alike"
    graded = unsolved and seen.first(("train", "pass_at_1")) is None
    same = "have equal rewards" if graded else "are all right or all wrong"
    return Finding(
        NO_SIGNAL,
        "change",
        f"most groups {same}, so most rollouts teach nothing",
        tuple(evidence),
        f"{limit('silent_groups'):g} of the groups or more, median of the last quarter",
        advice,
    )


def _reward(seen: ObservedRun) -> float | None:
    line = seen.first(("train", "pass_at_1"))
    if line is None:
        mean = seen.first(("train", "reward_mean"))
        line = mean if mean is not None and mean.values.min() >= 0 and mean.values.max() <= 1 else None
    return None if line is None else line.end()


def _split(seen: ObservedRun, share: float) -> list[str]:
    """Return bounds on the groups that are all right or all wrong: a mixed group has 1 to K - 1 right answers of K."""
    level, k = _reward(seen), seen.design.rollouts
    if level is None or not k or k < 2:
        return []
    low = max(0.0, level - (1 - share) * (k - 1) / k)
    high = min(share, level - (1 - share) / k)
    if high < low:  # the two metrics come from different batches
        return []
    strict = "" if seen.first(("train", "pass_at_1")) else ", if rewards are 0 or 1"
    return [f"{low:.2f} to {high:.2f} all right, {share - high:.2f} to {share - low:.2f} all wrong{strict}"]


def _from_reward(seen: ObservedRun) -> Finding | Unjudged | None:
    """Judge the share of zero-variance groups from the reward, where it is not logged. Groups of K at mean rate p have
    zero variance in p^K + (1-p)^K of cases at least: that is convex in p, so the mean over prompts is above it."""
    line, k = seen.first(("train", "pass_at_1"), least=3), seen.design.rollouts
    if line is None or not k:
        return Unjudged(NO_SIGNAL, "zero_signal_fraction, or Pass@1 of training and the rollouts a prompt")
    level = line.end()
    share = level**k + (1 - level) ** k
    if share < limit("silent_groups"):
        return Unjudged(NO_SIGNAL, f"zero_signal_fraction; Pass@1 alone says {share:.2f} or more of the groups")
    return _finding(seen, share, [f"at least {share:.2f} of groups of {k}, because Pass@1 of training is {level:.3f}"])


def format_only(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether most of the gain of Pass@1 is format: answers that are now parsed rather than now right."""
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
    """Return the first value and the median of the last quarter."""
    return float(line.values[0]), line.end()


def _gained(line: Line) -> bool:
    before, after = ends(line)
    spread = np.nan_to_num(noise(line.values))
    return after - before > max(limit("changed") * spread, limit("reward_still"))


def _by_format(strict: Line, format_rate: Line) -> Finding | None:
    """Judge by the format rate: Pass@1 = format f x correct given format g. The format's part of the change f1 g1 - f0
    g0 is (f1 - f0)(g0 + g1)/2 (Shapley's value of two factors)."""
    (p0, p1), (f0, f1) = ends(strict), ends(format_rate)
    if not _gained(strict) or not 0 < f0 < limit("format_low") or f1 <= 0:
        return None
    half = format_rate.rounds[np.argmax(smooth(format_rate.values) >= (f0 + f1) / 2)]
    alone = np.interp(half, strict.rounds, smooth(strict.values)) < p0 + limit("format_along") * (p1 - p0)
    if alone or p0 > f0 + 0.01 or p1 > f1 + 0.01:  # answers are right without the format
        return None
    return _format_finding(
        (f1 - f0) * (p0 / f0 + p1 / f1) / 2 / (p1 - p0),
        f"Pass@1 {p0:.3f} to {p1:.3f}, format rate {f0:.3f} to {f1:.3f}, {strict.where}",
        f"right given the format: {p0 / f0:.3f} to {p1 / f1:.3f}",
    )


def _by_grader(strict: Line, flexible: Line) -> Finding | None:
    (p0, p1), (q0, q1) = ends(strict), ends(flexible)
    if not _gained(strict):
        return None
    evidence = f"strict Pass@1 {p0:.3f} to {p1:.3f}, flexible {q0:.3f} to {q1:.3f}, {strict.where}"
    return _format_finding(1 - (q1 - q0) / (p1 - p0), evidence)


def _jump(strict: Line) -> Finding | None:
    """Judge by Pass@1 alone: half of the gain comes at once from almost nothing, as when a model learns a marker."""
    p0, p1 = ends(strict)
    first = strict.values[strict.rounds <= strict.rounds[0] + limit("jump") * np.ptp(strict.rounds)]
    if p0 > limit("start") or not _gained(strict) or first.max() - p0 < (p1 - p0) / 2:
        return None
    at = strict.rounds[int(np.argmax(strict.values >= p0 + (p1 - p0) / 2))]
    return Finding(
        FORMAT_ONLY,
        "note",
        "much of the gain may be the format; the log does not show it",
        (f"Pass@1 {p0:.3f} at round {strict.rounds[0]}, half of its gain by round {at}, {p1:.3f} at the end",),
        f"{limit('start'):g} or less at the start, half of the gain in {limit('jump'):.0%} of the rounds",
        GRADE,
    )


def _format_finding(share: float, *evidence: str) -> Finding | None:
    if share < limit("format_share"):
        return None
    what = f"{min(share, 1.0):.0%} of the gain is the format, not more right answers"
    return Finding(FORMAT_ONLY, "note", what, evidence, f"{limit('format_share'):.0%} of the gain or more", GRADE)


def length_growing(seen: ObservedRun) -> Finding | Unjudged | None:
    """Check whether responses grew over the last half without a gain in reward."""
    points = int(limit("points"))
    line = seen.first(("train", "response_length"), ("test", "response_length"), least=2 * points)
    reward = seen.first(*REWARD, *PROGRESS, least=2 * points)
    if line is None or reward is None:
        return Unjudged(LENGTH, f"response_length and a reward at {2 * points} rounds or more")
    late, paid = line.tail(0.5), reward.tail(0.5)
    grown, gained = trend(late.rounds, late.values), trend(paid.rounds, paid.values)
    span, start = late.rounds[-1] - late.rounds[0], float(np.median(late.values[: max(3, len(late) // 6)]))
    relative = grown.slope * span / start if start > 0 else 0.0
    gain = gained.slope * (paid.rounds[-1] - paid.rounds[0])
    if relative < limit("length_growth") or grown.low <= 0 or gain >= limit("reward_still"):
        return None
    cut = seen.first(("train", "truncated_fraction"), least=3)
    truncated = [] if cut is None else [f"{cut.end():.2f} of the responses are cut off at the end"]
    return Finding(
        LENGTH,
        "change",
        "responses grow and the reward does not",
        (
            f"responses grow by {relative:.0%} (at least {grown.low * span / start:.0%}), {late.where}",
            f"{reward.metric} changes by {gain:+.3f} over these rounds",
            *truncated,
        ),
        f"{limit('length_growth'):.0%} longer over the last half, reward up by less than {limit('reward_still'):g}",
        "a mean over all tokens or a constant divisor in place of a mean per response; a length penalty; "
        "read what the new tokens say",
    )
