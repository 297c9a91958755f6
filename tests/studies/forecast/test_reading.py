"""Forecasts at other learning rates, batches and updates: the known curve, read where a design has learned for as
long."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rftlab import Design, preset
from rftlab.shared.effective_batch import NoiseRatios, design_batch
from rftlab.studies.forecast import forecasters
from rftlab.studies.forecast.evidence import UNMEASURED, Evidence, Observed, RepeatSpread
from rftlab.studies.forecast.forecasters import QUICK, RATE_POWERS, curve, law, rate_powers, steps
from rftlab.studies.forecast.knobs import SHORT, Facts
from rftlab.studies.forecast.law.noise import MeasuredNoise

FACTS = Facts(SHORT, 2048, 64, 0.1, 0.5)
ROUNDS = np.array([50, 100, 200, 400])
SURE = MeasuredNoise(0.05, 0.0, 0.5, 0.01)


def design(rounds: int, batch_size: int = 32, **parts) -> Design:
    return Design(batch_size, 8, estimator=preset("grpo"), rounds=rounds, eval_every=rounds, **parts)


def observed(values, rate: float | None = 1e-5, rounds=ROUNDS, **more) -> Observed:
    values = np.repeat(np.asarray(values, dtype=float)[:, None], 2, axis=1)
    return Observed(design(400), np.asarray(rounds), values, np.full(values.shape, 0.01), learning_rate=rate, **more)


def evidence(rate: float | None = 1e-5, **more) -> Evidence:
    """A run that rises from .1 to .5."""
    return Evidence(FACTS, (observed([0.2, 0.28, 0.38, 0.5], rate),), noise=SURE, precision="fp32")._replace(**more)


def law_at(rate: float | None, rounds: int, known: float | None = 1e-5) -> float:
    return float(law(evidence(known), (design(rounds),), rates=(rate,)).values[0])


@pytest.mark.parametrize("times", [0.25, 0.5, 2.0])
def test_a_rate_is_worth_as_many_rounds(times):
    there = law_at(1e-5 * times, 200)
    assert there == pytest.approx(law_at(None, round(200 * times)), abs=0.01)
    assert (there > law_at(None, 200) + 0.03) == (times > 1) and (there < law_at(None, 200) - 0.03) == (times < 1)


def test_cells_at_rates_of_their_own_are_forecast_together_as_alone_and_unknown_rates_change_nothing():
    plain = law_at(None, 200)
    assert law_at(None, 200, known=None) == law_at(2e-5, 200, known=None) == law_at(1e-5, 200) == plain
    cells, rates = tuple(design(200, size) for size in (8, 32, 64, 128)), (None, 2e-5, None, 2e-5)
    for name in ("law", "curve", "steps", "still"):
        mixed = QUICK[name](evidence(), cells, "test", rates).values
        alone = [QUICK[name](evidence(), cells[i : i + 1], "test", rates[i : i + 1]).values[0] for i in range(4)]
        np.testing.assert_allclose(mixed, alone, atol=0.01)


def test_the_curve_is_read_at_equal_time():
    """By hand: rounds, the root of the effective batch, a power of the rate and the fourth root of the updates."""
    cells = (design(100), design(100, 64), design(100, epochs=4, minibatches=4), design(100))
    rates = (1e-5, 1e-5, 1e-5, 5e-6)
    known = evidence(noise=SURE._replace(gain_error=0.0))
    ratios = NoiseRatios(SURE.between, SURE.gain)
    power = np.median(rate_powers(known))
    batches = np.sqrt(design_batch(cells[1], ratios) / design_batch(cells[0], ratios))
    at = [100, 100 * batches, 100 * 16**0.25, 100 * 0.5**power]
    expected = np.interp(at, [0, *ROUNDS], [0.1, 0.2, 0.28, 0.38, 0.5])
    np.testing.assert_allclose(curve(known, cells, rates=rates).values, expected, atol=2e-3)
    expected = np.interp([100, 100, 100, 50], [0, *ROUNDS], [0.1, 0.2, 0.28, 0.38, 0.5])
    np.testing.assert_allclose(steps(known, cells, rates=rates).values, expected)
    assert curve(known, (design(4000),)).values == [0.5], "a curve is not continued"


def test_the_power_of_the_rate_is_found_where_it_is_planted():
    """Runs at four rates whose curves meet at rounds x rate^1.8; one run alone has the prior of its precision."""
    rounds, rates = np.arange(10, 201, 10), (1e-5, 2e-5, 4e-5, 8e-5)
    planted = [observed(0.1 + 0.7 * -np.expm1(-rounds * (rate / 4e-5) ** 1.8 / 60), rate, rounds) for rate in rates]
    known = evidence(runs=tuple(planted), precision=None)
    low, middle, high = np.quantile(rate_powers(known), [0.1, 0.5, 0.9])
    assert low < middle < high and abs(middle - 1.8) < 0.2 and high - low < 0.5
    alone = rate_powers(known._replace(runs=tuple(planted[:1]), precision="fp32"))
    assert np.median(alone) == pytest.approx(1.0, abs=0.03)
    assert np.std(alone) == pytest.approx(RATE_POWERS["fp32"][1], rel=0.2)


def test_intervals_are_those_of_repeats():
    """At the end of a known run: Student's t about it, wider by the errors of both runs."""
    for repeats in (RepeatSpread(), RepeatSpread(20 * 0.01**2, 20)):
        for behind in (1, 10):
            runs = (observed([0.2, 0.28, 0.38, 0.5], behind=behind),)
            one = curve(evidence(repeats=repeats, runs=runs), (design(400),))
            half = stats.t.ppf(0.9, repeats.freedom) * repeats.deviation * np.sqrt(1 + 1 / behind)
            assert (one.high - one.low) / 2 == pytest.approx(half, rel=0.03)
    assert RepeatSpread().deviation == UNMEASURED[0]
    assert RepeatSpread(1e6 * 0.01**2, 10**6).deviation == pytest.approx(0.01, rel=0.01)


def test_the_nearest_run_that_got_there_is_read_and_updates_of_imported_runs_count_alike():
    slow = observed([0.12, 0.15, 0.2, 0.3], 1e-5)
    fast = observed([0.3, 0.4, 0.5, 0.6], 4e-5)
    known = evidence(runs=(slow, fast))
    assert steps(known, (design(400),), rates=(2e-5,)).values == [0.5], "200 rounds of the fast run, not the slow end"
    assert steps(known, (design(100),), rates=(1.5e-5,)).values == pytest.approx([0.175]), "150 rounds of the slow run"
    fell = observed([0.3, 0.1, 0.0, 0.0], 1e-4)
    assert len(forecasters.timed_runs(known._replace(runs=(slow, fast, fell)), "test")) == 2
    cells = (design(100), replace(design(100), epochs=4))
    theirs, ours = (law(evidence(imported=one), cells).values for one in (True, False))
    assert ours[1] - ours[0] > theirs[1] - theirs[0] + 0.05 > 0.05
