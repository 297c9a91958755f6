"""Generate chat tasks on which a model of 135M parameters has signal: one-step word problems after three worked
examples, and the largest of three numbers after one example, which needs no calculation."""

from random import Random

from rftlab.llm.tasks.task import Sizes, Task, draw_below, pools

NAMES = (
    "Ada",
    "Ben",
    "Chloe",
    "Dan",
    "Eva",
    "Finn",
    "Grace",
    "Hugo",
    "Iris",
    "Jack",
    "Kira",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tina",
    "Will",
)
THINGS = (
    "apples",
    "books",
    "pens",
    "coins",
    "stamps",
    "shells",
    "cards",
    "eggs",
    "candles",
    "marbles",
    "stickers",
    "buttons",
)


TEMPLATES = (
    ("+", "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?"),
    ("+", "There are {a} {things} on the table and {b} {things} in the box. How many {things} are there in all?"),
    (
        "+",
        "{name} found {a} {things} in the morning and {b} {things} in the afternoon. How many {things} did "
        "{name} find?",
    ),
    ("-", "{name} has {a} {things} and gives {b} of them away. How many {things} are left?"),
    ("-", "A shop has {a} {things} and sells {b} of them. How many {things} does the shop still have?"),
    ("-", "{name} wants {a} {things} and already has {b}. How many more {things} does {name} need?"),
    ("*", "{name} has {a} bags with {b} {things} in each bag. How many {things} does {name} have?"),
    ("*", "A box holds {b} {things}. How many {things} do {a} boxes hold?"),
    ("/", "{name} shares {total} {things} equally among {a} friends. How many {things} does each friend get?"),
    ("/", "{name} puts {total} {things} into {a} equal rows. How many {things} are in each row?"),
)
"""Stories about two numbers a and b, each with the operation that solves it; {total} is their product."""
INSTRUCTION = 'Answer with one calculation and put the final answer after "####".'
EXAMPLES = (
    ("Tom has 4 oranges and buys 5 more. How many oranges does Tom have now?", "4 + 5 = 9\n#### 9"),
    ("A baker has 12 loaves and sells 7 of them. How many loaves does the baker still have?", "12 - 7 = 5\n#### 5"),
    ("Lucy has 3 bags with 6 plums in each bag. How many plums does Lucy have?", "3 * 6 = 18\n#### 18"),
)
"""Worked examples. Their names and things occur in no generated problem."""
_LARGEST = {"+": 20, "-": 20, "*": 9, "/": 9}


def generate_words(seed: int, sizes: Sizes) -> Task:
    """Return the task `words` with disjoint splits test, validation and train. It has no pretrain, because its models
    are pre-trained."""
    available = sum(len(_numbers(operation)) for operation, _ in TEMPLATES) * len(THINGS)
    ordered = {"test": sizes.test, "validation": sizes.validation, "train": sizes.train}
    return Task("words", "gsm8k", pools(_draw, Random(f"words {seed}"), ordered, available))


def _draw(random: Random) -> tuple[str, list[dict[str, str]], str]:
    """Draw a problem. Its key leaves out the name, so that problems which differ only in the name are the same."""
    operation, story = TEMPLATES[draw_below(random, len(TEMPLATES))]
    numbers = _numbers(operation)
    a, b = numbers[draw_below(random, len(numbers))]
    name, things = NAMES[draw_below(random, len(NAMES))], THINGS[draw_below(random, len(THINGS))]
    question = story.format(name=name, things=things, a=a, b=b, total=a * b)
    answer = {"+": a + b, "-": a - b, "*": a * b, "/": b}[operation]
    return story.format(name="", things=things, a=a, b=b, total=a * b), _prompt(question), str(answer)


def _numbers(operation: str) -> list[tuple[int, int]]:
    """Return the pairs (a, b) that an operation's stories may have; a difference is positive."""
    largest = _LARGEST[operation]
    return [(a, b) for a in range(2, largest + 1) for b in range(2, largest + 1) if operation != "-" or a > b]


def _prompt(question: str) -> list[dict[str, str]]:
    """Return chat messages: the examples as earlier turns, then the question."""
    turns = [
        turn for shown, response in EXAMPLES for turn in (("user", f"{shown} {INSTRUCTION}"), ("assistant", response))
    ]
    return [{"role": role, "content": content} for role, content in (*turns, ("user", f"{question} {INSTRUCTION}"))]


LOWEST, HIGHEST = 10, 999
"""Range of the numbers, two and three digits. In nine problems of ten all three have the same number of digits."""
SHOWN = (512, 87, 340)
"""Numbers of the example, which occur in no problem."""
AVAILABLE = (HIGHEST - LOWEST + 1) * (HIGHEST - LOWEST) * (HIGHEST - LOWEST - 1) - 1


def generate_largest(seed: int, sizes: Sizes) -> Task:
    """Return the task `largest` with disjoint splits test, validation and train. It has no pretrain, because its models
    are pre-trained."""
    ordered = {"test": sizes.test, "validation": sizes.validation, "train": sizes.train}
    return Task("largest", "gsm8k", pools(_draw_largest, Random(f"largest {seed}"), ordered, AVAILABLE))


def _draw_largest(random: Random) -> tuple[str, list[dict[str, str]], str]:
    """Draw a problem with three different numbers; their order is part of it."""
    numbers: tuple[int, ...] = SHOWN
    while numbers == SHOWN or len(set(numbers)) < len(numbers):
        numbers = tuple(LOWEST + draw_below(random, HIGHEST - LOWEST + 1) for _ in SHOWN)
    turns = (
        ("user", _asked_largest(SHOWN)),
        ("assistant", f"#### {max(SHOWN)}"),
        ("user", _asked_largest(numbers)),
    )
    prompt = [{"role": role, "content": content} for role, content in turns]
    return str(numbers), prompt, str(max(numbers))


def _asked_largest(numbers: tuple[int, ...]) -> str:
    a, b, c = numbers
    return f'Which number is the largest, {a}, {b} or {c}? Answer after "####".'
