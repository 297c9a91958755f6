"""Figures of the public runs; each returns a chart and a table of what it shows."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.axes import curves_on, fit_sigmoid, sigmoid_at, values_at
from rftlab.studies.analysis.public.claims import COLLAPSED, rate_points
from rftlab.studies.analysis.public.repeats import without_repeat
from rftlab.studies.analysis.public.store import score_rows
from rftlab.studies.data.results.stats import interval
from rftlab.studies.report.chart import PALETTE, Chart, Drawn, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries, shades

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


def pods_numbers(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean test Pass@1 on GSM8K and its 95% interval over the runs of each cell, along each axis as far as all its runs
    reach."""
    scores = score_rows(curves, "gsm8k")
    scores = scores.assign(cell=without_repeat(scores["run_id"]).str.removeprefix("pods/gsm8k-"))
    rows = []
    for family, cells in FAMILIES.items():
        for tick, cell in cells.items():
            own = scores[scores["cell"] == cell]
            for axis in AXES:
                runs = curves_on(own, axis)
                for x in np.linspace(max(where[0] for where, _ in runs), min(where[-1] for where, _ in runs), POINTS):
                    values = values_at(runs, x)
                    rows.append((family, tick, axis, x, *interval(values), values.size))
    return pd.DataFrame(rows, columns=["family", "tick", "axis", "x", "mean", "low", "high", "runs"])


def pods(curves: pd.DataFrame) -> Drawn:
    """Pass@1 against steps, rollouts and hours (columns), for what varies (rows); bands are 95% intervals over ten
    runs."""
    numbers = pods_numbers(curves)
    panels = []
    for family, cells in FAMILIES.items():
        styles = dict(zip(cells, map(MarkStyle, shades(len(cells))), strict=True))
        for axis, (name, unit) in AXES.items():
            own = numbers[(numbers["family"] == family) & (numbers["axis"] == axis)]
            series = tuple(
                PlotSeries(line["x"] * unit, line["mean"], style, tick, line["low"], line["high"])
                for tick, style in styles.items()
                if len(line := own[own["tick"] == tick])
            )
            last = axis == list(AXES)[-1]
            keys = tuple(LegendKey(tick, style) for tick, style in styles.items()) if last else ()
            panels.append(Panel("", PlotAxis(name), PlotAxis("test Pass@1"), series, keys=keys, keys_title=family))
    return Chart(tuple(panels), (10, 7.6), len(AXES), share_x="column", share_y="row"), numbers


def _lines(rows: pd.DataFrame, runs: Mapping[str, str], colours: list[str], dash: str = "-", marker: str = ""):
    """A line for each of some runs, by what it is called."""
    shown = []
    for (run, name), colour in zip(runs.items(), colours, strict=False):
        own = rows[rows["run_id"] == run].sort_values("round")
        shown.append(PlotSeries(own["round"], own["value"], MarkStyle(colour, dash, marker=marker), name))
    return shown


def _keys(series: list[PlotSeries]) -> tuple[LegendKey, ...]:
    return tuple(LegendKey(one.name, one.style) for one in series)


def learning_rates(curves: pd.DataFrame) -> Drawn:
    """Test Pass@1 of runs whose learning rate alone differs, against steps and against rate x steps, with the sigmoid
    that is closest to all that do not collapse."""
    rows, kept = rate_points(curves, collapsed=True), rate_points(curves, collapsed=False)
    panels = []
    for label, by_rate in (("steps", False), ("learning rate × steps", True)):
        series = []
        groups = list(rows.sort_values(["rate", "round"]).groupby("rate"))
        for (rate, own), colour in zip(groups, shades(len(groups)), strict=True):
            lost = own["run_id"].iloc[0] in COLLAPSED
            name = f"{rate:.0e}".replace("e-0", "e-") + (" collapses" if lost else "")
            x = own["round"] * (rate if by_rate else 1)
            series.append(PlotSeries(x, own["value"], MarkStyle(colour, ":" if lost else "-", 1.3), name))
        x = (kept["round"] * (kept["rate"] if by_rate else 1)).to_numpy(float)
        line = np.geomspace(x.min(), x.max(), 100)
        fitted = sigmoid_at(fit_sigmoid(x, kept["value"].to_numpy()), line)
        series.append(PlotSeries(line, fitted, MarkStyle(dash="--", width=2.2), "one sigmoid"))
        keys = _keys(series) if by_rate else ()
        panels.append(Panel("", PlotAxis(label, "log"), PlotAxis("test Pass@1"), tuple(series), keys=keys,
                            keys_title="learning rate"))  # fmt: skip
    return Chart(tuple(panels), (10, 3.9), 2, share_y="all"), rows


def single_runs(curves: pd.DataFrame) -> Drawn:
    """Test Pass@1 of single runs that differ in one choice: the advantage, and updates a round; dotted: unintended
    repeats of the configuration of the same colour."""
    rows = score_rows(curves)
    advantages = {"lr4e-5": "centred, divided by deviation", "no-std": "centred", "no-baseline": "raw reward"}
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
    left = _lines(rows, {f"shibuki/{run}": name for run, name in advantages.items()}, PALETTE)
    right = _lines(rows, {"shibuki/lr4e-5": "1, 1"}, ["#000000"])
    right += _lines(rows, {f"shibuki/offpolicy-broad-{run}": name for run, name in passes.items()}, PALETTE)
    repeats = _lines(
        rows, {f"shibuki/offpolicy-{run}": f"{name}, repeat" for run, name in passes.items()}, PALETTE, ":"
    )
    y, title = PlotAxis("test Pass@1"), "passes, updates\na round"
    panels = (
        Panel("", PlotAxis("steps"), y, tuple(left), keys=_keys(left)),
        Panel("", PlotAxis("rounds", low=0.0, high=41.0), y, (*right, *repeats), keys=_keys(right), keys_title=title),
    )
    return Chart(panels, (11, 3.9), 2, share_y="all"), rows


def starts(verl: pd.DataFrame, josancamon: pd.DataFrame) -> Drawn:
    """Test Pass@1 of two sources with two single runs each."""
    panels = []
    for rows in map(score_rows, (verl, josancamon)):
        series = _lines(
            rows, {run: run.partition("/")[2] for run in dict.fromkeys(rows["run_id"])}, PALETTE, marker="o"
        )
        y = PlotAxis("test Pass@1", low=0.0, high=0.9)
        panels.append(Panel("", PlotAxis("rounds"), y, tuple(series), keys=_keys(series)))
    return Chart(tuple(panels), (11, 3.2), 2, share_y="all"), pd.concat([verl, josancamon])
