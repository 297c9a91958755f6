"""What free designs say one should choose, for each model and task: studies/report/choose.py without pairs of ours.

Runs are independent here, so differences have Welch's intervals; a design with one run has none, and only the best is
surely as good as the best.
"""

import numpy as np

from rftlab.studies.analysis.imported.ends import Ends, MeasuredEnd, less
from rftlab.studies.analysis.imported.figures import place_of
from rftlab.studies.data.results.claims import SAME, STILL
from rftlab.studies.data.results.stats import Interval
from rftlab.studies.report.choose import FEW_SEEDS, Advice, Trust


def advice_on(ends: list[Ends]) -> list[Advice]:
    """Advice for each level, model and task."""
    places: dict[tuple[str, str], list[Ends]] = {}
    for one in ends:
        if np.isfinite(one.end.value):
            places.setdefault((one.side, place_of(one.group.model, one.group.task)), []).append(one)
    return [_advice(side, place, own) for (side, place), own in places.items()]


def _advice(side: str, place: str, own: list[Ends]) -> Advice:
    best = max(own, key=lambda one: one.end.value)
    close = [one for one in own if one is best or _interval(less(one.end, best.end)).high <= SAME]
    chosen = min(close, key=lambda one: (one.group.per_round or np.inf, -one.end.value))
    moved = _interval(best.gain).high >= STILL or not np.isfinite(best.gain.value)
    return Advice(
        place,
        place,
        side,
        chosen.group.label if moved else "",
        chosen.group.per_round or 0,
        _interval(chosen.end),
        _interval(chosen.gain),
        best.group.label,
        _interval(best.end),
        len(own),
        "",
        0,
        *_trust(own),
    )


def _interval(measured: MeasuredEnd) -> Interval:
    half = measured.half if np.isfinite(measured.half) else np.inf
    return Interval(measured.value, measured.value - half, measured.value + half)


def _trust(own: list[Ends]) -> tuple[Trust, tuple[str, ...]]:
    """`low` where nothing is compared or a design has fewer than three runs; else `fair`: designs that were not
    planned together may differ in more than what is known of them."""
    fewest = min(len(one.group.runs) for one in own)
    runs = f"{fewest} run{'s' * (fewest > 1)} of the design with the fewest"
    if len(own) == 1:
        return "low", (f"{fewest} run{'s' * (fewest > 1)}", "one design, so nothing is compared")
    reasons = (runs, "designs may differ in more than their logs tell")
    return ("low" if fewest < FEW_SEEDS else "fair"), reasons
