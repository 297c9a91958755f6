"""Describe figures as plain data, in the units of their axes: panels, series with intervals, shapes, remarks and
legends.

A figure function returns a `Chart` and the table of what it shows. rftlab.studies.report.svg writes a chart into a
page, and rftlab.studies.report.draw writes it as PNG and SVG files. Both ask `resolve` for limits and ticks, so a page
and a file show the same axes.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns

Scale = Literal["linear", "log", "symlog"]
Share = Literal["none", "row", "column", "all"]
PALETTE: list[str] = sns.color_palette("colorblind", 10).as_hex()
GREY = "#555555"
DASHES = {"train": "--", "test": "-"}
LINEAR_BELOW = 0.01
"""A symlog axis is linear between minus and plus this value."""
_MARGIN = 0.05
"""Fraction of the data's range that an axis without limits adds at each end."""
_LARGEST = 1e100
"""Largest number that is drawn in its place, and inverse of the smallest on a logarithmic axis. Numbers beyond are
drawn at the edge, so that a range is finite."""
_POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class MarkStyle:
    """Style of a mark. dash: - -- : -. or "" for no line. width and size (of markers) are points."""

    colour: str = GREY
    dash: str = "-"
    width: float = 1.6
    marker: str = ""
    size: float = 4.0
    hollow: bool = False
    alpha: float = 1.0


def dots(colour: str) -> MarkStyle:
    """Return the style of filled dots without a line."""
    return MarkStyle(colour, "", marker="o")


def diamonds(colour: str = GREY) -> MarkStyle:
    """Return the style of published or measured values: hollow diamonds without a line."""
    return MarkStyle(colour, "", 1.2, "D", 6.5, hollow=True)


def bars(colour: str = GREY) -> MarkStyle:
    """Return the style of values before training: vertical bars without a line."""
    return MarkStyle(colour, "", 1.5, "|", 9.0)


def shades(count: int) -> list[str]:
    """Return `count` sequential colours, dark first, none too light to read."""
    return sns.color_palette("viridis", count + 1).as_hex()[:count]


def colours(count: int) -> list[str]:
    """Return `count` different colors: the palette, or shades where there are more than it has."""
    return PALETTE[:count] if count <= len(PALETTE) else shades(count)


@dataclass(frozen=True, eq=False)
class PlotSeries:
    """Series of marks that belong together: x and y of n numbers, kept as arrays (n,), nan where there is none.

    low, high: ends (n,) of an interval along y, or along x with `along` 0; nan where there is none. They are drawn as a
    band, or with `error_bars` as bars. facts: facts about the series, for a page's filters.
    """

    x: Any
    y: Any
    style: MarkStyle
    name: str = ""
    low: Any = None
    high: Any = None
    along: int = 1
    error_bars: bool = False
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        for name in ("x", "y", "low", "high"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, np.asarray(value, dtype=float).reshape(-1))


@dataclass(frozen=True, eq=False)
class Outline:
    """Line or, if filled, area through points (n, 2). Infinite coordinates mean the edge of the panel."""

    points: np.ndarray
    style: MarkStyle
    filled: bool = False
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "points", np.asarray(self.points, dtype=float).reshape(-1, 2))


def rule(y: float, style: MarkStyle | None = None) -> Outline:
    """Return a horizontal line across the panel."""
    return Outline(np.array([[-np.inf, y], [np.inf, y]]), style or MarkStyle(dash="--", width=1.0))


def rule_at(x: float, style: MarkStyle | None = None) -> Outline:
    """Return a vertical line across the panel."""
    return Outline(np.array([[x, -np.inf], [x, np.inf]]), style or MarkStyle(dash="--", width=1.0))


IDENTITY = Outline(np.array([[0.0, 0.0], [1.0, 1.0]]), MarkStyle(dash="--", width=1.0))
"""Diagonal where two rates are equal."""


class Remark(NamedTuple):
    """Text to the right of a place; infinite coordinates mean the edge of the panel. up: points to move it up."""

    x: float
    y: float
    text: str
    colour: str = GREY
    up: float = 0.0


@dataclass(frozen=True)
class PlotAxis:
    """Axis of a panel. low, high: its limits, from the data where None; low above high reverses the axis.

    ticks: texts by value; chosen from the limits where None. Values 0, 1, 2, ... with texts make an axis of names.
    """

    label: str = ""
    scale: Scale = "linear"
    low: float | None = None
    high: float | None = None
    ticks: Any = None


def names(label: str, texts: list[str], downward: bool = False) -> PlotAxis:
    """Return an axis with a name at each of 0, 1, 2, ...; downward: the first one on top."""
    ends = (-0.6, len(texts) - 0.4)
    low, high = ends[::-1] if downward else ends
    return PlotAxis(label, low=low, high=high, ticks=dict(enumerate(texts)))


def rates(label: str) -> PlotAxis:
    """Return an axis from 0 to 1."""
    return PlotAxis(label, low=0.0, high=1.0)


class LegendKey(NamedTuple):
    """Entry of a legend."""

    text: str
    style: MarkStyle


SPLIT_KEYS = [LegendKey(split, MarkStyle(dash=dash)) for split, dash in DASHES.items()]
"""Legend entries of lines that are dashed on train and solid on test."""


@dataclass(frozen=True)
class Panel:
    """Panel: one pair of axes. keys: a legend of its own beside it. facts: facts about the panel, for a page's
    filters."""

    title: str
    x: PlotAxis
    y: PlotAxis
    series: tuple[PlotSeries, ...] = ()
    shapes: tuple[Outline, ...] = ()
    remarks: tuple[Remark, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    keys: tuple[LegendKey, ...] = ()
    keys_title: str = ""


@dataclass(frozen=True)
class Chart:
    """Chart of panels row by row, None for an empty place, with a legend for all of them.

    size: width and height of the file in inches. widths, heights: relative sizes of columns and rows; equal if empty.
    share_x, share_y: which panels have the same limits.
    """

    panels: tuple[Panel | None, ...]
    size: tuple[float, float]
    columns: int = 1
    keys: tuple[LegendKey, ...] = ()
    title: str = ""
    widths: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    share_x: Share = "none"
    share_y: Share = "none"
    square: bool = False
    """Whether both axes of a panel have the same length."""

    @property
    def rows(self) -> int:
        """Number of rows of panels."""
        return -(-len(self.panels) // self.columns)


Drawn = tuple[Chart, pd.DataFrame]
"""Result of a figure function: the chart and a table of what it shows."""


class ResolvedAxis(NamedTuple):
    """Axis with its limits and ticks."""

    axis: PlotAxis
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    @property
    def names(self) -> dict[float, str]:
        """Texts by place where the ticks are names at 0, 1, 2, ...; else empty."""
        counted = [place for place, _ in self.ticks] == list(range(len(self.ticks)))
        return dict(self.ticks) if counted and any(text != f"{place:g}" for place, text in self.ticks) else {}

    def fractions(self, values: np.ndarray) -> np.ndarray:
        """Return values as fractions of the axis; infinite values are its ends."""
        ends = scaled(np.array([self.low, self.high]), self.axis.scale)
        places = (scaled(np.asarray(values, dtype=float), self.axis.scale) - ends[0]) / (ends[1] - ends[0])
        return np.where(np.isposinf(values), 1.0, np.where(np.isneginf(values), 0.0, places))


def scaled(values: np.ndarray, scale: Scale) -> np.ndarray:
    """Return values along a scale; nan where a logarithm has none."""
    values = np.clip(values, -_LARGEST, _LARGEST)
    if scale == "log":
        return np.log10(np.where(values > 0, np.maximum(values, 1 / _LARGEST), np.nan))
    if scale == "symlog":
        return np.sign(values) * np.log1p(np.abs(values) / LINEAR_BELOW)
    return values


def _unscaled(values: np.ndarray, scale: Scale) -> np.ndarray:
    if scale == "log":
        return 10.0**values
    if scale == "symlog":
        return np.sign(values) * LINEAR_BELOW * np.expm1(np.abs(values))
    return values


def resolve(chart: Chart) -> list[tuple[ResolvedAxis, ResolvedAxis] | None]:
    """Return the x and y axis of every panel, None for an empty place; the limits of shared axes contain the data of
    all their panels."""
    sides = []
    for side, share in enumerate((chart.share_x, chart.share_y)):
        groups: dict[int, list[int]] = {}
        for i, panel in enumerate(chart.panels):
            if panel is not None:
                place = {"row": i // chart.columns, "column": i % chart.columns, "all": 0, "none": i}[share]
                groups.setdefault(place, []).append(i)
        axes: dict[int, ResolvedAxis] = {}
        for members in groups.values():
            panels = [panel for i in members if (panel := chart.panels[i]) is not None]
            values = np.concatenate([_values(panel, side) for panel in panels])
            for i, panel in zip(members, panels, strict=True):
                axes[i] = _resolved((panel.x, panel.y)[side], values)
        sides.append(axes)
    return [None if panel is None else (sides[0][i], sides[1][i]) for i, panel in enumerate(chart.panels)]


def _values(panel: Panel, side: int) -> np.ndarray:
    """Return every finite number that an axis must contain."""
    parts = [np.empty(0)]
    for one in panel.series:
        parts.append((one.x, one.y)[side])
        if one.along == side:
            parts += [end for end in (one.low, one.high) if end is not None]
    parts += [shape.points[:, side] for shape in panel.shapes]
    values = np.concatenate(parts)
    return np.clip(values[np.isfinite(values)], -_LARGEST, _LARGEST)


def _resolved(axis: PlotAxis, values: np.ndarray) -> ResolvedAxis:
    places = scaled(values, axis.scale)
    places = places[np.isfinite(places)]
    first, last = (places.min(), places.max()) if len(places) else (0.0, 1.0)
    # equal values have no range; then the margin is a part of the value, or half a unit at 0
    slack = _MARGIN * (last - first) or _MARGIN * abs(first) or 0.5
    ends = _unscaled(np.array([first - slack, last + slack]), axis.scale)
    low = float(ends[0]) if axis.low is None else axis.low
    high = float(ends[1]) if axis.high is None else axis.high
    lowest, highest = min(low, high), max(low, high)
    known = _ticks(lowest, highest, axis.scale) if axis.ticks is None else axis.ticks
    shown = tuple((place, text) for place, text in known.items() if lowest <= place <= highest)
    return ResolvedAxis(axis, low, high, shown)


def _ticks(low: float, high: float, scale: Scale) -> dict[float, str]:
    """Return about five round values between two limits."""
    if scale == "log":
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        every = -(-len(decades) // 6)
        whole = {10.0**n: f"10{str(n).translate(_POWERS)}" for n in decades[::every] if low <= 10.0**n <= high}
        if len(whole) > 1:
            return whole
        return {v: f"{v:g}" for n in decades for m in (1, 2, 5) if low <= (v := float(f"{m}e{n}")) <= high}
    if scale == "symlog":
        top = int(np.ceil(np.log10(max(high, LINEAR_BELOW))))
        return {0.0: "0"} | {10.0**n: f"10{str(n).translate(_POWERS)}" for n in range(-2, top + 1)}
    span = high - low
    step = float(10.0 ** np.floor(np.log10(span / 5))) if span > 0 else 1.0
    # the first round step that needs at most five intervals
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= 5.5)
    values = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step
    return {float(f"{v:.12g}") + 0.0: _short(float(f"{v:.12g}") + 0.0) for v in values}


def _short(value: float) -> str:
    """Return the text of a tick's number, without an exponent from 1e-4 to a million."""
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-4:
        return f"{value:g}"
    return f"{value:,.0f}".replace(",", " ") if value == int(value) and abs(value) >= 1e4 else f"{value:g}"


def lengthened(keys: list[LegendKey], numbers: pd.DataFrame, interval: MarkStyle) -> tuple[LegendKey, ...]:
    """Return legend entries and, where the drawn numbers have them, one for intervals and one for published values."""
    more = [LegendKey("95% interval over seeds", interval)] if numbers["low"].notna().any() else []
    if "published" in numbers and numbers["published"].notna().any():
        more.append(LegendKey("published", diamonds()))
    return (*keys, *more)


BAND = MarkStyle(width=8.0, alpha=0.3)
"""Style of an interval's band in a legend."""
WHISKER = bars()
"""Style of an error bar in a legend."""


def error_bars(series: PlotSeries, low: Any, high: Any, along: int = 1) -> PlotSeries:
    """Return a series with intervals as bars."""
    return replace(series, low=low, high=high, along=along, error_bars=True)
