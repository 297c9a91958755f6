"""Reads a drawn figure as a chart (studies/report/chart.py).

A figure is drawn once, with matplotlib, for its files. The page shows the same figure as inline SVG, a picture a panel,
so that panels stack on a phone, follow the theme and tell their numbers (studies/report/svg.py). What is read here is
lines, error bars, bands, rules and remarks: what our figures are made of. Nothing is rendered, so it costs no layout.
"""

import re
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Annotation

from rftlab.studies.report.chart import AxisMarks, Chart, ChartKey, ChartPanel, DrawnSeries, MarkStyle, PlainShape, Tick

FACTS = ("pair", "experiment", "level", "split")
"""What a page can be filtered by."""
_NOTED: "WeakKeyDictionary[Artist, dict[str, str]]" = WeakKeyDictionary()
_POWERS = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_NO_NAME = ("_", "95%")


def note(artist: Artist, **facts: str) -> None:
    """Say what axes or a line are about: facts of `FACTS`, and `name`, what a reader calls a line."""
    _NOTED.setdefault(artist, {}).update(facts)


def chart_of(figure: Figure) -> Chart:
    """What a figure shows."""
    title, entries = _legend_of(figure.legends)
    shared = figure.get_supxlabel()
    panels = [_panel(ax, entries, shared) for ax in figure.axes if ax.axison]
    return Chart(tuple(panels), tuple(entries), title)


def plain_text(text: str) -> str:
    r"""A label without matplotlib's mathematics: 10⁻² of $\mathdefault{10^{-2}}$."""
    text = re.sub(r"\\mathdefault\{(.*)\}", r"\1", text)
    text = re.sub(r"\^\{([-−\d]+)\}", lambda found: found[1].translate(_POWERS), text)
    return re.sub(r"(?<!\\)\$", "", text).replace(r"\$", "$").replace(r"\times", "×")


def _legend_of(legends: list[Legend]) -> tuple[str, list[ChartKey]]:
    """Title and entries of legends."""
    entries = [
        ChartKey(plain_text(text.get_text()), _line_style(handle))
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        if isinstance(handle, Line2D)
    ]
    titles = [plain_text(legend.get_title().get_text()) for legend in legends]
    return next((title for title in titles if title not in ("", "None")), ""), list(dict.fromkeys(entries))


def _line_style(line: Line2D) -> MarkStyle:
    marker = str(line.get_marker())
    marker = "" if marker in ("None", " ") else marker
    dash = str(line.get_linestyle())
    hollow = str(line.get_markerfacecolor()).lower() in ("none", "white")
    colour = to_hex(line.get_color())
    return MarkStyle(colour, "" if dash in ("None", " ") else dash, line.get_linewidth(), marker, hollow, _alpha(line))


def _first_colour(colours: Any) -> str:
    """Of a collection, whose marks share one."""
    return to_hex(tuple(np.asarray(colours, dtype=float).reshape(-1, 4)[0]))


def _alpha(artist: Artist) -> float:
    known = artist.get_alpha()
    return 1.0 if known is None else float(known)


def _panel(ax: Axes, shown: list[ChartKey], shared: str) -> ChartPanel:
    own_legend = ax.get_legend()
    keys = _legend_of([own_legend])[1] if own_legend is not None else []
    entries = [*shown, *keys]
    bars = [bar for bar in ax.containers if isinstance(bar, ErrorbarContainer)]
    caps, sticks = {cap for bar in bars for cap in bar.lines[1]}, {part for bar in bars for part in bar.lines[2]}
    ends, areas = _bars_of(bars), [area for area in ax.collections if isinstance(area, PolyCollection)]
    own = [line for line in ax.lines if line not in caps and len(_points_of(line))]
    series = tuple(_series(ax, line, ends.get(line), areas, entries) for line in own if _is_series(ax, line))
    rules = [_rule(ax, line) for line in own if not _is_series(ax, line)]
    segments = [a for a in ax.collections if isinstance(a, LineCollection) and a not in sticks]
    shapes = [shape for area in areas for shape in _areas(ax, area)]
    shapes += [shape for lines in segments for shape in _segments(ax, lines)]
    facts = {name: text for name, text in _NOTED.get(ax, {}).items() if name in FACTS}
    title = plain_text(_title(ax) or _title(_top_of(ax)))
    labels = ax.get_xlabel() or _shared_label(ax, 0) or shared, ax.get_ylabel() or _shared_label(ax, 1)
    axes = _axis(ax, 0, labels[0]), _axis(ax, 1, labels[1])
    return ChartPanel(title, *axes, series, (*shapes, *rules), tuple(_remarks(ax)), facts, tuple(keys))


def _is_series(ax: Axes, line: Line2D) -> bool:
    """Whether a line shows numbers; one across the panel, which lies on one axis alone, is a rule."""
    return line.get_transform() is ax.transData or _line_style(line).marker != ""


def _title(ax: Axes) -> str:
    return ax.get_title(loc="left") or ax.get_title()


def _top_of(ax: Axes) -> Axes:
    """The axes at the top of the column, whose title stands for all below it."""
    place, figure = ax.get_subplotspec(), ax.get_figure()
    for other in figure.axes if figure is not None and place is not None else ():
        spot = other.get_subplotspec()
        if spot is not None and place is not None and spot.colspan == place.colspan:
            return other
    return ax


def _shared_label(ax: Axes, side: int) -> str:
    """The label of an axis (0 for x, 1 for y) that axes of the same column or row have for all of them."""
    place, figure = ax.get_subplotspec(), ax.get_figure()
    if place is None or figure is None:
        return ""
    spans = ("colspan", "rowspan")
    for other in figure.axes:
        spot = other.get_subplotspec()
        if spot is not None and getattr(spot, spans[side]) == getattr(place, spans[side]):
            label = (other.get_xlabel, other.get_ylabel)[side]()
            if label:
                return label
    return ""


def _points_of(line: Line2D) -> np.ndarray:
    """What a line was given (n, 2)."""
    return np.array(line.get_xydata(), dtype=float).reshape(-1, 2)


def _vertices(path: Path) -> np.ndarray:
    """Corners of a path (n, 2)."""
    return np.asarray(path.vertices, dtype=float).reshape(-1, 2)


def _fractions(ax: Axes, places: np.ndarray, transform: Any = None) -> np.ndarray:
    """Places (n, 2) as fractions of the panel."""
    if not len(places):
        return np.empty((0, 2))
    shown = (ax.transData if transform is None else transform).transform(np.asarray(places, dtype=float))
    return ax.transAxes.inverted().transform(shown)


def _bars_of(bars: list[ErrorbarContainer]) -> dict[Line2D, tuple[int, np.ndarray]]:
    """Of each line with error bars: the axis they lie along, and their ends (n, 2)."""
    found = {}
    for bar in bars:
        if bar.lines[0] is not None:
            last = bar.lines[2][-1]  # of bars along both axes those along y
            along = 1 if bar.has_yerr else 0
            ends = [own[:, along] if len(own) == 2 else [np.nan] * 2 for own in map(_vertices, last.get_paths())]
            found[bar.lines[0]] = (along, np.array(ends, dtype=float).reshape(-1, 2))
    return found


def _series(
    ax: Axes,
    line: Line2D,
    ends: tuple[int, np.ndarray] | None,
    areas: list[PolyCollection],
    entries: list[ChartKey],
) -> DrawnSeries:
    style, values = _line_style(line), _points_of(line)
    places = _fractions(ax, values, line.get_transform())
    if line.get_transform() is not ax.transData:
        values[:, 0] = np.nan  # it stands at the edge of the panel
    along, bounds = ends or (1, _band_of(areas, style.colour, values))
    band = None
    if bounds is not None and len(bounds) == len(values) and np.isfinite(bounds).any():
        sides = np.stack([values, values], axis=1)
        sides[:, :, along] = bounds
        band = _fractions(ax, sides.reshape(-1, 2)).reshape(-1, 2, 2)
    name = " · ".join(_names_of(style, entries)) or _own_label(ax, line)
    facts = {"name": name} | _NOTED.get(line, {})
    return DrawnSeries(
        style, places, values, facts, band, bounds if band is not None else None, along, ends is not None
    )


def _own_label(ax: Axes, line: Line2D) -> str:
    """The label of a line, or of the error bars that it belongs to."""
    bars = (bar for bar in ax.containers if isinstance(bar, ErrorbarContainer) and bar.lines[0] is line)
    label = str(next((bar.get_label() for bar in bars), line.get_label()))
    return "" if label.startswith(_NO_NAME) else plain_text(label)


def _band_of(areas: list[PolyCollection], colour: str, values: np.ndarray) -> np.ndarray | None:
    """Ends (n, 2) of the pale area that was drawn for a line: of its colour and over all its places. It is taken out
    of `areas`."""
    for area in areas:
        heights: dict[float, list[float]] = {}
        for path in area.get_paths():
            for x, y in _vertices(path):
                heights.setdefault(float(x), []).append(float(y))
        if _first_colour(area.get_facecolor()) == colour and heights and set(heights) <= set(values[:, 0].tolist()):
            areas.remove(area)
            none = [np.nan]
            return np.array([[min(heights.get(x, none)), max(heights.get(x, none))] for x in values[:, 0].tolist()])
    return None


def _names_of(style: MarkStyle, entries: list[ChartKey]) -> list[str]:
    """Entries of the legend that a line goes by: those of its colour, and those without colour of its dashes or
    marker."""
    named = [entry for entry in entries if not entry.text.startswith(_NO_NAME)]
    coloured = [
        entry.text for entry in named if entry.style.colour == style.colour and not _is_grey(entry.style.colour)
    ]
    grey = [
        entry.text
        for entry in named
        if _is_grey(entry.style.colour)
        and (
            (entry.style.marker, entry.style.hollow) == (style.marker, style.hollow)
            if entry.style.marker
            else style.dash and entry.style.dash == style.dash
        )
    ]
    return [*coloured[:1], *grey[:1]]


def _is_grey(colour: str) -> bool:
    return colour[1:3] == colour[3:5] == colour[5:7]


def _rule(ax: Axes, line: Line2D) -> PlainShape:
    places = _fractions(ax, _points_of(line), line.get_transform())
    return PlainShape(_line_style(line), places, _NOTED.get(line, {}))


def _segments(ax: Axes, lines: LineCollection) -> list[PlainShape]:
    style = MarkStyle(
        _first_colour(lines.get_color()),
        width=float(np.ravel(np.asarray(lines.get_linewidth()))[0]),
        alpha=_alpha(lines),
    )
    facts = _NOTED.get(lines, {})
    return [PlainShape(style, _fractions(ax, own), facts) for own in map(_vertices, lines.get_paths()) if len(own)]


def _areas(ax: Axes, area: PolyCollection) -> list[PlainShape]:
    style = MarkStyle(_first_colour(area.get_facecolor()), "", 0.0, alpha=_alpha(area))
    return [PlainShape(style, _fractions(ax, own), {}, filled=True) for own in map(_vertices, area.get_paths())]


def _remarks(ax: Axes) -> list[tuple[float, float, str]]:
    """Place, from the lower left, and text of the remarks in a panel."""
    found = []
    for text in ax.texts:
        at = np.array([text.xy if isinstance(text, Annotation) else text.get_position()], dtype=float)
        transform = ax.transData if isinstance(text, Annotation) else text.get_transform()
        ((x, y),) = _fractions(ax, at, transform)
        found.append((float(x), float(y), plain_text(text.get_text())))
    return found


def _axis(ax: Axes, side: int, label: str) -> AxisMarks:
    """Label and ticks of the x axis (0) or the y axis (1), also where the figure leaves them to a neighbour."""
    axis = (ax.xaxis, ax.yaxis)[side]
    low, high = sorted(axis.get_view_interval())
    formatter, at = axis.get_major_formatter(), np.asarray(axis.get_majorticklocs(), dtype=float)
    texts = [plain_text(text) for text in formatter.format_ticks(at.tolist())]
    inside = [(float(place), text) for place, text in zip(at, texts, strict=True) if low <= place <= high]
    points = np.zeros((len(inside), 2))
    points[:, side] = [place for place, _ in inside]
    points[:, 1 - side] = (ax.yaxis, ax.xaxis)[side].get_view_interval()[0]
    fractions = _fractions(ax, points)[:, side]
    ticks = tuple(Tick(float(place), text) for place, (_, text) in zip(fractions, inside, strict=True))
    return AxisMarks(plain_text(label), ticks, _place_names(inside))


def _place_names(ticks: list[tuple[float, str]]) -> dict[float, str]:
    """Names by place, where an axis counts 0, 1, 2, ... and says something else."""
    counted = [place for place, _ in ticks] == list(range(len(ticks)))
    return dict(ticks) if counted and any(text != f"{place:g}" for place, text in ticks) else {}
