"""What comes with a model or with data is hostile: it runs no code, asks no question, writes no second line, and
comes to an end."""

import ast
import json
import os
import subprocess
import sys

import pytest

from rftlab import Model, UserError
from rftlab.llm.budget.shapes import raw_config, read_shape
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
        ("{{ raise_exception('one\n\ntwo') }}", "does not take the prompt .*: one two; correct it"),
    ],
)
def test_a_template_comes_to_an_end_in_one_line(template, message):
    with pytest.raises(UserError, match=message):
        rendered(template, {}, [CHAT], seconds=3)


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
