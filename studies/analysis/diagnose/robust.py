"""Statistics that noise, outliers and gaps do not mislead."""

from typing import NamedTuple

import numpy as np
from scipy import ndimage, stats

WIDEST = 201
"""Values under a running median."""
BLOCKS = 12
"""A trend is of so many medians of neighbours, which depend on each other less than the values do."""


class Trend(NamedTuple):
    """A line through values: Theil and Sen's slope a round, with a 95% interval; Kendall's p of no trend."""

    slope: float
    low: float
    high: float
    p: float
    spread: float
    """Standard deviation of the blocks about the line."""


def trend(rounds: np.ndarray, values: np.ndarray) -> Trend:
    """Of values (n,) at rounds (n,), n >= 3."""
    count = min(BLOCKS, max(3, len(values) // 2)) if len(values) > BLOCKS else len(values)
    at = np.array([part.mean() for part in np.array_split(rounds.astype(float), count)])
    level = np.array([np.median(part) for part in np.array_split(values, count)])
    if np.ptp(level) == 0:
        return Trend(0.0, 0.0, 0.0, 1.0, 0.0)
    slope, start, low, high = stats.theilslopes(level, at, 0.95)
    spread = float((level - start - slope * at).std(ddof=2)) if count > 2 else 0.0
    return Trend(float(slope), float(low), float(high), float(stats.kendalltau(at, level).pvalue), spread)


def noise(values: np.ndarray) -> float:
    """Standard deviation of one value about a slow curve: from second differences, which a slope leaves alone; nan
    below 4 values."""
    if len(values) < 4:
        return float("nan")
    bends = np.diff(values, 2)
    # where most values are equal, as rewards of 0 are, the median is 0 and the standard deviation is not
    return float(max(np.median(np.abs(bends)) * 1.4826, bends.std() / 2) / np.sqrt(6))


def smooth(values: np.ndarray, part: float = 0.1, least: int = 3) -> np.ndarray:
    """Running median over a part of the values, at least so many; mirrored at the ends, where no value stands alone."""
    return ndimage.median_filter(values, size=width_of(values, part, least), mode="mirror")


def width_of(values: np.ndarray, part: float = 0.1, least: int = 3) -> int:
    """Values under the window of `smooth`, an odd number."""
    return min(max(least, int(len(values) * part)), WIDEST, len(values)) | 1
