"""Falls from the best level of a run to its end, on noisy values."""

from typing import NamedTuple

import numpy as np
from scipy import ndimage

from rftlab.studies.analysis.diagnose.observed import Line
from rftlab.studies.analysis.diagnose.robust import WIDEST, noise, smooth, width_of
from rftlab.studies.analysis.diagnose.thresholds import limit


class Fall(NamedTuple):
    """From the best level to the last one."""

    best: float
    best_round: int
    last: float
    since: int
    """First round of those that stay below the middle of both."""
    share: float
    """(best - last) / best."""


def fall_of(line: Line | None) -> Fall | None:
    """The fall of a line of rates or rewards; None where it is within noise, or too short to tell."""
    if line is None or len(line) < limit("few_points") or np.isnan(line.values).any():
        return None
    level, last = smooth(line.values), float(np.median(line.last(0.2)))
    at = int(np.argmax(level))
    best, error = float(level[at]), _error(line, at)
    around = slice(max(0, at - width_of(line.values) // 2), at + width_of(line.values) // 2 + 1)
    at = around.start + int(np.argmax(line.values[around]))
    if np.isfinite(line.counts[0]) and line.values[0] > best:  # one value is enough where its error is known
        at, best, error = 0, float(line.values[0]), _binomial(line, 0)
    if not best > 0 or not best - last > limit("errors") * error:
        return None
    above = np.flatnonzero(smooth(line.values, 0.0) > (best + last) / 2)
    since = line.rounds[min(max(at, int(above[-1]) if len(above) else 0) + 1, len(line) - 1)]
    return Fall(best, int(line.rounds[at]), last, int(since), (best - last) / best)


def _binomial(line: Line, at: int) -> float:
    p, n = float(np.clip(line.values[at], 0, 1)), line.counts[at]
    return float(np.sqrt(p * (1 - p) / n)) if n >= 1 else float("nan")


def _error(line: Line, at: int) -> float:
    """Of a level of three neighbours against the last ones: sqrt(2/3) of one value's, as if medians were means."""
    seen = noise(line.values)
    known = _binomial(line, at) if np.isfinite(line.counts[at]) and line.metric != "reward_mean" else 0.0
    return float(np.sqrt(2 / 3) * np.nanmax([seen, known]))


def lasting_fall(line: Line | None) -> Fall | None:
    """The fall that a whole run shows, looked for at every width.

    Levels are running medians of all widths: a narrow one sees a peak that was left at once, a wide one a small fall
    of noisy values. Of those that are above the end by so many standard errors the one that is highest for certain
    counts.
    """
    if line is None or len(line) < limit("few_points") or np.isnan(line.values).any():
        return None
    end = line.tail(0.2)
    last, spread = float(np.median(end.values)), noise(line.values)
    found, most, least = None, -np.inf, limit("start") if line.metric == "pass_at_1" else 0.0
    for width in _widths(line):
        whole = slice(width // 2, len(line) - max(width // 2, len(end)))  # windows that lie within the run
        level = ndimage.median_filter(line.values, size=width, mode="mirror")[whole]
        if len(level) == 0:
            continue
        at = whole.start + int(np.argmax(level))
        best, error = float(level.max()), spread * np.sqrt(_of_median(width) + _of_median(len(end)))
        certain = best - limit("fall_shrunk") * error
        falls = best > least and best - last > limit("errors") * error
        if falls and certain > most and _counted(line, best, last, width, len(end)):
            found, most = (at, width, best), certain
    if found is None:
        return None
    at, width, best = found
    first = max(0, at - width // 2)
    at = first + int(np.argmax(line.values[first : at + width // 2 + 1]))
    above = np.flatnonzero(smooth(line.values, 0.0) > (best + last) / 2)
    since = line.rounds[min(max(at, int(above[-1]) if len(above) else 0) + 1, len(line) - 1)]
    return Fall(best, int(line.rounds[at]), last, int(since), (best - last) / best)


def _widths(line: Line) -> list[int]:
    """Of running medians; a value alone where it is known how sure it is."""
    counted = np.isfinite(line.counts).all() and line.metric != "reward_mean"
    widest = min(len(line) // 2, WIDEST)
    return ([1] if counted else []) + [2**k + 1 for k in range(1, 8) if 2**k + 1 <= max(widest, 3)]


def _of_median(width: int) -> float:
    """Variance of a median of so many values, for values of variance 1 (pi / 2 that of a mean)."""
    return 1.0 if width == 1 else np.pi / 2 / width


def _counted(line: Line, best: float, last: float, width: int, end: int) -> bool:
    """Whether the difference of two rates is beyond what so many answers can differ by: arcsines of roots, whose
    variance is 1 / 4n at every rate. True where that is not known."""
    count = float(np.median(line.counts))
    if not count >= 1 or line.metric == "reward_mean":
        return True
    arcs = [np.arcsin(np.sqrt(np.clip(rate, 0, 1))) for rate in (best, last)]
    return bool(2 * (arcs[0] - arcs[1]) > limit("errors") * np.sqrt((1 / width + 1 / end) / count))
