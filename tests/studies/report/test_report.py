"""The report: self-contained, safe, repeatable, and true to the numbers it was given."""

import base64
import hashlib
import html
import json
import os
import re
from importlib.resources import files
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rftlab.shared.plumbing.files import WRITING
from rftlab.studies.data.paper.experiments import EXPERIMENTS, label
from rftlab.studies.data.results.claims import CLAIMS, judge
from rftlab.studies.data.results.endpoints import endpoint_table, gains
from rftlab.studies.data.results.language import PHASES, costs
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.report.claims import VERDICTS
from rftlab.studies.report.draw import save_chart
from rftlab.studies.report.figures import mean_curves, tradeoff
from rftlab.studies.report.report import script as page_script
from rftlab.studies.report.report import terminal_summary, write_report
from tests.support.web import reports
from tests.support.web.reports import ARXIV, CHOSEN, HOSTILE, PAIRS, TINY, curves_of, part, with_metrics, write


def short_run(table):
    """Rows of the pair and cell that have the diverged run."""
    return table[(table["pair"] == PAIRS[0]) & (table["cell"] == label(CHOSEN[1].cells[0]))]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report of three pairs and two seeds, one of whose runs diverged, with hostile text wherever text comes from
    outside."""
    curves = curves_of(PAIRS, seeds=2)
    curves = curves.drop(short_run(curves).query("seed == 1 and round == 2000").index)
    return write(tmp_path_factory.mktemp("report"), curves, HOSTILE), curves


def test_report_is_self_contained(written):
    page, script = written[0].read_text(), f"<script>{page_script()}</script>"
    assert page.count(script) == 1 and "http" not in script.replace("http://www.w3.org/2000/svg", "")
    page = page.replace(script, "")
    assert not re.search(r"<script|<link|<iframe|<img|@import|url\(|\bsrc=|https?://(?!arxiv)", page)
    targets = set(re.findall(r'\bhref="([^"]*)"', page))
    assert all(f'id="{target[1:]}"' in page for target in targets if target.startswith("#"))
    files = {target for target in targets if not target.startswith("#")} - {ARXIV}
    assert len(files) == 2 + 3 * 6 and all((written[0].parent / file).is_file() for file in files)
    assert page.count("<figure") == len(re.findall(r'<figure aria-label="[^"]{20,}"', page)) == 6
    named = re.findall(r'class="plot"[^>]* role="img" aria-label="[^"]{10,}"', page)
    assert len(named) == page.count('class="plot"') == 1 + 2 + 1 + 6 + 3 + 6


def test_a_changed_study_and_one_of_other_rounds_say_so(tmp_path, capsys):
    one = part(curves_of(PAIRS[:1], seeds=2), changed="environment.kappa = 9.0")
    one = one._replace(endpoints=one.endpoints.assign(published=np.nan, difference=np.nan))
    page = write_report(tmp_path, CHOSEN, one, None, {}, []).read_text()
    assert "This study changes environment.kappa = 9.0" in page and "fitted to all its published" not in page
    assert "in-sample" not in page and "Nothing here is fitted" in page
    curves = curves_of(PAIRS[:1], seeds=2)
    for rounds, said in ((1000, True), (2000, False)):
        main = part(curves.assign(planned_rounds=rounds))
        terminal_summary([main], Console(width=200))
        page = write_report(tmp_path, CHOSEN, main, None, {}, []).read_text()
        for shown in (capsys.readouterr().out, page):
            unfair = f"trains for {rounds} rounds and the paper for 2000: its numbers are no fair comparison"
            assert (unfair in shown) == said


def test_numbers_are_there_without_scripts_and_marks_carry_those_that_were_drawn(written):
    """Tables hold what the figures of endpoints show, and pictures are drawn."""
    page, endpoints = written[0].read_text(), pd.read_csv(written[0].parent / "endpoints.csv")
    series = [json.loads(html.unescape(found)) for found in re.findall(r' data-v="([^"]*)"', page)]
    told = [row[2:] for rows in series for row in rows if len(row) == 6]
    for row in endpoints[endpoints["experiment"] == "tradeoff"].itertuples():
        assert f"<b>{row.mean:.3f}</b>" in page
        known = pytest.approx([row.mean, row.low, row.high], rel=1e-4, abs=1e-5)
        assert np.isnan(row.low) or any(tick == row.tick and ends == known for tick, *ends in told)
    assert page.count('<path class="line"') > 60
    assert 'id="tools" hidden' in page and 'id="tip" role="status" hidden' in page


def test_more_than_claimed_is_told_from_less(written):
    page, findings = written[0].read_text(), pd.read_csv(written[0].parent / "findings.csv")
    failed = findings[findings["verdict"] == "not reproduced"]
    sides = failed.drop_duplicates("pair")["side"].tolist()
    assert sides == ["more than claimed", "less than claimed", "in parts more, in parts less than claimed"]
    for mark, side in zip(("▲", "▼", "▲▼"), sides, strict=True):
        kind = "verdict not-reproduced more" if side == sides[0] else "verdict not-reproduced"
        assert f'<span class="{kind}">✗{mark}</span><span class="hidden">not reproduced, {side}</span>' in page


@pytest.mark.parametrize("name", ["page.css", "theory.html.j2"])
def test_columns_of_pages_fit_a_phone(name):
    on_screen = (files("rftlab.studies") / "report" / "templates" / name).read_text().partition("@media print")[0]
    assert not re.search(r"repeat\(\d", on_screen)
    assert all(int(width) <= 360 for width in re.findall(r"minmax\((\d+)px", on_screen))


def test_outside_text_is_escaped_and_a_page_runs_one_script_and_says_which(written):
    page = written[0].read_text()
    digest = base64.b64encode(hashlib.sha256(page_script().encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert page.count("<script") == 1 and "<script>alert" not in page
    assert page.count("&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;") > 3 * len(VERDICTS)


def test_a_diverged_run_leaves_its_curve_short_and_its_endpoint_to_the_others(written):
    path, curves = written
    tables = [pd.read_csv(path.parent / name) for name in ("figures/tradeoff-curves.csv", "endpoints.csv")]
    drawn, endpoints, kept = map(short_run, (*tables, curves))
    assert set(drawn["round"]) == {0, 1000}
    endpoint = endpoints[endpoints["split"] == "test"].iloc[0]
    assert endpoint["seeds"] == 1
    assert endpoint["mean"] == pytest.approx(kept.loc[kept["round"] == 2000, "test_pass_at_1"].item(), abs=1e-6)


def test_files_hold_the_numbers_they_were_given(written):
    path, curves = written
    endpoints = endpoint_table(curves, CHOSEN, PAIRS)
    drawn = endpoints[endpoints["experiment"] == "tradeoff"].reset_index(drop=True)
    for name, table in (("endpoints.csv", endpoints), ("figures/tradeoff-endpoints.csv", drawn)):
        stored = pd.read_csv(path.parent / name)
        pd.testing.assert_frame_equal(stored, table, check_exact=False, atol=1e-6, check_dtype=False)
    findings = pd.read_csv(path.parent / "findings.csv")
    given = [part.measured for f in reports.findings_of(PAIRS, HOSTILE) for part in f.parts]
    assert findings[["measured", "low", "high"]].to_numpy() == pytest.approx(np.array(given), abs=1e-6)
    assert set(findings["published"]) == {0.1}
    for csv in (path.parent / "figures").glob("*.csv"):
        assert "seconds" not in csv.read_text()


def test_bands_are_t_intervals_over_seeds():
    curves = curves_of(PAIRS[:1], seeds=4)
    for row in mean_curves(curves).sample(20, random_state=0).itertuples():
        own = curves[(curves["cell"] == row.cell) & (curves["round"] == row.round)][f"{row.split}_pass_at_1"]
        assert (row.mean, row.low, row.high) == pytest.approx(interval(own.to_numpy()), rel=1e-12)


def test_equal_inputs_give_equal_files(tmp_path):
    curves = curves_of(PAIRS[:1], seeds=2)
    for name in ("first", "second"):
        write(tmp_path / name, curves)
    files = {path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file()}
    assert {path.suffix for path in files} == {".svg", ".png", ".csv", ".html"}
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes(), file
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_one_pair_and_one_seed(tmp_path):
    curves = curves_of(PAIRS[:1], seeds=1)
    seen = []
    hear = {"progress": lambda done, total: seen.append((done, total))}
    path = write_report(tmp_path / "one", EXPERIMENTS.values(), part(curves), None, {}, [], **hear)
    assert "±" not in path.read_text() and seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] == len(list((tmp_path / "one" / "figures").glob("*.svg")))
    # a pair that the paper does not report is drawn without published numbers
    curves = curves_of(PAIRS[2:], seeds=2)
    endpoints = endpoint_table(curves, CHOSEN, PAIRS[2:]).assign(published=np.nan, difference=np.nan)
    page = write_report(tmp_path, CHOSEN, part(curves, endpoints=endpoints), None, {}, []).read_text()
    assert not (tmp_path / "figures" / "agreement.svg").exists()
    assert "The paper reports no endpoint" in page


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    endpoints = endpoint_table(curves_of(PAIRS[:1], seeds=1), CHOSEN, PAIRS[:1])
    figure, numbers = tradeoff(CHOSEN[1], endpoints, PAIRS[:1])
    before = save_chart(figure, tmp_path, "figure", numbers).read_bytes()
    monkeypatch.setattr("rftlab.studies.report.draw.FigureCanvasSVG.print_svg", Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_chart(tradeoff(CHOSEN[1], endpoints, PAIRS[:1])[0], tmp_path, "figure", numbers)
    assert (tmp_path / "figure.svg").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"figure.svg", "figure.png", "figure.csv"}


def test_what_a_killed_process_left_of_a_file_goes_with_the_next_report(tmp_path):
    left, busy, other = (tmp_path / name for name in (f"{WRITING}1", f"{WRITING}2", "table.csv"))
    for path in (left, busy, other):
        path.write_text("half")
    for path in (left, other):
        os.utime(path, (0, 0))
    check_writable(tmp_path)
    assert set(tmp_path.iterdir()) == {busy, other}


def test_terminal_summary_is_short_and_literal_and_fits_80_columns(capsys):
    main, beside = part(curves_of(PAIRS, seeds=2), "[red]text[/red]"), part(curves_of(TINY, seeds=2), level="llm")
    terminal_summary([main, beside], Console(width=100))
    shown = capsys.readouterr().out
    assert "claim 0: [red]text[/red]" in shown
    assert "simulated, in-sample: 3 of 9 reproduced; 0.0 expected if designs did not matter" in shown
    assert "language model: 2 of 6 reproduced; 0.0 expected" in shown
    assert "GSM8K (in-sample)" in shown
    order = [shown.index(title) for title in ("What was found", "How sure that is", "What is fitted")]
    assert order == sorted(order) and len(shown.splitlines()) <= 40
    datasets = ("gsm8k", "math")
    names = [f"{model}-{dataset}" for dataset in datasets for model in ("qwen", "llama", "olmo")]
    curves, tiny = curves_of(names, seeds=2), curves_of([*TINY, "tiny-sign97"], seeds=2)
    main, beside = part(curves, findings=judge(curves, names)), part(tiny, level="llm")
    terminal_summary([main, beside._replace(findings=judge(tiny, beside.pairs))], Console(width=80))
    shown = capsys.readouterr().out
    assert "sign97" in shown and "…" not in shown
    assert all(any(line.startswith(claim.name) for line in shown.splitlines()) for claim in CLAIMS)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A report of one simulated pair with two language models beside it."""
    main, beside = part(curves_of(PAIRS[:1], seeds=2)), part(with_metrics(curves_of(TINY, seeds=2)), level="llm")
    return write_report(tmp_path_factory.mktemp("both"), CHOSEN, main, beside, {}, []), beside


def test_language_models_stand_beside_the_simulator_and_gains_are_split(both):
    path, beside = both
    page = path.read_text()
    assert page.count("<summary>On a small language model</summary>") == len(CHOSEN)
    assert set(pd.read_csv(path.parent / "endpoints.csv")["pair"]) == {PAIRS[0], *TINY}
    drawn = pd.read_csv(path.parent / "figures" / "llm-tradeoff-endpoints.csv")
    expected = beside.endpoints[beside.endpoints["experiment"] == "tradeoff"]["mean"]
    assert drawn["mean"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-6)
    assert "<strong>1 of 3</strong>simulated, in-sample: reproduced" in page
    assert "<strong>2 of 6</strong>language model: reproduced" in page
    table = gains(both[1].curves)
    assert table["gain"].to_numpy() == pytest.approx((table["reasoning"] + table["format"]).to_numpy())
    assert table["format"].to_numpy() == pytest.approx(0.1)
    own = both[1].curves.query(f"pair == '{TINY[0]}' and cell == '{table['cell'][0]}'")
    own = own.pivot(index="seed", columns="round", values="test_pass_at_1")
    known = interval((own[2000] - own[0]).to_numpy())
    assert (table["gain"][0], table["gain_width"][0]) == pytest.approx((known.value, known.high - known.value))
    assert "Format and reasoning" in both[0].read_text()
    assert "Your own batch size, in the browser: <code>make explore</code>" in both[0].read_text()


def test_a_report_of_language_models_says_where_time_and_memory_went(tmp_path):
    curves = with_metrics(curves_of(TINY[:1], seeds=2))
    page = write_report(tmp_path, CHOSEN, part(curves, level="llm"), None, {}, []).read_text()
    table = costs(curves)
    assert table["ms_update"].to_numpy() == pytest.approx(1000 * 3 * (PHASES.index("update") + 1) / 2000)
    assert set(table["peak_mb"]) == {len(PHASES)}
    assert "Time and memory" in page and "on language models" in page and "in-sample" not in page
    assert "make explore" not in page
