"""Models and data of a run: a folder with a chat model, the tiny base model, and what is wrong with others, in one
line."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

import rftlab.llm.models.tiny
import rftlab.llm.training.samples
from rftlab import TaskConfig, UserError, train
from rftlab.llm.config import Compute, Tiny
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.models.tiny import batch_rows, build_tiny, pretrained, validation_pass_at_1
from rftlab.llm.policy.policy import Policy
from rftlab.llm.tasks.arithmetic import END, PAD
from rftlab.llm.tasks.codec import TextCodec
from rftlab.llm.tasks.load import load_task
from rftlab.llm.train import TrainingCallbacks
from tests.support.trainer.chat_models import WORDS, chat_run, copied, data, folder, splits  # noqa: F401
from tests.support.trainer.tiny_models import small_model
from tests.support.trainer.tiny_runs import GRPO, SIZES, TINY, one_cache, run_of, same  # noqa: F401


def test_a_folder_with_a_chat_model_is_trained(folder, data, tmp_path):
    run = chat_run(folder, data)
    outcome = train(run, tmp_path)
    assert outcome.curve.round.tolist() == [0, 1, 2] and outcome.metrics.mismatch[2] < 1e-5
    records = pd.read_parquet(tmp_path / "rollouts")
    ended = records[records.finished]
    assert set(ended.tokens.map(lambda ids: ids[-1])) == {2, 3} and "<" not in "".join(ended.text)
    assert same(outcome, train(run, tmp_path))


def test_prompts_go_through_the_chat_template(folder, data):
    model, codec = load_model(chat_run(folder, data))
    assert isinstance(codec, TextCodec) and codec.stops == (2, 3) and model.dtype == torch.float32
    prompt = load_data(chat_run(folder, data), codec).train.prompts[1]
    assert codec.tokenizer.decode(prompt).startswith("<turn> user What is 1 + 1 ? Let's think step by step and output")
    assert prompt[-2:] == (3, 5)
    assert (
        codec.encode(["What is"]) == [[WORDS.index("What"), WORDS.index("is")]] and codec.decode([6, 9, 2]) == "#### 2"
    )


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (GatedRepoError, "accept the terms at https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct, then"),
        (RepositoryNotFoundError, "the hub has no such model, or does not show it to you: correct the name, or"),
    ],
)
def test_a_model_that_the_hub_does_not_give_says_what_to_do(kind, advice, monkeypatch, tmp_path):
    def refused(*arguments, **more):
        try:
            raise kind("401 Client Error", response=SimpleNamespace(headers={}, request=None))
        except kind as error:
            raise OSError("You are trying to access a gated repo.\nMake sure ...") from error

    monkeypatch.setattr("rftlab.llm.models.load.raw_config", refused)
    with pytest.raises(UserError, match=f"{advice} `hf auth login`, or HF_TOKEN in the environment$"):
        train(chat_run("meta-llama/Llama-3.2-1B-Instruct", "unused"), tmp_path)


def test_no_end_of_sequence_is_refused(folder):
    _, codec = load_model(chat_run(folder, "unused"))
    codec.tokenizer.eos_token = None
    with pytest.raises(UserError, match="the model names no end-of-sequence id"):
        TextCodec(codec.tokenizer, GenerationConfig(eos_token_id=None), 100)


def test_a_folder_that_lacks_weights_is_refused(copied, data, tmp_path):
    """transformers would draw them at random, and say so where nobody looks."""
    weights = load_file(copied / "model.safetensors")
    lost = ["model.layers.0.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight"]
    kept = {name: value for name, value in weights.items() if name not in lost}
    save_file(kept, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=re.escape(f"2 weights are missing, {', '.join(lost)} among them")):
        train(chat_run(copied, data), tmp_path / "run")


def test_a_tied_head_is_not_missing(copied, data, tmp_path):
    model = small_model(1, vocabulary=len(WORDS), tie_word_embeddings=True)
    model.save_pretrained(copied)
    assert "lm_head.weight" not in load_file(copied / "model.safetensors")
    assert torch.equal(load_model(chat_run(copied, data))[0].lm_head.weight, model.lm_head.weight)


def test_a_prompt_that_the_model_does_not_take_is_one_line(folder):
    _, codec = load_model(chat_run(folder, "unused"))
    with pytest.raises(UserError, match="does not take the prompt"):
        codec.encode([[{"role": "user", "content": "\ud800"}]])


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(copied, data, tmp_path):
    small_model(1, vocabulary=10).save_pretrained(copied)
    said = r"the tokenizer makes the id \d+ of a prompt; allowed: below 10, a model with the tokenizer"
    with pytest.raises(UserError, match=said):
        train(chat_run(copied, data), tmp_path / "run")


def test_records_name_a_prompt_by_its_number_in_the_data(folder, tmp_path):
    """Prompts that are too long count, and how many there were is a metric."""
    questions = ["What is " + "1 + " * 40 + "1 ?"] * 3 + [f"What is {a} + {a} ?" for a in range(4)]
    splits(tmp_path, [{"question": question, "answer": "#### 2"} for question in questions])
    remarks = []
    outcome = train(chat_run(folder, tmp_path), tmp_path / "run", TrainingCallbacks(remark=remarks.append))
    left = "prompts longer than model.max_prompt_length = 40 tokens"
    assert [remark.split(":")[0] for remark in remarks[:2]] == ["train", "test"] and left in remarks[0]
    assert set(pd.read_parquet(tmp_path / "run" / "rollouts").prompt) == {3, 4, 5, 6}
    assert (outcome.metrics.left_out_train == 3).all() and (outcome.metrics.left_out_test == 3).all()


def test_the_tiny_model_is_as_described():
    model, again, other = build_tiny(Tiny()), build_tiny(Tiny()), build_tiny(Tiny(seed=1))
    assert sum(p.numel() for p in model.parameters()) == 109_376
    assert (model.config.eos_token_id, model.config.pad_token_id) == (END, PAD)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert not torch.equal(model.lm_head.weight, other.lm_head.weight)


def test_reading_is_stopped_at_the_target_and_kept(monkeypatch):
    monkeypatch.setattr(rftlab.llm.models.tiny, "score", rftlab.llm.training.samples.score)
    task, tiny, steps = TaskConfig("mix97", sizes=SIZES), replace(TINY, target=0.05, check_every=10), []
    first = pretrained(task, tiny, lambda step, rate: steps.append((step, rate)))
    assert steps[-1][1] >= 0.05 and all(rate < 0.05 for _, rate in steps[:-1])
    again = pretrained(task, tiny, lambda step, rate: pytest.fail("it was trained again"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert validation_pass_at_1(Policy(again, Compute()), load_task(task)["validation"], steps[-1][0]) == steps[-1][1]
    with pytest.raises(UserError, match=r"tiny\.target = 0\.99: Pass@1 is 0\.\d+ after tiny\.max_steps = 20 steps"):
        pretrained(task, replace(tiny, target=0.99, max_steps=20))


def test_the_two_sums_have_base_models_of_their_own():
    model = {name: pretrained(TaskConfig(name, sizes=SIZES), TINY) for name in ("mod97", "mix97")}
    assert not torch.equal(model["mod97"].lm_head.weight, model["mix97"].lm_head.weight)


def test_batches_come_in_epoch_order():
    epoch, first = [batch_rows(10, 3, 5, i).tolist() for i in range(3)], batch_rows(10, 3, 5, 0).tolist()
    assert len({c for batch in epoch for c in batch}) == 9 and epoch[0] == first
    assert all(batch_rows(10, 3, *other).tolist() != first for other in ((5, 3), (6, 0)))
