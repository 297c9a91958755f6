"""Tables in our own terms with runs.csv beside them; and columns that share their steps."""

import numpy as np
import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_collection, read_logs
from rftlab.studies.readers.store import write_collection
from tests.support.estimators.vectors import ROOT

HEADER = "run_id,round,updates,rollouts,split,metric,value,n,task,seconds,source_step\n"
PUBLIC = ROOT.parent / "shared" / "data" / "runs" / "curves.csv"


def read(folder, *rows, runs=""):
    (folder / "curves.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    if runs:
        (folder / "runs.csv").write_text(runs)
    return read_logs([folder / "curves.csv"])


def test_values_are_kept_as_they_are_and_repairs_are_said(tmp_path):
    rows = ("r,2,2,8,test,pass_at_1,0.5,100,t,,7", "r,0,,,test,pass_at_1,0.25,100,t,,", "r,1,,,train,kl,0.125,,t,,3")
    (run,) = runs = read(tmp_path, *rows)
    write_collection(tmp_path / "results", "c", runs)
    for found in (run, *read_collection(tmp_path / "results", "c")):
        table = found.curves
        assert table["value"].tolist() == [0.25, 0.5, 0.125] and table["round"].tolist() == [0, 2, 1]
        assert table["n"].tolist()[:2] == [100, 100] and np.isnan(table["n"].iloc[2])
        assert table["source_step"].isna().tolist() == [True, False, False] and found.rounds == 2
    (run,) = read(tmp_path, *(f"r,{i},,,test,pass_at_1,{v},,t,," for i, v in ((1, 0.5), (1, 0.75), (2, "nan"))))
    assert run.curves["value"].tolist() == [0.75] and any("repeated" in note for note in run.notes)
    assert any("not finite" in note for note in run.notes)


def test_designs_come_from_the_table_beside(tmp_path):
    runs = (
        "run_id,prompts_per_round,rollouts_per_prompt,trained_rollouts_per_prompt,updates_per_round,learning_rate,"
        "advantage,loss_aggregation,clip,model,note\nr,4,64,16,2,1e-6,group_zscore,token mean,0.2,m,a remark\n"
    )
    r, other = read(tmp_path, "r,1,,,test,pass_at_1,0.5,,t,,", "s,1,,,test,pass_at_1,0.5,,t,,", runs=runs)
    design = r.design
    assert (design.prompts, design.rollouts, design.updates_per_round, design.learning_rate) == (4, 64, 2, 1e-6)
    assert design.advantage == "group_zscore on 16 of 64" and design.loss == "token mean, clip 0.2"
    assert "runs.csv: a remark" in r.notes and len(r.sources) == 2 and other.design.prompts is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("r,x,,,test,pass_at_1,0.5,,t,,", "line 2: round = 'x'; allowed"),
        ("r,1,,,dev,pass_at_1,0.5,,t,,", "line 2: split = 'dev'; allowed: test, train"),
        ("r,1,,,test,pass_at_1,50,,t,,", "line 2: pass_at_1 = '50'; allowed: a share from 0 to 1"),
        ("r,1,,,test,pass_at_1,half,,t,,", "line 2: pass_at_1 = 'half'; allowed: a number"),
        (",1,,,test,pass_at_1,0.5,,t,,", "line 2 has no run_id"),
    ],
)
def test_rows_that_are_not_in_our_terms_are_refused(row, words, tmp_path):
    with pytest.raises(UserError, match=words):
        read(tmp_path, row)


@pytest.mark.skipif(not PUBLIC.is_file(), reason="the collection of public logs is not beside the project")
def test_the_public_collection_is_read_to_the_last_value():
    runs, truth = read_logs([PUBLIC]), pd.read_csv(PUBLIC)
    table = pd.concat([run.curves.astype({"run": str, "split": str, "task": str, "metric": str}) for run in runs])
    clock = table["metric"] == "elapsed_seconds"
    keys = ["run", "round", "split", "metric", "task"]
    both = truth.rename(columns={"run_id": "run"}).merge(table[~clock], on=keys, how="left", suffixes=("", "_ours"))
    assert len(both) == len(truth) == (~clock).sum() and (both["value"] == both["value_ours"]).all()
    assert both["n"].equals(both["n_ours"].astype(float))
    # the column `seconds` is a curve of its own here, with one value a round
    seconds = both.dropna(subset="seconds").groupby(["run", "round"])["seconds"].unique().map(list)
    ours = table[clock].groupby(["run", "round"])["value"].unique().map(list)
    assert len(seconds) and seconds.to_dict() == ours.to_dict()
