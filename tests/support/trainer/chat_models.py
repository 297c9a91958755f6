"""A small model from a folder, with a chat template."""

import json
import shutil

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from rftlab import Design, Evaluation, LLMRun, Model, TaskConfig
from tests.support.trainer.tiny_models import small_model
from tests.support.trainer.tiny_runs import GRPO

WORDS = ["<pad>", "<s>", "</s>", "<turn>", "user", "model", "####", *"0123456789", "+"]
WORDS += ["Let's", "think", "step", "by", "and", "output", "What", "is", "?", "."]
TEMPLATE = (
    "{% for m in messages %}<turn> {{ m['role'] }} {{ m['content'] }} {% endfor %}{% if "
    "add_generation_prompt %}<turn> model{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chat model with a tokenizer of words and two ids that end a response."""
    place = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"eos_token": "</s>", "pad_token": "<pad>", "bos_token": "<s>", "additional_special_tokens": ["<turn>"]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(place)
    model = small_model(1, vocabulary=len(WORDS))
    model.generation_config = GenerationConfig(eos_token_id=[2, 3], pad_token_id=0)
    model.save_pretrained(place)
    return place


@pytest.fixture
def copied(folder, tmp_path):
    """A copy of that folder, to be damaged."""
    return shutil.copytree(folder, tmp_path / "copy")


def change(place, file, more):
    """Set entries of a JSON file of a folder."""
    (place / file).write_text(json.dumps(json.loads((place / file).read_bytes()) | more))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ten problems in the hub's columns, as files."""
    rows = [{"question": f"What is {a} + {a} ?", "answer": f"#### {2 * a}"} for a in range(10)]
    return splits(tmp_path_factory.mktemp("data"), rows)


def jsonl(place, rows):
    """A file with a row a line; returns its path as text."""
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(place)


def splits(place, rows):
    """A folder whose training and test rows are the same."""
    for split in ("train", "test"):
        jsonl(place / f"{split}.jsonl", rows)
    return place


def chat_run(folder, data, **more):
    model = Model(str(folder), max_prompt_length=40, max_response_length=8)
    design = Design(4, 2, estimator=GRPO, rounds=2, eval_every=1)
    return LLMRun(TaskConfig("gsm8k", source=str(data)), model, design, evaluation=Evaluation(greedy=False), **more)


CODE = """
from pathlib import Path
from transformers import PretrainedConfig, PreTrainedTokenizerFast
Path({mark!r}).touch()
class Own(PretrainedConfig):
    model_type = "own"
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def with_code(source, place, file):
    """A copy of a model's folder with a program, which a file of it asks for."""
    shutil.copytree(source, place)
    (place / "own.py").write_text(CODE.format(mark=str(place / "ran")))
    model = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    tokenizer = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}}
    change(place, file, model if file == "config.json" else tokenizer)
    return place
