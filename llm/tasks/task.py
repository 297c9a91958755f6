"""Define tasks, and fill the splits of generated ones.

Generators use only `random.Random.random`, whose stream Python promises to keep in every version."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import UserError, check, check_choice, check_count

Prompt = list[dict[str, str]] | str
"""A prompt: chat messages, each with `role` and `content`, for models with a chat template; or text in the symbols of
llm/tasks/arithmetic.py."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt that is text. Raises UserError for chat messages."""
    if not isinstance(prompt, str):
        raise UserError(f"prompt = {len(prompt)} chat messages; allowed: text in the symbols of synthetic arithmetic")
    return prompt


@dataclass(frozen=True)
class Split:
    """Problems of a split, n of them."""

    prompts: tuple[Prompt, ...]
    """(n,) prompts."""
    answers: tuple[str, ...]
    """(n,) true answers, as the verifier compares them; empty where the data have none."""
    rows: tuple[dict[str, Any], ...] = ()
    """(n,) columns of a user's own data, for rewards; () for other tasks."""
    solutions: tuple[str, ...] = ()
    """(n,) right responses, for examples in prompts; empty texts, or (), where the data have none."""

    def __post_init__(self):
        check(
            len(self.prompts) == len(self.answers),
            f"{len(self.prompts)} prompts and {len(self.answers)} answers; there must be one answer for each prompt",
        )
        check(len(self.rows) in (0, len(self.prompts)), f"{len(self.rows)} rows for {len(self.prompts)} prompts")

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Task:
    """Problems of one kind. Splits are disjoint: `train` and `test`; generated tasks have `validation` too,
    arithmetic also `pretrain`."""

    name: str
    verifier: str
    """Name of the verifier, whose rules are in llm/rewards/verify.py."""
    splits: dict[str, Split]
    unanswered: dict[str, int] = field(default_factory=dict)
    """By split, the number of problems that were left out because the benchmark gives no answer to them."""

    def __getitem__(self, split: str) -> Split:
        """Return the split of a name. Raises UserError for an unknown one, with the known names."""
        check_choice("split", split, tuple(self.splits))
        return self.splits[split]

    @property
    def sha256(self) -> str:
        """Checksum of every prompt, answer and row, in order, for the record of a run's data."""
        digest = hashlib.sha256()
        for name, split in sorted(self.splits.items()):
            for row in zip(split.prompts, split.answers, strict=True):
                digest.update(json.dumps([name, *row], sort_keys=True).encode() + b"\n")
            for columns in split.rows:
                digest.update(json.dumps(columns, sort_keys=True, default=str).encode() + b"\n")
        return digest.hexdigest()


def fitting(prompts: Sequence[Sequence[int]], limit: int) -> list[int]:
    """Return the indices of the prompts that have at most `limit` tokens. Raises UserError where none has."""
    keep = [i for i, prompt in enumerate(prompts) if len(prompt) <= limit]
    check(bool(keep), f"prompt limit = {limit} tokens; each of the {len(prompts)} prompts is longer")
    return keep


MAX_PROBLEMS = 10**6
"""Largest number of problems in a pool; generating them takes half a minute."""


@config
class Sizes:
    """Problems in each pool of a generated task."""

    train: int = 1000
    validation: int = 250
    """Problems for stopping the pre-training and for choosing the rate, so that the test pool stays unseen."""
    test: int = 500
    pretrain: int = 4000
    """Problems for pre-training a base model; only arithmetic has this pool."""

    def __post_init__(self):
        for name, size in vars(self).items():
            check_count(f"sizes.{name}", size, 1, MAX_PROBLEMS)


def draw_below(random: Random, n: int) -> int:
    """Draw one of 0 .. n-1 with equal probability."""
    return int(random.random() * n)


def pools(
    draw: Callable[[Random], tuple[str, Prompt, str]], random: Random, sizes: dict[str, int], available: int
) -> dict[str, Split]:
    """Return splits of the given sizes without a common problem, filled in the order of `sizes`, so that a later size
    does not change an earlier split.

    draw: returns a random problem as (key, prompt, answer); problems with equal keys are the same. available: number of
    keys.
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
