"""Draw figures of imported runs: learning curves, ends, and other logged metrics. Each function returns a chart and a
table of what it shows."""

import numpy as np
import pandas as pd

from rftlab.studies.analysis.imported.ends import Ends, ends_table
from rftlab.studies.analysis.imported.groups import Group, RunGroups, mean_curve, place_name
from rftlab.studies.readers.run import ImportedRun
from rftlab.studies.report.chart import (
    PALETTE,
    Chart,
    Drawn,
    LegendKey,
    MarkStyle,
    Outline,
    Panel,
    PlotAxis,
    PlotSeries,
    Scale,
    bars,
    colours,
    dots,
    error_bars,
    names,
)

AXES = {
    "rounds": "training round",
    "fraction": "fraction of the run's rounds",
    "rollouts": "rollouts",
    "seconds": "seconds of training",
}
METRICS = (
    "reward_mean",
    "pass_at_1",
    "response_length",
    "entropy",
    "zero_signal_fraction",
    "format_rate",
    "grad_norm",
    "clip_fraction",
    "kl",
    "kl_ref",
    "truncated_fraction",
)
"""Metrics of training that are drawn, in the order of their panels."""
NAMED = {
    "pass_at_1": "Pass@1",
    "reward_mean": "mean reward",
    "kl": "KL to the sampling policy",
    "kl_ref": "KL to start",
}
MAX = 24
"""Largest number of lines that the legend of a panel names."""
MAX_METRICS = 40
"""Largest number of panels of training metrics."""
SMOOTH = 200
"""Largest number of points of a line of training; longer ones are averaged down."""


PLACE = ["level", "model", "task"]
"""Columns of a table of numbers that say in which panel a row is."""
Place = tuple[str, str, str]


def safe(text: str, longest: int = 90) -> str:
    """Return a text of a log as a label, cut to what fits."""
    return text if len(text) <= longest else text[: longest - 2] + ".."


def _title(place: Place) -> str:
    return safe(" · ".join(filter(None, place)))


def groups_by_place(sides: list[RunGroups]) -> dict[Place, list[Group]]:
    """Return the groups of each panel (level, model and task), those with fewer rollouts a round first."""
    by_place: dict[Place, list[Group]] = {}
    for side in sides:
        for group in sorted(side.groups, key=lambda group: (group.per_round or 0, group.label)):
            by_place.setdefault((side.name, group.model, group.task), []).append(group)
    return by_place


def named(measure: tuple[str, str]) -> str:
    """Return the name of a measure in words."""
    return f"{measure[0]} {NAMED.get(measure[1], measure[1].replace('_', ' '))}"


def curves_figure(sides: list[RunGroups], axis: str) -> Drawn:
    """Draw learning curves: a panel for each level, model and task, a line for each design, and a pale band for the
    range of its runs. Designs without a known B or K have no rollouts, and logs without times no seconds."""
    numbers = curve_numbers(sides, axis)
    rows = {place: own for place, own in numbers.groupby(PLACE) if own["round"].nunique() > 1}
    shown = {place: groups for place, groups in groups_by_place(sides).items() if place in rows}
    x, y = PlotAxis(AXES[axis], "log" if axis == "rollouts" else "linear"), PlotAxis(named(sides[0].measure))
    panels = tuple(_curves(place, groups, rows[place], x, y) for place, groups in shown.items())
    heights = tuple(max(2.5, 0.21 * min(len(groups), MAX) + 0.8) for groups in shown.values())
    return Chart(panels, (9.5, sum(heights) + 0.3), heights=heights), numbers


def has_curves(sides: list[RunGroups], axis: str) -> bool:
    """Whether a group has a curve against this axis."""
    return bool((curve_numbers(sides, axis).groupby(PLACE)["round"].nunique() > 1).any())


def _curves(place: Place, groups: list[Group], numbers: pd.DataFrame, x: PlotAxis, y: PlotAxis) -> Panel:
    lines = dict(list(numbers.groupby("design", sort=False)))
    shown = [group for group in groups if group.label in lines]
    series, keys = [], []
    for group, colour in zip(shown, colours(len(shown)), strict=True):
        line = lines[group.label]
        style = MarkStyle(colour, "-" if group.drawn else ":", marker="o" if len(line) < 30 else "", size=3.5)
        series.append(PlotSeries(line["x"], line["mean"], style, group.label, line["lowest"], line["highest"]))
        repeats = f" ({len(group.runs)} runs)" if len(group.runs) > 1 else ""
        keys.append(LegendKey(safe(f"{group.label}{repeats}", 72), MarkStyle(colour)))
    more = [LegendKey(f"and {len(keys) - MAX} more", MarkStyle(dash=""))] if len(keys) > MAX else []
    facts = {"level": place[0], "pair": place_name(*place[1:])}
    return Panel(_title(place), x, y, tuple(series), facts=facts, keys=(*keys[:MAX], *more))


def curve_numbers(sides: list[RunGroups], axis: str) -> pd.DataFrame:
    """Return mean, lowest and highest value over each group's runs at common places, and the number of runs there."""
    parts = [_line(side.name, group, axis) for side in sides for group in side.groups]
    parts = [part for part in parts if part is not None]
    columns = ["level", "model", "task", "design", "round", "x", "mean", "lowest", "highest", "runs"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _line(side: str, group: Group, axis: str) -> pd.DataFrame | None:
    if (axis == "rollouts" and group.per_round is None) or (axis == "seconds" and not group.timed):
        return None
    column = "seconds" if axis == "seconds" else "round"
    line = mean_curve(group.curves, column)
    at, first = line[column].to_numpy(), group.curves[group.curves["run"] == group.curves["run"].iloc[0]]
    first = first.sort_values("round")
    rounds = at if column == "round" else np.interp(at, first["seconds"], first["round"]).round(1)
    x = {"fraction": at / max(group.last, 1), "rollouts": at * (group.per_round or 0)}.get(axis, at)
    keep = x > 0 if axis == "rollouts" else np.full(len(x), True)
    frame = pd.DataFrame(
        {
            "level": side,
            "model": group.model,
            "task": group.task,
            "design": group.label,
            "round": rounds,
            "x": x.astype(float),
        }
        | {name: line[name] for name in ("mean", "lowest", "highest", "runs")}
    )
    return frame[keep]


def ends_figure(ends: list[Ends], measure: tuple[str, str]) -> Drawn:
    """Draw a line from base to end for each group, a panel for each level, model and task; intervals at the end."""
    groups: dict[Place, list[Ends]] = {}
    for one in sorted(ends, key=lambda one: one.end.value, reverse=True):
        groups.setdefault((one.side, one.group.model, one.group.task), []).append(one)
    panels = []
    for place, own in groups.items():
        places = np.arange(len(own))
        base, end, half = np.array([(one.base.value, one.end.value, one.end.half) for one in own]).T
        lines = tuple(
            Outline(np.array([[before, at], [after, at]]), MarkStyle(PALETTE[0], width=2.0, alpha=0.35))
            for before, after, at in zip(base, end, places, strict=True)
        )
        after = error_bars(PlotSeries(end, places, dots(PALETTE[0]), "at the end"), end - half, end + half, along=0)
        x = PlotAxis(f"{named(measure)}: base (bar), end (dot)")
        y = names("", [safe(one.group.label, 72) for one in own], downward=True)
        facts = {"level": place[0], "pair": place_name(*place[1:])}
        both = PlotSeries(base, places, bars(), "untrained"), after
        panels.append(Panel(_title(place), x, y, both, lines, facts=facts))
    heights = tuple(0.24 * len(own) + 0.55 for own in groups.values())
    return Chart(tuple(panels), (9.5, sum(heights) + 0.8), heights=heights, share_x="all"), ends_table(ends)


def logged(runs: list[ImportedRun]) -> list[str]:
    """Return the metrics of METRICS that training logged over more than one round, then each of several rewards by
    name, at most MAX_METRICS in all."""
    there = {p.metric for run in runs for p in run.pieces if p.split == "train" and len(p.rounds) > 1}
    rewards = sorted(metric for metric in there if metric.startswith("reward/"))
    return [*(metric for metric in METRICS if metric in there), *rewards][:MAX_METRICS]


def training_figure(runs: list[ImportedRun]) -> Drawn:
    """Draw the metrics that training logged: a panel per metric, a line per run and a colour per model, smoothed to
    `SMOOTH` points."""
    metrics = logged(runs)
    models = sorted({run.design.model or "" for run in runs if any(piece.split == "train" for piece in run.pieces)})
    by_model = dict(zip(models, colours(len(models)), strict=True))
    panels, parts = [], []
    for metric in metrics:
        pieces = [(run, p) for run in runs for p in run.pieces if (p.split, p.metric) == ("train", metric)]
        series = []
        for run, piece in pieces:
            rounds, values = smoothed(piece.rounds, piece.values)
            model = run.design.model or ""
            series.append(PlotSeries(rounds, values, MarkStyle(by_model[model], width=1.0, alpha=0.7), run.name))
            row = {"metric": metric, "run": run.name, "model": model, "round": rounds, "value": values}
            parts.append(pd.DataFrame(row))
        scale: Scale = "log" if _wild([piece.values for _, piece in pieces]) else "linear"
        words = metric.replace("/", " ") if metric.startswith("reward/") else metric.replace("_", " ")
        title = safe(NAMED.get(metric, words), 60)
        panels.append(Panel(title, PlotAxis("training round"), PlotAxis("", scale), tuple(series)))
    keys = tuple(LegendKey(safe(model or "model unknown", 40), MarkStyle(colour)) for model, colour in by_model.items())
    size = (9.5, 2.3 * -(-len(metrics) // 2) + 0.6)
    return Chart(tuple(panels), size, 2, keys if len(models) > 1 else ()), pd.concat(parts, ignore_index=True)


def _wild(parts: list[np.ndarray]) -> bool:
    """Whether values, none negative, reach so far beyond their median that a linear axis shows nothing."""
    values = np.concatenate(parts)
    return bool(values.min() >= 0 and np.median(values) > 0 and values.max() > 100 * np.median(values))


def smoothed(rounds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rounds and values averaged over windows of consecutive rounds, so that at most SMOOTH points are left."""
    width = -(-len(rounds) // SMOOTH)
    starts = np.arange(0, len(rounds), width)
    counts = np.diff(np.append(starts, len(rounds)))
    x, y = (np.add.reduceat(np.asarray(part, dtype=float), starts) / counts for part in (rounds, values))
    return x, y
