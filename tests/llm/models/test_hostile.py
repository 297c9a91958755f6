"""What comes with a model or with data is hostile: it runs no code, asks no question, writes no second line, and
comes to an end; hostile and missing parts of a model's folder are refused in one line."""

import ast
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rftlab import Model, UserError, train
from rftlab.llm.budget.shapes import raw_config, read_shape
from rftlab.llm.models.load import check_growth
from rftlab.llm.tasks.benchmarks import BENCHMARKS, _raw
from rftlab.llm.tasks.codec import TODAY, rendered
from rftlab.llm.tasks.files import read_rows
from tests.support.damage import no_hang
from tests.support.estimators.vectors import ROOT
from tests.support.machine.here import rftlab
from tests.support.trainer.chat_models import TEMPLATE, change, chat_run, copied, data, folder, with_code  # noqa: F401
from tests.support.trainer.tiny_models import small_model
from tests.support.trainer.tiny_runs import one_cache  # noqa: F401

CHAT = [{"role": "user", "content": "What is 1 ?"}]
LOOP = "{{% for i in range(99999) %}}{}{{% endfor %}}"


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_is_never_run_and_nobody_is_asked(file, folder, data, tmp_path, monkeypatch):
    """A user who answers yes to a question of transformers must not have been asked one."""
    place = with_code(folder, tmp_path / "model", file)
    monkeypatch.setattr("builtins.input", lambda *question: pytest.fail("it asks"))
    flags = f"--pair qwen-gsm8k --model.source {place} --task.source {data} --compute.device cpu --compute.engine hf"
    flags += f" --folder {tmp_path / 'run'} --compute.precision fp32 --batch-size 4 --rounds 1 --eval-every 1"
    status, printed = rftlab("train", "--quiet", *flags.split())
    assert not (place / "ran").exists()
    assert status == 2 and printed.count("\n") == 1 and "code that comes with the model, which is never run" in printed


def test_everything_that_reads_a_model_refuses_its_code():
    paths = [*ROOT.glob("llm/**/*.py"), *ROOT.glob("studies/**/*.py"), *ROOT.glob("benchmarks/llm/*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    calls = [ast.unparse(node) for node in nodes if ast.unparse(node.func).endswith(".from_pretrained")]
    assert len(calls) >= 6
    assert [call for call in calls if "trust_remote_code=False" not in call and "**safe" not in call] == []
    for name in ("models/load.py", "engines/vllm.py"):
        assert '"trust_remote_code": False' in (ROOT / "llm" / name).read_text()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ 'a' * 3000000000 }}", "it needs more memory than 1024 MB"),
        (LOOP.format("{{ 'write without end ' }}"), r"it writes 1799982 characters; allowed: 100011; correct it, or"),
        (LOOP.format(LOOP.format("")), "takes more than 3 seconds for 1 prompts; correct it"),
        ("{{ raise_exception('one\n\ntwo') }}", "does not take the prompt .*: one two; correct it, or name another"),
        ("{% for m in messages %}", "does not take the prompt"),
    ],
)
def test_a_template_comes_to_an_end_in_one_line(template, message):
    with pytest.raises(UserError, match=message):
        rendered(template, {}, [CHAT], seconds=3)


def test_a_template_has_its_seconds_beside_the_imports_of_its_process():
    """The imports alone take more than one second on most machines."""
    assert rendered("{{ messages[0].content }}", {}, [CHAT], seconds=1) == ["What is 1 ?"]


def test_a_chat_may_be_long_itself():
    assert len(rendered("{{ messages[0].content }}", {}, [[{"role": "user", "content": "x" * 10**6}]])[0]) == 10**6


def test_texts_are_those_of_the_tokenizer_itself(folder):
    """White space and variables too, which a line before a template could change."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    chats = [CHAT, [{"role": "system", "content": " short "}, *CHAT]]
    line = (
        "{% set ns = namespace(n=0) %}\n  {% if messages %}\n{{ eos_token }} {{ messages[0].content }}\n  {% endif %}"
    )
    for template in (TEMPLATE, line, "\n" + line, "  " + line, " \n\n text", "{%- if true %} a {%- endif -%}\n b"):
        expected = [
            tokenizer.apply_chat_template(chat, chat_template=template, add_generation_prompt=True, tokenize=False)
            for chat in chats
        ]
        assert rendered(template, tokenizer.special_tokens_map, chats) == expected


@pytest.mark.parametrize(
    "form", ["%d %b %Y", "%Y-%m-%d", "%A, %-d %B %Y", "%%d %d%%", "%H:%M:%S", "%y%j", "no code", ""]
)
def test_the_clock_of_templates_stands_still(form):
    """Also inside a macro, and where a template asks whether there is a clock."""
    clock, expected = f"strftime_now({form!r})", TODAY.strftime(form)
    macro = f"{{% macro now() %}}{{{{ {clock} }}}}{{% endmacro %}}"
    use = f"{{% if strftime_now is defined %}}{{{{ now() }}}}|{{{{ {clock} | upper }}}}{{% endif %}}"
    assert rendered(macro + use, {}, [CHAT]) == [f"{expected}|{expected.upper()}"]


def test_a_template_is_read_under_a_limit_of_the_user():
    """A process may take less of a processor (`ulimit -t`) than templates get."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (50, 50))\n"
        "from rftlab.llm.tasks.codec import rendered\n"
        f"print(rendered('{{{{ messages[0].content }}}}', {{}}, [{CHAT!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "['What is 1 ?']\n"), done.stderr


def test_large_numbers_are_found_wherever_they_are(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "text_config": [{"n_layers": 10**9}]}))
    with pytest.raises(UserError, match=r"has n_layers = 1000000000; allowed: at most 4096"):
        read_shape(Model(str(tmp_path)))
    (tmp_path / "config.json").write_text('{"a": ' + "[" * 900 + "]" * 900 + "}")
    with pytest.raises(UserError, match="its model_type is None"):
        read_shape(Model(str(tmp_path)))


@pytest.mark.parametrize("value", [0, -3, "3", 2.5, None, True])
def test_a_plan_needs_whole_numbers(value, tmp_path):
    small_model().config.save_pretrained(tmp_path)
    change(tmp_path, "config.json", {"num_hidden_layers": value})
    with pytest.raises(UserError, match=r"num_hidden_layers = .*; allowed: a whole number of 1 or more"):
        read_shape(Model(str(tmp_path)))


def test_a_model_folder_of_links_is_read(folder, tmp_path):
    """As the hub's cache is; one that leads nowhere does not matter where nothing reads it."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "other.json").symlink_to("nowhere")
    assert raw_config(str(tmp_path)) == raw_config(str(folder))


def test_a_pipe_of_problems_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.jsonl")
    with no_hang(), pytest.raises(UserError, match=r"train\.jsonl is not a file; allowed: a file of rows"):
        read_rows(tmp_path / "train.jsonl")


def test_a_message_is_one_line_whatever_names_are_in_it(tmp_path):
    row = {"question": "1 + 1?", "bad\nrftlab: all is well\x1b[2J\u2028": 3}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError) as caught:
        _raw(BENCHMARKS["gsm8k"], read_rows(tmp_path / "a.jsonl")[0])
    assert str(caught.value).isprintable()
    assert r"there are: question, bad\nrftlab: all is well\x1b[2J\u2028)" in str(caught.value)
    for text in ("plain", "naïve 日本 😀", "\\n"):
        assert str(UserError(text)) == text, "other characters stay as they are"


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


def weights_by(changed):
    """Weights of which one is changed; the library takes every kind of number for a real one."""

    def write(place):
        weights = load_file(place)
        weights["model.norm.weight"] = changed(weights["model.norm.weight"])
        save_file(weights, place, metadata={"format": "pt"})

    return write


PARTS = [
    (
        "model.safetensors",
        [
            weights_by(lambda weight, kind=kind: weight.to(kind))
            for kind in (torch.int64, torch.bool, torch.float8_e4m3fn)
        ],
        r"model\.safetensors has model\.norm\.weight of type (I64|BOOL|F8_E4M3); allowed: F32, BF16",
    ),
    (
        "model.safetensors",
        [weights_by(lambda weight: weight * float("nan"))],
        r"model\.norm\.weight has numbers that are not finite",
    ),
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
    (
        "config.json",
        [
            {"attn_implementation": "own/kernel"},
            {"_attn_implementation": {"": "own/kernel"}},
            {"attn_implementation": "paged|eager"},
        ],
        "its config.json has _?attn_implementation = .*(own/kernel|paged.eager).*; allowed: eager, sdpa",
    ),
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
