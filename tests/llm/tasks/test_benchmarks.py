"""The benchmarks as the paper used them, from the hub or from local files, and bad input."""

import json
import re
import sys
import types
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest

from rftlab import TaskConfig, UserError
from rftlab.llm.rewards.verify import score
from rftlab.llm.tasks import benchmarks
from rftlab.llm.tasks.benchmarks import BENCHMARKS
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Split
from tests.support.estimators.vectors import WHOLE
from tests.support.trainer.verdicts import NoPool

DATA = WHOLE.parent
GSM8K = [
    {"question": f"What is {i} + 1000?", "answer": f"{i} + 1000 = <<{i}+1000={i + 1000}>>\n#### 1,{i:03d}"}
    for i in range(5)
]
MATH = [
    {
        "problem": f"Half of ${i}$?",
        "solution": f"It is $\\frac{{{i}}}{{2}}$, so \\boxed{{3}} no, $\\boxed{{\\frac{{{i}}}{{2}}}}$.",
    }
    for i in range(5)
]
PREPARED = [{"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2", "style": "rule"}}]


def write(path, rows):
    """A data file of rows, in the format of its name."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def folder(path, train, test=None, suffix=".jsonl"):
    """A folder with both splits."""
    write(path / f"train{suffix}", train)
    write(path / f"test{suffix}", train if test is None else test)
    return str(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_raw_columns_become_prompts_and_truths(tmp_path, suffix):
    gsm8k = benchmarks.load_benchmark("gsm8k", folder(tmp_path, GSM8K, GSM8K[:2], suffix))
    assert (len(gsm8k["train"]), len(gsm8k["test"]), gsm8k.verifier) == (5, 2, "gsm8k")
    content = 'What is 3 + 1000? Let\'s think step by step and output the final answer after "####".'
    assert gsm8k["train"].prompts[3] == [{"role": "user", "content": content}] and gsm8k["train"].answers[3] == "1003"
    assert gsm8k["train"].solutions[3] == "3 + 1000 = \n#### 1,003", "no marks for a calculator"
    math = benchmarks.load_benchmark("math", folder(tmp_path, MATH, suffix=suffix))
    content = "Half of $3$? Let's think step by step and output the final answer within \\boxed{}."
    assert math["train"].prompts[3] == [{"role": "user", "content": content}]
    assert math["train"].answers[3] == "\\frac{3}{2}"


def test_prepared_columns_are_taken_as_they_are(tmp_path):
    task = benchmarks.load_benchmark("math", folder(tmp_path, PREPARED, suffix=".parquet"))
    assert replace(task["train"], solutions=()) == Split(([{"role": "user", "content": "1 + 1?"}],), ("2",))
    for truth in ("7", "-7", "0.5", ".5", "72."):
        task = benchmarks.load_benchmark("gsm8k", folder(tmp_path, [prepared(truth)], suffix=".parquet"))
        assert score("gsm8k", [f"#### {truth}"], task["train"].answers, None).strict.tolist() == [1], truth


def test_shards_and_two_files_are_read(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", GSM8K[:3])
    write(tmp_path / "train-00001-of-00002.parquet", GSM8K[3:])
    write(tmp_path / "test.jsonl", GSM8K[:1])
    one = benchmarks.load_benchmark("gsm8k", str(tmp_path))
    two = benchmarks.load_benchmark("gsm8k", str(write(tmp_path / "mine.jsonl", GSM8K)), str(tmp_path / "test.jsonl"))
    assert one == two and one.sha256 == two.sha256


def real(name):
    source = DATA / name
    if not source.is_dir():
        pytest.skip(f"no benchmark data: {source} is absent (it lies beside the folder that RFTLAB_GOLDEN names)")
    return source


@pytest.mark.parametrize("split", ["train", "test"])
def test_raw_gsm8k_gives_the_prepared_prompts_and_truths(split, tmp_path):
    table = pyarrow.parquet.read_table(real("gsm8k") / f"{split}.parquet").to_pylist()
    raw = [{"question": row["extra_info"]["question"], "answer": row["extra_info"]["answer"]} for row in table]
    task = benchmarks.load_benchmark("gsm8k", folder(tmp_path, raw), str(real("gsm8k")))
    prepared = Split(tuple(row["prompt"] for row in table), tuple(row["reward_model"]["ground_truth"] for row in table))
    assert len(prepared) in (7473, 1319) and replace(task["train"], solutions=()) == prepared
    assert task["train"].solutions == tuple(re.sub("<<.*?>>", "", row["answer"]) for row in raw)
    solutions = score("gsm8k", [row["answer"] for row in raw], prepared.answers, None)
    assert solutions.strict.mean() == 1.0, "the published solutions must be right"


def test_real_math_loads_but_for_the_two_problems_without_answer():
    task = load_task(TaskConfig("math", source=str(real("math"))))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 7498, "test": 5000}
    assert task.unanswered == {"train": 2, "test": 0}
    for split in task.splits.values():
        assert all(prompt[-1]["content"].endswith(" " + BENCHMARKS["math"].instruction) for prompt in split.prompts)
        boxed = score("math", [f"\\boxed{{{answer}}}" for answer in split.answers], split.answers, NoPool())
        assert boxed.strict.mean() == 1.0


def test_problems_known_to_have_no_answer_are_left_out_and_counted(tmp_path):
    known = {"problem": BENCHMARKS["math"].unanswered[0] + " is", "solution": "It is $\\boxed{}$."}
    prepared = {"prompt": [{"role": "user", "content": known["problem"]}], "reward_model": {"ground_truth": ""}}
    for row in (known, prepared):
        task = benchmarks.load_benchmark("math", folder(tmp_path, [*MATH, row], MATH))
        assert task.unanswered == {"train": 1, "test": 0} and task["train"] == task["test"]
    with pytest.raises(UserError, match="line 1: no problem has an answer"):
        benchmarks.load_benchmark("math", folder(tmp_path, [known]))
    with pytest.raises(UserError, match="line 1: answer is"):
        benchmarks.load_benchmark(
            "gsm8k", folder(tmp_path, [{"question": known["problem"], "answer": known["solution"]}])
        )


def prepared(truth, content="What is 1 + 1?"):
    return {"prompt": [{"role": "user", "content": content}], "reward_model": {"ground_truth": truth}}


def fake_hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_the_hub_is_asked_for_both_splits(monkeypatch, tmp_path):
    asked = []
    fake_hub(monkeypatch, lambda *names, split: asked.append((*names, split)) or GSM8K)
    assert load_task(TaskConfig("gsm8k")) == benchmarks.load_benchmark("gsm8k", folder(tmp_path, GSM8K))
    fake_hub(monkeypatch, lambda *names, split: asked.append((*names, split)) or MATH)
    load_task(TaskConfig("math"))
    repositories = [("openai/gsm8k", "main"), ("DigitalLearningGmbH/MATH-lighteval", "default")]
    assert asked == [(*names, split) for names in repositories for split in ("train", "test")]


def test_tables_of_datasets_have_the_rows_that_we_read(monkeypatch, tmp_path):
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed (pip install '.[llm]' in rftlab's folder)"
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, split: datasets.Dataset.from_list(PREPARED))
    assert load_task(TaskConfig("math")) == benchmarks.load_benchmark("math", folder(tmp_path, PREPARED))


def test_a_hub_out_of_reach_is_one_line(monkeypatch):
    def fail(*names, split):
        raise ConnectionError("no route\nto host")

    fake_hub(monkeypatch, fail)
    advice = "source can also name a local file or folder"
    with pytest.raises(UserError, match=rf"^openai/gsm8k \(train\) cannot be loaded from the hub: no route; {advice}$"):
        load_task(TaskConfig("gsm8k"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"^source = 'hub' needs the package datasets: pip install '\.\[llm\]'"):
        load_task(TaskConfig("gsm8k"))


BOTH = "allowed: question and answer, or prompt and reward_model"
UNMATCHED = ": no response can match the answer "
UNSAID = "It is 1.' and states no answer; allowed: "
BAD_ROWS = [
    ("gsm8k", {"question": "1?"}, f": column answer is missing (there are: question); {BOTH}"),
    ("math", {"a": 1}, ": column problem is missing (there are: a)"),
    ("gsm8k", {"question": "1?", "answer": " "}, ": answer is ' '; allowed: text that is not empty"),
    ("gsm8k", {"question": "1?", "answer": "It is 1."}, f": answer is '{UNSAID}text with #### and a number"),
    ("math", {"problem": "1?", "solution": "It is 1."}, f": solution is '{UNSAID}text with \\boxed{{}}"),
    ("math", {"problem": "1?", "solution": "\\boxed{}"}, ": solution is "),
    ("gsm8k", {"question": None, "answer": "#### 1"}, ": question is None; allowed: text"),
    ("gsm8k", {"question": "1?", "answer": 1}, ": answer is 1; allowed: text"),
    ("gsm8k", prepared("1") | {"prompt": "1?"}, ": prompt is '1?'; allowed: a list of chat messages"),
    ("gsm8k", prepared("1") | {"prompt": []}, ": prompt is []"),
    ("gsm8k", prepared("1") | {"prompt": [{"content": "1?"}]}, ": prompt has the message {'content': '1?'}"),
    ("math", prepared("1") | {"reward_model": {}}, ": reward_model.ground_truth is None; allowed: text"),
    ("math", {"prompt": prepared("1")["prompt"]}, ": reward_model.ground_truth is None; allowed: text"),
    ("math", prepared(""), ": reward_model.ground_truth is empty; allowed: text"),
    ("math", [1], " is not a JSON object"),
    ("gsm8k", prepared("1,000"), UNMATCHED + "'1,000'; allowed: what stands in #### and a number"),
    ("gsm8k", prepared("seven"), UNMATCHED + "'seven'"),
    ("gsm8k", {"question": "What?", "answer": "#### ."}, UNMATCHED + "'.'"),
    ("math", prepared("\\frac{1}{2"), UNMATCHED),
    ("gsm8k", prepared("7", "  "), ": prompt has no text; allowed: a message with some"),
]


@pytest.mark.parametrize(("benchmark", "row", "message"), BAD_ROWS)
def test_a_bad_row_is_one_line_that_says_where(benchmark, row, message, tmp_path):
    good = {"gsm8k": GSM8K, "math": MATH}[benchmark][0]
    with pytest.raises(UserError) as error:
        benchmarks.load_benchmark(benchmark, folder(tmp_path, [good, row]))
    assert str(error.value).startswith(f"{tmp_path / 'train.jsonl'} line 2{message}")


def test_damaged_files_are_one_line(tmp_path):
    whole, lines = write(tmp_path / "whole.parquet", GSM8K).read_bytes(), [json.dumps(row) for row in GSM8K]
    for name, data, message in (
        ("cut.parquet", whole[: len(whole) // 2], r" cannot be read as Parquet: [^\n]+$"),
        ("empty.parquet", b"", r" cannot be read as Parquet: [^\n]+$"),
        ("text.parquet", b"question,answer\n", r" cannot be read as Parquet: [^\n]+$"),
        ("bytes.jsonl", b"\xff\xfe{}\n", r" cannot be read: [^\n]+$"),
        ("cut.jsonl", f"{lines[0]}\n{lines[1][:-9]}".encode(), r" line 2 cannot be read as JSON: [^\n]+$"),
        ("nothing.jsonl", b"\n", r" has no rows; allowed: 1 or more$"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path / name))}{message}"):
            benchmarks.load_benchmark("gsm8k", str(tmp_path / name), str(tmp_path / name))


def test_sources_are_checked(tmp_path):
    csv = tmp_path / "train.tsv"
    csv.write_text("question\tanswer\n")
    cases = [
        ((str(csv), str(csv)), r"train\.tsv: format '\.tsv' is unknown; allowed: \.parquet, \.jsonl, \.csv$"),
        (
            (str(csv),),
            r"source = '.*train\.tsv' is no folder; allowed: hub, a folder with train and test files, or a "
            r"file together with test_source$",
        ),
        (("no/such/folder",), r"source = 'no/such/folder' is no folder"),
        (("no/such.jsonl", "no/such.jsonl"), r"^no/such\.jsonl cannot be read: No such file or directory$"),
        ((str(tmp_path),), r"train files: none; allowed: one of train\.parquet, train\.jsonl, train\.csv, or shards$"),
    ]
    for arguments, message in cases:
        with pytest.raises(UserError, match=message):
            benchmarks.load_benchmark("gsm8k", *arguments)
    folder(tmp_path, GSM8K, suffix=".jsonl")
    folder(tmp_path, GSM8K, suffix=".parquet")
    with pytest.raises(UserError, match=r"train files: train\.jsonl, train\.parquet; allowed: one of"):
        benchmarks.load_benchmark("gsm8k", str(tmp_path))
