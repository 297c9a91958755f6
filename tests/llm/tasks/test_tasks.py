"""Generated tasks, and what every task has: splits, a checksum, a limit for prompts."""

import operator
import re

import pytest

from rftlab.llm.rewards.verify import score
from rftlab.llm.tasks import arithmetic, words
from rftlab.llm.tasks import task as tasks
from rftlab.llm.tasks.arithmetic import (
    END,
    KINDS,
    MIXED,
    PAD,
    START,
    SYMBOLS,
    corpus,
    decode_symbols,
    encode_symbols,
    solve,
)
from rftlab.llm.tasks.config import TASKS, TaskConfig
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Sizes, Split, Task, fitting
from rftlab.shared.plumbing.errors import UserError

SMALL = Sizes(train=40, validation=10, test=20, pretrain=60)
GENERATED = (*KINDS, "words", "largest")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskConfig("gsm9k"), f"task = 'gsm9k' is unknown; allowed: {', '.join(TASKS)}"),
        (lambda: TaskConfig("mix97", source="x"), "source = 'x'; mix97 is generated from a seed and has no source"),
        (lambda: TaskConfig("words", test_source="x"), "test_source = 'x'; words is generated"),
        (lambda: Sizes(test=0), "sizes.test = 0; allowed: 1 or more"),
        (
            lambda: load_task(TaskConfig("mod97", sizes=Sizes(pretrain=8060))),
            "9810 problems in all; allowed: up to",
        ),
        (lambda: load_task(TaskConfig("mod97", sizes=SMALL))["dev"], "split = 'dev' is unknown; allowed: "),
        (lambda: Split(("a", "b"), ("1",)), "2 prompts and 1 answers"),
    ],
)
def test_configurations_are_checked(make, message):
    with pytest.raises(UserError, match=re.escape(message)):
        make()


def test_long_prompts_are_left_out_and_counted():
    prompts = [encode_symbols(prompt) for prompt in ("1+1%", "10+10%", "2+2%", "90+90%")]
    assert fitting(prompts, 4) == [0, 2] and fitting(prompts, 6) == [0, 1, 2, 3]
    with pytest.raises(UserError, match="prompt limit = 3 tokens; each of the 4 prompts is longer"):
        fitting(prompts, 3)


def test_the_checksum_sees_every_part_and_the_order():
    def task(name="train", prompts=("a", "b"), answers=("1", "2")):
        return Task("x", "gsm8k", {name: Split(prompts, answers)}).sha256

    other = [task("test"), task(prompts=("b", "a")), task(answers=("2", "1")), task(prompts=("a", "b\ud800"))]
    assert task() == task() and len({task(), *other, task(("a",), ("b1", "2"), ("", "2"))}) == 6
    swapped = Task("x", "gsm8k", {"a": Split(("1",), ("2",)), "b": Split(("3",), ("4",))})
    assert swapped.sha256 == Task("x", "gsm8k", dict(reversed(swapped.splits.items()))).sha256


def test_generated_problems_stay_what_they_are():
    """A change of these checksums means that results on the tasks cannot be compared with earlier ones."""
    tasks = {name: load_task(TaskConfig(name)) for name in GENERATED}
    assert {name: (task.sha256[:16], task.verifier) for name, task in tasks.items()} == {
        "mod97": ("a0d3812164ccb6f7", "arithmetic"),
        "mix97": ("a0d3812164ccb6f7", "arithmetic"),
        "sign97": ("6f641715436d1ed4", "arithmetic"),
        "chain": ("aedb0bb3b3317a5f", "arithmetic"),
        "words": ("d298091f0ee28d5d", "gsm8k"),
        "largest": ("01c05352253ecae2", "gsm8k"),
    }
    assert set(TASKS) == {*GENERATED, "gsm8k", "math", "own"}
    assert tasks["mod97"].splits == tasks["mix97"].splits
    for name in ("words", "largest"):
        assert set(tasks[name].splits) == {"train", "validation", "test"}


@pytest.mark.parametrize("name", GENERATED)
def test_seeds_decide_and_pools_are_disjoint(name):
    task = load_task(TaskConfig(name, sizes=SMALL))
    assert task == load_task(TaskConfig(name, sizes=SMALL)) and task != load_task(TaskConfig(name, sizes=SMALL, seed=1))
    sizes = {split: len(task[split]) for split in task.splits}
    assert sizes == {key: size for key, size in vars(SMALL).items() if key in sizes}
    assert {"train", "validation", "test"} <= set(sizes)
    prompts = [str(prompt) for split in task.splits.values() for prompt in split.prompts]
    assert len(set(prompts)) == len(prompts) == sum(sizes.values())
    larger = load_task(TaskConfig(name, sizes=Sizes(train=60, validation=10, test=20, pretrain=60)))
    assert larger["test"] == task["test"] and larger["train"].prompts[:40] == task["train"].prompts


def test_a_pool_that_shares_problems_is_noticed(monkeypatch):
    """Planted: every pool is filled from the first problem on."""
    real_pools = tasks.pools

    def overlapping(draw, random, sizes, available):
        first = real_pools(draw, random, sizes, available)["test"]
        return {name: Split((first.prompts * 3)[:size], (first.answers * 3)[:size]) for name, size in sizes.items()}

    monkeypatch.setattr(arithmetic, "pools", overlapping)
    with pytest.raises(AssertionError, match="20 == 130"):
        test_seeds_decide_and_pools_are_disjoint("mod97")


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
    task = load_task(TaskConfig(name))
    assert (len(task["train"]), len(task["test"])) == (1000, 500)
    for split in task.splits.values():
        assert list(split.answers) == [slow_answer(prompt) for prompt in split.prompts]
    used = {character for prompt in task["train"].prompts for character in prompt if not character.isdigit()}
    assert used == {*KINDS[name].operations, "%"}
    steps = {len(re.findall(r"[-+*]", prompt)) for prompt in task["train"].prompts}
    assert steps == set(KINDS[name].steps)


def test_the_two_sums_differ_in_what_the_base_model_read():
    split = load_task(TaskConfig("mod97", sizes=SMALL))["pretrain"]
    direct, mixed = (
        [response for _, response in corpus(split, KINDS[name].styles, seed=0)] for name in ("mod97", "mix97")
    )
    assert score("arithmetic", direct, split.answers, None).strict.mean() == 1.0
    assert all(response.startswith("####") for response in direct)
    assert score("arithmetic", mixed, split.answers, None).strict.mean() < 0.7


def test_working_by_hand():
    assert solve("63+40%") == ("63+40=103=6", "6")
    assert solve("10-20%") == ("10-20=-10=87", "87")
    assert solve("12+45-7%") == ("12+45=57,57-7=50", "50")
    assert solve("2*60+1%") == ("2*60=120=23,23+1=24", "24")


@pytest.mark.parametrize("name", KINDS)
def test_the_corpus_has_every_style_and_is_right(name):
    split = load_task(TaskConfig(name))["pretrain"]
    pairs = corpus(split, MIXED, seed=3)
    assert pairs == corpus(split, MIXED, seed=3) != corpus(split, MIXED, seed=4)
    assert [prompt for prompt, _ in pairs] == list(split.prompts)
    responses = [response for _, response in pairs]
    scores = score("arithmetic", responses, split.answers, None)
    assert scores.flexible.mean() == 1.0 and abs(scores.strict.mean() - 0.45) < 0.03
    share = {"direct": sum(r.startswith("####") for r in responses), "worked": sum("=" in r for r in responses)}
    assert abs(share["direct"] / len(pairs) - 0.25) < 0.03 and abs(share["worked"] / len(pairs) - 0.20) < 0.03
    assert all(decode_symbols(encode_symbols(prompt + response)) == prompt + response for prompt, response in pairs)
    only = corpus(split, {"unmarked": 0, "direct": 2, "worked": 0}, seed=0)
    assert all(response.startswith("####") for _, response in only)


def test_symbols():
    assert len(set(SYMBOLS)) == len(SYMBOLS) == 20
    ids = encode_symbols("63+40=103=6####6")
    assert len(ids) == 13 and all(END < i < len(SYMBOLS) for i in ids)
    assert decode_symbols([START, *ids, END, PAD]) == "63+40=103=6####6"
    assert encode_symbols("") == [] and decode_symbols([PAD, START, END]) == ""
    for text, symbol in (("6 + 4", " "), ("###6", "#"), ("6\n", "\n"), ("<end>", "<")):
        with pytest.raises(UserError, match=f"symbol = {re.escape(repr(symbol))} is unknown; allowed: 0, 1, "):
            encode_symbols(text)


def test_word_problems_show_three_examples_and_are_right():
    task = load_task(TaskConfig("words"))
    stories = [
        (re.escape(text).replace(r"\{", "{").replace(r"\}", "}").format(**GROUPS), operation)
        for operation, text in words.TEMPLATES
    ]
    seen = set()
    for prompt, answer in zip(task["train"].prompts, task["train"].answers, strict=True):
        assert [message["role"] for message in prompt] == ["user", "assistant"] * 3 + ["user"]
        question = prompt[-1]["content"]
        assert question.endswith(" " + words.INSTRUCTION)
        matches = [(re.match(pattern, question), operation) for pattern, operation in stories]
        ((match, operation),) = [(match, operation) for match, operation in matches if match]
        numbers = {key: int(value) for key, value in match.groupdict().items()}
        first, second = ("total", "a") if operation == "/" else ("a", "b")
        assert COMPUTE[operation](numbers[first], numbers[second]) == int(answer) > 0
        seen.add(operation)
    assert seen == {"+", "-", "*", "/"}


COMPUTE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
GROUPS = {name: f"(?P<{name}>[0-9]+)" for name in ("a", "b", "total")} | {"name": "[A-Z][a-z]+", "things": "[a-z]+"}


def test_the_examples_earn_the_reward():
    responses, truths = zip(*((response, response.split()[-1]) for _, response in words.EXAMPLES), strict=True)
    assert score("gsm8k", responses, truths, None).strict.tolist() == [1, 1, 1]


def test_the_largest_of_three_numbers_is_the_answer_and_the_example_no_problem():
    task = load_task(TaskConfig("largest"))
    question = re.compile(r'Which number is the largest, (\d+), (\d+) or (\d+)\? Answer after "####"\.')
    places = []
    for prompt, answer in zip(task["train"].prompts, task["train"].answers, strict=True):
        shown, response, asked = prompt
        assert [message["role"] for message in prompt] == ["user", "assistant", "user"]
        numbers = [int(number) for number in question.fullmatch(asked["content"]).groups()]
        assert len(set(numbers)) == 3 and int(answer) == max(numbers) and min(numbers) >= 10 and max(numbers) <= 999
        places.append(numbers.index(int(answer)))
        assert asked != shown and score("gsm8k", [response["content"]], ["512"], None).strict.tolist() == [1]
    assert min(places.count(place) for place in range(3)) > 0.28 * len(places)
