"""Hostile parts of a model's folder: tokenizers, weights, configurations and adapters are refused in one line."""

import base64
import json

import pytest

from rftlab.llm.budget.shapes import read_shape
from rftlab.llm.config import Model
from rftlab.llm.models.load import check_growth
from rftlab.llm.train import train
from rftlab.shared.plumbing.errors import UserError
from tests.support.trainer.chat_models import change, chat_run, copied, data, folder  # noqa: F401


@pytest.mark.parametrize("ends", ["x", [[2]], {"a": 1}, -1, [2, 2.5], True, 10**30])
def test_ends_of_a_response_are_whole_numbers(ends, copied, data, tmp_path):
    (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with pytest.raises(UserError, match=r"the end-of-sequence id .*; allowed: 0 to 2147483647"):
        train(chat_run(copied, data), tmp_path / "run")


def table(size: int, rest: bytes) -> dict:
    """A table of characters that says that its trie has so many bytes."""
    packed = base64.b64encode(size.to_bytes(4, "little") + rest).decode()
    return {"type": "Precompiled", "precompiled_charsmap": packed}


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("normalizer", table(5, b"\0" * 5 + b"\xff\0"), "no tokenizer can be read: Precompiled"),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}, "tokenizer does not take the prompt .*: chunk size"),
    ],
)
def test_a_tokenizer_that_panics_is_one_line(part, value, message, copied, data, tmp_path):
    """What a library written in Rust raises then is no Exception."""
    change(copied, "tokenizer.json", {part: value})
    with pytest.raises(UserError, match=message):
        train(chat_run(copied, data), tmp_path / "run")


LONGER = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 40}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (table(2**32 - 1, b"\0" * 9), "a table of characters of 4294967295 bytes, of which 9 are there"),
        ({"type": "Sequence", "normalizers": [table(8, b"\0" * 7)]}, "of 8 bytes, of which 7 are there"),
        ({"type": "Precompiled", "precompiled_charsmap": ""}, "of 0 bytes, of which 0 are there"),
        ({"type": "Precompiled", "precompiled_charsmap": [1]}, "a table of characters that is no base64"),
        ({"type": "Precompiled", "precompiled_charsmap": "A_=="}, "a table of characters that is no base64"),
        ({"type": "Precompiled"}, "a table of characters that is no base64"),
    ],
)
def test_a_table_of_characters_is_as_large_as_it_says(rule, message, copied, tmp_path):
    """The library asks for the memory first, and where there is none the process ends without a line."""
    change(copied, "tokenizer.json", {"normalizer": rule})
    with pytest.raises(UserError, match=f"the normalizer of its tokenizer has .*{message}"):
        check_growth(copied)


@pytest.mark.parametrize(
    "part",
    [
        {"normalizer": {"type": "Sequence", "normalizers": [LONGER, LONGER]}},
        {"normalizer": {"type": "Sequence", "normalizers": [table(0, b"ab\0" + b"e" * 40 + b"\0"), LONGER]}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": [LONGER]}, LONGER]}},
    ],
)
def test_a_tokenizer_that_makes_texts_longer_without_measure_is_refused(part, copied, data, tmp_path):
    change(copied, "tokenizer.json", part)
    with pytest.raises(UserError, match=r"of its tokenizer may write more than 1000 characters for one"):
        train(chat_run(copied, data), tmp_path / "run")


def test_one_replacement_is_no_reason_to_refuse(copied, data, tmp_path):
    change(copied, "tokenizer.json", {"normalizer": LONGER | {"content": "e"}})
    check_growth(copied)


def test_an_adapter_is_no_model(copied, data, tmp_path):
    """It would be put into the model, and trained as if it were a part of it."""
    (copied / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "someone/else", "r": 2}))
    for use in (lambda: train(chat_run(copied, data), tmp_path / "run"), lambda: read_shape(Model(str(copied)))):
        with pytest.raises(UserError, match="holds an adapter; allowed: a folder of a whole model"):
            use()


@pytest.mark.parametrize(
    "place", ["/dev/zero", "../model.safetensors", "weights.bin", "", 3, None, ["model.safetensors"]]
)
def test_weights_are_in_safetensors_files_of_the_folder(place, copied, data, tmp_path):
    """An index may name any file of the machine; one without end takes all of its memory."""
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": place}}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"index.json has weights in .*; allowed: safetensors files of the folder"):
        train(chat_run(copied, data), tmp_path / "run")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": ["a"]}', "[" * 100_000])
def test_an_index_of_weights_that_is_none_is_named(text, copied, data, tmp_path):
    (copied / "model.safetensors.index.json").write_text(text)
    with pytest.raises(UserError, match=r"model\.safetensors\.index\.json is no index of weights"):
        train(chat_run(copied, data), tmp_path / "run")


def test_a_configuration_without_end_is_not_read(copied, data, tmp_path):
    with (copied / "config.json").open("r+b") as file:
        file.truncate(10**12)  # a hole, which takes no room on the disk
    with pytest.raises(UserError, match=r"config\.json has more than 268435456 bytes; allowed: at most that"):
        train(chat_run(copied, data), tmp_path / "run")
