"""Answers and what verifiers must say of them."""

import json

import numpy as np
import pytest

from rftlab.llm.rewards.math_pool import Checks
from rftlab.llm.rewards.verify import score
from tests.support.estimators.vectors import WHOLE

GOLDEN = WHOLE / "verifier_public.json"
MATH_TABLE = [
    (r"so \boxed{12}", "12", 1, 1),
    (r"\boxed{1} or \boxed{2}", "2", 1, 1),
    (r"\boxed{1} or \boxed{2}", "1", 0, 0),
    (r"\boxed{\dfrac12}", r"\frac{1}{2}", 1, 1),
    (r"\boxed{0.5}", r"\frac{1}{2}", 1, 1),
    (r"\boxed{3/4}", r"\frac{3}{4}", 1, 1),
    (r"\boxed{\frac{\sqrt3}{2}}", r"\frac{\sqrt{3}}{2}", 1, 1),
    (r"\boxed{x = 5}", "5", 1, 1),
    (r"\boxed{5 \text{ cm}}", "5", 1, 1),
    (r"\boxed{30^\circ}", "30", 1, 1),
    (r"\boxed{\left(1, 2\right)}", "(1,2)", 1, 1),
    (r"\boxed{.5}", "0.5", 1, 1),
    (r"\boxed{20\%}", "20", 1, 1),
    ("\\boxed 7$ is it", "7", 1, 1),
    (r"\boxed{\sqrt{17}", r"\sqrt{17}", 0, 0),
    ("\\boxed 7$ is it, not 8", "7", 1, 1),
    (r"\fbox{12}", "12", 0, 1),
    (r"\boxed{3}, no, \fbox{12}", "12", 0, 1),
    ("The answer is 12.", "12", 0, 1),
    ("The answer is $12$ for all 3 of them.", "12", 0, 1),
    ("First 3, then 12", "12", 0, 1),
    ("I do not know", "12", 0, 0),
    (r"\boxed{}", "12", 0, 0),
    ("", "12", 0, 0),
]
VALUE_TABLE = [
    # the same value in other words: only math-verify sees it
    (r"\boxed{12.0}", "12", 0, 1),
    (r"\boxed{0.25}", r"\frac{1}{4}", 0, 1),
    (r"\boxed{2x+1}", "1+2x", 0, 1),
    (r"\boxed{\frac{2}{\sqrt{2}}}", r"\sqrt{2}", 0, 1),
    (r"The final answer is \(\frac{10}{4}\)", r"\frac{5}{2}", 0, 1),
    (r"thus $x = 1.5$", r"\frac{3}{2}", 0, 1),
    (r"\boxed{(1,2)}", "1 < x < 2", 0, 1),
    (r"\boxed{1 < x < 2}", "(1,2)", 0, 0),
    (r"\boxed{13}", "12", 0, 0),
    (r"\boxed{x+1}", "x-1", 0, 0),
]


class NoPool:
    """Stands in for the pool where no process may be asked: nothing is equivalent."""

    def equivalent(self, pairs):
        return np.zeros(len(pairs), dtype=bool), Checks()


def check_table(table, pool=None):
    """Both rewards of every row."""
    for verifier, response, truth, strict, flexible in table:
        found = score(verifier, [response], [truth], pool or NoPool())
        got = (found.strict.tolist(), found.flexible.tolist())
        assert got == ([strict], [flexible]), f"{verifier}: {response!r} for {truth!r} scored {got}"


def as_math(table):
    return [("math", *row) for row in table]


def golden():
    if not GOLDEN.is_file():
        pytest.skip(f"no reference rewards: {GOLDEN} is absent (RFTLAB_GOLDEN names the folder)")
    return json.loads(GOLDEN.read_text())
