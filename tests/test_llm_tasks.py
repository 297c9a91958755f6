"""Tasks: the benchmarks as the paper used them, generated problems, and bad input."""

import json
import re
import subprocess
import sys
import types

import pyarrow
import pyarrow.parquet
import pytest

from llm.tasks import arithmetic, benchmarks, pools, words
from llm.tasks.arithmetic import KINDS, Styles, corpus, solve
from llm.tasks.benchmarks import BENCHMARKS
from llm.tasks.load import TASKS, TaskConfig, load
from llm.tasks.pools import Sizes
from llm.tasks.symbols import END, PAD, START, SYMBOLS, decode, encode
from llm.tasks.task import Split, Task, fitting
from llm.verify import score
from shared.errors import UserError
from tests.vectors import ROOT, WHOLE

DATA = WHOLE.parent
GSM8K = [{"question": f"What is {i} + 1000?", "answer": f"{i} + 1000 = <<{i}+1000={i + 1000}>>\n#### 1,{i:03d}"} for i in range(5)]
MATH = [{"problem": f"Half of ${i}$?", "solution": f"It is $\\frac{{{i}}}{{2}}$, so \\boxed{{3}} no, $\\boxed{{\\frac{{{i}}}{{2}}}}$."} for i in range(5)]
PREPARED = [{"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2", "style": "rule"}}]
SMALL = Sizes(train=40, validation=10, test=20, pretrain=60)
GENERATED = (*KINDS, "words")


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


# --- benchmarks ---


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_raw_columns_become_prompts_and_truths(tmp_path, suffix):
    gsm8k = benchmarks.load("gsm8k", folder(tmp_path, GSM8K, GSM8K[:2], suffix))
    assert (len(gsm8k["train"]), len(gsm8k["test"]), gsm8k.verifier) == (5, 2, "gsm8k")
    content = 'What is 3 + 1000? Let\'s think step by step and output the final answer after "####".'
    assert gsm8k["train"].prompts[3] == [{"role": "user", "content": content}] and gsm8k["train"].answers[3] == "1003"
    math = benchmarks.load("math", folder(tmp_path, MATH, suffix=suffix))
    content = "Half of $3$? Let's think step by step and output the final answer within \\boxed{}."
    assert math["train"].prompts[3] == [{"role": "user", "content": content}] and math["train"].answers[3] == "\\frac{3}{2}"


def test_prepared_columns_are_taken_as_they_are(tmp_path):
    task = benchmarks.load("math", folder(tmp_path, PREPARED, suffix=".parquet"))
    assert task["train"] == Split(([{"role": "user", "content": "1 + 1?"}],), ("2",))


def test_shards_and_two_files_are_read(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", GSM8K[:3])
    write(tmp_path / "train-00001-of-00002.parquet", GSM8K[3:])
    write(tmp_path / "test.jsonl", GSM8K[:1])
    one = benchmarks.load("gsm8k", str(tmp_path))
    two = benchmarks.load("gsm8k", str(write(tmp_path / "mine.jsonl", GSM8K)), str(tmp_path / "test.jsonl"))
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
    task = benchmarks.load("gsm8k", folder(tmp_path, raw), str(real("gsm8k")))
    prepared = Split(tuple(row["prompt"] for row in table), tuple(row["reward_model"]["ground_truth"] for row in table))
    assert len(prepared) in (7473, 1319) and task["train"] == prepared
    solutions = score("gsm8k", [row["answer"] for row in raw], prepared.answers, None)
    assert solutions.strict.mean() == 1.0, "the published solutions must be right"


def test_real_math_loads_but_for_the_two_problems_without_answer():
    task = load(TaskConfig("math", source=str(real("math"))))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 7498, "test": 5000}
    assert task.unanswered == {"train": 2, "test": 0}
    for split in task.splits.values():
        assert all(prompt[-1]["content"].endswith(" " + BENCHMARKS["math"].instruction) for prompt in split.prompts)
        boxed = score("math", [f"\\boxed{{{answer}}}" for answer in split.answers], split.answers, NothingEquivalent())
        assert boxed.strict.mean() == 1.0


def test_problems_known_to_have_no_answer_are_left_out_and_counted(tmp_path):
    known = {"problem": BENCHMARKS["math"].unanswered[0] + " is", "solution": "It is $\\boxed{}$."}
    prepared = {"prompt": [{"role": "user", "content": known["problem"]}], "reward_model": {"ground_truth": ""}}
    for row in (known, prepared):
        task = benchmarks.load("math", folder(tmp_path, [*MATH, row], MATH))
        assert task.unanswered == {"train": 1, "test": 0} and task["train"] == task["test"]
    with pytest.raises(UserError, match="line 1: no problem has an answer"):
        benchmarks.load("math", folder(tmp_path, [known]))
    with pytest.raises(UserError, match="line 1: answer is"):
        benchmarks.load("gsm8k", folder(tmp_path, [{"question": known["problem"], "answer": known["solution"]}]))


class NothingEquivalent:
    """Stands in for the pool; no process."""

    def equivalent(self, pairs):
        return [False] * len(pairs), None


def fake_hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_the_hub_is_asked_for_both_splits(monkeypatch, tmp_path):
    asked = []
    fake_hub(monkeypatch, lambda *names, split: asked.append((*names, split)) or GSM8K)
    assert load(TaskConfig("gsm8k")) == benchmarks.load("gsm8k", folder(tmp_path, GSM8K))
    fake_hub(monkeypatch, lambda *names, split: asked.append((*names, split)) or MATH)
    load(TaskConfig("math"))
    repositories = [("openai/gsm8k", "main"), ("DigitalLearningGmbH/MATH-lighteval", "default")]
    assert asked == [(*names, split) for names in repositories for split in ("train", "test")]


def test_tables_of_datasets_have_the_rows_that_we_read(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (pip install 'rftlab[llm]')")
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, split: datasets.Dataset.from_list(PREPARED))
    assert load(TaskConfig("math")) == benchmarks.load("math", folder(tmp_path, PREPARED))


def test_a_hub_out_of_reach_is_one_line(monkeypatch):
    def fail(*names, split):
        raise ConnectionError("no route\nto host")

    fake_hub(monkeypatch, fail)
    with pytest.raises(UserError, match=r"^openai/gsm8k \(train\) cannot be loaded from the hub: no route; source can also name a local file or folder$"):
        load(TaskConfig("gsm8k"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"^source = 'hub' needs the package datasets: pip install 'rftlab\[llm\]'"):
        load(TaskConfig("gsm8k"))


# --- bad input ---

BAD_ROWS = {
    "missing column": (
        "gsm8k",
        {"question": "1?"},
        "line 2: column answer is missing (there are: question); allowed: question and answer, or prompt and reward_model",
    ),
    "other columns": ("math", {"a": 1}, "line 2: column problem is missing (there are: a)"),
    "empty answer": ("gsm8k", {"question": "1?", "answer": " "}, "line 2: answer is ' '; allowed: text that is not empty"),
    "no marker": ("gsm8k", {"question": "1?", "answer": "It is 1."}, "line 2: answer is 'It is 1.' and states no answer; allowed: text with #### and a number"),
    "no box": ("math", {"problem": "1?", "solution": "It is 1."}, "line 2: solution is 'It is 1.' and states no answer; allowed: text with \\boxed{}"),
    "empty box": ("math", {"problem": "1?", "solution": "\\boxed{}"}, "line 2: solution is "),
    "null": ("gsm8k", {"question": None, "answer": "#### 1"}, "line 2: question is None; allowed: text"),
    "number": ("gsm8k", {"question": "1?", "answer": 1}, "line 2: answer is 1; allowed: text"),
    "prompt as text": ("gsm8k", {"prompt": "1?", "reward_model": {"ground_truth": "1"}}, "line 2: prompt is '1?'; allowed: a list of chat messages"),
    "no messages": ("gsm8k", {"prompt": [], "reward_model": {"ground_truth": "1"}}, "line 2: prompt is []"),
    "message without role": (
        "gsm8k",
        {"prompt": [{"content": "1?"}], "reward_model": {"ground_truth": "1"}},
        "line 2: prompt has the message {'content': '1?'}",
    ),
    "no truth": ("math", {**PREPARED[0], "reward_model": {}}, "line 2: reward_model.ground_truth is None; allowed: text"),
    "prompt alone": ("math", {"prompt": PREPARED[0]["prompt"]}, "line 2: reward_model.ground_truth is None; allowed: text"),
    "empty truth": ("math", {**PREPARED[0], "reward_model": {"ground_truth": ""}}, "line 2: reward_model.ground_truth is empty; allowed: text"),
    "no object": ("math", [1], "line 2 is not a JSON object"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_one_line_that_says_where(name, tmp_path):
    benchmark, row, message = BAD_ROWS[name]
    good = {"gsm8k": GSM8K, "math": MATH}[benchmark][0]
    with pytest.raises(UserError) as error:
        benchmarks.load(benchmark, folder(tmp_path, [good, row]))
    assert str(error.value).startswith(f"{tmp_path / 'train.jsonl'} {message}") and "\n" not in str(error.value)


def test_damaged_files_are_one_line(tmp_path):
    whole = write(tmp_path / "whole.parquet", GSM8K).read_bytes()
    damaged = {"cut.parquet": whole[: len(whole) // 2], "empty.parquet": b"", "text.parquet": b"question,answer\n", "bytes.jsonl": b"\xff\xfe{}\n"}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path / name))} cannot be read: [^\n]+$"):
            benchmarks.load("gsm8k", str(tmp_path / name), str(tmp_path / name))
    (tmp_path / "cut.jsonl").write_text(json.dumps(GSM8K[0]) + "\n" + json.dumps(GSM8K[1])[:-9])
    with pytest.raises(UserError, match=r"cut\.jsonl line 2 is not JSON: [^\n]+$"):
        benchmarks.load("gsm8k", str(tmp_path / "cut.jsonl"), str(tmp_path / "cut.jsonl"))
    (tmp_path / "nothing.jsonl").write_text("\n")
    with pytest.raises(UserError, match=r"nothing\.jsonl has no rows; allowed: 1 or more$"):
        benchmarks.load("gsm8k", str(tmp_path / "nothing.jsonl"), str(tmp_path / "nothing.jsonl"))


def test_sources_are_checked(tmp_path):
    csv = tmp_path / "train.csv"
    csv.write_text("question,answer\n")
    cases = [
        ((str(csv), str(csv)), r"train\.csv: format '\.csv' is unknown; allowed: \.parquet, \.jsonl$"),
        ((str(csv),), r"source = '.*train\.csv' is no folder; allowed: hub, a folder with train and test files, or a file together with test_source$"),
        (("no/such/folder",), r"source = 'no/such/folder' is no folder"),
        (("no/such.jsonl", "no/such.jsonl"), r"^no/such\.jsonl cannot be read: No such file or directory$"),
        ((str(tmp_path),), r"train files: none; allowed: one of train\.parquet and train\.jsonl, or shards$"),
    ]
    for arguments, message in cases:
        with pytest.raises(UserError, match=message):
            benchmarks.load("gsm8k", *arguments)
    folder(tmp_path, GSM8K, suffix=".jsonl")
    folder(tmp_path, GSM8K, suffix=".parquet")
    with pytest.raises(UserError, match=r"train files: train\.jsonl, train\.parquet; allowed: one of"):
        benchmarks.load("gsm8k", str(tmp_path))


def test_configurations_are_checked():
    with pytest.raises(UserError, match="task = 'gsm9k' is unknown; allowed: gsm8k, math, mod97, mix97, chain, words"):
        TaskConfig("gsm9k")
    with pytest.raises(UserError, match="source = 'x'; mix97 is generated from a seed and has no source"):
        TaskConfig("mix97", source="x")
    with pytest.raises(UserError, match="test_source = 'x'; words is generated"):
        TaskConfig("words", test_source="x")
    with pytest.raises(UserError, match=r"sizes\.test = 0; allowed: 1 or more"):
        Sizes(test=0)
    with pytest.raises(UserError, match=r"9810 problems in all; allowed: up to 9409"):
        load(TaskConfig("mod97", sizes=Sizes(pretrain=8060)))
    with pytest.raises(UserError, match="split = 'dev' is unknown; allowed: "):
        load(TaskConfig("mod97", sizes=SMALL))["dev"]


# --- every task ---


def test_long_prompts_are_left_out_and_counted():
    split = Split(("1+1%", "10+10%", "2+2%", "90+90%"), ("2", "20", "4", "83"))
    assert fitting(split, lambda prompt: len(encode(prompt)), 4) == (Split(("1+1%", "2+2%"), ("2", "4")), 2)
    assert fitting(split, len, 6) == (split, 0)
    with pytest.raises(UserError, match="prompt limit = 3 tokens; each of the 4 prompts is longer"):
        fitting(split, len, 3)
    with pytest.raises(UserError, match="2 prompts and 1 answers"):
        Split(("a", "b"), ("1",))


def test_the_checksum_sees_every_part_and_the_order():
    def task(name="train", prompts=("a", "b"), answers=("1", "2")):
        return Task("x", "gsm8k", {name: Split(prompts, answers)}).sha256

    other = [task("test"), task(prompts=("b", "a")), task(answers=("2", "1")), task(prompts=("a", "b\ud800")), task(("a",), ("b1", "2"), ("", "2"))]
    assert task() == task() and len({task(), *other}) == 6
    swapped = Task("x", "gsm8k", {"a": Split(("1",), ("2",)), "b": Split(("3",), ("4",))})
    assert swapped.sha256 == Task("x", "gsm8k", dict(reversed(swapped.splits.items()))).sha256


def test_generated_problems_stay_what_they_are():
    """A change of these checksums means that results on the tasks cannot be compared with earlier ones."""
    assert {name: load(TaskConfig(name)).sha256[:16] for name in GENERATED} == CHECKSUMS


CHECKSUMS = {"mod97": "35b639a9f5c42995", "mix97": "1228c000bca88ccd", "chain": "82d6486658d35973", "words": "d298091f0ee28d5d"}


@pytest.mark.parametrize("name", GENERATED)
def test_seeds_decide_and_pools_are_disjoint(name):
    task = load(TaskConfig(name, sizes=SMALL))
    assert task == load(TaskConfig(name, sizes=SMALL)) and task != load(TaskConfig(name, sizes=SMALL, seed=1))
    sizes = {split: len(task[split]) for split in task.splits}
    assert sizes == {key: size for key, size in vars(SMALL).items() if key in sizes} and {"train", "validation", "test"} <= set(sizes)
    prompts = [str(prompt) for split in task.splits.values() for prompt in split.prompts]
    assert len(set(prompts)) == len(prompts) == sum(sizes.values())
    larger = load(TaskConfig(name, sizes=Sizes(train=60, validation=10, test=20, pretrain=60)))
    assert larger["test"] == task["test"] and larger["train"].prompts[:40] == task["train"].prompts


def test_problems_are_the_same_in_another_process():
    code = "from llm.tasks.load import TaskConfig, load; print(load(TaskConfig('words')).sha256, load(TaskConfig('chain')).sha256)"
    environment = {"PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == [load(TaskConfig(name)).sha256 for name in ("words", "chain")]


def test_a_pool_that_shares_problems_is_noticed(monkeypatch):
    """Planted: every pool is filled from the first problem on."""
    real_pools = pools.pools

    def overlapping(draw, random, sizes, available):
        first = real_pools(draw, random, sizes, available)["test"]
        return {name: Split((first.prompts * 3)[:size], (first.answers * 3)[:size]) for name, size in sizes.items()}

    monkeypatch.setattr(arithmetic, "pools", overlapping)
    with pytest.raises(AssertionError, match="20 == 130"):
        test_seeds_decide_and_pools_are_disjoint("mod97")


# --- arithmetic ---


def slow_answer(prompt):
    """From left to right, one character at a time."""
    value, operation, operand = 0, "+", ""
    for character in prompt:
        if character.isdigit():
            operand += character
            continue
        number = int(operand)
        value = {"+": value + number, "-": value - number, "*": value * number}[operation]
        operation, operand = character, ""
    return str(value % 97)


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_right(name):
    task = load(TaskConfig(name))
    assert (len(task["train"]), len(task["test"])) == (1000, 500)
    for split in task.splits.values():
        assert list(split.answers) == [slow_answer(prompt) for prompt in split.prompts]
    used = {character for prompt in task["train"].prompts for character in prompt if not character.isdigit()}
    assert used == {*KINDS[name].operations, "%"}
    steps = {len(re.findall(r"[-+*]", prompt)) for prompt in task["train"].prompts}
    assert steps == set(KINDS[name].steps)


def test_working_by_hand():
    assert solve("63+40%") == ("63+40=103=6", "6")
    assert solve("10-20%") == ("10-20=-10=87", "87")
    assert solve("12+45-7%") == ("12+45=57,57-7=50", "50")
    assert solve("2*60+1%") == ("2*60=120=23,23+1=24", "24")


@pytest.mark.parametrize("name", KINDS)
def test_the_corpus_has_every_style_and_is_right(name):
    split = load(TaskConfig(name))["pretrain"]
    pairs = corpus(split, Styles(), seed=3)
    assert pairs == corpus(split, Styles(), seed=3) != corpus(split, Styles(), seed=4)
    assert [prompt for prompt, _ in pairs] == list(split.prompts)
    responses = [response for _, response in pairs]
    scores = score("arithmetic", responses, split.answers, None)
    assert scores.flexible.mean() == 1.0 and abs(scores.strict.mean() - 0.45) < 0.03
    share = {"direct": sum(r.startswith("####") for r in responses), "worked": sum("=" in r for r in responses)}
    assert abs(share["direct"] / len(pairs) - 0.25) < 0.03 and abs(share["worked"] / len(pairs) - 0.20) < 0.03
    assert all(decode(encode(prompt + response)) == prompt + response for prompt, response in pairs)
    only = corpus(split, Styles(unmarked=0, direct=2, worked=0), seed=0)
    assert all(response.startswith("####") for _, response in only)


def test_styles_are_checked():
    with pytest.raises(UserError, match=r"styles\.direct = -1; allowed: 0 or more"):
        Styles(direct=-1)
    with pytest.raises(UserError, match="styles are all 0"):
        Styles(0, 0, 0)


def test_symbols():
    assert len(set(SYMBOLS)) == len(SYMBOLS) == 20
    ids = encode("63+40=103=6####6")
    assert len(ids) == 13 and all(END < i < len(SYMBOLS) for i in ids)
    assert decode([START, *ids, END, PAD]) == "63+40=103=6####6"
    assert encode("") == [] and decode([PAD, START, END]) == ""
    for text, symbol in (("6 + 4", " "), ("###6", "#"), ("6\n", "\n"), ("<end>", "<")):
        with pytest.raises(UserError, match=f"symbol = {re.escape(repr(symbol))} is unknown; allowed: 0, 1, "):
            encode(text)


# --- word problems ---


def test_word_problems_show_three_examples_and_are_right():
    task = load(TaskConfig("words"))
    assert task.verifier == "gsm8k" and set(task.splits) == {"train", "validation", "test"}
    stories = [[re.compile(re.escape(t.text).replace(r"\{", "{").replace(r"\}", "}").format(**GROUPS)), t.operation] for t in words.TEMPLATES]
    seen = set()
    for prompt, answer in zip(task["train"].prompts, task["train"].answers, strict=True):
        assert [message["role"] for message in prompt] == ["user", "assistant"] * 3 + ["user"]
        question = prompt[-1]["content"]
        assert question.endswith(" " + words.INSTRUCTION)
        matches = [(pattern.match(question), operation) for pattern, operation in stories if pattern.match(question)]
        assert len(matches) == 1
        (match, operation), expected = matches[0], None
        numbers = {key: int(value) for key, value in match.groupdict().items()}
        if operation == "/":
            expected = numbers["total"] / numbers["a"]
        else:
            expected = {"+": numbers["a"] + numbers["b"], "-": numbers["a"] - numbers["b"], "*": numbers["a"] * numbers["b"]}[operation]
        assert expected == int(answer) > 0
        seen.add(operation)
    assert seen == {"+", "-", "*", "/"}


GROUPS = {"name": "[A-Z][a-z]+", "things": "[a-z]+", "a": "(?P<a>[0-9]+)", "b": "(?P<b>[0-9]+)", "total": "(?P<total>[0-9]+)"}


def test_the_examples_earn_the_reward():
    responses, truths = zip(*((response, response.split()[-1]) for _, response in words.EXAMPLES), strict=True)
    assert score("gsm8k", responses, truths, None).strict.tolist() == [1, 1, 1]


def test_every_task_has_a_verifier_and_a_name():
    assert set(TASKS) == {"gsm8k", "math", "mod97", "mix97", "chain", "words"}
    assert [load(TaskConfig(name, sizes=SMALL)).verifier for name in GENERATED] == ["arithmetic", "arithmetic", "arithmetic", "gsm8k"]
