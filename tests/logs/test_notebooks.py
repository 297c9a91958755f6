"""Notebooks: the tables and dictionaries that their cells show, the arguments in their code, the sizes in a header."""

import json

import pytest

from rftlab.shared.plumbing.errors import UserError
from tests.support.logs.reading import read, run_of, values

HEADER = """==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1
   \\\\   /|    Num examples = 1,000 | Num Epochs = 2 | Total steps = 600
O^O/ \\_/ \\    Batch size per device = 12 | Gradient accumulation steps = 2
\\        /    Data Parallel GPUs = 1 | Total batch size (12 x 2 x 1) = 24
"""
CODE = """%pip install trl
if True:
    !pip install peft
model = get_peft_model(model, r=16)
args = GRPOConfig(num_generations=4, per_device_train_batch_size=8, learning_rate=5e-6, scale_rewards=False)
"""
NAMES = ("Step", "Training Loss", "reward", "completions / mean_length", "rewards / correct / mean", "kl")
ROWS = [(1, 0.0, -2.75, 705.0, 0.125, 0.001), (50, 0.1, 1.5, 600.0, 0.25, "No Log"), (100, 0.1, 4.25, 500.0, 0.5, 0.3)]


def table(rows=ROWS, names=NAMES):
    """An output of a cell, as transformers shows it."""
    head = "".join(f"      <th>{name}</th>\n" for name in names)
    body = "".join("<tr>\n" + "".join(f"<td>{cell}</td>\n" for cell in row) + "</tr>" for row in rows)
    text = f'<table border="1"><thead><tr style="text-align: left;">\n{head}</tr></thead><tbody>{body}</tbody></table>'
    return {"output_type": "display_data", "data": {"text/html": text.splitlines(keepends=True)}}


def stream(text):
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def notebook(*cells, code=CODE):
    """A notebook whose first cell holds the code, and each other these outputs."""
    own = [{"cell_type": "code", "source": code, "outputs": []}]
    own += [{"cell_type": "code", "source": "not(python", "outputs": outputs} for outputs in cells]
    return json.dumps({"cells": own, "metadata": {}, "nbformat": 4})


def test_the_table_of_steps_is_read_and_the_code_and_the_header_tell_the_design(tmp_path):
    run = run_of(tmp_path, notebook([stream(HEADER), table()]), "grpo.ipynb")
    assert values([run], "reward_mean") == {1: -2.75, 50: 1.5, 100: 4.25} and run.name == "grpo"
    assert values([run], "pass_at_1") == {1: 0.125, 50: 0.25, 100: 0.5} and values([run], "kl_ref") == {
        1: 0.001,
        100: 0.3,
    }
    design = run.design
    assert (design.prompts, design.rollouts, design.updates_per_round) == (6, 4, 1)
    assert (design.adapter_rank, design.learning_rate, design.advantage) == (16, 5e-6, "group_mean")


def test_each_cell_that_shows_rewards_is_a_run_and_printed_dictionaries_count_too(tmp_path):
    printed = "".join(f"{{'loss': 0.1, 'reward': {s / 10}, 'step': {s}}}\n" for s in (10, 20))
    tuned = "".join(f"{{'loss': 1.5, 'learning_rate': 1e-4, 'step': {s}}}\n" for s in (1, 2))
    runs = read(tmp_path, notebook([stream(tuned)], [table()], [stream(printed)]), "both.ipynb")
    assert [run.name for run in runs] == ["both cell 3", "both cell 4"]
    assert values(runs[1:], "reward_mean") == {10: 1.0, 20: 2.0}


PREFERRED = table([(10, 0.5, 0.1, 0.2)], (*NAMES[:2], "rewards / chosen", "rewards / margins"))
"""Of a training on preferences."""


@pytest.mark.parametrize(
    "outputs", [[table([(10, 0.5)], NAMES[:2])], [PREFERRED], [], [3, {"data": 4, "text": 5}], "text"]
)
def test_a_notebook_without_rewards_is_refused_in_a_line(outputs, tmp_path):
    with pytest.raises(UserError, match=r"shows no rewards, .* trainer_state\.json"):
        read(tmp_path, notebook(outputs), "sft.ipynb")


def test_a_header_in_a_log_tells_the_responses_of_a_round_and_no_default_takes_the_place_of_k(tmp_path):
    lines = "  Instantaneous batch size per device = 8\n  Gradient Accumulation steps = 4\n"
    lines += "  Total train batch size (w. parallel, distributed & accumulation) = 64\n"
    lines += "".join(f"{{'loss': 0.1, 'reward': 0.5, 'step': {s}}}\n" for s in (1, 2))
    assert any("learning_rate is not stated" in note for note in run_of(tmp_path, lines, "out.log").notes)
    lines = lines.replace("'loss'", "'learning_rate': 1e-6, 'loss'")
    run = run_of(tmp_path, lines, "out.log")
    assert not any("learning_rate is not stated" in note for note in run.notes)
    assert run.design.rollouts is None and run.design.prompts is None and len(run.design.assumed) == 1
    assert any("prompts: 64 / K" in note for note in run.notes) and not any("defaults" in note for note in run.notes)


def test_lines_that_a_loop_prints_in_a_cell_are_read(tmp_path):
    """The names that CS336's assignment has tell its design; cells with losses are no runs, nor
    are accuracies of a judge or a classifier beside rewards."""
    code = "group_size = 8\nrollout_batch_size = 64\nlearning_rate = 1e-5\n"
    lines = "".join(f"Step {s}/3: loss=0.1, avg reward=0.{s}, lr=1e-05\n" for s in (1, 2, 3))
    losses = "".join(f"Step {s}: loss=1.{s}\n" for s in (1, 2, 3))
    tested = "".join(f"{{'loss': 0.5, 'eval_accuracy': 0.9, 'epoch': {s}.0}}\n" for s in (1, 2, 3))
    judge = "".join(f"Epoch {s}: loss=0.1 accuracy=0.9\n" for s in (1, 2, 3))  # kept where nothing has rewards
    cells = [stream(losses)], [stream(tested)], [stream(judge)], [stream(lines)]
    run = run_of(tmp_path, notebook(*cells, code=code), "loop.ipynb")
    assert values([run], "reward_mean") == {1: 0.1, 2: 0.2, 3: 0.3}
    assert (run.name, run.tool, run.design.rollouts, run.design.prompts) == ("loop", "", 8, 8)
    run = run_of(tmp_path, notebook([stream(lines)], [table()]), "episode.ipynb")
    assert run.name == "episode" and run.rounds == 100, "an episode of the environment is no run beside the trainer's"
    alone = read(tmp_path, notebook([stream(judge)]), "judge.ipynb")
    assert values(alone, "pass_at_1") == dict.fromkeys((1, 2, 3), 0.9)
