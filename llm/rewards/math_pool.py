"""math-verify in a pool of processes, with a time limit for every answer.

Not threads: its own time limits work by signals, which only the main thread of a process receives, and elsewhere every
answer would count as wrong. Not its own limits either: one long operation on integers is not interrupted by them. Here
the parent watches the clock, kills a stuck child and starts another. Children are fresh interpreters that run
llm/rewards/math_worker.py, so nothing of the parent is imported again.
"""

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from rftlab.llm.rewards.math_worker import DIFFERENT, EQUAL, READY
from rftlab.shared.plumbing.errors import UserError, check

LONGEST = 500
"""Characters of an answer that math-verify sees at most; a longer one fails. No answer in MATH has 200."""
NONE, LATE = "", "late"
"""In place of a reply: there is none, which is what a child that died says; and it took too long."""
START_LIMIT = 120.0
"""Seconds in which a child must be ready."""


@dataclass(frozen=True)
class Checks:
    """The work of the pool for a list of answers; different pairs (answer, truth) count once."""

    asked: int = 0
    """Pairs compared, those that failed or ran out of time included."""
    failed: int = 0
    """Pairs on which math-verify raised or its process died, and answers that are too long for it."""
    timed_out: int = 0
    """Pairs that took longer than the limit."""

    def __add__(self, other: "Checks") -> "Checks":
        return Checks(self.asked + other.asked, self.failed + other.failed, self.timed_out + other.timed_out)


class _Worker:
    """A child: its process, the pair that it works on, and when that must be done."""

    def __init__(self, timeout: float):
        command = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("math_worker.py")),
            str(math.ceil(2 * timeout) + 1),
        ]
        pipe = subprocess.PIPE
        # an own session: Ctrl-C reaches the parent alone, which then kills its children
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        assert process.stdin and process.stdout and process.stderr  # pipes, as asked for
        self.process, self.stdin, self.stdout, self.stderr = process, process.stdin, process.stdout, process.stderr
        self.timeout = timeout
        self.ready = False
        self.pair: tuple[str, str] | None = None
        self.deadline = time.monotonic() + START_LIMIT

    def give(self, pair: tuple[str, str]) -> None:
        self.pair, self.deadline = pair, time.monotonic() + self.timeout
        line = json.dumps(pair).encode() + b"\n"  # ASCII, whatever the pair has; shorter than a pipe's buffer
        with contextlib.suppress(BrokenPipeError):  # it died while idle; reading its reply says so
            self.stdin.write(line)

    def reply(self) -> str:
        """The next line of the child; empty where it died."""
        return self.stdout.readline().decode().strip()

    def reason(self) -> str:
        """The last that a child said which should be ready and is not; ends it."""
        self.process.kill()
        said = self.stderr.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(said) if line.strip()), f"it ended with status {self.process.wait()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


class MathPool:
    """Decides whether answers mean the same as the truth. A context manager; children start when they are first
    needed."""

    def __init__(self, workers: int | None = None, timeout: float = 5.0):
        """workers: processes at most, by default one for each core; timeout: seconds for one answer."""
        self.workers = (os.cpu_count() or 1) if workers is None else workers
        self.timeout = timeout
        check(self.workers >= 1, f"workers = {workers}; allowed: 1 or more")
        check(0 < timeout < math.inf, f"timeout = {timeout}; allowed: a positive number of seconds")
        self._children: list[_Worker] = []
        self._queue: deque[tuple[str, str]] = deque()
        """Pairs that no child works on yet."""
        self._replies: dict[tuple[str, str], str] = {}
        """Of the pairs asked; NONE where there is none yet, or never."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End every child and forget what was asked. The pool can be used again, with new ones."""
        self._queue.clear()
        self._replies.clear()
        while self._children:
            self._children.pop().kill()

    def submit(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Have children begin with pairs that `equivalent` will be asked for, and do not wait. They go on at the next
        call, with or without pairs.

        Raises UserError where no child can start.
        """
        self._enqueue(pairs)
        if self._queue or self._busy():
            self._receive(wait=False)
            self._employ()

    def equivalent(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.ndarray, Checks]:
        """Whether the answer of each pair (answer, truth) means the truth, (n,) bool, and what that took.

        Never raises because of an answer: where math-verify fails or takes too long, the answer is not equivalent.
        Raises UserError where no child can start.
        """
        try:
            self._enqueue(pairs)
            while self._queue or self._busy():
                self._employ()
                self._receive(wait=True)
            replies = {pair: self._replies[pair] for pair in pairs}
        finally:
            self._forget()
        counts = Counter(replies.values())
        checks = Checks(len(replies), len(replies) - counts[EQUAL] - counts[DIFFERENT] - counts[LATE], counts[LATE])
        return np.array([replies[pair] == EQUAL for pair in pairs], dtype=bool), checks

    def _enqueue(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Put pairs that are new, and not too long, into the queue."""
        for pair in pairs:
            if pair not in self._replies and max(map(len, pair)) <= LONGEST:
                self._queue.append(pair)
            self._replies.setdefault(pair, NONE)

    def _forget(self) -> None:
        """Be as new, but for children that are ready for more; one that works, because this was interrupted, would
        reply too late."""
        self._queue.clear()
        self._replies.clear()
        for child in [child for child in self._children if child.pair is not None]:
            self._remove(child)

    def _busy(self) -> bool:
        return any(child.pair is not None for child in self._children)

    def _receive(self, wait: bool) -> None:
        """Take what children say, and let go of those beyond their deadline; `wait` for the first of either."""
        for child, spoke in self._heard(wait):
            if child.pair is None:  # it works on nothing, so it was to become ready
                self._greet(child, spoke)
                continue
            reply = child.reply() if spoke else LATE
            self._replies[child.pair], child.pair = reply, None
            if reply in (NONE, LATE):
                self._remove(child)

    def _employ(self) -> None:
        """Give every idle child a pair, and start children while there are more pairs than children on the way."""
        for child in self._children:
            if self._queue and child.ready and child.pair is None:
                child.give(self._queue.popleft())
        starting = sum(not child.ready for child in self._children)
        for _ in range(min(self.workers - len(self._children), len(self._queue) - starting)):
            self._children.append(_Worker(self.timeout))

    def _heard(self, wait: bool) -> list[tuple[_Worker, bool]]:
        """Children that spoke or died (True), or that are beyond their deadline (False)."""
        with selectors.DefaultSelector() as selector:
            busy = [child for child in self._children if child.pair is not None or not child.ready]
            for child in busy:
                selector.register(child.stdout, selectors.EVENT_READ, child)
            left = min((child.deadline for child in busy), default=0.0) - time.monotonic()
            spoke = [key.data for key, _ in selector.select(max(0.0, left) if wait else 0.0)]
        # A reply that is there counts, also beyond the deadline.
        late = [child for child in busy if child not in spoke and child.deadline <= time.monotonic()]
        return [(child, True) for child in spoke] + [(child, False) for child in late]

    def _greet(self, child: _Worker, spoke: bool) -> None:
        """Take a child's first word. Raises UserError unless it is that it is ready."""
        child.ready = spoke and child.reply() == READY
        if not child.ready:
            reason = child.reason() if spoke else f"it is not ready after {START_LIMIT:g} seconds"
            self.close()
            raise UserError(
                f"math-verify does not start: {reason}; pip install '.[llm]' in rftlab's folder installs it"
            )

    def _remove(self, child: _Worker) -> None:
        self._children.remove(child)
        child.kill()
