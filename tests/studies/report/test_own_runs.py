"""`rftlab report` of what `rftlab run` and `rftlab train` left: a page for every results folder, also in a browser."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import rftlab as rl
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.imported.ends import advice_on
from rftlab.studies.analysis.imported.groups import MEASURES, source_groups
from rftlab.studies.analysis.imported.own import own_runs, run_folders
from rftlab.studies.analysis.imported.page import collection_view
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries
from rftlab.studies.readers.store import write_collection
from tests.support.machine.here import refused, rftlab, shown
from tests.support.web.browser import HOSTILE
from tests.support.web.reports import without_script

QUICK = ("--rounds", "20", "--eval-every", "10", "--quiet")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two designs of one pair, three seeds each, as `rftlab run` stores them."""
    root = tmp_path_factory.mktemp("results") / "mine <runs>"
    for batch in ("8", "16"):
        shown("run", "cell", "--batch-size", batch, "--seeds", "3", "--results", root, *QUICK)
    return root


def test_a_folder_without_a_study_has_a_report(results):
    text = shown("report", "--results", results, "--quiet")
    page = without_script((results / "report-runs" / "report.html").read_text())
    assert "Runs in mine <runs>: 6 runs" in text
    assert "qwen-gsm8k" in page and "So what should I choose?" in page and 'class="plot"' in page
    ends = pd.read_csv(results / "report-runs" / "ends.csv")
    assert sorted(ends["design"]) == ["16x8", "8x8"] and set(ends["runs"]) == {3}
    names = {f"qwen-gsm8k/{batch}x8-paper_text-s{seed}" for batch in (8, 16) for seed in range(3)}
    assert {run.name for run in own_runs(results)} == names


def test_a_results_folder_is_an_object(results):
    folder = rl.ResultsFolder(results)
    runs, curves = folder.runs(), folder.curves("sim")
    assert len(runs) == 6 and set(runs["seed"]) == {0, 1, 2} and set(runs["pair"]) == {"qwen-gsm8k"}
    assert runs["cell"].nunique() == 2 and list(folder.runs("llm").columns) == list(runs.columns)
    assert len(folder.runs("llm")) == 0 and folder.curves("llm").empty
    ends = curves[curves["round"] == 20].set_index(["cell", "seed"])
    assert len(ends) == 6 and ends["test_pass_at_1"].between(0, 1).all()
    design = rl.Design(8, 8, estimator=rl.preset("paper_text"), rounds=20, eval_every=10)
    again = rl.simulate(replace(rl.start_at("qwen-gsm8k", "sim"), design=design, seed=0))
    one = curves.query("cell == '8x8-paper_text' and seed == 0")
    assert one["test_pass_at_1"].tolist() == again.curve.test_pass_at_1.tolist()
    with pytest.raises(UserError, match=r"level = 'simulated' is unknown; allowed: sim, llm, .*train"):
        folder.runs("simulated")
    assert repr(folder) == f"ResultsFolder({str(results)!r}): 6 finished runs"
    page = folder._repr_html_()
    assert "sim qwen-gsm8k" in page and "6 runs of 2 designs" in page and "mine &lt;runs&gt;" in page


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_no_results_folder(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="allowed: a"):
        rl.ResultsFolder(tmp_path / name)


def test_the_folder_of_one_run_has_a_report(results, tmp_path):
    (one, *_) = run_folders(results)
    alone = shutil.copytree(one, tmp_path / "train")
    (alone / "done.json").unlink()
    shown("report", "--results", alone, "--quiet")
    assert "one design, so nothing is compared" in (alone / "report-runs" / "report.html").read_text()


@pytest.mark.parametrize("file", ["curve.parquet", "config.json", "done.json"])
def test_a_run_that_was_changed_is_named(results, tmp_path, file):
    copy = shutil.copytree(results, tmp_path / "copy", ignore=shutil.ignore_patterns("report-*"))
    (one, *_) = run_folders(copy)
    path = one / file
    if file == "curve.parquet":
        pd.read_parquet(path).assign(test_pass_at_1=0.9).to_parquet(path, index=False)
    else:
        facts = json.loads(path.read_text())
        path.write_text(json.dumps(facts | {"seed": 99}))
    for read in (own_runs, lambda root: rl.ResultsFolder(root).curves()):
        with pytest.raises(UserError, match=r"cannot be trusted: .*; remove it"):
            read(copy)
    status, text = rftlab("report", "--results", copy, "--quiet")
    assert status == 2 and one.name in text and not (copy / "report-runs").exists()


def test_a_folder_without_runs_says_what_it_lacks_and_no_link_is_followed(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "copy")
    shutil.rmtree(copy / "sim")
    assert "rftlab reproduce" in refused("report", "--results", copy, "--quiet")
    (copy / "sim").symlink_to(results / "sim")
    assert run_folders(copy) == []


def test_advice_says_how_many_designs_were_tried(results):
    side = source_groups(RunSource("imported", "x"), own_runs(results), MEASURES[0])
    (found,) = advice_on(collection_view([side], "rounds").ends)
    assert (found.pair, found.tried, found.trust) == ("qwen-gsm8k", 2, "fair")


@pytest.fixture(scope="module", params=["report imported:evil", "compare imported:evil imported:again"])
def hostile(tmp_path_factory, request):
    """The page of imported runs whose every text is hostile, and that of two such collections beside each other."""
    root = hostile_results(tmp_path_factory.mktemp("hostile"), "evil", "again")
    shown(*request.param.split(), "--results", root, "--quiet")
    [page] = root.glob("*/*.html")
    return page


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_names_of_runs_do_nothing(browser, hostile, width):
    browser.open(hostile, width)
    browser.sound()
    assert browser.driver.title.startswith("rftlab")


def test_a_printer_gets_whole_legends(browser, hostile):
    """On a screen a long one scrolls."""
    keys, cut = "[...document.querySelectorAll('.panel .keys')]", "(e => e.scrollHeight > e.clientHeight + 1)"
    cut = f"return {keys}.filter{cut}.length"
    browser.open(hostile, media="print")
    lists = browser.all(".panel .keys")
    browser.run("document.querySelector('.panel .keys').append(...Array.from({length: 40}, () => "
                "document.querySelector('.panel .keys li').cloneNode(true)))")  # fmt: skip
    assert lists and browser.run(cut) == 0
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    assert browser.run(cut) > 0


def hostile_results(tmp_path, *collections):
    """A results folder with imported collections of equal runs: one for each hostile name, which is its model too."""
    rounds, root = np.array([0, 1, 2, 3]), tmp_path / "results"
    for name in collections:
        runs = []
        for i, text in enumerate(HOSTILE):
            design = KnownDesign(prompts=8, rollouts=8, model=text, advantage=text, assumed=(text,))
            pieces = tuple(
                MetricSeries(split, text, metric, text, rounds, 0.1 + 0.1 * rounds, None, rounds)
                for split, metric in (("test", "pass_at_1"), ("train", "reward_mean"))
            )
            runs.append(ImportedRun(f"{i} {text}", text, "", ((text, "0" * 64),), design, pieces, (text,)))
        write_collection(root, name, runs)
    return root
