"""Every figure of a study, and the numbers drawn in it. The only file that imports seaborn and matplotlib.

A figure function returns the figure and a table of what it shows; `save` writes both. Figures are drawn without pyplot, so they need no display,
and equal data give equal bytes. studies/report.py says what `curves` and `endpoints` hold.
"""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from math import ceil
from pathlib import Path
from threading import RLock

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.special import stdtrit

from studies.experiments import EXPERIMENTS, Experiment, label

Drawn = tuple[Figure, pd.DataFrame]
SPLITS = ("train", "test")
_CELL = ["pair", "split", "cell"]
_NAMES = {"qwen": "Qwen", "llama": "Llama", "olmo": "OLMo", "gsm8k": "GSM8K", "math": "MATH"}
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _BROWN = sns.color_palette("colorblind", 6).as_hex()
_SPLIT_COLOURS = {"train": _BLUE, "test": _ORANGE}
_GREY = "#555555"
_HOLLOW = {"marker": "D", "markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.2, "linestyle": "none", "zorder": 5}
_STYLE = {
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
    "lines.linewidth": 1.6,
    "svg.hashsalt": "rftlab",
    "svg.fonttype": "path",
}
_LOCK = RLock()


def _styled(draw: Callable) -> Callable:
    """Gives a function the look of all figures; one thread at a time, because matplotlib's settings are global."""

    @wraps(draw)
    def inside(*args, **kwargs):
        with _LOCK, rc_context(_STYLE):
            return draw(*args, **kwargs)

    return inside


@_styled
def save(figure: Figure, folder: Path, name: str, numbers: pd.DataFrame) -> Path:
    """Writes name.svg, name.png and name.csv (the numbers drawn) into the folder; each appears complete or not at all. Returns the svg's path."""
    folder.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    write_whole(folder / f"{name}.png", lambda path: figure.savefig(path, format="png", dpi=160))
    write_whole(folder / f"{name}.csv", lambda path: write_numbers(path, numbers))
    write_whole(folder / f"{name}.svg", lambda path: figure.savefig(path, format="svg", metadata={"Date": None}))
    figure.clear()
    return folder / f"{name}.svg"


def write_numbers(path: Path, numbers: pd.DataFrame) -> None:
    """A table as csv with six decimals, so that equal numbers give equal files."""
    numbers.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, then puts it in place."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def dataset_of(pair: str) -> str:
    """Data set in a pair's name: 'gsm8k' of 'qwen-gsm8k'."""
    return pair.rpartition("-")[2]


def pretty(name: str) -> str:
    """The name of a pair, model or data set as it is printed: 'Qwen · GSM8K' of 'qwen-gsm8k'."""
    return " · ".join(_NAMES.get(part, part) for part in name.rsplit("-", 1))


def by_dataset(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Pairs of each data set, in the given order."""
    groups: dict[str, list[str]] = {}
    for pair in pairs:
        groups.setdefault(dataset_of(pair), []).append(pair)
    return groups


def published_cells(endpoints: pd.DataFrame) -> pd.DataFrame:
    """Endpoints of trained cells with a published number; a cell that several experiments share counts once."""
    return endpoints[endpoints["published"].notna() & (endpoints["experiment"] != "base")].drop_duplicates(_CELL)


def mean_absolute_errors(endpoints: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute difference to the published endpoints per data set and split, and how many there are; the base model is left out."""
    known = published_cells(endpoints)
    known = known.assign(dataset=known["pair"].map(dataset_of), error=known["difference"].abs())
    return known.groupby(["dataset", "split"], sort=False)["error"].agg(["mean", "count"]).reset_index()


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean Pass@1 and 95% t interval over seeds, per pair, cell, split and round; rounds that a seed of the cell did not reach are left out."""
    ordered = curves.sort_values(["pair", "cell", "seed", "round"]).rename(columns={f"{split}_pass_at_1": split for split in SPLITS})
    long = ordered.melt(id_vars=["pair", "cell", "round"], value_vars=list(SPLITS), var_name="split")
    means = long.groupby([*_CELL, "round"])["value"].agg(["mean", "std", "count"]).reset_index()
    seeds = means["count"]
    half = stdtrit(np.maximum(seeds - 1, 1), 0.975) * means.pop("std") / np.sqrt(seeds)
    means = means.assign(low=means["mean"] - half, high=means["mean"] + half, seeds=means.pop("count"))
    return means[means["seeds"] == means.groupby(_CELL)["seeds"].transform("max")]


def _on_axis(experiment: Experiment) -> int:
    """How many cells lie along the axis; a later one repeats a (batch size, rollouts) with another baseline set and stands beside it."""
    return len({(cell.batch_size, cell.rollouts) for cell in experiment.cells})


def _cell_colours(experiment: Experiment) -> dict[str, str]:
    """Sequential colours along the axis, a contrasting one beside it."""
    count = _on_axis(experiment)
    colours = [*sns.color_palette("viridis", count + 1).as_hex()[:count], *[_RED] * (len(experiment.cells) - count)]
    return dict(zip(map(label, experiment.cells), colours, strict=True))


def _share(axes: list[Axes]) -> None:
    """One y axis for several panels of a row, labelled at the first."""
    for ax in axes[1:]:
        ax.sharey(axes[0])
        ax.tick_params(labelleft=False)


def _legend(figure: Figure, handles: list, numbers: pd.DataFrame, title: str | None = None) -> None:
    """One legend above the panels, in as few rows as fit; explains intervals and published numbers where there are any."""
    if numbers["low"].notna().any():
        handles = [*handles, Patch(color=_GREY, alpha=0.3, linewidth=0, label="95% interval over seeds")]
    if numbers["published"].notna().any():
        handles = [*handles, Line2D([], [], color=_GREY, label="published", **_HOLLOW)]
    rows = ceil(sum(0.45 + 0.08 * len(handle.get_label()) for handle in handles) / figure.get_figwidth())
    columns = ceil(len(handles) / rows)
    figure.legend(handles=handles, title=title, alignment="left", loc="outside upper left", ncols=columns, handlelength=1.6, columnspacing=1.4)


@_styled
def learning_curves(experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Pass@1 against the round, train above test, one column per pair, one line per cell; bands over seeds, published endpoints hollow."""
    numbers = _curve_numbers(experiment, curves, endpoints, pairs)
    colours = _cell_colours(experiment)
    figure = Figure(figsize=(max(6.0, 2.2 * len(pairs) + 0.6), 5.4), layout="constrained")
    axes = figure.subplots(2, len(pairs), squeeze=False)
    for row, split in zip(axes, SPLITS, strict=True):
        for group in by_dataset(pairs).values():
            _share([row[pairs.index(pair)] for pair in group])
        row[0].set_ylabel(f"{split} Pass@1")
        for ax, pair in zip(row, pairs, strict=True):
            _curve_panel(ax, numbers[(numbers["pair"] == pair) & (numbers["split"] == split)], colours)
    for top, bottom, pair in zip(*axes, pairs, strict=True):
        top.set(title=pretty(pair))
        top.tick_params(labelbottom=False)
        bottom.set(xlabel="round")
    ticks = zip(experiment.cells, experiment.ticks, strict=True)
    _legend(figure, [Line2D([], [], color=colours[label(cell)], label=tick) for cell, tick in ticks], numbers, experiment.axis)
    return figure, numbers


def _curve_numbers(experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]) -> pd.DataFrame:
    """The lines of `learning_curves`, in the order of pairs, splits and cells; `published` stands at the last round of a line."""
    ticks = dict(zip(map(label, experiment.cells), experiment.ticks, strict=True))
    order = {"pair": list(pairs), "split": list(SPLITS), "cell": list(ticks)}
    means = mean_curves(curves[curves["cell"].isin(order["cell"]) & curves["pair"].isin(pairs)])
    means = means.sort_values([*_CELL, "round"], key=lambda column: column.map(order[column.name].index) if column.name in order else column)
    means.insert(3, "tick", means["cell"].map(ticks))
    means = means.merge(endpoints.drop_duplicates(_CELL)[[*_CELL, "published"]], how="left", on=_CELL)
    return means.assign(published=means["published"].where(~means.duplicated(_CELL, keep="last")))


def _curve_panel(ax: Axes, numbers: pd.DataFrame, colours: dict[str, str]) -> None:
    for cell, line in numbers.groupby("cell", sort=False):
        ax.plot(line["round"], line["mean"], color=colours[cell])
        ax.fill_between(line["round"], line["low"], line["high"], color=colours[cell], alpha=0.2, linewidth=0)
        ax.plot(line["round"], line["published"], color=colours[cell], clip_on=False, **_HOLLOW)


@_styled
def tradeoff(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Pass@1 after training against the experiment's axis, one panel per pair; the pairs of a data set form a row and share the y axis."""
    if len(experiment.cells) == 1:
        return _dumbbells(experiment, endpoints, pairs)
    numbers = endpoints[(endpoints["experiment"] == experiment.name) & endpoints["pair"].isin(pairs)]
    groups = by_dataset(pairs)
    columns = max(map(len, groups.values()))
    figure = Figure(figsize=(max(6.0, 4.3 * columns), 2.5 * len(groups) + 0.8), layout="constrained")
    axes = figure.subplots(len(groups), columns, squeeze=False)
    for row, group in zip(axes, groups.values(), strict=True):
        _share(list(row[: len(group)]))
        row[0].set_ylabel("Pass@1 after training")
        for ax, pair in zip(row, group, strict=False):
            ax.set_title(pretty(pair))
            for split, colour in _SPLIT_COLOURS.items():
                _endpoint_line(ax, experiment, numbers[(numbers["pair"] == pair) & (numbers["split"] == split)], color=colour)
            _name_axis(ax, experiment, width=4.0)
        for ax in row[len(group) :]:
            ax.set_axis_off()
    handles = [Line2D([], [], color=colour, marker="o", markersize=4, label=f"{split}, simulated") for split, colour in _SPLIT_COLOURS.items()]
    _legend(figure, handles, numbers)
    return figure, numbers


def _endpoint_line(ax: Axes, experiment: Experiment, rows: pd.DataFrame, **line) -> None:
    """Simulated endpoints with intervals, joined along the axis; published ones hollow."""
    rows = rows.set_index("tick").reindex(list(experiment.ticks))
    places = np.arange(len(rows))
    bars = np.nan_to_num([rows["mean"] - rows["low"], rows["high"] - rows["mean"]])
    joined = _on_axis(experiment) if _on_axis(experiment) > 1 else len(rows)
    for part, joins in ((slice(0, joined), {}), (slice(joined, None), {"linestyle": "none"})):
        ax.errorbar(places[part], rows["mean"][part], bars[:, part], marker="o", markersize=4, elinewidth=1.2, capsize=2.5, **line | joins)
    ax.plot(places, rows["published"], color=line["color"], **_HOLLOW)


def _name_axis(ax: Axes, experiment: Experiment, width: float) -> None:
    """Ticks and label of the experiment's axis; ticks are turned where they would touch in `width` inches."""
    ax.set_xticks(range(len(experiment.ticks)), experiment.ticks)
    ax.set_xlim(-0.4, len(experiment.ticks) - 0.6)
    ax.set_xlabel(experiment.axis)
    if max(map(len, experiment.ticks)) * 0.085 + 0.1 > width / len(experiment.ticks):
        ax.tick_params(axis="x", labelrotation=35)
        for text in ax.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")


def _dumbbells(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """One panel: from the base model to the trained one, a line per pair and split."""
    numbers = endpoints[endpoints["experiment"].isin(["base", experiment.name]) & endpoints["pair"].isin(pairs)]
    figure = Figure(figsize=(8.5, 0.55 * len(pairs) + 1.4), layout="constrained")
    ax = figure.subplots()
    for split, colour, shift in zip(SPLITS, _SPLIT_COLOURS.values(), (-0.17, 0.17), strict=True):
        rows = numbers[numbers["split"] == split].set_index(["experiment", "pair"])
        base, trained = (rows.loc[name].reindex(pairs) for name in ("base", experiment.name))
        heights = np.arange(len(pairs)) + shift
        ax.hlines(heights, base["mean"], trained["mean"], color=colour, alpha=0.45, linewidth=2)
        ax.plot(base["mean"], heights, color=colour, marker="|", markersize=9, linestyle="none")
        bars = np.nan_to_num([trained["mean"] - trained["low"], trained["high"] - trained["mean"]])
        ax.errorbar(trained["mean"], heights, xerr=bars, color=colour, marker="o", markersize=5, linestyle="none", elinewidth=1.2, capsize=2.5)
        for known in (base, trained):
            ax.plot(known["published"], heights, color=colour, clip_on=False, **_HOLLOW)
    ax.set(xlabel="Pass@1", yticks=range(len(pairs)), yticklabels=map(pretty, pairs), ylim=(len(pairs) - 0.5, -0.5))
    base = Line2D([], [], color=_GREY, marker="|", markersize=9, linestyle="none", label="base model, simulated")
    handles = [Line2D([], [], color=colour, marker="o", markersize=5, label=f"{split}, simulated") for split, colour in _SPLIT_COLOURS.items()]
    _legend(figure, [*handles, base], numbers)
    return figure, numbers


@_styled
def agreement(endpoints: pd.DataFrame) -> Drawn:
    """Simulated against published Pass@1 of every trained cell that the paper reports, train beside test, with the mean absolute errors."""
    numbers = published_cells(endpoints)
    errors = mean_absolute_errors(endpoints)
    pairs = list(dict.fromkeys(numbers["pair"]))
    figure = Figure(figsize=(9.5, 4.9), layout="constrained")
    for ax, split in zip(figure.subplots(1, 2), SPLITS, strict=True):
        for pair, (colour, marker) in zip(pairs, _pair_marks(pairs), strict=True):
            rows = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
            bars = np.nan_to_num([rows["mean"] - rows["low"], rows["high"] - rows["mean"]])
            ax.errorbar(rows["published"], rows["mean"], bars, color=colour, marker=marker, markersize=5.5, linestyle="none", elinewidth=1.2)
        ax.axline((0, 0), slope=1, color=_GREY, linewidth=1, linestyle="--", zorder=0)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=f"published {split} Pass@1", ylabel=f"simulated {split} Pass@1")
        known = errors[errors["split"] == split]
        lines = [f"{pretty(row.dataset)}: MAE {row.mean:.3f} ({row.count} cells)" for row in known.rename(columns=str).itertuples()]
        ax.set_title("\n".join([split, *lines]))
    return figure, numbers


def _pair_marks(pairs: list[str]) -> list[tuple[str, str]]:
    """Colour and marker of each pair: a colour of its own, and a marker for its data set."""
    markers = dict(zip(by_dataset(pairs), "os^v", strict=False))
    return [(colour, markers[dataset_of(pair)]) for pair, colour in zip(pairs, sns.color_palette("colorblind", len(pairs)).as_hex(), strict=True)]


__all__ = ["EXPERIMENTS"]
