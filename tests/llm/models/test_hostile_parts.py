"""Hostile and missing parts of a model's folder: tokenizers, weights, configurations and adapters are refused in one
line."""

import base64
import json
import os
import re
from pathlib import Path

import pytest

from rftlab import Model, UserError, train
from rftlab.llm.budget.shapes import read_shape
from rftlab.llm.models.load import check_growth
from tests.support.damage import no_hang
from tests.support.trainer.chat_models import change, chat_run, copied, data, folder  # noqa: F401


def table(size: int, rest: bytes) -> dict:
    """A table of characters that says that its trie has so many bytes."""
    packed = base64.b64encode(size.to_bytes(4, "little") + rest).decode()
    return {"type": "Precompiled", "precompiled_charsmap": packed}


LONGER = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 40}


def piped(place):
    place.unlink()
    os.mkfifo(place)


def without_tokenizer(place):
    place.unlink()
    place.with_name("tokenizer_config.json").unlink()


def as_a_pickle(place):
    place.unlink()
    place.with_name("pytorch_model.bin").write_text("a pickle, which could run anything")


def weights_in(place):
    """An index of weights, which may name any file of the machine; one without end takes all of its memory."""
    return json.dumps({"metadata": {}, "weight_map": {"model.embed_tokens.weight": place}})


PARTS = [
    (
        "generation_config.json",
        [{"eos_token_id": ends} for ends in ("x", [[2]], {"a": 1}, -1, [2, 2.5], True, 10**30)],
        "the end-of-sequence id .*; allowed: 0 to 2147483647",
    ),
    ("tokenizer.json", [without_tokenizer, "{"], "no tokenizer can be read: "),
    ("tokenizer.json", [{"normalizer": table(5, b"\0" * 5 + b"\xff\0")}], "no tokenizer can be read: Precompiled"),
    (
        "tokenizer.json",
        [{"pre_tokenizer": {"type": "FixedLength", "length": 0}}],
        "tokenizer does not take the prompt .*: chunk size",
    ),
    (
        "tokenizer.json",
        [
            {"normalizer": {"type": "Sequence", "normalizers": [LONGER, LONGER]}},
            {"normalizer": {"type": "Sequence", "normalizers": [table(0, b"ab\0" + b"e" * 40 + b"\0"), LONGER]}},
            {"decoder": {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": [LONGER]}, LONGER]}},
        ],
        "of its tokenizer may write more than 1000 characters for one",
    ),
    (
        "chat_template.jinja",
        [Path.unlink],
        "the tokenizer has no chat template, and the prompts of this task are chat messages",
    ),
    ("model.safetensors", [Path.unlink, as_a_pickle, "damaged"], "no causal language model can be read: "),
    (
        "model.safetensors.index.json",
        map(weights_in, ["/dev/zero", "../model.safetensors", "weights.bin", "", 3, None, ["model.safetensors"]]),
        r"index.json has weights in .*; allowed: safetensors files of the folder",
    ),
    (
        "model.safetensors.index.json",
        ["", "[]", "{}", '{"weight_map": ["a"]}', "[" * 100_000],
        r"model\.safetensors\.index\.json is no index of weights",
    ),
    ("config.json", ["{}"], "can be read: "),
    (
        "config.json",
        [lambda place: os.truncate(place, 10**12)],  # a hole, which takes no room on the disk
        r"config\.json has more than 268435456 bytes; allowed: at most that",
    ),
]
PLANNED = [
    ("adapter_config.json", [json.dumps({"r": 2})], "holds an adapter; allowed: a folder of a whole model"),
    *(
        ("config.json", [{name: value}], re.escape(f": its config.json has {name} = {value}; allowed: at most {most}"))
        for name, value, most in (
            ("num_hidden_layers", 10**9, 4096),
            ("num_attention_heads", 10**12, 4096),
            ("hidden_size", 10**15, 2097152),
            ("vocab_size", 1e300, 2097152),
            ("head_dim", 10**9, 2097152),
        )
    ),
    *(
        (name, [piped], f"{name} in it is neither a file nor a folder; allowed: a folder of files")
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    ),
]
"""Those that a plan refuses too."""


@pytest.mark.parametrize(
    ("file", "content", "message"), [(file, each, said) for file, some, said in PARTS + PLANNED for each in some]
)
def test_a_hostile_or_missing_part_is_one_line(file, content, message, copied, data, tmp_path):
    """What a library written in Rust raises where it panics is no Exception. An adapter would be put into the model,
    and trained as if it were a part of it."""
    if isinstance(content, dict):
        change(copied, file, content)
    elif isinstance(content, str):
        (copied / file).write_text(content)
    else:
        content(copied / file)
    with no_hang(), pytest.raises(UserError, match=message):
        train(chat_run(copied, data), tmp_path / "run")
    if message in [planned for _, _, planned in PLANNED]:
        with no_hang(), pytest.raises(UserError, match=f"^model.source = {str(copied)!r}.*{message}"):
            read_shape(Model(str(copied)))


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


def test_one_replacement_is_no_reason_to_refuse(copied, data, tmp_path):
    change(copied, "tokenizer.json", {"normalizer": LONGER | {"content": "e"}})
    check_growth(copied)
