"""Functions of the user's that do not come back.

Nothing can be raised in a thread that waits for one. So a thread beside it looks how long it has waited, and warns, or
does what `on_hang` was given: the command line says a line and ends the process, which loses no finished work.
"""

import threading
import time
import warnings
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds without an answer."""
_POLL = 0.5
_began: dict[int, list[tuple[str, float]]] = {}
"""By thread: what it waits for, and since when; several where a function calls another, the innermost last."""
_do: Callable[[str], None] = warnings.warn
_looker: threading.Thread | None = None
_lock = threading.Lock()


def on_hang(do: Callable[[str], None]) -> None:
    """What to do where a function does not come back; it is given a line."""
    global _do
    _do = do


def hung(line: str) -> None:
    """Do it: a function does not come back, as the line says."""
    _do(line)


def enter(name: str) -> None:
    """This thread calls a function."""
    _began.setdefault(threading.get_ident(), []).append((name, time.monotonic()))
    if _looker is None or not _looker.is_alive():
        _start()


def leave() -> float:
    """The function came back; returns the seconds that it took."""
    calls = _began[threading.get_ident()]
    _, began = calls.pop()
    if not calls:
        del _began[threading.get_ident()]  # threads come and go
    return time.monotonic() - began


def _start() -> None:
    global _looker
    with _lock:
        if _looker is None or not _looker.is_alive():
            _looker = threading.Thread(target=_look, name="own functions", daemon=True)
            _looker.start()


def _look() -> None:
    said: set[tuple[int, float]] = set()
    while True:
        time.sleep(_POLL)
        waiting = {(thread, began): name for thread, calls in list(_began.items()) for name, began in tuple(calls)}
        said &= waiting.keys()
        for key in [key for key in waiting if time.monotonic() - key[1] > PATIENCE and key not in said]:
            said.add(key)
            _do(f"{waiting[key]}: no answer for {PATIENCE:.0f} seconds")
