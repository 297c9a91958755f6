"""Turn the steps of a log into rounds.

First series are cleaned until each step is there once. A log that was restarted, appended to or logged once an update
has steps that go back, repeat or are missing. Each repair is noted in a sentence, and what cannot be repaired without a
guess raises a UserError that names the place. The meaning of a metric does not matter here.

Then steps become rounds. A test row has the number of rounds finished before the evaluation; 0 is the untrained model.
A train row has the round whose responses it describes; the first is 1.

    verl        steps from 1; validation in the line of step s is after s rounds. Until January 2025 (timing/ instead of
                timing_s/) from 0: step s is round s+1, validation in its line after s+1
    TRL         optimiser steps from 1; U of them are a round
    others      steps from 1: evaluation at s after s rounds. From 0: step s is round s+1, and evaluations at f-1, 2f-1,
                .. are after f, 2f, ..
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check, few
from rftlab.studies.readers.run import RawRun, Tool

WHOLE_RUN = 0.5
"""Share of the steps after a restart. An attempt that got farther was no aborted start: two runs lie in one file."""
FEWEST_STEPS = 3
"""Fewest steps that must have several values each before these are taken for values of updates."""
FEWEST_HELD = 8
"""Fewest values that must each stay for as many steps before they are taken for repeated ones."""
_OF_RUNS = ("seed", "run", "run_id", "trial", "replicate", "repeat")
"""Columns that number runs."""
MAX_RESTARTS = 20
"""Largest number of times that steps may go back; a log with more mixes runs."""
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Steps, values and places of a series."""
_MARKS: dict[Tool, str] = {
    "verl": "critic/score/mean critic/rewards/mean actor/pg_loss actor/ppo_kl global_seqlen/mean",
    "trl": "frac_reward_zero_std completions/mean_length reward_std completion_length clip_ratio/region_mean",
}
_PREFIXES = ("", "train/", "trl/")
_OF_ROLL = ("system/samples", "system/batch_", "actor_train/", "val_correct/", "time/step_")
"""Beginnings of metric names that ROLL has and verl lacks. ROLL counts from 0 and evaluates before it trains."""
_LAGGING = ("mismatch_kl/all/mean", "progress/total_rollouts", "progress/rollouts", "time/wait_for_policy")
"""Metrics of prime-rl, whose evaluations are of an older policy than their step says."""


class Points(NamedTuple):
    """A metric's values in the order of steps, each step once."""

    steps: np.ndarray
    values: np.ndarray
    n: np.ndarray | None = None
    """Number of logged values averaged in each one; None where each was logged."""


class Restart(NamedTuple):
    """Place in a log where the step goes back."""

    place: int
    step: int
    reached: int
    """Highest step before this place."""
    afresh: bool
    """Whether training starts again, or rewards begin, rather than going on from a checkpoint."""


def split_runs(run: RawRun, rewards: set[str]) -> list[RawRun]:
    """Return the runs that stand one after another in a log, where steps start again after a run that got far. rewards:
    names of the mean rewards. Training on examples before the first of them belongs to the run."""
    if not run.one_track or not run.series or run.outcomes:
        return [run]
    main = max(run.series.values(), key=len)
    order = np.argsort(np.asarray(main.places), kind="stable")
    steps, places = np.asarray(main.steps)[order], np.asarray(main.places)[order]
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    begins = [0, *(i for i in falls if steps[i] <= steps[0]), len(steps)]
    if len(begins) == 2 or len(falls) > MAX_RESTARTS:
        return [run]
    rewarded = min((min(run.series[name].places) for name in rewards if len(run.series[name])), default=0)
    far = [int(steps[start:end].max()) - int(steps[0]) + 1 for start, end in pairwise(begins)]
    cuts = [
        int(places[i])
        for part, i in enumerate(begins[1:-1], start=1)
        if far[part - 1] > WHOLE_RUN * max(far[part:]) and not places[i - 1] < rewarded <= places[i]
    ]
    runs, ends = [], [*cuts, np.inf]
    parts = [
        (start, end)
        for start, end, then in zip([0, *cuts], ends, [*ends[1:], 0], strict=True)
        if not _again(run, start, end, then)
    ]
    for number, (start, end) in enumerate(parts, start=1):
        series = {name: part for name, whole in run.series.items() if len(part := whole.between(start, end))}
        place = f"from {run.place} {start} on" if start else f"before {run.place} {end}"
        notes = [*run.notes, f"run {number} of {len(parts)} in the file, {place}"] if cuts else run.notes
        runs.append(replace(run, series=series, notes=notes))
    return runs


def _again(run: RawRun, start: float, end: float, then: float) -> bool:
    """Whether the part from `end` to `then` begins with all values of the part before it, like a table shown again."""
    pairs = [(part.between(start, end).values, part.between(end, then).values) for part in run.series.values()]
    return then > end and all(np.array_equal(first, again[: len(first)], equal_nan=True) for first, again in pairs)


def clean_series(run: RawRun, tests: set[str], rewards: set[str]) -> tuple[dict[str, Points], list[str]]:
    """Return the series of a run with each step once, and sentences on the repairs. The series are taken from the run,
    because a log may be large.

    tests: metrics of evaluations, which no update repeats. rewards: names of the mean rewards. Raises UserError where
    runs are mixed.
    """
    notes: list[str] = []
    finite: dict[str, Columns] = {}
    dropped: dict[str, int] = {}
    first = []
    for name in list(run.series):
        series = run.series.pop(name)
        steps, values, places = np.asarray(series.steps), np.asarray(series.values), np.asarray(series.places)
        keep = np.isfinite(values)
        if not keep.all():
            dropped[name] = len(keep) - int(keep.sum())
            first.append(places[~keep].min())
            steps, values, places = steps[keep], values[keep], places[keep]
        if len(steps):
            finite[name] = steps, values, places
    if dropped:
        notes.append(
            f"values that are not finite left out: {sum(dropped.values())}, of {few(sorted(dropped), 4)}; the first in "
            f"{run.place} {min(first)}"
        )
    rewarded = min((places.min() for name, (_, _, places) in finite.items() if name in rewards), default=0)
    if run.one_track and finite:
        main = max(finite, key=lambda name: len(finite[name][0]))
        restarts = _restarts(run, rewarded, *finite[main])
        for place, step, reached, afresh in restarts:
            lost = "what was logged before" if afresh else f"values logged before it of steps from {step} on"
            lost += " is left out" if afresh else " are left out"
            notes.append(f"{run.place} {place}: steps go back from {reached} to {step}, as after a restart; {lost}")
        finite = {name: _without(parts, restarts) for name, parts in finite.items()}
    points: dict[str, Points] = {}
    repeated: dict[str, list] = {"updates": [], "repeats": []}
    for name in list(finite):
        parts = finite.pop(name)
        if not run.one_track:
            parts = _without(parts, _restarts(run, rewarded, *parts))
        if len(parts[0]):  # else all of it was logged before a restart
            points[name] = _once(name, *parts, repeated, name not in tests)
    notes += _repeats_told(repeated) + _gaps(points)
    return _without_held(points, notes), notes


def _restarts(run: RawRun, rewarded: int, steps: np.ndarray, values: np.ndarray, places: np.ndarray) -> list[Restart]:
    """Return the places where steps go back to one that was there, in the order of the file; none where every step is
    there once. rewarded: place of the first reward. Where steps go back there, training on examples ends and another
    training begins."""
    if np.all(steps[1:] >= steps[:-1]) or len(np.unique(steps)) == len(steps):
        return []
    order = np.argsort(places, kind="stable")
    steps, places = steps[order], places[order]
    highest = np.maximum.accumulate(steps)
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    first = int(steps[0])
    restarts = []
    for i in falls:
        at = f"{run.place} {places[i]}"
        began = places[i - 1] < rewarded <= places[i]
        restart = Restart(int(places[i]), int(steps[i]), int(highest[i - 1]), bool(began or steps[i] <= first))
        check(
            len(falls) <= MAX_RESTARTS,
            f"{at}: steps go back {len(falls)} times, as where runs are mixed; allowed: one run a file (one file of "
            "events for TensorBoard), or a column of run names (--columns run=...)",
        )
        later = int(steps[i:].max())
        check(
            not restart.afresh or began or restart.reached - first + 1 <= WHOLE_RUN * (later - first + 1),
            f"{at}: steps start again at {restart.step} after {restart.reached}, as where a second run begins; "
            "allowed: one run a file, or a column of run names (--columns run=...)",
        )
        restarts.append(restart)
    return restarts


def _without(parts: Columns, restarts: list[Restart]) -> Columns:
    """Return a series without the values that were logged before a restart at steps that came again. At the step of the
    restart itself they are dropped only where it came again."""
    steps, values, places = parts
    keep = np.ones(len(steps), dtype=bool)
    for restart in restarts:
        later = places >= restart.place
        again = restart.step in steps[later]
        keep &= later | (not restart.afresh) & ((steps < restart.step) | (steps == restart.step) & (not again))
    return parts if keep.all() else (steps[keep], values[keep], places[keep])


def _once(
    name: str, steps: np.ndarray, values: np.ndarray, places: np.ndarray, repeated: dict[str, list], by_update: bool
) -> Points:
    """Return a series with each step once: the mean where every step has as many values, as in a round of several
    updates, else the last value. by_update: whether the metric may be logged once an update."""
    if np.all(steps[1:] > steps[:-1]):
        return Points(steps, values)
    order = np.lexsort((places, steps))
    steps, values = steps[order], values[order]
    unique, first, counts = np.unique(steps, return_index=True, return_counts=True)
    if len(unique) == len(steps):
        return Points(steps, values)
    last = values[first + counts - 1]
    differ = np.maximum.reduceat(values, first) != np.minimum.reduceat(values, first)
    if not differ.any():
        return Points(unique, last)
    check(
        name.rsplit("/", 1)[-1].lower() not in _OF_RUNS,
        f"{name} has several values at step {unique[differ][0]}, as where runs are mixed; allowed: one run a file, "
        f"or a column of run names (--columns run={name})",
    )
    usual = int(counts[0])
    if by_update and usual > 1 and len(counts) >= FEWEST_STEPS and np.all(counts[:-1] == usual) and counts[-1] <= usual:
        repeated["updates"].append((name, usual))
        return Points(unique, np.add.reduceat(values, first) / counts, counts.astype(float))
    repeated["repeats"].append((name, int(unique[counts > 1][0])))
    return Points(unique, last)


def _without_held(points: dict[str, Points], notes: list[str]) -> dict[str, Points]:
    """Return the points without those that a callback repeated at each step until the trainer logged anew. They are
    recognised where all metrics of the fullest series stay equal, always for as many steps."""
    fullest = max((part.steps for part in points.values()), key=len, default=np.empty(0))
    held = {name: part for name, part in points.items() if np.array_equal(part.steps, fullest)}
    if len(held) < 2 or len(fullest) < 2 * FEWEST_HELD:
        return points
    changed = np.any([np.diff(part.values) != 0 for part in held.values()], axis=0)
    new = np.flatnonzero(np.append(True, changed))
    often = np.unique(np.diff(new[1:]))
    if len(new) < FEWEST_HELD or len(often) != 1 or often[0] < 2:
        return points
    notes.append(f"all values stay for {often[0]} steps each, as where a callback repeats the last: the first is taken")
    return points | {
        name: Points(steps[new], values[new], None if n is None else n[new])
        for name, (steps, values, n) in held.items()
    }


def _repeats_told(repeated: dict[str, list]) -> list[str]:
    """Return notes on metrics that are averaged within steps, and on those of which the last value is taken."""
    notes = []
    if repeated["updates"]:
        names, counts = zip(*repeated["updates"], strict=True)
        said = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        notes.append(f"{said} values a step, averaged as updates of one round: {few(names, 4)}")
    if repeated["repeats"]:
        names, steps = zip(*repeated["repeats"], strict=True)
        notes.append(
            f"steps repeated with other values (first: step {min(steps)}), the last one taken: {few(names, 4)}"
        )
    return notes


def _gaps(points: dict[str, Points]) -> list[str]:
    """Return a note on steps that the fullest series lacks, where most of its steps are evenly spaced."""
    steps = max((part.steps for part in points.values()), key=len, default=np.empty(0))
    apart = np.diff(steps)
    usual = int(np.median(apart)) if len(apart) else 0
    holes = np.flatnonzero(apart >= 2 * usual)
    if not len(holes) or len(holes) > 0.2 * len(apart):
        return []
    ends = [(steps[i] + usual, steps[i + 1] - usual) for i in holes[:3]]
    gaps = [f"{low}" if low == high else f"{low} to {high}" for low, high in ends]
    return [f"steps missing: {', '.join(gaps)}{f' and {len(holes) - 3} more gaps' if len(holes) > 3 else ''}"]


def trainer_by_metrics(points: dict[str, Points]) -> Tool:
    """Return the trainer that these metrics belong to; "" where it is unknown.

    ROLL's are unknown, since some of them have verl's names, and so are TRL's that begin at step 0, which it never
    logs. Raises UserError for metrics of prime-rl, whose evaluations have no known round.
    """
    lagging = set(_LAGGING) & points.keys()
    check(not lagging, "metrics of prime-rl; allowed: a reader of your own for its logs (docs/import.md)")
    if any(name.startswith(_OF_ROLL) for name in points):
        return ""
    for tool, marks in _MARKS.items():
        named = (points.get(prefix + mark) for prefix in _PREFIXES for mark in marks.split())
        own = [part for part in named if part is not None]
        if own and not (tool == "trl" and any(part.steps[0] == 0 for part in own)):
            return tool
    return ""


class Counting:
    """Rule that turns the steps of one run into rounds."""

    def __init__(self, run: RawRun, names: Iterable[str], train: list[Points], test: list[Points], updates: int | None):
        self.tool, self.updates, self.notes = run.tool, updates or 1, []
        self.first = run.first_step if run.first_step is not None else self._first(names, train)
        after = self.tool == "" and self.first == 0 and not run.unprinted and self._after(test)
        self.ahead = self.tool == "verl" or after
        if self.tool == "trl" and updates is None and train:
            self.notes.append("TRL counts optimiser steps; taken as one a round (--updates tells)")
        if self.tool == "" and self.first == 0:
            before = "an evaluation at step s is after s"
            ahead = "an evaluation at step s > 0 is after s+1, as their steps show"
            when = ahead if self.ahead else before
            said = f"steps count from 0: step s is round s+1; {when}; at step 0 it tests the untrained model"
            self.notes.append(said)

    def _first(self, names: Iterable[str], train: list[Points]) -> int:
        """Return the step of the first round."""
        lowest = min((int(part.steps[0]) for part in train), default=None)
        if self.tool in ("rftlab", "trl") or lowest is None:
            return 1
        if self.tool == "verl" and lowest > 0:
            return 0 if any(name.startswith("timing/") for name in names) else 1
        return 0 if lowest == 0 else 1

    def _after(self, test: list[Points]) -> bool:
        """Whether evaluations of a log that counts from 0 come every f steps at f-1, 2f-1, .., so that they follow the
        update of their step."""
        steps = sorted({int(step) for part in test for step in part.steps if step > 0})
        return len(steps) > 1 and gcd(*(step + 1 for step in steps)) > 1

    def rounds(self, steps: np.ndarray, test: bool) -> np.ndarray:
        """Return the rounds of train rows or of test rows, by their steps."""
        if self.tool == "rftlab":
            return steps
        if self.tool == "trl":
            return steps // self.updates if test else -(-(steps - self.first + 1) // self.updates)
        if not test:
            return steps - self.first + 1
        if self.tool == "verl":
            return steps + 1 if self.first == 0 else steps
        return np.where(steps > 0, steps + 1, 0) if self.ahead else steps
