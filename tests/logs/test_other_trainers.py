"""Logs of trainers beside verl, TRL, prime-rl's files and tinker: what they print, and stores that several use."""

import json
import sqlite3

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from tests.support.logs.formats import said

RAY = "\x1b[36m(MegatronTrainRayActor pid=8123)\x1b[0m "
SLIME = """\
{ray}[2026-02-03 10:0{r}:00] data.py:9 - rollout {r}: {{'rollout/raw_reward': 0.{r}5, 'rollout/truncated': 0.125}}
{ray}[2026-02-03 10:0{r}:10] model.py:9 - step {u}: {{'train/loss': 0.1, 'train/grad_norm': 0.5, 'train/step': {u}}}
{ray}[2026-02-03 10:0{r}:20] model.py:9 - step {v}: {{'train/loss': 0.1, 'train/grad_norm': 0.{r}7, 'train/step': {v}}}
{ray}[2026-02-03 10:0{r}:30] rollout.py:8 - eval {r}: {{'eval/aime': 0.1{r}, 'eval/aime-pass@4': 0.2{r}}}
"""
BEFORE = "{ray}[2026-02-03 10:00:00] rollout.py:88 - eval 0: {{'eval/aime': 0.05, 'eval/aime-pass@4': 0.2}}\n"
OPENRLHF = """\
Eval at step 0: {'eval_gsm8k_pass1': 0.1, 'eval_gsm8k_pass4': 0.3}
(PPOTrainer pid=77) Global step 1: {'reward': 0.2, 'response_length': 90.0, 'actor_lr': 1e-06, 'ppo_clip_ratio': 0.01}
(PPOTrainer pid=77) Global step 2: {'reward': 0.4, 'response_length': 95.0, 'actor_lr': 1e-06, 'ppo_clip_ratio': 0.02}
2026-02-03 10:04:00 global_step 2, eval_metrics: {'eval_gsm8k_pass1': 0.5, 'eval_gsm8k_pass4': 0.7}
"""
PRIME = """\
10:00:01    INFO Starting orchestrator
10:00:05 SUCCESS Evaluated gsm8k (Step 1) | Policy v0 | 12.3s | Avg@1 0.1000
10:01:00 SUCCESS Step 1 | Time: 73.77s | Reward: 0.3887 | Throughput: 2003.6 tokens/s | Seq. Length: 412.1 tokens/sample
10:02:00 SUCCESS Step 2 |   1m 13s | Reward 0.4387 | Truncation 12.5%
"""


def run_of(tmp_path, text, name="log.txt"):
    (tmp_path / name).write_text(text)
    (run,) = read_logs([tmp_path / name])
    return run


def test_slime_counts_rollouts_and_its_updates_belong_to_them(tmp_path):
    text = BEFORE.format(ray=RAY) + "".join(SLIME.format(ray=RAY, r=r, u=2 * r, v=2 * r + 1) for r in range(4))
    run = run_of(tmp_path, text)
    numbers = said([run])
    assert (run.format, run.tool, run.rounds) == ("slime console", "slime", 4)
    assert [numbers[r + 1, "train", "reward_mean"] for r in range(4)] == [0.05, 0.15, 0.25, 0.35]
    norms = [numbers[r + 1, "train", "grad_norm"] for r in range(4)]
    assert norms == pytest.approx([(0.5 + 0.07 + r / 10) / 2 for r in range(4)])
    assert [numbers[r, "test", "pass_at_4"] for r in range(5)] == [0.2, 0.2, 0.21, 0.22, 0.23]


def test_global_steps_of_openrlhf_are_rounds(tmp_path):
    run = run_of(tmp_path, OPENRLHF)
    numbers = said([run])
    assert run.format == "OpenRLHF console" and run.rounds == 2
    assert [numbers[step, "train", "reward_mean"] for step in (1, 2)] == [0.2, 0.4]
    assert [numbers[step, "test", "pass_at_1"] for step in (0, 2)] == [0.1, 0.5]
    assert numbers[2, "test", "pass_at_4"] == 0.7 and numbers[2, "train", "clip_fraction"] == 0.02


def test_what_prime_rl_prints_of_either_age(tmp_path):
    run = run_of(tmp_path, PRIME)
    numbers = said([run])
    assert run.tool == "prime-rl" and [numbers[step, "train", "reward_mean"] for step in (1, 2)] == [0.3887, 0.4387]
    assert numbers[2, "train", "truncated_fraction"] == 0.125
    assert [numbers[step, "train", "seconds"] for step in (1, 2)] == [73.77, 73.0]


@pytest.mark.parametrize(
    "line",
    [
        "rollout 0: {'rollout/raw_reward': __import__('os').system('touch pwned')}",
        "Global step 1: {'reward': [0.5]*10**9}",
        "rollout 1: {'rollout/raw_reward': 0.5",
    ],
)
def test_dictionaries_are_read_and_never_evaluated(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="allowed"):
        run_of(tmp_path, line + "\n")
    assert not (tmp_path / "pwned").exists()


# --- logs of one object a line ---


def test_ms_swift_writes_the_step_with_the_last_one(tmp_path):
    lines = [
        {"loss": "0.01", "reward": "0.25", "rewards/MathAccuracy/mean": "0.25", "global_step/max_steps": f"{s}/30"}
        for s in (1, 2, 3)
    ]
    run = run_of(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "logging.jsonl")
    numbers = said([run])
    assert run.rounds == 3 and numbers[3, "train", "pass_at_1"] == 0.25


def test_easyr1_nests_its_metrics(tmp_path):
    lines = [
        {"step": s, "reward": {"accuracy": s / 10, "format": 1.0}, "val": {"accuracy_reward": s / 20}}
        for s in (1, 2, 3)
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment_log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = read_logs([folder])
    numbers = said([run])
    assert numbers[2, "train", "pass_at_1"] == 0.2 and numbers[2, "test", "pass_at_1"] == 0.1


def episode(group, reward, **trace):
    agent = {"name": "policy", "trainable": True}
    found = {
        "agent": agent,
        "rewards": {"right": {"score": reward, "weight": 1.0}, "style": {"score": 1.0, "weight": 0.0}},
    }
    return {"env": "math", "task": {"key": group}, "group": {"id": group}, "traces": [found | trace]}


def test_episodes_of_prime_rl_give_right_responses_by_group(tmp_path):
    for step in (1, 2, 3):
        folder = tmp_path / "run" / "rollouts" / f"step_{step}" / "train" / "all"
        folder.mkdir(parents=True)
        rows = [episode(f"{step} {group}", float(k < step)) for group in range(4) for k in range(4)]
        rows += [episode("other", 1.0, errors=["timeout"])]  # of no use
        (folder / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = read_logs([tmp_path / "run"])
    assert (run.tool, run.design.prompts, run.design.rollouts, run.rounds) == ("prime-rl", 4, 4, 3)
    assert [said([run])[step, "train", "pass_at_1"] for step in (1, 2, 3)] == [0.25, 0.5, 0.75]
    assert sum(run.outcomes[0].groups) == 12


# --- stores ---


def test_runs_of_mlflow_are_read_from_their_folders(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / "mlruns" / "0" / name
        (folder / "metrics" / "eval").mkdir(parents=True)
        (folder / "meta.yaml").write_text(f"run_id: x\nrun_name: 'the {name}'\n")
        (folder / "metrics" / "reward").write_text("".join(f"17{s} {s / 10} {s}\n" for s in range(1, 6)) + "damaged\n")
        (folder / "metrics" / "eval" / "accuracy").write_text("171 0.5 5\n")
    one, two = read_logs([tmp_path])
    assert (one.name, two.name) == ("the one", "the two")
    assert said([one])[3, "train", "reward_mean"] == 0.3 and said([one])[5, "test", "pass_at_1"] == 0.5
    assert any("1 lines without time, value and step left out" in note for note in one.notes)


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
