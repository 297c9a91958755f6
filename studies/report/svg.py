"""Write a chart as inline SVG for a page: real text, colours for light and dark pages, and the numbers of each mark.

A panel is a picture of its own, so that panels wrap on a narrow screen. Each series carries `data-v`, rows [left, top,
x, y, low, high] in the picture's units and in those of the axes, which page.js shows under the pointer; without scripts
the picture is the same. Every text is escaped here.
"""

import colorsys
import json
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from rftlab.studies.report.chart import (
    Chart,
    LegendKey,
    MarkStyle,
    Outline,
    Panel,
    PlotSeries,
    Remark,
    ResolvedAxis,
    resolve,
)

WIDTH, HEIGHT, ROW = 360, 196, 17
"""Width and height of a panel and height of a row of names, in the panel's units: pixels where it is 360 pixels
wide."""
_TOP, _RIGHT, _LETTER, _MAX_LABEL = 9, 12, 5.9, 24
_PALE = 0.62
"""Least lightness of colours on a dark page."""
MAX_POINTS = 12_000
"""Largest number of points of a chart. A chart with more draws every second, third ... point of a line; the files have
all."""
_DASHES = {"--": "5 3", ":": "1.5 2.5", "-.": "6 2 1.5 2"}
_SHAPES = {
    "D": "m0-4.2l4.2 4.2-4.2 4.2-4.2-4.2z",
    "s": "m-3-3h6v6h-6z",
    "v": "m-3.6-2.6h7.2l-3.6 6.2z",
    "^": "m-3.6 2.6h7.2l-3.6-6.2z",
    "|": "m0-5v10",
    "_": "m-5 0h10",
    "x": "m-3-3l6 6m-6 0l6-6",
    "+": "m-4 0h8m-4-4v8",
}
_OPEN = ("|", "_", "x", "+")


def chart_html(chart: Chart) -> Markup:
    """Return the legend and panels of a chart as HTML."""
    shown = [(panel, axes) for panel, axes in zip(chart.panels, resolve(chart), strict=True) if panel and axes]
    total = sum(len(one.x) for panel, _ in shown for one in panel.series)
    # rounded up, so that the whole chart stays below the limit
    step = max(1, -(-total // MAX_POINTS))
    panels = Markup("").join(_panel(panel, *axes, step) for panel, axes in shown)
    return Markup('<div class="chart n{}">{}<div class="panels">{}</div></div>').format(
        min(len(shown), 5), _keys(chart.keys, chart.title), panels
    )


def _keys(keys: tuple[LegendKey, ...], title: str = "") -> Markup:
    if not keys:
        return Markup("")
    first = Markup("<li><b>{}</b></li>").format(title) if title else Markup("")
    return Markup('<ul class="keys">{}{}</ul>').format(first, Markup("").join(map(_key, keys)))


def _key(key: LegendKey) -> Markup:
    style = key.style
    place = np.array([[2.0, 7.0], [20.0, 7.0]])
    line = _stroke(_points(place), style) if style.dash else Markup("")
    marker = _markers(np.array([[11.0, 7.0]]), style) if style.marker else Markup("")
    swatch = Markup('<svg width="22" height="14" aria-hidden="true"{}>{}{}</svg>').format(_ink(style), line, marker)
    return Markup("<li>{}{}</li>").format(swatch, key.text)


def _panel(panel: Panel, x: ResolvedAxis, y: ResolvedAxis, step: int) -> Markup:
    height: float = max(HEIGHT, ROW * len(y.names) + 60) if y.names else HEIGHT
    left = (18 if y.axis.label else 4) + 8 + min(_label_width(y), _MAX_LABEL * _LETTER)
    turned = sum(len(text) * _LETTER + 8 for _, text in x.ticks) > WIDTH - left - _RIGHT
    height += _label_width(x) * 0.62 - 6 if turned else 0
    bottom = height - (34 if x.axis.label else 20) - (_label_width(x) * 0.62 if turned else 0)
    box = (left, _TOP, WIDTH - left - _RIGHT, bottom - _TOP)
    place = _Place(x, y, box)
    label = ": ".join(filter(None, (panel.title, f"{y.axis.label or x.axis.label} by {x.axis.label or 'design'}")))
    inside = Markup("").join(
        (
            *_axes(x, y, box, height, turned),
            *(_shape(shape, place) for shape in panel.shapes),
            *(_series(one, place, step) for one in panel.series),
            *(_remark(remark, place) for remark in panel.remarks),
        )
    )
    return Markup(
        '<div class="panel"{}>{}<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}" data-x="{}" '
        'data-y="{}">{}</svg>{}</div>'
    ).format(
        _data(panel.facts),
        Markup('<p class="ptitle">{}</p>').format(panel.title) if panel.title else "",
        WIDTH,
        round(height),
        label,
        x.axis.label,
        y.axis.label,
        inside,
        _keys(panel.keys, panel.keys_title),
    )


class _Place(NamedTuple):
    """Mapping from the numbers of a panel to places in its picture."""

    x: ResolvedAxis
    y: ResolvedAxis
    box: tuple

    def pixels(self, x: np.ndarray, y: np.ndarray, slack: float = 0.02) -> np.ndarray:
        """Return places (n, 2) in the picture's units; points outside of the panel are put at its edge."""
        left, top, width, tall = self.box
        across, up = (np.clip(a.fractions(v), -slack, 1 + slack) for a, v in ((self.x, x), (self.y, y)))
        return np.stack([left + across * width, top + (1 - up) * tall], axis=-1)


def _label_width(axis: ResolvedAxis) -> float:
    return max((min(len(text), _MAX_LABEL) for _, text in axis.ticks), default=0) * _LETTER


def _data(facts: dict[str, str]) -> Markup:
    return Markup("").join(
        Markup(' data-{}="{}"').format(name, text) for name, text in facts.items() if name != "name" and text
    )


def _axes(x_axis: ResolvedAxis, y_axis: ResolvedAxis, box: tuple, height: float, turned: bool) -> list[Markup]:
    left, top, width, tall = box
    places = [axis.fractions(np.array([place for place, _ in axis.ticks])) for axis in (x_axis, y_axis)]
    x_at = [(round(left + at * width, 1), text) for at, (_, text) in zip(places[0].tolist(), x_axis.ticks, strict=True)]
    y_at = [(round(top + (1 - at) * tall, 1), t) for at, (_, t) in zip(places[1].tolist(), y_axis.ticks, strict=True)]
    grid = "".join(f"M{x} {top}v{tall:.1f}" for x, _ in x_at)
    grid += "" if y_axis.names else "".join(f"M{left:.1f} {y}h{width:.1f}" for y, _ in y_at)
    parts = [
        Markup('<path class="grid" d="{}"/><path class="frame" d="M{:.1f} {}v{:.1f}h{:.1f}"/>').format(
            grid, left, top, tall, width
        )
    ]
    foot = round(top + tall + 13, 1)
    for x, text in x_at:
        turn = Markup(' transform="rotate(-38 {0} {1})" class="end"').format(x + 4, foot - 3) if turned else Markup("")
        parts.append(_text(x + (4 if turned else 0), foot - (3 if turned else 0), text, turn))
    parts += [_text(round(left - 5, 1), y + 4, text, Markup(' class="end"')) for y, text in y_at]
    middle = round(left + width / 2, 1)
    if x_axis.axis.label:
        parts.append(_text(middle, height - 4, x_axis.axis.label, Markup(' class="axis"')))
    if y_axis.axis.label:
        at = round(top + tall / 2, 1)
        parts.append(_text(11, at, y_axis.axis.label, Markup(' class="axis" transform="rotate(-90 11 {})"').format(at)))
    return parts


def _text(x: float, y: float, text: str, more: Markup) -> Markup:
    """Return a label in one line. A long one is cut in its middle, because the ends of names differ, and its title has
    it all."""
    room = 44 if "axis" in more else _MAX_LABEL
    first = " · ".join(text.split("\n")) if len(text) < 200 else text[:200]
    shown = first if len(first) <= room else f"{first[: room // 2]}…{first[1 - room + room // 2 :]}"
    whole = Markup("<title>{}</title>").format(text[:400]) if shown != text else Markup("")
    return Markup('<text x="{}" y="{}"{}>{}{}</text>').format(round(x, 1), round(y, 1), more, shown, whole)


def _remark(remark: Remark, place: _Place) -> Markup:
    ((x, y),) = place.pixels(np.array([remark.x]), np.array([remark.y]), 0)
    left, top, width, _ = place.box
    class_ = "remark end" if x > left + 0.7 * width else "remark"
    shift = -5 if class_ != "remark" else 5
    at = max(y - remark.up - (0 if np.isfinite(remark.y) else -14), top + 8)
    return _text(x + shift, at, remark.text, Markup(' class="{}"').format(class_))


def _points(pixels: np.ndarray) -> str:
    """Return the path of a line through points, broken where one is not finite."""
    parts, pen = [], "M"
    for x, y in pixels:
        known = isfinite(x) and isfinite(y)
        if known:
            parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = " " if known else "M"
    return "".join(parts)


def shade(colour: str) -> tuple[str, str]:
    """Return a colour for a light page and for a dark one."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    pale = colorsys.hls_to_rgb(hue, max(light, _PALE), saturation)
    return colour, "#" + "".join(f"{round(255 * part):02x}" for part in pale)


def _ink(style: MarkStyle) -> Markup:
    return Markup(' style="color:{0};color:light-dark({0},{1})"').format(*shade(style.colour))


def _stroke(path: str, style: MarkStyle) -> Markup:
    dash = Markup(' stroke-dasharray="{}"').format(_DASHES[style.dash]) if style.dash in _DASHES else ""
    faint = Markup(' opacity="{}"').format(style.alpha) if style.alpha < 1 else ""
    return Markup('<path class="line" d="{}" stroke-width="{}"{}{}/>').format(path, round(style.width, 1), dash, faint)


def _markers(pixels: np.ndarray, style: MarkStyle) -> Markup:
    shape = _SHAPES.get(style.marker, "h0")
    path = "".join(f"M{x:.1f} {y:.1f}{shape}" for x, y in pixels if isfinite(x) and isfinite(y))
    kind = "dot" if shape == "h0" else "open" if style.hollow or style.marker in _OPEN else "mark"
    return Markup('<path class="{}" d="{}"/>').format(kind, path) if path else Markup("")


def _shape(shape: Outline, place: _Place) -> Markup:
    path = _points(place.pixels(shape.points[:, 0], shape.points[:, 1], 0))
    inside = (
        Markup('<path class="area" opacity="{}" d="{}z"/>').format(shape.style.alpha, path)
        if shape.filled
        else _stroke(path, shape.style)
    )
    return Markup("<g{}{}>{}</g>").format(_data(shape.facts), _ink(shape.style), inside)


def _series(one: PlotSeries, place: _Place, step: int) -> Markup:
    n = len(one.x)
    at = np.unique(np.append(np.arange(0, n, step), n - 1)) if n else np.arange(0)  # every step-th place, and the last
    pixels = place.pixels(one.x[at], one.y[at])
    parts = []
    if one.low is not None and one.high is not None and np.isfinite(one.low).any():
        sides = [(end[at], one.y[at]) if one.along == 0 else (one.x[at], end[at]) for end in (one.low, one.high)]
        ends = np.stack([place.pixels(*side, 0) for side in sides], axis=1)
        parts.append(_bars(ends, one.along) if one.error_bars else _band(ends))
    if one.style.dash and len(pixels) > 1:
        parts.append(_stroke(_points(pixels), one.style))
    if one.style.marker or len(pixels) == 1:
        parts.append(_markers(pixels, one.style))
    return Markup('<g class="s" data-n="{}"{}{} data-a="{}" data-v="{}">{}</g>').format(
        one.name,
        _data(one.facts),
        _ink(one.style),
        one.along,
        json.dumps(_rows(one, place, pixels, at), separators=(",", ":"), ensure_ascii=False),
        Markup("").join(parts),
    )


def _bars(ends: np.ndarray, along: int) -> Markup:
    cap = "m-2.5 0h5" if along else "m0-2.5v5"
    path = "".join(
        f"M{low[0]:.1f} {low[1]:.1f}L{high[0]:.1f} {high[1]:.1f}{cap}M{low[0]:.1f} {low[1]:.1f}{cap}"
        for low, high in ends
        if np.isfinite(low).all() and np.isfinite(high).all()
    )
    return Markup('<path class="bars" d="{}"/>').format(path)


def _band(ends: np.ndarray) -> Markup:
    known = ends[np.isfinite(ends).all(axis=(1, 2))]
    outline = np.concatenate([known[:, 0], known[::-1, 1]])
    return Markup('<path class="band" d="{}z"/>').format(_points(outline)) if len(known) > 1 else Markup("")


def _rows(one: PlotSeries, place: _Place, pixels: np.ndarray, at: np.ndarray) -> list[list[Any]]:
    """Return the values of a series that page.js shows."""
    rows = []
    for (left, top), i in zip(pixels.tolist(), at.tolist(), strict=True):
        if isfinite(left) and isfinite(top):
            ends = [] if one.low is None or one.high is None else [_short(one.low[i]), _short(one.high[i])]
            rows.append([round(left, 1), round(top, 1), _named(place.x, one.x[i]), _named(place.y, one.y[i]), *ends])
    return rows


def _named(axis: ResolvedAxis, value: float) -> str | float | int | None:
    """Return the name of a value on its axis, or the value; marks that share a place share its name."""
    return axis.names.get(round(value), _short(value)) if axis.names and isfinite(value) else _short(value)


def _short(value: float) -> float | int | None:
    """Return a number with five digits as it is shown; None where there is none."""
    if not isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
