"""Curves at an equal number of rounds, rollouts or seconds."""

from typing import NamedTuple

import numpy as np

from rftlab.studies.explore.chart import Axis, MeanCurve, ShownCurve, mean_of


class ComparedCurve(NamedTuple):
    """A row of the table."""

    name: str
    reached: float
    """How far along the axis the curve is."""
    end: float
    """Test Pass@1 there."""
    equal: float
    """Test Pass@1 where the shortest of all curves ends; nan of a curve that begins later."""
    train: float
    """The same on training contexts."""


class EqualSpending(NamedTuple):
    """All rows, and where on the axis they are equal."""

    at: float
    rows: tuple[ComparedCurve, ...]


def compared(curves: list[ShownCurve], axis: Axis) -> EqualSpending:
    """Curves where the shortest of them ends; those without a point are left out. Between two evaluations a straight
    line."""
    means = [(shown.name, mean_of(shown, axis)) for shown in curves]
    known = [(name, mean) for name, mean in means if len(mean.x) and np.isfinite(mean.x).all()]
    at = min((float(mean.x[-1]) for _, mean in known), default=float("nan"))
    return EqualSpending(at, tuple(_row(name, mean, at) for name, mean in known))


def _row(name: str, mean: MeanCurve, at: float) -> ComparedCurve:
    equal, train = (float(np.interp(at, mean.x, values, left=np.nan)) for values in (mean.test, mean.train))
    return ComparedCurve(name, float(mean.x[-1]), float(mean.test[-1]), equal, train)
