"""math-verify in its pool of processes: values in other words, hostile answers, and children that die, hang or do
not start."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from rftlab.llm.rewards import math_pool
from rftlab.llm.rewards.math_pool import LONGEST, Checks, MathPool
from rftlab.llm.rewards.math_worker import comparison, verdict
from rftlab.llm.rewards.verify import VERIFIERS, score
from rftlab.shared.plumbing.errors import UserError
from tests.support.estimators.vectors import ROOT
from tests.support.trainer.verdicts import MATH_TABLE, VALUE_TABLE, NoPool, as_math, check_table, golden


@pytest.fixture
def pool(request):
    """A pool of one process, or as many as a test asks for, with its timeout."""
    pytest.importorskip("math_verify", reason="math-verify is not installed (pip install '.[llm]' in rftlab's folder)")
    workers, timeout = getattr(request, "param", (1, 30))
    with MathPool(workers, timeout=timeout) as made:
        yield made


def pool_of(workers, timeout=30):
    return pytest.mark.parametrize("pool", [(workers, timeout)], indirect=True)


@pool_of(2)
def test_flexible_math_is_never_below_strict_and_sees_values(pool):
    cases = golden()["math_strict"][:400]
    scores = score("math", [c["response"] for c in cases], [c["ground_truth"] for c in cases], pool)
    assert (scores.flexible >= scores.strict).all() and scores.flexible.sum() > scores.strict.sum() + 10
    assert scores.checks.asked > 0 and scores.checks.failed == scores.checks.timed_out == 0


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
    """A megabyte costs a few passes over it, so the whole test takes well under a second; a quadratic rule would
    take hours."""
    for verifier in VERIFIERS:
        found = score(verifier, [LARGE[name]], ["5"], NoPool())
        assert found.strict.tolist() == found.flexible.tolist() == [0]


@pool_of(2, 2.0)
def test_hostile_answers_neither_hang_nor_crash_the_pool(pool, tmp_path):
    planted = tmp_path / "evaluated"
    code = f"\\boxed{{__import__('pathlib').Path('{planted}').touch()}}"
    in_words = code.replace("\\boxed{", "The answer is $").replace("}", "$")
    responses = [*SMALL.values(), *LARGE.values(), code, in_words, r"\boxed{6}", r"\boxed{5.0}"]
    scores = score("math", responses, ["5"] * len(responses), pool)
    # a deep nesting of braces is still a 5, where the machine is fast enough to say so
    right = {i for i, name in enumerate(SMALL) if name in ("deep braces", "deep brackets")}
    assert scores.strict.sum() == 0 and set(np.flatnonzero(scores.flexible)) - right == {len(responses) - 1}
    assert scores.checks.timed_out >= 3 and scores.checks.failed >= 2 and not planted.exists()
    assert score("math", [r"\boxed{5.0}"], ["5"], pool).flexible.tolist() == [1], "the pool must work on"


@pool_of(2)
def test_our_table_by_value(pool):
    check_table(as_math(MATH_TABLE + VALUE_TABLE), pool)
    with pytest.raises(AssertionError, match="scored"):
        check_table(as_math(VALUE_TABLE))


@pool_of(2)
def test_pairs_are_answered_in_order_and_asked_once(pool):
    assert not pool._children, "started before they are needed"
    equal, checks = pool.equivalent([(f"{i % 7}.0", "3") for i in range(50)])
    assert equal.tolist() == [i % 7 == 3 for i in range(50)]
    assert checks == Checks(asked=7, failed=0, timed_out=0) and len(pool._children) <= 2
    assert pool.equivalent([])[0].shape == (0,)


def test_pairs_that_were_asked_early_are_known_in_time(pool):
    pairs = [(f"{i}.0", "3") for i in range(6)]
    expected = pool.equivalent(pairs)
    pool.submit(pairs[:4])
    assert pool._busy(), "nobody has begun"
    while pool._busy():
        pool.submit([])
    assert set(pool._replies) == set(pairs[:4]) and not pool._queue
    equal, checks = pool.equivalent(pairs)
    assert equal.tolist() == expected[0].tolist() and checks == expected[1]
    pool.submit(pairs[:1])
    unwanted = "a pair that was asked early and never wanted is no part of another answer"
    assert pool.equivalent(pairs[1:2])[1] == Checks(asked=1), unwanted
    assert not pool._replies and not pool._queue and not pool._busy()


@pool_of(1, 1.0)
def test_a_child_that_dies_or_hangs_over_an_early_pair_is_replaced(pool):
    assert pool.equivalent([("1.0", "1")])[0].all()
    pool.submit([("9^{9^{9}}", "1"), ("2.0", "2")])
    time.sleep(1.5)
    pool.submit([])
    equal, checks = pool.equivalent([("9^{9^{9}}", "1"), ("2.0", "2")])
    assert equal.tolist() == [False, True] and checks == Checks(asked=2, timed_out=1)


@pool_of(1, 2.0)
def test_failures_and_timeouts_are_counted(pool):
    long, hangs = "1" * (LONGEST + 1), ("9^{9^{9}}", "1")
    equal, checks = pool.equivalent([("1.0", "1"), hangs, (long, "1"), ("1", long), hangs])
    assert equal.tolist() == [True, False, False, False, False] and checks == Checks(asked=4, failed=2, timed_out=1)
    assert checks + checks == Checks(asked=8, failed=4, timed_out=2)


def test_answers_never_reach_the_reader_that_evaluates(pool, monkeypatch):
    from math_verify import parse, parser

    reached = []
    monkeypatch.setattr(parser, "parse_expr_cached", lambda text: reached.append(text))
    equal = comparison()
    try:
        for text in ("1+1", ") 1+1", "9**9**9 ", "the answer: 1/2", "( 2*3", "\\frac{ 1+1 ", "\x00 1+1"):
            verdict(equal, text, "2")
        assert reached == []
        parse("so 1+1 ")
        assert reached == ["1+1 "], "the reader that this test watches is not the one that math-verify uses"
    finally:
        logging.disable(logging.NOTSET)


def test_the_pool_works_in_a_thread(pool):
    """Called directly in a thread, math-verify refuses to work."""
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(score, "math", [r"\boxed{12.0}", r"\boxed{13}"], ["12", "12"], pool).result()
    assert found.flexible.tolist() == [1, 0] and found.checks.failed == 0


def test_a_killed_child_costs_one_answer_and_is_replaced(pool):
    assert pool.equivalent([("1.0", "1")])[0].all()
    first = pool._children[0].process
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    equal, checks = pool.equivalent([("1.0", "1"), ("2.0", "2")])
    assert sorted(equal.tolist()) == [False, True] and checks == Checks(asked=2, failed=1, timed_out=0)
    children = [child.process for child in pool._children]
    pool.close()
    assert first not in children and all(process.poll() is not None for process in children)


def test_an_interrupted_call_leaves_no_stale_reply(pool, monkeypatch):
    assert pool.equivalent([("1.0", "1")])[0].all()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pool, "_heard", Mock(side_effect=KeyboardInterrupt))
        pool.equivalent([("1.0", "1")])
    assert pool.equivalent([("1.0", "2"), ("3.0", "3")])[0].tolist() == [False, True]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look up a process in")
def test_a_stuck_orphan_ends_by_itself(pool):
    script = (
        "import os, signal, time\n"
        "from rftlab.llm.rewards.math_pool import MathPool, _Worker\n"
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


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("import sys; sys.exit(3)", "it ended with status 3"),
        ("import sys; sys.exit('math-verify gives wrong answers here')", "math-verify gives wrong answers here"),
        ("import sys, time; print('hello', flush=True); time.sleep(60)", "it ended with status -9"),
        ("import time; time.sleep(60)", "it is not ready after 0.5 seconds"),
    ],
)
def test_a_child_that_cannot_start_is_one_line(script, reason, monkeypatch, tmp_path):
    (tmp_path / "math_worker.py").write_text(script)
    monkeypatch.setattr(math_pool, "__file__", str(tmp_path / "math_pool.py"))
    monkeypatch.setattr(math_pool, "START_LIMIT", 0.5 if "not ready" in reason else 60.0)
    said = f"math-verify does not start: {reason}; pip install '.[llm]' in rftlab's folder installs it"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"), MathPool(1) as pool:
        pool.equivalent([("1", "1.0")])


@pytest.mark.parametrize(
    ("options", "field"),
    [({"workers": 0}, "workers = 0"), ({"timeout": 0}, "timeout = 0"), ({"timeout": float("nan")}, "timeout = nan")],
)
def test_pool_options_are_checked(options, field):
    with pytest.raises(UserError, match=f"{field}; allowed: "):
        MathPool(**options)
