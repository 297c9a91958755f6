"""The law on data whose answer is known: planted curves and gradients, a small simulated world, shipped runs; and
what `rftlab dev law` prints."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit, ndtri

from dev import law_scores
from dev.law_scores import RankedPair, forecast_errors, language_pairs, law_times, public_pairs, regret, score_law
from rftlab import Design, Linear, Optimizer, Simulation, UserError, preset, simulate
from rftlab.shared.effective_batch import Costs, NoiseRatios, best_split, effective_batch, time_per_round
from rftlab.sim.environments import build
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.law import curve
from rftlab.studies.forecast.law.curve import VAGUE, KnownRun, fit_curve, forecast, learn_prior
from rftlab.studies.forecast.law.noise import MeasuredNoise, combine_gradients, pilot_noise, simulate_noise
from rftlab.studies.forecast.pilot.pilot import CELLS, Gradient, pilot_from
from rftlab.studies.forecast.pilot.store import pilot_path, shipped_base, write_measurements
from rftlab.studies.forecast.score.score import rank_agreement
from tests.support.machine.here import printed, rftlab

SURE = MeasuredNoise(0.1, 0.0, 0.6, 0.0)
SMALL, LARGE = Design(32, 1, estimator=preset("minimalist")), Design(64, 8, estimator=preset("paper_text"))


CEILING = 0.8
KNOWING = VAGUE._replace(ceiling=(CEILING - 0.1) / 0.9, ceiling_spread=0.1)
"""A prior that knows the ceiling, where a test is of r."""


def planted(design: Design, noise: NoiseRatios = SURE.ratios, scale: float = 0.05, power: float = 0.7) -> KnownRun:
    rounds = np.arange(20.0, 201.0, 20.0)
    return KnownRun(design, rounds, truth(rounds * time_per_round(design, noise), scale, power))


def truth(tau: np.ndarray | float, scale: float = 0.05, power: float = 0.7) -> np.ndarray:
    return CEILING * expit(logit(0.1 / CEILING) + scale * tau**power)


def test_a_planted_curve_is_found():
    fitted = fit_curve(0.1, [planted(SMALL), planted(LARGE)], SURE.ratios)
    scale = fitted.x[0] / fitted.top**fitted.power
    assert (fitted.power, scale) == (pytest.approx(0.7, rel=0.05), pytest.approx(0.05, rel=0.15))
    assert fitted.ceiling == pytest.approx(CEILING, abs=0.02)
    assert fitted.at(np.array([50.0])) == pytest.approx(truth(50.0), abs=3e-3)


def test_other_pairs_move_the_prior_and_not_what_is_known():
    """One known end says nothing of the ceiling: there the prior's decides, and in the planted curve's reach it does
    not."""
    low, high = (VAGUE._replace(ceiling=value) for value in (0.4, 0.9))
    end = planted(SMALL)._replace(rounds=np.array([200.0]), values=planted(SMALL).values[-1:])
    far = np.array([1e5])
    one = [fit_curve(0.1, [end], SURE.ratios, prior=prior).at(far) for prior in (low, high)]
    assert one[1] > one[0] + 0.3
    both = [fit_curve(0.1, [planted(SMALL), planted(LARGE)], SURE.ratios, prior=one) for one in (low, high)]
    assert both[0].at(far) == pytest.approx(both[1].at(far), abs=0.05)
    fitted = learn_prior(both)
    assert fitted.ceiling == pytest.approx((CEILING - 0.1) / 0.9, abs=0.03) and learn_prior([]) == VAGUE


def test_one_run_tells_another_if_r_is_right():
    end = replace(LARGE, rounds=200, eval_every=200)
    target = planted(LARGE).values[-1]
    right = forecast(0.1, [planted(SMALL)], SURE, (end,), prior=KNOWING)
    wrong = forecast(0.1, [planted(SMALL)], SURE._replace(between=1.6), (end,), prior=KNOWING)
    assert abs(right.values[0] - target) < 0.05 and right.low[0] < target < right.high[0]
    assert abs(wrong.values[0] - target) > 0.08


def test_what_is_not_known_of_r_widens_the_interval():
    vague = SURE._replace(between_error=0.3)
    end = (replace(LARGE, rounds=200, eval_every=200),)
    narrow, wide = (forecast(0.1, [planted(SMALL)], noise, end, prior=KNOWING) for noise in (SURE, vague))
    assert wide.high[0] - wide.low[0] > 1.3 * (narrow.high[0] - narrow.low[0])
    again = forecast(0.1, [planted(SMALL)], vague, end, prior=KNOWING)
    assert all((a == b).all() for a, b in zip(wide[:4], again[:4], strict=True))


def test_a_run_that_does_not_fit_does_not_rule():
    broken = planted(SMALL)._replace(values=np.full(10, 0.02))
    fitted = fit_curve(0.1, [planted(LARGE), planted(replace(LARGE, batch_size=128)), broken], SURE.ratios)
    tau = 200 * time_per_round(LARGE, SURE.ratios)
    assert fitted.at(np.array([tau]))[0] == pytest.approx(planted(LARGE).values[-1], abs=0.08)


def test_curves_that_fall_and_bases_of_zero_are_fitted():
    falling = planted(SMALL)._replace(values=np.linspace(0.3, 0.1, 10))
    assert fit_curve(0.4, [falling], SURE.ratios).x[0] < 0
    assert np.isfinite(fit_curve(0.0, [planted(SMALL)], SURE.ratios).at(np.array([1.0, 1e6]))).all()


@pytest.mark.parametrize("rounds", [None, 10 * [0.0], [0.0, *9 * [10.0]], [-1.0, *9 * [10.0]]])
def test_without_a_point_after_round_0_there_is_nothing_to_fit(rounds):
    runs = [] if rounds is None else [planted(SMALL)._replace(rounds=np.array(rounds))]
    with pytest.raises(UserError, match="no point of a run after round 0"):
        fit_curve(0.1, runs, SURE.ratios)


def gradient(between: float, within: float, error: float = 0.1, group: int = 8) -> Gradient:
    return Gradient(100, group, 1.0, between, within, 0.1, error, error)


def test_noise_from_two_gradients_weighs_by_squares_of_errors():
    """Centred: noise within of .5, and the price 8/7 of its baseline; weights of 1 / 0.1^2 and 1 / 0.2^2."""
    noise = combine_gradients(gradient(0.2, 2.0, 0.1), gradient(0.4, 0.5 * 8 / 7, 0.2))
    assert (noise.between, noise.gain) == pytest.approx(((4 * 0.2 + 1 * 0.4) / 5 / 2.0, 0.25))
    assert noise.between_error == pytest.approx(1 / np.sqrt(100 + 25) / 2.0)
    assert noise.gain_error == pytest.approx(0.25 * np.sqrt((0.1 / 2.0) ** 2 + (0.2 / (0.5 * 8 / 7)) ** 2))
    exact = combine_gradients(gradient(0.2, 2.0, 0.0), gradient(0.4, 1.0))
    assert (exact.between, exact.between_error) == (0.1, 0.0)
    for raw, centred, said in (
        (gradient(0.2, 2.0), gradient(0.4, 0.5, group=1), "groups of 1"),
        (gradient(0.2, 0.0), gradient(0.4, 0.5), "without noise"),
    ):
        with pytest.raises(UserError, match=said):
            combine_gradients(raw, centred)


def test_what_is_lost_in_its_error_is_not_believed():
    assert MeasuredNoise(0.1, 0.2, -0.5, 0.1).ratios == NoiseRatios(0.1, 1.0)
    assert MeasuredNoise(0.1, 0.2, 1.5, 0.3).ratios == NoiseRatios(0.1, 1.0)  # 1.7 errors
    assert MeasuredNoise(-0.1, 0.2, 3.0, 2.0).ratios == NoiseRatios(0.0, 1.0)
    assert MeasuredNoise(0.1, 0.2, 0.3, 0.1).ratios == NoiseRatios(0.1, 0.3)


WORLD = Linear(n_train=300, n_test=20, n_features=32, n_answers=4, base_format=8.0, kappa=2.0, align=0.5, nuisance=3.0)


def test_the_simulator_s_phi_is_that_of_its_pass_rates():
    """Noise there does not depend on what was answered: phi = E[pq] / E[p]."""
    world = build(WORLD)
    noise = simulate_noise(Simulation(WORLD), world, contexts=300)
    arms = WORLD.n_arms
    probs = np.exp(world.train.base_logits[:, :arms].astype(np.float64) - world.train.base_lse[:, None])
    right = (world.train.correct[:, None] >> np.arange(arms)) & 1
    p = (probs * right).sum(axis=1)
    assert noise.gain == pytest.approx((p * (1 - p)).mean() / p.mean(), abs=3 * noise.gain_error + 0.02)
    assert noise.gain < 0.8 and noise.between_error > 0
    assert simulate_noise(Simulation(WORLD), world, contexts=300) == noise


def test_learning_moves_phi():
    world, run = build(WORLD), Simulation(WORLD, Design(32, 8, estimator=preset("paper_text"), rounds=100))
    assert simulate_noise(run, world, 100, contexts=100).gain < simulate_noise(run, world, contexts=100).gain


@pytest.mark.parametrize("dear", [0.0, 8.0])
def test_the_best_split_learns_most_in_the_simulator(dear):
    """The K of the formula against others of the same budget, r and phi from gradients of the untrained policy. Mutant:
    the K of r / 16 learns less."""
    place = replace(WORLD, n_train=1024, n_features=64, nuisance=1.0)
    world, costs, rates = build(place), Costs(dear, 1.0), {}
    noise = simulate_noise(Simulation(place), world).ratios
    chosen = best_split(noise, costs, 256, True)
    wrong = best_split(noise._replace(between=noise.between / 16), costs, 256, True)
    for k in {2, 4, 16, 64, chosen.rollouts, wrong.rollouts}:
        design = Design(int(256 // (dear + k)), k, estimator=preset("rloo"), rounds=200, eval_every=200)
        runs = (Simulation(place, design, Optimizer(learning_rate=0.004), seed=seed) for seed in range(4))
        rates[k] = float(np.mean([simulate(run, world).curve.train_pass_at_1[-1] for run in runs]))
    best = rates[chosen.rollouts]
    assert best > max(rates.values()) - 0.004 and best > max(rates[2], rates[64], rates[wrong.rollouts]) + 0.01


TINY = [one for one in language_pairs() if one.pair.startswith("tiny")]


@pytest.mark.parametrize("pair", TINY, ids=lambda one: one.pair)
def test_designs_of_the_reference_runs_are_ranked(pair):
    """With r from the pilot. Mutants: no r, r / K, and rollouts in place of tau."""
    told = score_law(pair)
    assert len(pair.designs) == 25 and told.law > 0.94 and told.law > told.rollouts + 0.1
    assert told.regret == 0
    without = law_times(pair.designs, NoiseRatios(0.0, 1.0))
    r = pair.noise[0][0]
    shared = [d.rounds * effective_batch(d.batch_size, d.rollouts, r / d.rollouts) ** 0.5 for d in pair.designs]
    assert (
        rank_agreement(without, pair.ends) < told.law - 0.1
        and rank_agreement(np.array(shared), pair.ends) < told.law - 0.1
    )


def test_two_designs_have_no_rank_and_a_forecast():
    (pair,) = [one for one in language_pairs() if one.pair == "smollm2-words"]
    assert len(pair.designs) == 3 and score_law(pair).held_out == 2
    told = score_law(pair._replace(designs=pair.designs[:2], ends=pair.ends[:2]))
    assert np.isnan(told.law) and np.isnan(told.regret) and told.held_out == 1


def test_a_forecast_sees_no_held_out_run():
    pair = TINY[0]
    seen = {run.design for run in pair.known}
    ends = np.where([design in seen for design in CELLS.values()], pair.ends, 0.0)
    n, error, covered = forecast_errors(pair._replace(ends=ends))
    assert n == 21 and covered == 0 and error > 0.3


def test_regret_is_of_designs_that_cost_alike():
    pair = TINY[0]
    assert regret(pair, NoiseRatios(0.0, 0.5)) > 0.01  # K = 256 looks best without r
    few = pair._replace(designs=pair.designs[:2], ends=pair.ends[:2])
    assert np.isnan(regret(few, pair.noise[0]))


def test_public_runs_have_no_r_and_say_so():
    (pair,) = public_pairs()
    assert len(pair.designs) == 10 and len(pair.noise) == 6 and pair.error is None
    assert score_law(pair).held_out == 0 and score_law(pair).law < 0.5


def test_r_midway_ranks_language_models_and_forecasts_them_better_than_r_of_the_base():
    for pair in language_pairs():
        if set(CELLS) <= {label(design) for design in pair.designs}:
            scored = score_law(pair)
            at_base = pilot_noise(shipped_base(pair.pair)._replace(midway=None))
            before = score_law(pair._replace(noise=(pair.base_noise,), error=at_base))
            assert scored.law > scored.at_base == before.law and scored.error < before.error


def test_each_forecast_is_held_against_its_own_design_s_truth(monkeypatch):
    """Truths differ, and the forecast stated here is each design's own: 0.01 times its number of contexts."""
    designs = tuple(Design(size, 1) for size in (8, 16, 32, 64))
    ends = np.array([0.08, 0.16, 0.32, 0.7])

    def stated(base, runs, noise, asked, *others):
        values = np.array([design.batch_size / 100 for design in asked])
        return curve.CellForecast(values, values - 0.01, values + 0.01, values[None])

    monkeypatch.setattr(law_scores, "forecast", stated)
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
    assert result.draws.shape == (curve.WORLDS, 2) and curve.DRAWS > 1


def test_the_residual_of_a_good_fit_is_the_noise_of_runs_and_of_a_bad_one_more():
    rounds = np.arange(10.0, 101.0, 10.0)
    flat, wild = np.full(10, 0.1), np.where(np.arange(10) % 2, 0.8, 0.2)
    good, bad = (fit_curve(0.1, [KnownRun(Design(32, 1), rounds, values)], SURE.ratios) for values in (flat, wild))
    assert good.residual == curve.NOISE and bad.residual > 5 * curve.NOISE
    assert bad.residual == pytest.approx(np.sqrt(np.mean((bad.at(bad.top * rounds / 100) - wild) ** 2)), rel=1e-6)


@pytest.mark.parametrize("between", [-0.1, 0.1])
def test_draws_of_r_are_a_normal_distribution_without_what_is_below_0(between):
    r, phi = np.array(curve.draw_ratios(MeasuredNoise(between, 0.1, 0.5, 0.1), 4000)).T
    assert r.min() >= 0
    normal = np.random.default_rng(0).normal(between, 0.1, 400_000)
    assert r.mean() == pytest.approx(normal[normal > 0].mean(), rel=0.01)
    assert np.log(phi).mean() == pytest.approx(np.log(0.5), abs=0.01)
    assert np.log(phi).std() == pytest.approx(0.1 / 0.5, rel=0.02)
    assert np.quantile(np.log(phi / 0.5), 0.9) == pytest.approx(0.2 * ndtri(0.9), rel=0.02)


def test_a_prior_learnt_from_curves_has_their_mean_power_and_ceiling():
    curves = [
        curve.LawCurve(0.1, np.array([1.0, at, ceiling]), 100.0, curve.NOISE)
        for at, ceiling in ((-0.5, 0.2), (-0.1, 1.0))
    ]
    result = learn_prior(curves)
    assert result.power == pytest.approx(np.exp(-0.3)) and result.ceiling == pytest.approx(1 / (1 + np.exp(-0.6)))


def test_a_measured_pair():
    _, text = rftlab("dev", "law", "--pair", "tiny-mod97")
    assert text.startswith("half way through the baseline's run, from the pilot's gradients: r = 0.1727 ± 0.07")
    assert "counts as 1" in text
    rows = [line.split() for line in text.splitlines()]
    names = [row[0] for row in rows if len(row) > 5 and row[0][0].isdigit()]
    assert names[0] == "2048x1w8" and names[-1] == "1x256" and len(names) == 25


def test_all_scores_and_the_figure(tmp_path, monkeypatch):
    few = [one for one in language_pairs() if one.pair in ("smollm2-largest", "smollm2-words")]
    monkeypatch.setattr(law_scores, "published_pairs", lambda: iter(()))
    monkeypatch.setattr(law_scores, "language_pairs", lambda: iter(few))
    text = printed(law_scores.score_all, tmp_path / "results", True, width=80)
    assert "…" not in text and text.splitlines()[1].split()[-1] == "regret"
    assert "smollm2-largest, test" in text and "no simulated pairs" in text and "1.0000*" in text
    written = {path.name for path in (tmp_path / "results" / "law").iterdir()}
    assert written == {f"{name}.{kind}" for name in ("collapse", "overview") for kind in ("svg", "png", "csv")}


def test_a_pilot_of_the_results_folder_comes_first(tmp_path):
    pilot = pilot_from(shipped_runs(), shipped_base("tiny-mod97"))
    noisy = pilot.base.raw._replace(between=4 * pilot.base.raw.between)
    place = pilot_path(tmp_path, "tiny-mod97")
    write_measurements(place, pilot._replace(base=pilot.base._replace(raw=noisy, ratios=None, midway=None)), {})
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert status == 0 and text.startswith("base model, ") and "r = 0.2" in text
    assert "forecast after 600 rounds from 32x1 raw, 32x8" in text
    write_measurements(place, pilot._replace(runs=()), {})
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert status == 0 and "r = 0.1727" in text and "forecast" not in text and "1x256" in text
    place.write_text(place.read_text()[:-40])
    status, text = rftlab("dev", "law", "--pair", "tiny-mod97", "--results", tmp_path)
    assert status == 2 and text.count("\n") == 1 and "damaged" in text
