"""Figures of the public runs; each returns a chart and a table of what it shows."""

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.axes import curves_on, values_at
from rftlab.studies.analysis.public.repeats import without_repeat
from rftlab.studies.analysis.public.store import score_rows
from rftlab.studies.data.results.stats import interval
from rftlab.studies.report.chart import Chart, Drawn, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries, shades

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
