"""Draw the figures of a study: learning curves, trade-offs, agreement with the paper, overview.

Each function returns a chart and the numbers drawn in it. `curves` and `endpoints` are described in
studies/report/report.py.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.data.paper.experiments import EXPERIMENTS, Experiment, label
from rftlab.studies.data.results.stats import t_errors
from rftlab.studies.report.chart import (
    BAND,
    DASHES,
    IDENTITY,
    PALETTE,
    SPLIT_KEYS,
    WHISKER,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Outline,
    Panel,
    PlotAxis,
    PlotSeries,
    bars,
    diamonds,
    dots,
    error_bars,
    lengthened,
    names,
    rates,
    shades,
)

OVERVIEW = ("rollouts", "batch", "tradeoff", "ceiling")
_CELL = ["pair", "split", "cell"]
_NAMES = {"qwen": "Qwen", "llama": "Llama", "olmo": "OLMo", "gsm8k": "GSM8K", "math": "MATH"}
_SPLIT_COLOURS = dict(zip(SPLITS, PALETTE, strict=False))
_COLOUR_KEYS = [LegendKey(split, MarkStyle(colour, marker="o")) for split, colour in _SPLIT_COLOURS.items()]


def dataset_name(pair: str) -> str:
    """Return the data set in a pair's name: 'gsm8k' of 'qwen-gsm8k'."""
    return pair.rpartition("-")[2]


def pretty(name: str) -> str:
    """Return the printed name of a pair, model or data set: 'Qwen · GSM8K' of 'qwen-gsm8k'."""
    return " · ".join(_NAMES.get(part, part) for part in name.rsplit("-", 1))


def by_dataset(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Return the pairs of each data set, in the given order."""
    groups: dict[str, list[str]] = {}
    for pair in pairs:
        groups.setdefault(dataset_name(pair), []).append(pair)
    return groups


def pair_rows(pairs: Iterable[str]) -> list[list[str]]:
    """Return the pairs as figures arrange them: a row for each data set, or one row where no data set has two pairs."""
    groups = list(by_dataset(pairs).values())
    return groups if max(map(len, groups)) > 1 else [[pair for group in groups for pair in group]]


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean Pass@1 and 95% t interval over seeds, per pair, cell, split and round; rounds that a seed of the
    cell did not reach are left out."""
    ordered = curves.sort_values(["pair", "cell", "seed", "round"]).rename(
        columns={f"{split}_pass_at_1": split for split in SPLITS}
    )
    long = ordered.melt(id_vars=["pair", "cell", "round"], value_vars=list(SPLITS), var_name="split")
    means = long.groupby([*_CELL, "round"])["value"].agg(["mean", "std", "count"]).reset_index()
    seeds = means["count"]
    half = t_errors(np.maximum(seeds - 1, 1)) * means.pop("std") / np.sqrt(seeds)
    means = means.assign(low=means["mean"] - half, high=means["mean"] + half, seeds=means.pop("count"))
    # a mean over fewer seeds would jump where one of them ends
    return means[means["seeds"] == means.groupby(_CELL)["seeds"].transform("max")]


def _on_axis(experiment: Experiment) -> int:
    """Return the number of cells along the axis; a later cell repeats a (batch size, rollouts) with another baseline
    set and is drawn beside the axis."""
    return len({(cell.batch_size, cell.rollouts) for cell in experiment.cells})


def _cell_colours(experiment: Experiment) -> dict[str, str]:
    """Return sequential colours for cells along the axis, and a contrasting one beside it."""
    count = _on_axis(experiment)
    colours = [*shades(count), *[PALETTE[3]] * (len(experiment.cells) - count)]
    return dict(zip(map(label, experiment.cells), colours, strict=True))


def learning_curves(experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Draw Pass@1 against the round: train above test, one column per pair, one line per cell, bands over seeds.
    Published endpoints are hollow diamonds."""
    numbers = _curve_numbers(experiment, curves, endpoints, pairs)
    colours = _cell_colours(experiment)
    tops = _tops(numbers)
    panels = []
    for split in SPLITS:
        for pair in pairs:
            own = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
            series = []
            for (cell, tick), line in own.groupby(["cell", "tick"], sort=False):
                style = MarkStyle(colours[cell])
                series.append(PlotSeries(line["round"], line["mean"], style, tick, line["low"], line["high"]))
                published = line["published"].iloc[-1:]
                series.append(
                    PlotSeries([own["round"].max()], published, diamonds(colours[cell]), f"{tick} · published")
                )
            y = PlotAxis(f"{split} Pass@1", low=0.0, high=tops[dataset_name(pair), split])
            panels.append(
                Panel(pretty(pair), PlotAxis("training round"), y, tuple(series), facts={"pair": pair, "split": split})
            )
    keys = [LegendKey(tick, MarkStyle(colours[cell])) for cell, tick in experiment.ticks_by_cell.items()]
    size = (max(6.0, 2.2 * len(pairs) + 0.6), 5.4)
    shown = lengthened(keys, numbers, BAND)
    return Chart(tuple(panels), size, len(pairs), shown, experiment.axis, share_x="column"), numbers


def _tops(numbers: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the highest value of each data set and split, with some room, so that its panels share an axis."""
    highest = numbers[["high", "mean", "published"]].max(axis=1)
    groups = highest.groupby([numbers["pair"].map(dataset_name), numbers["split"]])
    return {key: min(1.0, 1.06 * float(top)) or 1.0 for key, top in groups.max().items()}


def _curve_numbers(
    experiment: Experiment, curves: pd.DataFrame, endpoints: pd.DataFrame, pairs: list[str]
) -> pd.DataFrame:
    """Return the numbers of `learning_curves`, in the order of pairs, splits and cells; the column `published` has its
    value at the last round of a line."""
    ticks = experiment.ticks_by_cell
    order = {"pair": list(pairs), "split": list(SPLITS), "cell": list(ticks)}
    means = mean_curves(curves[curves["cell"].isin(order["cell"]) & curves["pair"].isin(pairs)])
    means = means.sort_values(
        [*_CELL, "round"], key=lambda column: column.map(order[column.name].index) if column.name in order else column
    )
    means.insert(3, "tick", means["cell"].map(ticks))
    means = means.merge(endpoints.drop_duplicates(_CELL)[[*_CELL, "published"]], how="left", on=_CELL)
    return means.assign(published=means["published"].where(~means.duplicated(_CELL, keep="last")))


def tradeoff(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Draw Pass@1 after training against the experiment's axis, one panel per pair; the pairs of a row share the y
    axis."""
    if len(experiment.cells) == 1:
        return _dumbbells(experiment, endpoints, pairs)
    numbers = endpoints[(endpoints["experiment"] == experiment.name) & endpoints["pair"].isin(pairs)]
    groups = pair_rows(pairs)
    columns = max(map(len, groups))
    panels: list[Panel | None] = []
    for group in groups:
        for pair in group:
            series: list[PlotSeries] = []
            for split, colour in _SPLIT_COLOURS.items():
                rows = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
                series += endpoint_series(experiment, rows, MarkStyle(colour), split, {"split": split})
            y = PlotAxis("Pass@1 after training")
            x = names(experiment.axis, list(experiment.ticks))
            panels.append(Panel(pretty(pair), x, y, tuple(series), facts={"pair": pair}))
        panels += [None] * (columns - len(group))
    size = (max(6.0, 4.4 * columns), 2.3 * len(groups) + 1.1)
    return Chart(tuple(panels), size, columns, lengthened(_COLOUR_KEYS, numbers, WHISKER), share_y="row"), numbers


def endpoint_series(
    experiment: Experiment, rows: pd.DataFrame, style: MarkStyle, name: str, facts: dict[str, str]
) -> list[PlotSeries]:
    """Return endpoints with intervals, joined along the axis, and published ones as diamonds. rows: of one pair and
    split."""
    rows = rows.set_index("tick").reindex(list(experiment.ticks))
    places = np.arange(len(rows))
    joined = _on_axis(experiment) if _on_axis(experiment) > 1 else len(rows)
    series = []
    for part, dash in ((slice(joined), style.dash), (slice(joined, None), "")):
        own, look = rows[part], MarkStyle(style.colour, dash, marker="o")
        if len(own):
            one = PlotSeries(places[part], own["mean"], look, name, facts=facts)
            series.append(error_bars(one, own["low"], own["high"]))
    if rows["published"].notna().any():
        series.append(
            PlotSeries(
                places, rows["published"], diamonds(style.colour), f"{name} · published".strip(" ·"), facts=facts
            )
        )
    return series


def _dumbbells(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Draw one panel with a line from the base model to the trained one for each pair and split."""
    numbers = endpoints[endpoints["experiment"].isin(["base", experiment.name]) & endpoints["pair"].isin(pairs)]
    series, shapes = [], []
    for (split, colour), shift in zip(_SPLIT_COLOURS.items(), (-0.17, 0.17), strict=True):
        rows = numbers[numbers["split"] == split].set_index("pair")
        base, trained = (rows[rows["experiment"] == name].reindex(pairs) for name in ("base", experiment.name))
        for at, pair in enumerate(pairs):
            height, facts = at + shift, {"pair": pair, "split": split}
            before, after = base.iloc[at], trained.iloc[at]
            line = [[before["mean"], height], [after["mean"], height]]
            shapes.append(Outline(np.array(line), MarkStyle(colour, width=2.0, alpha=0.4), facts=facts))
            series.append(PlotSeries([before["mean"]], [height], bars(colour), f"{split} · base model", facts=facts))
            end = PlotSeries([after["mean"]], [height], dots(colour), split, facts=facts)
            series.append(error_bars(end, [after["low"]], [after["high"]], along=0))
            known = [before["published"], after["published"]]
            if np.isfinite(known).any():
                series.append(
                    PlotSeries(known, [height, height], diamonds(colour), f"{split} · published", facts=facts)
                )
    panel = Panel(
        "", PlotAxis("Pass@1"), names("", list(map(pretty, pairs)), downward=True), tuple(series), tuple(shapes)
    )
    keys = [*_COLOUR_KEYS, LegendKey("base model", bars())]
    size = (9.5, 0.55 * len(pairs) + 1.2)
    return Chart((panel,), size, 1, lengthened(keys, numbers, MarkStyle("#555555", marker="_"))), numbers


def agreement_figure(numbers: pd.DataFrame, errors: dict[str, list[str]]) -> Drawn:
    """Draw measured against published Pass@1 of endpoints that have both, train beside test. errors: lines for each
    split's title."""
    pairs = list(dict.fromkeys(numbers["pair"]))
    markers = dict(zip(by_dataset(pairs), "osv^", strict=False))
    styles = {
        pair: MarkStyle(colour, "", 1.2, markers[dataset_name(pair)], 5.5)
        for pair, colour in zip(pairs, PALETTE, strict=False)
    }
    panels = []
    for split in SPLITS:
        series = []
        for pair, style in styles.items():
            rows = numbers[(numbers["pair"] == pair) & (numbers["split"] == split)]
            one = PlotSeries(rows["published"], rows["mean"], style, pretty(pair), facts={"pair": pair})
            series.append(error_bars(one, rows["low"], rows["high"]))
        title = "\n".join([f"{split} Pass@1", *errors[split]])
        x, y = rates(f"published {split} Pass@1"), rates(f"our {split} Pass@1")
        panels.append(Panel(title, x, y, tuple(series), (IDENTITY,), facts={"split": split}))
    keys = [LegendKey(pretty(pair), style) for pair, style in styles.items()]
    return Chart(tuple(panels), (10, 5.8), 2, lengthened(keys, numbers.drop(columns="published"), WHISKER)), numbers


def overview(endpoints: pd.DataFrame, pairs: list[str]) -> Drawn:
    """Draw four experiments of the paper side by side: endpoints of a few pairs, test solid and train dashed."""
    experiments = [EXPERIMENTS[name] for name in OVERVIEW if name in set(endpoints["experiment"])]
    numbers = endpoints[endpoints["experiment"].isin(OVERVIEW) & endpoints["pair"].isin(pairs)]
    colours = dict(zip(pairs, PALETTE, strict=False))
    panels = []
    for e in experiments:
        series: list[PlotSeries] = []
        for (pair, split), rows in numbers[numbers["experiment"] == e.name].groupby(["pair", "split"], sort=False):
            style, name = MarkStyle(colours[pair], DASHES[split]), f"{pretty(pair)} · {split}"
            series += endpoint_series(e, rows, style, name, {"pair": pair, "split": split})
        x = names(e.axis, list(e.ticks))
        title = e.title.split(maxsplit=1)[1]
        panels.append(Panel(title, x, PlotAxis("Pass@1 after training"), tuple(series), facts={"experiment": e.name}))
    keys = [*(LegendKey(pretty(pair), MarkStyle(c)) for pair, c in colours.items()), *SPLIT_KEYS]
    widths = tuple(len(e.cells) + 1.0 for e in experiments)
    shown = lengthened(keys, numbers, WHISKER)
    return Chart(tuple(panels), (12, 3.4), len(panels), shown, widths=widths, share_y="all"), numbers
