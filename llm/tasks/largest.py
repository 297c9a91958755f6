"""Which of three numbers is the largest, with one worked example in the chat prompt: a second task on which a model
of 135M parameters has signal, and one that is judged, not calculated."""

from random import Random

from rftlab.llm.tasks.pools import Sizes, draw_below, pools
from rftlab.llm.tasks.task import Task

LOW, HIGH = 10, 999
"""Two and three digits, so that nine in ten have the same number of them."""
EXAMPLE = (512, 87, 340)
"""Not among the problems."""
AVAILABLE = (HIGH - LOW + 1) * (HIGH - LOW) * (HIGH - LOW - 1) - 1


def generate_largest(seed: int, sizes: Sizes) -> Task:
    """The task `largest` with disjoint splits test, validation and train; no pretrain, its models come pre-trained."""
    ordered = {"test": sizes.test, "validation": sizes.validation, "train": sizes.train}
    return Task("largest", "gsm8k", pools(_draw, Random(f"largest {seed}"), ordered, AVAILABLE))


def _draw(random: Random) -> tuple[str, list[dict[str, str]], str]:
    """A problem with three different numbers, whose order is part of it."""
    numbers: tuple[int, ...] = EXAMPLE
    while numbers == EXAMPLE or len(set(numbers)) < len(numbers):
        numbers = tuple(LOW + draw_below(random, HIGH - LOW + 1) for _ in EXAMPLE)
    turns = (("user", _question(EXAMPLE)), ("assistant", f"#### {max(EXAMPLE)}"), ("user", _question(numbers)))
    prompt = [{"role": role, "content": content} for role, content in turns]
    return str(numbers), prompt, str(max(numbers))


def _question(numbers: tuple[int, ...]) -> str:
    a, b, c = numbers
    return f'Which number is the largest, {a}, {b} or {c}? Answer after "####".'
