"""Kinds of questions, and the answers that are counted in votes."""

import itertools

import pytest

from rftlab.llm.rewards.verify import answers_found, score, well_formed
from rftlab.llm.tasks import arithmetic, words
from rftlab.llm.tasks.load import prompt_kind
from rftlab.llm.tasks.task import Sizes
from rftlab.shared.plumbing.errors import UserError
from tests.support.trainer.verdicts import NoPool

SIZES = Sizes(train=200, validation=1, test=1, pretrain=1)


def test_every_word_problem_is_of_one_story_and_every_sum_of_its_operations():
    kinds = [prompt_kind("words", prompt) for prompt in words.generate_words(0, SIZES)["train"].prompts]
    assert set(kinds) == {str(i) for i in range(len(words.TEMPLATES))}
    assert [prompt_kind("words", [{"role": "user", "content": text}]) for text in ("What is 1 + 1?", "A shop")] == [
        "",
        "",
    ]
    for name, signs in (("mod97", {"+"}), ("sign97", {"+", "-"})):
        assert {
            prompt_kind(name, prompt) for prompt in arithmetic.generate_arithmetic(name, 0, SIZES)["train"].prompts
        } == signs
    chained = {
        prompt_kind("chain", prompt) for prompt in arithmetic.generate_arithmetic("chain", 0, SIZES)["train"].prompts
    }
    assert {"+-", "-*+"} <= chained
    assert prompt_kind("gsm8k", "1+1") == "" and prompt_kind("own", [{"role": "user", "content": "1 + 1"}]) == ""


RESPONSES = {
    "arithmetic": ("####5", "1####5", "####05", "5", "", "####5 6", "####-5"),
    "gsm8k": ("#### 1,875", "#### 1875", "#### 1875.0", "1875", "#### 5", "####", ""),
    "number": (
        "#### 1,875",
        "####1875.0",
        "#### 1.875e3",
        "#### $1875",
        "1875",
        "#### 0",
        "#### -0.0",
        "#### 1e999",
        "",
    ),
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


def test_an_unknown_verifier_finds_nothing():
    with pytest.raises(UserError, match="verifier = 'x' is unknown"):
        answers_found("x", [""])
