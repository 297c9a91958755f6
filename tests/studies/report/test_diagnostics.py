"""What explains a disagreement: gradient signal-to-noise from norms, pass rates over time."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.analysis.compare.diagnostics import (
    BINS,
    EDGES,
    bin_shares,
    decomposed,
    relatives,
    sampled_rates,
    signal_to_noise,
    simulated_rates,
)
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.store import DamagedPoint, mark_done, point_folder


def test_relatives_differ_in_the_batch_size_alone():
    assert relatives("32x8-paper_text") == ["32x8-paper_text", "64x8-paper_text", "128x8-paper_text"]
    assert relatives("256x1-paper_text") == [
        "32x1-minimalist",
        "256x1-paper_text",
    ]  # a group of one trains on the raw reward
    assert relatives("32x1+7-paper_text") == ["32x1+7-paper_text"]
    assert relatives("256x1w8-paper_text") == []


def planted(signal, noise, cells):
    """Curves of designs whose squared norm is signal + noise / B, at rewards that grow with the round."""
    rows = [
        (cell, seed, at, at / 100, np.sqrt(signal + noise / int(cell.split("x")[0])))
        for cell in cells
        for seed in (0, 1)
        for at in range(0, 60, 10)
    ]
    return pd.DataFrame(rows, columns=["cell", "seed", "round", "reward", "grad_norm"])


def test_planted_signal_and_noise_are_found():
    curves = planted(2.0, 640.0, relatives("32x8-paper_text"))
    found = signal_to_noise(curves, "64x8-paper_text")
    assert found["signal_to_noise"].to_numpy() == pytest.approx(2.0 / (640 / 64)) and set(found["reward"].round(2)) == {
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
    }
    assert (
        signal_to_noise(planted(0.0, 640.0, relatives("32x8-paper_text")), "32x8-paper_text")["signal_to_noise"].max()
        < 1e-9
    )
    assert signal_to_noise(curves, "32x1+7-paper_text").empty


def test_designs_are_compared_at_equal_reward_and_not_beyond():
    curves = planted(2.0, 640.0, ["32x8-paper_text", "64x8-paper_text"])
    faster = curves.assign(reward=np.where(curves["cell"] == "64x8-paper_text", 2 * curves["reward"], curves["reward"]))
    assert signal_to_noise(faster, "32x8-paper_text")["reward"].between(0.2, 0.5).all()


def test_the_law_of_norms_holds_in_the_simulator():
    """At a policy that stays (rate 0), the norm at 64 contexts follows from those at 32 and 128, up to what squaring
    a mean leaves out."""
    start = start_at("qwen-gsm8k", "sim")
    world, squares = build(start.environment), {}
    for size in (32, 64, 128):
        design = replace(EXPERIMENTS["batch"].cells[0], batch_size=size, rounds=400, eval_every=200)
        run = replace(start, design=design, optimizer=replace(start.optimizer, learning_rate=0.0))
        squares[size] = (simulate(run, world).curve.grad_norm[1:] ** 2).mean()
    signal, noise = decomposed(np.array([[squares[32]], [squares[128]]]), np.array([32, 128]))
    assert float((signal + noise / 64)[0]) == pytest.approx(squares[64], rel=0.08)
    assert float((signal + noise / 32)[0]) == pytest.approx(squares[32])


@pytest.mark.parametrize(
    "more", [{}, {"sharpening": 2.0, "correctness": 1.0, "forgetting": 0.5, "damage": 50.0, "verbosity": 9.0}]
)
def test_simulated_pass_rates_average_to_the_curve(more):
    start = start_at("llama-gsm8k", "sim")
    environment = replace(start.environment, **more)
    cell = replace(EXPERIMENTS["batch"].cells[0], rounds=40, eval_every=20)
    run = replace(start, design=cell, environment=environment)
    curve, rates = simulate(run, build(run.environment)).curve, simulated_rates(run)
    assert list(rates) == [0, 20, 40]
    assert [found.mean() for found in rates.values()] == pytest.approx(curve.train_pass_at_1, abs=1e-5)


def test_shares_of_pass_rates():
    assert len(BINS) == len(EDGES) - 1
    assert bin_shares(np.array([0.0, 0.01, 0.3, 1.0])) == pytest.approx([0.5, 0, 0.25, 0, 0, 0.25])


def test_rollouts_of_a_language_model_tell_pass_rates_of_prompts_with_enough_responses(tmp_path):
    start = start_at("tiny-mix97", "llm")
    point = RunSpec(
        "tiny-mix97", replace(start, design=replace(EXPERIMENTS["batch"].cells[0], rounds=20, eval_every=10))
    )
    assert sampled_rates(point, tmp_path) == {}
    folder = point_folder(tmp_path, point) / "rollouts"
    folder.mkdir(parents=True)
    rows = pd.DataFrame(
        {
            "round": [1] * 4 + [10] * 3 + [11] * 4,
            "prompt": [5] * 4 + [6] * 3 + [5] * 4,
            "strict": [1.0, 0, 0, 0] + [1.0] * 3 + [1.0] * 4,
        }
    )
    rows[rows["round"] <= 10].to_parquet(folder / "000001-000010.parquet")
    rows[rows["round"] > 10].to_parquet(folder / "000011-000020.parquet")
    for table in ("curve", "metrics"):
        (folder.parent / f"{table}.parquet").write_bytes(b"")
    mark_done(tmp_path, point, None, {"commit": "", "versions": {}, "seconds": 1.0})
    assert {at: list(found) for at, found in sampled_rates(point, tmp_path).items()} == {10: [0.25], 20: [1.0]}
    (folder / "000011-000020.parquet").write_bytes((folder / "000001-000010.parquet").read_bytes())
    with pytest.raises(DamagedPoint, match=r"rollouts/000011-000020\.parquet does not match its checksum"):
        sampled_rates(point, tmp_path)
