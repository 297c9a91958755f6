"""The reference runs of language models that come with the package, and the choice of their learning rates."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dev.export import export
from dev.rates import CELLS, points_at, scores
from rftlab import Curve, start_at
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.results import reference as module
from rftlab.studies.data.results.reference import COLUMNS, reference, shipped_runs, smollm2_points
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.data.runs.study import Study, write_study


def test_reference_runs_are_whole_studies():
    curves = reference().curves
    assert tuple(curves.columns) == COLUMNS and set(curves["pair"]) == {"tiny-mix97", "tiny-mod97", "tiny-sign97"}
    for pair, own in curves.groupby("pair"):
        usual = start_at(pair, "llm").design
        assert set(own["cell"]) == {label(cell) for cell in distinct_cells(list(EXPERIMENTS.values()))}
        assert set(own["planned_rounds"]) == {usual.rounds}
        ended = own.groupby(["cell", "seed"])["round"].agg(["max", "count"])
        assert set(ended["max"]) == {usual.rounds} and set(ended["count"]) == {usual.rounds // usual.eval_every + 1}
        assert ended.reset_index().groupby("cell")["seed"].apply(tuple).nunique() == 1
        assert own["test_pass_at_1"].between(0, 1).all()
        assert own["test_pass_at_1"].max() > own["test_pass_at_1"].iloc[0] + 0.3


def test_single_cells_of_smollm2_come_with_it():
    curves, wanted = shipped_runs(), {(point.pair, point.cell, point.run.seed) for point in smollm2_points()}
    own = curves[~curves["pair"].isin(reference().curves["pair"])]
    assert set(zip(own["pair"], own["cell"], own["seed"], strict=True)) == wanted
    assert own["planned_rounds"].eq(20).all()


def test_exported_runs_come_back(tmp_path, monkeypatch):
    root = store.open_store(tmp_path / "results")
    points = study_points([EXPERIMENTS["baseline"]], "llm", ["tiny-mod97"], 2, 2)
    for point in points:
        folder, rounds = store.point_folder(root, point), np.array([0, 1, 2])
        folder.mkdir(parents=True)
        columns = {name: np.arange(3.0) / 2 for name in Curve._fields}
        columns |= {"seed": point.run.seed, "round": rounds, "rollouts": 32 * rounds, "tokens": 32 * rounds}
        pd.DataFrame(columns).to_parquet(folder / "curve.parquet")
        metrics = pd.DataFrame({"seed": point.run.seed, "round": rounds, "length": 5.0})
        metrics.to_parquet(folder / "metrics.parquet")
        (folder / "config.json").write_text(json.dumps(point.config))
        store.mark_done(root, point, None, {"commit": "", "versions": {}, "seconds": 1.0})
    monkeypatch.setattr("rftlab.studies.data.runs.study.EXPERIMENTS", {"baseline": EXPERIMENTS["baseline"]})
    write_study(root, Study("llm", ["tiny-mod97"], 2, 2))
    other = shipped_runs().head(2).assign(pair="other")
    own = shipped_runs().head(2).assign(pair="tiny-mod97", cell=points[0].cell, seed=[1, 2])
    there = pd.concat([other, own], ignore_index=True)
    there.to_parquet(tmp_path / "language.parquet")
    monkeypatch.setattr(module, "FILE", tmp_path / "language.parquet")
    export(root)
    export(root)
    curves = shipped_runs()
    kept = there.drop(2).reset_index(drop=True)  # seed 1 was run again, seed 2 was not
    pd.testing.assert_frame_equal(curves.head(3), kept, check_dtype=False)
    curves = curves.iloc[3:]
    assert tuple(curves.columns) == COLUMNS and len(curves) == 6 and set(curves["seed"]) == {0, 1}
    assert curves["test_flexible"].tolist() == [0, 0.5, 1] * 2
    curves.iloc[:-1].to_parquet(tmp_path / "language.parquet")
    assert reference().diverged == ["tiny-mod97, 32x1-minimalist, seed 1: diverged after round 1"]


def test_a_rate_is_judged_on_the_validation_split_by_all_its_cells():
    start = start_at("tiny-mix97", "llm")
    (slow, fast) = points_at("tiny-mix97", [1e-5, 1e-2], 2)
    assert {point.run.evaluation.split for point in slow + fast} == {"validation"} and start.evaluation.split == "test"
    assert {point.run.optimizer.learning_rate for point in fast} == {1e-2}
    assert {point.run.design.batch_size for point in fast} == {1, 32, 256}
    assert replace(slow[0].run, optimizer=start.optimizer, evaluation=start.evaluation, design=start.design) == start
    rows = [(label(cell), seed, at, 600, 0.1 * at / 600) for cell in CELLS for seed in (0, 1) for at in (0, 600)]
    curves = pd.DataFrame(rows, columns=["cell", "seed", "round", "planned_rounds", "test_pass_at_1"])
    assert scores(curves).tolist() == pytest.approx([0.1] * 4)
    assert scores(curves[:-1])[label(CELLS[-1])] == pytest.approx(0.05)  # a seed that diverged counts as 0
