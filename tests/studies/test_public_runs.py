"""Public runs: what is shipped, the noise, and claims whose verdict follows the numbers."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dev.public_runs import PICTURES as MADE
from dev.public_runs import (
    UNINTENDED,
    fit_sigmoid,
    judge_source,
    left_out_errors,
    pair_noise,
    read_folder,
    rmse,
    sigmoid_at,
    tables_of,
    take,
    to_json,
)
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.public import claims as known
from rftlab.studies.analysis.public import store
from rftlab.studies.analysis.public.claims import CLAIMS, cell_deviations, curves_on, find, values_at
from rftlab.studies.analysis.public.show import PICTURES, public_section, show_sources
from rftlab.studies.analysis.public.store import BY_NAME, SOURCES
from rftlab.studies.data.results.stats import Mean, mean
from rftlab.studies.data.results.verdicts import FAILS, HOLDS, NOT_APPLICABLE, UNDECIDED
from tests.support.estimators.vectors import ROOT
from tests.support.logs.formats import runs_folder
from tests.support.machine.here import printed

FOLDER = runs_folder()
public = pytest.mark.skipif(FOLDER is None, reason="the public logs are not beside the project (../shared/data/runs)")
QUIET = Mean(0.0, 0.001, 3)
RATES = ("3e-6", "5e-6", "1e-5", "2e-5", "3e-5", "4e-5", "5e-5", "7e-5", "2e-4")
PASSES = ("e2-tb256", "e2-tb128", "e2-tb64", "e2-tb32", "e4-tb256", "e4-tb128", "e8-tb256", "e16-tb256")


def rows_of(scores, **columns):
    """Test scores: a run by name, values after 5, 10 and so on rounds."""
    rows = [(run, 5 * i, value) for run, values in scores.items() for i, value in enumerate(values, 1)]
    table = pd.DataFrame(rows, columns=["run_id", "round", "value"])
    return table.assign(split="test", metric="pass_at_1", task="math", **columns)


def planted(**changes):
    """Scores of shibukizero that every one of its claims fits, but for the changes."""
    steps = 5 * np.arange(1, 11)
    scores = {f"lr{rate}": 1 / (1 + (2e-4 / (float(rate) * steps)) ** 1.5) for rate in RATES}
    scores |= {"lr7e-5": np.full(10, 0.2), "lr2e-4": np.zeros(10)}
    end = scores["lr4e-5"]
    scores |= {"no-std": end, "no-baseline": end - 0.3}
    scores |= {f"offpolicy-{kind}{name}": end + 0.1 for kind in ("broad-", "") for name in PASSES}
    scores |= {f"offpolicy-broad-{name}": np.zeros(10) for name in ("e8-tb256", "e16-tb256")}
    own = {run.replace("_", "-"): values for run, values in changes.items()}
    return rows_of({f"shibuki/{run}": values for run, values in (scores | own).items()})


def verdicts(source, curves, noise=QUIET):
    return {finding.claim.name: finding.within.verdict for finding in judge_source(source, curves, noise)}


def test_numbers_are_shipped_where_there_is_a_licence():
    licensed = {source.name for source in SOURCES if source.shipped}
    assert licensed == {"pods", "kaip598", "verl_docs"}
    runs, curves, endpoints = store.runs(), store.curves(), store.endpoints()
    assert set(runs["source"]) | set(endpoints["source"]) == licensed
    assert set(runs["licence"]) == {"Apache-2.0", "MIT"}
    assert set(curves["run_id"]) == set(runs["run_id"]) and list(curves) == store.COLUMNS
    for name in ("pods", "kaip598"):
        assert len(runs[runs["source"] == name]) == BY_NAME[name].runs
        assert len(store.of_source(name, runs, curves)) == BY_NAME[name].points
    assert (sum(source.runs for source in SOURCES), sum(source.points for source in SOURCES)) == (137, 32553)
    assert all(len(source.traps) >= 2 for source in SOURCES)


def test_rounds_updates_and_rollouts_are_what_the_loader_says():
    curves = store.curves().merge(store.runs()[["run_id", "rollouts_per_prompt", "source"]], on="run_id")
    pods = curves[(curves["source"] == "pods") & (curves["round"] > 0)]
    assert (pods["updates"] == pods["round"]).all()
    assert (pods["rollouts"] == pods["round"] * pods["rollouts_per_prompt"]).all()
    assert pods.loc[pods["metric"] == "pass_at_1", "value"].between(0, 1).all()


@public
def test_the_tool_makes_what_is_shipped(tmp_path):
    collection = read_folder(FOLDER)
    for source in SOURCES:
        assert (collection.runs["source"] == source.name).sum() == source.runs
        assert len(collection.of_source(source.name)) == source.points
    take(FOLDER, tmp_path)
    for name in (store.RUNS, store.CURVES):
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / name), store._parquet(name))
    for name in (store.ENDPOINTS, known.FACTS):
        assert (tmp_path / name).read_bytes() == (store.DATA / name).read_bytes()
    assert all((tmp_path / name).is_file() for name in PICTURES) and set(MADE) == set(PICTURES)
    assert set(tables_of(collection)) == {store.RUNS, store.CURVES, store.ENDPOINTS}


@public
def test_cells_are_those_of_the_collection():
    cells = pd.read_csv(FOLDER / "pods_cells.csv").query("task == 'gsm8k' and checkpoint == 12")
    expected = dict(zip(cells["cell"].str.removeprefix("pods/gsm8k-"), cells["sd_between_runs"], strict=True))
    found = cell_deviations(store.curves()).to_dict()
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("missing", "said"), [("endpoints.csv", "has no endpoints.csv"), ("value", "no column value")])
def test_a_folder_that_is_none_is_one_line(tmp_path, missing, said):
    for name in ("runs.csv", "endpoints.csv", "curves.csv"):
        columns = [column for column in store.COLUMNS if column != missing] if name == "curves.csv" else ["source"]
        pd.DataFrame(columns=columns).to_csv(tmp_path / name, index=False)
    (tmp_path / missing).unlink(missing_ok=True)
    with pytest.raises(UserError, match=said):
        read_folder(tmp_path)


def test_intervals_are_welchs_and_those_of_unintended_repeats():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.3, 0.1, 10), rng.normal(0, 0.5, 7)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert mean(a).less(mean(b)).interval() == pytest.approx((a.mean() - b.mean(), expected.low, expected.high))
    assert mean(a).less(mean(b[:1])).interval()[1:] == (-np.inf, np.inf)
    scores = {name: np.full(4, 0.5) for pair in UNINTENDED for name in pair}
    scores[UNINTENDED[0][0]] = np.array([0.8, 0.8, 0.8, 0.8])
    noise = pair_noise(rows_of(scores))
    assert noise == pytest.approx((0, 0.3 / np.sqrt(3), 3))
    half = stats.t.ppf(0.975, 3) * noise.error
    assert noise._replace(value=0.1).interval() == pytest.approx((0.1, 0.1 - half, 0.1 + half))


def test_a_curve_is_read_between_its_evaluations_and_the_sigmoid_is_found():
    curves = curves_on(rows_of({"a": [0.1, 0.3], "b": [0.2, 0.4, 0.6]}), "round")
    assert values_at(curves, 7.5) == pytest.approx([0.2, 0.3])
    assert values_at(curves, 12.5) == pytest.approx([0.5]) and values_at(curves, 4).size == 0
    x = np.geomspace(1e-4, 1e-2, 40)
    y = 0.1 + 0.7 / (1 + (1e-3 / x) ** 2)
    np.testing.assert_allclose(sigmoid_at(fit_sigmoid(x, y), x), y, atol=1e-4)
    groups = np.repeat([1.0, 2.0, 4.0, 8.0], 10)
    wrong = x / groups
    assert rmse(x, y) < 1e-4 < rmse(wrong, y)
    assert left_out_errors(x, y, groups).shape == (4,) and (left_out_errors(x, y, groups) < 0.01).all()


STEPS = 5 * np.arange(1, 11)


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [
        ("a baseline", {"no_baseline": np.full(10, 1.2)}),
        ("b deviation", {"no_std": np.full(10, 0.3)}),
        ("c collapse", {"lr7e-5": np.full(10, 1.2)}),
        ("c rate × steps", {f"lr{rate}": 1 / (1 + (20 / STEPS) ** 1.5) for rate in RATES[:7]}),
        ("e updates", {"offpolicy_broad_e2_tb128": np.full(10, 0.1)}),
        ("e re-use", {"offpolicy_broad_e16_tb256": np.full(10, 1.2)}),
    ],
)
def test_a_mutant_of_single_runs_fails_its_claim(claim, mutant):
    found = verdicts("shibukizero", planted(**mutant))
    assert found[claim] == FAILS
    assert verdicts("shibukizero", planted(**mutant), Mean(0.0, 1.0, 3))[claim] in (UNDECIDED, FAILS)


def test_planted_runs_fit_every_claim_and_with_the_noise_of_single_runs_small_differences_decide_nothing():
    assert set(verdicts("shibukizero", planted()).values()) == {HOLDS}
    found = verdicts("shibukizero", planted(), known.facts().noise)
    assert found["b deviation"] == found["e updates"] == UNDECIDED


def swapped(curves, one, other):
    """Curves whose runs of two cells, or two runs, have changed places."""
    names = {one: other, other: one}
    cells = curves["run_id"].str.replace(r"/r\d+$", "", regex=True)
    moved = [names.get(cell, cell) + run[len(cell) :] for cell, run in zip(cells, curves["run_id"], strict=True)]
    return curves.assign(run_id=moved)


SHIPPED = [claim for claim in CLAIMS if BY_NAME[claim.source].shipped]


@pytest.mark.parametrize("claim", SHIPPED, ids=lambda claim: f"{claim.name}, {claim.source}")
def test_a_mutant_of_the_shipped_runs_changes_the_verdict(claim):
    curves, noise = store.of_source(claim.source, store.runs(), store.curves()), known.facts().noise
    real = find(claim, claim.parts(curves, noise))
    if not real.parts:
        assert real.within.verdict == NOT_APPLICABLE and claim.remark
        return
    prefix = "pods/gsm8k-" if claim.source == "pods" else "kaip598/"
    after, before = (prefix + name for name in real.parts[0].name.split(" − "))
    if np.isfinite(real.parts[0].low) and np.isfinite(real.parts[0].high):
        own = curves["run_id"].str.startswith(f"{after}/")
        mutant = curves.assign(value=curves["value"] + 0.1 * own)
    else:
        mutant = swapped(curves, after, before)
    mutated = find(claim, claim.parts(mutant, noise))
    if real.within.verdict == UNDECIDED:
        assert mutated.parts[0].measured.value == pytest.approx(-real.parts[0].measured.value)
    else:
        assert (real.within.verdict, mutated.within.verdict) == (HOLDS, FAILS)


def test_every_claim_has_a_finding_and_facts_come_from_sources_that_are_not_shipped():
    found = known.findings()
    assert [finding.claim for finding in found] == list(CLAIMS)
    assert all(not BY_NAME[source].shipped for _, source in known.facts().parts)
    expected = {(claim.name, claim.source) for claim in CLAIMS if not BY_NAME[claim.source].shipped}
    assert set(known.facts().parts) == expected
    assert {claim.source for claim in CLAIMS} <= set(BY_NAME)
    assert to_json(known.facts()).encode() == (store.DATA / known.FACTS).read_bytes()


def test_the_command_shows_sources_noise_and_claims():
    text = printed(show_sources, None, width=100)
    assert all(source.name in text for source in SOURCES) and "0.005 to 0.021" in text
    assert text.count("✓") + text.count("?") + text.count("–") >= len(CLAIMS)
    own = printed(show_sources, "pods")
    assert all(trap in own for trap in BY_NAME["pods"].traps) and "shibukizero" not in own
    assert "No claim" in printed(show_sources, "josancamon")
    with pytest.raises(UserError, match="source = 'nonsense' is unknown; allowed: pods, "):
        printed(show_sources, "nonsense")


def test_the_page_prints_what_the_command_does():
    page = (ROOT / "docs" / "lab" / "public.md").read_text()
    text = "\n".join(f"    {line}".rstrip() for line in printed(show_sources, "kaip598", width=100).splitlines())
    assert text.rstrip() in page
    lengths = re.search(r"# (\d+) (\d+) (\d+)\n", page).groups()
    curves = store.curves()
    assert [int(n) for n in lengths] == [len(curves), len(store.runs()), len(store.score_rows(curves))]


def test_the_section_is_self_contained_and_complete(tmp_path):
    page = str(public_section(tmp_path))
    sources = re.findall(r'\bsrc="([^"]*)"', page)
    assert len(sources) == len(PICTURES) and all(source.startswith("data:image/") for source in sources)
    assert page.count('class="plot"') > 5
    assert page.count("<img") == len(re.findall(r'<img [^>]*alt="[^"]{20,}"', page))
    assert not re.search(r"<script|<link|https?://|&lt;br|nan", re.sub(r'src="[^"]*"', "", page))
    assert page.count('class="verdict') == len(CLAIMS)
    numbers = pd.read_csv(tmp_path / "public-pods.csv")
    assert set(numbers["runs"]) == {10} and (numbers["low"] < numbers["high"]).all()
