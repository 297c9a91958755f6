"""Lines that loops of people's own print."""

import pytest

from rftlab.shared.plumbing.errors import UserError
from tests.support.logs.reading import read, run_of, values

STEPS = (1, 2, 3, 4)
LARGE = "{'a': {" + ("\n" + "1: 2, " * 600) * 100 + "\n}}"
"""A configuration whose parsing takes some hundred bytes for each of its characters."""


def log_of(line, steps=STEPS):
    return "".join(line.format(s=s) for s in steps)


@pytest.mark.parametrize(
    "line",
    [
        "[step {s}] reward=0.{s} exact=0.625 policy_loss=-0.009\n",
        "Step {s}/100 | Loss: 0.0{s} | Reward: 0.{s} | Time: 45s\n",
        "iter=   {s} | reward=0.{s} | q=1.84 (budget=1) | t=521s\n",
        "  Iter {s}: Reward 0.{s} | Len 15.1 | H_amt/H_time 2.71/2.02\n",
        "2026-01-02 10:00:0{s},016 INFO trainer.py:12 - Round {s}: mean reward = 0.{s}, lr = 1e-06\n",
        "Epoch 0 | Step {s} | Reward: {s}0% | Loss: 0.123\n",
        "\x1b[32mStep {s}/100\x1b[0m Average Reward \x1b[1m0.{s}\x1b[0m\n",
        "(Actor pid=8) rollout {s}: {{'reward': 0.{s}, 'rollout/truncated': 0.1}}\n",
        "(Actor pid=8) data.py:9 - rollout {s}: {{'rollout/raw_reward': 0.{s}, 'reward': 0.5}}\n",  # of slime
        "(PPOTrainer pid=77) Global step {s}: {{'reward': 0.{s}, 'actor_lr': 1e-06}}\n",  # of OpenRLHF
        "global_step {s}, eval_metrics: {{'eval_gsm8k_pass1': 0.5, 'reward': 0.{s}}}\n",
        "10:01:00 SUCCESS Step {s} | Time: 73.77s | Reward: 0.{s} | Throughput: 2003.6 tokens/s\n",  # of prime-rl
        " iteration        {s}/    2174 | reward: {s}.0E-01 | learning rate: 1.0E-06 |\n",  # of Megatron
        "===== Step {s} =====\n  Loss: 0.5\n  Mean Reward: 0.{s}\n",
        "02:33:2{s} SUCCESS Step {s} | Time: 73.77s | Reward: 0.{s} | Seq. Length: 345.6 tokens/sample | Lag: 1\n",
        '[INFO] [PIPELINE rlvr-0] metrics_tag: {{"step": {s}, "metrics": {{"reward": 0.{s}, "time/step": 3.5}}}}\n',
        "[rank0]:[cosmos] 2025-06-13 11:29:05,978 - INFO - Step: {s}/4725, Loss: -0.01, Reward: 0.{s}\n",
        "train | epoch   4 | inner iter:   0/  4 | global iter:     {s}/   160| tot_loss: 6.25 | reward: 0.{s} |\n",
        "Iter {s}: Train loss 0.013, Total rewards mean 0.{s}, r1_strict_format_reward_func mean 0.237, KL 0.001\n",
        "(driver pid=9) 2025-11-01 10:00 | INFO | a.b.tracking:log:189 - Step {s}: \n"
        "(driver pid=9) {{'generate/max_num_tokens': 512,\n(driver pid=9)  'reward/avg_raw_reward': '0.{s}000'}}\n",
        "StatsLogger INFO: Epoch 1/2 Step {s}/20 Train step {s}/40 done.\nStats (1/1):\n"
        "│ ppo_actor/seq_len/avg     │ 5.1210e+02 │ ppo_actor/update/lr │ 1.0e-06 │\n├───┼───┤\n"
        "│ ppo_actor/task_reward/avg │ {s}.000e-01 │                     │         │\n",
    ],
)
@pytest.mark.parametrize("head", ["loading\n", ""])
def test_a_step_and_names_with_numbers_are_read(line, head, tmp_path):
    run = run_of(tmp_path, head + log_of(line), "train.log")
    assert run.format == "printed lines"
    assert values([run], "reward_mean", "test" if "eval" in line else "train") == {s: s / 10 for s in STEPS}


def test_steps_of_an_epoch_are_those_of_the_run(tmp_path):
    """With their number, as `Epoch:[2/3](4/50)`, and without, where they begin anew: steps 0, 10, .. 40 are 50."""
    lines = "".join(
        f"Epoch{':' * (2 - e)} [{e}/3] ({s}/50), Reward: 0.{s}, Avg Len: {100 + s}\n" for e in (1, 2) for s in STEPS
    )
    beyond = "Epoch:[999999/999999](1/999999999), Reward: 0.9\n" * 3
    run = run_of(tmp_path, lines + beyond, "a.log")
    assert values([run], "reward_mean") == {50 * e + s: s / 10 for e in (0, 1) for s in STEPS}
    assert values([run], "response_length")[54] == 104
    lines = "".join(f"Epoch {e}/3, Step {s}, Reward: 0.{e}\n" for e in (1, 2, 3) for s in range(0, 50, 10))
    run = run_of(tmp_path, lines, "b.log")
    assert values([run], "reward_mean") == {s + 1: (1 + s // 50) / 10 for s in range(0, 150, 10)}
    assert any("begin anew" in note for note in run.notes)
    lines = "".join(f"Epoch {e}, Step {s}: reward 0.5\n" for e in (0, 1) for s in range(1, 51))
    assert max(values([run_of(tmp_path, lines, "begun.log")], "reward_mean")) == 100
    on = "".join(f"Epoch {1 + s // 50}/3, Step {s}, Reward: 0.5\n" for s in range(0, 150, 10))
    assert max(values([run_of(tmp_path, on, "c.log")], "reward_mean")) == 141


def test_evaluations_are_told_by_the_words_beside_them(tmp_path):
    """One alone at the end counts too; a rate in per cent becomes a share, and so does a count of how many."""
    text = log_of("Step {s}: reward=0.5 acc=0.4\nEvaluation at step {s}: accuracy=3/4\n")
    run = run_of(tmp_path, text + "Final eval, step 4: format rate 31.0%\n", "train.log")
    assert values([run], "format_rate", "test") == {4: 0.31}
    assert values([run], "pass_at_1") == dict.fromkeys(STEPS, 0.4)
    assert values([run], "pass_at_1", "test") == dict.fromkeys(STEPS, 0.75)
    text = log_of("--- Step {s} ---\nreward: 0.5\nValidation:\n  - accuracy: 0.{s}\n")
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "pass_at_1", "test") == {s: s / 10 for s in STEPS}


def test_steps_of_solutions_and_bars_are_not_those_of_the_run(tmp_path):
    """A model's responses have steps too, and a bar over questions has running means."""
    solution = "Step 1: the total reward = 3.5\nStep 2: the reward = 7.5\nThe accuracy: 9.5\n"
    bar = "eval:  3%|2   | {s}/150 [00:12<06:52, reward=0.9, step 7: reward=0.9]\n"
    text = log_of(solution + bar + "Step {s}: loss=0.1 reward=0.{s}\n", range(1, 9))
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "reward_mean") == {s: s / 10 for s in range(1, 9)}
    assert {piece.source for piece in run.pieces} == {"loss", "reward"}
    with pytest.raises(UserError, match="no log of a kind that is known"):
        read(tmp_path, log_of(solution + bar, range(1, 9)), "solutions.log")


def test_a_table_with_texts_that_have_steps_stays_one(tmp_path):
    rows = "".join(f'{s},0.{s},"Step {s}: add; accuracy = 0.9"\n' for s in STEPS)
    run = run_of(tmp_path, "step,reward,text\n" + rows, "table.csv")
    assert (run.format, values([run], "reward_mean")) == ("table", {s: s / 10 for s in STEPS})


def test_lines_of_one_step_are_no_run(tmp_path):
    with pytest.raises(UserError, match="no log of a kind that is known"):
        read(tmp_path, "step 0 loss: 3.0\nstep 0 loss: 2.0\nstep 0 loss: 1.0\n", "lecture.txt")


@pytest.mark.parametrize("config", ["{'a': {[1]: 2}}", "{'a': {{}: 2}}", LARGE])
def test_a_configuration_that_is_no_literal_is_left_out(config, tmp_path):
    run = run_of(tmp_path, config + "\n" + log_of("step {s} reward=0.{s}\n"), "train.log")
    assert values([run], "reward_mean") == {s: s / 10 for s in STEPS}
    assert not any("configuration" in note for note in run.notes)


def test_numbers_of_responses_below_a_headline_are_left_out(tmp_path):
    """Those that each response has, and rows of a table; the same number printed once a group is one."""
    below = "  Reward: 0.1\n  Reward: 0.9\n  Reward: 0.4\n| accuracy: 0.9 |\n  loss: 0.{s}\n  loss: 0.{s}\n"
    run = run_of(tmp_path, log_of("=== Step {s}/9 ===\n" + below), "train.log")
    assert {piece.source for piece in run.pieces} == {"loss"}


def test_lines_that_count_something_else_are_left_out(tmp_path):
    """Those with rewards tell what counts, although the losses of updates are more."""
    text = log_of("".join(f"update {{s}}{i}: loss=0.2\n" for i in range(5)) + "rollout {s}: reward=0.{s}\n")
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "reward_mean") == {s: s / 10 for s in STEPS}
    assert {piece.source for piece in run.pieces} == {"reward"}
    assert any("rollout and reward" in note for note in run.notes)


def test_lines_with_other_counters_count_where_their_steps_are_the_same(tmp_path):
    """slime numbers rollouts, steps and evaluations; a set's name alone is that of its score. With two updates a
    rollout their steps are others."""
    text = "".join(
        f"(Actor pid=8) data.py:201 - rollout {s}: {{'rollout/raw_reward': 0.{s}}}\n"
        + "".join(f"(Actor pid=8) model.py:410 - step {u}: {{'train/grad_norm': 0.2}}\n" for u in updates)
        + (f"(Manager pid=9) rollout.py:99 - eval {s}: {{'eval/aime-2024': 0.1{s}}}\n" if s % 2 else "")
        for s, updates in ((s, range(s, s + 1)) for s in range(4))
    )
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "grad_norm") == dict.fromkeys(STEPS, 0.2)
    assert values([run], "pass_at_1", "test") == {2: 0.11, 4: 0.13}
    text = "".join(
        f"rollout {s}: {{'rollout/raw_reward': 0.{s}}}\nstep {2 * s}: {{'train/grad_norm': 0.2}}\n" for s in STEPS
    )
    assert {piece.source for piece in run_of(tmp_path, text, "b.log").pieces} == {"rollout/raw_reward"}


@pytest.mark.parametrize(("first", "rounds"), [(0, (0, 3, 5)), (1, (0, 2, 4))])
def test_an_evaluation_without_a_step_is_after_the_step_printed_before_it(first, rounds, tmp_path):
    lines = [f"Step {s} | Loss: 0.1 | Reward: 0.{s}\n" for s in range(first, 5)]
    evaluation = "[actor=<root>] Eval: Accuracy=20% (4/20) Format=30% (6/20)\n"
    text = evaluation + "".join(lines[: 3 - first]) + evaluation + "".join(lines[3 - first :]) + evaluation
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "pass_at_1", "test") == dict.fromkeys(rounds, 0.2)
    assert any(note.startswith("evaluations without a step") for note in run.notes)
    told = run_of(tmp_path, text + "Evaluation at step 4: accuracy=3/4\n", "told.log")
    assert values([told], "pass_at_1", "test") == {4: 0.75}
    answers = "".join(f"Eval: accuracy=0.{s}\n" for s in STEPS)  # one of each question is none of the run
    left = run_of(tmp_path, "".join(lines) + answers, "answers.log")
    assert not any(piece.split == "test" for piece in left.pieces)


def test_validation_beside_training_is_kept_apart(tmp_path):
    """As mlx-lm prints it, with names of up to 60 characters."""
    name = "r1_strict_format_reward_func_of_a_rather_long_kind"
    text = log_of(f"Iter {{s}}: Val loss 0.05, Val total_rewards_mean 0.{{s}}, Val {name}_mean 0.25\n"
                  f"Iter {{s}}: Train loss 0.01, Total rewards mean 1.{{s}}, {name} mean 0.75\n")  # fmt: skip
    run = run_of(tmp_path, text, "train.log")
    assert values([run], "reward_mean", "test") == {s: s / 10 for s in STEPS}
    assert values([run], "reward_mean") == {s: 1 + s / 10 for s in STEPS}
    assert not any("repeated" in note for note in run.notes)


def test_a_table_in_markdown_is_one_and_numbers_with_names_between_bars_are_none(tmp_path):
    rows = "".join(f"| {s} | -17.25 | 0.{s} |\n" for s in STEPS)
    run = run_of(tmp_path, "| Step | reward | entropy |\n| --- | ---: | :---: |\n" + rows, "notes.md")
    assert (run.format, values([run], "entropy")) == ("table", {s: s / 10 for s in STEPS})
    assert not any("left out" in note for note in run.notes)
    run = run_of(tmp_path, log_of("train | step: {s} | loss: 6.2 | reward: 0.{s}\n"), "train.log")
    assert (run.format, values([run], "reward_mean")) == ("printed lines", {s: s / 10 for s in STEPS})


def test_pass_at_k_at_few_of_the_steps_is_of_evaluations(tmp_path):
    """As nanochat prints it, which trains on rewards at every step. At every step it is of training."""
    passed = "Step {s} | Pass@1: 0.2{s:02}, Pass@8: 0.5\n"
    lines = [passed.format(s=s) * (s % 10 == 0) + f"Step {s}/99 | Average reward: 0.25\n" for s in range(30)]
    run = run_of(tmp_path, "".join(lines), "train.log")
    assert values([run], "pass_at_1", "test") == {0: 0.2, 10: 0.21, 20: 0.22}
    assert any("taken as evaluations" in note for note in run.notes)
    run = run_of(tmp_path, "".join(passed.format(s=s) + lines[s] for s in range(1, 5)), "often.log")
    assert values([run], "pass_at_1") and not any(piece.split == "test" for piece in run.pieces)
