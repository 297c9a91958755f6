"""A chart as inline SVG for a page: real text, colours for light and dark, and the numbers of each mark in reach.

A panel is a picture of its own, so that panels wrap on a narrow screen. Each series carries `data-v`, rows [left, top,
x, y, low, high] in the picture's units and in those of the axes, which page.js shows under the pointer; without scripts
the picture is the same. Every text is escaped here.
"""

import colorsys
import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np
from markupsafe import Markup

from rftlab.studies.report.chart import AxisMarks, Chart, ChartKey, ChartPanel, DrawnSeries, MarkStyle, PlainShape

WIDTH, HEIGHT, ROW = 360, 196, 17
"""Of a panel, in its own units, which are pixels where it has 360 of them; and of a line of names."""
_TOP, _RIGHT, _LETTER, _MAX_LABEL = 9, 12, 5.9, 24
_PALE = 0.62
"""Lightness that colours have at least on a dark page."""
MAX_POINTS = 12_000
"""Of a chart; where there are more, lines keep every second, third ... point, and the files have all."""
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


def svg_of(chart: Chart) -> Markup:
    """Legend and panels of a chart as HTML."""
    total = sum(len(one.places) for panel in chart.panels for one in panel.series)
    step = max(1, -(-total // MAX_POINTS))
    panels = Markup("").join(_panel(panel, step) for panel in chart.panels)
    return Markup('<div class="chart n{}">{}<div class="panels">{}</div></div>').format(
        min(len(chart.panels), 5), _keys(chart.keys, chart.title), panels
    )


def _keys(keys: tuple[ChartKey, ...], title: str = "") -> Markup:
    if not keys:
        return Markup("")
    first = Markup("<li><b>{}</b></li>").format(title) if title else Markup("")
    return Markup('<ul class="keys">{}{}</ul>').format(first, Markup("").join(map(_key, keys)))


def _key(key: ChartKey) -> Markup:
    style = key.style
    place = np.array([[2.0, 7.0], [20.0, 7.0]])
    line = _stroke(_points(place), style) if style.dash else Markup("")
    marker = _markers(np.array([[11.0, 7.0]]), style) if style.marker else Markup("")
    swatch = Markup('<svg width="22" height="14" aria-hidden="true"{}>{}{}</svg>').format(_ink(style), line, marker)
    return Markup("<li>{}{}</li>").format(swatch, key.text)


def _panel(panel: ChartPanel, step: int) -> Markup:
    names = panel.y.names
    height: float = max(HEIGHT, ROW * len(names) + 60) if names else HEIGHT
    left = _left(panel.y)
    turned = _turned(panel.x, WIDTH - left - _RIGHT)
    height += _label_width(panel.x.ticks) * 0.62 - 6 if turned else 0
    bottom = height - (34 if panel.x.label else 20) - (_label_width(panel.x.ticks) * 0.62 if turned else 0)
    box = (left, _TOP, WIDTH - left - _RIGHT, bottom - _TOP)
    label = ": ".join(filter(None, (panel.title, f"{panel.y.label or panel.x.label} by {panel.x.label or 'design'}")))
    inside = Markup("").join(
        (
            *_axes(panel, box, height, turned),
            *(_shape(shape, box) for shape in panel.shapes),
            *(_series(one, panel, box, step) for one in panel.series),
            *(_remark(x, y, text, box) for x, y, text in panel.remarks),
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
        panel.x.label,
        panel.y.label,
        inside,
        _keys(panel.keys),
    )


def _left(axis: AxisMarks) -> float:
    return (18 if axis.label else 4) + 8 + min(_label_width(axis.ticks), _MAX_LABEL * _LETTER)


def _label_width(ticks: Iterable) -> float:
    return max((min(len(tick.text), _MAX_LABEL) for tick in ticks), default=0) * _LETTER


def _turned(axis: AxisMarks, width: float) -> bool:
    return sum(len(tick.text) * _LETTER + 8 for tick in axis.ticks) > width


def _data(facts: dict[str, str]) -> Markup:
    return Markup("").join(
        Markup(' data-{}="{}"').format(name, text) for name, text in facts.items() if name != "name" and text
    )


def _axes(panel: ChartPanel, box: tuple, height: float, turned: bool) -> list[Markup]:
    left, top, width, tall = box
    x_at = [(round(left + tick.place * width, 1), tick.text) for tick in panel.x.ticks]
    y_at = [(round(top + (1 - tick.place) * tall, 1), tick.text) for tick in panel.y.ticks]
    grid = "".join(f"M{x} {top}v{tall:.1f}" for x, _ in x_at)
    grid += "" if panel.y.names else "".join(f"M{left:.1f} {y}h{width:.1f}" for y, _ in y_at)
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
    if panel.x.label:
        parts.append(_text(middle, height - 4, panel.x.label, Markup(' class="axis"')))
    if panel.y.label:
        at = round(top + tall / 2, 1)
        parts.append(_text(11, at, panel.y.label, Markup(' class="axis" transform="rotate(-90 11 {})"').format(at)))
    return parts


def _text(x: float, y: float, text: str, more: Markup) -> Markup:
    """A label in one line; a long one is cut, and whole in its title."""
    room = 44 if "axis" in more else _MAX_LABEL
    first = " · ".join(text.split("\n")) if len(text) < 200 else text[:200]
    shown = first if len(first) <= room else first[: room - 1] + "…"
    whole = Markup("<title>{}</title>").format(text[:400]) if shown != text else Markup("")
    return Markup('<text x="{}" y="{}"{}>{}{}</text>').format(round(x, 1), round(y, 1), more, shown, whole)


def _remark(x: float, y: float, text: str, box: tuple) -> Markup:
    left, top, width, tall = box
    return _text(left + x * width + 5, top + (1 - y) * tall - 4, text, Markup(' class="remark"'))


def _pixels(places: np.ndarray, box: tuple, slack: float = 0.02) -> np.ndarray:
    """Places in the picture's units; what lies outside of the panel stands at its edge."""
    left, top, width, tall = box
    kept = np.clip(places, -slack, 1 + slack)
    return np.stack([left + kept[..., 0] * width, top + (1 - kept[..., 1]) * tall], axis=-1)


def _points(pixels: np.ndarray) -> str:
    """A line through points, broken where one is not finite."""
    parts, pen = [], "M"
    for x, y in pixels:
        known = isfinite(x) and isfinite(y)
        if known:
            parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = " " if known else "M"
    return "".join(parts)


def shade(colour: str) -> tuple[str, str]:
    """A colour on a light page and on a dark one."""
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


def _shape(shape: PlainShape, box: tuple) -> Markup:
    path = _points(_pixels(shape.places, box, 0))
    inside = (
        Markup('<path class="area" opacity="{}" d="{}z"/>').format(shape.style.alpha, path)
        if shape.filled
        else _stroke(path, shape.style)
    )
    return Markup("<g{}{}>{}</g>").format(_data(shape.facts), _ink(shape.style), inside)


def _series(one: DrawnSeries, panel: ChartPanel, box: tuple, step: int) -> Markup:
    at = _thinned(len(one.places), step)
    pixels = _pixels(one.places[at], box)
    ends = None if one.band is None else _pixels(one.band[at], box, 0)
    parts = []
    if ends is not None:
        parts.append(_bars(ends, one.along) if one.bars else _band(ends))
    if one.style.dash and len(pixels) > 1:
        parts.append(_stroke(_points(pixels), one.style))
    if one.style.marker or len(pixels) == 1:
        parts.append(_markers(pixels, one.style))
    return Markup('<g class="s" data-n="{}"{}{} data-a="{}" data-v="{}">{}</g>').format(
        one.name,
        _data(one.facts),
        _ink(one.style),
        one.along,
        json.dumps(_rows(one, panel, pixels, at), separators=(",", ":"), ensure_ascii=False),
        Markup("").join(parts),
    )


def _thinned(n: int, step: int) -> np.ndarray:
    """Every step-th place, and the last."""
    return np.unique(np.append(np.arange(0, n, step), n - 1)) if n else np.arange(0)


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


def _rows(one: DrawnSeries, panel: ChartPanel, pixels: np.ndarray, at: np.ndarray) -> list[list[Any]]:
    """What page.js shows of a series."""
    rows = []
    for (left, top), value, i in zip(pixels.tolist(), one.values[at].tolist(), at.tolist(), strict=True):
        if isfinite(left) and isfinite(top):
            x, y = (_named(axis, v) for axis, v in zip((panel.x, panel.y), value, strict=True))
            ends = [] if one.bounds is None else [_short(end) for end in one.bounds[i].tolist()]
            rows.append([round(left, 1), round(top, 1), x, y, *ends])
    return rows


def _named(axis: AxisMarks, value: float) -> str | float | int | None:
    """A value as its axis calls it; marks beside each other share the name that they stand around."""
    return axis.names.get(round(value), _short(value)) if axis.names and isfinite(value) else _short(value)


def _short(value: float) -> float | int | None:
    """A number as it is shown: five digits, null where there is none."""
    if not isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
