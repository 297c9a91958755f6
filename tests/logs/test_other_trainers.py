"""Logs of trainers that are not known, and stores that several trainers use."""

import json
import sqlite3

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from tests.support.logs.formats import said


def run_of(tmp_path, text, name="log.txt"):
    (tmp_path / name).write_text(text)
    (run,) = read_logs([tmp_path / name])
    return run


UNKNOWN = {
    "slime": "(Actor pid=8) [2026-02-03 10:00] data.py:9 - rollout {s}: {{'rollout/raw_reward': 0.5, 'reward': 0.5}}\n",
    "OpenRLHF": "(PPOTrainer pid=77) Global step {s}: {{'reward': 0.{s}, 'actor_lr': 1e-06}}\n",
    "OpenRLHF's evaluations": "global_step {s}, eval_metrics: {{'eval_gsm8k_pass1': 0.5, 'reward': 0.5}}\n",
    "prime-rl": "10:01:00 SUCCESS Step {s} | Time: 73.77s | Reward: 0.3887 | Throughput: 2003.6 tokens/s\n",
    "prime-rl's file": '{{"step": {s}, "mismatch_kl/all/mean": 0.1, "eval/gsm8k/pass@1": 0.{s}}}\n',
    "Megatron": " iteration        {s}/    2174 | reward: 7.6E-01 | learning rate: 1.0E-06 |\n",
}


@pytest.mark.parametrize("trainer", UNKNOWN)
def test_what_an_unknown_trainer_prints_is_refused_in_a_line(trainer, tmp_path):
    with pytest.raises(UserError, match="allowed"):
        run_of(tmp_path, "".join(UNKNOWN[trainer].format(s=s) for s in (3, 4, 5)))


def test_names_of_unknown_trainers_are_kept_as_they_are(tmp_path):
    """tinker-cookbook counts from 0 and evaluates before it trains, as others that count from 0 do."""
    lines = [{"step": s, "env/all/reward/total": 0.1 * s, "test/env/all/correct": 0.2} for s in range(3)]
    run = run_of(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "metrics.jsonl")
    assert run.tool == "" and said([run]) == {} and {piece.metric for piece in run.pieces} == set(lines[0]) - {"step"}


# --- logs of one object a line ---


def test_ms_swift_writes_the_step_with_the_last_one(tmp_path):
    lines = [
        {"loss": "0.01", "reward": "0.25", "rewards/MathAccuracy/mean": "0.25", "global_step/max_steps": f"{s}/30"}
        for s in (1, 2, 3)
    ]
    run = run_of(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "logging.jsonl")
    numbers = said([run])
    assert run.rounds == 3 and numbers[3, "train", "pass_at_1"] == 0.25


# --- stores ---


def test_a_project_of_trackio_is_read_and_its_calls_are_no_steps(tmp_path):
    path = tmp_path / "project.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
    calls = [{"train/global_step": 10 * s, "train/reward": s / 10} for s in range(1, 5)]
    for number, row in enumerate(calls):
        database.execute(
            "INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", ("mine", number, json.dumps(row))
        )
    database.commit()
    database.close()
    before = path.read_bytes()
    (run,) = read_logs([path])
    assert run.name == "mine" and said([run])[30, "train", "reward_mean"] == 0.3
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("damage", [lambda data: data[:400], lambda data: data.replace(b"metrics", b"matrics")])
def test_another_database_is_one_line(damage, tmp_path):
    path = tmp_path / "other.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE metrics (id INTEGER)")
    database.commit()
    database.close()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match="no table of Trackio's can be read"):
        read_logs([path])


def test_the_trainers_step_outranks_a_count_of_log_calls(tmp_path):
    steps = range(1, 7)
    frame = pd.DataFrame(
        {
            "_step": [3 * s for s in steps],
            "train/global_step": [10 * s for s in steps],
            "train/reward": [s / 10 for s in steps],
        }
    )
    frame.to_csv(tmp_path / "history.csv")  # with pandas' index in front
    frame.to_parquet(tmp_path / "history.parquet")
    for name in ("history.csv", "history.parquet"):
        (run,) = read_logs([tmp_path / name])
        assert said([run])[20, "train", "reward_mean"] == 0.2
    (run,) = read_logs([tmp_path / "history.csv"], {"step": "_step"})
    assert said([run])[6, "train", "reward_mean"] == 0.2


# --- lines that a terminal broke ---

METRICS = " - ".join(f"critic/score/part{i}:0.{i:03d}" for i in range(40))


@pytest.mark.parametrize("width", [80, 131, 200, 400])
def test_step_lines_of_verl_broken_at_any_width_say_the_same(width, tmp_path):
    lines = [f"step:{s} - critic/score/mean:0.{s}5 - {METRICS} - actor/entropy:0.{s}25" for s in (1, 2, 3)]
    whole = said([run_of(tmp_path, "".join(line + "\n" for line in lines), "whole.log")])
    broken = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    run = run_of(tmp_path, "".join(line + "\n" for line in broken), "broken.log")
    found = said([run])
    assert all(found[key] == whole[key] for key in found)  # what cannot be told is left out, never another number
    assert len(found) >= len(whole) - 3 and any("go on in the next line" in note for note in run.notes)


def test_dictionaries_of_trl_broken_by_pprint_say_the_same(tmp_path):
    rows = [
        {
            "loss": 0.01,
            "grad_norm": 0.5,
            "reward": s / 10,
            "reward_std": 0.4,
            "completions/mean_length": 90.0,
            "epoch": s / 10,
        }
        for s in range(1, 7)
    ]
    whole = said([run_of(tmp_path, "".join(f"{row}\n" for row in rows), "whole.log")])
    broken = "".join(str(row).replace(", ", ",\n ") + "\n" for row in rows)
    assert said([run_of(tmp_path, broken, "broken.log")]) == whole
