"""Verifiers: reference rewards, a table of our own that wrong rules must fail, hostile answers, and the pool of processes."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from llm import answers, math_pool, math_text
from llm.math_pool import Checks, MathPool
from llm.math_text import normalised
from llm.verify import VERIFIERS, score
from shared.errors import UserError
from tests.vectors import ROOT, WHOLE

NO_MATH_VERIFY = importlib.util.find_spec("math_verify") is None
needs_math_verify = pytest.mark.skipif(NO_MATH_VERIFY, reason="math-verify is not installed (pip install 'rftlab[llm]')")
GOLDEN = WHOLE / "verifier_public.json"
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
]
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
    (r"\fbox{12}", "12", 0, 1),
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


def test_gsm8k_agrees_with_every_reference_reward():
    cases = golden()["gsm8k_strict"]
    found = score("gsm8k", [c["response"] for c in cases], [c["ground_truth"] for c in cases], NoPool())
    assert [c for c, reward in zip(cases, found.strict, strict=True) if c["reward"] != reward] == []
    assert [c for c, reward in zip(cases, found.flexible, strict=True) if c["flexible_reward"] != reward] == []
    assert len(cases) >= 100 and 0 < found.strict.mean() < 1


def test_math_agrees_with_every_reference_reward():
    cases = golden()["math_strict"]
    found = score("math", [c["response"] for c in cases], [c["ground_truth"] for c in cases], NoPool())
    assert [c for c, reward in zip(cases, found.strict, strict=True) if c["reward"] != reward] == []
    assert len(cases) >= 100 and 0 < found.strict.mean() < 1


@needs_math_verify
def test_flexible_math_is_never_below_strict_and_sees_values():
    cases = golden()["math_strict"][:400]
    with MathPool(2, timeout=30) as pool:
        found = score("math", [c["response"] for c in cases], [c["ground_truth"] for c in cases], pool)
    assert (found.flexible >= found.strict).all() and found.flexible.sum() > found.strict.sum() + 10
    assert found.checks.asked > 0 and found.checks.failed == found.checks.timed_out == 0


def test_our_table_by_text():
    check_table(TEXT_TABLE)
    check_table(as_math(MATH_TABLE))


WRONG = {
    "a wider window": (answers, "GSM8K_WINDOW", 10**6),
    "a narrower window": (answers, "GSM8K_WINDOW", 299),
    "marker without its space": (answers, "_MARKED", re.compile(r"####\s*(-?[0-9.,]+)")),
    "no sign": (answers, "_MARKED", re.compile(r"#### ([0-9.,]+)")),
    "integers alone": (answers, "_NUMBER", re.compile(r"-?[0-9]+")),
    "any digit": (answers, "_MARKED", re.compile(r"#### (-?[\d.,]+)")),
    "first, not last": (answers, "_last", lambda found: found[0] if found else None),
    "space after the marker": (answers, "_MARKED_INTEGER", re.compile(r"####\s*(-?[0-9]+)")),
    "no spelling": (math_text, "_SPELLINGS", ()),
    "no fractions": (math_text, "_braced_fractions", lambda text: text),
    "no roots": (math_text, "_braced_roots", lambda text: text),
    "no slash": (math_text, "_slash_as_fraction", lambda text: text),
    "no units": (math_text, "_without_unit", lambda text: text),
    "text as it stands": (math_text, "normalised", lambda text: text),
    "a box need not be closed": (answers, "closing", lambda text, start: len(text)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_refused(wrong, monkeypatch):
    module, name, value = WRONG[wrong]
    monkeypatch.setattr(module, name, value)
    with pytest.raises(AssertionError, match="scored"):
        check_table(TEXT_TABLE + as_math(MATH_TABLE))


@pytest.mark.parametrize("text", [r"1\text{ a}\text{ b}", r"2\sqrt", r"\frac", r"\frac{1}{2}\frac"])
def test_what_cannot_be_normalised_is_compared_as_it_stands(text):
    with pytest.raises(ValueError):
        normalised(text)
    assert score("math", [f"\\boxed{{{text}}}"] * 2, [text, text + " "], NoPool()).strict.tolist() == [1, 0]


def test_unknown_verifiers_and_unequal_lists_are_errors():
    with pytest.raises(UserError, match="verifier = 'vibes' is unknown; allowed: gsm8k, arithmetic, math"):
        score("vibes", [], [], NoPool())
    with pytest.raises(UserError, match="2 responses and 1 truths"):
        score("math", ["", ""], ["1"], NoPool())
    for verifier in VERIFIERS:
        assert score(verifier, [], [], MathPool(1)).strict.shape == (0,)


# --- hostile answers ---

MEGABYTE = 1_000_000
LARGE = {
    "braces": "{" * MEGABYTE,
    "a box of braces": r"\boxed{" + "{" * MEGABYTE,
    "a closed box of braces": r"\boxed{" + "{" * (MEGABYTE // 2) + "}" * (MEGABYTE // 2) + "}",
    "open boxes": r"\boxed{" * (MEGABYTE // 7),
    "nested boxes": r"\boxed{1" * (MEGABYTE // 8) + "}" * (MEGABYTE // 8),
    "boxes with a space": r"\boxed " * (MEGABYTE // 7),
    "fractions": r"\boxed{" + r"\frac" * (MEGABYTE // 5) + "}",
    "roots": r"\boxed{" + r"\sqrt3" * (MEGABYTE // 6) + "}",
    "dollars": "$" * MEGABYTE,
    "open formulas": r"\(" * (MEGABYTE // 2),
    "answers": "answer" * (MEGABYTE // 6),
    "digits": "#### " + "9" * MEGABYTE,
    "boxed digits": r"\boxed{" + "9" * MEGABYTE + "/7}",
    "commas": "1," * (MEGABYTE // 2),
    "markers": "#### " * (MEGABYTE // 5),
    "null bytes": "\x00" * MEGABYTE,
    "surrogates": "\ud800" * MEGABYTE,
    "spaces": " " * MEGABYTE,
}
SMALL = {
    "a tower": r"\boxed{9**9**9}",
    "a tower in LaTeX": r"\boxed{9^{9^{9}}}",
    "an enormous power": r"\boxed{9999^{99999999}}",
    "a factorial": r"\boxed{99999999!}",
    "deep braces": r"\boxed{" + "{" * 220 + "5" + "}" * 220 + "}",
    "deep brackets": r"\boxed{" + "(" * 240 + "5" + ")" * 240 + "}",
    "unbalanced": r"\boxed{\left(\frac{1}{2}}",
    "a null byte": "\\boxed{\x005}",
    "right to left": "\\boxed{\u202e5\u202c1}",
    "half a surrogate": "\\boxed{\ud800}",
    "two lines": "\\boxed{5\n5}",
    "500 digits": r"\boxed{" + "9" * 499 + "}",
}


@pytest.mark.parametrize("name", LARGE)
def test_large_hostile_answers_need_no_process(name):
    """A megabyte costs a few passes over it, so the whole test takes well under a second; a quadratic rule would take hours."""
    for verifier in VERIFIERS:
        found = score(verifier, [LARGE[name]], ["5"], NoPool())
        assert found.strict.tolist() == found.flexible.tolist() == [0]


@needs_math_verify
def test_hostile_answers_neither_hang_nor_crash_the_pool(tmp_path):
    planted = tmp_path / "evaluated"
    code = f"\\boxed{{__import__('pathlib').Path('{planted}').touch()}}"
    responses = [*SMALL.values(), *LARGE.values(), code, code.replace("\\boxed{", "The answer is $").replace("}", "$"), r"\boxed{5.0}", r"\boxed{6}"]
    with MathPool(2, timeout=1.0) as pool:
        found = score("math", responses, ["5"] * len(responses), pool)
        assert found.strict.sum() == 0
        # a deep nesting of braces is still a 5, where the machine is fast enough to say so
        right = {i for i, response in enumerate(responses) if response in (SMALL["deep braces"], SMALL["deep brackets"])}
        assert set(np.flatnonzero(found.flexible)) - right == {len(responses) - 2}
        assert found.checks.timed_out >= 3 and found.checks.failed >= 2
        assert score("math", [r"\boxed{5.0}"], ["5"], pool).flexible.tolist() == [1], "the pool must work on"
    assert not planted.exists()


# --- the pool ---


@needs_math_verify
def test_our_table_by_value():
    with MathPool(2, timeout=30) as pool:
        check_table(as_math(MATH_TABLE + VALUE_TABLE), pool)
    with pytest.raises(AssertionError, match="scored"):
        check_table(as_math(VALUE_TABLE))


@needs_math_verify
def test_pairs_are_answered_in_order_and_asked_once():
    pairs = [(f"{i % 7}.0", "3") for i in range(50)]
    with MathPool(2, timeout=30) as pool:
        assert not pool._children, "started before they are needed"
        equal, checks = pool.equivalent(pairs)
        assert equal.tolist() == [i % 7 == 3 for i in range(50)]
        assert checks == Checks(asked=7, failed=0, timed_out=0) and len(pool._children) <= 2
        assert pool.equivalent([])[0].shape == (0,)


@needs_math_verify
def test_a_killed_child_costs_one_answer_and_is_replaced():
    with MathPool(1, timeout=30) as pool:
        assert pool.equivalent([("1.0", "1")])[0].all()
        first = pool._children[0].process
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        equal, checks = pool.equivalent([("1.0", "1"), ("2.0", "2")])
        assert sorted(equal.tolist()) == [False, True] and checks == Checks(asked=2, failed=1, timed_out=0)
        children = [child.process for child in pool._children]
    assert first not in children and all(process.poll() is not None for process in children)


@needs_math_verify
def test_an_interrupted_call_leaves_no_stale_reply(monkeypatch):
    with MathPool(1, timeout=30) as pool:
        assert pool.equivalent([("1.0", "1")])[0].all()
        monkeypatch.setattr(pool, "_wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pool.equivalent([("1.0", "1")])
        monkeypatch.undo()
        assert pool.equivalent([("1.0", "2"), ("3.0", "3")])[0].tolist() == [False, True]


@needs_math_verify
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look up a process in")
def test_a_stuck_orphan_ends_by_itself():
    script = (
        "import os, signal, time\n"
        "from llm.math_pool import MathPool, _Worker\n"
        "child = _Worker(0.5)\n"
        "assert child.reply() == 'ready'\n"
        "child.give(('9^{9^{9}}', '1'))\n"
        "print(child.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    orphan = int(done.stdout)
    for _ in range(300):
        if not alive(orphan):
            return
        time.sleep(0.1)
    os.kill(orphan, signal.SIGKILL)
    pytest.fail("the orphan ran for 30 seconds")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody collects does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_that_cannot_start_is_one_line(monkeypatch, tmp_path):
    broken = tmp_path / "math_pool.py"
    (tmp_path / "math_worker.py").write_text("import no_such_package\n")
    monkeypatch.setattr(math_pool, "__file__", str(broken))
    with pytest.raises(UserError, match=r"^math-verify does not start: ModuleNotFoundError: No module named 'no_such_package'; pip install 'rftlab\[llm\]'"):
        MathPool(1).equivalent([("1", "1.0")])


@pytest.mark.parametrize(("options", "field"), [({"workers": 0}, "workers = 0"), ({"timeout": 0}, "timeout = 0"), ({"timeout": float("nan")}, "timeout = nan")])
def test_pool_options_are_checked(options, field):
    with pytest.raises(UserError, match=f"{field}; allowed: "):
        MathPool(**options)
