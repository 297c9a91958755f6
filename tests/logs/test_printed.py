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
        " iteration        {s}/    2174 | reward: {s}.0E-01 | learning rate: 1.0E-06 |\n",
        "===== Step {s} =====\n  Loss: 0.5\n  Mean Reward: 0.{s}\n",
    ],
)
def test_a_step_and_names_with_numbers_are_read(line, tmp_path):
    run = run_of(tmp_path, "loading\n" + log_of(line), "train.log")
    assert run.format == "printed lines"
    assert values([run], "reward_mean") == {s: s / 10 for s in STEPS}


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
