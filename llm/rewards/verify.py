"""From responses to rewards: every response is scored twice, strictly and flexibly.

strict     the paper's reward: the right answer in the required format
flexible   the right answer, wherever the response states it
Their difference is format. A strict reward for `math` implies the flexible one, for the others it almost does: flexibly
the last number counts, so that `####5 6` is right strictly and wrong flexibly where the answer is 5, and `gsm8k` keeps
its commas, so that `#### 1,875` is too.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rftlab.llm.rewards.answers import boxed, last_integer, last_number, marked_number, marked_symbol, stated
from rftlab.llm.rewards.free_text import OWN_RULES
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.llm.rewards.math_text import normalised, same_text
from rftlab.shared.plumbing.errors import UserError, check, check_choice


class Scores(NamedTuple):
    """Rewards 0 or 1 of n responses, and what math-verify was asked for them."""

    strict: np.ndarray
    """(n,)"""
    flexible: np.ndarray
    """(n,)"""
    checks: Checks


_BY_TEXT: dict[str, tuple[Callable[[str], str | None], Callable[[str], str | None]]] = {
    "gsm8k": (marked_number, last_number),
    "arithmetic": (marked_symbol, last_integer),
}
"""Verifiers that compare what they find with the truth as text: where they look strictly, and flexibly."""
NONE = "none"
"""In place of a verifier where the data have no true answers: both rewards are nan."""
VERIFIERS = (*_BY_TEXT, "math", *OWN_RULES)


def score(verifier: str, responses: Sequence[str], truths: Sequence[str], pool: MathPool | None) -> Scores:
    r"""Strict and flexible rewards of responses (n) to problems whose true answers are `truths` (n).

    gsm8k       the last `#### number` of the final 300 characters; flexibly their last number
    arithmetic  the last `####number`; flexibly the last number
    math        the last `\boxed{}`, compared as normalised text; flexibly the answer stated anywhere, compared by
                math-verify
    number, choice, text    rules for a user's own data: llm/rewards/free_text.py

    pool: what compares for `math`; the others need none. Raises UserError for an unknown verifier and for lists of
    unequal lengths, never for a response.
    """
    check_choice("verifier", verifier, (*VERIFIERS, NONE))
    check(
        len(responses) == len(truths),
        f"{len(responses)} responses and {len(truths)} truths; there must be one truth for each response",
    )
    if needs_pool(verifier):
        if pool is None:
            raise UserError(f"verifier = {verifier!r} without a pool; allowed: a MathPool")
        return _score_math(responses, truths, pool)
    if verifier == NONE:
        return Scores(np.full(len(responses), np.nan), np.full(len(responses), np.nan), Checks())
    if verifier in OWN_RULES:
        rules = (OWN_RULES[verifier].strict, OWN_RULES[verifier].flexible)
        strict, flexible = (_rewards([rule(r, t) for r, t in zip(responses, truths, strict=True)]) for rule in rules)
        return Scores(strict, flexible, Checks())
    strict, flexible = (
        _rewards([find(r) == t for r, t in zip(responses, truths, strict=True)]) for find in _BY_TEXT[verifier]
    )
    return Scores(strict, flexible, Checks())


def strictly_right(verifier: str, response: str, truth: str) -> bool:
    """The strict rule of `score` for one response; it needs no pool. Raises UserError for an unknown verifier."""
    check_choice("verifier", verifier, VERIFIERS)
    if verifier in OWN_RULES:
        return bool(OWN_RULES[verifier].strict(response, truth))
    return _same(boxed(response), truth) if verifier == "math" else _BY_TEXT[verifier][0](response) == truth


def well_formed(verifier: str, responses: Sequence[str]) -> np.ndarray:
    """Whether (n,) the strict rule finds an answer in each response, right or wrong. Raises UserError for an unknown
    verifier."""
    check_choice("verifier", verifier, (*VERIFIERS, NONE))
    if verifier == NONE:
        return np.zeros(len(responses), dtype=bool)
    return np.array([answer is not None for answer in answers_found(verifier, responses)], dtype=bool)


def answers_found(verifier: str, responses: Sequence[str]) -> list[str | None]:
    """The answer (n,) that the strict rule finds in each response, right or wrong, None where it finds none. Answers
    that the rule holds for the same are equal texts, so that they can be counted. Raises UserError for an unknown
    verifier."""
    check_choice("verifier", verifier, VERIFIERS)
    if verifier in OWN_RULES:
        return [OWN_RULES[verifier].answer(response) for response in responses]
    find = _boxed_text if verifier == "math" else _BY_TEXT[verifier][0]
    return [find(response) for response in responses]


def _boxed_text(response: str) -> str | None:
    answer = boxed(response)
    try:
        return None if answer is None else normalised(answer)
    except ValueError:
        return answer


def _score_math(responses: Sequence[str], truths: Sequence[str], pool: MathPool) -> Scores:
    judged = [_judge(r, t) for r, t in zip(responses, truths, strict=True)]
    strict, flexible = _rewards([right for right, _, _ in judged]), _rewards([right for _, right, _ in judged])
    doubts = {i: doubt for i, (_, _, doubt) in enumerate(judged) if doubt}
    flexible[list(doubts)], checks = pool.equivalent(list(doubts.values()))
    return Scores(strict, flexible, checks)


def _judge(response: str, truth: str) -> tuple[bool, bool, tuple[str, str] | None]:
    """For `math`: whether a response is right strictly and, by its text, flexibly; and where it is not, its answer
    and the truth, which may mean the same."""
    answer, strict = stated(response), _same(boxed(response), truth)
    flexible = strict or _same(answer, truth)
    return strict, flexible, None if flexible or not answer else (answer, truth)


def needs_pool(verifier: str) -> bool:
    """Whether `score` may ask the pool."""
    return verifier == "math"


def in_doubt(verifier: str, response: str, truth: str) -> tuple[str, str] | None:
    """The pair (answer, truth) that `score` will ask the pool about; None where text decides."""
    return _judge(response, truth)[2] if needs_pool(verifier) else None


def _same(answer: str | None, truth: str) -> bool:
    return answer is not None and same_text(answer, truth)


def _rewards(right: Sequence[bool]) -> np.ndarray:
    return np.array(right, dtype=np.float64)
