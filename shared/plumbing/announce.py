"""A line on standard error before code of ours is compiled: that takes seconds to a minute, in which nothing else is
to be seen."""

import sys
from pathlib import Path

from rftlab.shared.plumbing.numba_parts import event

PURPOSES = {
    "rftlab.sim.round.general": "the simulator's general round",
    "rftlab.sim": "the simulator",
    "rftlab.shared": "the estimators",
}
"""What compiled functions are for, by the beginning of their module's name; the longest that fits."""


def purpose_of(module: str) -> str | None:
    """What the functions of a module are for; None where it is not ours."""
    return next(
        (purpose for start, purpose in PURPOSES.items() if module == start or module.startswith(start + ".")), None
    )


class Announcer(event.Listener):
    """Says once for each purpose that code is compiled. numba tells it of no function that it finds in its cache."""

    def __init__(self, cache: Path | None):
        self.cache, self.inside = cache, 0
        self.said: set[str] = set()

    def on_start(self, event):
        """A compilation begins; one within another is a part of it."""
        self.inside += 1
        purpose = purpose_of(event.data["dispatcher"].py_func.__module__)
        if self.inside > 1 or purpose is None or purpose in self.said:
            return
        self.said.add(purpose)
        kept = (
            f"once, and kept in {self.cache}"
            if self.cache
            else "in every process, because the compile cache cannot be written (rftlab dev doctor)"
        )
        print(f"rftlab: compiling {purpose} for this processor: up to a minute, {kept}", file=sys.stderr, flush=True)

    def on_end(self, event):
        """A compilation is over."""
        self.inside -= 1
