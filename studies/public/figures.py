"""Figures of the public runs. Drawn like those of studies/report/figures.py; each returns the figure and a table of
what it shows."""

from collections.abc import Mapping
from io import BytesIO

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rftlab.studies.public.axes import curves_on, fit_sigmoid, sigmoid_at, values_at
from rftlab.studies.public.claims import COLLAPSED, rate_points
from rftlab.studies.public.repeats import cell_of
from rftlab.studies.public.store import scores_of
from rftlab.studies.report.figures import DOT, GREY, PALETTE, Drawn, styled
from rftlab.studies.results.stats import interval

AXES = {"round": ("steps", 1.0), "rollouts": ("thousand rollouts", 1e-3), "seconds": ("hours", 1 / 3600)}
FAMILIES = {
    "responses a prompt, 16 trained on": {f"{n}": f"n{n}-m16" for n in (16, 32, 64, 128, 256)},
    "trained on, of 64 responses": {f"{m}": f"n64-m{m}" for m in (2, 4, 8, 16)},
    "16 of 64 chosen by": {
        "variance": "n64-m16",
        "random": "n64-m16-random",
        "largest reward": "n64-m16-maxreward",
    },
}
POINTS = 13
DOTS = 130
"""Per inch of a picture."""


def pods_numbers(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean test Pass@1 on GSM8K and its 95% interval over the runs of each cell, along each axis as far as all its runs
    reach."""
    rows = scores_of(curves, "gsm8k")
    rows = rows.assign(cell=cell_of(rows["run_id"]).str.removeprefix("pods/gsm8k-"))
    found = []
    for family, cells in FAMILIES.items():
        for tick, cell in cells.items():
            own = rows[rows["cell"] == cell]
            for axis in AXES:
                runs = curves_on(own, axis)
                for x in np.linspace(max(where[0] for where, _ in runs), min(where[-1] for where, _ in runs), POINTS):
                    values = values_at(runs, x)
                    found.append((family, tick, axis, x, *interval(values), values.size))
    return pd.DataFrame(found, columns=["family", "tick", "axis", "x", "mean", "low", "high", "runs"])


@styled
def pods(curves: pd.DataFrame) -> Drawn:
    """Pass@1 against steps, rollouts and hours (columns), for what varies (rows); bands are 95% intervals over ten
    runs."""
    numbers = pods_numbers(curves)
    figure = Figure(figsize=(10, 7.6))
    grid = figure.subplots(len(FAMILIES), len(AXES), sharex="col", squeeze=False)
    for line, (family, cells) in zip(grid, FAMILIES.items(), strict=True):
        colours = dict(zip(cells, sns.color_palette("viridis", len(cells) + 1).as_hex(), strict=False))
        for ax, (axis, (_, unit)) in zip(line, AXES.items(), strict=True):
            ax.sharey(line[0])
            for tick, colour in colours.items():
                own = numbers[(numbers["family"] == family) & (numbers["tick"] == tick) & (numbers["axis"] == axis)]
                ax.plot(own["x"] * unit, own["mean"], color=colour, label=tick)
                ax.fill_between(own["x"] * unit, own["low"], own["high"], color=colour, alpha=0.2, linewidth=0)
        line[0].set_ylabel("test Pass@1")
        line[1].tick_params(labelleft=False)
        line[2].tick_params(labelleft=False)
        line[2].legend(title=family.replace(", ", ",\n"), loc="center left", bbox_to_anchor=(1.02, 0.5))
    for ax, (name, _) in zip(grid[-1], AXES.values(), strict=True):
        ax.set_xlabel(name)
    return figure, numbers


def _lines(ax: Axes, rows: pd.DataFrame, runs: Mapping[str, str | None], colours: list, **style) -> None:
    for (run, name), colour in zip(runs.items(), colours, strict=False):
        own = rows[rows["run_id"] == run].sort_values("round")
        ax.plot(own["round"], own["value"], color=colour, label=name, **style)


@styled
def learning_rates(curves: pd.DataFrame) -> Drawn:
    """Test Pass@1 of runs whose learning rate alone differs, against steps and against rate x steps, with the sigmoid
    that is closest to all that do not collapse."""
    rows = rate_points(curves, collapsed=True)
    kept = rate_points(curves, collapsed=False)
    rates = sorted(rows["rate"].unique())
    colours = dict(zip(rates, sns.color_palette("viridis", len(rates)).as_hex(), strict=True))
    figure = Figure(figsize=(10, 3.9))
    for ax, by_rate in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for rate in rates:
            own = rows[rows["rate"] == rate].sort_values("round")
            x = own["round"] * (rate if by_rate else 1)
            dashes = ":" if own["run_id"].iloc[0] in COLLAPSED else "-"
            label = f"{rate:.0e}".replace("e-0", "e-") + (" collapses" if dashes == ":" else "")
            ax.plot(x, own["value"], dashes, color=colours[rate], label=label, linewidth=1.3)
        x = (kept["round"] * (kept["rate"] if by_rate else 1)).to_numpy(float)
        line = np.geomspace(x.min(), x.max(), 100)
        fitted = sigmoid_at(fit_sigmoid(x, kept["value"].to_numpy()), line)
        ax.plot(line, fitted, "--", color=GREY, linewidth=2.2, label="one sigmoid")
        ax.set(xscale="log", xlabel="learning rate × steps" if by_rate else "steps")
    figure.axes[0].set_ylabel("test Pass@1")
    figure.axes[1].legend(title="learning rate", loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure, rows


@styled
def single_runs(curves: pd.DataFrame) -> Drawn:
    """Test Pass@1 of single runs that differ in one choice: the advantage, and updates a round; dotted: unintended
    repeats of the configuration of the same colour."""
    rows = scores_of(curves)
    figure = Figure(figsize=(10, 3.9))
    left, right = figure.subplots(1, 2, sharey=True)
    advantages = {
        "lr4e-5": "centred, divided by deviation",
        "no-std": "centred",
        "no-baseline": "raw reward",
    }
    _lines(left, rows, {f"shibuki/{run}": name for run, name in advantages.items()}, PALETTE)
    passes = {
        "e2-tb256": "2, 2",
        "e2-tb128": "2, 4",
        "e2-tb64": "2, 8",
        "e2-tb32": "2, 16",
        "e4-tb256": "4, 4",
        "e4-tb128": "4, 8",
        "e8-tb256": "8, 8",
        "e16-tb256": "16, 16",
    }
    _lines(right, rows, {"shibuki/lr4e-5": "1, 1"}, ["black"])
    _lines(right, rows, {f"shibuki/offpolicy-broad-{run}": name for run, name in passes.items()}, PALETTE)
    _lines(right, rows, {f"shibuki/offpolicy-{run}": None for run in passes}, PALETTE, linestyle=":")
    left.set(xlabel="steps", ylabel="test Pass@1")
    right.set(xlabel="rounds", xlim=(0, 41))
    left.legend(loc="center right")
    right.legend(title="passes, updates\na round", loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure, rows


@styled
def starts(verl: pd.DataFrame, josancamon: pd.DataFrame) -> Drawn:
    """Test Pass@1 of two sources with two single runs each."""
    figure = Figure(figsize=(10, 3.2))
    for ax, rows in zip(figure.subplots(1, 2, sharey=True), map(scores_of, (verl, josancamon)), strict=True):
        names = {run: run.partition("/")[2] for run in dict.fromkeys(rows["run_id"])}
        _lines(ax, rows, names, PALETTE, **DOT)
        ax.set(xlabel="rounds")
        ax.legend(loc="lower right")
    figure.axes[0].set(ylabel="test Pass@1", ylim=(0, 0.9))
    return figure, pd.concat([verl, josancamon])


@styled
def png(figure: Figure) -> bytes:
    """A figure as a small picture; equal figures give equal bytes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS, metadata={"Software": None})
    return buffer.getvalue()
