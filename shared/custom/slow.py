"""Report custom functions that take long.

A thread that waits for a function cannot be interrupted. So a second thread measures how long it has waited, and warns
or calls what `on_hang` was given: the command line prints a line and ends the process, which loses no finished work.
Where an advantage in Python makes a run many times slower, a warning says so, once for each function.
"""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE, POLL = 30.0, 0.5
"""Seconds without a result before a function counts as hung, and seconds between two checks."""
ENOUGH, TIMES = 2.0, 10.0
"""Seconds inside a function, and the slowdown of a run by it, above which a warning is given."""
_began: dict[int, list[tuple[str, float]]] = {}
"""Functions that each thread waits for, with the times of their calls; nested calls in order, the innermost last."""
_do: Callable[[str], None] = warnings.warn
_looker: threading.Thread | None = None
_lock = threading.Lock()
_told: set[str] = set()


class _Inside(threading.local):
    """Seconds that this thread has spent inside custom functions."""

    seconds = 0.0


_inside = _Inside()


def on_hang(do: Callable[[str], None]) -> None:
    """Set the action for a function that does not return; it gets a line of text."""
    global _do
    _do = do


def hung(line: str) -> None:
    """Report a function that does not return, by the action of `on_hang`."""
    _do(line)


def enter(name: str) -> None:
    """Note that this thread calls a function."""
    global _looker
    _began.setdefault(threading.get_ident(), []).append((name, time.monotonic()))
    if _looker is None or not _looker.is_alive():
        with _lock:
            if _looker is None or not _looker.is_alive():
                _looker = threading.Thread(target=_look, name="custom functions", daemon=True)
                _looker.start()


def leave() -> float:
    """Note that the function of this thread has returned; return the seconds that it took."""
    calls = _began[threading.get_ident()]
    _, began = calls.pop()
    if not calls:
        del _began[threading.get_ident()]  # threads end, and new ones start
    seconds = time.monotonic() - began
    _inside.seconds += seconds
    return seconds


def _look() -> None:
    said: set[tuple[int, float]] = set()
    while True:
        time.sleep(POLL)
        waiting = {(thread, began): name for thread, calls in list(_began.items()) for name, began in tuple(calls)}
        said &= waiting.keys()
        for key in [key for key in waiting if time.monotonic() - key[1] > PATIENCE and key not in said]:
            said.add(key)
            _do(f"{waiting[key]}: no answer for {PATIENCE:.0f} seconds")


class Pace:
    """Time of a run, and the part of it inside its custom advantage. name: that advantage, if it is a Python function
    of one group; None if not."""

    def __init__(self, name: str | None):
        self.name, self.all, self.inside = name, 0.0, 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time of the block, in which this thread alone runs rounds."""
        began, inside = time.monotonic(), _inside.seconds
        yield
        self.all += time.monotonic() - began
        self.inside += _inside.seconds - inside
        times = self.all / max(self.all - self.inside, 1e-9)
        if self.name is not None and self.name not in _told and self.inside >= ENOUGH and times >= TIMES:
            _told.add(self.name)
            line = f"advantage {self.name} in Python makes this run {times:.0f} times as long"
            print(f"rftlab: {line}; batched=True or numba makes it fast", file=sys.stderr, flush=True)
