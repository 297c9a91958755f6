"""What the chart shows, as files: the picture as PNG and SVG in the look of all figures, the numbers as CSV."""

import pandas as pd

from rftlab.shared.curve import FLEXIBLE, SPLITS
from rftlab.studies.analysis.imported.figures import safe
from rftlab.studies.console.table import csv_bytes
from rftlab.studies.explore.chart import LIGHT, TITLES, Axis, ShownCurve, along, mean_of, short
from rftlab.studies.report import chart as charts
from rftlab.studies.report.chart import DASHES, Chart, LegendKey, MarkStyle, Panel, PlotSeries
from rftlab.studies.report.draw import picture

RATES = ("train_pass_at_1", "test_pass_at_1", *FLEXIBLE)
"""Columns of a curve that are exported: under the strict rule, which is drawn, and under the flexible one."""


def numbers_of(curves: list[ShownCurve], axis: Axis) -> pd.DataFrame:
    """One row per curve, seed and evaluation: what is drawn, and Pass@1 where the format does not count."""
    rows = []
    for shown in curves:
        for curve in shown.seeds:
            places = {"round": curve.round, "rollouts": curve.rollouts, axis: along(curve, axis, shown.seconds)}
            rates = {name: getattr(curve, name) for name in RATES}
            rows.append(pd.DataFrame({"curve": shown.name, "seed": curve.seed} | places | rates))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["curve", "seed", "round"])


def chart_of(curves: list[ShownCurve], axis: Axis) -> Chart:
    """The curves: test solid, train dashed, marks where they were measured."""
    series, keys = [], []
    for place, shown in enumerate(curves):
        mean, colour = mean_of(shown, axis), LIGHT[place % len(LIGHT)]
        for split in SPLITS:
            style = MarkStyle(colour, DASHES[split], marker="D" if shown.measured else "")
            series.append(PlotSeries(mean.x, getattr(mean, split), style, f"{shown.name} · {split}"))
        keys.append(LegendKey(safe(short(shown.name)), MarkStyle(colour)))
    keys += [LegendKey(split, MarkStyle(dash=DASHES[split])) for split in SPLITS]
    panel = Panel("", charts.PlotAxis(TITLES[axis]), charts.PlotAxis("Pass@1", low=0.0), tuple(series))
    return Chart((panel,), (7, 4.2), keys=tuple(keys))


def file_of(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
    """A file of a kind: png, svg or csv."""
    return csv_bytes(numbers_of(curves, axis)) if kind == "csv" else picture(chart_of(curves, axis), kind)
