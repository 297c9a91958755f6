"""How far a command is: a bar on a terminal, elsewhere a line on standard error now and then, so that a log shows that
it lives."""

import sys
import time

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID

from rftlab.shared.plumbing.errors import plain

FIRST, EVERY = 10.0, 30.0
"""Seconds to the first line, and between lines."""


class Bar(Progress):
    """A bar of columns that vanishes at the end; lines where the console is no terminal; nothing where it is quiet."""

    def __init__(self, console: Console, quiet: bool, *columns: str | ProgressColumn):
        super().__init__(*columns, console=console, disable=quiet or not console.is_terminal, transient=True)
        self._lines = not quiet and not console.is_terminal
        self._began = time.monotonic()
        self._next = self._began + FIRST
        self._start: tuple[float, float] | None = None

    def update(self, task_id: TaskID, **fields) -> None:
        """As rich's, and a line where it is time for one."""
        super().update(task_id, **fields)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As rich's, and a line where it is time for one."""
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        now, task = time.monotonic(), self._tasks[task_id]
        part = task.completed / task.total if task.total else 0.0
        if self._start is None and part:
            self._start = now, part
        if not self._lines or now < self._next:
            return
        self._next = now + EVERY
        done = f"{100 * part:.0f}% after {now - self._began:.0f} s" if part else f"{now - self._began:.0f} s so far"
        print(f"rftlab: {done}{self._left(now, part)}: {plain(task.description)}", file=sys.stderr, flush=True)

    def _left(self, now: float, part: float) -> str:
        """How long the rest will take at the pace since the first step, before which code is compiled."""
        if self._start is None or part <= self._start[1]:
            return ""
        began, first = self._start
        return f", about {(now - began) / (part - first) * (1 - part):.0f} s left"
