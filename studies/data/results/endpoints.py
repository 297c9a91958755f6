"""Tables of what runs come to: final Pass@1 next to published numbers, and the parts of a gain."""

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.studies.console.table import Table
from rftlab.studies.data.paper.experiments import Experiment, label
from rftlab.studies.data.paper.pairs import pair
from rftlab.studies.data.paper.published import published
from rftlab.studies.data.results.stats import interval, mean


def finals(curves: pd.DataFrame, pair_name: str, split: str) -> pd.DataFrame:
    """Pass@1 of a pair's finished runs after the last round: one row per seed, one column per cell, `base` among them.

    A run that ended early (diverged) has no final value: its entry is nan.
    """
    own = curves[curves["pair"] == pair_name]
    column = f"{split}_pass_at_1"
    table = own[own["round"] == own["planned_rounds"]].pivot(index="seed", columns="cell", values=column)
    base = own[own["round"] == 0].groupby("seed")[column].first()
    return table.reindex(index=base.index, columns=own["cell"].unique()).assign(base=base)


def endpoint_table(curves: pd.DataFrame, experiments: list[Experiment], pairs: list[str]) -> pd.DataFrame:
    """One row per experiment, pair, split and cell: tick, mean, low, high, seeds, published, difference. The base
    model comes first."""
    rows = []
    for name in pairs:
        for split in SPLITS:
            table = finals(curves, name, split)
            rows.append(_row("base", name, split, "base", "base", table["base"], None))
            for e in experiments:
                rows += [
                    _row(e.name, name, split, label(c), tick, table.get(label(c)), c)
                    for c, tick in zip(e.cells, e.ticks, strict=True)
                ]
    return pd.DataFrame(rows)


def _row(
    experiment: str, pair_name: str, split: str, cell: str, tick: str, values: pd.Series | None, design: Design | None
) -> dict:
    values = np.array([]) if values is None else values.dropna().to_numpy()
    known = interval(values)
    low, high = (bound if np.isfinite(bound) else np.nan for bound in (known.low, known.high))
    reported = published(pair(pair_name).model, pair(pair_name).dataset, split, design)
    reported = np.nan if reported is None else reported
    return {
        "experiment": experiment,
        "pair": pair_name,
        "split": split,
        "cell": cell,
        "tick": tick,
        "mean": known.value,
        "low": low,
        "high": high,
        "seeds": len(values),
        "published": reported,
        "difference": known.value - reported,
    }


def agreement(endpoints: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute error against the published endpoints, per data set and split; a cell that several experiments
    share counts once."""
    known = endpoints.dropna(subset=["published", "mean"]).drop_duplicates(["pair", "split", "cell"])
    known = known.assign(dataset=[pair(name).dataset for name in known["pair"]], error=known["difference"].abs())
    return (
        known.groupby(["dataset", "split"])
        .agg(mae=("error", "mean"), bias=("difference", "mean"), cells=("error", "size"))
        .reset_index()
    )


def gains(curves: pd.DataFrame) -> pd.DataFrame:
    """Test Pass@1 before and after training, and the gain's parts: a row per pair and cell, means over seeds,
    half-widths of 95% intervals.

    reasoning: the gain under the flexible rule, which does not ask for the format. format: the rest of the strict
    rule's gain, for answers that were right before. Runs that diverged are left out.
    """
    rows = []
    for (name, cell), own in curves.groupby(["pair", "cell"], sort=False):
        before = own[own["round"] == 0].set_index("seed")
        after = own[own["round"] == own["planned_rounds"]].set_index("seed")
        strict, flexible = (
            after[name] - before[name].reindex(after.index) for name in ("test_pass_at_1", "test_flexible")
        )
        parts = {"gain": strict, "reasoning": flexible, "format": strict - flexible}
        levels = {
            f"{name}_{when}": part[column].mean()
            for name, column in (("strict", "test_pass_at_1"), ("flexible", "test_flexible"))
            for when, part in (("before", before), ("after", after))
        }
        rows.append({"pair": name, "cell": cell, "seeds": len(after), **levels} | _with_widths(parts))
    return pd.DataFrame(rows)


def _with_widths(parts: dict[str, pd.Series]) -> dict[str, float]:
    """Means, and the half-width of each; nan with fewer than two seeds."""
    columns: dict[str, float] = {}
    for name, values in parts.items():
        known = mean(values)
        columns |= {name: known.value, f"{name}_width": known.half}
    return columns


def gain_table(curves: pd.DataFrame) -> Table:
    """The parts of `gains` by configuration, for the terminal."""
    parts = ("gain", "reasoning", "format")
    table = Table("cell", "strict", "", "flexible", "", *parts, title="gain in test Pass@1, and its parts")
    for row in gains(curves).to_dict("records"):
        rates = (f"{row[f'{rule}_{when}']:.3f}" for rule in ("strict", "flexible") for when in ("before", "after"))
        table.add(row["cell"], *rates, *(f"{row[name]:+.3f}" for name in parts))
    return table


MEASURES = {
    "Pass@1": "pass_at_1",
    "Pass@256": "strict_pass_at_256",
    "format": "format_rate",
    "entropy": "entropy",
    "no variance": "zero_variance_fraction",
    "right": "length_right",
    "wrong": "length_wrong",
}
"""Columns of `measure_table`, and what they show of the test set."""


def has_measures(curves: pd.DataFrame) -> bool:
    """Whether curves have what simulations measure with `evaluation` full."""
    return "test_strict_pass_at_256" in curves


def measure_table(curves: pd.DataFrame) -> Table:
    """The policy on the test set before and after training, means over seeds, for the terminal."""
    table = Table(
        "cell",
        "round",
        *MEASURES,
        wrap="never",
        title="the policy on the test set; tokens of right and wrong responses",
    )
    for cell, own in curves.groupby("cell", sort=False):
        for when in (0, own["planned_rounds"].iloc[0]):
            means = own[own["round"] == when].mean(numeric_only=True)
            table.add(cell, str(when), *(f"{means[f'test_{name}']:.3f}" for name in MEASURES.values()))
    return table
