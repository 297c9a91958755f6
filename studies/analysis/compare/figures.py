"""Figures of a comparison of levels; each returns a chart and a table of what it shows."""

from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.analysis.compare.agreement import common_cells
from rftlab.studies.analysis.compare.levels import AXES, CurveSet, at_budget, mean_lines
from rftlab.studies.data.paper.experiments import Experiment, label
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.stats import interval
from rftlab.studies.report.chart import (
    BAND,
    DASHES,
    IDENTITY,
    PALETTE,
    WHISKER,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Panel,
    PlotAxis,
    PlotSeries,
    Remark,
    diamonds,
    dots,
    error_bars,
    lengthened,
    names,
    rates,
    rule,
)

COLUMNS = 5


def level_colours(levels: list[CurveSet]) -> dict[str, str]:
    """A colour for each level, the same in every figure."""
    return {own.name: colour for own, colour in zip(levels, PALETTE, strict=False)}


def _level_keys(levels: list[CurveSet]) -> list[LegendKey]:
    colours = level_colours(levels)
    return [LegendKey(own.title, (MarkStyle if len(own.curves) else diamonds)(colours[own.name])) for own in levels]


def level_curves(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Pass@1 against the axis, a panel per cell, a colour per level, test solid and train dashed; bands over seeds;
    published test endpoints hollow."""
    numbers = pd.concat(
        [mean_lines(own, list(map(label, experiment.cells)), axis) for own in levels if len(own.curves)],
        ignore_index=True,
    )
    colours, titles = level_colours(levels), {own.name: own.title for own in levels}
    x = PlotAxis(AXES[axis].title, "log" if AXES[axis].log else "linear")
    panels = []
    for cell, tick in zip(map(label, experiment.cells), experiment.ticks, strict=True):
        series = []
        for (level, split), line in numbers[numbers["cell"] == cell].groupby(["level", "split"], sort=False):
            style, facts = MarkStyle(colours[level], DASHES[split]), {"level": level, "split": split}
            name = f"{titles[level]} · {split}"
            series.append(PlotSeries(line["x"], line["mean"], style, name, line["low"], line["high"], facts=facts))
        shapes = []
        for own in levels:
            if not len(own.curves) and cell in own.cells:
                value = own.finals.test[cell].iloc[0]
                shapes.append(rule(value, MarkStyle(colours[own.name], ":", 1.0)))
                facts = {"level": own.name, "split": "test"}
                series.append(
                    PlotSeries([np.inf], [value], diamonds(colours[own.name]), f"{own.title} · test", facts=facts)
                )
        panels.append(Panel(tick, x, rates("Pass@1"), tuple(series), tuple(shapes)))
    columns = min(COLUMNS, max(3, len(panels)))
    size = (2.4 * columns + 0.4, 2.2 * ceil(len(panels) / columns) + 1.1)
    keys = [*_level_keys(levels), *(LegendKey(split, MarkStyle(dash=dash)) for split, dash in DASHES.items())]
    chart = Chart(tuple(panels), size, columns, lengthened(keys, numbers, BAND), share_x="all", share_y="all")
    return chart, numbers


def level_tradeoff(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Pass@1 against the experiment's axis, levels overlaid, test beside train; each level's cells at the same place
    of `axis`."""
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
        x, y = names(experiment.axis, list(experiment.ticks)), rates(AXES[axis].ends)
        panels.append(Panel(f"{split} Pass@1", x, y, tuple(series), facts={"split": split}))
    keys = lengthened(_level_keys(levels), numbers.drop(columns="published", errors="ignore"), WHISKER)
    return Chart(tuple(panels), (11, 3.7), 2, keys, share_y="all"), numbers


def scatter(pairs: list[tuple[CurveSet, CurveSet]]) -> Drawn:
    """Test Pass@1 after training of each common design, one level against the other, a panel per two levels; 95% t
    intervals over seeds."""
    frames, panels = [], []
    for first, second in pairs:
        rows = _points(first, second)
        frames.append(rows)
        across = error_bars(
            PlotSeries(rows["x"], rows["y"], MarkStyle(PALETTE[0], ""), ""), rows["x_low"], rows["x_high"], along=0
        )
        up = error_bars(PlotSeries(rows["x"], rows["y"], dots(PALETTE[0])), rows["y_low"], rows["y_high"])
        remarks = [
            Remark(row.x, row.y, short_label(row.cell), up=-9) for row in rows.itertuples() if row.cell in _NAMED
        ]
        x, y = rates(f"{first.title}, test Pass@1"), rates(f"{second.title}, test Pass@1")
        panels.append(Panel("", x, y, (across, up), (IDENTITY,), tuple(remarks)))
    size = (max(6.0, 4.0 * len(pairs)), 3.9)
    return Chart(tuple(panels), size, len(pairs), square=True), pd.concat(frames, ignore_index=True)


_NAMED = ("32x1-minimalist", "32x8-paper_text", "256x1-paper_text", "256x1w8-paper_text", "1x256-paper_text")
"""Designs whose points carry their names: those that the claims turn on."""


def _points(first: CurveSet, second: CurveSet) -> pd.DataFrame:
    """Columns first, second, cell, and x, x_low, x_high, y, ... (bounds are nan without an interval)."""
    rows = []
    for cell in common_cells(first, second):
        row: dict[str, Any] = {"first": first.name, "second": second.name, "cell": cell}
        for side, own in (("x", first), ("y", second)):
            known = interval(own.finals.test[cell].dropna())
            low, high = (bound if np.isfinite(bound) else np.nan for bound in (known.low, known.high))
            row |= {side: known.value, f"{side}_low": low, f"{side}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)
