"""Single numbers of the law: what one wrong index, sign or bound would change."""

import numpy as np
import pytest
from scipy.special import ndtri

from dev import law_scores as scoring
from dev.law_scores import RankedPair, forecast_errors
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast.law.curve import (
    DRAWS,
    NOISE,
    WORLDS,
    CellForecast,
    KnownRun,
    LawCurve,
    draw_ratios,
    fit_curve,
    forecast,
    learn_prior,
)
from rftlab.studies.forecast.law.noise import MeasuredNoise

SURE = MeasuredNoise(0.1, 0.0, 0.6, 0.0)


def test_each_forecast_is_held_against_its_own_design_s_truth(monkeypatch):
    """Truths differ, and the forecast stated here is each design's own: 0.01 times its number of contexts."""
    designs = tuple(Design(size, 1) for size in (8, 16, 32, 64))
    ends = np.array([0.08, 0.16, 0.32, 0.7])

    def stated(base, runs, noise, asked, *others):
        values = np.array([design.batch_size / 100 for design in asked])
        return CellForecast(values, values - 0.01, values + 0.01, values[None])

    monkeypatch.setattr(scoring, "forecast", stated)
    known = (KnownRun(designs[0], np.array([10.0]), np.array([0.08])),)
    result = RankedPair("language model", "planted", "test", (SURE.ratios,), designs, ends, 0.05, SURE, known=known)
    count, error, covered = forecast_errors(result)
    assert (count, covered) == (3, pytest.approx(2 / 3))
    assert error == pytest.approx(0.06 / 3)


def test_forecasts_stay_between_0_and_1():
    """Points about a ceiling of 1 whose residual is large: draws go beyond it, the forecast does not."""
    rounds = np.arange(10.0, 101.0, 10.0)
    wild = KnownRun(Design(32, 1), rounds, np.where(np.arange(10) % 2, 1.0, 0.6))
    result = forecast(0.5, [wild], SURE, (Design(32, 8, rounds=1000), Design(256, 8, rounds=1000)))
    assert result.high.max() == 1.0 and (result.low >= 0.0).all() and (result.values <= result.high).all()
    assert result.draws.shape == (WORLDS, 2) and DRAWS > 1


def test_a_point_at_round_0_is_no_point_of_a_fit():
    for rounds in ([0.0, 10.0], [-1.0, 10.0]):
        with pytest.raises(UserError, match="no point of a run after round 0"):
            fit_curve(0.1, [KnownRun(Design(32, 1), np.array(rounds), np.array([0.1, 0.2]))], SURE.ratios)


def test_the_residual_of_a_good_fit_is_the_noise_of_runs_and_of_a_bad_one_more():
    rounds = np.arange(10.0, 101.0, 10.0)
    flat, wild = np.full(10, 0.1), np.where(np.arange(10) % 2, 0.8, 0.2)
    good, bad = (fit_curve(0.1, [KnownRun(Design(32, 1), rounds, values)], SURE.ratios) for values in (flat, wild))
    assert good.residual == NOISE and bad.residual > 5 * NOISE
    assert bad.residual == pytest.approx(np.sqrt(np.mean((bad.at(bad.top * rounds / 100) - wild) ** 2)), rel=1e-6)


def test_draws_of_r_are_a_normal_distribution_without_what_is_below_0():
    noise, n = MeasuredNoise(0.1, 0.1, 0.5, 0.1), 4000
    r, phi = np.array(draw_ratios(noise, n)).T
    assert r.min() >= 0
    rng = np.random.default_rng(0)
    normal = rng.normal(0.1, 0.1, 400_000)
    assert r.mean() == pytest.approx(normal[normal > 0].mean(), rel=0.01)
    assert np.log(phi).mean() == pytest.approx(np.log(0.5), abs=0.01)
    assert np.log(phi).std() == pytest.approx(0.1 / 0.5, rel=0.02)
    assert np.quantile(np.log(phi / 0.5), 0.9) == pytest.approx(0.2 * ndtri(0.9), rel=0.02)


def test_a_prior_learnt_from_curves_has_their_mean_power_and_ceiling():
    curves = [LawCurve(0.1, np.array([1.0, at, ceiling]), 100.0, NOISE) for at, ceiling in ((-0.5, 0.2), (-0.1, 1.0))]
    result = learn_prior(curves)
    assert result.power == pytest.approx(np.exp(-0.3)) and result.ceiling == pytest.approx(1 / (1 + np.exp(-0.6)))
