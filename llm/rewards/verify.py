"""Compute rewards of responses: every response is scored twice, strictly and flexibly.

strict     the paper's reward: the right answer in the required format
flexible   the right answer, wherever the response states it
Their difference is format. A strict reward for `math` implies the flexible one, for the others it almost does: flexibly
the last number counts, so that `####5 6` is right strictly and wrong flexibly where the answer is 5, and `gsm8k` keeps
its commas, so that `#### 1,875` is too.

A user's own data have rules of their own, under which what is strictly right is flexibly right too. Each looks at a
bounded number of characters.

number   strictly what follows the last `####`; flexibly the last number. Compared as numbers: 1,875 is 1875.0
choice   strictly the letter that the last line is, that follows its last `####` or `Answer:`, or that is boxed;
         flexibly the last capital letter that stands alone
text     strictly the whole response, but for spaces; flexibly its last line, but for case, a leading `####` or
         `Answer:`, and what is no letter or digit at its ends"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np

from rftlab.llm.rewards.answers import (
    boxed,
    last_integer,
    last_number,
    marked_number,
    marked_symbol,
    normalised,
    same_text,
    stated,
)
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.shared.plumbing.errors import UserError, check, check_choice

TAIL = 1000
"""Number of characters at the end of a response that the rules read; those for text read more where the truth is
longer."""
LONGEST_NUMBER = 60
"""Largest number of characters of a number."""

_NUMBER = re.compile(r"(?:(?<![0-9)])[-+])?(?:[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_MARKED = re.compile(r"####\s*\$?\s*([-+0-9.,eE]+)")
_LETTER = re.compile(r"(?:####|[Aa]nswer:|\\boxed\{|^)[\s*]*\(?([A-Z])\)?[\s.*}]*$")
_ALONE = re.compile(r"(?<![A-Za-z0-9'])([A-Z])(?![A-Za-z0-9'])")
_LEAD = re.compile(r"^\s*(?:####|answer:)\s*", re.IGNORECASE)


class AnswerRules(NamedTuple):
    """Rules that judge responses to one kind of truth."""

    strict: Callable[[str, str], bool]
    """Function of a response and the truth."""
    flexible: Callable[[str, str], bool]
    answer: Callable[[str], str | None]
    """Function that returns the answer that the strict rule finds, right or wrong, or None. Equal answers are equal
    texts."""


def parse_number(text: str) -> Decimal | None:
    """Return the number that a text is, without commas and a full stop at its end; None where it is no number."""
    text = text.strip().rstrip(".")
    if len(text) > LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


def _marked_number(response: str) -> Decimal | None:
    marks = _MARKED.findall(response[-TAIL:])
    return parse_number(marks[-1].rstrip(",")) if marks else None


def _number_text(response: str) -> str | None:
    number = _marked_number(response)
    return None if number is None else "/".join(map(str, number.as_integer_ratio()))


def _last_number(response: str) -> Decimal | None:
    marks = _NUMBER.findall(response[-TAIL:])
    return parse_number(marks[-1]) if marks else None


def _equal_numbers(number: Decimal | None, truth: str) -> bool:
    return number is not None and number == parse_number(truth)


def _last_line(response: str, length: int = TAIL) -> str:
    return response[-length:].strip().rpartition("\n")[2].strip()


def _chosen(response: str) -> str | None:
    match = _LETTER.search(_last_line(response))
    return match[1] if match else None


def _flexible_choice(response: str, truth: str) -> bool:
    marks = _ALONE.findall(response[-TAIL:])
    return _chosen(response) == truth or (bool(marks) and marks[-1] == truth)


def _strict_text(response: str, truth: str) -> bool:
    near = len(response) <= 2 * len(truth) + TAIL  # spaces aside, a longer response is another text
    return near and response.split() == truth.split()


def _bare(line: str) -> str:
    text = _LEAD.sub("", line, count=1)
    places = [i for i, character in enumerate(text) if character.isalnum()]
    return " ".join(text[places[0] : places[-1] + 1].casefold().split()) if places else ""


def _flexible_text(response: str, truth: str) -> bool:
    line = _last_line(response, TAIL + 2 * len(truth))
    return _strict_text(response, truth) or (bool(_bare(truth)) and _bare(line) == _bare(truth))


def _by_text(strict: Callable[[str], str | None], flexible: Callable[[str], str | None]) -> AnswerRules:
    """Return rules that compare the answers that they find with the truth as text."""
    return AnswerRules(lambda r, t: strict(r) == t, lambda r, t: flexible(r) == t, strict)


def _same(answer: str | None, truth: str) -> bool:
    return answer is not None and same_text(answer, truth)


def _boxed_text(response: str) -> str | None:
    answer = boxed(response)
    try:
        return None if answer is None else normalised(answer)
    except ValueError:
        return answer


RULES = {
    "gsm8k": _by_text(marked_number, last_number),
    "arithmetic": _by_text(marked_symbol, last_integer),
    "math": AnswerRules(
        lambda response, truth: _same(boxed(response), truth),
        lambda response, truth: _same(boxed(response), truth) or _same(stated(response), truth),
        _boxed_text,
    ),
    "number": AnswerRules(
        lambda response, truth: _equal_numbers(_marked_number(response), truth),
        lambda response, truth: any(_equal_numbers(find(response), truth) for find in (_marked_number, _last_number)),
        _number_text,
    ),
    "choice": AnswerRules(lambda response, truth: _chosen(response) == truth, _flexible_choice, _chosen),
    "text": AnswerRules(_strict_text, _flexible_text, lambda response: " ".join(response.split()) or None),
}
"""Rules by verifier; for a user's data the verifier is a kind of truth. For `math`, math-verify judges the responses
whose text does not match."""
VERIFIERS = tuple(RULES)
NONE = "none"
"""Value in place of a verifier where the data have no true answers; both rewards are then nan."""


class Scores(NamedTuple):
    """Rewards 0 or 1 of n responses, and the counts of math-verify's checks."""

    strict: np.ndarray
    """(n,) strict rewards."""
    flexible: np.ndarray
    """(n,) flexible rewards."""
    checks: Checks


def score(verifier: str, responses: Sequence[str], truths: Sequence[str], pool: MathPool | None) -> Scores:
    r"""Return strict and flexible rewards of responses (n) to problems whose true answers are `truths` (n).

    gsm8k       the last `#### number` of the final 300 characters; flexibly their last number
    arithmetic  the last `####number`; flexibly the last number
    math        the last `\boxed{}`, compared as normalised text; flexibly the answer stated anywhere, compared by
                math-verify
    number, choice, text    rules for a user's own data

    pool: compares answers for `math`; other verifiers need none. Raises UserError for an unknown verifier and for lists
    of unequal lengths, never for a response.
    """
    check_choice("verifier", verifier, (*VERIFIERS, NONE))
    check(
        len(responses) == len(truths),
        f"{len(responses)} responses and {len(truths)} truths; there must be one truth for each response",
    )
    if verifier == NONE:
        return Scores(np.full(len(responses), np.nan), np.full(len(responses), np.nan), Checks())
    strict, flexible = (
        np.array([rule(r, t) for r, t in zip(responses, truths, strict=True)], dtype=np.float64)
        for rule in RULES[verifier][:2]
    )
    checks = Checks()
    if needs_pool(verifier):
        if pool is None:
            raise UserError(f"verifier = {verifier!r} without a pool; allowed: a MathPool")
        wrong_r = map(int, np.flatnonzero(flexible == 0))
        doubts = {i: pair for i in wrong_r if (pair := in_doubt(verifier, responses[i], truths[i]))}
        flexible[list(doubts)], checks = pool.equivalent(list(doubts.values()))
    return Scores(strict, flexible, checks)


def strictly_right(verifier: str, response: str, truth: str) -> bool:
    """Return the strict reward of `score` for one response, without a pool. Raises UserError for an unknown
    verifier."""
    check_choice("verifier", verifier, VERIFIERS)
    return bool(RULES[verifier].strict(response, truth))


def well_formed(verifier: str, responses: Sequence[str]) -> np.ndarray:
    """Return whether (n,) the strict rule finds an answer in each response, right or wrong. Raises UserError for an
    unknown verifier."""
    check_choice("verifier", verifier, (*VERIFIERS, NONE))
    if verifier == NONE:
        return np.zeros(len(responses), dtype=bool)
    return np.array([answer is not None for answer in answers_found(verifier, responses)], dtype=bool)


def answers_found(verifier: str, responses: Sequence[str]) -> list[str | None]:
    """Return the answer (n,) that the strict rule finds in each response, right or wrong, or None. Answers that the
    rule treats as the same are equal texts, so that they can be counted. Raises UserError for an unknown verifier."""
    check_choice("verifier", verifier, VERIFIERS)
    return [RULES[verifier].answer(response) for response in responses]


def needs_pool(verifier: str) -> bool:
    """Whether `score` may need the pool."""
    return verifier == "math"


def in_doubt(verifier: str, response: str, truth: str) -> tuple[str, str] | None:
    """Return the pair (answer, truth) for which `score` will need the pool; None where the text decides."""
    if not needs_pool(verifier) or RULES[verifier].flexible(response, truth):
        return None
    answer = stated(response)
    return (answer, truth) if answer else None
