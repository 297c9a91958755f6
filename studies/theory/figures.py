"""The figures of the theory page. Drawn like those of studies/report/figures.py: no pyplot, the same look, equal data
give equal bytes.

Each takes a table of studies/theory/curves.py, names its lines at their right ends, and returns the figure with the
table.
"""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from rftlab.studies.report.figures import GREY, PALETTE, Drawn, styled

SIZE = (5.4, 3.5)
_MIN: dict[str, Any] = {"marker": "o", "markersize": 6, "linestyle": "none", "zorder": 5}
_RAW: dict[str, Any] = {"marker": "s", "markersize": 6, "markeredgewidth": 1.3, "linestyle": "none", "zorder": 5}


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE)
    return figure, figure.subplots()


def _shades(count: int) -> list[str]:
    """Sequential colours, dark first, none too light to read."""
    return sns.color_palette("viridis", count + 1).as_hex()[:count]


def _lines(
    ax: Axes,
    table: pd.DataFrame,
    name: str,
    x: str,
    y: str,
    texts: dict,
    colours: list[str],
    shifts: dict | None = None,
    **style,
) -> None:
    """A line for each value of column `name`, with its text at the right end, moved up by `shifts` points where two
    would touch."""
    for (value, line), color in zip(table.groupby(name, sort=False), colours, strict=True):
        ax.plot(line[x], line[y], color=color, **style)
        place: dict[str, Any] = {
            "xytext": (5, (shifts or {}).get(value, 0)),
            "textcoords": "offset points",
            "va": "center",
            "annotation_clip": False,
        }
        ax.annotate(
            texts.get(value, str(value)), (line[x].iloc[-1], line[y].iloc[-1]), color=color, fontsize=9, **place
        )
        if "best" in line:
            ax.plot(line[x][line["best"]], line[y][line["best"]], color=color, **_MIN)


def _decades(axis) -> None:
    """Ticks at powers of ten alone."""
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


@styled
def weights(table: pd.DataFrame) -> Drawn:
    """Weight of a context's gradient under GRPO against its pass rate."""
    figure, ax = _panel()
    ax.axhline(1, color=GREY, linestyle="--", linewidth=1)
    ax.annotate(
        "unbiased", (0.5, 1), xytext=(0, -4), textcoords="offset points", ha="center", va="top", color=GREY, fontsize=9
    )
    names = list(table["K"].unique())
    _lines(ax, table, "K", "p", "W", {name: f"K = {name}" for name in names}, _shades(len(names)))
    ax.set(
        yscale="log",
        xlabel="pass rate p of the context",
        ylabel="weight W(p) on its gradient",
        xlim=(0, 1),
        ylim=(0.5, 12),
    )
    ax.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.yaxis.set_minor_locator(NullLocator())
    return figure, table


@styled
def variance(table: pd.DataFrame) -> Drawn:
    """Gradient variance at a fixed number of rollouts against rollouts per context; squares: K = 1, the raw reward;
    the least of a case is filled."""
    figure, ax = _panel()
    colours = _shades(table["case"].nunique())
    _lines(
        ax,
        table[table["K"] > 1],
        "case",
        "K",
        "variance",
        {},
        colours,
        dict(zip(table["case"].unique()[:2], (-5, 5), strict=True)),
    )
    for (_, raw), color in zip(table[table["K"] == 1].groupby("case", sort=False), colours, strict=True):
        ax.plot(raw["K"], raw["variance"], color=color, **_RAW, markerfacecolor=color if raw["best"].all() else "white")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="rollouts per context K (contexts B = N/K)",
        ylabel="variance × rollouts N",
        xlim=(0.93, table["K"].max()),
    )
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= table["K"].max()]
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    return figure, table


@styled
def plateau(table: pd.DataFrame) -> Drawn:
    """Time to reach a pass rate of one half against the base pass rate, harder to the right."""
    figure, ax = _panel()
    _lines(
        ax,
        table.sort_values("p0", ascending=False, kind="stable"),
        "estimator",
        "p0",
        "time",
        {},
        _shades(table["estimator"].nunique()),
    )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="base pass rate p₀ (harder to the right)",
        ylabel="time until p = 1/2 (rate × rounds)",
    )
    ax.set_xlim(table["p0"].max(), table["p0"].min())
    _decades(ax.xaxis)
    _decades(ax.yaxis)
    return figure, table


@styled
def replay(table: pd.DataFrame) -> Drawn:
    """Error of a replayed baseline against the window, next to that of the last visit alone; the best window of each
    drift is marked."""
    figure, ax = _panel()
    drifts = table["drift"].unique()
    _lines(
        ax,
        table,
        "drift",
        "window",
        "mse",
        {drift: f"drift {drift:g}" for drift in drifts},
        _shades(len(drifts)),
        {0.01: 8, 0.03: 8},
    )
    alone = table.loc[table["window"] == 1, "mse"].mean()
    ax.axhline(alone, color=GREY, linestyle="--", linewidth=1)
    ax.annotate("last visit alone", (2.2, alone), xytext=(0, 4), textcoords="offset points", color=GREY, fontsize=9)
    ax.set(
        xscale="log", yscale="log", xlabel="window (past visits of the context)", ylabel="squared error of the baseline"
    )
    ax.set(xlim=(1, table["window"].max()), ylim=(0.8 * table["mse"].min(), 1.4 * alone))
    ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    ax.set_yticks([0.005, 0.01, 0.02, 0.05], ["0.005", "0.01", "0.02", "0.05"])
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    return figure, table


@styled
def regret(table: pd.DataFrame) -> Drawn:
    """Worst regret over the best possible rate against the horizon; growing batches solid, equal ones dashed."""
    figure, ax = _panel()
    for grid, rows in table.groupby("grid", sort=False):
        many = list(rows["batches"].unique())
        colours = [PALETTE[3]] * len(many) if grid == "equal" else _shades(len(many))
        texts = {batches: f"{batches} {grid}" for batches in many}
        _lines(
            ax,
            rows,
            "batches",
            "horizon",
            "ratio",
            texts,
            colours,
            {4: 3, 5: -3} if grid == "growing" else None,
            linestyle="--" if grid == "equal" else "-",
        )
    ax.set(xscale="log", yscale="log", xlabel="steps T", ylabel="worst regret / √(T log 2T)", xlim=(1e4, 1e12))
    ax.set_xticks(np.logspace(4, 12, 5))
    _decades(ax.yaxis)
    return figure, table
