"""Levels against each other: what agreement, best designs and signs say on planted numbers, and the command as a
user meets it."""

import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.compare import agreement
from rftlab.studies.analysis.compare.agreement import AGREE, DISAGREE, SINGLE, agree, kendall, resample, spearman
from rftlab.studies.analysis.compare.compare import compared, write_comparison
from rftlab.studies.analysis.compare.figures import at_budget
from rftlab.studies.analysis.compare.levels import CurveSet, _llm_points, load_levels
from rftlab.studies.analysis.source import RunSource, curve_sets
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.data.runs.store import open_store, point_folder
from tests.support.machine.here import shown
from tests.support.web.reports import without_script

CELLS = list(map(label, distinct_cells(list(EXPERIMENTS.values()))))


def level(name, values, responses=0, rounding=0.0):
    """A level of made-up endpoints: values (seeds, cells), or one row; its base model is at 0.05."""
    table = pd.DataFrame(np.atleast_2d(values), columns=CELLS[: np.shape(values)[-1]]).assign(base=0.05)
    tables, counts = dict.fromkeys(SPLITS, table), dict.fromkeys(SPLITS, responses)
    return CurveSet(RunSource("llm", name), pd.DataFrame(), tables, counts, rounding, "")


def agreement_of(first, second):
    """Agreement on test, with draws of its own."""
    draws = {own.name: resample(own, np.random.default_rng(i)) for i, own in enumerate((first, second))}
    return agree(first, second, draws)[1]


def test_ranks_and_errors_are_those_of_scipy_and_ranks_need_three_designs():
    generator = np.random.default_rng(0)
    for values in (generator.normal(size=(2, 9)), generator.integers(4, size=(2, 9)).astype(float)):
        assert kendall(*values) == pytest.approx(stats.kendalltau(*values).statistic, abs=1e-12)
        assert spearman(*values) == pytest.approx(stats.spearmanr(*values).statistic, abs=1e-12)
    assert np.isnan(kendall(np.ones(4), np.arange(4.0))) and np.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert agreement.mean_error(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0.5
    two = agreement_of(level("a", [[0.1, 0.2]]), level("b", [[0.2, 0.4]]))
    assert two.error == pytest.approx((0.15, 0, 1)) and np.isnan(two.kendall.value)
    other = dict.fromkeys(SPLITS, pd.DataFrame({"other": [0.1], "base": [0.0]}))
    assert agree(level("a", [[0.1]]), level("b", [[0.2]])._replace(finals=other), {}) == []


def test_equal_levels_agree_and_a_reversed_one_does_not():
    values = np.linspace(0.2, 0.8, 12) + 0.001 * np.arange(3)[:, None]
    same = agreement_of(level("a", values), level("b", values))
    assert same.error.value == 0 and same.kendall.value == same.spearman.value == 1 and same.cells == 12
    turned = agreement_of(level("a", values), level("b", values[:, ::-1]))
    assert turned.kendall.value == turned.spearman.value == -1 and turned.kendall.high < 0
    shifted = agreement_of(level("a", values), level("b", values + 0.1))
    assert (shifted.error.value, shifted.gain_error.value) == pytest.approx((0.1, 0.1)) and shifted.kendall.value == 1


def test_level_designs_have_no_order():
    """The lower end of tau was above 0 in 10 to 18% of pairs of levels whose designs are equal."""
    draw, orders = np.random.default_rng(0), []
    for _ in range(40):
        first, second = (level(name, 0.5 + 0.02 * draw.standard_normal((3, 12))) for name in "ab")
        tau = agreement_of(first, second).kendall
        orders.append(tau.low > 0 or tau.high < 0)
    assert np.mean(orders) <= 0.1
    three = [level(name, [[0.1, 0.2, 0.3], [0.11, 0.21, 0.31]]) for name in "ab"]
    assert agreement_of(*three).kendall == (1, 0, 1), "one order in six"


def test_draws_of_a_difference_have_the_t_interval_over_seeds():
    values = np.array([[0.4, 0.52, 0.7], [0.41, 0.5, 0.71], [0.45, 0.53, 0.69]])
    drawn = resample(level("a", values), np.random.default_rng(0), 200_000)["test"]
    known = interval(values[:, 1] - values[:, 0])
    ends = (drawn[CELLS[1]] - drawn[CELLS[0]]).quantile([0.025, 0.975]).to_numpy()
    assert ends == pytest.approx([known.low, known.high], abs=0.01)
    assert drawn.mean().to_numpy()[:3] == pytest.approx(values.mean(axis=0), abs=1e-9)


def test_questions_and_rounding_are_the_noise_of_a_single_number():
    exact = resample(level("a", [[0.3, 0.6]]), np.random.default_rng(0))["test"]
    assert exact.isna().all(axis=None), "of one exact run nothing is known of the spread"
    asked = resample(level("a", [[0.3, 0.6]], responses=500), np.random.default_rng(0), 20_000)["test"]
    assert asked.std().to_numpy()[:2] == pytest.approx(np.sqrt(np.array([0.21, 0.24]) / 500), rel=0.03)
    rounded = resample(level("a", [[0.3, 0.6]], rounding=0.01), np.random.default_rng(0), 20_000)["test"]
    assert rounded.std().to_numpy() == pytest.approx(0.01 / np.sqrt(12), rel=0.03)
    assert (rounded - rounded.mean()).abs().max().max() <= 0.005 + 1e-9
    # a diverged run leaves the other seeds
    values = np.array([[0.3, 0.6], [0.32, np.nan], [0.34, 0.62]])
    drawn = resample(level("a", values), np.random.default_rng(0))["test"]
    assert drawn.notna().all().all() and drawn[CELLS[1]].mean() == pytest.approx(0.61)


def test_intervals_cover_the_truth():
    """100 made-up experiments: 3 seeds and 400 responses on each side, 12 designs."""
    generator = np.random.default_rng(1)
    truths = np.linspace(0.3, 0.8, 12), np.linspace(0.3, 0.8, 12)[generator.permutation(12)] * 0.9
    expected = {"error": agreement.mean_error(*truths), "kendall": kendall(*truths), "spearman": spearman(*truths)}
    held = dict.fromkeys(expected, 0)
    for _ in range(100):
        rates = [np.clip(t + 0.02 * generator.normal(size=(3, 12)), 0, 1) for t in truths]
        first, second = (level(f"{own[0, 0]}", generator.binomial(400, own) / 400, 400) for own in rates)
        found = agree(first, second, {own.name: resample(own, generator, 400) for own in (first, second)})[1]
        for name in held:
            held[name] += getattr(found, name).low <= expected[name] <= getattr(found, name).high
    assert all(count >= 90 for count in held.values()), held


def test_the_best_of_equal_designs_is_corrected_and_named_with_how_often_it_is_ahead():
    generator = np.random.default_rng(2)
    levels = [level("a", generator.binomial(200, 0.5, (3, 20)) / 200) for _ in range(100)]
    bests = [agreement.best(own, resample(own, generator, 100), own.cells) for own in levels]
    assert np.mean([one.observed for one in bests]) > 0.53
    assert np.mean([one.corrected for one in bests]) == pytest.approx(0.5, abs=0.01)
    own = level("a", [[0.3, 0.5, 0.5]], responses=400)
    found = agreement.best(own, resample(own, np.random.default_rng(0)), own.cells)
    assert found.cell == CELLS[1] and found.among == 3 and 0.4 < found.share < 0.6 and found.corrected < 0.5
    lone = level("a", [[0.3, 0.5, 0.4]])
    found = agreement.best(lone, resample(lone, np.random.default_rng(0)), lone.cells)
    assert found.observed == 0.5 and np.isnan([found.corrected, found.share]).all()


@pytest.mark.parametrize(
    ("verdict", "cases"),
    [(AGREE, ["++", ["+", "+", ""]]), (DISAGREE, ["+-", "-0+"]), (agreement.UNDECIDED, ["+0", "00", "++0"]),
     (SINGLE, [["+", ""]])],
)  # fmt: skip
def test_signs_decide_whether_levels_agree(verdict, cases):
    assert {agreement.sign_verdict(list(signs)) for signs in cases} == {verdict}


def test_a_claim_whose_sign_flips_is_called_disagree():
    values = np.linspace(0.3, 0.7, len(CELLS)) + 0.002 * np.random.default_rng(0).normal(size=(4, len(CELLS)))
    flipped = values.copy()
    raw, small = CELLS.index("256x1-paper_text"), CELLS.index("32x8-paper_text")
    swapped = values[:, [small, raw]]
    values[:, [raw, small]], flipped[:, [raw, small]] = swapped + np.array([0, 0.2]), swapped + np.array([0.4, 0])
    found = compared([level("a", values), level("b", flipped)], 0, 400)
    row = next(row for row in found.rows if row.name == "32x8 - 256x1")
    assert [side.sign for side in row.sides] == ["+", "-"] and row.verdict == DISAGREE
    assert found.verdicts["5 trade-off"] == DISAGREE and "8 train and test" not in found.verdicts  # no whole runs
    assert agreement.claim_verdicts([row]) == {"5 trade-off": DISAGREE}


def test_a_claim_about_a_best_design_is_corrected_for_the_picking():
    """All splits of 256 rollouts are equal: the best is not above (32, 8)."""
    generator, lows = np.random.default_rng(3), []
    for _ in range(40):
        own = level("a", 0.5 + 0.02 * generator.normal(size=(5, len(CELLS))))
        rows = agreement.compare_claims([own], {own.name: resample(own, generator, 400)})
        side = [row.sides[0] for row in rows if row.claim == "5 trade-off"][-1]
        lows.append((side.measured.value, own.finals["test"][list(side.cells)].mean().diff().iloc[-1]))
    corrected, plain = np.mean(lows, axis=0)
    assert -plain > 0.005 and corrected < -plain


def load_all(root, *names, **more):
    return load_levels(Console(quiet=True), curve_sets(list(names)), open_store(root), True, **more)


def test_a_language_model_without_runs_is_named_with_the_command_that_makes_them(tmp_path):
    said = r"rftlab reproduce --level llm --pair qwen-gsm8k .*tiny-mix97, tiny-mod97, tiny-sign97 come with rftlab"
    with pytest.raises(UserError, match=said):
        load_all(tmp_path, "llm:qwen-gsm8k", "published:qwen-gsm8k")


def test_levels_know_how_their_numbers_were_measured(tmp_path):
    tiny, smol, reported = load_all(tmp_path, "llm:tiny-mix97", "llm:smollm2-words", "published:qwen-math")
    assert tiny.responses == {"train": 500, "test": 500} and tiny.seeds == 3 and len(tiny.cells) == 25
    assert smol.responses == {"train": 400, "test": 400} and smol.seeds == 3 and len(smol.cells) == 3
    assert ", 3 seeds of 600 rounds" in tiny.source and ", 2 to 3 seeds of 20 rounds" in smol.source
    assert reported.responses == {"train": 7500, "test": 5000}
    assert (len(reported.cells), reported.rounding) == (8, 0.01)


def test_simulated_language_and_published_levels_make_a_page(tmp_path):
    levels = load_all(tmp_path, "sim:llama-gsm8k", "llm:tiny-mix97", "published:llama-gsm8k", seeds=2, rounds=20)
    path = write_comparison(Console(quiet=True), levels, tmp_path, "fraction", 0, True)
    page = without_script(path.read_text())
    assert page.count('class="plot"') > 20 and page.count("<figure") == len(re.findall(r"figures/[\w-]+\.csv", page))
    assert not re.search(r"<script|<link|\bsrc=|https?://(?!arxiv)", page)
    assert all((path.parent / file).is_file() for file in re.findall(r'href="([\w/-]+\.(?:csv|svg|png))"', page))
    assert all(f'id="{target}"' in page for target in re.findall(r'href="#([^"]*)"', page))
    table = pd.read_csv(path.parent / "agreement.csv")
    assert set(table["cells"]) == {25, 8} and len(table) == 3 * 2 * 4
    assert (table["low"] <= table["value"]).all() and (table["value"] <= table["high"]).all()
    claims = pd.read_csv(path.parent / "claims.csv", keep_default_na=False)
    assert set(claims["level"]) == {own.name for own in levels}
    assert set(claims["verdict"]) <= {AGREE, DISAGREE, agreement.UNDECIDED, SINGLE}
    assert pd.read_csv(path.parent / "figures" / "tradeoff-curves.csv")["x"].max() == 1


def test_a_trade_off_stands_where_every_design_has_spent_as_much(tmp_path):
    tiny, reported = load_all(tmp_path, "llm:tiny-mix97", "published:llama-gsm8k")
    rollouts = at_budget(tiny, EXPERIMENTS["rollouts"], "rollouts").query("split == 'test'").set_index("tick")
    assert set(rollouts["budget"]) == {600 * 32 * 8}
    after = at_budget(tiny, EXPERIMENTS["rollouts"], "rounds").query("split == 'test'").set_index("tick")
    whole = tiny.finals["test"]["32x8-paper_text"].mean()
    assert rollouts.loc["8", "mean"] == after.loc["8", "mean"] == pytest.approx(whole)
    own = tiny.curves[(tiny.curves["cell"] == "32x64-paper_text")].groupby("round")["test_pass_at_1"].mean()
    after_75 = own[50] + (own[100] - own[50]) * 0.5  # 75 rounds of 2048 rollouts
    assert rollouts.loc["64", "mean"] == pytest.approx(after_75)
    assert at_budget(reported, EXPERIMENTS["rollouts"], "seconds")["mean"].isna().all()
    ends = at_budget(reported, EXPERIMENTS["rollouts"], "fraction")
    assert ends.query("tick == '64' and split == 'test'")["mean"].item() == 0.63


def test_the_command_compares_shipped_runs(tmp_path):
    asked = ("compare", "llm:tiny-mix97", "llm:tiny-mod97", "--axis", "rollouts", "--quiet", "--results")
    text = shown(*asked, tmp_path / "results")
    assert "✓ agree 6" in text and "Kendall" in text
    assert (tmp_path / "results/compare-llm-tiny-mix97-llm-tiny-mod97/compare.html").exists()


def test_equal_seeds_of_the_resampling_give_equal_numbers(tmp_path):
    levels = load_all(tmp_path, "llm:tiny-mix97", "llm:tiny-mod97")
    first, again, other = (compared(levels, seed, 200).agreements for seed in (0, 0, 1))
    assert first == again and first != other


def test_folders_with_endless_seeds_for_names_are_no_runs(tmp_path):
    """As many runs are looked for as there are folders, whatever they are called."""
    for name in ("x-s99999999999-ab", "x-s99999999999999999999999-ab", "x-s٣-ab", "x-s3-ab"):
        (open_store(tmp_path) / "llm" / "tiny-mix97" / name).mkdir(parents=True)
    points = _llm_points(RunSource("llm", "tiny-mix97"), tmp_path)
    assert {point.run.seed for point in points} == {3, 99999999999} and len(points) == 50


def test_a_language_model_s_run_that_is_no_folder_is_not_passed_over(tmp_path):
    source = RunSource("llm", "tiny-mix97")
    assert not _llm_points(source, open_store(tmp_path))
    point, *_ = study_points([EXPERIMENTS["baseline"]], "llm", ["tiny-mix97"], 1, None)
    folder = point_folder(tmp_path, point)
    folder.parent.mkdir(parents=True)
    (folder.parent / "x-s0-ab").mkdir()
    folder.write_text("")
    with pytest.raises(UserError, match=f"^{folder}: ValueError: it is a file, not a folder"):
        load_levels(Console(quiet=True), [source], tmp_path, True)
