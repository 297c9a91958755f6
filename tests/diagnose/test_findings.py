"""Each finding where it is planted, and not where it nearly is; statistics of noisy series against what is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rftlab.studies.analysis.diagnose import CHECKS, diagnose
from rftlab.studies.analysis.diagnose.alarms import FiredAlarm, alarms_so_far
from rftlab.studies.analysis.diagnose.observed import ORDER, Line, noise, observe, smooth, trend
from rftlab.studies.analysis.diagnose.progress import gained
from rftlab.studies.analysis.diagnose.stability import _error, fall_from_best, lasting_fall
from tests.support.logs.planted import QUESTIONS, after, changed, healthy, log_of, piece_of, towards


def flat(level, deviation, seed=3):
    return lambda values: level + deviation * np.random.default_rng(seed).standard_normal(len(values))


def spike(values):
    values[100] = 500.0
    return values


def bent(top, half):
    """From 0.3 to `top`, nearly all of it by `half` rounds, with the noise of the test set."""

    def change(values):
        rate = top - (top - 0.3) * np.exp(-np.arange(len(values)) / half)
        return np.random.default_rng(5).binomial(20 * QUESTIONS, rate) / (20 * QUESTIONS)

    return change


def both(*changes):
    def change(columns):
        for each in changes:
            columns = each(columns)
        return columns

    return change


REWARD, TEST = ("train", "pass_at_1"), ("test", "pass_at_1")
SILENT = ("train", "zero_signal_fraction")
NO_PROGRESS = both(changed(*REWARD, flat(0.5, 0.03)), changed(*TEST, flat(0.5, 0.016)))
NEVER = both(
    changed(*REWARD, lambda v: np.where(np.arange(len(v)) % 20 == 10, 0.004, 0.0)),
    changed(*TEST, np.zeros_like),
    changed("train", "zero_signal_fraction", lambda v: np.full(len(v), 0.99)),
)
LONGER = changed("train", "response_length", towards(600))


def train(metric, *when_and_level):
    """A metric of training that goes to a level after a share of the run."""
    return changed("train", metric, after(*when_and_level))


def form(change):
    """The share of test responses in the format, changed."""
    return changed("test", "format_rate", change)


SHORT, SILENCE = train("response_length", 0.2, 20), train("zero_signal_fraction", 0.1, 0.95)
SPIKE = changed("train", "grad_norm", spike)
FORMATS = (
    form(lambda v, low=low, high=high: np.linspace(low, high, len(v))) for low, high in ((0.31, 0.98), (0.9, 0.98))
)
APART = (changed("train", "rollout_probs_diff", towards(level)) for level in (0.05, 0.012))
FALLING = changed(*TEST, lambda v: bent(0.7, 4)(v) - np.linspace(0, 0.3, len(v)))


def slowly(values):
    """A reward from 0 to 0.02, as its author scaled it, that rises all the way."""
    return 0.02 * np.arange(len(values)) / len(values)


def below(values):
    """A reward from -0.3 to just above 0, which then loses a sixth of what it gained."""
    return np.where(np.arange(len(values)) < 0.8 * len(values), values - 0.6, -0.05)


PLANTED = [
    ("collapse", train("pass_at_1", 0.6, 0.1), train("pass_at_1", 0.6, 0.4), "lower since round 121"),
    ("collapse", changed(*REWARD, lambda v: 2 * after(0.6, 0.1)(v) - 1), changed(*REWARD, below), "train pass_at_1"),
    ("collapse", form(after(0.7, 0.02)), form(after(0.7, 0.8)), "format"),
    ("collapse", train("entropy", 0.5, 5.0), train("entropy", 0.5, 1.2), "entropy"),
    ("collapse", both(NO_PROGRESS, SHORT), SHORT, "tokens at the start, 20"),
    ("entropy gone", train("entropy", 0.5, 0.005), train("entropy", 0.5, 0.06), "0.005"),
    ("step too large", train("pass_at_1", 0.7, 0.35), train("pass_at_1", 0.7, 0.5), "0.350 at the end"),
    ("step too large", train("kl", 0.5, 0.3), train("kl", 0.99, 0.3), "nats"),
    ("step too large", train("clip_fraction", 0.6, 0.4), train("clip_fraction", 0.6, 0.1), "clipped"),
    ("step too large", both(SPIKE, train("pass_at_1", 0.51, 0.3)), SPIKE, "gradient norm 500 at round 101"),
    ("step too large", both(NO_PROGRESS, SILENCE), SILENCE, "have zero variance by round"),
    ("no signal", train("zero_signal_fraction", 0.5, 0.9), train("zero_signal_fraction", 0.5, 0.7), "0.90"),
    ("length without reward", both(NO_PROGRESS, LONGER), LONGER, "responses grow"),
    ("noise above progress", NO_PROGRESS, None, "p ="),
    ("plateau", changed(*TEST, bent(0.7, 4)), changed(*TEST, bent(0.7, 30)), "last half brought"),
    ("sampler and trainer apart", *APART, "probabilities"),
    ("format only", *FORMATS, "right given"),
    ("evaluation too small", changed(*TEST, flat(0.5, 0.003)), None, "needs"),
    ("out of reach", NEVER, both(NEVER, changed(*TEST, lambda v: np.full(len(v), 0.04))), "groups have zero variance"),
    ("out of reach", NEVER, both(NEVER, changed(*REWARD, slowly)), "nine of ten rounds"),
    ("train rises, test falls", FALLING, both(FALLING, changed(*REWARD, lambda v: v[::-1].copy())), "by then"),
    ("alarm: short responses", train("response_length", 0.3, 80), train("response_length", 0.3, 100), "of its first v"),
    ("alarm: long responses", train("response_length", 0.3, 900), train("response_length", 0.3, 850), "of its limit"),
    ("alarm: gradient norm", train("grad_norm", 0.3, 5.0), train("grad_norm", 0.3, 1.2), "of its first 10 values"),
    ("alarm: clipped tokens", train("clip_fraction", 0.9, 0.25), train("clip_fraction", 0.99, 0.25), "of the tokens"),
    ("alarm: entropy", train("entropy", 0.9, 1.1), train("entropy", 0.9, 0.75), "of its first values, above 0.8"),
]


def said(columns, kind, **more):
    return next((found for found in diagnose(log_of(columns, **more)).findings if found.kind == kind), None)


@pytest.mark.parametrize(("kind", "planted", "near", "word"), PLANTED, ids=[f"{row[0]}-{row[3]}" for row in PLANTED])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_planted_is_found_and_a_near_miss_is_not(kind, planted, near, word, seed):
    found = said(planted(healthy(seed)), kind)
    assert found is not None and any(word in sentence for sentence in found.evidence), found
    assert found.threshold and found.advice and found.severity in ORDER
    assert near is None or said(near(healthy(seed)), kind) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_has_no_finding_and_every_check_is_planted(seed):
    assert diagnose(log_of(healthy(seed))).findings == () and {row[0] for row in PLANTED} == set(CHECKS)


def test_short_runs_give_few_false_alarms():
    """Ten rounds, of 200 runs that learn: at most one in a hundred has a finding."""
    alarms = [diagnose(log_of(healthy(seed, 10, 1), every=1)).findings for seed in range(200)]
    assert sum(map(bool, alarms)) <= 2, [found for each in alarms for found in each]


def test_the_gravest_comes_first_and_makes_the_verdict():
    columns = changed(*REWARD, after(0.6, 0.1))(changed("train", "entropy", after(0.5, 0.005))(healthy()))
    diagnosis = diagnose(log_of(columns))
    order = [ORDER.index(found.severity) for found in diagnosis.findings]
    assert order == sorted(order) and diagnosis.findings[0].kind == "collapse"
    assert diagnosis.verdict.startswith("planted: stop: collapse, ") and "\n" not in diagnosis.verdict


@pytest.mark.parametrize("kind", CHECKS)
def test_an_empty_log_is_not_judged(kind):
    diagnosis = diagnose(log_of({("train", "seconds"): np.ones(50)}, rollouts=None))
    assert kind in [each.kind for each in diagnosis.unjudged] and not diagnosis.findings and not diagnosis.clear
    assert "nothing can be said" in diagnosis.verdict


def test_gaps_are_not_values():
    """Half of the values missing, as nan: the same findings, and none of a healthy run."""
    draw = np.random.default_rng(0)

    def holes(columns):
        return {key: np.where(draw.random(len(v)) < 0.5, np.nan, v) for key, v in columns.items()}

    assert diagnose(log_of(holes(healthy()))).findings == ()
    assert said(holes(changed(*REWARD, after(0.6, 0.1))(healthy())), "collapse")


def test_numbers_near_the_largest_make_no_noise_and_groups_of_one_have_no_signal_to_lack():
    """The clip fraction is far too large, and zeros are not: no overflow hides the one or makes the other."""
    assert said({key: v * 1e303 for key, v in healthy().items()}, "step too large")
    zeros = {key: np.zeros_like(v) for key, v in healthy().items()}
    assert not said(zeros, "step too large") and not said(zeros, "collapse")
    columns = train("zero_signal_fraction", 0.0, 0.95)(healthy())
    assert said(columns, "no signal") and not said(columns, "no signal", rollouts=1)


@pytest.mark.parametrize(("questions", "found"), [(100, True), (5000, False)])
def test_the_size_of_an_evaluation_decides(questions, found):
    """0.30 to 0.36: seen from 2 x 1.96^2 x 0.33 x 0.67 / 0.06^2 = 472 questions on."""
    run = log_of({TEST: np.array([0.30, 0.33, 0.36])}, questions=np.nan)
    kinds = {each.kind for each in diagnose(run, questions=questions).findings}
    assert ("evaluation too small" in kinds) is found
    assert "evaluation too small" in {each.kind for each in diagnose(run).unjudged}
    (evidence,) = [each.evidence for each in diagnose(run, 100).findings]
    assert "needs 472 answers" in evidence[1]
    large = replace(run, pieces=tuple(piece._replace(n=np.full(3, 1000.0)) for piece in run.pieces))
    assert not diagnose(large).findings, "a claim outranks the gain"
    assert diagnose(large, claim=0.01).findings[0].kind == "evaluation too small"


def once(first: float, then: float, count: int = 20) -> np.ndarray:
    return np.array([first] + [then] * (count - 1))


def test_a_level_of_several_rounds_is_not_said_to_be_the_value_of_one():
    """It is a running median, and its round that of the highest value in it."""
    step = said({TEST: np.array([0.99, 0.8, 0.84, 0.66, *[0.5] * 20])}, "step too large", questions=np.nan)
    assert "0.840 around round 0" in step.evidence[0]


def test_the_share_of_the_format_is_that_of_two_factors():
    """Format .2 to .9, right given the format .5 to .8: .7 x (.5 + .8) / 2 of .62; under graders 1 - .1 / .4."""
    by_rate = said({TEST: once(0.1, 0.72), ("test", "format_rate"): once(0.2, 0.9)}, "format only")
    assert by_rate.what.startswith(f"{0.7 * 0.65 / 0.62:.0%} of the gain") and "0.500 to 0.800" in by_rate.evidence[1]
    by_grader = said({TEST: once(0.1, 0.5), ("", "test_flexible"): once(0.3, 0.4)}, "format only")
    assert by_grader.what.startswith("75% of the gain")
    assert said({TEST: once(0.1, 0.5), ("", "test_flexible"): once(0.3, 0.6)}, "format only") is None
    assert "may be the format" in said({TEST: once(0.01, 0.5, 41)}, "format only").what, "from almost nothing alone"
    assert said({TEST: once(0.1, 0.6, 41)}, "format only") is None


def test_answers_that_are_right_without_the_format_gain_nothing_from_it():
    """The format is learnt in five rounds, while Pass@1 stays, and answers in the thirty behind it."""
    strict, well_formed = np.repeat([0.17, 0.3], [10, 30]), np.repeat([0.3, 0.95], [5, 35])
    assert said({TEST: strict, ("test", "format_rate"): well_formed}, "format only") is None
    assert said({TEST: well_formed / 3, ("test", "format_rate"): well_formed}, "format only")


def test_groups_whose_responses_are_cut_off_are_told_so():
    """They get equal rewards, which are neither all right nor all wrong, and prompts that are harder change nothing."""
    columns = {SILENT: np.full(40, 0.95), ("train", "reward_mean"): np.full(40, 0.88)}
    assert "harder prompts" in said(columns, "no signal").advice
    cut = said(columns | {("train", "truncated_fraction"): np.ones(40)}, "no signal")
    assert "response limit" in cut.advice and "equal rewards" in cut.what and "1.00 of the" in cut.evidence[-1]


def test_gradients_of_rounds_without_a_signal_are_no_level():
    """They are near 0, and those of rounds that teach, which come more often later on, are no alarm beside them."""
    idle = (np.arange(60) % 4 > 0) & (np.arange(60) < 30)
    columns = {("train", "grad_norm"): np.where(idle, 2e-6, 0.1)}
    assert said(columns, "alarm: gradient norm")
    assert not said(columns | {SILENT: idle.astype(float)}, "alarm: gradient norm")
    rounds = [{"grad_norm": 2e-6 if each else 0.1, "zero_signal_fraction": float(each)} for each in idle]
    assert not [each for each in alarms_so_far(rounds) if isinstance(each, FiredAlarm)]


def test_bounds_of_silent_groups_are_by_hand():
    """Mixed groups, a tenth, hold 1 to 7 right answers of 8: of a rate of .6 they leave .5125 to .5875."""
    evidence = said({SILENT: np.full(200, 0.9), REWARD: np.full(200, 0.6)}, "no signal").evidence
    assert "0.51 to 0.59 all right, 0.31 to 0.39 all wrong" in evidence
    assert "about 3.2 of 32 prompts of a round teach" in evidence
    told = said({REWARD: np.full(50, 0.99)}, "no signal", rollouts=8)  # the reward alone leaves no other way
    assert told.evidence[0].startswith("at least 0.92 of groups of 8")
    assert said({REWARD: np.full(50, 0.5)}, "no signal") is None


@pytest.mark.parametrize(("seed", "sure"), [(1, False), (5, False), (6, True), (8, True)])
def test_growth_is_a_finding_where_its_interval_leaves_out_0_and_its_lower_end_is_said(seed, sure):
    """Lengths that vary by 150 about a line: a slope of 20% or more may still be noise."""
    lengths = 300 + 0.9 * np.arange(1, 201) + 150 * np.random.default_rng(seed).standard_normal(200)
    parts = np.array_split(np.arange(101, 201), 12)
    medians = [np.median(lengths[part - 1]) for part in parts]
    slope, _, low, _ = stats.theilslopes(medians, [part.mean() for part in parts], 0.95)
    grown, least = (value * 99 / np.median(lengths[100:116]) for value in (slope, low))
    finding = said({REWARD: np.full(200, 0.5), ("train", "response_length"): lengths}, "length without reward")
    assert grown > 0.2 and [bool(least > 0), finding is not None] == [sure, sure]
    if finding:
        assert finding.evidence[0].startswith(f"responses grow by {grown:.0%} (at least {least:.0%})")


def test_near_misses_of_one_condition_are_none():
    """Responses as long as ever, of a reward that does not rise; a fall that is large for its level, but tiny."""
    assert said(NO_PROGRESS(healthy()), "collapse") is None
    assert said({REWARD: np.repeat([0.015, 0.005], 100)}, "step too large") is None
    assert said({REWARD: np.repeat([0.15, 0.05], 100)}, "step too large") is not None


def test_a_tenth_of_a_run_is_enough_to_see_sampler_and_trainer_apart():
    columns = changed("train", "rollout_probs_diff", after(0.85, 0.05))(healthy())
    (evidence,) = said(columns, "sampler and trainer apart").evidence
    assert evidence.startswith("probabilities differ by 0.05 on average") and "0.004" in evidence


def test_of_two_test_sets_the_one_that_usually_has_more_questions_counts():
    counts = {"a": np.array([100.0, 100, 100, 1]), "b": np.full(4, 50.0)}
    curves = {task: piece_of(*TEST, range(4), np.full(4, value), 1) for task, value in (("a", 0.1), ("b", 0.9))}
    run = replace(log_of({}), pieces=tuple(curves[task]._replace(task=task, n=n) for task, n in counts.items()))
    assert observe(run).lines[TEST].values.tolist() == [0.1] * 4


@pytest.mark.parametrize(("late", "noise", "kinds"), [(0.002, 0.001, "f"), (0.03, 0.03, "u"), (0.2, 0.001, "")])
def test_a_plateau_that_noise_leaves_open_is_not_judged(late, noise, kinds):
    """Of a gain of 0.4 at most 0.06 in the last half: for certain, by its middle alone, not at all."""
    curve = np.concatenate([np.linspace(0.3, 0.7, 21), 0.7 + np.linspace(0, late, 20)])
    values = curve + noise * np.random.default_rng(2).standard_normal(41)
    diagnosis = diagnose(log_of(changed(*TEST, lambda _: values)(healthy())))
    where = {"f": diagnosis.findings, "u": diagnosis.unjudged, "": ()}
    assert all(("plateau" in [each.kind for each in where[name]]) is (name == kinds) for name in "fu")


def line(values, count=np.nan):
    values = np.asarray(values, dtype=float)
    return Line("pass_at_1", np.arange(len(values)), values, np.full(len(values), count))


def test_noise_is_the_deviation_about_a_slope_and_of_mostly_equal_values_that_of_their_bends():
    """Second differences of nine 0 and a 1 are seven 0, 1, -2, 1: 0 in the median, 0.6 in the mean of squares."""
    draw = np.random.default_rng(0)
    values = 5 * np.arange(4000) + 0.3 * draw.standard_normal(4000)
    assert noise(values) == pytest.approx(0.3, rel=0.05) and np.isnan(noise(values[:3]))
    values = np.array([*[0.0] * 9, 1] * 200)
    assert noise(values) == pytest.approx(np.sqrt(0.6) / 2 / np.sqrt(6), rel=0.01)


def test_the_error_of_a_rate_is_binomial():
    assert _error(line(np.full(20, 0.2), 400), 3) == pytest.approx(np.sqrt(2 / 3) * 0.02)


def test_a_trend_is_not_moved_by_outliers_and_none_is_seen_in_noise_more_often_than_its_level():
    values = 0.01 * np.arange(100.0)
    values[[10, 50, 90]] = 100
    course = trend(np.arange(100), values)
    assert (
        course.slope == pytest.approx(0.01, rel=0.1) and course.low <= course.slope <= course.high and course.p < 1e-4
    )
    draw = np.random.default_rng(1)
    assert np.mean([trend(np.arange(60), draw.standard_normal(60)).p <= 0.05 for _ in range(400)]) < 0.08
    single = np.zeros(40)
    single[[0, 20, 39]] = 1
    assert smooth(single).max() == 0, "a single value does not stand in a running median"


def test_a_fall_is_told_with_its_rounds_and_none_within_the_error_of_few_questions():
    values = np.concatenate([np.linspace(0.2, 0.8, 50), np.full(50, 0.2)]) + 0.01 * np.sin(np.arange(100))
    worst = fall_from_best(line(values))
    assert lasting_fall(line(values)).since == 50
    assert (worst.since, worst.share) == (50, pytest.approx(0.75, abs=0.03)) and 40 <= worst.best_round <= 50
    # 0.10 to 0.02 at the first of ten evaluations: of 1000 questions 8 standard errors, of 50 two. A peak that is
    # left at once is seen where its error is known.
    for fall in (fall_from_best, lasting_fall):
        assert fall(line([0.1] + [0.02] * 9, 1000)) and fall(line([0.1] + [0.02] * 9, 50)) is None
    values = [0.01, 0.41, 0.33, 0.29, 0.26, *[0.2, 0.19, 0.2, 0.18] * 10]
    assert lasting_fall(line(values, 400)).share > 0.5 and lasting_fall(line(values)).share < 0.5


def test_a_small_fall_of_noisy_values_is_found_and_noise_is_none():
    """0.12 to 0.04 for half of 60 evaluations on 50 questions, whose errors are 0.046 and 0.028; and 0.08 all the
    time."""
    draw, hits, alarms = np.random.default_rng(3), 0, 0
    for _ in range(60):
        fallen = lasting_fall(line(draw.binomial(50, np.repeat([0.12, 0.04], 30)) / 50, 50))
        hits += fallen is not None and fallen.share >= 0.5
        alarms += lasting_fall(line(draw.binomial(50, np.full(60, 0.08)) / 50, 50)) is not None
    assert hits >= 45 and alarms == 0, (hits, alarms)


def rewards(values):
    return Line("reward_mean", np.arange(len(values)), np.asarray(values, dtype=float), np.full(len(values), np.nan))


def test_rewards_of_few_responses_collapse_where_they_fall_and_not_by_chance_or_in_another_order():
    """Rounds of eight responses: 200 at a level of 0.45, or 40 of which the last 14 have none right."""
    draw, collapsed = np.random.default_rng(7), 0
    for _ in range(150):
        fall = lasting_fall(rewards(draw.binomial(8, 0.45, 200) / 8))
        collapsed += fall is not None and fall.share >= 0.5
    assert collapsed == 0  # 56 of 600 where the highest window counts whole
    for _ in range(20):
        broken = draw.binomial(8, np.repeat([0.85, 0.0], [26, 14])) / 8
        fall = lasting_fall(rewards(broken))
        assert fall.share > 0.9 and 25 <= fall.since <= 28
        collapsed += lasting_fall(rewards(draw.permutation(broken))) is not None
        early = lasting_fall(rewards(draw.binomial(8, np.repeat([0.85, 0.0], [4, 60])) / 8))
        assert early.share > 0.9  # at once, and never back
    assert collapsed <= 1
    long = draw.binomial(8, np.repeat([0.8, 0.1], 3000)) / 8  # shuffled as means of neighbours
    assert lasting_fall(rewards(long)).share > 0.5 and lasting_fall(rewards(draw.permutation(long))) is None


@pytest.mark.parametrize(("early", "last", "named"), [(0.5, 0.55, True), (0.85, 0.87, True), (0.85, 0.92, False)])
def test_groups_of_one_outcome_near_the_ceiling_are_no_large_step(early, last, named):
    """From 0.85 on there is 0.15 to gain, and a run that gains half of it is not stuck."""
    paid = np.linspace(early, last, 200)
    silent = np.where(np.arange(200) < 10, 0.6, 0.9)
    assert (said({SILENT: silent, REWARD: paid}, "step too large") is not None) == named


def test_a_high_first_value_is_no_fall_where_values_vary_by_more_than_their_counts_say():
    """Prompts of a round differ, so its rate varies by more than so many answers would."""
    draw = np.random.default_rng(4)
    lines = [line(0.2 + 0.03 * draw.standard_normal(60), 4096) for _ in range(200)]
    assert [fall for fall in map(fall_from_best, lines) if fall] == []


def test_a_gain_starts_at_the_median_of_three_where_nothing_was_measured_before_training():
    values = np.concatenate([[0.9, 0.3, 0.3], np.full(37, 0.5)])
    for first, start in ((1, 0.3), (0, 0.9)):
        gain, _ = gained(Line("reward_mean", np.arange(first, first + 40), values, np.full(40, np.nan)))
        assert gain == pytest.approx(0.5 - start)
