"""Run one child of the pool in llm/rewards/math_pool.py: it reads a pair of answers per line, compares it by
math-verify, and writes one character per line.

It is run as a script, so that it starts without the program that uses it, and imports nothing of this package. Answers
are parsed only by math-verify's parser of LaTeX, because its parser of plain expressions passes them to sympy's
`parse_expr`, which evaluates them as Python.
"""

import contextlib
import json
import logging
import os
import signal
import sys

EQUAL, DIFFERENT, FAILED, READY = "1", "0", "!", "ready"
MEMORY = 4 << 30
"""Limit of address space in bytes. An answer like 9^9^9^9 must fail here before it takes the machine's memory."""


def limit_memory() -> None:
    """Limit the memory of this process to MEMORY, where the system can."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def comparison():
    """Return the function (answer, truth) -> bool by which math-verify compares. It may raise, or run for ever."""
    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    latex = (LatexExtractionConfig(boxed_match_priority=0),)

    def read(text: str) -> list:
        # no timeout of math-verify's own: its alarm cannot interrupt one long operation on integers, the parent's kill
        # can
        return parse(f"\\boxed{{{text}}}", latex, parsing_timeout=None, raise_on_error=True)

    return lambda answer, truth: verify(read(truth), read(answer), timeout_seconds=None, raise_on_error=True)


def verdict(equal, answer: str, truth: str) -> str:
    """Return EQUAL, DIFFERENT, or FAILED where math-verify raised."""
    try:
        return EQUAL if equal(answer, truth) else DIFFERENT
    except Exception:
        return FAILED


def silence(stream: int) -> None:
    """Discard what a library prints to a stream, because nobody reads it as a reply."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def main(orphaned_after: int) -> None:
    """Answer pairs until the input ends. A process whose parent died ends `orphaned_after` seconds after it got its
    pair."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    silence(1)
    limit_memory()
    equal = comparison()
    if verdict(equal, "0.5", "\\frac{1}{2}") != EQUAL or verdict(equal, "1", "2") != DIFFERENT:
        sys.exit("math-verify gives wrong answers here")
    print(READY, file=replies)
    silence(2)  # not earlier, because the parent shows why a child does not start
    for line in sys.stdin:
        signal.alarm(orphaned_after)
        print(verdict(equal, *json.loads(line)), file=replies)
        signal.alarm(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
