"""A time limit for a user's function, in this process.

In the main thread a signal interrupts it, which also ends a regular expression or an operation on large integers; the
function may use threads and processes of its own. Elsewhere, and where there are no such signals, it runs in a thread
that is left behind when its time is up.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from rftlab.shared.custom import slow

AGAIN = 0.5
"""Seconds after which a function that went on is interrupted once more."""
STUBBORN = 60
"""Interrupts after which a function that catches them all is given up."""


class OutOfTime(BaseException):
    """The time is up. No Exception, so that `except Exception` in a user's function does not keep it."""


def within(seconds: float, call: Callable[[], Any], name: str = "a function") -> Any:
    """Return what a call returns. Raises OutOfTime where it takes longer, and what it raises. A call that keeps
    catching OutOfTime never ends: `rftlab.shared.custom.slow` is told of it, by its name."""
    began = time.monotonic()
    in_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    returned = _interrupted(seconds, call, name) if in_main else _left_behind(seconds, call)
    if time.monotonic() - began > seconds:  # it had set an alarm of its own, which takes the place of ours
        raise OutOfTime
    return returned


def _interrupted(seconds: float, call: Callable[[], Any], name: str) -> Any:
    """Two ends, because the alarm may ring in the first one: whatever happens, none rings afterwards."""
    armed, rings = True, 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        if rings == STUBBORN:
            slow.hung(f"{name}: no answer after {seconds:g} s, and it catches every interrupt")
        if armed:
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        try:
            return call()
        finally:
            armed = False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _left_behind(seconds: float, call: Callable[[], Any]) -> Any:
    returned: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise OutOfTime
    if raised:
        raise raised[0]
    return returned[0]
