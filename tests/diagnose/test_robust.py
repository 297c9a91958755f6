"""Statistics of noisy series against what is known of them."""

import numpy as np
import pytest

from rftlab.studies.analysis.diagnose.observed import Line, noise, smooth, trend
from rftlab.studies.analysis.diagnose.progress import gained, visible
from rftlab.studies.analysis.diagnose.stability import _error, _of_median, fall_from_best, lasting_fall


def line(values, count=np.nan):
    values = np.asarray(values, dtype=float)
    return Line("pass_at_1", np.arange(len(values)), values, np.full(len(values), count))


def test_noise_is_the_deviation_about_a_slope():
    draw = np.random.default_rng(0)
    values = 5 * np.arange(4000) + 0.3 * draw.standard_normal(4000)
    assert noise(values) == pytest.approx(0.3, rel=0.05)
    assert np.isnan(noise(values[:3]))


def test_noise_of_mostly_equal_values_is_that_of_its_bends():
    """Second differences of nine 0 and a 1 are seven 0, 1, -2, 1: 0 in the median, 0.6 in the mean of squares."""
    values = np.array([*[0.0] * 9, 1] * 200)
    assert noise(values) == pytest.approx(np.sqrt(0.6) / 2 / np.sqrt(6), rel=0.01)


def test_errors_of_medians_and_of_rates_are_those_of_a_simulation():
    draw = np.random.default_rng(4).standard_normal((6000, 65))
    assert _of_median(65) == pytest.approx(np.median(draw, axis=1).var(), rel=0.1)
    assert _of_median(1) == 1.0
    assert _error(line(np.full(20, 0.2), 400), 3) == pytest.approx(np.sqrt(2 / 3) * 0.02)


def test_a_trend_is_not_moved_by_outliers():
    values = 0.01 * np.arange(100.0)
    values[[10, 50, 90]] = 100
    found = trend(np.arange(100), values)
    assert found.slope == pytest.approx(0.01, rel=0.1) and found.low <= found.slope <= found.high and found.p < 1e-4


def test_no_trend_is_seen_in_noise_more_often_than_its_level():
    draw = np.random.default_rng(1)
    seen = [trend(np.arange(60), draw.standard_normal(60)).p <= 0.05 for _ in range(400)]
    assert np.mean(seen) < 0.08


def test_a_single_value_does_not_stand_in_a_running_median():
    values = np.zeros(40)
    values[[0, 20, 39]] = 1
    assert smooth(values).max() == 0


def test_a_fall_is_told_with_its_rounds():
    values = np.concatenate([np.linspace(0.2, 0.8, 50), np.full(50, 0.2)]) + 0.01 * np.sin(np.arange(100))
    found = fall_from_best(line(values))
    assert lasting_fall(line(values)).since == 50
    assert (found.since, found.share) == (50, pytest.approx(0.75, abs=0.03)) and 40 <= found.best_round <= 50


def test_a_fall_within_the_error_of_few_questions_is_none():
    """0.10 to 0.02 at the first of ten evaluations: of 1000 questions 8 standard errors, of 50 two."""
    values = [0.1] + [0.02] * 9
    for fall in (fall_from_best, lasting_fall):
        assert fall(line(values, 1000)) and fall(line(values, 50)) is None


def test_a_small_fall_of_noisy_values_is_found_and_noise_is_none():
    """0.12 to 0.04 for half of 60 evaluations on 50 questions, whose errors are 0.046 and 0.028; and 0.08 all the
    time."""
    draw, hits, alarms = np.random.default_rng(3), 0, 0
    for _ in range(60):
        fallen = lasting_fall(line(draw.binomial(50, np.repeat([0.12, 0.04], 30)) / 50, 50))
        hits += fallen is not None and fallen.share >= 0.5
        alarms += lasting_fall(line(draw.binomial(50, np.full(60, 0.08)) / 50, 50)) is not None
    assert hits >= 45 and alarms == 0, (hits, alarms)


def test_a_peak_that_is_left_at_once_is_seen_where_its_error_is_known():
    values = [0.01, 0.41, 0.33, 0.29, 0.26, *[0.2, 0.19, 0.2, 0.18] * 10]
    assert lasting_fall(line(values, 400)).share > 0.5 and lasting_fall(line(values)).share < 0.5


def test_what_is_visible_is_two_binomial_errors():
    assert visible(0.5, 400) == pytest.approx(1.96 * np.sqrt(2 * 0.25 / 400))


def test_a_gain_starts_at_the_median_of_three_where_nothing_was_measured_before_training():
    values = np.concatenate([[0.9, 0.3, 0.3], np.full(37, 0.5)])
    for first, start in ((1, 0.3), (0, 0.9)):
        gain, _ = gained(Line("reward_mean", np.arange(first, first + 40), values, np.full(40, np.nan)))
        assert gain == pytest.approx(0.5 - start)
