"""Compute tables of final Pass@1 beside published numbers and of the parts of a gain, and arrays of Pass@1 of one
pair's designs: measured, reported by the paper, or with shuffled labels of designs."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.studies.console.table import Table
from rftlab.studies.data.paper.experiments import EXPERIMENTS, Experiment, distinct_cells, label, published
from rftlab.studies.data.paper.pairs import pair
from rftlab.studies.data.results.stats import interval, mean


def finals(curves: pd.DataFrame, pair_name: str, split: str) -> pd.DataFrame:
    """Return Pass@1 of a pair's finished runs after the last round: one row per seed, one column per cell, with `base`
    among them.

    A run that ended early (diverged) has no final value: its entry is nan.
    """
    own = curves[curves["pair"] == pair_name]
    column = f"{split}_pass_at_1"
    table = own[own["round"] == own["planned_rounds"]].pivot(index="seed", columns="cell", values=column)
    base = own[own["round"] == 0].groupby("seed")[column].first()
    return table.reindex(index=base.index, columns=own["cell"].unique()).assign(base=base)


def endpoint_table(curves: pd.DataFrame, experiments: list[Experiment], pairs: list[str]) -> pd.DataFrame:
    """Return a row per experiment, pair, split and cell: tick, mean, low, high, seeds, published, difference. The base
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
    low, high = (np.clip(bound, 0.0, 1.0) if np.isfinite(bound) else np.nan for bound in (known.low, known.high))
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
    """Return the mean absolute error against the published endpoints, per data set and split; a cell that several
    experiments share counts once."""
    known = endpoints.dropna(subset=["published", "mean"]).drop_duplicates(["pair", "split", "cell"])
    known = known.assign(dataset=[pair(name).dataset for name in known["pair"]], error=known["difference"].abs())
    return (
        known.groupby(["dataset", "split"])
        .agg(mae=("error", "mean"), bias=("difference", "mean"), cells=("error", "size"))
        .reset_index()
    )


def gains(curves: pd.DataFrame) -> pd.DataFrame:
    """Return test Pass@1 before and after training and the gain's parts: a row per pair and cell, with means over seeds
    and half-widths of 95% intervals.

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
    """Return the mean of each column and the half-width of its 95% interval; nan with fewer than two seeds."""
    columns: dict[str, float] = {}
    for name, values in parts.items():
        known = mean(values)
        columns |= {name: known.value, f"{name}_width": known.half}
    return columns


def gain_table(curves: pd.DataFrame) -> Table:
    """Return a table of the parts of `gains` by configuration, for the terminal."""
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
"""Titles of the columns of `measure_table`, and the measures of the test set that they show."""


def has_measures(curves: pd.DataFrame) -> bool:
    """Whether curves have the additional columns of simulations with `evaluation` full."""
    return "test_strict_pass_at_256" in curves


def measure_table(curves: pd.DataFrame) -> Table:
    """Return a table of the policy on the test set before and after training, means over seeds, for the terminal."""
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


SHUFFLES = 200


class Measured(NamedTuple):
    """Arrays of Pass@1 of one pair's designs."""

    cells: tuple[str, ...]
    """Labels of the designs, with `base` last."""
    test: np.ndarray
    """Test Pass@1 after training (..., rows, cells): a row per seed or draw, nan where a run did not finish."""
    paths: tuple[np.ndarray, np.ndarray] | None = None
    """Train and test Pass@1 along the runs (..., rows, designs, evaluations); None where only ends are known."""

    def of(self, cell: str) -> np.ndarray:
        """Return the ends of a design (..., rows); empty (..., 0) where it is missing."""
        return self.test[..., self.cells.index(cell)] if cell in self.cells else self.test[..., :0, 0]

    def gain(self, after: str, before: str) -> np.ndarray:
        """Return the difference of two designs' ends by row; empty where a design is missing."""
        return self.of(after) - self.of(before) if {after, before} <= set(self.cells) else self.test[..., :0, 0]

    def best(self, cells: Iterable[str]) -> tuple[str, np.ndarray]:
        """Return the design with the highest mean and its ends (..., rows); for shuffled labels its name is "best"."""
        known = [cell for cell in cells if cell in self.cells]
        if not known:
            return "best", self.test[..., :0, 0]
        values = self.test[..., [self.cells.index(cell) for cell in known]]
        there = np.isfinite(values)
        sums, counts = np.where(there, values, 0.0).sum(axis=-2), there.sum(axis=-2)
        first = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf).argmax(axis=-1)
        name = known[int(first)] if first.ndim == 0 else "best"
        return name, np.take_along_axis(values, first[..., None, None], axis=-1)[..., 0]

    def only(self, cells: tuple[str, ...]) -> "Measured":
        """Return the ends of these designs alone, without paths."""
        kept = tuple(cell for cell in self.cells if cell in cells)
        return Measured(kept, self.test[..., [self.cells.index(cell) for cell in kept]])

    @property
    def designs(self) -> tuple[str, ...]:
        """Labels of all designs but the base model."""
        return tuple(cell for cell in self.cells if cell != "base")


def measure_pair(curves: pd.DataFrame, pair_name: str) -> Measured:
    """Return the arrays of a pair's curves: ends, and paths over the evaluations that all its runs share."""
    ends = finals(curves, pair_name, "test")
    designs, own = [cell for cell in ends.columns if cell != "base"], curves[curves["pair"] == pair_name]
    shared = sorted(set.intersection(*(set(rows) for _, rows in own.groupby("cell")["round"])))
    grid = pd.MultiIndex.from_product([designs, shared])
    paths = tuple(
        own.pivot(index="seed", columns=["cell", "round"], values=f"{split}_pass_at_1")
        .reindex(index=ends.index, columns=grid)
        .to_numpy(float)
        .reshape(len(ends), len(designs), len(shared))
        for split in SPLITS
    )
    return Measured((*designs, "base"), ends[[*designs, "base"]].to_numpy(float), (paths[0], paths[1]))


def reported_by_paper(pair_name: str, split: str = "test") -> Measured | None:
    """Return the numbers that the paper reports of a pair on a split; None where there are none. Numbers are taken as
    exact: two equal rows have an interval without width."""
    known = pair(pair_name)
    designs = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))} | {"base": None}
    values = {cell: published(known.model, known.dataset, split, design) for cell, design in designs.items()}
    told = {cell: value for cell, value in values.items() if value is not None}
    return Measured(tuple(told), np.array([list(told.values())] * 2)) if told else None


def shuffled(measured: Measured, seed: int = 0) -> Measured:
    """Return the arrays with the labels of designs permuted, SHUFFLES times: a design gets another one's test curve and
    ends. Train curves stay, so that the link between train and test breaks."""
    count = len(measured.designs)
    # one order for all seeds of a shuffle: seeds share their random numbers, so rows must stay paired
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(count), (SHUFFLES, 1)), axis=1)
    ends = np.moveaxis(measured.test[:, :count][:, orders], 1, 0)
    base = np.broadcast_to(measured.test[:, count:], (*ends.shape[:2], 1))
    paths = measured.paths and (measured.paths[0][None], np.moveaxis(measured.paths[1][:, orders], 1, 0))
    return Measured(measured.cells, np.concatenate([ends, base], axis=-1), paths)
