"""Custom functions that take long.

Nothing can be raised in a thread that waits for one that does not come back. So a thread beside it looks how long it
has waited, and warns, or does what `on_hang` was given: the command line says a line and ends the process, which loses
no finished work. Where an advantage in Python makes a run many times as long, a line says so, once for each function.
"""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE, POLL = 30.0, 0.5
"""Seconds without an answer; seconds between two looks."""
ENOUGH, TIMES = 2.0, 10.0
"""Seconds inside a function, and how many times as long as without them a run takes, from which on it is said."""
_began: dict[int, list[tuple[str, float]]] = {}
"""By thread: what it waits for, and since when; several where a function calls another, the innermost last."""
_do: Callable[[str], None] = warnings.warn
_looker: threading.Thread | None = None
_lock = threading.Lock()
_told: set[str] = set()


class _Inside(threading.local):
    """Seconds that this thread has spent inside functions so far."""

    seconds = 0.0


_inside = _Inside()


def on_hang(do: Callable[[str], None]) -> None:
    """The action for a function that does not come back; it gets a line of text."""
    global _do
    _do = do


def hung(line: str) -> None:
    """Do it: a function does not come back, as the line says."""
    _do(line)


def enter(name: str) -> None:
    """This thread calls a function."""
    global _looker
    _began.setdefault(threading.get_ident(), []).append((name, time.monotonic()))
    if _looker is None or not _looker.is_alive():
        with _lock:
            if _looker is None or not _looker.is_alive():
                _looker = threading.Thread(target=_look, name="custom functions", daemon=True)
                _looker.start()


def leave() -> float:
    """The function came back; returns the seconds that it took."""
    calls = _began[threading.get_ident()]
    _, began = calls.pop()
    if not calls:
        del _began[threading.get_ident()]  # threads come and go
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
    """Time of a run: all of it, and the part inside its advantage where that is a Python function which is asked about
    one group after another (`name`)."""

    def __init__(self, name: str | None):
        self.name, self.all, self.inside = name, 0.0, 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Rounds are done in here, by this thread alone."""
        began, inside = time.monotonic(), _inside.seconds
        yield
        self.all += time.monotonic() - began
        self.inside += _inside.seconds - inside
        times = self.all / max(self.all - self.inside, 1e-9)
        if self.name is not None and self.name not in _told and self.inside >= ENOUGH and times >= TIMES:
            _told.add(self.name)
            line = f"advantage {self.name} in Python makes this run {times:.0f} times as long"
            print(f"rftlab: {line}; batched=True or numba makes it fast", file=sys.stderr, flush=True)
