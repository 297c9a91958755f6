"""A results folder as an object."""

from dataclasses import replace

import pytest

import rftlab as rl
from rftlab.shared.plumbing.errors import UserError
from tests.support.machine.here import shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two designs of a small world, two seeds each."""
    root = tmp_path_factory.mktemp("results") / "two <designs>"
    sizes = ("--batch-size", "8", "--rounds", "4", "--eval-every", "4", "--seeds", "2")
    for rollouts in ("1", "2"):
        shown("run", "cell", "--rollouts", rollouts, *sizes, "--quiet", "--results", root)
    return root


def test_runs_and_curves(folder):
    found = rl.ResultsFolder(folder)
    runs, curves = found.runs(), found.curves("sim")
    assert len(runs) == 4 and set(runs["seed"]) == {0, 1} and set(runs["pair"]) == {"qwen-gsm8k"}
    assert runs["cell"].nunique() == 2 and list(found.runs("llm").columns) == list(runs.columns)
    assert len(found.runs("llm")) == 0 and found.curves("llm").empty
    ends = curves[curves["round"] == 4].set_index(["cell", "seed"])
    assert len(ends) == 4 and ends["test_pass_at_1"].between(0, 1).all()
    one = curves[(curves["cell"] == runs["cell"][0]) & (curves["seed"] == 0)]
    k = 1 if "x1-" in runs["cell"][0] else 2
    design = rl.Design(8, k, estimator=rl.preset("paper_text"), rounds=4, eval_every=4)
    again = rl.simulate(replace(rl.start_at("qwen-gsm8k", "sim"), design=design, seed=0))
    assert one["test_pass_at_1"].tolist() == again.curve.test_pass_at_1.tolist()

    assert repr(found) == f"ResultsFolder({str(folder)!r}): 4 finished runs"
    page = found._repr_html_()
    assert "sim qwen-gsm8k" in page and "4 runs of 2 designs" in page and "two &lt;designs&gt;" in page


def test_a_changed_run_is_refused(folder):
    (first, *_) = rl.ResultsFolder(folder).runs()["folder"]
    curve = folder / first / "curve.parquet"
    whole = curve.read_bytes()
    curve.write_bytes(whole[:-1] + b"x")
    try:
        with pytest.raises(UserError, match="cannot be trusted"):
            rl.ResultsFolder(folder).curves()
    finally:
        curve.write_bytes(whole)


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_no_results_folder(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="allowed: a"):
        rl.ResultsFolder(tmp_path / name)
