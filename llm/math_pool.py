"""math-verify in a pool of processes, with a time limit for every answer.

Not threads: its own time limits work by signals, which only the main thread of a process receives, and elsewhere every answer would count
as wrong. Not its own limits either: one long operation on integers is not interrupted by them. Here the parent watches the clock, kills a
stuck child and starts another. Children are fresh interpreters that run llm/math_worker.py, so nothing of the parent is imported again.
"""

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from llm.math_worker import DIFFERENT, EQUAL, READY
from shared.errors import UserError, check

LONGEST = 500
"""Characters of an answer that math-verify sees at most; a longer one fails. No answer in MATH has 200."""
START_LIMIT = 120.0
"""Seconds in which a child must be ready."""


class Checks(NamedTuple):
    """What the pool did for a list of answers; different pairs (answer, truth) count once."""

    asked: int = 0
    """Pairs compared, those that failed or ran out of time included."""
    failed: int = 0
    """Pairs on which math-verify raised or its process died, and answers that are too long for it."""
    timed_out: int = 0
    """Pairs that took longer than the limit."""

    def __add__(self, other: "Checks") -> "Checks":
        return Checks(*(a + b for a, b in zip(self, other, strict=True)))


class _Worker:
    """A child: its process, the pair that it works on, and when that must be done."""

    def __init__(self, timeout: float):
        command = [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py")), str(math.ceil(2 * timeout) + 1)]
        pipe = subprocess.PIPE
        # an own session: Ctrl-C reaches the parent alone, which then kills its children
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        self.timeout = timeout
        self.ready = False
        self.pair: tuple[str, str] | None = None
        self.deadline = time.monotonic() + START_LIMIT

    def give(self, pair: tuple[str, str]) -> None:
        self.pair, self.deadline = pair, time.monotonic() + self.timeout
        line = json.dumps(pair).encode() + b"\n"  # ASCII, whatever characters the pair has; shorter than a pipe's buffer
        with contextlib.suppress(BrokenPipeError):  # it died while idle; reading its reply says so
            self.process.stdin.write(line)

    def reply(self) -> str:
        """The next line of the child; empty where it died."""
        return self.process.stdout.readline().decode().strip()

    def reason(self) -> str:
        """The last that a child said which should be ready and is not; ends it."""
        self.process.kill()
        said = self.process.stderr.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(said) if line.strip()), f"it ended with status {self.process.wait()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


class MathPool:
    """Decides whether answers mean the same as the truth. A context manager; children start when they are first needed."""

    def __init__(self, workers: int | None = None, timeout: float = 5.0):
        """workers: processes at most, by default one for each core; timeout: seconds for one answer."""
        self.workers = (os.cpu_count() or 1) if workers is None else workers
        self.timeout = timeout
        check(self.workers >= 1, f"workers = {workers}; allowed: 1 or more")
        check(0 < timeout < math.inf, f"timeout = {timeout}; allowed: a positive number of seconds")
        self._children: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End every child. The pool can be used again, with new ones."""
        while self._children:
            self._children.pop().kill()

    def equivalent(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.ndarray, Checks]:
        """Whether the answer of each pair (answer, truth) means the truth, (n,) bool, and what that took.

        Never raises because of an answer: where math-verify fails or takes too long, the answer is not equivalent.
        Raises UserError where no child can start.
        """
        replies: dict[tuple[str, str], str | None] = dict.fromkeys(pairs)
        short = [pair for pair in replies if max(map(len, pair)) <= LONGEST]
        try:
            timed_out = self._ask(deque(short), replies)
        finally:
            for child in [child for child in self._children if child.pair is not None]:  # interrupted: its reply would come too late
                self._remove(child)
        failed = sum(reply not in (EQUAL, DIFFERENT) for reply in replies.values()) - timed_out
        return np.array([replies[pair] == EQUAL for pair in pairs], dtype=bool), Checks(len(replies), failed, timed_out)

    def _ask(self, queue: deque, replies: dict[tuple[str, str], str | None]) -> int:
        """Fill in the children's replies to the pairs of the queue; returns how many pairs ran out of time."""
        timed_out = 0
        while queue or any(child.pair is not None for child in self._children):
            self._employ(queue)
            for child, spoke in self._wait():
                if not child.ready:
                    self._greet(child, spoke)
                    continue
                reply = child.reply() if spoke else None
                timed_out += not spoke
                replies[child.pair] = reply
                child.pair = None
                if not reply:
                    self._remove(child)
        return timed_out

    def _employ(self, queue: deque) -> None:
        """Give every idle child a pair, and start children while there are more pairs than children on the way."""
        for child in self._children:
            if queue and child.ready and child.pair is None:
                child.give(queue.popleft())
        starting = sum(not child.ready for child in self._children)
        for _ in range(min(self.workers - len(self._children), len(queue) - starting)):
            self._children.append(_Worker(self.timeout))

    def _wait(self) -> list[tuple[_Worker, bool]]:
        """Children that spoke or died (True), or that are beyond their deadline (False); waits for the first."""
        with selectors.DefaultSelector() as selector:
            busy = [child for child in self._children if child.pair is not None or not child.ready]
            for child in busy:
                selector.register(child.process.stdout, selectors.EVENT_READ, child)
            now = time.monotonic()
            spoke = [key.data for key, _ in selector.select(max(0.0, min(child.deadline for child in busy) - now))]
        late = [child for child in busy if child not in spoke and child.deadline <= time.monotonic()]
        return [(child, True) for child in spoke] + [(child, False) for child in late]

    def _greet(self, child: _Worker, spoke: bool) -> None:
        """Take a child's first word. Raises UserError unless it is that it is ready."""
        child.ready = spoke and child.reply() == READY
        if not child.ready:
            reason = child.reason() if spoke else f"it is not ready after {START_LIMIT:g} seconds"
            self.close()
            raise UserError(f"math-verify does not start: {reason}; pip install '.[llm]' in rftlab's folder installs it")

    def _remove(self, child: _Worker) -> None:
        self._children.remove(child)
        child.kill()
