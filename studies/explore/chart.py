"""Curves as the options of a chart (echarts.apache.org), as rows at equal spending, and as files: pure, so that tests
read what a browser draws.

Modules that draw and write files are imported where a file is asked for, so that the page appears soon.
"""

from math import inf
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rftlab.shared.curve import FLEXIBLE, SPLITS, Curve
from rftlab.shared.design import Design

Axis = Literal["rounds", "rollouts", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)
TITLES = {"rounds": "training rounds", "rollouts": "rollouts sampled", "seconds": "estimated seconds on the GPU"}
LIGHT = ("#0b5cad", "#b23a00", "#00705a", "#8a2a87", "#7a5c00", "#a3154a", "#3d4f5c", "#3f6f00", "#5a3fc0")
DARK = ("#6cb6ff", "#ff9e64", "#4fd6b0", "#e79bdf", "#e5c04b", "#ff8fab", "#b7c4cf", "#a8d94a", "#b3a2ff")
"""Colours of curves on a white and on a dark page: at least 4.5 : 1 against it."""
FRAME = 0.25
"""Seconds between two drawings of a curve that grows: each costs the processors that compute what is drawn."""
NAME = 60
"""Letters of a name that a chart shows."""
RATES = ("train_pass_at_1", "test_pass_at_1", *FLEXIBLE)
"""Columns of a curve that are exported: under the strict rule, which is drawn, and under the flexible one."""


class ChartView(NamedTuple):
    """The settings of a chart's display."""

    axis: Axis = "rounds"
    dark: bool = False
    narrow: bool = False
    """On a telephone."""


class ShownCurve(NamedTuple):
    """Runs of one design, to be drawn together."""

    name: str
    seeds: list[Curve]
    seconds: float | None = None
    """Estimated for a round; None where nobody can say."""
    measured: bool = False
    """Whether a language model made it: drawn with marks."""
    alone: bool = False
    """Whether each seed has a line of its own."""
    design: Design | None = None
    """Where runs are still to come, so that the axis is as long as they will be."""


class MeanCurve(NamedTuple):
    """Mean over seeds where all have a value."""

    x: np.ndarray
    train: np.ndarray
    test: np.ndarray


def short(name: str) -> str:
    """A name as a chart shows it."""
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def along(curve: Curve, axis: Axis, seconds: float | None) -> np.ndarray:
    """A curve's places on an axis."""
    if axis == "rollouts":
        return curve.rollouts
    return curve.round * (seconds if seconds is not None else np.nan) if axis == "seconds" else curve.round


def shown_mean(shown: ShownCurve, axis: Axis) -> MeanCurve:
    """The mean of the seeds, as far as all of them are."""
    length = min((len(curve.round) for curve in shown.seeds), default=0)
    if length == 0:
        return MeanCurve(np.empty(0), np.empty(0), np.empty(0))
    splits = (np.mean([getattr(curve, f"{split}_pass_at_1")[:length] for curve in shown.seeds], axis=0)
              for split in SPLITS)  # fmt: skip
    return MeanCurve(along(shown.seeds[0], axis, shown.seconds)[:length], *splits)


def points(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """Pairs as JSON takes them; those without a number are left out."""
    kept = np.isfinite(x) & np.isfinite(y)
    return [[float(f"{a:.6g}"), round(float(b), 4)] for a, b in zip(x[kept], y[kept], strict=True)]


def curve_chart(curves: list[ShownCurve], view: ChartView) -> dict[str, Any]:
    """Learning curves: test solid, train dashed, seeds thin. Colours go with the order of `curves`."""
    colours = DARK if view.dark else LIGHT
    series = [line for place, shown in enumerate(curves) for line in _lines(shown, view, colours[place % len(colours)])]
    frame = _frame(view) | {"series": series, "legend": _legend(curves, view)}
    ends = [point[0] for line in series for point in line["data"]] + [planned_end(shown, view.axis) for shown in curves]
    known = [end for end in ends if np.isfinite(end)]
    frame["xAxis"] = frame["xAxis"] | {"max": max(known, default=1.0)}
    return frame


def planned_end(shown: ShownCurve, axis: Axis) -> float:
    """Where on an axis the runs are to end; nan where that is not known."""
    design = shown.design
    if design is None:
        return float("nan")
    a_round: dict[Axis, float | None] = {
        "rounds": 1.0,
        "rollouts": design.round_rollouts,
        "seconds": shown.seconds,
    }
    return design.rounds * float(a_round[axis] or "nan")


def _lines(shown: ShownCurve, view: ChartView, colour: str) -> list[dict[str, Any]]:
    mean, name = shown_mean(shown, view.axis), short(shown.name)
    lines = [
        _line(f"{name}, test", points(mean.x, mean.test), colour, 2.6, "solid", shown.measured),
        _line(f"{name}, train", points(mean.x, mean.train), colour, 1.8, "dashed", shown.measured),
    ]
    if shown.alone and len(shown.seeds) > 1:
        for curve in shown.seeds:
            x = along(curve, view.axis, shown.seconds)
            thin = _line(f"{name}, test, seed {curve.seed[0]}", points(x, curve.test_pass_at_1), colour, 1, "solid")
            lines.append(thin | {"silent": True, "lineStyle": thin["lineStyle"] | {"opacity": 0.45}})
    return lines


def _line(
    name: str, data: list[list[float]], colour: str, width: float, kind: str, marked: bool = False
) -> dict[str, Any]:
    return {
        "type": "line",
        "id": name,
        "name": name,
        "data": data,
        "showSymbol": marked or len(data) == 1,
        "symbolSize": 7,
        "symbol": "diamond" if marked else "circle",
        "itemStyle": {"color": colour},
        "lineStyle": {"color": colour, "width": width, "type": kind},
        "emphasis": {"disabled": True},
    }


def _legend(curves: list[ShownCurve], view: ChartView) -> dict[str, Any]:
    names = [f"{short(shown.name)}, {split}" for shown in curves for split in ("test", "train")]
    text = {"color": ink(view.dark), "width": 240, "overflow": "truncate"}
    return {"type": "scroll", "top": 0, "data": names, "textStyle": text, "pageTextStyle": {"color": ink(view.dark)},
            "pageIconColor": ink(view.dark), "itemWidth": 42, "itemHeight": 14}  # fmt: skip


def ink(dark: bool) -> str:
    """The colour of text."""
    return "#e6e9ec" if dark else "#1c2329"


def _frame(view: ChartView) -> dict[str, Any]:
    text = {"color": ink(view.dark)}
    axis = {
        "axisLabel": text | {"hideOverlap": True},
        "nameTextStyle": text,
        "axisLine": {"show": True, "lineStyle": {"color": "#8a949e"}},
        "splitLine": {"lineStyle": {"color": "#3a4046" if view.dark else "#e2e6ea"}},
    }
    return {
        "animation": False,
        "backgroundColor": "transparent",
        "aria": {"enabled": True},
        "grid": {"left": 52, "right": 16 if view.narrow else 28, "top": 52, "bottom": 52},
        "tooltip": {"trigger": "axis", "confine": True, "order": "valueDesc"},
        "xAxis": axis | {"type": "value", "name": TITLES[view.axis], "nameLocation": "middle", "nameGap": 30, "min": 0},
        "yAxis": axis | {"type": "value", "name": "Pass@1", "min": 0},
    }


class ComparedCurve(NamedTuple):
    """A row of the table."""

    name: str
    reached: float
    """How far along the axis the curve is."""
    end: float
    """Test Pass@1 there."""
    equal: float
    """Test Pass@1 where the shortest of all curves ends; nan of a curve that begins later."""
    train: float
    """The same on training contexts."""


class EqualSpending(NamedTuple):
    """All rows, and where on the axis they are equal."""

    at: float
    rows: tuple[ComparedCurve, ...]


def compare_at_equal(curves: list[ShownCurve], axis: Axis) -> EqualSpending:
    """Return curves where the shortest of them ends; those without a point are left out. Between two evaluations a
    straight line."""
    means = [(shown.name, shown_mean(shown, axis)) for shown in curves]
    known = [(name, mean) for name, mean in means if len(mean.x) and np.isfinite(mean.x).all()]
    at = min((float(mean.x[-1]) for _, mean in known), default=float("nan"))
    rows = []
    for name, mean in known:
        equal, train = (float(np.interp(at, mean.x, values, left=np.nan)) for values in (mean.test, mean.train))
        rows.append(ComparedCurve(name, float(mean.x[-1]), float(mean.test[-1]), equal, train))
    return EqualSpending(at, tuple(rows))


class Frames:
    """Says when to draw a chart that grows: at once where something else is shown, or more by now and FRAME seconds
    went by."""

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


def export_chart(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
    """Return what the chart shows as a file, png or svg in the look of all figures, or csv with a row per curve, seed
    and evaluation."""
    import pandas as pd

    from rftlab.studies.analysis.imported.figures import safe
    from rftlab.studies.console.table import csv_bytes
    from rftlab.studies.report.chart import DASHES, Chart, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries
    from rftlab.studies.report.draw import picture

    if kind == "csv":
        rows = []
        for shown in curves:
            for curve in shown.seeds:
                places = {"round": curve.round, "rollouts": curve.rollouts, axis: along(curve, axis, shown.seconds)}
                rates = {name: getattr(curve, name) for name in RATES}
                rows.append(pd.DataFrame({"curve": shown.name, "seed": curve.seed} | places | rates))
        empty = pd.DataFrame(columns=["curve", "seed", "round"])
        return csv_bytes(pd.concat(rows, ignore_index=True) if rows else empty)
    series, keys = [], []
    for place, shown in enumerate(curves):
        mean, colour = shown_mean(shown, axis), LIGHT[place % len(LIGHT)]
        for split in SPLITS:
            style = MarkStyle(colour, DASHES[split], marker="D" if shown.measured else "")
            series.append(PlotSeries(mean.x, getattr(mean, split), style, f"{shown.name} · {split}"))
        keys.append(LegendKey(safe(short(shown.name)), MarkStyle(colour)))
    keys += [LegendKey(split, MarkStyle(dash=DASHES[split])) for split in SPLITS]
    panel = Panel("", PlotAxis(TITLES[axis]), PlotAxis("Pass@1", low=0.0), tuple(series))
    return picture(Chart((panel,), (7, 4.2), keys=tuple(keys)), kind)
