"""Pass@1 of one pair's designs as arrays: as it was measured, as the paper reports it, and with designs' labels
shuffled."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.curve import SPLITS
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.paper.pairs import pair
from rftlab.studies.data.paper.published import published
from rftlab.studies.data.results.endpoints import finals

SHUFFLES = 200


class Measured(NamedTuple):
    """Pass@1 of one pair's designs, as arrays."""

    cells: tuple[str, ...]
    """Labels of the designs, and `base` last."""
    test: np.ndarray
    """After training (..., rows, cells): a row per seed or draw, nan where a run did not finish."""
    paths: tuple[np.ndarray, np.ndarray] | None = None
    """Train and test along the runs (..., rows, designs, evaluations); None where ends alone are known."""

    def of(self, cell: str) -> np.ndarray:
        """A design's ends (..., rows); none (..., 0) where it is not there."""
        return self.test[..., self.cells.index(cell)] if cell in self.cells else self.test[..., :0, 0]

    def gain(self, after: str, before: str) -> np.ndarray:
        """Difference of two designs by row; none where one is not there."""
        return self.of(after) - self.of(before) if {after, before} <= set(self.cells) else self.test[..., :0, 0]

    def best(self, cells: Iterable[str]) -> tuple[str, np.ndarray]:
        """The design with the highest mean and its ends (..., rows); of shuffled labels the name is "best"."""
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
        """The same with these designs alone, ends alone."""
        kept = tuple(cell for cell in self.cells if cell in cells)
        return Measured(kept, self.test[..., [self.cells.index(cell) for cell in kept]])

    @property
    def designs(self) -> tuple[str, ...]:
        """All but the base model."""
        return tuple(cell for cell in self.cells if cell != "base")


def measure_pair(curves: pd.DataFrame, pair_name: str) -> Measured:
    """Arrays of a pair's curves: ends, and paths of the evaluations that all its runs share."""
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
    """Return the numbers that the paper reports of a pair on a split; None where there are none. A number is taken as
    it stands: two equal rows have an interval without width."""
    known = pair(pair_name)
    designs = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))} | {"base": None}
    values = {cell: published(known.model, known.dataset, split, design) for cell, design in designs.items()}
    told = {cell: value for cell, value in values.items() if value is not None}
    return Measured(tuple(told), np.array([list(told.values())] * 2)) if told else None


def shuffled(measured: Measured, seed: int = 0) -> Measured:
    """The same with designs' labels permuted, SHUFFLES times: a test curve is then another design's, and so are its
    ends. Train curves stay, so that the link between the two breaks."""
    count = len(measured.designs)
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(count), (SHUFFLES, 1)), axis=1)
    ends = np.moveaxis(measured.test[:, :count][:, orders], 1, 0)
    base = np.broadcast_to(measured.test[:, count:], (*ends.shape[:2], 1))
    paths = measured.paths and (measured.paths[0][None], np.moveaxis(measured.paths[1][:, orders], 1, 0))
    return Measured(measured.cells, np.concatenate([ends, base], axis=-1), paths)
