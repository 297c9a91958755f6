"""A figure as plain data: panels, their series, and the numbers behind each mark.

studies/report/panels.py reads one from a drawn figure, studies/report/svg.py writes one into a page.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class MarkStyle:
    """How a mark is drawn."""

    colour: str
    dash: str = "-"
    """As matplotlib writes it: - -- : -., or "" for no line."""
    width: float = 1.5
    """Points."""
    marker: str = ""
    hollow: bool = False
    alpha: float = 1.0


@dataclass(frozen=True)
class DrawnSeries:
    """Marks that belong together. Places (n, 2) are fractions of the panel, from its lower left."""

    style: MarkStyle
    places: np.ndarray
    values: np.ndarray
    """What is drawn (n, 2), in the units of the axes."""
    facts: dict[str, str]
    band: np.ndarray | None = None
    """Places of the interval's ends (n, 2, 2), low before high; nan where there is none."""
    bounds: np.ndarray | None = None
    """The interval in the units of its axis (n, 2)."""
    along: int = 1
    """The axis that the interval lies along: 0 for x, 1 for y."""
    bars: bool = False
    """Whether intervals are bars at the marks, not a band."""

    @property
    def name(self) -> str:
        """What a reader calls it; "" where nothing is known."""
        return self.facts.get("name", "")


@dataclass(frozen=True)
class PlainShape:
    """A mark without numbers: a rule, a segment, an area."""

    style: MarkStyle
    places: np.ndarray
    facts: dict[str, str]
    filled: bool = False


@dataclass(frozen=True)
class Tick:
    """A place on an axis, a fraction of its length, and what stands there."""

    place: float
    text: str


@dataclass(frozen=True)
class AxisMarks:
    """An axis of a panel."""

    label: str
    ticks: tuple[Tick, ...]
    names: dict[float, str] = field(default_factory=dict)
    """By value, where an axis is one of names."""


@dataclass(frozen=True)
class ChartKey:
    """An entry of a legend."""

    text: str
    style: MarkStyle


@dataclass(frozen=True)
class ChartPanel:
    """One pair of axes."""

    title: str
    x: AxisMarks
    y: AxisMarks
    series: tuple[DrawnSeries, ...]
    shapes: tuple[PlainShape, ...]
    remarks: tuple[tuple[float, float, str], ...]
    facts: dict[str, str]
    keys: tuple[ChartKey, ...] = ()
    """Its own legend."""


@dataclass(frozen=True)
class Chart:
    """A figure as data."""

    panels: tuple[ChartPanel, ...]
    keys: tuple[ChartKey, ...]
    title: str = ""
    """Of the legend that they share."""
