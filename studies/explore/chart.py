"""Turn curves into the options of a chart (echarts.apache.org), into rows at equal spending, and into files. The
functions are pure, so that tests read what a browser draws.

Modules that draw and write files are imported when a file is requested, so that the page opens fast.
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
"""Colours of curves on a white and on a dark page, with a contrast of at least 4.5 : 1 against it."""
FRAME = 0.25
"""Least seconds between two drawings of a growing curve: drawing takes processor time from the simulation."""
NAME = 60
"""Largest number of letters of a name that a chart shows."""
RATES = ("train_pass_at_1", "test_pass_at_1", *FLEXIBLE)
"""Exported columns of a curve: rates under the strict rule, which is drawn, and under the flexible one."""


class ShownCurve(NamedTuple):
    """Curve of a chart: the runs of one design."""

    name: str
    seeds: list[Curve]
    seconds: float | None = None
    """Estimated seconds of a round; None where they are not known."""
    measured: bool = False
    """Whether it comes from a language model, and is drawn with marks."""
    alone: bool = False
    """Whether each seed also has a line of its own."""
    design: Design | None = None
    """Design of runs that are not finished, so that the axis is as long as they will be."""


def short(name: str) -> str:
    """Return a name as a chart shows it, cut to NAME letters."""
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def along(curve: Curve, axis: Axis, seconds: float | None) -> np.ndarray:
    """Return a curve's places on an axis."""
    if axis == "rollouts":
        return curve.rollouts
    return curve.round * (seconds if seconds is not None else np.nan) if axis == "seconds" else curve.round


def shown_mean(shown: ShownCurve, axis: Axis) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return places on an axis and, by split, the mean of the seeds there, as far as all of them are."""
    length = min((len(curve.round) for curve in shown.seeds), default=0)
    if length == 0:
        return np.empty(0), dict.fromkeys(SPLITS, np.empty(0))
    means = {
        split: np.mean([getattr(curve, f"{split}_pass_at_1")[:length] for curve in shown.seeds], axis=0)
        for split in SPLITS
    }
    return along(shown.seeds[0], axis, shown.seconds)[:length], means


def points(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """Return pairs of numbers for JSON, without those that are not finite."""
    kept = np.isfinite(x) & np.isfinite(y)
    return [[float(f"{a:.6g}"), round(float(b), 4)] for a, b in zip(x[kept], y[kept], strict=True)]


def curve_chart(curves: list[ShownCurve], axis: Axis = "rounds", dark: bool = False) -> dict[str, Any]:
    """Return the options of a chart of learning curves: test solid, train dashed, seeds thin. Colours follow the order
    of `curves`."""
    colours = DARK if dark else LIGHT
    series = [line for place, shown in enumerate(curves) for line in _lines(shown, axis, colours[place % len(colours)])]
    ends = [point[0] for line in series for point in line["data"]]
    ends += [one.design.rounds * per_round(one.design, axis, one.seconds) for one in curves if one.design]
    furthest = max((end for end in ends if np.isfinite(end)), default=1.0)
    text = {"color": "#e6e9ec" if dark else "#1c2329"}
    both = {
        "type": "value",
        "min": 0,
        "axisLabel": text | {"hideOverlap": True},
        "nameTextStyle": text,
        "axisLine": {"show": True, "lineStyle": {"color": "#8a949e"}},
        "splitLine": {"lineStyle": {"color": "#3a4046" if dark else "#e2e6ea"}},
    }
    return {
        "animation": False,
        "backgroundColor": "transparent",
        "aria": {"enabled": True},
        "grid": {"left": 52, "right": 28, "top": 52, "bottom": 52},
        "tooltip": {"trigger": "axis", "confine": True, "order": "valueDesc"},
        "xAxis": both | {"name": TITLES[axis], "nameLocation": "middle", "nameGap": 30, "max": furthest},
        "yAxis": both | {"name": "Pass@1"},
        "series": series,
        "legend": {
            "type": "scroll",
            "top": 0,
            "data": [f"{short(shown.name)}, {split}" for shown in curves for split in ("test", "train")],
            "textStyle": text | {"width": 240, "overflow": "truncate"},
            "pageTextStyle": text,
            "pageIconColor": text["color"],
            "itemWidth": 42,
            "itemHeight": 14,
        },
    }


def per_round(design: Design, axis: Axis, seconds: float | None) -> float:
    """Return the rounds, rollouts or seconds of one round; nan where the seconds are not known."""
    spent: dict[Axis, float | None] = {"rounds": 1.0, "rollouts": design.round_rollouts, "seconds": seconds}
    return float(spent[axis] or "nan")


def _lines(shown: ShownCurve, axis: Axis, colour: str) -> list[dict[str, Any]]:
    (x, means), name = shown_mean(shown, axis), short(shown.name)
    lines = [
        _line(f"{name}, test", points(x, means["test"]), colour, 2.6, "solid", shown.measured),
        _line(f"{name}, train", points(x, means["train"]), colour, 1.8, "dashed", shown.measured),
    ]
    if shown.alone and len(shown.seeds) > 1:
        for curve in shown.seeds:
            x = along(curve, axis, shown.seconds)
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


class ComparedCurve(NamedTuple):
    """Row of the table of compared curves."""

    name: str
    reached: float
    """Place on the axis that the curve has reached."""
    end: float
    """Test Pass@1 at that place."""
    equal: float
    """Test Pass@1 where the shortest of all curves ends; nan for a curve that begins later."""
    train: float
    """Train Pass@1 where the shortest of all curves ends."""


def compare_at_equal(curves: list[ShownCurve], axis: Axis) -> tuple[float, list[ComparedCurve]]:
    """Return the place on the axis where the shortest curve ends, and a row for each curve there; curves without a
    point are left out. Values are linear between two evaluations."""
    means = [(shown.name, *shown_mean(shown, axis)) for shown in curves]
    known = [each for each in means if len(each[1]) and np.isfinite(each[1]).all()]
    at = min((float(x[-1]) for _, x, _ in known), default=float("nan"))
    rows = []
    for name, x, splits in known:
        equal, train = (float(np.interp(at, x, splits[split], left=np.nan)) for split in ("test", "train"))
        rows.append(ComparedCurve(name, float(x[-1]), float(splits["test"][-1]), equal, train))
    return at, rows


class Frames:
    """Timer of a growing chart: it is due at once where something else is shown, and else when there are new points and
    FRAME seconds have passed."""

    def __init__(self) -> None:
        self._kind: object = None
        self._size: object = None
        self._at = -inf

    def due(self, kind: object, size: object, now: float) -> bool:
        """Return whether to draw now. kind: the shown curves; size: their number of points; now: seconds of a steady
        clock."""
        if kind == self._kind and (size == self._size or now < self._at + FRAME):
            return False
        self._kind, self._size, self._at = kind, size, now
        return True


def export_chart(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
    """Return the chart as the bytes of a file: png or svg in the style of all figures, or csv with a row per curve,
    seed and evaluation."""
    import pandas as pd

    from rftlab.studies.analysis.imported.figures import safe
    from rftlab.studies.console.table import csv_bytes
    from rftlab.studies.report.chart import DASHES, SPLIT_KEYS, Chart, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries
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
        (x, means), colour = shown_mean(shown, axis), LIGHT[place % len(LIGHT)]
        for split, values in means.items():
            style = MarkStyle(colour, DASHES[split], marker="D" if shown.measured else "")
            series.append(PlotSeries(x, values, style, f"{shown.name} · {split}"))
        keys.append(LegendKey(safe(short(shown.name)), MarkStyle(colour)))
    panel = Panel("", PlotAxis(TITLES[axis]), PlotAxis("Pass@1", low=0.0), tuple(series))
    return picture(Chart((panel,), (7, 4.2), keys=(*keys, *SPLIT_KEYS)), kind)
