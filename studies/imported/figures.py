"""Figures of free designs: learning curves, ends, and what else was logged. Drawn like those of
studies/report/figures.py; each returns the figure and a table of what it shows."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rftlab.studies.imported.ends import Ends, table_of
from rftlab.studies.imported.groups import Group, RunGroups
from rftlab.studies.imported.means import mean_curve
from rftlab.studies.logs.run import ImportedRun
from rftlab.studies.report.figures import BAR, BARS, GREY, PALETTE, Drawn, key, styled
from rftlab.studies.report.panels import note

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
"""Of training, in the order of their panels."""
NAMED = {
    "pass_at_1": "Pass@1",
    "reward_mean": "mean reward",
    "kl": "KL to the sampling policy",
    "kl_ref": "KL to start",
}
MAX = 24
"""Lines of a panel that the legend names."""
SMOOTH = 200
"""Points that a noisy line of training is averaged down to."""


class Panel(NamedTuple):
    """Groups of one level, model and task."""

    side: str
    model: str
    task: str
    groups: list[Group]

    @property
    def title(self) -> str:
        """What the panel is about."""
        return safe(" · ".join(part for part in (self.side, self.model, self.task) if part))


def safe(text: str, longest: int = 90) -> str:
    """A text of a log as a label: no mathematics of matplotlib, and no longer than fits."""
    return (text if len(text) <= longest else text[: longest - 2] + "..").replace("$", r"\$")


def place_of(model: str, task: str) -> str:
    """Model and task, as a page's filter calls them."""
    return " · ".join(filter(None, (model, task))) or "not named"


def panels_of(sides: list[RunGroups]) -> list[Panel]:
    """Groups that share axes, in the order of the levels; designs that cost more a round come later."""
    found: dict[tuple[str, str, str], list[Group]] = {}
    for side in sides:
        for group in sorted(side.groups, key=lambda group: (group.per_round or 0, group.label)):
            found.setdefault((side.name, group.model, group.task), []).append(group)
    return [Panel(*place, groups) for place, groups in found.items()]


def named(measure: tuple[str, str]) -> str:
    """A measure in words."""
    return f"{measure[0]} {NAMED.get(measure[1], measure[1].replace('_', ' '))}"


def _colours(n: int) -> list:
    return PALETTE[:n] if n <= len(PALETTE) else list(sns.color_palette("viridis", n))


@styled
def curves_figure(sides: list[RunGroups], axis: str) -> Drawn:
    """Learning curves, a panel for each level, model and task, a line a design; the range of its runs in pale. Designs
    of which B or K is not known have no rollouts, and logs without times no seconds."""
    numbers = curve_numbers(sides, axis)
    panels = [panel for panel in panels_of(sides) if _rows(numbers, panel)["round"].nunique() > 1]
    figure = Figure(figsize=(9.5, sum(map(_height, panels)) + 0.3))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[*map(_height, panels)])[:, 0]
    for ax, panel in zip(axes, panels, strict=True):
        _curves(ax, panel, _rows(numbers, panel))
        note(ax, level=panel.side, pair=place_of(panel.model, panel.task))
        ax.set_title(panel.title, loc="left")
        ax.set_ylabel(named(sides[0].measure))
        if axis == "rollouts":
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
    axes[-1].set_xlabel(AXES[axis])
    return figure, numbers


def has_curves(sides: list[RunGroups], axis: str) -> bool:
    """Whether there is anything to draw against an axis."""
    numbers = curve_numbers(sides, axis)
    return any(_rows(numbers, panel)["round"].nunique() > 1 for panel in panels_of(sides))


def _height(panel: Panel) -> float:
    return max(2.5, 0.21 * min(len(panel.groups), MAX) + 0.8)


def _rows(numbers: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    chosen = (numbers["level"] == panel.side) & (numbers["model"] == panel.model) & (numbers["task"] == panel.task)
    return numbers[chosen]


def _curves(ax: Axes, panel: Panel, numbers: pd.DataFrame) -> None:
    lines = dict(list(numbers.groupby("design", sort=False)))
    shown = [group for group in panel.groups if group.label in lines]
    handles = []
    for group, colour in zip(shown, _colours(len(shown)), strict=True):
        line = lines[group.label]
        style: dict[str, Any] = {"marker": "o", "markersize": 3.5} if len(line) < 30 else {}
        style |= {} if group.drawn else {"linestyle": ":"}
        note(ax.plot(line["x"], line["mean"], color=colour, **style)[0], name=group.label)
        ax.fill_between(line["x"], line["lowest"], line["highest"], color=colour, alpha=0.15, linewidth=0)
        repeats = f" ({len(group.runs)} runs)" if len(group.runs) > 1 else ""
        handles.append(key(safe(f"{group.label}{repeats}", 72), colour))
    more = [key(f"and {len(handles) - MAX} more", "none")] if len(handles) > MAX else []
    ax.legend(handles=[*handles[:MAX], *more], loc="upper left", bbox_to_anchor=(1.0, 0.99), fontsize=7.5)


def curve_numbers(sides: list[RunGroups], axis: str) -> pd.DataFrame:
    """Mean, lowest and highest over the runs of each group at common places, with the runs behind each point."""
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


@styled
def ends_figure(ends: list[Ends], measure: tuple[str, str]) -> Drawn:
    """From base to end, a line a group, the groups of a level, model and task together; intervals at the end."""
    panels: dict[tuple[str, str, str], list[Ends]] = {}
    for one in sorted(ends, key=lambda one: one.end.value, reverse=True):
        panels.setdefault((one.side, one.group.model, one.group.task), []).append(one)
    heights = [0.24 * len(own) + 0.55 for own in panels.values()]
    figure = Figure(figsize=(9.5, sum(heights) + 0.8))
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    for ax, (place, own) in zip(axes, panels.items(), strict=True):
        places = np.arange(len(own))
        base, end = ([getattr(one, name).value for one in own] for name in ("base", "end"))
        note(ax, level=place[0], pair=place_of(*place[1:]))
        ax.hlines(places, base, end, color=PALETTE[0], alpha=0.35, linewidth=2)
        note(ax.plot(base, places, color=GREY, **BAR)[0], name="untrained")
        halves = np.nan_to_num([one.end.half for one in own])
        note(ax.errorbar(end, places, xerr=halves, color=PALETTE[0], linestyle="none", **BARS)[0], name="at the end")
        ax.set_yticks(places, [safe(one.group.label, 72) for one in own], fontsize=7.5)
        ax.set_title(safe(" · ".join(filter(None, place))), loc="left")
        ax.set_ylim(len(own) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
    axes[-1].set_xlabel(f"{named(measure)}: untrained (bar), at the end (dot)")
    return figure, table_of(ends)


def logged(runs: list[ImportedRun]) -> list[str]:
    """Those of `METRICS` that training logged over more than one round."""
    there = {p.metric for run in runs for p in run.pieces if p.split == "train" and len(p.rounds) > 1}
    return [metric for metric in METRICS if metric in there]


@styled
def training_figure(runs: list[ImportedRun]) -> Drawn:
    """What training logged, a panel a metric, a line a run, one colour for a model; smoothed to `SMOOTH` points."""
    metrics = logged(runs)
    models = sorted({run.design.model or "" for run in runs if any(piece.split == "train" for piece in run.pieces)})
    colours = dict(zip(models, _colours(len(models)), strict=True))
    rows = -(-len(metrics) // 2)
    figure = Figure(figsize=(9.5, 2.3 * rows + 0.6))
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    parts = []
    for ax, metric in zip(axes, metrics, strict=False):
        pieces = [(run, p) for run in runs for p in run.pieces if (p.split, p.metric) == ("train", metric)]
        for run, piece in pieces:
            rounds, values = smoothed(piece.rounds, piece.values)
            (drawn,) = ax.plot(rounds, values, color=colours[run.design.model or ""], linewidth=1.0, alpha=0.7)
            note(drawn, name=run.name)
            row = {"metric": metric, "run": run.name, "model": run.design.model or "", "round": rounds, "value": values}
            parts.append(pd.DataFrame(row))
        ax.set(title=NAMED.get(metric, metric.replace("_", " ")), xlabel="training round")
        ax.set_yscale("log" if _wild([piece.values for _, piece in pieces]) else "linear")
    for ax in axes[len(metrics) :]:
        ax.set_axis_off()
    if len(models) > 1:
        handles = [key(safe(model or "model unknown", 40), colour) for model, colour in colours.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure, pd.concat(parts, ignore_index=True)


def _wild(parts: list[np.ndarray]) -> bool:
    """Whether values without negative ones reach far beyond their middle, so that a linear axis shows nothing."""
    values = np.concatenate(parts)
    return bool(values.min() >= 0 and np.median(values) > 0 and values.max() > 100 * np.median(values))


def smoothed(rounds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over so many rounds in a row that SMOOTH points are left at most; mean round, mean value."""
    width = -(-len(rounds) // SMOOTH)
    starts = np.arange(0, len(rounds), width)
    counts = np.diff(np.append(starts, len(rounds)))
    x, y = (np.add.reduceat(np.asarray(part, dtype=float), starts) / counts for part in (rounds, values))
    return x, y
