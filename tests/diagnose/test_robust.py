"""Statistics of noisy series against what is known of them."""

import numpy as np
import pytest

from rftlab.studies.analysis.diagnose.observed import Line, noise, smooth, trend
from rftlab.studies.analysis.diagnose.progress import gained, visible
from rftlab.studies.analysis.diagnose.stability import _error, _of_median, fall_from_best, lasting_fall


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


def test_errors_of_medians_and_of_rates_are_those_of_a_simulation():
    draw = np.random.default_rng(4).standard_normal((6000, 65))
    assert _of_median(65) == pytest.approx(np.median(draw, axis=1).var(), rel=0.1) and _of_median(1) == 1.0
    assert _error(line(np.full(20, 0.2), 400), 3) == pytest.approx(np.sqrt(2 / 3) * 0.02)
    assert visible(0.5, 400) == pytest.approx(1.96 * np.sqrt(2 * 0.25 / 400)), "two binomial errors"


def test_a_trend_is_not_moved_by_outliers_and_none_is_seen_in_noise_more_often_than_its_level():
    values = 0.01 * np.arange(100.0)
    values[[10, 50, 90]] = 100
    found = trend(np.arange(100), values)
    assert found.slope == pytest.approx(0.01, rel=0.1) and found.low <= found.slope <= found.high and found.p < 1e-4
    draw = np.random.default_rng(1)
    assert np.mean([trend(np.arange(60), draw.standard_normal(60)).p <= 0.05 for _ in range(400)]) < 0.08
    single = np.zeros(40)
    single[[0, 20, 39]] = 1
    assert smooth(single).max() == 0, "a single value does not stand in a running median"


def test_a_fall_is_told_with_its_rounds_and_none_within_the_error_of_few_questions():
    values = np.concatenate([np.linspace(0.2, 0.8, 50), np.full(50, 0.2)]) + 0.01 * np.sin(np.arange(100))
    found = fall_from_best(line(values))
    assert lasting_fall(line(values)).since == 50
    assert (found.since, found.share) == (50, pytest.approx(0.75, abs=0.03)) and 40 <= found.best_round <= 50
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


def test_a_gain_starts_at_the_median_of_three_where_nothing_was_measured_before_training():
    values = np.concatenate([[0.9, 0.3, 0.3], np.full(37, 0.5)])
    for first, start in ((1, 0.3), (0, 0.9)):
        gain, _ = gained(Line("reward_mean", np.arange(first, first + 40), values, np.full(40, np.nan)))
        assert gain == pytest.approx(0.5 - start)
