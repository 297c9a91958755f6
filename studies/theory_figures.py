"""The figures of the theory page. Drawn like those of studies/figures.py: no pyplot, the same look, equal data give equal bytes."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.figures import _PALETTE, Drawn, _styled

SIZE = (5.2, 3.5)


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE)
    return figure, figure.subplots()


def _shades(count: int) -> list[str]:
    """Sequential colours, dark first, none too light to read."""
    return sns.color_palette("viridis", count + 1).as_hex()[:count]


def _name_end(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    """A line's name at its right end."""
    ax.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", color=color, fontsize=9, annotation_clip=False)


@_styled
def regret(table: pd.DataFrame) -> Drawn:
    """Worst regret over the best possible rate against the horizon; growing batches solid, equal ones dashed."""
    figure, ax = _panel()
    growing = table[table["grid"] == "growing"]
    for (batches, line), color in zip(growing.groupby("batches"), _shades(growing["batches"].nunique()), strict=True):
        ax.plot(line["horizon"], line["ratio"], color=color)
        _name_end(ax, line["horizon"].iloc[-1], line["ratio"].iloc[-1], f"{batches} growing", color)
    for batches, line in table[table["grid"] == "equal"].groupby("batches"):
        ax.plot(line["horizon"], line["ratio"], color=_PALETTE[3], linestyle="--")
        _name_end(ax, line["horizon"].iloc[-1], line["ratio"].iloc[-1], f"{batches} equal", _PALETTE[3])
    ax.set(xscale="log", yscale="log", xlabel="steps T", ylabel="worst regret / √(T log 2T)", xlim=(1e4, 1e12))
    ax.set_xticks(np.logspace(4, 12, 5))
    return figure, table
