"""Figures of a comparison of levels. Drawn like those of studies/report/figures.py; each returns the figure and a
table of what it shows."""

from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rftlab.shared.curve import SPLITS
from rftlab.studies.compare.agreement import common_cells
from rftlab.studies.compare.curves import AXES, at_budget, mean_lines
from rftlab.studies.compare.diagnostics import BINS, dynamics, signal_to_noise
from rftlab.studies.compare.levels import CurveSet
from rftlab.studies.paper.experiments import Experiment, label
from rftlab.studies.report.figures import (
    BAND,
    BAR,
    BARS,
    DASHES,
    DOT,
    GREY,
    HOLLOW,
    PALETTE,
    Drawn,
    bar_lengths,
    key,
    legend,
    name_axis,
    styled,
)
from rftlab.studies.report.panels import note
from rftlab.studies.results.claims import short
from rftlab.studies.results.stats import interval

COLUMNS = 5
_SHADES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#b5de2b", "#fde725")


def colours_of(levels: list[CurveSet]) -> dict[str, str]:
    """A colour for each level, the same in every figure."""
    return {own.name: colour for own, colour in zip(levels, PALETTE, strict=False)}


def _level_keys(levels: list[CurveSet]) -> list:
    return [key(own.title, colours_of(levels)[own.name], **({} if len(own.curves) else HOLLOW)) for own in levels]


@styled
def learning_curves(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Pass@1 against the axis, a panel per cell, a colour per level, test solid and train dashed; bands over seeds;
    published test endpoints hollow."""
    numbers = pd.concat(
        [mean_lines(own, list(map(label, experiment.cells)), axis) for own in levels if len(own.curves)],
        ignore_index=True,
    )
    colours, columns = colours_of(levels), min(COLUMNS, max(3, len(experiment.cells)))
    figure = Figure(figsize=(2.4 * columns + 0.4, 2.2 * ceil(len(experiment.cells) / columns) + 1.1))
    axes = figure.subplots(ceil(len(experiment.cells) / columns), columns, sharex=True, sharey=True, squeeze=False)
    for ax, cell, tick in zip(axes.flat, experiment.cells, experiment.ticks, strict=False):
        ax.set_title(tick)
        for (level, split), line in numbers[numbers["cell"] == label(cell)].groupby(["level", "split"], sort=False):
            (drawn,) = ax.plot(line["x"], line["mean"], color=colours[level], linestyle=DASHES[split])
            note(drawn, level=level, split=split)
            ax.fill_between(line["x"], line["low"], line["high"], color=colours[level], alpha=0.2, linewidth=0)
        for own in levels:
            if not len(own.curves) and label(cell) in own.cells:
                ax.axhline(own.finals.test[label(cell)].iloc[0], color=colours[own.name], linewidth=1, linestyle=":")
                published = own.finals.test[label(cell)].iloc[0]
                at_edge = {"transform": ax.get_yaxis_transform(), "clip_on": False}
                note(
                    ax.plot(1, published, color=colours[own.name], **at_edge, **HOLLOW)[0], level=own.name, split="test"
                )
    for ax in axes.flat[len(experiment.cells) :]:
        ax.set_axis_off()
    for ax in axes.flat[: len(experiment.cells)]:
        ax.set(ylim=(0, 1), xscale="log" if AXES[axis].log else "linear")
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("Pass@1")
    figure.supxlabel(AXES[axis].title, fontsize=9.5)
    _legend(
        figure, [*_level_keys(levels), *(key(split, linestyle=dash) for split, dash in DASHES.items())], numbers, BAND
    )
    return figure, numbers


def _legend(figure: Figure, handles: list, numbers: pd.DataFrame, explained: dict) -> None:
    """The legend of rftlab.studies.report.figures; published numbers are a level of their own here, with its colour."""
    legend(figure, handles, numbers.assign(published=np.nan), explained)


@styled
def tradeoff(experiment: Experiment, levels: list[CurveSet], axis: str) -> Drawn:
    """Pass@1 against the experiment's axis, levels overlaid, test beside train; each level's cells at the same place
    of `axis`."""
    numbers = pd.concat([at_budget(own, experiment, axis) for own in levels], ignore_index=True)
    figure = Figure(figsize=(11, 3.7))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, split in zip(axes, SPLITS[::-1], strict=True):
        ax.set(title=f"{split} Pass@1", ylim=(0, 1))
        note(ax, split=split)
        for own in levels:
            rows = (
                numbers[(numbers["level"] == own.name) & (numbers["split"] == split)]
                .set_index("tick")
                .reindex(list(experiment.ticks))
            )
            note(_ends(ax, rows, colours_of(levels)[own.name], joined=bool(len(own.curves))), level=own.name)
        name_axis(ax, experiment, width=5.0)
    axes[0].set_ylabel(AXES[axis].ends)
    _legend(figure, _level_keys(levels), numbers, BAR)
    return figure, numbers


def _ends(ax: Axes, rows: pd.DataFrame, colour: str, joined: bool) -> Artist:
    """The line or the marks of one level."""
    if joined:
        return ax.errorbar(np.arange(len(rows)), rows["mean"], bar_lengths(rows), color=colour, **BARS)[0]
    return ax.plot(np.arange(len(rows)), rows["mean"], color=colour, **HOLLOW)[0]


@styled
def scatter(pairs: list[tuple[CurveSet, CurveSet]]) -> Drawn:
    """Test Pass@1 after training of each common design, one level against the other, a panel per two levels; 95% t
    intervals over seeds."""
    frames = [_points(first, second) for first, second in pairs]
    figure = Figure(figsize=(max(6.0, 4.0 * len(pairs)), 3.9))
    for ax, (first, second), rows in zip(figure.subplots(1, len(pairs), squeeze=False)[0], pairs, frames, strict=True):
        ax.axline((0, 0), slope=1, color=GREY, linewidth=1, linestyle="--", zorder=0)
        bars = {
            f"{side}err": np.nan_to_num([rows[side] - rows[f"{side}_low"], rows[f"{side}_high"] - rows[side]])
            for side in ("x", "y")
        }
        ax.errorbar(rows["x"], rows["y"], **bars, **DOT, linestyle="none", elinewidth=0.9, color=PALETTE[0])
        ax.set(
            xlim=(0, 1),
            ylim=(0, 1),
            xlabel=f"{first.title}, test Pass@1",
            ylabel=f"{second.title}, test Pass@1",
            aspect="equal",
        )
        for row in rows[rows["cell"].isin(_NAMED)].itertuples():
            ax.annotate(
                short(row.cell), (row.x, row.y), xytext=(6, -9), textcoords="offset points", fontsize=8, color=GREY
            )
    return figure, pd.concat(frames, ignore_index=True)


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
            row |= {side: known.mean, f"{side}_low": low, f"{side}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


@styled
def explanation(levels: list[CurveSet], cells: list[str]) -> Drawn:
    """The designs on which levels disagree: test Pass@1 and zero-signal fraction by round, signal-to-noise by mean
    reward; a row per level with curves."""
    figure = Figure(figsize=(11, 2.4 * len(levels) + 0.7))
    axes = figure.subplots(len(levels), 3, squeeze=False)
    frames = []
    for row, own in zip(axes, levels, strict=True):
        course, noise = (
            dynamics(own, cells),
            pd.concat([signal_to_noise(own.curves, cell).assign(cell=cell) for cell in cells]),
        )
        frames += [course.assign(level=own.name), noise.assign(level=own.name)]
        for cell, colour in zip(cells, PALETTE[3:], strict=False):
            line = course[course["cell"] == cell]
            row[0].plot(line["round"], line["test_pass_at_1"], color=colour)
            row[1].plot(line["round"], line["zero_signal_fraction"], color=colour)
            dots = noise[noise["cell"] == cell]
            row[2].plot(dots["reward"], dots["signal_to_noise"], color=colour, marker="o", markersize=3, linewidth=1)
        row[0].set(ylabel=f"{own.title}\ntest Pass@1", ylim=(0, 1))
        row[1].set(ylabel="zero-signal fraction", ylim=(0, 1))
        row[2].set_ylabel("signal-to-noise of an update")
        row[2].set_yscale("symlog", linthresh=0.01)
        row[2].set_ylim(bottom=0)
    for ax, text in zip(axes[-1], ("training round", "training round", "mean reward of training"), strict=True):
        ax.set_xlabel(text)
    numbers = pd.concat(frames, ignore_index=True)
    legend(
        figure,
        [key(short(cell), colour) for cell, colour in zip(cells, PALETTE[3:], strict=False)],
        numbers.assign(low=np.nan, published=np.nan),
        {},
    )
    return figure, numbers


@styled
def histograms(rates: dict[str, pd.DataFrame], cells: list[str]) -> Drawn:
    """Share of training contexts by pass rate, stacked, by round: a row per level that `rates` tells of, a column
    per design."""
    figure = Figure(figsize=(max(6.0, 3.6 * len(cells)), 2.3 * len(rates) + 0.9))
    axes = figure.subplots(len(rates), len(cells), sharex="row", sharey=True, squeeze=False)
    for row, (title, table) in zip(axes, rates.items(), strict=True):
        for ax, cell in zip(row, cells, strict=True):
            own = table[table["cell"] == cell]
            ax.stackplot(own["round"], own[list(BINS)].to_numpy().T, colors=_SHADES, linewidth=0)
            ax.set(title=short(cell), ylim=(0, 1), xlabel="training round")
        row[0].set_ylabel(f"{title}\nshare of contexts")
    numbers = pd.concat([table.assign(level=title) for title, table in rates.items()], ignore_index=True)
    handles = [key(text, colour, linewidth=6) for text, colour in zip(BINS, _SHADES, strict=True)]
    legend(figure, handles, numbers.assign(low=np.nan, published=np.nan), {}, "pass rate of a context")
    return figure, numbers
