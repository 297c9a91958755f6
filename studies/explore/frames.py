"""When a page draws a chart that grows: each drawing costs the processors that compute what is drawn."""

from math import inf

FRAME = 0.25
"""Seconds between two drawings of a curve that grows."""


class Frames:
    """Says when to draw: at once where something else is shown, or more by now and FRAME seconds went by."""

    def __init__(self) -> None:
        self._kind: object = None
        self._size: object = None
        self._at = -inf

    def due(self, kind: object, size: object, now: float) -> bool:
        """Whether to draw. kind: what is shown; size: how much there is of it; now: seconds of a steady clock."""
        if kind == self._kind and (size == self._size or now < self._at + FRAME):
            return False
        self._kind, self._size, self._at = kind, size, now
        return True
