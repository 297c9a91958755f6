"""Where runs end, from their beginnings: the forecast, its command and its scores."""

import numpy as np
import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast import ending
from rftlab.studies.forecast.ending import chance_of_leader, ending_scores, forecast_end, leader_scores
from rftlab.studies.readers import read_logs
from tests.support.machine.here import refused, shown

T = np.arange(0, 1001, 50.0)
CURVES = {
    "saturating": 0.1 + 0.5 * (1 - np.exp(-T / 250)),
    "slow": 0.3 + 0.3 * (1 - np.exp(-T / 600)),
    "flat": np.full(T.size, 0.4),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("part", [0.2, 0.3, 0.5])
def test_the_forecast_is_near_the_end_and_the_interval_holds_it(name, part):
    values, known = CURVES[name], part * 1000 >= T
    end = forecast_end(T[known], values[known], 1000)
    assert end.low <= values[-1] <= end.high and 0.099 <= end.high - end.low <= 0.6
    assert abs(end.value - values[-1]) <= max(abs(values[known][-1] - values[-1]), 0.03)


def test_a_flat_curve_stays_and_a_rising_one_goes_on_and_little_known_is_a_wide_interval():
    flat, rising = CURVES["flat"], CURVES["saturating"]
    wide, narrow = (forecast_end(T[:n], flat[:n], 1000) for n in (3, 6))
    assert narrow.value == pytest.approx(0.4, abs=1e-12)
    assert wide.high - wide.low == pytest.approx(2 * (narrow.high - narrow.low))
    whole = forecast_end(T[:6], rising[:6], 1000)
    assert whole.value > rising[5] + 0.05
    # without an evaluation of the untrained model the base is below the first value
    assert forecast_end(T[2:6], rising[2:6], 1000).value == pytest.approx(whole.value, abs=0.08)
    one, two = forecast_end(T[4:5], np.array([0.4]), 1000), forecast_end(T[3:5], np.array([0.4, 0.4]), 1000)
    assert one.value == two.value == 0.4 and one.high - one.low > 2 * (two.high - two.low), "of a rise one tells none"


@pytest.mark.parametrize("fall", [0.06, 0.3])
def test_a_curve_that_fell_is_not_forecast_to_rise(fall):
    """Its end was once read from draws that all rise: a run that had fallen from 0.4 to 0 was forecast at 0.2."""
    values = np.r_[0.1, 0.3, 0.4, 0.4, 0.4 - fall, 0.4 - fall, 0.4 - fall]
    end = forecast_end(T[:7], values, 1000)
    assert end.value == pytest.approx(values[-1], abs=1e-12) and end.low < values[-1] - 0.05
    dip = np.r_[values[:4], np.full(3, 0.38)]
    assert forecast_end(T[:7], dip, 1000).value > dip[-1], "less of a fall may be noise"


@pytest.mark.parametrize(("questions", "told"), [(16, True), (64, True), (1000, True), (16, False), (64, False)])
def test_intervals_hold_ends_of_flat_runs_that_few_questions_measure(questions, told):
    """Without the noise of questions 40% and 63% of the measured ends of runs with 16 and 64 lay in an interval of
    80%."""
    draw, known = np.random.default_rng(0), T <= 500
    held = []
    for _ in range(60):
        values = draw.binomial(questions, 0.5, len(T)) / questions
        noise = ending.evaluation_noise(values[known], questions if told else np.nan)
        end = forecast_end(T[known], values[known], 1000, noise)
        held.append(end.low <= values[-1] <= end.high)
    assert np.mean(held) >= 0.8


@pytest.mark.parametrize("questions", [16, 64])
def test_a_steep_rise_that_few_questions_measure_is_not_followed_into_their_noise(questions):
    """Values of few questions were once taken for as exact as those of many."""
    draw, part = np.random.default_rng(0), np.linspace(0, 0.2, 6)
    held, off = [], []
    for _ in range(60):
        base, share = draw.uniform(0.05, 0.5), draw.uniform(0.3, 0.8)
        values = draw.binomial(questions, base + (1 - base) * share * -np.expm1(-np.r_[part, 1] / 0.1)) / questions
        noise = ending.evaluation_noise(values[:-1], questions)
        ends = [forecast_end(1000 * part, values[:-1], 1000, one) for one in (noise, 0.0)]
        held.append(ends[0].low <= values[-1] <= ends[0].high)
        off.append([abs(end.value - base - (1 - base) * share) for end in ends])
    assert np.mean(held) >= 0.8
    assert np.mean(off, axis=0) @ [1, -1] < -0.01


def test_a_lead_of_few_questions_is_no_lead():
    """Of equal runs with 16 questions 22% were said to end higher with a probability above 0.98."""
    first, second = np.random.default_rng(0).binomial(16, 0.5, (2, 500)) / 16
    noise = [
        np.hypot(*(ending.binomial_error(value, 16) for value in pair)) for pair in zip(first, second, strict=True)
    ]
    assert np.mean([chance_of_leader(lead) > 0.985 for lead in first - second]) > 0.15
    chances = [chance_of_leader(*one) for one in zip(first - second, noise, strict=True)]
    assert np.mean(np.array(chances) > 0.9) < 0.02 and np.mean(chances) < 0.65
    assert chance_of_leader(0.3, 0.02) > 0.985


def test_draws_weigh_as_a_direct_computation_does():
    """The posterior of four values, against a loop over the draws."""
    at, values = T[:4] / 1000, CURVES["saturating"][:4]
    weights, ends = ending._weigh(at, values, 0.03)
    share, time, power, drift, normal = (row[:200] for row in ending._prior())
    logs = []
    for s, tau, p, d, z in zip(share, time, power, drift, normal, strict=True):
        base = min(max(values[0] + 0.03 * z, 0), 1)
        curve = [base + (1 - base) * s * (1 - np.exp(-((t / tau) ** p))) + d * t for t in at]
        logs.append(-sum((a - b) ** 2 for a, b in zip(curve, values, strict=True)) / (2 * 0.03**2))
    np.testing.assert_allclose(np.log(weights[:200] / weights[0]), np.array(logs) - logs[0], atol=1e-8)
    assert weights.sum() == pytest.approx(1) and ends.shape == weights.shape


@pytest.mark.parametrize(
    ("rounds", "words"),
    [([], "needs test evaluations"), ([1000.0], "allowed: above 1000"), ([0.0], "only the untrained model")],
)
def test_what_cannot_be_forecast_is_an_error(rounds, words):
    with pytest.raises(UserError, match=words):
        forecast_end(np.array(rounds), np.full(len(rounds), 0.5), 1000)


def write_log(path, values, rounds=T, metric="eval/accuracy"):
    rows = {"run_name": path.stem, "metric": metric, "step": rounds.astype(int), "value": values}
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def test_the_command_prints_the_ends_and_the_likely_winner(tmp_path):
    first = write_log(tmp_path / "first.csv", CURVES["saturating"][:6], T[:6])
    second = write_log(tmp_path / "second.csv", CURVES["flat"][:6], T[:6])
    text = shown("predict", first, second, "--rounds", "1000", "--questions", "100")
    values = CURVES["saturating"][:6]
    lead, noise = values[5] - 0.4, [ending.binomial_error(value, 100) for value in (values[5], 0.4)]
    end = forecast_end(T[:6], np.round(values, 12), 1000, noise[0])
    assert f"{end.value:.3f}" in text and f"{end.low:.3f} to {end.high:.3f}" in text
    chance = chance_of_leader(lead, np.hypot(*noise))
    assert f"first is ahead by {lead:.3f}" in text and f"probability {chance:.2f}" in text
    assert "saves 38%" in text and "is a guess" not in text
    third = write_log(tmp_path / "third.csv", CURVES["flat"][:4], T[:4])
    assert "the chance is a guess" in shown("predict", first, third, "--rounds", "1000")


@pytest.mark.parametrize(
    ("metric", "flags", "words"),
    [
        ("eval/accuracy", "", "--rounds N"),
        ("eval/accuracy", "--rounds 250", "rounds = 250; allowed: above 250"),
        ("eval/accuracy", "--rounds 0", "rounds = 0; allowed: --rounds N"),
        ("eval/accuracy", "--rounds 1000 --designs 32x8", "not with unfinished runs"),
        ("eval/accuracy", "--rounds 1000 --base 0.5", "base = 0.5; allowed: with --pair"),
        ("train/entropy", "--rounds 1000", "no test pass_at_1"),
    ],
)
def test_a_wrong_command_line_is_one_line(tmp_path, metric, flags, words):
    log = write_log(tmp_path / "run.csv", CURVES["flat"][:6], T[:6], metric)
    assert words in refused("predict", log, *flags.split())


def test_scores_are_those_of_the_forecast_on_parts_of_the_run(tmp_path):
    runs = read_logs([write_log(tmp_path / "run.csv", CURVES["slow"])])
    scores = ending_scores([("mine", run) for run in runs])
    assert list(scores["part"]) == [0.1, 0.2, 0.3, 0.5] and list(scores["known"]) == [100, 200, 300, 500]
    seen = T[:5], CURVES["slow"][:5]
    row, end = scores.iloc[1], forecast_end(*seen, 1000, ending.evaluation_noise(seen[1], np.nan))
    assert (row["last"], row["truth"]) == pytest.approx((CURVES["slow"][4], CURVES["slow"][-1]))
    assert (row["forecast"], row["low"], row["high"]) == pytest.approx(tuple(end))
    assert not len(ending_scores([("mine", read_logs([write_log(tmp_path / "b.csv", [0.1, 0.2], T[:2])])[0])]))


def test_without_evaluations_training_is_forecast_from_means_of_windows(tmp_path):
    """Noise of single batches is averaged over eighths of what is known; the end is the mean of the last tenth."""
    rng, rounds = np.random.default_rng(3), np.arange(1, 401)
    curve = 0.1 + 0.5 * (1 - np.exp(-rounds / 100))
    path = write_log(tmp_path / "run.csv", np.clip(curve + rng.normal(0, 0.05, 400), 0, 1), rounds, "train/accuracy")
    runs = [("mine", run) for run in read_logs([path])]
    scores = ending_scores(runs)
    assert set(scores["split"]) == {"train"} and set(scores["task"]) == {"training"}
    np.testing.assert_allclose(scores["last"], [curve[n - n // 8 : n].mean() for n in (40, 80, 120, 200)], atol=0.06)
    np.testing.assert_allclose(scores["truth"], curve[360:].mean(), atol=0.04)
    assert scores["truth"].between(scores["low"], scores["high"]).sum() >= 3 and not len(leader_scores(scores))
    text = shown("predict", path, "--rounds", "800")
    assert "Pass@1 of training after 800 rounds" in text and "a test set may end lower" in text
    assert "rounds = 399; allowed: above 400" in refused("predict", path, "--rounds", "399")
    said = " ".join(shown("check", path, "--processes", "1").split())
    assert "is forecast to end at Pass@1 of training 0." in said and "Take it as a guess" in said
    (tmp_path / "before.csv").write_text(path.read_text().replace("\n", "\nrun,eval/accuracy,0,0.1\n", 1))
    assert "training" in shown("predict", tmp_path / "before.csv", "--rounds", "800")
    short = write_log(tmp_path / "short.csv", curve[:15], rounds[:15], "train/accuracy")
    assert "16 rounds of training Pass@1" in refused("predict", short, "--rounds", "800")
    other = write_log(tmp_path / "other.csv", curve, rounds, "train/accuracy")
    text = shown("predict", path, other, "--rounds", "800")
    assert "by that of training the chance is a guess" in text


def test_leaders_are_scored_two_by_two_and_a_lead_of_nothing_is_a_coin():
    """a leads b and ends below it; c leads both and stays ahead; d is known until another round."""
    runs = {"a": (0.3, 0.4, 100), "b": (0.2, 0.5, 100), "c": (0.5, 0.7, 100), "d": (0.9, 0.1, 150)}
    rows = [
        ("s", run, "test", "t", 0.2, known, last, 0.03, 0, 0, 0, 0, end) for run, (last, end, known) in runs.items()
    ]
    scores = pd.DataFrame(rows, columns=ending.COLUMNS)
    others = scores.assign(part=0.5), scores.assign(split="train")
    pairs = leader_scores(pd.concat([scores, *others])).sort_values("lead").reset_index(drop=True)
    np.testing.assert_allclose(pairs["lead"], [0.1, 0.2, 0.3])
    assert list(pairs["held"]) == [False, True, True]
    np.testing.assert_allclose(pairs["lost"], [0.1, 0.0, 0.0])
    chances = [chance_of_leader(lead, 0.03 * np.sqrt(2)) for lead in (0.1, 0.2, 0.3)]
    assert list(pairs["chance"]) == pytest.approx(chances) and chances[0] < chance_of_leader(0.1)
    assert not len(leader_scores(scores[:1]))
    assert chance_of_leader(0.0) == 0.5 and chance_of_leader(-0.1) == pytest.approx(0.8413, abs=1e-4)
    assert chance_of_leader(0.4) > 0.999
