"""What the chart shows, as files: the picture as PNG and SVG in the look of all figures, the numbers as CSV."""

import io

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rftlab.shared.curve import SPLITS
from rftlab.studies.explore.chart import LIGHT, TITLES, Axis, ShownCurve, along, mean_of, short
from rftlab.studies.imported.figures import safe
from rftlab.studies.report.figures import DASHES, key, styled, write_numbers


def numbers_of(curves: list[ShownCurve], axis: Axis) -> pd.DataFrame:
    """One row per curve, seed and evaluation: what is drawn."""
    rows = []
    for shown in curves:
        for curve in shown.seeds:
            x = along(curve, axis, shown.seconds)
            rows.append(pd.DataFrame({"curve": shown.name, "seed": curve.seed, "round": curve.round,
                                      "rollouts": curve.rollouts, axis: x, "train_pass_at_1": curve.train_pass_at_1,
                                      "test_pass_at_1": curve.test_pass_at_1}))  # fmt: skip
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["curve", "seed", "round"])


def csv_of(curves: list[ShownCurve], axis: Axis) -> bytes:
    """The numbers, as tables of figures are written."""
    text = io.StringIO()
    write_numbers(text, numbers_of(curves, axis))
    return text.getvalue().encode()


@styled
def figure_of(curves: list[ShownCurve], axis: Axis) -> Figure:
    """The curves: test solid, train dashed, marks where they were measured."""
    figure = Figure(figsize=(7, 4.2))
    axes = figure.add_subplot(xlabel=TITLES[axis], ylabel="Pass@1")
    handles = []
    for place, shown in enumerate(curves):
        mean, colour = mean_of(shown, axis), LIGHT[place % len(LIGHT)]
        marker = "D" if shown.measured else ""
        for split in SPLITS:
            axes.plot(mean.x, getattr(mean, split), DASHES[split], color=colour, marker=marker, markersize=4)
        handles.append(key(safe(short(shown.name)), colour))
    handles += [key(split, linestyle=DASHES[split]) for split in SPLITS]
    axes.set_ylim(bottom=0)
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure


@styled
def picture_of(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
    """The figure as png or svg; equal curves give equal bytes."""
    figure, file = figure_of(curves, axis), io.BytesIO()
    if kind == "png":
        FigureCanvasAgg(figure).print_png(file)
    else:
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()


def file_of(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
    """A file of a kind: png, svg or csv."""
    return csv_of(curves, axis) if kind == "csv" else picture_of(curves, axis, kind)
