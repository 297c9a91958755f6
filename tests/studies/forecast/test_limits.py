"""Forecasts end where measurements do; what nobody measured is guessed and said; repeats are averaged at common
rounds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rftlab import Advantage, Aggregation, Design, Estimator, UserError
from rftlab.studies.analysis.imported.groups import group_runs, mean_curve
from rftlab.studies.analysis.public.settings import alike_settings, usual_edge
from rftlab.studies.forecast.evidence import Evidence, Observed
from rftlab.studies.forecast.forecasters import law
from rftlab.studies.forecast.imported import guessed_base, imported_evidence
from rftlab.studies.forecast.knobs import SHORT, Facts
from rftlab.studies.forecast.law.curve import CellForecast, KnownRun
from rftlab.studies.forecast.law.limits import FAILING, beyond, may_hold
from rftlab.studies.forecast.predict import all_forecasts, recommended
from rftlab.studies.forecast.score.cases import cases_named
from rftlab.studies.forecast.score.score import score_case
from rftlab.studies.readers import read_logs
from tests.support.logs.reading import collection, run_of
from tests.support.machine.here import refused, shown
from tests.support.web.reports import without_script

FACTS = {"prompts_per_round": 32, "rollouts_per_prompt": 8, "updates_per_round": 1, "advantage": "group_mean"}
FACTS |= {"learning_rate": 1e-5}
RISE = {0: 0.1, 10: 0.3, 20: 0.4, 30: 0.45, 40: 0.48}
LATE = {at: value for at, value in RISE.items() if at}
SPOILT = ({0: 0.1, 10: 0.05, 20: 0.0, 30: 0.0, 40: 0.0}, {"learning_rate": 1e-3})
GROUP, RAW = Advantage("group_mean"), Advantage("none")


def kept(folder: Path, runs: dict[str, tuple[dict[int, float], dict]], n: int | None = 500) -> Path:
    """Keep runs, each its test values by round and its cells of runs.csv, as `imported:c`."""
    known = {name: FACTS | cells for name, (_, cells) in runs.items()}
    return collection(folder, "c", {name: {"t": curve} for name, (curve, _) in runs.items()}, known, n)


def predicted(results: Path, *arguments: str, pair: str = "imported:c") -> tuple[str, pd.DataFrame]:
    """What `rftlab predict --quick` prints, and its table."""
    text = shown("predict", "--pair", pair, "--quick", "--results", results, *arguments)
    (place,) = results.glob("forecast/*/forecast.csv")
    table = pd.read_csv(place, keep_default_na=False, na_values=[""]).set_index("cell")
    return text, table.sort_values("forecast", ascending=False)


def design(batch: int = 32, rollouts: int = 8, advantage: Advantage = GROUP, kind="seq_mean_token_sum", **more):
    return Design(batch, rollouts, estimator=Estimator(advantage=advantage, aggregation=Aggregation(kind)), **more)


def tried(*values: float, rate: float | None = 1e-5, **parts) -> KnownRun:
    errors = np.full(len(values), 0.01)
    return KnownRun(design(**parts), np.arange(len(values)), np.array(values), errors, rate)


GOOD = tried(0.1, 0.3, 0.5)


@pytest.mark.parametrize(
    ("asked", "rate", "words"),
    [
        (design(), 1e-5, ""),
        (design(256), 1.5e-5, ""),
        (design(8), 1e-7, ""),
        (design(), 1.6e-5, "a learning rate of 1.6e-05, more than 1.5 times 1e-05"),
        (design(), 0.01, "a learning rate of 0.01"),
        (design(advantage=RAW, kind="seq_mean_token_mean"), None, "the raw reward with a mean over responses"),
        (design(rollouts=1, advantage=RAW, kind="seq_mean_token_mean"), None, "the raw reward with a mean over"),
        (design(advantage=RAW), None, ""),
        (design(advantage=RAW, kind="token_mean"), None, ""),
        (design(kind="seq_mean_token_mean"), None, ""),
        (design(rollouts=1), None, "no baseline"),
        (design(rollouts=1, advantage=Advantage("leave_one_out")), None, "no baseline"),
        (design(rollouts=1, support_rollouts=7), None, ""),
        (design(rollouts=1, replay_window=8), None, ""),
        (design(rollouts=1, advantage=RAW), None, ""),
        (design(epochs=4), None, ""),
        (design(epochs=5), None, "5 updates a round"),
        (design(256, epochs=16), None, "16 updates a round"),
        (design(minibatches=8), None, "8 updates a round"),
        (design(8192, minibatches=32), None, ""),
    ],
)
def test_each_limit_is_said_in_words(asked, rate, words):
    warning = beyond(asked, rate, [GOOD])
    assert warning.count("; ") == 0 and (words in warning if words else warning == "")


def test_what_was_measured_and_held_is_not_outside():
    raw = {"advantage": RAW, "kind": "seq_mean_token_mean"}
    assert beyond(design(**raw), 1e-5, [tried(0.1, 0.5, **raw)]) == ""
    assert "raw reward" in beyond(design(64, **raw), 1e-5, [tried(0.1, 0.5, **raw)])
    assert beyond(design(64, epochs=8), None, [tried(0.1, 0.5, epochs=8)]) == ""
    assert beyond(design(256, 1), None, [tried(0.1, 0.5, rollouts=1, advantage=RAW)]) == ""


@pytest.mark.parametrize("failed", [(0.1, 0.5, 0.02), (0.1, 0.15, 0.2)])
def test_a_rate_that_failed_is_no_support(failed):
    """A run that fell, or that ends far below one at a lower rate, does not raise the highest rate; alone it supports
    nothing."""
    runs = [GOOD, tried(*failed, rate=1e-4)]
    for rate in (2e-5, 1e-4, 1.2e-4):
        assert "times 1e-05, the highest that held" in beyond(design(), rate, runs)
    assert beyond(design(), 1e-5, runs) == ""
    assert beyond(design(), 1e-5, [tried(0.1, 0.5, 0.02)]) == "no known run held what it had learnt"
    assert beyond(design(), None, [tried(0.02, 0.01)]) == "", "a fall within its errors is none"


def test_limits_hold_for_whoever_forecasts():
    """The simulator's and the law's forecast alike: low, wide, and never above a design that was measured."""
    run = Observed(design(), np.array([10, 20]), np.array([[0.3, 0.3], [0.5, 0.5]]), np.full((2, 2), 0.01), 1e-5)
    evidence = Evidence(Facts(SHORT, 2048, 64, 0.1, 0.5), (run,))
    cells, rates = (design(rounds=20, eval_every=20),) * 2, (1e-5, 1e-3)
    _, far, _ = all_forecasts(evidence, cells, rates=rates)
    assert far[0] == "" and far[1] != ""
    plain = CellForecast(np.array([0.5, 0.9]), np.array([0.4, 0.8]), np.array([0.6, 0.95]), np.full((3, 2), 0.9))
    choice = recommended(None, plain, far)[1]
    assert choice.values.tolist() == [0.5, FAILING[0]] and choice.low.tolist() == [0.4, 0] and choice.high[1] == 0.95


@pytest.mark.parametrize(
    ("asked", "rate", "edge", "holds"),
    [
        (design(), 3e-5, 7e-5, True),
        (design(), 7e-5, 7e-5, False),
        (design(), 3e-5, float("nan"), False),
        (design(epochs=16), 3e-5, 7e-5, False),
        (design(), None, 7e-5, False),
    ],
)
def test_a_higher_rate_may_hold_below_that_from_which_public_runs_fail(asked, rate, edge, holds):
    assert may_hold(asked, rate, [GOOD], edge) == holds


def test_what_may_hold_gets_the_forecast_of_the_law_and_an_interval_from_0():
    two = np.array([0.5, 0.5])
    curve = CellForecast(two, two - 0.1, two + 0.1, np.full((3, 2), 0.5))
    for by_law, value, high in ((0.7, 0.7, 0.8), (np.nan, 0.5, 0.6)):
        end = np.array([by_law, by_law])
        _, choice = recommended(None, CellForecast(end, end - 0.1, end + 0.1, None), ("", "rate"), curve, (False, True))
        assert (choice.values.tolist(), choice.low.tolist()) == ([0.5, value], [0.4, 0.0])
        assert choice.high == pytest.approx([0.6, high])


def test_the_rate_from_which_runs_fail_is_the_median_of_the_sources_that_tell():
    def source(name: str, failed: float) -> pd.DataFrame:
        """Three rates, at the last of which the run failed."""
        return pd.DataFrame({"source": name, "model": "m", "updates": 1, "rate": [1e-6, 1e-5, failed],
                             "end": [1.0, 1.0, 0.0], "failed": [0, 0, 1], "runs": 1})  # fmt: skip

    tables = [source("a", 2e-5), source("b", 7e-5), source("c", 4e-4)]
    assert usual_edge(pd.concat(tables)) == pytest.approx(7e-5)
    assert np.isnan(usual_edge(tables[0]))
    everywhere = [usual_edge(alike_settings(billions, False, None)) for billions in (1.5, 70.0)]
    assert everywhere[0] > 1e-5 and np.isnan(everywhere[1])


def test_a_design_at_a_rate_at_which_public_runs_hold_is_not_forecast_to_fail(tmp_path):
    """It is not recommended either."""
    cells = {"model": "Qwen2.5-1.5B"}
    results = kept(tmp_path, {"a": (RISE, cells)})
    text, table = predicted(results, "--designs", "32x8@1e-5", "32x8@2e-5", "32x8@1e-3")
    assert table.loc["32x8@2e-05", "forecast"] > RISE[40] and table.loc["32x8@0.001", "forecast"] == FAILING[0]
    assert table.loc["32x8@2e-05", "outside"] and table.loc["32x8@2e-05", "low"] == 0
    assert np.isnan(table.loc["32x8@2e-05", "best"]), "the chance to be the best is that of designs that may be chosen"
    assert "usually fail from a learning rate of" in text


def test_a_rate_far_above_is_not_recommended(tmp_path):
    results = kept(tmp_path, {"a": (RISE, {})})
    text, table = predicted(results, "--designs", "32x8@1e-5", "32x8@1e-3", "1x1@1e-2", "32x1@1e-5")
    assert "recommended: 32x8@1e-05" in text and text.count("outside what was measured") >= 3
    assert table.index[0] == "32x8@1e-05" and table["outside"].notna().tolist() == [False, True, True, True]
    assert table["forecast"].iloc[1:].eq(0.1).all() and table["low"].iloc[1:].eq(0).all()
    assert (table["high"].iloc[1:] >= 0.35).all()
    page = next(results.glob("forecast/*/forecast.html")).read_text()
    assert page.count("outside what was measured: ") == 3 and "<b>32x8@1e-05</b>" in page
    text, _ = predicted(results, "--designs", "32x8@1e-3", "8x8@1e-2")
    assert "nothing is recommended: every design in budget is outside what was measured" in text
    page = without_script(next(results.glob("forecast/*/forecast.html")).read_text())
    assert "Nothing is recommended" in page and "\nrecommended: " not in text and "<small>recommended" not in page


@pytest.mark.parametrize(("loss", "flagged"), [("seq-mean-token-mean", True), ("grpo", True), ("token-mean", False)])
def test_how_a_log_s_loss_averages_tokens_decides_of_a_raw_reward(tmp_path, loss, flagged):
    cells = {"advantage": "raw", "loss_aggregation": loss}
    _, table = predicted(kept(tmp_path, {"a": (RISE, cells)}), "--designs", "32x8", "64x8")
    assert table["outside"].notna().to_dict() == {"32x8": False, "64x8": flagged}


def test_a_run_that_a_rate_spoilt_does_not_bend_the_law_and_scores_know_it(tmp_path):
    results = kept(tmp_path, {"a": (RISE, {}), "b": SPOILT})
    both, alone = (imported_evidence(name, results) for name in ("imported:c", "imported:c#a"))
    cells = (design(8, rounds=40, eval_every=40),)
    for mine, other in zip(law(both, cells), law(alone, cells), strict=True):
        np.testing.assert_array_equal(mine, other)
    text, _ = predicted(results)
    assert "recommended: 32x8@1e-05" in text and "outside what was measured: 32x8@0.001" in text
    (case,) = cases_named("imported:c", results)[0]
    table = score_case(results, case, 0, 1)
    assert table["outside"].iloc[0].startswith("a learning rate of 0.001") and table["law"].iloc[0] > 0.4
    assert table["forecast"].tolist() == [0.1] and table["forecast_covered"].tolist() == [1.0]


def test_what_nobody_simulates_may_be_of_any_size(tmp_path):
    results = kept(tmp_path, {"a": (RISE, {"prompts_per_round": 8192, "rollouts_per_prompt": 64})})
    _, table = predicted(results, "--designs", "8192x64", "16384x64")
    assert table["forecast"].between(0.4, 0.6).all()
    assert "allowed: at most 20,000,000" in refused("predict", "--pair", "imported:c", "--results", results)


def test_what_nobody_measured_is_said(tmp_path):
    results = kept(tmp_path, {"a": (LATE, {})}, n=None)
    text, _ = predicted(results, "--designs", "32x8", "8x8")
    assert "guessed: r = 0.04 ± 0.04, phi = 0.45 ± 0.25; nobody measured them" in text
    assert "guessed: the untrained model's test Pass@1 is 0.200, between 0.000 and 0.320" in text
    assert "taken: 100 responses behind an evaluation" in text
    assert "nobody measured" in next(results.glob("forecast/*/forecast.html")).read_text()
    text, _ = predicted(results, "--designs", "32x8", "8x8", "--base", "0.1", "--questions", "700")
    assert "test Pass@1 is 0.1, as told (--base)" in text and "700 responses behind an evaluation, as told" in text
    assert "the untrained model's test Pass@1 is 0.200" not in text


def test_a_guessed_base_widens_the_forecast(tmp_path):
    evidence = imported_evidence("imported:c", kept(tmp_path, {"a": (LATE, {})}))
    middle, cells = evidence.guessed_base[0], (design(1, rounds=5, eval_every=5),)
    sure = evidence._replace(guessed_base=(middle, middle, middle))
    wide, narrow = (law(made, cells) for made in (evidence, sure))
    assert wide.high[0] - wide.low[0] > narrow.high[0] - narrow.low[0] + 0.05


def test_a_told_base_comes_before_a_measured_one(tmp_path):
    measured = kept(tmp_path, {"a": (RISE, {})})
    assert [imported_evidence("imported:c", measured, *told).base() for told in ((), (0.05,))] == [0.1, 0.05]


def test_a_guessed_base_points_back_and_stays_a_share(tmp_path):
    curves = {"up": {10: 0.2, 20: 0.3}, "down": {10: 0.3, 20: 0.1}, "one": {200: 0.4}, "full": {10: 1.0, 20: 1.0}}
    runs = {name: (curve, {"prompts_per_round": 2**i}) for i, (name, curve) in enumerate(curves.items(), 1)}
    evidence = imported_evidence("imported:c", kept(tmp_path, runs))
    assert 0 <= evidence.guessed_base[1] <= evidence.guessed_base[0] <= evidence.guessed_base[2] <= 1
    read = read_logs([tmp_path / "c" / "curves.csv"])
    groups = {group.runs[0]: group for group in group_runs(read, ("test", "pass_at_1"))}
    assert guessed_base([groups["up"]])[0] == pytest.approx(0.1) and guessed_base([groups["one"]])[0] == 0
    assert guessed_base([groups["down"]])[0] == 0.3 and guessed_base([groups["full"]])[0] == 1


def test_a_score_without_a_base_says_what_is_missing(tmp_path):
    results = kept(tmp_path, {"a": (LATE, {}), "b": (LATE, {"prompts_per_round": 64})})
    text = shown("dev", "score", "--what", "imported:c", "--results", results)
    assert "guessed: the untrained model's test Pass@1 is 0.200" in text and "nan%" not in text


def test_a_score_with_a_told_base_is_that_of_a_log_that_has_it(tmp_path):
    tables, texts = [], []
    told = ("--base", 0.1, "--questions", 500)
    for name, curve, n, flags in (("measured", RISE, 500, ()), ("told", LATE, None, told)):
        (tmp_path / name).mkdir()
        results = kept(tmp_path / name, {"a": (curve, {}), "b": (curve, {"prompts_per_round": 64})}, n)
        texts.append(shown("dev", "score", "--what", "imported:c", *flags, "--results", results))
        tables.append(pd.read_csv(next(results.glob("score/*/scores.csv"))))
    pd.testing.assert_frame_equal(*tables)
    assert "guessed" not in texts[1] and "test Pass@1 is 0.1, as told (--base)" in texts[1]
    assert "500 responses behind an evaluation, as told (--questions)" in texts[1]


def test_a_told_base_of_a_score_is_of_one_imported_task(tmp_path):
    sizes = (32, 64)
    runs = {f"{model}{n}": (RISE, {"model": model, "prompts_per_round": n}) for model in ("m", "n") for n in sizes}
    results = kept(tmp_path, runs)
    for flags in (("--base", "0.4"), ("--questions", "500")):
        text = refused("dev", "score", "--what", "imported:c", *flags, "--results", results)
        assert "has several models or tasks" in text
    assert len(cases_named("imported:c", results)[0]) == 2


def test_a_mean_of_runs_is_of_all_of_them(tmp_path):
    """Ten runs whose evaluations are near each other, not equal: the mean of parallel lines is the line."""
    later = [{at + i: 0.1 + 0.002 * (at + i) + 0.001 * i for at in range(20, 201, 20)} for i in range(10)]
    runs = {f"r{i}": ({0: 0.1} | curve, {"repeats": "ten"}) for i, curve in enumerate(later)}
    results = kept(tmp_path, runs)
    (run,) = imported_evidence("imported:c", results).runs
    assert run.rounds[0] == 0 and run.rounds[1:].min() >= 29 and run.rounds.max() <= 200
    np.testing.assert_allclose(run.values[1:, 1], 0.1 + 0.002 * run.rounds[1:] + 0.0045, atol=1e-3)
    inner = run.values[1:, 1]
    np.testing.assert_allclose(run.errors[1:, 1], np.sqrt(inner * (1 - inner) / 5000), rtol=1e-6)
    text, _ = predicted(results, "--designs", "32x8")
    assert "mean of 10 runs" in text


def test_no_run_is_continued_and_each_point_says_how_many_are_behind_it():
    def frame(name, curve):
        return pd.DataFrame({"run": name, "round": list(curve), "value": list(curve.values())})

    line = mean_curve(pd.concat([frame("a", {0: 0.1, 10: 0.3, 30: 0.5}), frame("b", {5: 0.2, 20: 0.8, 40: 0.9})]))
    assert line["round"].tolist() == [0, 5, 20, 30] or line["round"].tolist() == [0, 5, 10, 30]
    assert line["runs"].tolist() == [1, 2, 2, 2] and line["mean"].iloc[0] == 0.1
    assert line["mean"].iloc[1] == pytest.approx((0.2 + 0.2) / 2)
    assert line["mean"].iloc[3] == pytest.approx((0.5 + 0.85) / 2)
    apart = mean_curve(pd.concat([frame("a", {1: 0.1, 2: 0.2}), frame("b", {8: 0.6, 9: 0.7})]))
    assert set(apart["runs"]) == {1} and apart["mean"].isin([0.1, 0.2, 0.6, 0.7]).all()
    same = mean_curve(pd.concat([frame("a", {0: 0.0, 4: 1.0}), frame("b", {0: 0.5, 4: 0.5})]))
    rows = same[["round", "mean", "lowest", "highest", "runs"]].to_numpy().tolist()
    assert rows == [[0, 0.25, 0, 0.5, 2], [4, 0.75, 0.5, 1, 2]]


def test_rows_without_a_round_are_left_out_and_said(tmp_path):
    header = "run_id,round,split,metric,value,seconds\n"
    rows = "a,1,test,pass_at_1,0.5,\na,,test,pass_at_1,0.6,60\ntimed,,test,pass_at_1,0.7,60\n"
    run = run_of(tmp_path, f"{header}{rows}timed,NA,test,pass_at_1,0.8,90\n")
    assert run.name == "a" and run.curves["value"].tolist() == [0.5]
    assert "rows without a round left out: 3, of 2 runs; nothing is left of 1 run: timed" in run.notes
    for cell, words in (("", "no row has a round"), ("1.5", r"round = '1\.5'")):
        with pytest.raises(UserError, match=words):
            run_of(tmp_path, f"{header}a,{cell},test,pass_at_1,0.5,\n")
