"""A real run of TRL: three rounds of a model of a few thousand parameters, and what it leaves behind. Skipped where
trl is absent."""

from contextlib import redirect_stderr, redirect_stdout

import pytest

from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.config_file import read_config
from tests.support.logs.reading import values

CONSOLE = "console.txt"
"""What it printed, beside its folder."""
pytest.importorskip("trl", reason="trl is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What TRL writes: two updates a round, four prompts of four responses."""
    import warnings

    folder = tmp_path_factory.mktemp("trl") / "run"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from datasets import Dataset
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
        from trl import GRPOConfig, GRPOTrainer

        known = ["<pad>", "<eos>", "<unk>", *map(str, range(20))]
        words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        special = dict(zip(("pad_token", "eos_token", "unk_token"), known[:3], strict=True))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)
        shape = Qwen2Config(vocab_size=23, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                            num_attention_heads=2, num_key_value_heads=2)  # fmt: skip
        data = Dataset.from_list([{"prompt": f"{i} {i + 1}"} for i in range(16)])
        settings = GRPOConfig(
            output_dir=str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, num_generations=4,
            steps_per_generation=4, max_steps=6, logging_steps=1, save_steps=6, eval_strategy="steps", eval_steps=2,
            per_device_eval_batch_size=4, learning_rate=1e-3, max_completion_length=4, report_to=[],
            log_completions=True, use_cpu=True, bf16=False, disable_tqdm=False, scale_rewards="none",
        )  # fmt: skip

        def accuracy(completions, **more):
            return [float("3" in text) for text in completions]

        model = Qwen2ForCausalLM(shape)
        folder.parent.mkdir(exist_ok=True)
        with (folder.parent / CONSOLE).open("w") as console, redirect_stdout(console), redirect_stderr(console):
            GRPOTrainer(model, accuracy, settings, data, data.select(range(2)), processing_class=tokenizer).train()
    return folder


def test_its_state_is_read_in_rounds(folder):
    (run,) = read_logs([folder])
    rows = run.curves[(run.curves["split"] == "train") & (run.curves["metric"] == "pass_at_1")]
    assert rows["round"].tolist() == [1, 2, 3] and rows["source"].unique().tolist() == ["rewards/accuracy/mean"]
    assert rows["source_step"].tolist() == [1, 3, 5]  # TRL logs a reward where it has sampled
    norms = run.curves[run.curves["metric"] == "grad_norm"]
    assert norms["round"].tolist() == [1, 2, 3] and norms["n"].tolist() == [2, 2, 2]
    assert list(values([run], "pass_at_1", "test")) == [1, 2, 3]


def test_its_tables_of_completions_give_right_responses_by_question(folder):
    """It evaluates at steps 2, 4 and 6, so what was sampled for training is in the tables of 1, 3 and 5."""
    (run,) = read_logs([folder])
    (own,) = run.outcomes
    assert set(own.rounds) == {1, 2, 3} and sum(own.groups) == 12 and set(own.responses) == {4}
    rows = run.curves[(run.curves["split"] == "train") & (run.curves["metric"] == "pass_at_1")]
    for done, value in zip(rows["round"], rows["value"], strict=True):
        right = [r * g for when, r, g in zip(own.rounds, own.right, own.groups, strict=True) if when == done]
        assert sum(right) / 16 == pytest.approx(value)
    assert any("3 of 6 tables of completions left out" in note for note in run.notes)
    assert sum(name.endswith(".parquet") for name, _ in run.sources) == 3


def test_its_arguments_give_the_design_without_being_loaded(folder):
    (run,) = read_logs([folder])
    known = run.design
    assert (known.prompts, known.rollouts, known.updates_per_round) == (4, 4, 2)
    assert (known.learning_rate, known.advantage) == (1e-3, "group_mean")
    config = read_config(folder / "checkpoint-6" / "training_args.bin")
    assert read_design(config, "", None)[0] == known
    (folder / "checkpoint-7").mkdir()  # of a run that ended while it saved
    assert read_logs([folder])[0].design == known


def test_what_it_prints_says_what_its_state_says(folder):
    """To the four digits that are printed; loss and reward of training, and evaluations."""
    (state,) = read_logs([folder])
    (run,) = read_logs([folder.parent / CONSOLE], config=folder / "checkpoint-6" / "training_args.bin")
    assert run.format == "TRL console" and run.design == state.design
    place = ["split", "metric", "source", "round"]
    both = state.curves.merge(run.curves, on=place, suffixes=("", "_printed"), how="left")
    both = both[(both["split"] != "") & (both["metric"] != "seconds")]
    assert len(both) > 20 and both["value"].tolist() == pytest.approx(both["value_printed"].tolist(), rel=1e-3)
    assert both["source_step"].tolist() == both["source_step_printed"].tolist()
