"""Logs of trainers that are not known, and stores that several trainers use."""

import json
import sqlite3

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.names import translate_metric
from tests.support.logs.formats import said
from tests.support.logs.reading import read, run_of, values


def test_evaluations_of_an_older_policy_are_refused(tmp_path):
    """Those of prime-rl, in its file."""
    lines = "".join(f'{{"step": {s}, "mismatch_kl/all/mean": 0.1, "eval/gsm8k/pass@1": 0.{s}}}\n' for s in (3, 4, 5))
    with pytest.raises(UserError, match="metrics of prime-rl; allowed"):
        read(tmp_path, lines, "log.txt")


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_names_of_other_trainers(tmp_path):
    """tinker-cookbook counts from 0 and evaluates before it trains, as others that count from 0 do; ms-swift writes the
    step with the last one. What slime calls rewards is centred, so that its mean is 0 and no reward."""
    rows = [{"step": s, "env/all/reward/total": -0.1 * s, "env/all/correct": 0.1 * s, "env/all/format": 0.9,
             "env/all/by_group/frac_mixed": 0.5} | ({"test/env/all/correct": s / 10} if s % 2 == 0 else {})
            for s in range(5)]  # fmt: skip
    run = run_of(tmp_path, lines_of(rows), "metrics.jsonl")
    assert run.tool == "" and values([run], "reward_mean")[3] == -0.2 and values([run], "pass_at_1")[3] == 0.2
    assert values([run], "pass_at_1", "test") == {0: 0.0, 2: 0.2, 4: 0.4}
    slime = [{"step": s, "rollout/raw_reward": 0.3, "rollout/rewards": 1e-9, "rollout/truncated": 0.1}
             for s in (0, 1, 2)]  # fmt: skip
    run = run_of(tmp_path, lines_of(slime), "slime.jsonl")
    assert values([run], "reward_mean")[1] == 0.3 and values([run], "truncated_fraction")[1] == 0.1
    nemo = [{"step": s, "train/reward": 0.3, "train/mean_gen_tokens_per_sample": 616.5, "validation/accuracy": 0.25}
            for s in (1, 2, 3)]  # fmt: skip
    run = run_of(tmp_path, lines_of(nemo), "nemo.jsonl")
    assert values([run], "response_length")[1] == 616.5 and values([run], "pass_at_1", "test")[1] == 0.25
    swift = {"loss": "0.01", "reward": "0.25", "rewards/MathAccuracy/mean": "0.25"}
    run = run_of(tmp_path, lines_of(swift | {"global_step/max_steps": f"{s}/30"} for s in (1, 2, 3)), "logging.jsonl")
    assert run.rounds == 3 and values([run], "pass_at_1")[3] == 0.25
    roll = [{"system/step": s, "critic/score/mean": 0.3} for s in (1, 2, 3)]
    assert values([run_of(tmp_path, lines_of(roll), "roll.jsonl")], "reward_mean")[3] == 0.3
    roll = [{"step": s, "critic/score/mean": 0.3, "actor/pg_loss": 0.1, "val_correct/all/mean": s / 10}
            for s in (0, 1, 2)]  # fmt: skip
    run = run_of(tmp_path, lines_of(roll), "roll.jsonl")  # it evaluates before it trains, as verl does not
    assert values([run], "pass_at_1", "test") == {0: 0.0, 1: 0.1, 2: 0.2}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("reward/avg_raw_reward", ("train", "reward_mean", "")),
        ("reward/avg_pass_at_8", ("train", "pass_at_8", "")),
        ("eval/openai_gsm8k/pass_at_1", ("test", "pass_at_1", "openai_gsm8k")),
        ("policy/policy_kl", ("train", "kl_ref", "")),
        ("policy_kl", ("train", "kl", "")),
        ("ppo_actor/task_reward/avg", ("train", "reward_mean", "")),
        ("rollout/reward/avg", ("train", "reward_mean", "")),
        ("eval-rollout/reward", ("test", "score", "")),
        ("eval_math_500_pass1", ("test", "score", "math_500")),
        ("eval/eval_gsm8k_pass8", ("test", "pass_at_8", "gsm8k")),
        ("eval_gsm8k_response_length_mean", ("test", "response_length", "gsm8k")),
        ("eval_response_length_mean", ("test", "response_length", "")),
        ("val_correct/all/mean", ("test", "pass_at_1", "all")),
        ("objective/verifiable_correct_rate", ("train", "pass_at_1", "")),
        ("val/sequence_lengths", ("train", "response_length", "")),
        ("eval/sequence_lengths", ("test", "response_length", "")),
        ("actor/rewards", ("train", "reward_mean", "")),
        ("policy/entropy", ("train", "entropy", "")),
        ("policy/clipfrac_avg", ("train", "clip_fraction", "")),
        ("actor/clipfrac", ("train", "clip_fraction", "")),
        ("actor_train/grad_norm", ("train", "grad_norm", "")),
        ("reward/accuracy", ("train", "pass_at_1", "")),
        ("reward/overall", ("train", "reward_mean", "")),
        ("val/accuracy_reward", ("test", "pass_at_1", "")),
        ("val/format_reward", ("test", "format_rate", "")),
        ("eval/aime/avg@32", ("test", "pass_at_1", "aime")),
        ("eval/aime-2024", ("test", "score", "aime-2024")),
        ("eval/aime-truncated_ratio", None),
        ("eval/math_format", None),
        ("rewards", ("train", "reward_mean", "")),
        ("rollout/rewards", None),
        ("successes", ("train", "pass_at_1", "")),
        ("total_rewards_mean", ("train", "reward_mean", "")),
        ("total_reward", None),
    ],
)
def test_a_metric_of_another_trainer_is_known_by_its_name(name, known):
    """What sums up over a run, or is centred, is no mean reward; a set's name alone is that of its score."""
    taken = translate_metric(name)
    assert (taken and (taken.split, taken.metric, taken.task)) == known


@pytest.mark.parametrize("untrained", [{"reward": None, "loss": None}, {}])
def test_a_test_of_the_untrained_model_at_step_0_is_no_round(untrained, tmp_path):
    """Beside it no reward stands, so that what it has are evaluations, also where later steps have both."""
    rows = [{"step": 0, "accuracy": 0.5} | untrained]
    rows += [
        {"step": s, "reward": s / 10, "loss": 0.1} | {"accuracy": 0.6 if s % 2 == 0 else None} for s in range(1, 5)
    ]
    run = run_of(tmp_path, lines_of(rows), "log.jsonl")
    assert run.rounds == 4 and values([run], "reward_mean") == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert values([run], "pass_at_1", "test") == {0: 0.5, 2: 0.6, 4: 0.6} and "is before training" in run.notes[0]
    for other in ([rows[0] | {"reward": 0.0}, *rows[1:]], [{"step": 0, "train/accuracy": 0.5}, *rows[1:]]):
        assert run_of(tmp_path, lines_of(other), "log.jsonl").rounds == 5


def test_the_split_of_a_record_is_told_by_the_word_that_names_one(tmp_path):
    rows = [{"type": "metrics", "split": split, "step": s, "accuracy": s / 10 + (split == "eval")}
            for s in (1, 2) for split in ("train", "eval")]  # fmt: skip
    run = run_of(tmp_path, lines_of(rows), "metrics.jsonl")
    assert values([run], "pass_at_1") == {1: 0.1, 2: 0.2} and len(run.pieces) == 2
    for word in ("train", ""):
        run = run_of(tmp_path, f"step,split,accuracy\n1,{word},0.5\n2,eval,0.3\n3,{word},0.6\n", "table.csv")
        assert (values([run], "pass_at_1"), values([run], "pass_at_1", "test")) == ({1: 0.5, 3: 0.6}, {2: 0.3})


def database_at(path, columns, *rows):
    """A database with a table of metrics."""
    database = sqlite3.connect(path)
    database.execute(f"CREATE TABLE metrics ({columns})")
    for row in rows:
        database.execute("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", row)
    database.commit()
    database.close()
    return path


def test_a_project_of_trackio_is_read_and_its_calls_are_no_steps(tmp_path):
    calls = [{"train/global_step": 10 * s, "train/reward": s / 10} for s in range(1, 5)]
    rows = [("mine", number, json.dumps(row)) for number, row in enumerate(calls)]
    columns = "id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT"
    path = database_at(tmp_path / "project.db", columns, *rows)
    before = path.read_bytes()
    (run,) = read_logs([path])
    assert run.name == "mine" and values([run], "reward_mean")[30] == 0.3
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("damage", [lambda data: data[:400], lambda data: data.replace(b"metrics", b"matrics")])
def test_another_database_is_one_line(damage, tmp_path):
    data = database_at(tmp_path / "other.db", "id INTEGER").read_bytes()
    with pytest.raises(UserError, match="no table of Trackio's can be read"):
        read(tmp_path, damage(data), "other.db")


def test_the_trainers_step_outranks_a_count_of_log_calls(tmp_path):
    rows = [{"_step": 3 * s, "train/global_step": 10 * s, "train/reward": s / 10} for s in range(1, 7)]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "history.csv")  # with pandas' index in front
    frame.to_parquet(tmp_path / "history.parquet")
    for name in ("history.csv", "history.parquet"):
        assert values(read_logs([tmp_path / name]), "reward_mean")[20] == 0.2
    assert values(read_logs([tmp_path / "history.csv"], {"step": "_step"}), "reward_mean")[6] == 0.2


METRICS = " - ".join(f"critic/score/part{i}:0.{i:03d}" for i in range(40))


@pytest.mark.parametrize("width", [80, 131, 200, 400])
def test_step_lines_of_verl_broken_at_any_width_say_the_same(width, tmp_path):
    lines = [f"step:{s} - critic/score/mean:0.{s}5 - {METRICS} - actor/entropy:0.{s}25" for s in (1, 2, 3)]
    whole = said(read(tmp_path, "\n".join(lines) + "\n", "whole.log"))
    broken = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    run = run_of(tmp_path, "\n".join(broken) + "\n", "broken.log")
    assert said([run]).items() <= whole.items()  # what cannot be told is left out, never another number
    assert len(said([run])) >= len(whole) - 3 and any("go on in the next line" in note for note in run.notes)


CUT = "step:{} - critic/score/mean:0.5 - actor/pg_loss:0.0{} - actor/entropy:0.25\n"
"""A line of verl, with room for what makes it as long as W&B allows."""


def test_step_lines_that_wandb_cut_lose_their_last_value(tmp_path):
    longer = {s: "0" * (4096 + s - 2 - len(CUT.format(s, "")) + 1) for s in (1, 2, 3)}
    run = run_of(tmp_path, "".join(CUT.format(s, more) for s, more in longer.items()), "output.log")
    assert list(values([run], "entropy")) == [1, 3] and list(values([run], "reward_mean")) == [1, 2, 3]
    assert any("line 2: cut after 4096 characters" in note for note in run.notes)


def test_dictionaries_of_trl_broken_by_pprint_say_the_same(tmp_path):
    same = {"loss": 0.01, "grad_norm": 0.5, "reward_std": 0.4, "completions/mean_length": 90.0}
    text = "".join(f"{same | {'reward': s / 10, 'epoch': s / 10}}\n" for s in range(1, 7))
    whole, broken = read(tmp_path, text, "whole.log"), read(tmp_path, text.replace(", ", ",\n "), "broken.log")
    assert said(broken) == said(whole)


NEMO = """2026-02-26 05:55:37,248\tINFO cli.py:41 -- address
Final config:
{'grpo': {'normalize_rewards': True,
          'num_generations_per_prompt': 16,
          'num_prompts_per_step': 32,
          'use_leave_one_out_baseline': False},
 'policy': {'generation': {'max_new_tokens': 1024, 'temperature': 1.0},
            'model_name': 'google/gemma-3-1b-it',
            'optimizer': {'kwargs': {'lr': 5e-06}},
            'train_global_batch_size': 256}}
"""
STEP = """========================= Step {s}/50 =========================
\x1b[36m(VllmGenerationWorker pid=5)\x1b[0m INFO 02-26 04:11:09 [abstract.py:324] It took 0.03 seconds
{validation}
📊 Training Results:
  • Loss: 0.0228
  • Avg Reward: 0.3{s}
  • Mean Generation Length: 616.4766

⏱️  Timing:
  • Total step time: 44.74s
  • generation: 32.82s (73.4%)
"""
VALIDATION = """▶ Starting validation at step {s}...
│ Avg Reward: 0.9999                                       │
📊 Validation Results:
    • Accuracy: 0.2{s}
    • Average response length: 722.7 tokens
"""


def test_a_console_of_nemo_rl(tmp_path):
    steps = [STEP.format(s=s, validation=VALIDATION.format(s=s) if s % 2 == 0 else "") for s in (1, 2, 3, 4)]
    before = "▶ Starting validation at step 0...\n    • Accuracy: 0.125\n"
    run = run_of(tmp_path, NEMO + before + "".join(steps), "out.txt")
    assert values([run], "reward_mean") == {1: 0.31, 2: 0.32, 3: 0.33, 4: 0.34}
    assert values([run], "pass_at_1", "test") == {0: 0.125, 2: 0.22, 4: 0.24}
    assert values([run], "seconds")[4] == 44.74 and values([run], "response_length", "test")[4] == 722.7
    design = run.design
    assert (design.prompts, design.rollouts, design.updates_per_round, design.learning_rate) == (32, 16, 2, 5e-6)
    assert (design.advantage, design.response_limit, design.model) == ("group_zscore", 1024, "google/gemma-3-1b-it")
