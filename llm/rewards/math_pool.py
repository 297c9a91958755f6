"""Run math-verify in a pool of processes, with a time limit for every answer.

Threads are not used, because its time limits work by signals, which only the main thread of a process receives;
elsewhere every answer would count as wrong. Its own limits are not used either, because they do not interrupt one long
operation on integers. Here the parent watches the clock, kills a stuck child and starts another. Children are fresh
interpreters that run llm/rewards/math_worker.py, so nothing of the parent is imported again.
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
"""Largest number of characters of an answer for math-verify; a longer one fails. No answer in MATH has 200."""
NONE, LATE = "", "late"
"""Values in place of a reply: there is none yet, or the child died; and the pair took too long."""
START_LIMIT = 120.0
"""Seconds in which a child must be ready."""


@dataclass(frozen=True)
class Checks:
    """Work of the pool for a list of answers. Equal pairs (answer, truth) count once."""

    asked: int = 0
    """Number of pairs compared, including those that failed or ran out of time."""
    failed: int = 0
    """Number of pairs on which math-verify raised or its process died, or whose answer is too long."""
    timed_out: int = 0
    """Number of pairs that took longer than the limit."""

    def __add__(self, other: "Checks") -> "Checks":
        return Checks(self.asked + other.asked, self.failed + other.failed, self.timed_out + other.timed_out)


class _Worker:
    """A child of the pool: its process, the pair that it works on, and the deadline of that."""

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
        with contextlib.suppress(BrokenPipeError):  # it died while idle, which is seen when its reply is read
            self.stdin.write(line)

    def reply(self) -> str:
        """Return the next line of the child; empty where it died."""
        return self.stdout.readline().decode().strip()

    def reason(self) -> str:
        """End a child that should be ready and is not, and return the last line that it wrote."""
        self.process.kill()
        said = self.stderr.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(said) if line.strip()), f"it ended with status {self.process.wait()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


class MathPool:
    """Pool that decides whether answers mean the same as the truth, a context manager. Children start when they are
    first needed."""

    def __init__(self, workers: int | None = None, timeout: float = 5.0):
        """Set up the pool; workers: largest number of processes, by default one for each core; timeout: seconds for one
        answer."""
        self.workers = (os.cpu_count() or 1) if workers is None else workers
        self.timeout = timeout
        check(self.workers >= 1, f"workers = {workers}; allowed: 1 or more")
        check(0 < timeout < math.inf, f"timeout = {timeout}; allowed: a positive number of seconds")
        self._children: list[_Worker] = []
        self._queue: deque[tuple[str, str]] = deque()
        """Pairs on which no child works yet."""
        self._replies: dict[tuple[str, str], str] = {}
        """Replies for the submitted pairs; NONE where there is none yet, or never."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End every child and forget all pairs. The pool can be used again, with new children."""
        self._queue.clear()
        self._replies.clear()
        while self._children:
            self._children.pop().kill()

    def submit(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Let children begin with pairs that `equivalent` will need, and do not wait. They go on at the next call, with
        or without pairs.

        Raises UserError where no child can start.
        """
        self._enqueue(pairs)
        if self._queue or self._busy():
            self._receive(wait=False)
            self._employ()

    def equivalent(self, pairs: Sequence[tuple[str, str]]) -> tuple[np.ndarray, Checks]:
        """Return whether the answer of each pair (answer, truth) means the truth, (n,) bool, and the counts of the
        checks.

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
        """Add pairs to the queue that are new and not too long."""
        for pair in pairs:
            if pair not in self._replies and max(map(len, pair)) <= LONGEST:
                self._queue.append(pair)
            self._replies.setdefault(pair, NONE)

    def _forget(self) -> None:
        """Reset the pool, except for children that are ready for more. One that still works, after an interrupt, would
        reply too late."""
        self._queue.clear()
        self._replies.clear()
        for child in [child for child in self._children if child.pair is not None]:
            self._remove(child)

    def _busy(self) -> bool:
        return any(child.pair is not None for child in self._children)

    def _receive(self, wait: bool) -> None:
        """Read the replies of children, and remove those beyond their deadline; `wait` for the first of either."""
        for child, spoke in self._heard(wait):
            if child.pair is None:  # it works on no pair, so this is its first reply
                self._greet(child, spoke)
                continue
            reply = child.reply() if spoke else LATE
            self._replies[child.pair], child.pair = reply, None
            if reply in (NONE, LATE):
                self._remove(child)

    def _employ(self) -> None:
        """Give every idle child a pair, and start children while more pairs wait than children are starting."""
        for child in self._children:
            if self._queue and child.ready and child.pair is None:
                child.give(self._queue.popleft())
        starting = sum(not child.ready for child in self._children)
        for _ in range(min(self.workers - len(self._children), len(self._queue) - starting)):
            self._children.append(_Worker(self.timeout))

    def _heard(self, wait: bool) -> list[tuple[_Worker, bool]]:
        """Return children that wrote or died (True), or that are beyond their deadline (False)."""
        with selectors.DefaultSelector() as selector:
            busy = [child for child in self._children if child.pair is not None or not child.ready]
            for child in busy:
                selector.register(child.stdout, selectors.EVENT_READ, child)
            left = min((child.deadline for child in busy), default=0.0) - time.monotonic()
            spoke = [key.data for key, _ in selector.select(max(0.0, left) if wait else 0.0)]
        # A reply that has arrived counts, also beyond the deadline.
        late = [child for child in busy if child not in spoke and child.deadline <= time.monotonic()]
        return [(child, True) for child in spoke] + [(child, False) for child in late]

    def _greet(self, child: _Worker, spoke: bool) -> None:
        """Read a child's first line. Raises UserError unless it says that the child is ready."""
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
