"""How much longer a run takes by an advantage in Python that is asked about one group after another. Where that is
much, a line says so, once for each function."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.custom import OwnAdvantage
from rftlab.shared.custom.functions import function_of, is_compiled, seconds_inside

ENOUGH, TIMES = 2.0, 10.0
"""Seconds inside a function, and how many times as long as without them a run takes, from which on it is said."""
_said: set[str] = set()


class Pace:
    """Time of a run: all of it, and the part inside its advantage where that is a function to be told of."""

    def __init__(self, spec: Advantage):
        known = function_of(spec) if isinstance(spec, OwnAdvantage) else None
        one_by_one = known is not None and not known.batched and not is_compiled(known.function)
        self.name = known.name if known is not None and one_by_one else None
        self.all, self.inside = 0.0, 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Rounds are done in here, by this thread alone."""
        began, inside = time.monotonic(), seconds_inside()
        yield
        self.all += time.monotonic() - began
        self.inside += seconds_inside() - inside
        if self.name is not None and self.inside >= ENOUGH and self.name not in _said:
            self._tell(self.name)

    def _tell(self, name: str) -> None:
        times = self.all / max(self.all - self.inside, 1e-9)
        if times >= TIMES:
            _said.add(name)
            line = f"advantage {name} in Python makes this run {times:.0f} times as long"
            print(f"rftlab: {line}; batched=True or numba makes it fast", file=sys.stderr, flush=True)
