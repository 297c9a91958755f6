"""The zoo: forecasts are those that were written, they follow from the pilots, and the printed scores from the files
that are shipped."""

import hashlib
import re

import numpy as np
import pandas as pd
import pytest

from dev import zoo_scores as zoo
from rftlab.studies.analysis.public.credit import grouped_mean
from rftlab.studies.analysis.public.store import DATA
from tests.support.estimators.vectors import ROOT

PAGE = (ROOT / "docs" / "lab" / "pilots.md").read_text().partition("## A zoo of tiny models")[2]


@pytest.fixture(scope="module")
def models():
    return zoo.zoo_models()


def test_the_forecasts_follow_from_the_pilots_and_were_written_before_the_runs(models):
    again = zoo.predict_ends(models).add_prefix("end_")
    pd.testing.assert_frame_equal(models[list(again)], again, atol=2e-5, rtol=0)
    assert (models["end_credit"] >= models[zoo.CREDIT].max(axis=1) - 1e-9).all()
    assert hashlib.sha256((DATA / zoo.PREDICTIONS).read_bytes()).hexdigest() in PAGE
    for label, design in zoo.DESIGNS.items():
        assert label == f"{design.batch_size}x{design.rollouts}"


def slow_gains(models, gains, feature, leave):
    """Forecasts of gains by a line through the models of other pre-trainings, one model at a time."""
    lines = []
    for i, own in enumerate(models["pretraining"]):
        others = [j for j, other in enumerate(models["pretraining"]) if other != own or (not leave and j != i)]
        slope, start = np.polyfit(feature[others], gains[others], 1)
        lines.append(start + slope * feature[i])
    return np.array(lines)


def test_a_line_is_drawn_without_the_models_own_pretraining(models):
    own = models[models["32x1"].notna()].reset_index(drop=True)
    gains = (own["32x1"] - own["strict"]).to_numpy()
    credit = (own["end_credit"] - own["strict"]).to_numpy()
    fast = zoo.gain_maps(own)["+ credit"] @ gains
    np.testing.assert_allclose(fast, slow_gains(own, gains, credit, leave=True), atol=1e-9)
    assert np.abs(fast - slow_gains(own, gains, credit, leave=False)).max() > 1e-3, "its siblings would be seen"


def test_scores_by_hand(models):
    label = "32x1"
    table, own = zoo.score_zoo(models, label), models[models[label].notna()]
    errors = (own["end_credit"] - own[label]).abs()
    assert table.loc["credit", "error"].value == pytest.approx(errors.mean())
    assert table.loc["credit", "rare"] == pytest.approx(errors[own["format"] == "rare"].mean())
    closer = (own["strict"] - own[label]).abs() - errors
    assert table.loc["credit", "closer"] == pytest.approx(grouped_mean(closer, own["pretraining"]), abs=1e-5)


def test_chance_is_even_where_gains_are_shuffled(models):
    own = models[models["32x1"].notna()].reset_index(drop=True)
    shares = []
    for seed in range(3):
        gains = np.random.default_rng(seed).permutation(own["32x1"] - own["strict"])
        shuffled = zoo.score_zoo(own.assign(**{"32x1": own["strict"] + gains}), "32x1")["shuffled"]
        shares.append(shuffled.drop("stays").mean())  # no shuffle changes the error of "stays"
    assert 0.2 < np.mean(shares) < 0.8
    assert zoo.score_zoo(own, "32x1").loc["stays", "shuffled"] == 1.0


def test_the_page_has_the_scores_of_the_files(models):
    for label in (label for label in zoo.DESIGNS if models[label].notna().all()):
        for name, row in zoo.score_zoo(models, label).iterrows():
            error, low, high = row["error"]
            line = next(line for line in PAGE.splitlines() if re.match(rf"\| .*\({re.escape(name)}\) \|", line))
            assert f"{error:.3f} [{low:.3f}, {high:.3f}]" in line, (label, name)


def test_models_that_are_read_ahead_are_what_they_would_be_alone(monkeypatch, tmp_path):
    torch, _ = (pytest.importorskip(name) for name in ("torch", "transformers"))
    from dev import zoo as program
    from rftlab.llm.models import tiny
    from rftlab.llm.tasks.arithmetic import KINDS
    from rftlab.shared.design import Design

    monkeypatch.setitem(KINDS, "mod97", KINDS["mod97"])
    monkeypatch.setattr(program, "EVERY", 1)
    monkeypatch.setattr(tiny, "LOOKS", 1)
    monkeypatch.setattr(tiny, "LONGEST", 4)  # tokens of a validation's answers
    models = [program.ZooModel("mod97", "rare", "32x1", steps) for steps in (2, 4)]
    weights = {}
    for ahead in (True, False):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(ahead)))
        if ahead:
            program.read_ahead(models)
            assert len(list((tmp_path / "True").rglob("state.json"))) == 3
        weights[ahead] = [tiny.pretrained(one.run(Design()).task, one.tiny()).state_dict() for one in models]
    for ours, alone in zip(weights[True], weights[False], strict=True):
        assert all(torch.equal(ours[name], alone[name]) for name in ours)
