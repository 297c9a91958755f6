"""Draw charts with matplotlib, as PNG and SVG files. No pyplot is used, so no display is needed. Equal charts give
equal bytes."""

import io
import warnings
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rftlab.shared.plumbing.files import write_file
from rftlab.studies.console.table import write_numbers
from rftlab.studies.report.chart import (
    LINEAR_BELOW,
    Chart,
    LegendKey,
    MarkStyle,
    Outline,
    Panel,
    PlotSeries,
    ResolvedAxis,
    resolve,
)

DPI = 160
_LOOK = {
    **sns.axes_style("ticks"),
    **sns.plotting_context("paper"),
    "font.family": ["DejaVu Sans"],
    **dict.fromkeys(("font.size", "axes.labelsize", "legend.fontsize", "legend.title_fontsize"), 9.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9),
    **dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), "#444444"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "rftlab",
    "svg.fonttype": "path",
}
_LOCK = RLock()
_CROWDED = 24
"""Number of names on a vertical axis above which they are printed smaller."""


def save_chart(chart: Chart, folder: Path, name: str, numbers: pd.DataFrame) -> Path:
    """Write name.svg, name.png and name.csv (the numbers drawn) into a folder and return the path of the SVG. Each file
    appears complete or not at all."""
    write_numbers(folder / f"{name}.csv", numbers)
    for kind, data in _pictures(chart, ("png", "svg"), DPI).items():
        write_file(folder / f"{name}.{kind}", data)
    return folder / f"{name}.svg"


def picture(chart: Chart, kind: str, dpi: int = DPI) -> bytes:
    """Return a chart as the bytes of a png or svg."""
    return _pictures(chart, (kind,), dpi)[kind]


def _pictures(chart: Chart, kinds: tuple[str, ...], dpi: int) -> dict[str, bytes]:
    pictures = {}
    # matplotlib's settings are global: one thread at a time
    with _LOCK, rc_context(_LOOK | {"figure.dpi": dpi}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure = _figure(chart)
        for kind in kinds:
            file = io.BytesIO()
            if kind == "png":
                FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
            else:
                FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
            pictures[kind] = file.getvalue()
            figure.set_layout_engine("none")  # the layout is done, and the next kind keeps it
    return pictures


def _figure(chart: Chart) -> Figure:
    figure = Figure(figsize=chart.size)
    grid = figure.subplots(
        chart.rows, chart.columns, squeeze=False, width_ratios=chart.widths or None, height_ratios=chart.heights or None
    )
    for ax in grid.flat:
        ax.set_axis_off()
    for i, (panel, axes) in enumerate(zip(chart.panels, resolve(chart), strict=True)):
        if panel is not None and axes is not None:
            grid.flat[i].set_axis_on()
            _draw_panel(grid.flat[i], panel, axes, chart, i)
    if chart.keys:
        widest = 0.6 + 0.075 * max(len(key.text) for key in chart.keys)
        figure.legend(
            handles=[_handle(key) for key in chart.keys],
            title=_plain(chart.title) or None,
            alignment="left",
            loc="outside upper left",
            ncols=max(1, int(chart.size[0] / widest)),
            handlelength=1.6,
        )
    return figure


def _draw_panel(ax: Axes, panel: Panel, axes: tuple[ResolvedAxis, ResolvedAxis], chart: Chart, place: int) -> None:
    for side, resolved in enumerate(axes):
        _set_axis(ax, side, resolved)
    for shape in panel.shapes:
        _draw_shape(ax, shape, axes)
    for one in panel.series:
        _draw_series(ax, one)
    for remark in panel.remarks:
        x, y = (axis.fractions(np.array([value]))[0] for axis, value in zip(axes, remark[:2], strict=True))
        ax.annotate(
            _plain(remark.text),
            (x, y),
            (5, remark.up),
            xycoords="axes fraction",
            textcoords="offset points",
            color=remark.colour,
            fontsize=8.5,
            va="top" if y > 0.999 else "center",
            annotation_clip=False,
        )
    ax.set_title(_plain(panel.title))
    # an axis that is shared is labelled at the outside alone
    last = place + chart.columns >= len(chart.panels) or chart.panels[place + chart.columns] is None
    if chart.share_x in ("column", "all") and not last:
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
    if chart.share_y in ("row", "all") and place % chart.columns:
        ax.set_ylabel("")
        ax.tick_params(labelleft=False)
    if chart.square:
        ax.set_box_aspect(1)
    if panel.keys:
        handles = [_handle(key) for key in panel.keys]
        ax.legend(
            handles=handles,
            title=_plain(panel.keys_title) or None,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            fontsize=8,
        )


def _set_axis(ax: Axes, side: int, resolved: ResolvedAxis) -> None:
    name, axis = "xy"[side], (ax.xaxis, ax.yaxis)[side]
    more: dict[str, Any] = {"linthresh": LINEAR_BELOW} if resolved.axis.scale == "symlog" else {}
    getattr(ax, f"set_{name}scale")(resolved.axis.scale, **more)
    getattr(ax, f"set_{name}lim")(resolved.low, resolved.high)
    texts = [_plain(text) for _, text in resolved.ticks]
    axis.set_ticks([place for place, _ in resolved.ticks], texts)
    axis.set_ticks([], minor=True)
    getattr(ax, f"set_{name}label")(_plain(resolved.axis.label))
    if side and resolved.names:
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", labelsize=7.5 if len(texts) > _CROWDED else 8.5)
    # 0.075 and 0.1 inches stand for a letter and a gap: measuring texts would draw the figure twice
    width = ax.get_window_extent().width / ax.figure.dpi
    if not side and 0.075 * sum(map(len, texts)) + 0.1 * len(texts) > width:
        for label in ax.get_xticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor")


def _draw_series(ax: Axes, one: PlotSeries) -> None:
    if one.low is not None and one.high is not None and np.isfinite(one.low).any():
        if one.error_bars:
            value = (one.x, one.y)[one.along]
            lengths = np.clip(np.nan_to_num([value - one.low, one.high - value]), 0, None)
            ax.errorbar(
                one.x,
                one.y,
                **{f"{'xy'[one.along]}err": lengths},
                fmt="none",
                ecolor=one.style.colour,
                elinewidth=1.2,
                capsize=2.5,
            )
        else:
            ax.fill_between(one.x, one.low, one.high, color=one.style.colour, alpha=0.2, linewidth=0)
    above: dict[str, Any] = {"zorder": 5, "clip_on": False} if one.style.hollow else {}
    ax.plot(one.x, one.y, **_line(one.style), **above)


def _draw_shape(ax: Axes, shape: Outline, axes: tuple[ResolvedAxis, ResolvedAxis]) -> None:
    places = np.stack([axis.fractions(shape.points[:, side]) for side, axis in enumerate(axes)], axis=1)
    if shape.filled:
        ax.fill(*places.T, color=shape.style.colour, alpha=shape.style.alpha, linewidth=0, transform=ax.transAxes)
    else:
        ax.plot(*places.T, **_line(shape.style), transform=ax.transAxes, zorder=1)


def _line(style: MarkStyle) -> dict[str, Any]:
    face = "none" if style.hollow else style.colour
    return {
        "color": style.colour,
        "linestyle": style.dash or "none",
        "linewidth": style.width,
        "marker": style.marker or "none",
        "markersize": style.size,
        "markerfacecolor": face,
        "markeredgewidth": 1.2 if style.hollow or style.marker in "|_x+" else 0.5,
        "alpha": style.alpha,
    }


def _handle(key: LegendKey) -> Line2D:
    return Line2D([], [], **_line(key.style), solid_capstyle="butt", label=_plain(key.text))


def _plain(text: str) -> str:
    """Return a text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
