"""Forecasts, the plain ones beside them, their scores; and that nothing is scored on what it was made from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.forecasting import SCORED
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast import forecast as module
from rftlab.studies.forecast import forecasters
from rftlab.studies.forecast import predict as prediction
from rftlab.studies.forecast.calibrate import Particles, Posterior, simulate_at
from rftlab.studies.forecast.evidence import DISCREPANCY, SEED_NOISE, TYPICAL, Evidence, Observed, OtherPair, finals
from rftlab.studies.forecast.forecast import find_pilot, forecast_designs, knob_table, request_from_pilot, spread_line
from rftlab.studies.forecast.forecasters import RAW, law, left_out_errors
from rftlab.studies.forecast.knobs import SHORT, Effort, Facts
from rftlab.studies.forecast.law.curve import CellForecast, bare
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS
from rftlab.studies.forecast.predict import (
    covariance,
    forecast_from,
    misfit,
    particle_ends,
    recommended,
    simulated_ends,
)
from rftlab.studies.forecast.run import grid_figure, left_out_text, saved_share, show_forecasts, show_posterior
from rftlab.studies.forecast.score import cases as score_cases
from rftlab.studies.forecast.score.cases import CASES, check_split, language_case, language_cases, paper_cases, split
from rftlab.studies.forecast.score.score import SOURCES, score_case, score_figure, show_scores, summary
from tests.support.machine.here import printed

DESIGNS = tuple(replace(design, rounds=40, eval_every=40) for design in CELLS.values())
FACTS = Facts(replace(SHORT, effort=Effort(64, 16, 1)), 2048, 64, 0.1, 0.5)


def observed(cell: str, ends: float, rounds: int = 40) -> Observed:
    design, at = replace(CELLS[cell], rounds=rounds, eval_every=rounds // 2), np.array([rounds // 2, rounds])
    return Observed(design, at, np.full((2, 2), ends), np.full((2, 2), 0.01), label=cell)


def posterior_at(runs: tuple[Observed, ...], sets: int = 4) -> Posterior:
    """Equal weights on a few parameter sets around the middle of the prior."""
    coordinates = 0.3 * np.random.default_rng(0).standard_normal((sets, len(SHORT.knobs)))
    particles = Particles(coordinates, np.zeros(sets), np.arange(sets))
    return Posterior(Evidence(FACTS, runs), particles, np.full(sets, 1 / sets), 1.0, np.arange(sets))


def predict(posterior, cells, seed=0, threads=1):
    """The forecast of designs, for a test of 500 questions."""
    return forecast_from(posterior, cells, simulated_ends(posterior, cells, threads), 500, seed)


def test_a_forecast_without_a_residual_is_the_simulation():
    cells, start = DESIGNS[:3], posterior_at(())
    fits = np.array([particle_ends(start, i, cells) for i in range(4)])[:, :, 1]
    runs = tuple(observed(cell, float(fits[:, i].mean())) for i, cell in enumerate(list(CELLS)[:3]))
    predicted = predict(posterior_at(runs), cells)
    np.testing.assert_allclose(simulated_ends(posterior_at(runs), cells, 1)[:, :3, 1], fits)
    np.testing.assert_allclose(predicted.values, fits.mean(axis=0), atol=0.02)
    assert (predicted.low < predicted.values).all() and (predicted.values < predicted.high).all()


def test_a_residual_is_carried_over_to_designs_like_its_own():
    """Measured 0.2 above what is simulated at (32, 8): what is not noise goes to (32, 8), most of it to (32, 16),
    next to nothing to (1, 256)."""
    names = ["32x8-paper_text", "32x16-paper_text", "1x256-paper_text"]
    cells = tuple(replace(CELLS[name], rounds=40, eval_every=40) for name in names)
    simulated = np.mean([particle_ends(posterior_at(()), i, cells[:1])[:, 1] for i in range(4)])
    posterior = posterior_at((observed(names[0], simulated + 0.2),))
    moved = predict(posterior, cells).values - simulated_ends(posterior, cells, 1)[:, :3, 1].mean(axis=0)
    share = DISCREPANCY**2 / (DISCREPANCY**2 + 2 * SEED_NOISE**2 + 0.01**2)
    assert moved[0] == pytest.approx(0.2 * share, abs=0.02) and abs(moved[2]) < 0.02
    assert 0.5 * moved[0] < moved[1] < moved[0]


def test_forecasts_do_not_depend_on_threads_and_depend_on_the_seed():
    runs = (observed(PILOT_CELLS[0], 0.2),)
    cells, ways = DESIGNS[:4], ((0, 1), (0, 2), (1, 1))
    a, b, c = (predict(posterior_at(runs), cells, seed, threads) for seed, threads in ways)
    np.testing.assert_array_equal((*a[:3], *a.draws), (*b[:3], *b.draws))
    assert not np.array_equal(a.high, c.high)


def test_the_discrepancy_is_less_between_unlike_designs_and_a_misfit_is_a_mean():
    matrix = covariance(DESIGNS, DESIGNS)
    np.testing.assert_allclose(np.diag(matrix), DISCREPANCY**2)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12
    # a group of one has the raw reward, with a window it has not
    raw, grpo = (CELLS[name] for name in ("256x1-paper_text", "256x1w8-paper_text"))
    assert covariance([raw], [grpo])[0, 0] < DISCREPANCY**2
    run = observed(RAW, 0.5)
    half = run._replace(values=np.column_stack([np.full(2, np.nan), np.full(2, 0.5)]))
    ends = np.array([[[0.1, 0.4], [0.9, 0.3]], [[0.3, 0.4], [0.9, 0.3]]])
    assert misfit(posterior_at((run, half), sets=2), ends) == pytest.approx((0.3 + 0.1 + 0.2) / 3)
    assert misfit(posterior_at((), sets=2), ends[:, :0]) == 0.0


def test_still_takes_the_nearest_run_and_gain_adds_what_others_gained():
    known = (("32x1-minimalist", 0.2), ("32x8-paper_text", 0.5), ("256x1-paper_text", 0.7))
    evidence = Evidence(FACTS, tuple(observed(*run) for run in known))
    cells = tuple(CELLS[name] for name in ("32x2w8-paper_text", "1x256-paper_text", "2048x1w8-paper_text"))
    np.testing.assert_allclose(forecasters.still(evidence, cells).values, [0.2, 0.6, 0.6])
    cells = tuple(CELLS[name] for name in ("32x8-paper_text", "64x8-paper_text"))
    designs = (CELLS[RAW], *cells)
    tests = np.array([[0.5, 0.6, 0.9], [0.3, 0.2, 1.0]])
    others = tuple(OtherPair(np.zeros(2), designs, np.stack([1 - ends, ends], axis=1)) for ends in tests)
    evidence = Evidence(FACTS, (observed(RAW, 0.4),), others=others)
    np.testing.assert_allclose(forecasters.gain(evidence, cells).values, [0.4, 0.95])
    np.testing.assert_allclose(forecasters.gain(evidence, cells, "train").values, [0.4, 0.0])
    assert forecasters.gain(evidence._replace(runs=(observed(RAW, 0.9),)), cells).values[1] == 1.0
    for nothing in (evidence._replace(others=()), evidence._replace(runs=(observed("32x8-paper_text", 0.9),))):
        assert np.isnan(forecasters.gain(nothing, cells).values).all()
    assert np.isnan(forecasters.gain(evidence, (CELLS["32x64-paper_text"],)).values).all()


def test_the_saturating_curve_is_found_where_it_is_planted():
    """R0 = 0.1, A = 0.8, middle at 5,000 rollouts, exponent 1.3."""

    def truth(spent):
        return 0.1 + 0.7 / (1 + (5000 / spent) ** 1.3)

    def whole(*names):
        return [replace(CELLS[name], rounds=600) for name in names]

    at, runs = np.arange(100, 700, 100), []
    for cell in whole("32x1-minimalist", "32x8-paper_text"):
        values = np.repeat(truth(at * cell.round_rollouts)[:, None], 2, axis=1)
        runs.append(Observed(cell, at, values, np.full((6, 2), 0.01)))
    cells = whole("64x8-paper_text", "32x4w8-paper_text")
    forecast = forecasters.sigmoid(Evidence(FACTS, tuple(runs)), cells).values
    np.testing.assert_allclose(forecast, truth(600 * np.array([512, 128])), atol=1e-3)
    few = Evidence(FACTS, (runs[0]._replace(rounds=at[:2], values=runs[0].values[:2]),))
    assert np.isnan(forecasters.sigmoid(few, cells).values).all()


def test_the_law_s_forecast_goes_by_tau_and_by_what_other_pairs_did():
    """More responses to as many prompts are worth more rounds; a pair without a base model or a point says nothing; a
    ceiling of others bounds what two points leave open."""
    names = ("32x1-minimalist", "32x8-paper_text", "2048x1w8-paper_text")
    cells = tuple(replace(CELLS[name], rounds=40, eval_every=40) for name in names)
    rising = observed(RAW, 0.2)._replace(values=np.array([[0.15, 0.15], [0.2, 0.2]]))
    evidence = Evidence(FACTS, (rising,))
    by_law = law(evidence, cells)
    assert (np.diff(by_law.values) > 0).all() and abs(by_law.values[0] - 0.2) < 0.05
    assert (by_law.low < by_law.values).all() and (by_law.values < by_law.high).all()
    others = tuple(OtherPair(np.full(2, 0.1), cells, np.full((3, 2), end)) for end in (0.23, 0.25))
    assert law(evidence._replace(others=others), cells).values[2] < by_law.values[2] - 0.1
    unknown = evidence._replace(facts=replace(FACTS, strict=None, formed=None))
    assert np.isnan(law(unknown, cells).values).all() and law(unknown, cells).draws is None
    low = evidence._replace(runs=(observed(RAW, 0.1), observed("32x8-paper_text", 0.3)))
    high = evidence._replace(runs=(observed(RAW, 0.2), observed("32x8-paper_text", 0.5)))
    assert (law(low, DESIGNS).values < law(high, DESIGNS).values).all()
    assert np.isnan(law(evidence._replace(runs=()), cells).values).all()


def test_the_law_is_asked_where_worlds_do_not_fit_and_the_known_runs_decide():
    cells = DESIGNS[:2]
    ends = np.mean([particle_ends(posterior_at(()), i, DESIGNS[:1]) for i in range(4)], axis=0)[0]
    close, far = (observed(next(iter(CELLS)), float(ends[1]) + shift) for shift in (0.01, 0.5))
    by_law = law(Evidence(FACTS, (far,)), cells)
    for run, source in ((close, "simulator"), (far, "law")):
        predicted = predict(posterior_at((run,)), cells)
        assert (predicted.misfit > prediction.MISFIT) == (source == "law")
        named, chosen = recommended(predicted, by_law)
        assert named == source
        np.testing.assert_array_equal(chosen.values, by_law.values if source == "law" else predicted.values)
    assert recommended(predicted, bare(np.full(2, np.nan)))[0] == "simulator" and recommended(None, by_law)[0] == "law"


def test_runs_that_end_alike_make_the_law_a_guess_and_ends_that_rise_with_the_batch_do_not():
    names = (RAW, "32x8-paper_text", "256x1w8-paper_text", "2048x1w8-paper_text")
    alike = Evidence(FACTS, tuple(observed(name, end) for name, end in zip(names, (0.39, 0.4, 0.41, 0.4), strict=True)))
    apart = Evidence(FACTS, tuple(observed(name, end) for name, end in zip(names, (0.2, 0.3, 0.5, 0.8), strict=True)))
    law_error, mean_error = left_out_errors(alike)
    assert law_error > mean_error and mean_error < 0.02 and "is a guess" in left_out_text(alike)
    law_error, mean_error = left_out_errors(apart)
    assert law_error < mean_error and "guess" not in left_out_text(apart)
    assert "not tested" in left_out_text(apart._replace(runs=apart.runs[:2]))


def true_and_false() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The shipped runs, and the same with another number where a pilot of tiny-mod97 must not look."""
    true = shipped_runs()
    hidden = (true["pair"] == "tiny-mod97") & (~true["cell"].isin(PILOT_CELLS) | (true["seed"] > 0))
    changed = {name: true[name].mask(hidden, 0.33) for name in ("test_pass_at_1", "train_pass_at_1")}
    return true, true.assign(**changed)


def test_nothing_held_out_reaches_a_forecast(monkeypatch, tmp_path):
    """Other truths give the same forecasts, bit for bit, and other errors. A case that knows a held-out cell is
    refused."""
    pairs, few = ["tiny-mix97", "tiny-mod97"], ("32x16-paper_text", "64x4-paper_text")
    monkeypatch.setattr("rftlab.studies.forecast.evidence.SHORT", FACTS.family)
    tables = []
    for curves in true_and_false():
        case = only(language_case(curves, "tiny-mod97", pairs), few)
        tables.append(score_case(tmp_path / str(len(tables)), case, 0, 1))
    for name in (*SOURCES, "forecast_low", "simulator_high", "law_low", "law_high"):
        np.testing.assert_array_equal(tables[0][name], tables[1][name])
        assert tables[0][name].notna().all()
    assert (tables[0]["truth"] != tables[1]["truth"]).all()
    leaking = case._replace(cells=case.cells | {PILOT_CELLS[1]: CELLS[PILOT_CELLS[1]]})
    with pytest.raises(UserError, match="32x8-paper_text is held out, and the evidence knows it"):
        score_case(tmp_path, leaking, 0, 1)


def test_a_leak_would_be_seen(monkeypatch):
    """The law's forecast does not move with hidden numbers; it does with a split that hands out a hidden seed."""

    def forecasts() -> list[np.ndarray]:
        cases = (language_case(curves, "tiny-mod97", ["tiny-mix97", "tiny-mod97"]) for curves in true_and_false())
        return [law(case.evidence, DESIGNS[:3]).values for case in cases]

    np.testing.assert_array_equal(*forecasts())

    def leaking(curves, pair, known, seed):
        own = curves[(curves["pair"] == pair) & curves["cell"].isin(known)]
        return own[own["seed"] == 1].assign(seed=seed), split(curves, pair, known, seed)[1]

    monkeypatch.setattr("rftlab.studies.forecast.score.cases.split", leaking)
    first, second = forecasts()
    assert np.abs(first - second).max() > 0.05


def test_cases_hold_out_all_but_the_pilot_and_all_but_experiment_1():
    for case in language_cases(shipped_runs()):
        check_split(case)
        assert set(case.cells) == set(CELLS) - set(PILOT_CELLS) and len(case.evidence.others) == 2
    parts = score_cases.partial_cases(shipped_runs())
    cases = [("smollm2-largest", 0), *(("smollm2-words", seed) for seed in range(3))]
    assert [part.pair for part in parts] == [f"{pair} seed {seed}" for pair, seed in cases]
    for (pair, seed), part in zip(cases, parts, strict=True):
        check_split(part)
        assert (part.known, part.seed, tuple(part.cells)) == ((RAW,), seed, ("32x8-paper_text", "8x32-paper_text"))
        own = shipped_runs().query("cell == @RAW and seed == @seed and round > 0")
        known = own[own["pair"] == pair]
        np.testing.assert_array_equal(part.evidence.runs[0].values[:, 1], known["test_pass_at_1"])
        assert len(part.evidence.runs) == 1
    assert len(paper_cases()) == 6
    for case in paper_cases():
        check_split(case)
        assert case.known == (RAW,) and len(case.cells) == 7 and len(case.evidence.runs) == 1
        assert all(set(case.truth[part].columns) == set(case.cells) for part in ("train", "test"))
        assert len(case.evidence.others) == 2
    assert [case.pair for case in CASES["public"]()] == ["pods amc23", "pods gsm8k", "pods math500"]
    for case in CASES["public"]():
        check_split(case)
        assert not case.simulated and len(case.evidence.runs) == 1 and len(case.cells) == 9
        assert case.evidence.noise == TYPICAL and case.evidence.others == ()
    assert tuple(CASES) == SCORED


def test_a_seed_that_was_not_run_is_no_failed_one():
    """A run that ended early counts as 0."""
    curves, (first, second) = shipped_runs(), ("32x16-paper_text", "64x4-paper_text")
    own = (curves["pair"] == "tiny-mix97") & (curves["cell"] == first)
    fewer = curves[~(own & (curves["seed"] == 2))]
    ended = curves[~(own & (curves["seed"] == 2) & (curves["round"] > 300))]
    (whole, part, failed) = (finals(frame, "tiny-mix97")[[first, second]] for frame in (curves, fewer, ended))
    assert whole.notna().all(axis=None) and part.isna().sum().tolist() == [1, 0]
    pd.testing.assert_series_equal(part[first].dropna(), whole[first].iloc[:2])
    pd.testing.assert_series_equal(part[second], whole[second])
    assert failed.loc[2, first] == 0 and failed.notna().all(axis=None)


def only(case, few: tuple[str, ...]):
    """The case with some of its held-out cells."""
    truth = {part: table[list(few)] for part, table in case.truth.items()}
    return case._replace(cells={name: case.cells[name] for name in few}, truth=truth)


def made_up_scores() -> pd.DataFrame:
    truth = np.linspace(0.1, 0.9, 8)
    table = pd.DataFrame({"split": "test", "cell": list(CELLS)[:8], "source": "simulator", "truth": truth})
    for name, off in (("forecast", 0.01), ("simulator", 0.05), ("law", 0.03), ("curve", 0.04)):
        values = truth + off
        sides = {f"{name}_low": values - 0.1, f"{name}_high": values + 0.1, f"{name}_covered": 1.0}
        table = table.assign(**{name: values}, **sides)
    table = table.assign(steps=truth + 0.06, still=0.5, gain=truth[::-1], sigmoid=truth + 0.02)
    return pd.concat([table.assign(pair="tiny-mix97"), table.assign(pair="tiny-mod97")], ignore_index=True)


def test_a_summary_knows_errors_ranks_regret_and_paired_intervals_and_figures_all_cells():
    rows = summary(made_up_scores()).set_index("forecast")
    assert rows.loc["forecast", ["mae", "spearman"]].tolist() == pytest.approx([0.01, 1])
    assert rows.loc["gain", ["spearman", "regret"]].tolist() == pytest.approx([-1, 0.8])
    assert rows.loc["sigmoid", ["excess", "excess_low"]].tolist() == pytest.approx([0.01, 0.01])
    assert rows.loc["still", "excess_low"] > 0
    table = made_up_scores()
    chart, numbers = score_figure(table)
    assert len(chart.panels) == 2 and len(numbers) == len(table)
    grid = table[:8].assign(rollouts=1000, measured=np.nan, low=table["forecast_low"], high=table["forecast_high"])
    assert len(grid_figure(grid, "tiny-mix97")[1]) == 8


def test_printed_scores_have_no_nan_and_fit_a_terminal_of_80_columns():
    table = made_up_scores()[:1]
    rows = summary(table)
    assert rows[["spearman", "excess_low", "excess_high"]].isna().all(axis=None) and rows["mae"].notna().all()
    assert "nan" not in printed(show_scores, table, rows, width=80)
    names = [f"{model}-{dataset}" for model in ("qwen", "llama", "olmo") for dataset in ("gsm8k", "math")]
    own = made_up_scores().query("pair == 'tiny-mod97'")
    table = pd.concat([own.assign(pair=name) for name in names])
    lines = printed(show_scores, table, summary(table), width=80).splitlines()
    assert sum(line.split() == ["forecast", *["0.010"] * 6] for line in lines) == 1
    assert not [line for line in lines if "…" in line] and sum(line.count("gsm8k") for line in lines) == 3


def test_a_grid_recommends_within_the_budget(monkeypatch, tmp_path):
    monkeypatch.setattr("rftlab.studies.forecast.evidence.SHORT", FACTS.family)
    pilot = find_pilot(tmp_path, "tiny-mod97")._replace(rounds=40)
    posterior = posterior_at((observed(PILOT_CELLS[0], 0.2), observed(PILOT_CELLS[1], 0.4)), sets=2)
    request = request_from_pilot(pilot)
    simulated = predict(posterior, tuple(request.designs.values()), threads=2)
    grid = forecast_designs(request, simulated, 40 * 256)
    table = grid.table.set_index("cell")
    assert table.loc[grid.recommended, "in_budget"] and not table.loc["2048x1w8-paper_text", "in_budget"]
    assert np.isnan(table.loc["2048x1w8-paper_text", "best"]) and 0 <= table.loc[grid.recommended, "best"] <= 1
    unpaid = 0.0 if grid.recommended in PILOT_CELLS else table.loc[grid.recommended, "share"]
    assert table.loc["2048x1w8-paper_text", "share"] == pytest.approx(2048 / 12288)
    assert saved_share(grid, request) == pytest.approx(1 - pilot.fraction - unpaid)
    assert set(table["measured"].dropna().index) == set(PILOT_CELLS)
    with pytest.raises(UserError, match="budget = 5 rollouts; allowed: 1280 or more"):
        forecast_designs(request, simulated, 5)
    text = printed(show_forecasts, grid, request, width=80)
    rows = text.splitlines()[2 : 2 + len(CELLS)]
    assert [row.split()[0] for row in rows] == [label.split("-")[0] for label in CELLS], "a row each, in 80 columns"
    assert "recommended" in text and printed(show_posterior, posterior, pilot.base.pair, width=80)
    assert "spread of the base model's pass rates over questions: measured 0." in spread_line(posterior, pilot)


@pytest.mark.parametrize(("ahead", "cost"), [(0.015, "cheapest"), (0.05, "dearest")])
def test_a_dearer_design_is_recommended_only_where_its_forecast_is_ahead(ahead, cost, tmp_path):
    request = request_from_pilot(find_pilot(tmp_path, "tiny-mod97"))
    spent = [design.rounds * design.round_rollouts for design in request.designs.values()]
    values = np.where(np.array(spent) == max(spent), 0.5 + ahead, 0.5)
    made = forecast_designs(request, CellForecast(values, values - 0.1, values + 0.1, values[None], 0.0))
    chosen = made.table.set_index("cell").loc[made.recommended, "rollouts"]
    assert chosen == {"cheapest": min(spent), "dearest": max(spent)}[cost]


def test_a_posterior_varies_worlds_and_training_and_keeps_the_prior_of_what_nothing_taught():
    posterior = posterior_at((), sets=4000)
    wide = posterior._replace(particles=posterior.particles._replace(coordinates=posterior.particles.coordinates / 0.3))
    rows, prior = knob_table(posterior).set_index("knob"), knob_table(wide).set_index("knob")
    assert prior["left"].between(0.9, 1.1).all() and rows["left"].between(0.27, 0.33).all()
    assert prior.loc["rate", "median"] == pytest.approx(prior.loc["rate", "prior"], rel=0.1)
    evidence = Evidence(FACTS, ())
    a, b = (simulate_at(evidence, np.zeros(len(SHORT.knobs)), seed) for seed in (1, 2))
    assert (a.seed, a.environment.world_seed) == (1, 1) and (b.seed, b.environment.world_seed) == (2, 2)


def test_a_pilot_is_made_of_the_reference_runs_and_its_base_model_must_be_right_once(tmp_path):
    assert [run.cell for run in find_pilot(tmp_path, "smollm2-words").runs] == ["32x1-minimalist", "32x8-paper_text"]
    assert {run.cell for run in find_pilot(tmp_path, "tiny-mix97").runs} == set(PILOT_CELLS)
    with pytest.raises(UserError, match=r"pilot\.json is missing; run `rftlab pilot --pair qwen-gsm8k"):
        find_pilot(tmp_path, "qwen-gsm8k")
    pilot = find_pilot(tmp_path, "tiny-mix97")
    train, test = (answers._replace(strict=0 * answers.strict) for answers in (pilot.base.train, pilot.base.test))
    with pytest.raises(UserError, match="nothing to calibrate"):
        wrong = request_from_pilot(pilot._replace(base=pilot.base._replace(train=train, test=test)))
        module.calibrated_to(Console(), wrong, tmp_path, 0, 1, True)
