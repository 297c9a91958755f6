"""Disjoint pools of generated problems.

Only `random.Random.random` is used: of Python's generators its stream alone is promised to stay the same in every
version.
"""

from collections.abc import Callable
from random import Random

from rftlab.llm.tasks.task import Prompt, Split
from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_count

MAX_PROBLEMS = 10**6
"""In a pool; so many are generated in half a minute."""


@config
class Sizes:
    """Problems in each pool of a generated task."""

    train: int = 1000
    validation: int = 250
    """For stopping the pre-training and for choosing the rate, so that the test pool stays unseen."""
    test: int = 500
    pretrain: int = 4000
    """For pre-training a base model; only arithmetic has this pool."""

    def __post_init__(self):
        for name, size in vars(self).items():
            check_count(f"sizes.{name}", size, 1, MAX_PROBLEMS)


def draw_below(random: Random, n: int) -> int:
    """One of 0 .. n-1, each as likely."""
    return int(random.random() * n)


def pools(
    draw: Callable[[Random], tuple[str, Prompt, str]], random: Random, sizes: dict[str, int], available: int
) -> dict[str, Split]:
    """Splits of the given sizes without a common problem, filled in the order of `sizes`, so that a later size changes
    no earlier split.

    draw: a random problem as (key, prompt, answer); problems with one key are the same. available: how many keys there
    are.
    """
    total = sum(sizes.values())
    check(
        total <= available,
        f"sizes = {sizes}: {total} problems in all; allowed: up to {available}, so many different ones there are",
    )
    problems: dict[str, tuple[Prompt, str]] = {}
    while len(problems) < total:
        key, prompt, answer = draw(random)
        problems.setdefault(key, (prompt, answer))
    rows, splits, start = list(problems.values()), {}, 0
    for name, size in sizes.items():
        prompts, answers = zip(*rows[start : start + size], strict=True)
        splits[name], start = Split(prompts, answers), start + size
    return splits
