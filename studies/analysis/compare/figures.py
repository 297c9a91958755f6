"""Draw figures of a comparison of levels on a common axis. Functions return a chart and a table of what it shows."""

from dataclasses import replace
from math import ceil

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.analysis.compare.agreement import common_cells
from rftlab.studies.analysis.compare.levels import CurveSet
from rftlab.studies.data.paper.experiments import Experiment
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.stats import interval
from rftlab.studies.report.chart import (
    BAND,
    DASHES,
    GREY,
    IDENTITY,
    PALETTE,
    SPLIT_KEYS,
    WHISKER,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    diamonds,
    dots,
    error_bars,
    lengthened,
    names,
    rates,
    rule,
)
from rftlab.studies.report.figures import mean_curves

AXES = {
    "rounds": "training round",
    "fraction": "fraction of the planned rounds",
    "rollouts": "rollouts",
    "tokens": "response tokens",
    "seconds": "seconds",
}
"""Titles of the quantities against which curves are drawn."""
SPENT = ("rollouts", "tokens", "seconds")
"""Axes on which a round costs more in one design than in another; they are logarithmic, without round 0."""


def shown_ends(axis: str) -> str:
    """Return the title of the quantity that a trade-off curve shows."""
    return f"Pass@1 at equal {axis}" if axis in SPENT else "Pass@1 after training"


def place(curves: pd.DataFrame, axis: str) -> pd.Series:
    """Return the place on the axis of each row of curves."""
    if axis == "fraction":
        return curves["round"] / curves["planned_rounds"]
    return curves["round" if axis == "rounds" else axis].astype(float)


def mean_lines(own: CurveSet, cells: list[str], axis: str) -> pd.DataFrame:
    """Return mean curves over seeds, with columns level, cell, split, round, x, mean, low and high."""
    curves = own.curves[own.curves["cell"].isin(cells)]
    places = curves.assign(x=place(curves, axis)).groupby(["cell", "round"])["x"].mean().reset_index()
    lines = mean_curves(curves).merge(places, on=["cell", "round"]).assign(level=own.name)
    return lines[lines["round"] > 0] if axis in SPENT else lines


def at_budget(own: CurveSet, experiment: Experiment, axis: str) -> pd.DataFrame:
    """Return Pass@1 of the experiment's designs at the place of the axis where the first run ends, or after training on
    axes of rounds.

    Columns are level, cell, tick, split, budget, mean, low and high; values are linear between evaluations. Published
    endpoints exist after training only, so they appear on axes of rounds alone. A run that did not reach the place is
    left out.
    """
    cells = experiment.ticks_by_cell
    curves = own.curves[own.curves["cell"].isin(list(cells))]
    finished = curves[curves["round"] == curves["planned_rounds"]]
    budget = float(place(finished, axis).min()) if len(finished) and axis in SPENT else np.nan
    rows = []
    for cell, tick in cells.items():
        for split in SPLITS:
            rows.append((own.name, cell, tick, split, budget, *interval(_values(own, cell, split, axis, budget))))
    table = pd.DataFrame(rows, columns=["level", "cell", "tick", "split", "budget", "mean", "low", "high"])
    return table.replace([np.inf, -np.inf], np.nan)


def _values(own: CurveSet, cell: str, split: str, axis: str, budget: float) -> np.ndarray:
    """Return Pass@1 of each seed at the budget, or after training on axes of rounds."""
    if axis not in SPENT:
        table = own.finals[split]
        return table[cell].dropna().to_numpy() if cell in table else np.array([])
    curves = own.curves[own.curves["cell"] == cell]
    curves = curves.assign(x=place(curves, axis))
    runs = [run.sort_values("x") for _, run in curves.groupby("seed") if run["x"].max() >= budget]
    return np.array([np.interp(budget, run["x"], run[f"{split}_pass_at_1"]) for run in runs])


COLUMNS = 5


def level_colours(levels: list[CurveSet]) -> dict[str, str]:
    """Return a colour for each level, the same in every figure."""
    return {own.name: colour for own, colour in zip(levels, PALETTE, strict=False)}


def _level_keys(levels: list[CurveSet]) -> list[LegendKey]:
    colours = level_colours(levels)
    return [LegendKey(own.title, (MarkStyle if len(own.curves) else diamonds)(colours[own.name])) for own in levels]


def level_curves(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Draw Pass@1 against the axis: a panel per cell, a colour per level, test solid, train dashed, and bands over
    seeds. Published test endpoints are hollow diamonds."""
    numbers = pd.concat(
        [mean_lines(own, list(experiment.ticks_by_cell), axis) for own in levels if len(own.curves)],
        ignore_index=True,
    )
    colours, titles = level_colours(levels), {own.name: own.title for own in levels}
    x = PlotAxis(AXES[axis], "log" if axis in SPENT else "linear")
    panels = []
    for cell, tick in experiment.ticks_by_cell.items():
        series = []
        for (level, split), line in numbers[numbers["cell"] == cell].groupby(["level", "split"], sort=False):
            style, facts = MarkStyle(colours[level], DASHES[split]), {"level": level, "split": split}
            name = f"{titles[level]} · {split}"
            series.append(PlotSeries(line["x"], line["mean"], style, name, line["low"], line["high"], facts=facts))
        shapes = []
        for own in levels:
            if not len(own.curves) and cell in own.cells:
                value = own.finals["test"][cell].iloc[0]
                shapes.append(rule(value, MarkStyle(colours[own.name], ":", 1.0)))
                facts = {"level": own.name, "split": "test"}
                series.append(
                    PlotSeries([np.inf], [value], diamonds(colours[own.name]), f"{own.title} · test", facts=facts)
                )
        panels.append(Panel(tick, x, rates("Pass@1"), tuple(series), tuple(shapes)))
    columns = min(COLUMNS, max(3, len(panels)))
    size = (2.4 * columns + 0.4, 2.2 * ceil(len(panels) / columns) + 1.1)
    keys = [*_level_keys(levels), *SPLIT_KEYS]
    chart = Chart(tuple(panels), size, columns, lengthened(keys, numbers, BAND), share_x="all", share_y="all")
    return chart, numbers


def level_tradeoff(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Draw Pass@1 against the experiment's axis, levels overlaid and test beside train. Each level's cells are taken at
    the same place of `axis`."""
    numbers = pd.concat([at_budget(own, experiment, axis) for own in levels], ignore_index=True)
    colours, panels = level_colours(levels), []
    for split in SPLITS[::-1]:
        series = []
        for own in levels:
            rows = numbers[(numbers["level"] == own.name) & (numbers["split"] == split)].set_index("tick")
            rows = rows.reindex(list(experiment.ticks))
            colour = colours[own.name]
            style = MarkStyle(colour, marker="o") if len(own.curves) else diamonds(colour)
            one = PlotSeries(np.arange(len(rows)), rows["mean"], style, own.title, facts={"level": own.name})
            series.append(error_bars(one, rows["low"], rows["high"]) if len(own.curves) else one)
        x, y = names(experiment.axis, list(experiment.ticks)), rates(shown_ends(axis))
        panels.append(Panel(f"{split} Pass@1", x, y, tuple(series), facts={"split": split}))
    keys = lengthened(_level_keys(levels), numbers.drop(columns="published", errors="ignore"), WHISKER)
    return Chart(tuple(panels), (11, 3.7), 2, keys, share_y="all"), numbers


def scatter(pairs: list[tuple[CurveSet, CurveSet]]) -> Drawn:
    """Draw test Pass@1 after training of each common design, one level against the other: a panel per two levels, with
    95% t intervals over seeds."""
    frames, panels = [], []
    for first, second in pairs:
        rows = _points(first, second)
        frames.append(rows)
        series = []
        for cell, colour in _MARKED.items():
            some = rows[rows["cell"] == cell] if cell else rows[~rows["cell"].isin(list(_MARKED))]
            across = PlotSeries(some["x"], some["y"], MarkStyle(colour, ""), short_label(cell) if cell else "")
            series.append(error_bars(across, some["x_low"], some["x_high"], along=0))
            series.append(error_bars(replace(across, style=dots(colour)), some["y_low"], some["y_high"]))
        panels.append(Panel("test Pass@1", rates(first.title), rates(second.title), tuple(series), (IDENTITY,)))
    size = (max(6.0, 4.0 * len(pairs)), 4.7)
    keys = tuple(LegendKey(short_label(cell) if cell else "other designs", dots(at)) for cell, at in _MARKED.items())
    return Chart(tuple(panels), size, len(pairs), keys, square=True), pd.concat(frames, ignore_index=True)


_NAMED = ("32x1-minimalist", "32x8-paper_text", "256x1-paper_text", "256x1w8-paper_text", "1x256-paper_text")
_MARKED = {"": GREY} | dict(zip(_NAMED, PALETTE, strict=False))
"""Colours of the designs that decide the claims, and of all others."""


def _points(first: CurveSet, second: CurveSet) -> pd.DataFrame:
    """Return the points of a scatter plot: first, second, cell, x, x_low, x_high, y, ... (bounds nan without an
    interval)."""
    rows = []
    for cell in common_cells([first, second]):
        ends = [interval(own.finals["test"][cell].dropna()) for own in (first, second)]
        rows.append((first.name, second.name, cell, *ends[0], *ends[1]))
    columns = ["first", "second", "cell", "x", "x_low", "x_high", "y", "y_low", "y_high"]
    return pd.DataFrame(rows, columns=columns).replace([np.inf, -np.inf], np.nan)
