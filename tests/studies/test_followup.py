"""First runs and next checks: the rules and what is known of them, variants of a pair, verdicts in null worlds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rftlab.studies.analysis.followup.first import RULES, decide, known_ends, rule_errors, rule_table
from rftlab.studies.analysis.followup.next_checks import CHECKS, check_points, count_words, judge_check
from rftlab.studies.cli.commands import run
from rftlab.studies.data.paper.experiments import FOLLOW_UPS
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.results.endpoints import Measured
from rftlab.studies.data.results.verdicts import FAILS, HOLDS, tally
from rftlab.studies.data.runs.points import RunSpec

RAW, K8, K16, K1, K2 = "32x1-minimalist", "32x8-paper_text", "32x16-paper_text", "256x1-paper_text", "128x2-paper_text"


def ends_of(**means):
    """Two seeds, 0.002 apart, of each design and the base model."""
    names = {"raw": RAW, "k8": K8, "k16": K16, "k1": K1, "k2": K2, "base": "base"}
    cells = {names[name]: value for name, value in sorted(means.items(), key=lambda one: one[0] == "base")}
    return Measured(tuple(cells), np.array([list(cells.values())] * 2) + np.array([[-0.001], [0.001]]))


@pytest.mark.parametrize(
    "rule, means, above, missed, pays",
    [
        (0, {"base": 0.1, "raw": 0.12, "k8": 0.5}, False, 0.4, True),  # a model that is given up wrongly
        (0, {"base": 0.1, "raw": 0.12, "k8": 0.14}, False, 0.04, False),  # as much as the threshold is not above it
        (0, {"base": 0.1, "raw": 0.5, "k8": 0.1}, True, 0.0, False),  # its own run is not among the unseen ones
        (1, {"base": 0.0, "raw": 0.3, "k8": 0.4, "k16": 0.41, "k1": 0.9}, True, 0.01, False),
        (1, {"base": 0.0, "raw": 0.3, "k8": 0.4}, True, np.nan, None),
        (2, {"base": 0.0, "k8": 0.4, "k1": 0.5, "k2": 0.51}, True, 0.01, False),  # beside (256, 1), which it takes
        (2, {"base": 0.0, "k8": 0.4, "k1": 0.3, "k2": 0.51}, False, 0.11, True),
    ],
)
def test_a_rule_is_put_to_designs_that_it_has_not_seen(rule, means, above, missed, pays):
    said = decide(RULES[rule], ends_of(**means))
    assert (said.above, said.pays) == (above, pays)
    np.testing.assert_allclose(said.missed, missed, atol=1e-12)


def test_without_its_runs_a_rule_says_nothing_and_an_interval_that_spans_the_threshold_is_open():
    ends = ends_of(base=0.1, raw=0.2)
    assert decide(RULES[2], ends) is None and [row[0] for row in rule_table(ends).texts] == ["1 baseline"]
    wide = Measured((RAW, "base"), np.array([[0.1, 0.1], [0.2, 0.1]]))
    assert ["open" in rule_table(one).texts[0][-1] for one in (wide, ends)] == [True, False]


def test_the_record_is_computed_from_what_comes_with_rftlab(tmp_path):
    known = known_ends(tmp_path)
    table, lines = rule_errors(known)
    rows = {(rule, source): list(map(int, counts)) for rule, source, *counts in table.texts}
    assert rows["1 baseline", "llm"] == [5, 1, 0, 5] and rows["3 split", "llm"][0] == 3
    gain = known["llm:tiny-mod97"].best(known["llm:tiny-mod97"].designs)[1] - known["llm:tiny-mod97"].of("base")
    assert any("wrong on llm:tiny-mod97" in line and f"gains {gain.mean():+.3f}" in line for line in lines)
    for rule, source in rows:
        wrong = [line for line in lines if line.startswith(f"{rule}: wrong on {source}:")]
        assert len(wrong) == rows[rule, source][1]
    assert any(line.startswith("sim: not counted") for line in lines)


def runs_of(check):
    study = FOLLOW_UPS["next_checks"]
    (row,) = check_points(check, "olmo-math", start_at("olmo-math", "sim"), study, 1)
    return dict(zip(check.runs, row, strict=True)), dict(zip(study.ticks, study.cells, strict=True))


def test_variants_change_what_they_say_and_nothing_else():
    start, checks = start_at("olmo-math", "sim"), {check.name: check for check in CHECKS}
    lagged, designs = runs_of(checks["lag"])
    late = lagged["rate x 4", "lag 16"].simulation
    assert (late.sampler.lag, late.optimizer.learning_rate) == (16, 4 * start.optimizer.learning_rate)
    assert late.environment == start.environment and late.design == designs["(32, 8)"]
    noisy, _ = runs_of(checks["noise"])
    noise = noisy["noise 1", "(1, 256)"].simulation
    assert noise.environment == replace(start.environment, reward_noise=1.0) and noise.design == designs["(1, 256)"]
    plain = RunSpec("olmo-math", replace(start, design=designs["(32, 8)"]))
    assert noisy["noise 0", "(32, 8)"] == lagged["rate x 1", "lag 0"] == plain  # run once, as in `rftlab reproduce`
    sizes, _ = runs_of(checks["size"])
    assert sizes["kappa x 0.5", "(32, 8)"].simulation.environment.kappa == start.environment.kappa / 2
    assert all(len(set(runs_of(check)[0].values())) == len(check.runs) for check in CHECKS)


def planted(check, value, seeds=5, spread=0.002):
    """Ends of a check's runs by line and tick, with noise of seeds."""
    rng = np.random.default_rng(3)
    means = [value(*at) for at in check.runs] + [0.0]
    cells = (*map(" ".join, check.runs), "base")
    return Measured(cells, np.array(means) + spread * rng.standard_normal((seeds, len(means))))


def test_claims_follow_what_is_planted():
    noise, graded, lag, size = CHECKS
    middle = {"(32, 8)": 0.3}
    interior = judge_check(noise, "x", planted(noise, lambda line, tick: middle.get(tick, 0.1)))
    assert [f.within.verdict for f in interior] == [HOLDS, FAILS, FAILS]
    lost = planted(noise, lambda line, tick: 0.1 if line == "noise 1" else middle.get(tick, 0.2))
    gone = judge_check(noise, "x", lost)
    assert [f.within.verdict for f in gone] == [HOLDS, HOLDS, HOLDS]
    stale = judge_check(lag, "x", planted(lag, lambda line, tick: 0.1 if tick == "lag 16" else 0.4))
    assert [f.within.verdict for f in stale] == [FAILS, HOLDS, HOLDS]
    assert judge_check(graded, "x", planted(graded, lambda line, tick: 0.3))[0].within.verdict == HOLDS
    other = judge_check(size, "x", planted(size, lambda line, tick: 0.4 if tick == "(128, 2)" else 0.3))
    assert [f.within.verdict for f in other][:2] == [FAILS, FAILS]


def test_a_world_where_nothing_matters_counts_nothing():
    """Without differences most claims of sameness hold, and shuffled labels reach them as often."""
    findings = [f for check in CHECKS for f in judge_check(check, "x", planted(check, lambda line, tick: 0.3))]
    counts = tally([f.within for f in findings])
    assert sum(f.within.verdict == HOLDS for f in findings) >= 5 and counts.holds == 0
    assert counts.of == 0 and count_words(findings).startswith(f"no verdict is counted: {counts.little} say little")


SMALL = ["--environment.n-train", "256", "--environment.n-test", "64"]
FEW = ["--rounds", "2", "--eval-every", "1", "--seeds", "2", *SMALL]


def test_both_studies_write_a_page_and_go_on_where_they_stopped(tmp_path, capsys):
    for study in ("first", "next_checks"):
        assert run(["run", study, "--pair", "olmo-math", *FEW, "--quiet", "--results", str(tmp_path)]) == 0
        page = (tmp_path / f"report-{study}" / "report.html").read_text()
        assert page.startswith("<!doctype html>") and page.count('class="plot"') >= 1 and "(32, 8)" in page
    said = capsys.readouterr().out
    assert "claims hold" in said and "How often these rules are wrong" in said
    done = {path: path.stat().st_mtime_ns for path in Path(tmp_path).glob("sim/*/*/done.json")}
    assert len(done) == 2 * (15 + 6 + 8 + 12 + 1)  # what checks share, with `first` too, is run once
    run(["run", "next_checks", "--pair", "olmo-math", *FEW, "--quiet", "--results", str(tmp_path)])
    assert done == {path: path.stat().st_mtime_ns for path in Path(tmp_path).glob("sim/*/*/done.json")}
