"""Display the progress of a command: a bar with the time left, the latest result, and remarks."""

import math
import sys
import time
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from rftlab.shared.plumbing.errors import plain
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import StudyCallbacks
from rftlab.studies.data.runs.store import Stored

STARTING = "compiling and starting"
FIRST, EVERY = 10.0, 30.0
"""Seconds to the first line of progress, and between lines."""


LIVE = {
    "reward": "reward {:.3f}",
    "kl_ref": "KL {:.3g}",
    "entropy": "entropy {:.2f}",
    "response_length": "length {:.0f}",
    "zero_signal_fraction": "no signal {:.0%}",
    "tokens_per_second": "{:,.0f} tokens/s",
}
"""Text of the bar for each measurement of a round."""


def live_line(measured: dict[str, float]) -> str:
    """Return the measurements of a round as one line, without those that are missing or not finite."""
    parts = [(text, measured.get(name)) for name, text in LIVE.items()]
    return ", ".join(text.format(value) for text, value in parts if isinstance(value, float) and math.isfinite(value))


class Bar(Progress):
    """Progress bar that vanishes at the end. Without a terminal it prints a line on standard error now and then, so
    that a log shows that the command is alive; where it is quiet it prints nothing."""

    def __init__(self, console: Console, quiet: bool):
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        super().__init__(*columns, console=console, disable=quiet or not console.is_terminal, transient=True)
        self._lines = not quiet and not console.is_terminal
        self._began = time.monotonic()
        self._next = self._began + FIRST
        self._start: tuple[float, float] | None = None

    def update(self, task_id: TaskID, **fields) -> None:
        """Update the bar as rich does, and print a line of progress when one is due."""
        super().update(task_id, **fields)
        self._tell(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Advance the bar as rich does, and print a line of progress when one is due."""
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
        """Return words for the time left at the pace since the first step; code is compiled before it."""
        if self._start is None or part <= self._start[1]:
            return ""
        began, first = self._start
        return f", about {(now - began) / (part - first) * (1 - part):.0f} s left"


@contextmanager
def study_progress(console: Console, todo: list[RunSpec], quiet: bool):
    """Yield `StudyCallbacks` with a bar that counts estimated seconds of work; remarks are printed even without a
    bar."""
    with Bar(console, quiet or not todo) as bar:
        task = bar.add_task(STARTING, total=sum(point.cost for point in todo))
        left = {name: sum(point.pair == name for point in todo) for name in dict.fromkeys(point.pair for point in todo)}

        def finished(point: RunSpec, outcome: Stored) -> None:
            left[point.pair] -= 1
            value = outcome.curve.test_pass_at_1[-1]
            result = (
                f"diverged after {outcome.diverged_at} rounds"
                if outcome.diverged_at is not None
                else f"test Pass@1 {value:.3f}"
            )
            bar.update(task, description=f"{point.name}: {result}")
            if left[point.pair] == 0 and not quiet:
                console.print(f"[dim]{point.pair}: all runs finished")

        def advanced(seconds: float) -> None:
            if bar.tasks[0].description == STARTING:
                bar.update(task, description=todo[0].name if len(todo) == 1 else f"{len(todo)} runs")
            bar.advance(task, seconds)

        yield StudyCallbacks(
            finished,
            advanced,
            lambda text: bar.update(task, description=text),
            lambda text: console.print(text, style="yellow", markup=False),
        )


@contextmanager
def step_progress(console: Console, description: str, quiet: bool):
    """Yield a callable `step(done, total)` that moves a bar."""
    with Bar(console, quiet) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
