"""Generate synthetic arithmetic modulo 97 from a seed, with its vocabulary and the corpus from which a small model
learns its base policy.

A problem is operands and operations, then the sign of the modulus: `63+40%` asks for (63 + 40) mod 97, and `####6` is
the right response in the right format. Operations are applied from left to right. The vocabulary is 20 symbols, each
one token, `####` among them."""

import re
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from rftlab.llm.tasks.task import Sizes, Split, Task, draw_below, pools, prompt_text
from rftlab.shared.plumbing.errors import check_choice

PAD, START, END = range(3)
"""Ids of the symbols that have no text: padding, the start of a sequence, the end of a response."""
SYMBOLS = ("<pad>", "<start>", "<end>", *"0123456789", "+", "-", "*", "%", "=", ",", "####")
"""Symbols by id."""

_ID = {symbol: i for i, symbol in enumerate(SYMBOLS) if i > END}
_SYMBOL = re.compile("####|.", re.DOTALL)


def encode_symbols(text: str) -> list[int]:
    """Return the ids of a text. Raises UserError for a character that is no symbol."""
    parts = _SYMBOL.findall(text)
    for symbol in parts:
        check_choice("symbol", symbol, tuple(_ID))
    return [_ID[symbol] for symbol in parts]


def decode_symbols(ids: Iterable[int]) -> str:
    """Return the text of ids; padding, start and end have none."""
    return "".join(SYMBOLS[i] for i in ids if i > END)


MODULUS = 97
_STEP = re.compile(r"([-+*])([0-9]+)")
_APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


MIXED = {"unmarked": 0.55, "direct": 0.25, "worked": 0.20}
"""Shares in the corpus of three ways to respond to `63+40%`: `6`, which is right but not in the rewarded format;
`####6`; and `63+40=103=6####6`. They need not add up to 1."""


class Kind(NamedTuple):
    """A kind of arithmetic problems, and the corpus of its base model."""

    operations: str
    steps: tuple[int, ...]
    """Possible numbers of operations of a problem, with equal probability."""
    styles: dict[str, float]
    """Shares of styles of responses in the base model's corpus, as in MIXED."""

    @property
    def available(self) -> int:
        """Number of different problems."""
        return sum(MODULUS ** (steps + 1) * len(self.operations) ** steps for steps in self.steps)


KINDS = {
    "mod97": Kind("+", (1,), {"unmarked": 0, "direct": 1, "worked": 0}),
    "mix97": Kind("+", (1,), MIXED),
    "sign97": Kind("+-", (1,), {"unmarked": 0.3, "direct": 0.5, "worked": 0.2}),
    "chain": Kind("+-*", (2, 3), MIXED),
}
"""Arithmetic tasks by name. mod97 and mix97 are the same sums; the base model of mod97 knows the format and has only to
learn reasoning, that of mix97 has to learn both. sign97: sums and differences, with a base model that mostly knows the
format. chain: two and three operations."""


def generate_arithmetic(name: str, seed: int, sizes: Sizes) -> Task:
    """Return an arithmetic task with disjoint splits test, validation, train and pretrain."""
    check_choice("arithmetic task", name, tuple(KINDS))
    kind = KINDS[name]

    def draw(random: Random) -> tuple[str, str, str]:
        problem = str(draw_below(random, MODULUS))
        for _ in range(kind.steps[draw_below(random, len(kind.steps))]):
            problem += kind.operations[draw_below(random, len(kind.operations))] + str(draw_below(random, MODULUS))
        return problem, problem + "%", solve(problem + "%")[1]

    ordered = {"test": sizes.test, "validation": sizes.validation, "train": sizes.train, "pretrain": sizes.pretrain}
    return Task(
        name, "arithmetic", pools(draw, Random(f"{kind.operations} {kind.steps} {seed}"), ordered, kind.available)
    )


def solve(prompt: str) -> tuple[str, str]:
    """Return the working of a problem and its answer: `63+40=103=6` and `6` for `63+40%`. Steps of a chain are
    separated by commas."""
    value = int(_STEP.split(prompt, maxsplit=1)[0])
    working = []
    for operation, operand in _STEP.findall(prompt):
        raw = _APPLY[operation](value, int(operand))
        reduced = raw % MODULUS
        working.append(f"{value}{operation}{operand}={raw}" + ("" if raw == reduced else f"={reduced}"))
        value = reduced
    return ",".join(working), str(value)


def corpus(split: Split, styles: dict[str, float], seed: int) -> list[tuple[str, str]]:
    """Return the pairs (prompt, response) that a base model reads: every problem of the split once, in a style drawn by
    its share. All answers are right."""
    random = Random(f"corpus {seed}")
    pairs = []
    for prompt in map(prompt_text, split.prompts):
        working, answer = solve(prompt)
        responses = {"unmarked": answer, "direct": f"####{answer}", "worked": f"{working}####{answer}"}
        pairs.append((prompt, responses[_weighted(random, styles)]))
    return pairs


def _weighted(random: Random, shares: dict[str, float]) -> str:
    """Draw a name with the probability of its share."""
    left = random.random() * sum(shares.values())
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    return max(shares, key=shares.__getitem__)  # rounding left a small remainder
