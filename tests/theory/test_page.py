"""The theory section of the report, and its figures."""

from html.parser import HTMLParser
from math import ceil, floor

import numpy as np
import pytest

import rftlab.studies.theory.command as command
from rftlab.studies.report.draw import save_chart
from rftlab.studies.theory import ALL_CHECKS, page
from rftlab.studies.theory.check import FAIL, INCONCLUSIVE, PASS, MeasuredValue
from rftlab.studies.theory.command import Result
from rftlab.studies.theory.page import FIGURES, scripts, theory_section
from rftlab.studies.theory.replay import best_length, longest_useful, window_error
from tests.support.theory import made

VOID = {"img", "br", "meta", "link", "mspace"}


class Balance(HTMLParser):
    """Collects ids and texts, and fails where a tag is closed that is not open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture
def section(monkeypatch, tmp_path):
    """Renders results without figures."""

    def render(*results):
        monkeypatch.setattr(page, "FIGURES", {})
        monkeypatch.setattr(command, "GROUPS", {"Algebra & co": tuple(result.check for result in results)})
        return theory_section(list(results), tmp_path)

    return render


def result(check, *verdicts):
    rows = [MeasuredValue(f"number {i} <b>", 1.0, 1.25, 1.0, 1.5, verdict) for i, verdict in enumerate(verdicts)]
    return Result(check, rows, verdicts[0], 0.1)


def test_section_is_well_formed_and_every_link_has_a_target(section):
    html = section(result(made("T1", corrects="a book says x < 1"), PASS), result(made("D7"), *[PASS] * 9))
    tree = Balance(html)
    assert {"theory", "theory-T1", "theory-D7"} <= set(tree.ids) and len(set(tree.ids)) == len(tree.ids)
    assert all(link[0] == "#" and link[1:] in tree.ids for link in tree.links)
    assert "Algebra &amp; co (2)" in html and "number 0 &lt;b&gt;" in html and html.count("a book says x &lt; 1") == 2
    assert html.count('class="formula">a = b<') == 2 and "4 more</summary>" in html


def test_section_counts_and_shows_verdicts(section):
    html = section(result(made("T1"), PASS), result(made("T2"), FAIL), result(made("T3"), INCONCLUSIVE))
    assert "3 statements: 1 pass, 1 fail, 1 inconclusive." in html
    for verdict, article in zip(("pass", "fail", "inconclusive"), html.split("<article")[1:], strict=True):
        assert f'<span class="verdict check-{verdict}">' in article
    assert "Where the literature is corrected" not in html and "0 statements" in section()


def test_every_text_of_the_theory_is_well_formed_and_scripts_raise_and_lower():
    for check in ALL_CHECKS:
        for text in (check.statement, check.formula, check.source, check.corrects, *(m.text for m in check.mutants)):
            Balance(str(scripts(text)))
    raised = "T<sup>1/(2 − 2<sup>1−M</sup>)</sup>, q<sup>k</sup>−1 &lt; R<sub>b</sub>"
    assert scripts("T^(1/(2 − 2^(1−M))), q^k−1 < R_b") == raised
    assert scripts("leave_one_out, n^(-1/2), σ_d²") == "leave_one_out, n<sup>-1/2</sup>, σ<sub>d</sub>²"


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_are_drawn_the_same_each_time(figure, tmp_path):
    saved = []
    for folder in ("a", "b"):
        drawn, table = FIGURES[figure]()
        path = save_chart(drawn, tmp_path / folder, figure, table)
        saved.append([path.with_suffix(suffix).read_bytes() for suffix in (".svg", ".csv")])
    assert saved[0] == saved[1] and not table.isna().any().any()
    assert len(saved[0][1].splitlines()) == len(table) + 1


def test_figures_are_inside_the_page_and_in_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "FIGURES", {"theory-weights": FIGURES["theory-weights"]})
    html = theory_section([], tmp_path)
    Balance(html)
    assert '<svg class="plot"' in html and "data:image" not in html and "figures/theory-weights.csv" in html
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".png", ".svg"]


def test_curves_of_the_figures_are_those_of_the_formulas():
    weights = page.weights_figure()[1].set_index("p")
    flat, infinite = (weights.loc[weights["K"] == k, "W"] for k in ("2", "∞"))
    np.testing.assert_allclose(flat, np.sqrt(0.5))
    np.testing.assert_allclose(infinite, 1 / np.sqrt(infinite.index * (1 - infinite.index)))
    for name, case in page.variance_figure()[1].groupby("case"):
        least = case[case["K"] > 1].set_index("K")["variance"].idxmin()
        assert case["best"].sum() == 1 and abs(least - case["optimum"].iloc[0]) < 1, name
    for drift, part in page.replay_figure()[1].groupby("drift"):
        least, useful = part.loc[part["best"], "window"].item(), part.loc[part["useful"], "window"].max()
        assert least in (floor(best_length(0.5, drift, 4)), ceil(best_length(0.5, drift, 4)))
        assert useful == min(floor(longest_useful(0.5, drift, 4)), part["window"].max())
        np.testing.assert_allclose(part["mse"], window_error(0.5, drift, 4, part["window"].to_numpy()), rtol=1e-10)
    regret = page.regret_figure()[1].set_index(["grid", "batches", "horizon"])["ratio"]
    assert regret["growing", 5, 1e12] / regret["growing", 5, 1e4] < 1.5, "flat where batches grow"
    assert regret["equal", 4, 1e12] / regret["equal", 4, 1e4] > 1000
