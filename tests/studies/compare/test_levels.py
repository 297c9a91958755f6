"""The level `imported:NAME`: free designs beside each other and beside ours, what is refused, and what texts of logs
may do (nothing)."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rftlab import Curve, UserError
from rftlab.studies.analysis.imported.ends import common, measure_ends, roughness, shared_places
from rftlab.studies.analysis.imported.groups import common_measure, group_runs, source_groups
from rftlab.studies.analysis.source import RunSource, free_source
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.paper.pairs import pair
from rftlab.studies.forecast.forecast import designs_from
from rftlab.studies.forecast.forecasters import sigmoid
from rftlab.studies.forecast.imported import imported_evidence
from rftlab.studies.forecast.score.cases import cases_named
from rftlab.studies.forecast.score.score import score_case
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs.ours import known_design
from tests.support.logs.reading import collection
from tests.support.machine.here import refused, shown
from tests.support.web.reports import without_script

TEST = ("test", "pass_at_1")
FACTS = {"prompts_per_round": 8, "rollouts_per_prompt": 4, "updates_per_round": 1, "advantage": "group_mean"}


def kept(folder: Path, name: str, runs: dict[str, dict], known: dict[str, dict] | None = None, metric="pass_at_1"):
    """Keep runs under a name: of each by task the values after 0, 10, .. rounds; known: cells of runs.csv."""
    curves = {
        run: {task: {10 * i: value for i, value in enumerate(values)} for task, values in tasks.items()}
        for run, tasks in runs.items()
    }
    return collection(folder, name, curves, known, metric=metric)


@pytest.fixture
def results(tmp_path):
    rise = [0.1, 0.3, 0.4, 0.45, 0.5, 0.52, 0.53]
    higher = [value + 0.1 for value in rise]
    one = FACTS | {"model": "a-model"}
    known = {f"x/r{seed}": one | {"seed": seed} for seed in (1, 2)}
    known["wide"] = one | {"prompts_per_round": 64, "rollouts_per_prompt": 1}
    runs = {"x/r1": {"gsm8k": rise}, "x/r2": {"gsm8k": higher}, "wide": {"gsm8k": rise, "math": higher}}
    kept(tmp_path, "a", runs, known)
    kept(tmp_path, "b", {"y": {"gsm8k": higher}}, {"y": FACTS | {"advantage": "", "rollouts_per_prompt": 4}})
    kept(tmp_path, "far", {"z": {"other": higher}}, {"z": FACTS | {"prompts_per_round": 3}})
    kept(tmp_path, "bare", {"z": {"gsm8k": higher}})
    return tmp_path / "results"


def ends(results, name, task=None):
    source = RunSource("imported", name, task)
    side = source_groups(source, source.runs(results), TEST)
    return side, measure_ends(side, *shared_places([side]))


def quick(results, pair, *flags):
    """Text of a quick forecast, its table by design and its page."""
    text = shown("predict", "--pair", pair, *flags, "--quick", "--results", results)
    (folder,) = results.glob("forecast/*")
    table = pd.read_csv(folder / "forecast.csv").set_index("cell")
    return text, table, (folder / "forecast.html").read_text()


def test_a_name_is_a_collection_a_task_a_run():
    for text, parts in (
        ("imported:a", ("a", None, None)),
        ("imported:a/gsm8k", ("a", "gsm8k", None)),
        ("imported:a#x/r1", ("a", None, "x/r1")),
        ("imported:a/gsm8k#x/*", ("a", "gsm8k", "x/*")),
    ):
        assert tuple(free_source(text))[1:] == parts and free_source(text).name == text
    for text in ("imported:", "imported:a#", "imported:a/", "imported:../a", "sim:a", "imported:a b"):
        with pytest.raises(UserError, match="allowed"):
            free_source(text)


def test_repetitions_are_one_group_and_designs_are_not(results):
    side, found = ends(results, "a")
    groups = [(g.label, g.task, len(g.runs), g.per_round) for g in side.groups]
    assert groups == [("8x4", "gsm8k", 2, 32), ("64x1", "gsm8k", 1, 64), ("64x1", "math", 1, 64)]
    first = found[0]
    assert first.end.value == pytest.approx(0.58) and first.base.value == pytest.approx(0.15)
    assert first.between_runs == pytest.approx(0.1 / np.sqrt(2)) and first.gain.value == pytest.approx(0.43)
    assert first.of_questions == pytest.approx(np.sqrt(0.58 * 0.42 / 500))
    assert shared_places([side])[:2] == (60, 60 * 32) and found[1].at_rollouts == pytest.approx(0.45)


def test_an_untrained_run_is_the_base_of_its_model_alone(tmp_path):
    model = {"model": "m"}
    runs = {"p/base": {"t": [0.2]}, "p/r1": {"t": [0.2, 0.5]}, "q/r1": {"t": [0.2, 0.5]}}
    kept(tmp_path, "c", runs, dict.fromkeys(runs, model))
    path = tmp_path / "c" / "curves.csv"
    rows = [row for row in path.read_text().splitlines() if not row.startswith(("p/r1,0,", "q/r1,0,"))]
    path.write_text("\n".join(rows) + "\n")
    groups = group_runs(read_logs([path]), TEST)
    assert {group.runs: group.curves["round"].tolist() for group in groups} == {("p/r1",): [0, 10], ("q/r1",): [10]}


def test_common_designs_agree_as_far_as_both_tell(results):
    (_, a), (_, b), (_, far) = (ends(results, name) for name in ("a", "b", "far"))
    (found,) = common(a, b)
    assert found.first.group.label == found.second.group.label == "8x4" and found.unknown == ("advantage",)
    assert found.end.value == pytest.approx(0.63 - 0.58) and common(a, far) == []


def test_noise_is_found_on_a_curve_that_rises_steeply():
    generator = np.random.default_rng(0)
    curves = [1 - np.exp(-np.arange(60) / 5) + 0.02 * generator.standard_normal(60) for _ in range(20)]
    assert roughness(curves) == pytest.approx(0.02, rel=0.1)


def test_measures_that_levels_share_are_compared():
    train = ("train", "pass_at_1")
    assert common_measure({"a": {TEST, train}, "b": {train}}) == train
    with pytest.raises(UserError, match="a has test pass_at_1; b has none"):
        common_measure({"a": {TEST}, "b": set()})


def test_our_designs_in_their_words():
    designs = distinct_cells(list(EXPERIMENTS.values()))
    cells = {label(cell): known_design(cell, pair("qwen-gsm8k").model) for cell in designs}
    assert cells["32x1-minimalist"].advantage == "raw" and cells["32x8-paper_text"].prompts == 32
    assert cells["32x8-paper_text"].advantage in ("group_zscore", "group_mean")
    assert "window of 8" in cells["256x1w8-paper_text"].advantage


def test_levels_side_by_side(results):
    levels = ("imported:a/gsm8k", "imported:b", "llm:tiny-mix97")
    text = shown("compare", *levels, "--results", results, "--quiet")
    assert "no design in common" in text and "0.580 ± " in text
    (page,) = results.glob("compare-*/compare.html")
    table = pd.read_csv(page.parent / "ends.csv")
    assert set(table["level"]) == {*levels} and len(table) == 2 + 1 + 25
    assert (page.parent / "figures" / "curves.png").is_file() and 'class="plot"' in page.read_text()
    assert len(pd.read_csv(page.parent / "common.csv")) == 1
    text = shown("report", "imported:a", "--results", results, "--quiet")
    page = results / "report-imported-a" / "report.html"
    assert "noise" in text.split("64x1")[0] and "<dt>unknown</dt>" in page.read_text()


def test_texts_of_logs_do_nothing(tmp_path):
    evil = "<script>x</script>[red]$\\alpha$"
    root = kept(tmp_path, "e", {evil: {evil: [0.1, 0.2, 0.3]}}, {evil: FACTS | {"model": evil, "note": evil}})
    text = shown("report", "imported:e", "--results", root, "--quiet")
    page = without_script((root / "report-imported-e" / "report.html").read_text())
    assert "[red]" in text and "<script>" not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "imported:a", "imported:none"), "there are: a, b, bare, far"),
        (("compare", "imported:a", "imported:b", "--axis", "tokens"), "allowed: rounds, fraction, rollouts"),
        (("report", "imported:a#nobody"), "has no run 'nobody'; allowed: "),
        (("report", "imported:a/nothing"), "allowed: gsm8k, math"),
        (("predict", "--pair", "imported:a"), "several tasks (gsm8k, math)"),
        (("predict", "--pair", "imported:bare"), "`rftlab import --prompts N --rollouts N` tells"),
        (("predict", "--pair", "imported:b"), "`rftlab import --advantage NAME` tells"),
        (("predict", "--pair", "imported:a/gsm8k", "--designs", "8x"), "allowed: BxK or BxK@RATE, such as 32x8"),
        (("predict", "--pair", "imported:a/gsm8k", "--budget", "1"), "budget = 1 rollouts; allowed: "),
        (("predict", "--pair", "imported:a/gsm8k", "--designs", "9000x1"), "allowed: at most 7473"),
        (("dev", "score", "--what", "imported:none"), "there are: a, b, bare, far"),
    ],
)
def test_what_is_not_possible_is_a_line_that_names_what_is_missing(arguments, words, results):
    before = sorted(path.name for path in results.iterdir())
    assert words in refused(*arguments, "--results", results)
    assert sorted(path.name for path in results.iterdir()) == before


def test_a_forecast_of_imported_runs_without_the_simulator_has_its_page(results):
    text, table, page = quick(results, "imported:a/gsm8k", "--designs", "8x4", "32x4")
    assert "the forecast is the known curve's" in text
    assert table["forecast"].notna().all() and table["simulator"].isna().all()
    assert all("At the known learning rate the forecast was" in told for told in (" ".join(text.split()), page))


@pytest.mark.parametrize(("pair", "warned"), [("tiny-mix97", False), ("smollm2-words", True)])
def test_forecasts_of_a_pre_trained_model_say_how_far_to_trust_them(tmp_path, pair, warned):
    text, _, page = quick(tmp_path / "results", pair)
    assert ["How far to trust it: not far" in told for told in (text, page)] == [warned, warned]


def test_evidence_of_imported_runs_needs_test_values(results, tmp_path):
    found = imported_evidence("imported:a/gsm8k", results)
    first, second = found.runs
    assert (first.design.batch_size, first.design.rollouts, second.design.batch_size) == (8, 4, 64)
    assert first.rounds.tolist() == [0, 10, 20, 30, 40, 50, 60] and np.isnan(first.values[:, 0]).all()
    assert first.values[-1, 1] == pytest.approx(0.58) and first.design.rounds >= 60 == found.rounds
    assert found.facts.strict is None and found.questions == 500
    designs = tuple(design for design, _ in designs_from(("32x8",), "a", found).values())
    assert (designs[0].batch_size, designs[0].rollouts, designs[0].rounds) == (32, 8, 60)
    assert np.isfinite(sigmoid(found, designs).values).all()
    kept(tmp_path, "r", {"z": {"t": [1.5, 2.5]}}, {"z": FACTS}, metric="reward_mean")
    with pytest.raises(UserError, match="no test Pass@1"):
        imported_evidence("imported:r", tmp_path / "results")


def test_runs_of_one_design_are_scored_by_their_ends_and_alarms_alone(results, tmp_path):
    text = " ".join(shown("dev", "score", "--what", "imported:b", "--results", results).split())
    assert "ends of runs, from their beginnings" in text and "no forecast of designs is scored" in text
    kept(tmp_path, "short", {"z": {"t": [1.5, 2.5]}}, {"z": FACTS}, metric="reward_mean")
    assert "no run whose alarms can be judged" in refused(
        "dev", "score", "--what", "imported:short", "--results", results
    )


def test_cases_of_imported_runs_know_their_cheapest_design(results):
    """Of a, 8x4 is known and 64x4 held out; no forecast changes with what is hidden."""
    cases = cases_named("imported:a/gsm8k", results)[0]
    (case,) = cases
    (run,) = case.evidence.runs
    assert (run.design.batch_size, case.known, [cell.batch_size for cell in case.cells.values()]) == (8, ("8x4",), [64])
    scores = score_case(results, case, 0, 1)
    hidden = score_case(results, case._replace(truth={"test": case.truth["test"] * 0}), 0, 1)
    names = ["forecast", "law", "law_low", "law_high", "still", "sigmoid"]
    assert scores[names].equals(hidden[names]) and scores["truth"].iloc[0] > hidden["truth"].iloc[0] == 0
    assert scores["simulator"].isna().all() and scores["source"].tolist() == ["curve"]
    with pytest.raises(UserError, match="8x4 is held out, and the evidence knows it"):
        score_case(results, case._replace(cells=case.cells | {"8x4": run.design}), 0, 1)
    # train values that are missing do not count
    empty = {name: np.zeros(7) for name in Curve._fields}
    curve = Curve(**empty | {"round": run.rounds, "test_pass_at_1": run.values[:, 1]})
    worse = curve._replace(test_pass_at_1=run.values[:, 1] - 0.1)
    other = curve._replace(train_pass_at_1=np.ones(7))
    assert run.log_likelihood(curve, 4.0) == 0 > run.log_likelihood(worse, 4.0)
    assert run.log_likelihood(other, 4.0) == 0


@pytest.fixture
def several_rates(tmp_path):
    """One design at three learning rates; the collection `n` has none."""
    rise, one = [0.1, 0.2, 0.28, 0.34, 0.39, 0.43, 0.46], FACTS | {"model": "a-model"}
    rates = {"low": 1e-6, "middle": 2e-6, "high": 4e-6}
    known = {name: one | {"learning_rate": rate} for name, rate in rates.items()}
    runs = {name: {"t": [value * (1 + i / 4) for value in rise]} for i, name in enumerate(rates)}
    kept(tmp_path, "lr", runs, known)
    kept(tmp_path, "n", {"z": {"t": rise}}, {"z": one})
    return tmp_path / "results"


def test_the_law_forecasts_at_other_learning_rates(several_rates):
    text, table, _ = quick(several_rates, "imported:lr#low", "--designs", "8x4@2e-6", "8x4@1e-6", "8x4@5e-7")
    assert "8x4@2e-06" in text
    high, own, low = (table.loc[cell, "law"] for cell in ("8x4@2e-06", "8x4@1e-06", "8x4@5e-07"))
    assert high > own + 0.03 and own > low + 0.03
    assert table["still"].nunique() == 1
    assert table["measured"].dropna().to_dict() == {"8x4@1e-06": 0.46}


def test_runs_of_several_learning_rates_are_forecast_without_the_simulator_and_held_out(several_rates):
    _, table, _ = quick(several_rates, "imported:lr")
    assert list(table.index) == ["8x4@1e-06", "8x4@2e-06", "8x4@4e-06"] and table["measured"].notna().all()
    _, table, _ = quick(several_rates, "imported:lr", "--designs", "8x4")  # without a rate it has the first run's
    assert table["measured"].to_dict() == {"8x4@1e-06": 0.46}
    (case,) = cases_named("imported:lr", several_rates)[0]
    assert case.known == ("8x4 rate 2e-06",) and case.rates == (1e-6, 4e-6), "the median rate"
    scores = score_case(several_rates, case, 0, 1)
    assert np.diff(scores["law"]) > 0.03 and scores["still"].nunique() == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("imported:lr#low --designs 8x4@0 --quick", "allowed: a learning rate above 0 and up to 1 behind @"),
        ("imported:lr#low --designs 8x4@nan --quick", "allowed: a learning rate above 0"),
        ("imported:lr#low --designs 8x4@ --quick", "allowed: a learning rate above 0"),
        ("imported:lr#low --designs 8@1e-6 --quick", "allowed: BxK or BxK@RATE"),
        ("imported:n --designs 8x4@1e-6 --quick", "a learning rate is not known; allowed: runs that all have one"),
        ("imported:lr", "several learning rates (1e-06, 2e-06, 4e-06); allowed: one (imported:NAME#RUN), or --q"),
        ("imported:lr#low --designs 8x4@2e-6", "the simulator forecasts at the runs' learning rate; add --quick"),
    ],
)
def test_other_designs_at_a_rate_are_refused(several_rates, asked, said):
    assert said in refused("predict", "--pair", *asked.split(), "--results", several_rates)


def test_a_rate_that_one_run_lacks_is_no_second_one(tmp_path):
    known = {"x": FACTS | {"learning_rate": 1e-6}, "wide": FACTS | {"prompts_per_round": 64, "learning_rate": ""}}
    results = kept(tmp_path, "m", {"x": {"t": [0.1, 0.2, 0.3]}, "wide": {"t": [0.1, 0.3, 0.4]}}, known)
    _, table, _ = quick(results, "imported:m")
    assert table["measured"].to_dict() == {"8x4": 0.3, "64x4": 0.4}
    refused("predict", "--pair", "imported:m", "--designs", "8x4@1e-6", "--quick", "--results", results)
