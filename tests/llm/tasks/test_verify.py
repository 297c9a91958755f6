"""Verifiers: reference rewards, and a table of our own that wrong rules must fail. The pool of processes has
tests/llm/tasks/test_pool.py."""

import itertools
import re

import pytest

from rftlab.llm.rewards import answers
from rftlab.llm.rewards.answers import normalised
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.rewards.verify import VERIFIERS, answers_found, score, well_formed
from rftlab.shared.plumbing.errors import UserError
from tests.support.trainer.verdicts import MATH_TABLE, NoPool, as_math, check_table, golden

LONG = "x" * 300

TEXT_TABLE = [
    # verifier, response, truth, strict, flexible
    ("gsm8k", "3 + 4 = 7\n#### 7", "7", 1, 1),
    ("gsm8k", "#### 1,234", "1234", 1, 0),
    ("gsm8k", "#### -3 apples", "-3", 1, 1),
    ("gsm8k", "#### 5\nno,\n#### 6", "6", 1, 1),
    ("gsm8k", "#### 5\nno,\n#### 6", "5", 0, 0),
    ("gsm8k", "####7", "7", 0, 1),
    ("gsm8k", "####  7", "7", 0, 1),
    ("gsm8k", "#### $7", "7", 0, 1),
    ("gsm8k", "#### 7.", "7", 0, 0),
    ("gsm8k", "#### 7.0", "7", 0, 0),
    ("gsm8k", "It is 7 .", "7", 0, 1),
    ("gsm8k", "So 7 of them, and 12 others", "12", 0, 1),
    ("gsm8k", "#### 7" + LONG, "7", 0, 0),
    ("gsm8k", "#### 7" + LONG[:-6], "7", 1, 1),
    ("gsm8k", "#### 7" + LONG[:-5], "7", 0, 1),
    ("gsm8k", "", "7", 0, 0),
    ("gsm8k", ".", "7", 0, 0),
    ("gsm8k", "#### ٧", "٧", 0, 0),
    ("arithmetic", "####6", "6", 1, 1),
    ("arithmetic", "63+40=103=6####6", "6", 1, 1),
    ("arithmetic", "#### 6", "6", 0, 1),
    ("arithmetic", "6", "6", 0, 1),
    ("arithmetic", "####6####7", "7", 1, 1),
    ("arithmetic", "####6####7", "6", 0, 0),
    ("arithmetic", "####06", "6", 0, 0),
    ("arithmetic", "####", "6", 0, 0),
    ("number", "so #### 1,875.", "1875", 1, 1),
    ("number", "####1875.00", "1875", 1, 1),
    ("number", "it is 1,875 dollars", "1875", 0, 1),
    ("number", "5-3", "-3", 0, 0),
    ("number", "x = -3", "-3", 0, 1),
    ("number", "#### 6, or 5", "5", 0, 1),
    ("number", "#### five", "5", 0, 0),
    ("number", "#### 1000", "1e3", 1, 1),
    ("choice", "Because.\n(B)", "B", 1, 1),
    ("choice", "Answer: B.", "B", 1, 1),
    ("choice", r"\boxed{B}", "B", 1, 1),
    ("choice", "It is B, of course", "B", 0, 1),
    ("choice", "A\nI say B's", "B", 0, 0),
    ("choice", "BB", "B", 0, 0),
    ("text", " New  York\n", "New York", 1, 1),
    ("text", "Well...\nAnswer: new york!", "New York", 0, 1),
    ("text", "New York City", "New York", 0, 0),
    ("text", "!", "?", 0, 0),
]


@pytest.mark.parametrize("verifier", ["gsm8k", "math"])
def test_every_reference_reward_is_ours(verifier):
    cases = golden()[f"{verifier}_strict"]
    found = score(verifier, [c["response"] for c in cases], [c["ground_truth"] for c in cases], NoPool())
    assert [c for c, reward in zip(cases, found.strict, strict=True) if c["reward"] != reward] == []
    assert len(cases) >= 100 and 0 < found.strict.mean() < 1
    if verifier == "gsm8k":
        assert [c for c, reward in zip(cases, found.flexible, strict=True) if c["flexible_reward"] != reward] == []


def test_our_table_by_text():
    check_table(TEXT_TABLE)
    check_table(as_math(MATH_TABLE))


WRONG = {
    "a wider window": ("GSM8K_WINDOW", 10**6),
    "a narrower window": ("GSM8K_WINDOW", 299),
    "marker without its space": ("_MARKED", re.compile(r"####\s*(-?[0-9.,]+)")),
    "no sign": ("_MARKED", re.compile(r"#### ([0-9.,]+)")),
    "integers alone": ("_NUMBER", re.compile(r"-?[0-9]+")),
    "any digit": ("_MARKED", re.compile(r"#### (-?[\d.,]+)")),
    "first, not last": ("_last", lambda found: found[0] if found else None),
    "space after the marker": ("_MARKED_INTEGER", re.compile(r"####\s*(-?[0-9]+)")),
    "no spelling": ("_SPELLINGS", ()),
    "no fractions": ("_braced_fractions", lambda text: text),
    "no roots": ("_braced_roots", lambda text: text),
    "no slash": ("_slash_as_fraction", lambda text: text),
    "no units": ("_without_unit", lambda text: text),
    "text as it stands": ("normalised", lambda text: text),
    "a box need not be closed": ("closing", lambda text, start: len(text)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_refused(wrong, monkeypatch):
    monkeypatch.setattr(answers, *WRONG[wrong])
    with pytest.raises(AssertionError, match="scored"):
        check_table(TEXT_TABLE + as_math(MATH_TABLE))


@pytest.mark.parametrize("text", [r"1\text{ a}\text{ b}", r"2\sqrt", r"\frac", r"\frac{1}{2}\frac"])
def test_what_cannot_be_normalised_is_compared_as_it_stands(text):
    with pytest.raises(ValueError):
        normalised(text)
    assert score("math", [f"\\boxed{{{text}}}"] * 2, [text, text + " "], NoPool()).strict.tolist() == [1, 0]


def test_unknown_verifiers_and_unequal_lists_are_errors():
    for ask in (lambda *given: score(*given, [], NoPool()), well_formed, answers_found):
        with pytest.raises(UserError, match="verifier = 'vibes' is unknown; allowed: gsm8k, arithmetic, math"):
            ask("vibes", [])
    with pytest.raises(UserError, match="2 responses and 1 truths"):
        score("math", ["", ""], ["1"], NoPool())
    for verifier in VERIFIERS:
        assert score(verifier, [], [], MathPool(1)).strict.shape == (0,)


def test_a_response_is_well_formed_where_the_strict_rule_finds_an_answer():
    found = {
        "gsm8k": {"#### 7": 1, "so #### 1,234.": 1, "7": 0, "####7": 0, "#### 7" + LONG: 0, "": 0},
        "arithmetic": {"####6": 1, "1+5=6####7####": 1, "6": 0, "#### 6": 0},
        "math": {r"\boxed{12}": 1, r"\boxed{}": 1, r"\boxed{1": 0, r"\fbox{1}": 0, "12": 0, r"is \boxed 12$": 1},
    }
    for verifier, cases in found.items():
        assert well_formed(verifier, list(cases)).tolist() == [bool(value) for value in cases.values()]
    for verifier, response, truth, strict, _ in TEXT_TABLE + as_math(MATH_TABLE):
        assert well_formed(verifier, [response])[0] or not strict, (response, truth)


RESPONSES = {
    "arithmetic": ("####5", "1####5", "####05", "5", "", "####5 6", "####-5"),
    "gsm8k": ("#### 1,875", "#### 1875", "#### 1875.0", "1875", "#### 5", "####", ""),
    "number": ("#### 1,875", "####1875.0", "#### 1.875e3", "#### $1875", "1875", "#### 0", "#### -0.0", "#### 1e999"),
    "choice": ("A", "Answer: A", "\\boxed{A}", "B", "A or B", ""),
    "text": ("the cat", " the  cat\n", "The cat", " ", ""),
    "math": ("\\boxed{1/2}", "\\boxed{\\frac{1}{2}}", "\\boxed{ 0.5 }", "\\boxed{2", "\\boxed{\\sqrt}", "1/2", ""),
}


@pytest.mark.parametrize("verifier", RESPONSES)
def test_equal_answers_earn_equal_rewards_and_other_answers_are_other_votes(verifier):
    responses = RESPONSES[verifier]
    found = answers_found(verifier, responses)
    assert [answer is not None for answer in found] == well_formed(verifier, responses).tolist()
    for truth in ("5", "1875", "A", "the cat", "\\frac{1}{2}", "0"):
        rewards = score(verifier, responses, [truth] * len(responses), NoPool()).strict
        for (a, x), (b, y) in itertools.combinations(zip(found, rewards, strict=True), 2):
            assert x == y or a != b
            assert not (x and y) or a == b  # two right ones are one vote
        assert not rewards[[answer is None for answer in found]].any()
