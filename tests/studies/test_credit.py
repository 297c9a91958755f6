"""Credit, and where runs of a model end that nobody ran: each statistic by hand on a small table or a planted line, and
a source for every number that is shipped."""

from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.public import credit
from rftlab.studies.analysis.public.credit import ending_lines, reported_scores
from rftlab.studies.analysis.public.store import DATA
from rftlab.studies.data.paper.experiments import endpoints
from tests.support.estimators.vectors import ROOT
from tests.support.machine.here import printed

PAGE = ROOT / "docs" / "lab" / "public.md"


def small_table():
    """Three families; a is 0.1 off its reported scores, b and c are 0.05 off."""
    rows = [("a-1", 1.0, "instruct", 0.0, 0.4, 0.5), ("a-2", 2.0, "instruct", 0.2, 0.5, 0.6),
            ("b-1", 1.0, "instruct", 0.1, 0.5, 0.45), ("c-1", 4.0, "base", 0.3, 0.7, 0.75),
            ("b-2", 2.0, "base", np.nan, 0.6, 0.65)]  # fmt: skip
    names = ["model", "parameters", "kind", "base_in_harness", "end", "reported"]
    return pd.DataFrame(rows, columns=names).assign(family=[*"aabcb"], task="gsm8k", credited=False)


def test_errors_of_each_forecast_by_hand():
    errors = credit.end_errors(small_table())
    assert errors["reported"].tolist() == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.05])
    assert errors["no change"].tolist() == pytest.approx([0.4, 0.3, 0.4, 0.4, np.nan], nan_ok=True)
    # mean gain of the other families: a from 0.4 and 0.4, b from 0.4, 0.3 and 0.4, c from 0.4, 0.3 and 0.4
    own = [0.0, 0.1, 0.1 + 1.1 / 3 - 0.5, 0.3 + 1.1 / 3 - 0.7, np.nan]
    assert errors["mean gain"].tolist() == pytest.approx(np.abs(own), nan_ok=True)
    rows = small_table()
    others = rows[rows["family"] != "c"]
    slope, start = np.polyfit(np.log(others["parameters"]), np.log(others["end"] / (1 - others["end"])), 1)
    forecast = 1 / (1 + np.exp(-(start + slope * np.log(4.0))))
    assert credit.end_errors(rows)["size"][3] == pytest.approx(abs(forecast - 0.7))

    # and tasks have intercepts of their own
    rows = small_table().assign(task=["gsm8k", "gsm8k", "gsm8k", "math", "math"])
    logit = {"gsm8k": 0.5, "math": -1.0}
    ends = rows["task"].map(logit) + 0.8 * np.log(rows["parameters"])
    errors = credit.end_errors(rows.assign(end=1 / (1 + np.exp(-ends))))
    assert errors.loc[3, "size"] == pytest.approx(0.0, abs=1e-9)


def test_the_lead_resamples_whole_families_and_what_is_added_is_a_mean_and_two_quantiles():
    rows = small_table()[:4]
    errors = credit.end_errors(rows)
    closer = errors["no change"] - errors["reported"]
    lead = credit.grouped_mean(closer, rows["family"])
    assert lead.value == pytest.approx(np.mean([0.3, 0.2, 0.35, 0.35]))
    # a family drawn three times is the least and the most that can be; a 1 in 27 draw is beyond 2.5%
    assert (lead.low, lead.high) == pytest.approx((0.25, 0.35))
    assert credit.grouped_mean(closer, pd.Series("one", rows.index))[1:] == pytest.approx((lead.value, lead.value))
    above = credit.above_reported(small_table())
    ordered = sorted([-0.1, -0.1, 0.05, -0.05, -0.05])
    low, high = ordered[0] + 0.4 * (ordered[1] - ordered[0]), ordered[3] + 0.6 * (ordered[4] - ordered[3])
    assert above == pytest.approx((-0.05, low, high))
    rows = [values[1:3] for values, _ in credit.credit_table(small_table()).rows[:2]]
    assert np.concatenate(rows) == pytest.approx([0.25 / 3, 0.05, 1.1 / 3, 0.4]), "of the runs with a known base"


def test_the_share_between_pairs_is_that_of_a_balanced_analysis_of_variance():
    scores = [e for e in endpoints() if e.split == "test"]
    base = {(e.model, e.dataset): e.pass_at_1 for e in scores if e.advantage == "none"}
    gains = {pair: [] for pair in base}
    for e in scores:
        if e.advantage != "none":
            gains[e.model, e.dataset].append(e.pass_at_1 - base[e.model, e.dataset])
    table = np.array(list(gains.values()))
    within = ((table - table.mean(axis=1, keepdims=True)) ** 2).sum() / ((table - table.mean()) ** 2).sum()
    assert table.shape == (6, 8) and credit.share_between_pairs() == pytest.approx(1 - within)
    assert credit.share_between_pairs() == pytest.approx(0.96, abs=0.005)


def test_every_run_that_is_shipped_has_its_sources_and_scores():
    rows = credit.reported_scores()
    assert len(rows) >= 26 and not rows.duplicated(["model", "task", "end_source"]).any()
    for column in ("end_source", "reported_source"):
        assert rows[column].str.contains(r"arXiv \d{4}\.\d{5}|model card|README|\w/\w").all()
    assert set(rows["kind"]) == set(credit.KINDS) and set(rows["task"]) <= set(credit.TASKS)
    assert rows[["end", "reported"]].gt(0).all(axis=None) and rows[["end", "reported"]].lt(1).all(axis=None)
    assert rows["base_in_harness"].dropna().between(0, 1).all() and rows["parameters"].gt(0).all()
    instruct = rows["kind"] == "instruct"
    assert (rows["model"] == rows["reported_model"]).tolist() == instruct.tolist()
    assert rows[["model", "reported"]].groupby(rows["reported_model"] + rows["task"])["reported"].nunique().eq(1).all()
    published = {(e.model, e.dataset, e.advantage, e.rollouts): e.pass_at_1 for e in endpoints() if e.split == "test"
                 and e.batch_size in (0, 32) and not e.support_rollouts}  # fmt: skip
    own = credit.reported_scores().query("end_source.str.contains('2601.22532')")
    assert len(own) == 6
    for row in own.itertuples():
        assert row.base_in_harness == published[row.model, row.task, "none", 0]
        assert row.end == published[row.model, row.task, "reward", 1]


def test_the_page_prints_what_the_command_does():
    shown = "\n".join(f"    {line}".rstrip() for line in printed(credit.show_credit, width=100).splitlines())
    assert shown.rstrip() in PAGE.read_text()

    # without Qwen the reported score is further off, as the page says
    rows = credit.reported_scores().query("not credited")
    errors = credit.end_errors(rows)[rows["family"] != "qwen2.5"]
    said = f"{errors['reported'].mean():.3f} off ({len(errors)} runs, no change {errors['no change'].mean():.3f} in the"
    assert f"{said} {errors['no change'].count()}" in " ".join(PAGE.read_text().split())


def test_the_blind_rows_are_those_that_were_written_down_and_nothing_of_them_enters_their_rivals():
    written = (DATA / "blind_scores.csv").read_bytes()
    assert sha256(written).hexdigest() == credit.BLIND
    rows, public = credit.blind_scores(), PAGE.read_text()
    assert credit.BLIND in public and len(rows) == len((DATA / "blind_ends.csv").read_text().splitlines()) - 1
    assert not rows.duplicated(["model", "task", "end_source"]).any() and rows["end_source"].str.len().gt(10).all()
    assert rows["end"].between(0, 1).all() and rows["base_in_harness"].dropna().between(0, 1).all()
    old = reported_scores()
    assert not (set(rows["model"] + rows["task"]) & set(old["model"] + old["task"]))
    blind, old = credit.blind_scores(), reported_scores().query("not credited")
    errors = credit.end_errors(blind, old)
    for place in (0, len(blind) - 1):
        alone = credit.end_errors(blind.iloc[[place]], old)
        np.testing.assert_allclose(alone.to_numpy(), errors.iloc[[place]].to_numpy())
    row = blind.iloc[0]
    others = old[old["family"] != row["family"]]
    gain = np.nanmean(others["end"] - others["base_in_harness"])
    assert errors.loc[0, "mean gain"] == pytest.approx(abs(row["base_in_harness"] + gain - row["end"]))
    assert not np.allclose(errors["size"], credit.end_errors(blind)["size"])


def test_the_blind_lines_and_the_page_say_the_errors_of_the_rows():
    rows = credit.blind_scores().dropna(subset="base_in_harness")
    off, stay = (rows[column].sub(rows["end"]).abs() for column in ("reported", "base_in_harness"))
    base = rows["kind"] == "base"
    lines = " ".join(credit.blind_lines())
    assert f"base models: reported score {off[base].mean():.3f} off, no change {stay[base].mean():.3f}" in lines
    own = base & ~rows["family"].eq("gemma")
    said = f"{off[own].mean():.3f} off and no change {stay[own].mean():.3f} ({own.sum()} runs of base"
    assert said in " ".join(PAGE.read_text().split())


def test_the_figure_has_a_line_for_each_run_with_a_known_base():
    chart, numbers = credit.credit_figure()
    assert len(numbers) == credit.reported_scores()["base_in_harness"].notna().sum()
    assert sum(len(panel.shapes) for panel in chart.panels) == len(numbers)
    base, reported, end = (np.concatenate([panel.series[i].x for panel in chart.panels]) for i in range(3))
    rows = numbers[["base_in_harness", "reported", "end"]].itertuples(index=False, name=None)
    assert sorted(zip(base, reported, end, strict=True)) == sorted(rows)


def test_a_reported_score_says_where_runs_end():
    rows = reported_scores()
    own = rows[(rows["kind"] == "instruct") & ~rows["credited"]]
    low, high = np.quantile(own["end"] - own["reported"], [0.1, 0.9])
    first, blind, second, third = ending_lines(0.5, "instruct")
    assert f"expect {0.5 + low:.2f} to {0.5 + high:.2f}" in first and f"80% of {len(own)} public runs" in first
    assert "about 0.50" in second and "does not cover" in third
    ends = credit.blind_scores().query("kind == 'instruct'")
    inside = [low <= end - score <= high for end, score in zip(ends["end"], ends["reported"], strict=True)]
    assert f"{len(ends)} ends were looked up" in blind and f"{sum(inside)} lie in the 80% range" in blind
    assert "instruct sibling" in ending_lines(0.5, "base")[0]
    assert ending_lines(0.99, "instruct")[0].endswith("to 1.00.")
    with pytest.raises(UserError, match="kind"):
        ending_lines(0.5, "chat")


def planted(noise: float = 0.0) -> pd.DataFrame:
    """Six sources of two families on two tasks: logit(end) = 0.5 + 1.5 log10(size), family b 1 lower, MATH 1 lower."""
    rng = np.random.default_rng(0)
    rows = [
        (f"s{i}", group, parameters, task, expit(0.5 + 1.5 * np.log10(parameters) - (group == "b") - (task == "math")
                                                 + noise * rng.standard_normal()))
        for i, parameters in enumerate((0.5, 1, 2, 4, 8, 16)) for group in "ab" for task in ("gsm8k", "math")
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["source", "group", "parameters", "task", "end"])
    return table.assign(reported=table["end"], base_in_harness=table["end"] - 0.2, credited=False)


@pytest.mark.parametrize(("family", "lower"), [("a", 0.0), ("b", 1.0)])
def test_a_planted_line_comes_back(monkeypatch, family, lower):
    monkeypatch.setattr(credit, "grouped_ends", planted)
    for parameters in (1.0, 3.0):
        one = credit.predict_end(parameters, family, "gsm8k")
        assert one.known and one.end.value == pytest.approx(expit(0.5 + 1.5 * np.log10(parameters) - lower), abs=0.02)
        assert one.error < 0.03 and one.format.value == pytest.approx(0.2)
    unknown = credit.predict_end(3.0, "c", "gsm8k")
    assert not unknown.known and unknown.error > 0.05 and unknown.end.high - unknown.end.low > 0.1
    # the width covers ends of sources that were left out
    monkeypatch.setattr(credit, "grouped_ends", lambda: planted(0.5))
    one = credit.predict_end(2.0, "a", "gsm8k")
    assert one.end.low < one.end.value < one.end.high and one.error > 0.05


def test_shuffled_ends_are_forecast_worse(monkeypatch):
    whole = credit.predict_end(1.5, "qwen", "gsm8k").error
    rows = credit.grouped_ends()
    own = rows["group"] == "qwen"
    rows.loc[own, "end"] = rows.loc[own, "end"].sample(frac=1, random_state=1).to_numpy()
    monkeypatch.setattr(credit, "grouped_ends", lambda: rows)
    assert credit.predict_end(1.5, "qwen", "gsm8k").error > whole + 0.05
