"""Every figure of a study, and the numbers drawn in it. studies/*_figures.py draw with its helpers.

A figure function returns the figure and a table of what it shows; `save` writes both. Figures are drawn without pyplot,
so they need no display, and equal data give equal bytes. studies/report/report.py says what `curves` and `endpoints`
hold.
"""

import os
import uuid
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from math import ceil
from pathlib import Path
from threading import RLock
from typing import Any, TextIO

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.special import stdtrit

from rftlab.shared.curve import SPLITS
from rftlab.studies.paper.experiments import EXPERIMENTS, Experiment, label
from rftlab.studies.report.panels import note
from rftlab.studies.results.stats import CONFIDENCE
from rftlab.studies.runs.scratch import sweep

Drawn = tuple[Figure, pd.DataFrame]
OVERVIEW = ("rollouts", "batch", "tradeoff", "ceiling")
DASHES = {"train": "--", "test": "-"}
_CELL = ["pair", "split", "cell"]
_NAMES = {"qwen": "Qwen", "llama": "Llama", "olmo": "OLMo", "gsm8k": "GSM8K", "math": "MATH"}
PALETTE = sns.color_palette("colorblind", 10).as_hex()
_SPLIT_COLOURS = dict(zip(SPLITS, PALETTE, strict=False))
_BESIDE, GREY = PALETTE[3], "#555555"
DOT: dict[str, Any] = {"marker": "o", "markersize": 4}
BARS: dict[str, Any] = {**DOT, "elinewidth": 1.2, "capsize": 2.5}
BAR: dict[str, Any] = {"marker": "|", "markersize": 9, "markeredgewidth": 1.5, "linestyle": "none"}
BAND: dict[str, Any] = {"linewidth": 8, "alpha": 0.3, "solid_capstyle": "butt"}
HOLLOW: dict[str, Any] = {
    "marker": "D",
    "markersize": 6.5,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "linestyle": "none",
    "zorder": 5,
}
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
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "rftlab",
    "svg.fonttype": "path",
}
_LOCK = RLock()


def styled(draw: Callable) -> Callable:
    """Gives a function the look of all figures; one thread at a time, because matplotlib's settings are global."""

    @wraps(draw)
    def inside(*args, **kwargs):
        with _LOCK, rc_context(_STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # of names in a script that the font lacks
            return draw(*args, **kwargs)

    return inside


@styled
def save(figure: Figure, folder: Path, name: str, numbers: pd.DataFrame) -> Path:
    """Writes name.svg, name.png and name.csv (the numbers drawn) into the folder; each appears complete or not at
    all. Returns the svg's path."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.csv", lambda path: write_numbers(path, numbers))
    write_whole(folder / f"{name}.png", FigureCanvasAgg(figure).print_png)
    figure.set_layout_engine("none")
    write_whole(folder / f"{name}.svg", lambda path: FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None}))
    figure.clear()
    return folder / f"{name}.svg"


def write_numbers(path: Path | TextIO, numbers: pd.DataFrame) -> None:
    """A table as csv with six decimals, so that equal numbers give equal files. A text that a table would compute
    begins with an apostrophe."""
    guarded = numbers.copy()
    for name in guarded.columns:
        if guarded[name].dtype.kind not in "iufbM":
            guarded[name] = [_guarded(cell) for cell in guarded[name]]
    guarded.columns = [_guarded(name) for name in guarded.columns]
    guarded.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")


def _guarded(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in ("=", "+", "-", "@") else cell


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, then puts it in place. A system error names `path`."""
    sweep(path.parent, f".{path.name}.*")
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(part)
        os.replace(part, path)
    except OSError as error:
        if error.errno is not None:  # one with a message of its own would lose it
            error.filename = str(path)
        raise
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


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean Pass@1 and 95% t interval over seeds, per pair, cell, split and round; rounds that a seed of the cell did
    not reach are left out."""
    ordered = curves.sort_values(["pair", "cell", "seed", "round"]).rename(
        columns={f"{split}_pass_at_1": split for split in SPLITS}
    )
    long = ordered.melt(id_vars=["pair", "cell", "round"], value_vars=list(SPLITS), var_name="split")
    means = long.groupby([*_CELL, "round"])["value"].agg(["mean", "std", "count"]).reset_index()
    seeds = means["count"]
    half = stdtrit(np.maximum(seeds - 1, 1), 0.5 + CONFIDENCE / 2) * means.pop("std") / np.sqrt(seeds)
    means = means.assign(low=means["mean"] - half, high=means["mean"] + half, seeds=means.pop("count"))
    return means[means["seeds"] == means.groupby(_CELL)["seeds"].transform("max")]


def rows_of(pairs: Iterable[str]) -> list[list[str]]:
    """Pairs as figures arrange them: those of a data set in a row; in one row where each has a data set of its own."""
    groups = list(by_dataset(pairs).values())
    return groups if max(map(len, groups)) > 1 else [[pair for group in groups for pair in group]]


def _on_axis(experiment: Experiment) -> int:
    """How many cells lie along the axis; a later one repeats a (batch size, rollouts) with another baseline set and
    stands beside it."""
    return len({(cell.batch_size, cell.rollouts) for cell in experiment.cells})


def _cell_colours(experiment: Experiment) -> dict[str, str]:
    """Sequential colours along the axis, a contrasting one beside it."""
    count = _on_axis(experiment)
    colours = [*sns.color_palette("viridis", count + 1).as_hex()[:count], *[_BESIDE] * (len(experiment.cells) - count)]
    return dict(zip(map(label, experiment.cells), colours, strict=True))


def legend(figure: Figure, handles: list, numbers: pd.DataFrame, interval: dict, title: str | None = None) -> None:
    """One legend above the panels, in as few rows as fit; explains intervals and published numbers where there are
    any."""
    if numbers["low"].notna().any():
        handles = [*handles, key("95% interval over seeds", **interval)]
    if numbers["published"].notna().any():
        handles = [*handles, key("published", **HOLLOW)]
    rows = ceil(sum(0.48 + 0.082 * len(handle.get_label()) for handle in handles) / figure.get_figwidth())
    figure.legend(
        handles=handles,
        title=title,
        alignment="left",
        loc="outside upper left",
        ncols=ceil(len(handles) / rows),
        handlelength=1.6,
    )


def key(text: str, color: str = GREY, **line: Any) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], color=color, label=text, **line)


def bar_lengths(rows: pd.DataFrame) -> np.ndarray:
    """Lengths of the interval bars below and above the mean; nan with one seed."""
    return np.array([rows["mean"] - rows["low"], rows["high"] - rows["mean"]])


@styled
def learning_curves(experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Pass@1 against the round, train above test, one column per pair, one line per cell; bands over seeds,
    published endpoints hollow."""
    numbers = _curve_numbers(experiment, curves, endpoints, pairs)
    colours = _cell_colours(experiment)
    figure = Figure(figsize=(max(6.0, 2.2 * len(pairs) + 0.6), 5.4))
    axes = figure.subplots(2, len(pairs), sharex=True, squeeze=False)
    for row, split in zip(axes, SPLITS, strict=True):
        for group in rows_of(pairs):
            for pair in group[1:]:
                row[pairs.index(pair)].sharey(row[pairs.index(group[0])])
                row[pairs.index(pair)].tick_params(labelleft=False)
        row[0].set_ylabel(f"{split} Pass@1")
        for ax, pair in zip(row, pairs, strict=True):
            note(ax, pair=pair, split=split)
            panel = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
            for cell, line in panel.groupby("cell", sort=False):
                ax.plot(line["round"], line["mean"], color=colours[cell])
                ax.fill_between(line["round"], line["low"], line["high"], color=colours[cell], alpha=0.2, linewidth=0)
                ax.plot(panel["round"].max(), line["published"].iloc[-1], color=colours[cell], clip_on=False, **HOLLOW)
    for top, bottom, pair in zip(*axes, pairs, strict=True):
        top.set_title(pretty(pair))
        bottom.set_xlabel("training round")
        bottom.locator_params(axis="x", nbins=3)
    keys = [key(tick, colours[label(cell)]) for cell, tick in zip(experiment.cells, experiment.ticks, strict=True)]
    legend(figure, keys, numbers, BAND, experiment.axis)
    return figure, numbers


def _curve_numbers(
    experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]
) -> pd.DataFrame:
    """The lines of `learning_curves`, in the order of pairs, splits and cells; `published` stands at the last round
    of a line."""
    ticks = dict(zip(map(label, experiment.cells), experiment.ticks, strict=True))
    order = {"pair": list(pairs), "split": list(SPLITS), "cell": list(ticks)}
    means = mean_curves(curves[curves["cell"].isin(order["cell"]) & curves["pair"].isin(pairs)])
    means = means.sort_values(
        [*_CELL, "round"], key=lambda column: column.map(order[column.name].index) if column.name in order else column
    )
    means.insert(3, "tick", means["cell"].map(ticks))
    means = means.merge(endpoints.drop_duplicates(_CELL)[[*_CELL, "published"]], how="left", on=_CELL)
    return means.assign(published=means["published"].where(~means.duplicated(_CELL, keep="last")))


@styled
def tradeoff(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Pass@1 after training against the experiment's axis, one panel per pair; the pairs of a row share the y axis."""
    if len(experiment.cells) == 1:
        return _dumbbells(experiment, endpoints, pairs)
    numbers = endpoints[(endpoints["experiment"] == experiment.name) & endpoints["pair"].isin(pairs)]
    groups = rows_of(pairs)
    columns = max(map(len, groups))
    figure = Figure(figsize=(max(6.0, 4.4 * columns), 2.3 * len(groups) + 1.1))
    axes = figure.subplots(len(groups), columns, sharey="row", squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        row[0].set_ylabel("Pass@1 after training")
        for ax, pair in zip(row, group, strict=False):
            ax.set_title(pretty(pair))
            note(ax, pair=pair)
            for split, colour in _SPLIT_COLOURS.items():
                rows = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
                _endpoint_line(ax, experiment, rows, {"split": split, "name": split}, color=colour)
            name_axis(ax, experiment, width=4.0)
            if len(groups) * columns == len(pairs):
                ax.label_outer()
        for ax in row[len(group) :]:
            ax.set_axis_off()
    legend(figure, [key(split, colour, **DOT) for split, colour in _SPLIT_COLOURS.items()], numbers, BAR)
    return figure, numbers


def _endpoint_line(ax: Axes, experiment: Experiment, rows: pd.DataFrame, facts: dict[str, str], **line) -> None:
    """Endpoints with intervals, joined along the axis; published ones hollow. facts: what the line is about."""
    rows = rows.set_index("tick").reindex(list(experiment.ticks))
    places, lengths = np.arange(len(rows)), bar_lengths(rows)
    joined = _on_axis(experiment) if _on_axis(experiment) > 1 else len(rows)
    parts = ((slice(joined), line), (slice(joined, None), line | {"linestyle": "none"}))
    for part, style in parts:
        note(ax.errorbar(places[part], rows["mean"][part], lengths[:, part], **BARS, **style)[0], **facts)
    published = ax.plot(places, rows["published"], color=line["color"], **HOLLOW)
    note(published[0], **facts | {"name": f"{facts['name']} · published"})


def name_axis(ax: Axes, experiment: Experiment, width: float) -> None:
    """Ticks and label of the experiment's axis; ticks are turned where they would touch in `width` inches."""
    ax.set_xticks(range(len(experiment.ticks)), experiment.ticks)
    ax.set_xlim(-0.4, len(experiment.ticks) - 0.6)
    ax.set_xlabel(experiment.axis)
    if 0.075 * sum(map(len, experiment.ticks)) + 0.1 * len(experiment.ticks) > width:
        for text in ax.get_xticklabels():
            text.set(rotation=35, ha="right", rotation_mode="anchor")


def _dumbbells(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """One panel: from the base model to the trained one, a line per pair and split."""
    numbers = endpoints[endpoints["experiment"].isin(["base", experiment.name]) & endpoints["pair"].isin(pairs)]
    figure = Figure(figsize=(9.5, 0.55 * len(pairs) + 1.2))
    ax = figure.subplots()
    for (split, colour), shift in zip(_SPLIT_COLOURS.items(), (-0.17, 0.17), strict=True):
        rows = numbers[numbers["split"] == split].set_index("pair")
        base, trained = (rows[rows["experiment"] == name].reindex(pairs) for name in ("base", experiment.name))
        for at, pair in enumerate(pairs):
            _dumbbell(ax, at + shift, base[at : at + 1], trained[at : at + 1], colour, {"pair": pair, "split": split})
    ax.set(xlabel="Pass@1", yticks=range(len(pairs)), yticklabels=map(pretty, pairs), ylim=(len(pairs) - 0.5, -0.5))
    ax.grid(visible=False, axis="y")
    keys = [key(split, colour, **DOT) for split, colour in _SPLIT_COLOURS.items()]
    legend(figure, [*keys, key("base model", **BAR)], numbers, BAR | {"marker": "_"})
    return figure, numbers


def _dumbbell(
    ax: Axes, height: float, base: pd.DataFrame, trained: pd.DataFrame, colour: str, facts: dict[str, str]
) -> None:
    """From one base model to the trained one."""
    joined = ax.hlines([height], base["mean"], trained["mean"], color=colour, alpha=0.4, linewidth=2)
    (before,) = ax.plot(base["mean"], [height], color=colour, **BAR)
    after = ax.errorbar(trained["mean"], [height], xerr=bar_lengths(trained), color=colour, linestyle="none", **BARS)[0]
    known = [*base["published"], *trained["published"]]
    (published,) = ax.plot(known, [height, height], color=colour, clip_on=False, **HOLLOW)
    for artist in (joined, before, after, published):
        note(artist, **facts)


@styled
def agreement(numbers: pd.DataFrame, errors: dict[str, list[str]]) -> Drawn:
    """Our against published Pass@1 of endpoints that have both, train beside test; `errors` are lines of each
    split's title."""
    pairs = list(dict.fromkeys(numbers["pair"]))
    markers = dict(zip(by_dataset(pairs), "osv^", strict=False))
    marks = {
        pair: {"color": colour, "marker": markers[dataset_of(pair)], "markersize": 5.5}
        for pair, colour in zip(pairs, PALETTE, strict=False)
    }
    figure = Figure(figsize=(10, 5.8))
    for ax, split in zip(figure.subplots(1, 2), SPLITS, strict=True):
        note(ax, split=split)
        ax.axline((0, 0), slope=1, color=GREY, linewidth=1, linestyle="--", zorder=0)
        for pair, mark in marks.items():
            rows = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
            bars = bar_lengths(rows)
            dots = ax.errorbar(rows["published"], rows["mean"], bars, linestyle="none", elinewidth=1.2, **mark)
            note(dots[0], pair=pair, name=pretty(pair))
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=f"published {split} Pass@1", ylabel=f"our {split} Pass@1")
        ax.set_title("\n".join([f"{split} Pass@1", *errors[split]]))
    legend(
        figure,
        [key(pretty(pair), linestyle="none", **mark) for pair, mark in marks.items()],
        numbers.assign(published=np.nan),
        BAR,
    )
    return figure, numbers


@styled
def overview(endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """The four axes of the paper side by side: endpoints of a few pairs, test solid and train dashed."""
    experiments = [EXPERIMENTS[name] for name in OVERVIEW if name in set(endpoints["experiment"])]
    numbers = endpoints[endpoints["experiment"].isin(OVERVIEW) & endpoints["pair"].isin(pairs)]
    colours = dict(zip(pairs, PALETTE, strict=False))
    figure = Figure(figsize=(12, 3.4))
    widths = [len(e.cells) + 1 for e in experiments]
    axes = figure.subplots(1, len(experiments), sharey=True, width_ratios=widths, squeeze=False)[0]
    for ax, e, width in zip(axes, experiments, widths, strict=True):
        for (pair, split), rows in numbers[numbers["experiment"] == e.name].groupby(["pair", "split"], sort=False):
            facts = {"pair": pair, "split": split, "name": f"{pretty(pair)} · {split}"}
            _endpoint_line(ax, e, rows, facts, color=colours[pair], linestyle=DASHES[split])
        name_axis(ax, e, width=11 * width / sum(widths))
        ax.set_title(e.title.split(maxsplit=1)[1])
        note(ax, experiment=e.name)
    axes[0].set_ylabel("Pass@1 after training")
    keys = [key(pretty(pair), colour) for pair, colour in colours.items()]
    legend(figure, [*keys, *(key(split, linestyle=dash) for split, dash in DASHES.items())], numbers, BAR)
    return figure, numbers
