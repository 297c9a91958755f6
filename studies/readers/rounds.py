"""From the steps of a log to rounds of ours.

Test rows: rounds finished before the evaluation, 0 is the untrained model. Train rows: the round whose responses
they describe, the first is 1.

    verl        steps from 1; validation in the line of step s is after s rounds. Until January 2025 (timing/ instead of
                timing_s/) from 0: step s is round s+1, validation in its line after s+1
    TRL         optimiser steps from 1; U of them are a round
    others      steps from 1: evaluation at s after s rounds. From 0: step s is round s+1, and evaluations at f-1, 2f-1,
                .. are after f, 2f, ..
"""

from collections.abc import Iterable
from math import gcd

import numpy as np

from rftlab.shared.plumbing.errors import check
from rftlab.studies.readers.run import RawRun, Tool
from rftlab.studies.readers.steps import Points

_MARKS: tuple[tuple[Tool, tuple[str, ...]], ...] = (
    ("verl", ("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "actor/ppo_kl", "global_seqlen/mean")),
    (
        "trl",
        (
            "frac_reward_zero_std",
            "completions/mean_length",
            "reward_std",
            "completion_length",
            "clip_ratio/region_mean",
        ),
    ),
)
_PREFIXES = ("", "train/", "trl/")
_LAGGING = ("mismatch_kl/all/mean", "progress/total_rollouts", "progress/rollouts", "time/wait_for_policy")
"""Metrics of prime-rl, whose evaluations are of an older policy than their step says."""


def tool_of(names) -> Tool:
    """Whose metrics these are; "" where that cannot be told. Raises UserError for those of prime-rl, of whose
    evaluations the round cannot be told."""
    names = set(names)
    check(not names & set(_LAGGING), "metrics of prime-rl; allowed: a reader of your own for its logs (docs/import.md)")
    for tool, marks in _MARKS:
        if any(prefix + mark in names for prefix in _PREFIXES for mark in marks):
            return tool
    return ""


class Counting:
    """How the steps of one run become rounds."""

    def __init__(self, run: RawRun, names: Iterable[str], train: list[Points], test: list[Points], updates: int | None):
        self.tool, self.updates, self.notes = run.tool, updates or 1, []
        self.first = run.first_step if run.first_step is not None else self._first(names, train)
        self.ahead = self.tool == "verl" or (self.tool == "" and self.first == 0 and self._after(test))
        if self.tool == "trl" and updates is None and train:
            self.notes.append("TRL counts optimiser steps; taken as one a round (--updates tells)")
        if self.tool == "" and self.first == 0:
            self.notes.append(self._told())

    def _first(self, names: Iterable[str], train: list[Points]) -> int:
        """The step of the first round."""
        lowest = min((int(part.steps[0]) for part in train), default=None)
        if self.tool in ("rftlab", "trl") or lowest is None:
            return 1
        if self.tool == "verl" and lowest > 0:
            return 0 if any(name.startswith("timing/") for name in names) else 1
        return 0 if lowest == 0 else 1

    def _after(self, test: list[Points]) -> bool:
        """Whether evaluations of a log that counts from 0 come every f steps at f-1, 2f-1, ..; they are after the
        update of their step then."""
        steps = sorted({int(step) for part in test for step in part.steps if step > 0})
        return len(steps) > 1 and gcd(*(step + 1 for step in steps)) > 1

    def _told(self) -> str:
        when = (
            "an evaluation at step s > 0 is after s+1, as their steps show"
            if self.ahead
            else "an evaluation at step s is after s"
        )
        return f"steps count from 0: step s is round s+1; {when}; at step 0 it is of the untrained model"

    def train(self, steps: np.ndarray) -> np.ndarray:
        """Rounds of train rows."""
        if self.tool == "rftlab":
            return steps
        counted = steps - self.first + 1
        return -(-counted // self.updates) if self.tool == "trl" else counted

    def test(self, steps: np.ndarray) -> np.ndarray:
        """Rounds of test rows."""
        if self.tool == "trl":
            return steps // self.updates
        if self.tool == "verl":
            return steps + 1 if self.first == 0 else steps
        return np.where(steps > 0, steps + 1, 0) if self.ahead else steps
