"""What TRL prints: steps are told by epochs, by progress bars, or by counting; what tells nothing is refused."""

import random

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.formats.trl_console import END, _steps_at_end, values_in
from rftlab.studies.readers.text import HEAD
from tests.support.logs.formats import trl_console, verl_log
from tests.support.logs.reading import read, run_of, values


def lines_of(steps, epochs=None, bars=None):
    """A dictionary a step, with an epoch and a bar before it where they are given."""
    lines = []
    for i, step in enumerate(steps):
        lines += [f" 1%|# | {bars[i]}/50 [00:10<01:00, 2.0s/it]"] if bars else []
        epoch = f", 'epoch': {epochs[i]}" if epochs else ""
        lines.append(f"{{'loss': 0.0, 'grad_norm': nan, 'reward': {step / 100}{epoch}}}")
    return lines


def steps_of(folder, lines):
    """The rounds of the rewards of these lines, and all notes."""
    run = run_of(folder, "\n".join(lines) + "\n", "out.txt")
    return values([run], "reward_mean"), " | ".join(run.notes)


EVERY_FIVE = [5, 10, 15, 25, 30]
"""Steps that are logged; one is lost."""


@pytest.mark.parametrize(
    ("epochs", "bars", "steps", "said"),
    [
        ([0.01, 0.02, 0.03, 0.05, 0.06], None, [1, 2, 3, 5, 6], "taken as one update"),
        ([0.01, 0.02, 0.03, 0.05, 0.06], EVERY_FIVE, EVERY_FIVE, "progress bars tell the first"),
        ([0.01, 0.02, 0.03, 0.06, 0.07], EVERY_FIVE, EVERY_FIVE, "those of the progress bar"),
        ([0.0, 0.0, 0.01, 0.01, 0.01], EVERY_FIVE, EVERY_FIVE, "those of the progress bar"),
        (None, EVERY_FIVE, EVERY_FIVE, "those of the progress bar"),
        (None, None, [1, 2, 3, 4, 5], "counted"),
        ([0.0, 0.0, 0.01, 0.01, 0.01], None, [1, 2, 3, 4, 5], "counted"),
    ],
)
def test_steps_are_told_by_epochs_then_bars_then_counting(epochs, bars, steps, said, tmp_path):
    rewards, notes = steps_of(tmp_path, lines_of(EVERY_FIVE, epochs, bars))
    assert rewards == dict(zip(steps, [step / 100 for step in EVERY_FIVE], strict=True))
    assert said in notes and "not finite" in notes


@pytest.mark.parametrize(
    ("epochs", "end", "steps", "said"),
    [
        ([0.001, 0.002, 0.003, 0.004, 0.005], 0.005, [10, 20, 30, 40, 50], "the run ended after 50 steps"),
        ([0.0, 0.0, 0.0, 0.0, 0.01], 0.01, [10, 20, 30, 40, 50], "a dictionary every 10"),
        (None, 1.0, [10, 20, 30, 40, 50], "a dictionary every 10"),
        ([0.6, 0.7, 0.8, 0.9, 1.0], 1.0, [30, 35, 40, 45, 50], "the run ended after 50 steps"),  # resumed
        ([0.61, 0.69, 0.81, 0.88, 1.0], 1.0, [1, 2, 3, 4, 5], "counted"),  # resumed, and rounded
    ],
)
def test_where_all_bars_stand_before_all_dictionaries_the_end_of_the_run_tells_the_steps(
    epochs, end, steps, said, tmp_path
):
    """The output went to a file: bars are written at once, dictionaries are held back."""
    bars = [f" 1%|# | {step}/50 [00:10<01:00, 2.0s/it]" for step in range(51)]
    ended = f"{{'train_runtime': 6702.0, 'train_loss': 0.1, 'epoch': {end}}}"
    rewards, notes = steps_of(tmp_path, [*bars, *lines_of([10, 20, 30, 40, 50], epochs), ended])
    assert list(rewards) == steps and said in notes


SECONDS = "'train_runtime': 4037.2, 'train_steps_per_second': 0.019"
"""The end of a run of 75 to 78 steps."""


@pytest.mark.parametrize(
    ("before", "epochs", "end", "every", "said"),
    [
        ("", [0.05, 0.1, 0.15, 0.2, 0.25], f"{SECONDS}, 'epoch': 0.25", 15, "ended after 75 steps, as its steps a"),
        ("", [0.0, 0.0, 0.01, 0.01, 0.01], f"{SECONDS}, 'epoch': 0.01", 15, "after about 75 steps, a dictionary"),
        ("100%|##| 2/2 [00:01<00:00, 3.09s/it]", [0.05, 0.1, 0.15, 0.2, 0.25], f"{SECONDS}, 'epoch': 0.25", 15, "75"),
        ("  Total optimization steps = 1,000", None, "'train_runtime': 9.0", 200, "after 1000 steps, a dictionary"),
        ("==  Num Epochs = 1 | Total steps = 250", None, "'train_runtime': 9.0", 50, "after 250 steps, a dictionary"),
        ("30%|##| 30/75 [00:01<00:00, 3.09s/it]", None, SECONDS, 1, "counted"),  # it stopped early
    ],
)
def test_without_bars_the_header_or_the_time_at_the_end_tells_the_steps(before, epochs, end, every, said, tmp_path):
    rewards, notes = steps_of(tmp_path, [before, *lines_of([10, 20, 30, 40, 50], epochs), f"{{{end}}}"])
    assert list(rewards) == [every * i for i in range(1, 6)] and said in notes


@pytest.mark.parametrize("written", [("{:.4g}", "{:.4g}"), ("{:.4f}", "{:.3f}")])
def test_the_time_at_the_end_tells_the_steps_however_it_is_rounded(written):
    draw = random.Random(0)
    for _ in range(500):
        steps, seconds = draw.randint(1, 5000), 10 ** draw.uniform(0, 5)
        numbers = [float(form.format(one)) for form, one in zip(written, (seconds, steps / seconds), strict=True)]
        told = _steps_at_end((0, 0), 0, dict(zip(END, (numbers[0], 0.0, numbers[1]), strict=False)))
        assert steps in told or numbers[1] <= 0.002, (seconds, steps)
    assert not _steps_at_end((0, 0), 0, dict.fromkeys(END, float("inf")))


FINE = [0.02, 0.04, 0.06, 0.08, 0.1, 0.12]
"""Epochs of six dictionaries, exact to their last digit."""


@pytest.mark.parametrize(
    ("bars", "epochs", "steps"),
    [
        ([0, 1, 2, 3, 4, 5], None, [1, 2, 3, 4, 5, 6]),
        ([9, 19, 29, 39, 49, 59], None, [10, 20, 30, 40, 50, 60]),
        ([11, 21, 31, 41, 51, 61], None, [10, 20, 30, 40, 50, 60]),
        ([19, 29, 39, 49, 59, 69], [0.0, 0.0, 0.0, 0.01, 0.01, 0.01], [20, 30, 40, 50, 60, 70]),
        ([0, 1, 2, 3, 4, 5], FINE, [1, 2, 3, 4, 5, 6]),
        ([2, 3, 4, 5, 6, 7], FINE, [1, 2, 3, 4, 5, 6]),
        ([10, 15, 20, 25, 30, 35], FINE, [5, 10, 15, 20, 25, 30]),  # the next bar: it is ahead by a whole interval
        ([5, 10, 15, 20, 25, 30], [0.03, 0.04, 0.06, 0.07, 0.11, 0.12], [5, 10, 15, 20, 25, 30]),
        ([0, 2, 3, 4, 5, 6], FINE, [1, 2, 3, 4, 5, 6]),
        ([1, 11, 21, 31, 41, 51], None, [1, 11, 21, 31, 41, 51]),
        ([11, 21, 31, 41, 51, 61], [0.11, 0.21, 0.31, 0.41, 0.51, 0.61], [11, 21, 31, 41, 51, 61]),
    ],
)
def test_progress_bars_that_stand_a_step_behind_or_ahead_are_set_right(bars, epochs, steps, tmp_path):
    rewards, _ = steps_of(tmp_path, lines_of(steps, epochs, bars))
    assert rewards == {step: step / 100 for step in steps}


ARGUMENTS = """ModelConfig(model_name_or_path='Qwen/Qwen2.5-1.5B', dtype='bfloat16', use_peft={peft}, lora_r=8)
INFO - Training parameters: GRPOConfig(
accelerator_config={{'split_batches': False, 'x': {{'loss': 1.0}}}},
adam_beta1=0.9,
beta=0.02,
epsilon=0.3,
epsilon_high=None,
generation_batch_size=64,
gradient_accumulation_steps=4,
learning_rate=2e-06,
logging_nan_inf_filter=True,
loss_type=dr_grpo,
max_completion_length=256,
num_generations=8,
num_iterations=2,
per_device_train_batch_size=8,
scale_rewards=False,
[rank0]: steps_per_generation=4,
temperature=0.7,
[rank0]: )
seed=3,
num_generations=2,
"""


@pytest.mark.parametrize("last", ["\n[rank0]: )", ")"])
@pytest.mark.parametrize(("peft", "rank"), [("True", 8), ("False", 0)])
def test_arguments_that_a_script_prints_are_the_design(peft, rank, last, tmp_path):
    text = ARGUMENTS.format(peft=peft).replace(",\n[rank0]: )", f",{last}") + "\n".join(lines_of([1, 2, 3])) + "\n"
    design = run_of(tmp_path, text, "out.txt").design
    assert (design.prompts, design.rollouts, design.updates_per_round) == (8, 8, 2)
    assert (design.learning_rate, design.advantage, design.kl_coefficient) == (2e-6, "group_mean", 0.02)
    assert (design.loss, design.temperature, design.response_limit) == ("dr_grpo, clip 0.3", 0.7, 256)
    assert (design.model, design.precision, design.adapter_rank) == ("Qwen/Qwen2.5-1.5B", "bf16", rank)
    assert not design.assumed


@pytest.mark.parametrize(
    ("epochs", "bars", "said"),
    [
        (None, None, "every 10"),
        ([0.02, 0.04, 0.06], None, "= 10"),
        (None, [9, 19, 29], "1 behind"),
        ([0.71], [9], "1 behind"),
    ],
)
def test_printed_arguments_tell_the_steps_between_two_dictionaries(epochs, bars, said, tmp_path):
    steps = [10, 20, 30][: len(bars or "...")]
    head = ["GRPOConfig(", "logging_steps=10,", "logging_strategy=IntervalStrategy.STEPS,", ")"]
    rewards, notes = steps_of(tmp_path, [*head, *lines_of(steps, epochs, bars)])
    assert list(rewards) == steps and said in notes
    by_epoch = [*head[:1], "logging_strategy=IntervalStrategy.EPOCH,", *head[1:2], *head[3:]]
    assert list(steps_of(tmp_path, [*by_epoch, *lines_of([1, 2, 3])])[0]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("trainable params: 4,000,000 || all params: 1,000,000,000 || trainable%: 0.4000", 0.004),
        (" \\        /    Trainable parameters = 30,000,000/3,000,000,000 (1.00% trained)", 0.01),
        ('"-____-"     Trainable parameters = 5,000 of 5,000 (100.00% trained)', 1.0),
        ("trainable params: 7 || all params: 0 || trainable%: nan", None),
    ],
)
def test_a_line_of_trained_parameters_says_whether_adapters_are_trained(line, share, tmp_path):
    design = run_of(tmp_path, "\n".join([line, *lines_of([1, 2, 3])]), "out.txt").design
    assert (design.trained_share, design.adapter_rank) == (share, None)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/home/me/.cache/huggingface/hub/models--me--tiny-1.5b-it/snapshots/0a1b2c", "me/tiny-1.5b-it"),
        ("/m/7b", "/m/7b"),
    ],
)
def test_the_line_of_the_engine_that_samples_names_the_model(path, model, tmp_path):
    line = f"INFO 07-04 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='{path}', dtype=bf16"
    assert run_of(tmp_path, "\n".join([line, *lines_of([1, 2, 3])]), "out.txt").design.model == model


def test_bars_of_evaluations_are_not_those_of_training(tmp_path):
    lines = [line for one in lines_of(EVERY_FIVE, None, EVERY_FIVE) for line in ("100%|##| 2/2 [00:01<00:00]", one)]
    lines = [line for i, line in enumerate(lines) if i % 4 != 2]  # the bar of training stands last, but once
    lines.insert(-1, "100%|##| 2/2 [00:01<00:00]")
    rewards, notes = steps_of(tmp_path, lines)
    assert list(rewards) == EVERY_FIVE[:-1] and "1 dictionaries without" in notes


def test_epochs_that_fall_are_refused_and_those_of_a_restart_count_once(tmp_path):
    with pytest.raises(UserError, match=r"line 3: the epoch goes back from 0.02 to 0.0; *|allowed: one run a file"):
        steps_of(tmp_path, lines_of([1, 2, 3, 4], [0.02, 0.02, 0.0, 0.02]))
    rewards, notes = steps_of(tmp_path, lines_of([1, 2, 3, 4, 3, 4, 5], [0.01, 0.02, 0.03, 0.04, 0.03, 0.04, 0.05]))
    assert list(rewards) == [1, 2, 3, 4, 5] and "restart" in notes


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("{'loss': __import__('os').system('true'), 'epoch': 0.1}", None),
        ("{'loss': 0.1, 'epoch': ", None),
        ("{'loss': {'a': 1}, 'epoch': 0.1}", None),
        ("{'loss': " + "[" * 100_000, None),
        ("{'" * 100_000, None),
        ("{'loss': '" + "9" * 5000, None),
        ("[0] {'loss': '1.5', 'kind': 'text', 'on': True, 'x': [1, 2], 'epoch': 2e-05}", {"loss": 1.5, "epoch": 2e-05}),
    ],
)
def test_of_a_dictionary_the_numbers_are_read_and_nothing_runs(line, numbers):
    assert values_in(line) == numbers


@pytest.mark.parametrize("label", ["[metrics] step {}: ", "step {}/60 | ", "INFO - Iteration #{} - "])
def test_the_step_before_a_dictionary_is_its_step(label, tmp_path):
    rewards, notes = steps_of(tmp_path, [label.format(5 * i) + line for i, line in enumerate(lines_of([1, 2, 3]), 1)])
    assert rewards == {5: 0.01, 10: 0.02, 15: 0.03} and "not printed" not in notes
    assert "global_step" not in values_in("step 4 took 3.1 s {'loss': 0.5}")


def test_a_dictionary_of_rewards_alone_is_a_graders_of_one_response(tmp_path):
    graded = "Metrics:  {'format_reward': 1.0, 'answer_reward': 0.0, 'reward': 0.0}"
    rewards, _ = steps_of(tmp_path, [graded, *lines_of([1, 2], [0.01, 0.02]), graded])
    assert list(rewards.values()) == [0.01, 0.02]
    with pytest.raises(UserError, match="no log of a kind that is known; allowed: "):
        steps_of(tmp_path, ["Slow attention, unexpected results, may follow", "Device: cuda:1", *[graded] * 9])


ENDED = "{'train_runtime': 41.0, 'train_steps_per_second': 0.5, 'train_loss': 0.2, 'epoch': 2.0}"
"""The end of a training of 20 steps."""


def test_a_training_without_rewards_that_ended_before_is_left_out(tmp_path):
    """As where one script fine-tunes on examples, and then with GRPO."""
    tuned = [f"{{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': {e}}}" for e in (0.5, 1.0, 1.5, 2.0)]
    rewards, notes = steps_of(tmp_path, [*tuned, ENDED, "Starting GRPO", *lines_of([1, 2, 3], [0.01, 0.02, 0.03])])
    assert rewards == {1: 0.01, 2: 0.02, 3: 0.03} and "line 7: a training without rewards ended before" in notes
    twice = [*lines_of([1, 2, 3], [0.01, 0.02, 0.03]), ENDED, *lines_of([4, 5, 6], [0.01, 0.02, 0.03])]
    two = read(tmp_path, "\n".join(twice) + "\n", "train.log")  # two trainings with rewards are two runs
    assert [values([run], "reward_mean")[1] for run in two] == [0.01, 0.04]


def test_epochs_of_two_digits_that_come_evenly_tell_no_steps(tmp_path):
    """With a gap of 0.014 they are 0.01, 0.03, 0.04, 0.06, .. which are multiples of 0.01 too."""
    epochs = [round(0.014 * i, 2) for i in range(1, 31)]
    for end, every in ((None, 1), (SECONDS.replace("0.019", "0.0744") + ", 'epoch': 0.42", 10)):  # 299 to 302 steps
        lines = [*lines_of(range(1, 31), epochs), *([f"{{{end}}}"] if end else [])]
        assert list(steps_of(tmp_path, lines)[0]) == [every * i for i in range(1, 31)]


def test_dictionaries_of_settings_are_none_that_are_cut(tmp_path):
    lines = ["INFO non-default args: {'dtype': torch.bfloat16, 'config': {'mode': <Mode.A: 2>}}", *lines_of([1, 2, 3])]
    assert "are cut" not in steps_of(tmp_path, lines)[1]
    assert "1 dictionaries that are cut" in steps_of(tmp_path, ["{'loss': {'a': 1}}", *lines])[1]


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-26 05:55:37,248\tINFO -- address\n2026-02-26 05:55:38,244\tINFO -- ready\n",
        "Loading: 100%|##| 2/2 [00:06<00:00]\n  0%|    | 0/10 [00:00<?]\nquestion is 1+1=?\nanswer is 2\nsampling\n",
    ],
)
def test_a_console_that_begins_as_a_table_may_is_none(text, tmp_path):
    with pytest.raises(UserError, match="no log of a kind that is known; allowed: "):
        run_of(tmp_path, text, "out.txt")


def test_the_step_that_verl_repeats_in_a_line_does_not_begin_another(tmp_path):
    parts = "actor/grad_norm:0.5 - training/global_step:{0} - training/epoch:0 - critic/score/mean:0.{0}"
    run = run_of(tmp_path, "".join(f"step:{i} - {parts.format(i)}\n" for i in (1, 2, 3)), "verl.log")
    assert values([run], "reward_mean") == {1: 0.1, 2: 0.2, 3: 0.3}
    assert values([run], "grad_norm") == dict.fromkeys((1, 2, 3), 0.5) and "together" not in " ".join(run.notes)


def test_printed_responses_may_fill_the_start_of_a_log(tmp_path):
    spoken = "Let us see what is right, step by step.\n" * (HEAD // 40 + 1)
    for log, form in ((trl_console(), "TRL console"), (verl_log(), "verl console")):
        assert run_of(tmp_path, spoken + log.text, "late.log").format == form


def test_the_kind_of_a_log_is_that_of_most_lines(tmp_path):
    for log, stray, form in (
        (trl_console(), "step:3 - critic/score/mean:9.9\n", "TRL console"),
        (verl_log(), "{'loss': 0.5, 'epoch': 0.1}\n", "verl console"),
    ):
        assert run_of(tmp_path, stray + log.text, "mixed.log").format == form


def test_what_a_model_wrote_in_a_printed_table_is_no_dictionary(tmp_path):
    """TRL prints responses so with log_completions."""
    box = ["╭─── Step 1 ───╮", "│ │ What is 1+1 │ {'loss': 3.0, 'reward': 9.0} │ 1.00 │ │", "╰──────────────╯"]
    lines = [text for line in lines_of([1, 2, 3], [0.01, 0.02, 0.03]) for text in (line, *box)]
    rewards, notes = steps_of(tmp_path, lines)
    assert rewards == {1: 0.01, 2: 0.02, 3: 0.03} and "updates_per_round" not in notes
