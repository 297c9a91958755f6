"""A user's own data: files with named columns, prompts from a template, and truths of four kinds."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest

import rftlab.llm.training.samples
from rftlab import UserError, train
from rftlab.llm.rewards.verify import score
from rftlab.llm.tasks.config import OwnData, TaskConfig, task_facts
from rftlab.llm.tasks.load import load_task
from tests.support.trainer.chat_models import chat_run, data, folder, jsonl, splits  # noqa: F401
from tests.support.trainer.own_rewards import digits
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

ROWS = [{"question": f"What is {a} + {a} ?", "answer": str(2 * a), "level": a % 3} for a in range(20)]
SUMS = [{"question": f"{a}+{b}%", "answer": f"{a + b}"} for a in range(10, 20) for b in range(10, 14)]


def read(source, test_source=None, **own):
    return load_task(TaskConfig("own", source=str(source), test_source=test_source, own=OwnData(**own)))


def said(call):
    with pytest.raises(UserError) as error:
        call()
    return str(error.value)


def test_every_format_gives_the_same_problems(tmp_path, monkeypatch):
    frame = pd.DataFrame(ROWS)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    jsonl(tmp_path / "a.jsonl", ROWS)
    hub = Mock(return_value=ROWS)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=hub))
    sources = [tmp_path / f"a.{ending}" for ending in ("parquet", "csv", "jsonl")] + ["hub:me/mine:main"]
    tasks = [read(source, truth="number") for source in sources]
    hub.assert_called_once_with("me/mine", "main", split="train")
    for task in tasks:
        assert [task[name].prompts for name in task.splits] == [tasks[0][name].prompts for name in tasks[0].splits]
        assert (len(task["train"]), len(task["test"]), task.verifier) == (18, 2, "number")
    assert tasks[0]["train"].prompts[0][0]["content"].startswith("What is ")
    assert tasks[0]["train"].rows[0].keys() == {"question", "answer", "level"}
    assert tasks[1]["train"].rows[0]["level"] in "012"
    pd.DataFrame({"question": [b"\xff"], "answer": ["1"]}).to_parquet(tmp_path / "b.parquet")
    assert "row 1: question is b'\\xff'; allowed: text or a number" in said(lambda: read(tmp_path / "b.parquet"))


def test_equal_questions_stay_on_one_side_and_a_test_source_takes_the_place(tmp_path):
    task = read(jsonl(tmp_path / "a.jsonl", ROWS * 3), test_part=0.3)
    seen, unseen = ({prompt[0]["content"] for prompt in task[split].prompts} for split in ("train", "test"))
    assert len(task["test"]) == 18 and len(unseen) == 6 and not seen & unseen
    again = read(tmp_path / "a.jsonl", test_part=0.3)
    assert again.sha256 == task.sha256 != read(tmp_path / "a.jsonl", test_part=0.3, system="Be brief.").sha256
    own = read(tmp_path / "a.jsonl", test_source=jsonl(tmp_path / "b.jsonl", ROWS[:4]))
    assert (len(own["train"]), len(own["test"])) == (60, 4)
    (tmp_path / "both").mkdir()
    assert len(read(splits(tmp_path / "both", ROWS[:5]))["test"]) == 5


BROKEN = {
    "a,a\n1,2\n": "line 1 names the columns a, a; allowed: a name of its own for each",
    "a,b\n1\n": "line 2 has 1 values; allowed: 2, as line 1",
    'question,answer\n"a\nb",1\n"open,2\n': "cannot be read: unexpected end of data",
    "question,answer\n": "has no rows",
    "": "has no rows",
    "question,answer\n" + "x" * 200000 + ",1\n": "cannot be read: field larger than field limit",
}


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_table_is_one_line(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    assert BROKEN[text] in said(lambda: read(tmp_path / "a.csv"))


def test_a_folder_is_refused_by_what_it_lacks(tmp_path):
    jsonl(tmp_path / "one.jsonl", ROWS[:1])
    assert "has 1 different questions; allowed: more, or a test_source" in said(lambda: read(tmp_path / "one.jsonl"))
    assert "allowed: hub:OWNER/NAME or" in said(lambda: read("hub:name"))
    assert "allowed: --task.source with a file" in said(lambda: TaskConfig("own"))
    assert "task.own is set and task = 'gsm8k'" in said(lambda: TaskConfig(own=OwnData(truth="number"), name="gsm8k"))
    assert "own" not in task_facts(TaskConfig()) and "own" in task_facts(TaskConfig("own", source="x"))


def prompts(tmp_path, rows, **own):
    return list(read(jsonl(tmp_path / "p.jsonl", rows), jsonl(tmp_path / "q.jsonl", rows), **own)["train"].prompts)


def test_templates_put_columns_in_and_look_at_them_no_more(tmp_path):
    hostile = {"question": "{answer} {0.__class__} %s \u202e", "answer": "7", "hints": ["a", 1], "n": 2.5}
    template = "{{Q}}: {question} {hints} {n}"
    (prompt,) = prompts(tmp_path, [hostile], template=template, system="Be brief.")
    assert prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": '{Q}: {answer} {0.__class__} %s \u202e ["a", 1] 2.5'},
    ]
    assert prompts(tmp_path, ROWS[:1], template="{question}", chat=False) == ["What is 0 + 0 ?"]
    (usual,) = prompts(tmp_path, ROWS[:1], truth="boxed")
    assert usual[0]["content"].endswith("final answer within \\boxed{}.")
    (bare,) = prompts(tmp_path, ROWS[:1], truth_column="none")
    assert bare[0]["content"] == "What is 0 + 0 ?"
    chat = [{"role": "user", "content": "hi"}]
    assert prompts(tmp_path, [{"prompt": chat, "answer": "x"}], prompt_column="prompt") == [chat]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{question", "expected '}' before end of string; allowed: columns in braces"),
        ("{question!r}", "{question} with more than a name"),
        ("{question:>9}", "{question} with more than a name"),
        ("{}", "{} with more than a name"),
        ("{question.__class__}", "names question.__class__, which"),
        ("{no}", "names no, which"),
    ],
)
def test_a_template_knows_names_and_nothing_else(template, message, tmp_path):
    assert message in said(lambda: prompts(tmp_path, ROWS, template=template))


@pytest.mark.parametrize(
    ("question", "message"),
    [
        *((blank, "question is empty") for blank in (None, "", " ", float("nan"))),
        ("\ud800", "the prompt has half a character"),
        ([{"role": "user", "content": "\ud800"}], "question has the message {"),
        ([3], "question has the message 3"),
    ],
)
def test_empty_questions_are_named(question, message, tmp_path):
    assert f"line 1: {message}" in said(lambda: prompts(tmp_path, [{"question": question, "answer": 1}]))


def test_columns_that_are_missing_are_named(tmp_path):
    missing = "column ask is missing (there are: question, answer, level)"
    assert missing in said(lambda: prompts(tmp_path, ROWS, prompt_column="ask"))
    late = [*ROWS[:2], {"question": "x", "answer": "1"}]
    assert "p.jsonl line 3: column level is missing" in said(lambda: prompts(tmp_path, late, template="{level}"))


@pytest.mark.parametrize(
    ("truth", "row", "expected"),
    [
        ("number", {"answer": "#### 1,234.50"}, "1,234.50"),
        ("number", {"answer": -3}, "-3"),
        ("number", {"answer": 2.5}, "2.5"),
        ("text", {"answer": " Paris "}, "Paris"),
        ("boxed", {"answer": r"so \boxed{\frac{1}{2}}"}, r"\frac{1}{2}"),
        ("boxed", {"answer": "x^2"}, "x^2"),
        ("choice", {"answer": "(b)"}, "B"),
        ("choice", {"answer": 2}, "C"),
        ("choice", {"answer": "2"}, "C"),
        ("choice", {"answer": "2", "choices": ["2", "3"]}, "A"),
        ("choice", {"answer": 1, "choices": [7, 1]}, "B"),
        ("choice", {"answer": "green", "choices": ["red", "green"]}, "B"),
        ("choice", {"answer": "A", "choices": ["B", "C"]}, "A"),
    ],
)
def test_truths_are_read(truth, row, expected, tmp_path):
    source = jsonl(tmp_path / "a.jsonl", [{"question": "q", **row}])
    assert read(source, source, truth=truth)["train"].answers == (expected,)


@pytest.mark.parametrize(
    ("truth", "answer", "allowed"),
    [
        ("number", "seven", "a number, or a text that ends in ####"),
        ("number", True, "a number"),
        ("number", "1" * 61, "a number"),
        ("text", "  ", "text or a number"),
        ("text", None, "text or a number"),
        ("text", float("nan"), "text or a number"),
        ("text", "\ud800", "text or a number"),
        ("boxed", "\\frac{1}{2", "LaTeX that can stand in"),
        ("choice", "AB", "a letter from A to Z"),
        ("choice", 26, "a letter from A to Z"),
        ("choice", (1, [1, 2]), "one that means one choice"),
        ("choice", ("a", ["a", "a"]), "one that means one choice"),
    ],
)
def test_truths_that_no_response_can_match_are_refused(truth, answer, allowed, tmp_path):
    row = {"answer": answer[0], "choices": answer[1]} if isinstance(answer, tuple) else {"answer": answer}
    source = jsonl(tmp_path / "a.jsonl", [{"question": "q", **row}])
    message = said(lambda: read(source, source, truth=truth))
    assert message.startswith(f"{source} line 1: answer is ") and f"allowed: {allowed}" in message


def test_json_lines_may_begin_with_a_mark_and_name_nothing_twice(tmp_path):
    row = '{"question": "q", "answer": "x", "more": {"a": 1}}\n'
    path = tmp_path / "a.jsonl"
    path.write_text(row, encoding="utf-8-sig")
    assert read(str(path), str(path))["train"].answers == ("x",)
    for twice, name in ((row.replace("more", "answer"), "answer"), (row.replace('"a": 1', '"a": 1, "a": 2'), "a")):
        path.write_text(twice)
        message = said(lambda: read(str(path)))
        assert f"line 1 cannot be read as JSON: '{name}' is there twice, with other values" in message


def test_choices_are_shown_with_letters(tmp_path):
    rows = [{"question": "Which?", "choices": ["red", "green"], "answer": 1}]
    (prompt,) = prompts(tmp_path, rows, truth="choice")
    assert prompt[0]["content"].startswith("Which?\nA. red\nB. green\nWrite the letter")
    one = [{"question": "q", "choices": ["x"], "answer": 0}]
    assert "choices is ['x']; allowed: a list of 2 to 26" in said(lambda: prompts(tmp_path, one, truth="choice"))


def own_run(source, **own):
    task = TaskConfig("own", source=source, own=OwnData(**{"chat": False, "template": "{question}"} | own))
    run = run_of(rounds=2, eval_every=2)
    return replace(run, task=replace(task, sizes=run.task.sizes))


def test_the_tiny_model_trains_on_own_sums(tmp_path):
    source = jsonl(tmp_path / "sums.jsonl", SUMS)
    outcome = train(own_run(source, truth="number"), tmp_path / "run")
    assert outcome.curve.round.tolist() == [0, 2] and outcome.curve.reward[1] >= 0
    config = json.loads((tmp_path / "run" / "config.json").read_bytes())
    assert config["task"]["own"]["truth"] == "number"
    jsonl(tmp_path / "sums.jsonl", SUMS[:-1])
    assert "was trained on other data" in said(lambda: train(own_run(source, truth="number"), tmp_path / "run"))


def test_without_truths_a_reward_decides_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(rftlab.llm.training.samples, "score", score)
    source = jsonl(tmp_path / "sums.jsonl", SUMS)
    run = own_run(source, truth_column="none")
    assert "no true answers (task.own.truth_column) and there is no reward" in said(lambda: train(run, tmp_path / "a"))
    outcome = train(run, tmp_path / "b", reward=digits)
    assert pd.isna(outcome.curve.test_pass_at_1).all()
    assert outcome.metrics.test_reward.notna().all()


def test_tiny_reads_its_symbols_alone(tmp_path):
    source = jsonl(tmp_path / "sums.jsonl", ROWS)
    assert "allowed: --task.own.no-chat" in said(lambda: own_run(source, chat=True))
    assert "symbol = 'W' is unknown" in said(lambda: train(own_run(source), tmp_path / "run"))


def test_a_chat_model_trains_on_own_rows_with_a_column_in_the_reward(folder, tmp_path):
    got = []

    def by_level(responses, level, prompts):
        got.extend(zip(level, (prompt[0]["content"] for prompt in prompts), strict=True))
        return [float(each) for each in level]

    own = OwnData(template="{question}", truth="number")
    task = TaskConfig("own", source=jsonl(tmp_path / "a.jsonl", ROWS), own=own)
    run = replace(chat_run(folder, tmp_path), task=task)
    train(run, tmp_path / "run", reward=by_level)
    assert {(int(text.split()[2]) % 3) - level for level, text in got} == {0} and len(got) > 20


def test_the_plain_questions_and_answers_of_gsm8k_need_no_marker(tmp_path):
    splits(tmp_path, [{"question": "What?", "answer": "1,234"}])
    assert load_task(TaskConfig("gsm8k", source=str(tmp_path)))["train"].answers == ("1234",)
    jsonl(tmp_path / "train.jsonl", [{"question": "What?", "answer": "about 5"}])
    message = said(lambda: load_task(TaskConfig("gsm8k", source=str(tmp_path))))
    assert "or a number alone (the task own takes other answers)" in message
