"""Evidence about a model's Pass@1: none, a pilot, imported runs, a file of pass rates."""

from collections import defaultdict
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, plain
from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.data.results.stats import interval
from rftlab.studies.forecast.pilot.headroom import mean_rate
from rftlab.studies.forecast.pilot.pilot import CELLS
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot
from rftlab.studies.forecast.signal.power import final_score, selected
from rftlab.studies.forecast.signal.signal import Fitted, MeasuredRates, Rates, fit_rates, pilot_rates, read_rates

Key = tuple[int, int, int, int]
"""Fields that identify a design: B, K, support rollouts, replay window."""


class DesignScore(NamedTuple):
    """Mean Pass@1 at the end of the runs of one design."""

    value: float
    low: float
    """Lower end of the 95% interval; nan for one run, because nobody knows how far another seed would be."""
    high: float
    runs: int


class AdviceEvidence(NamedTuple):
    """Evidence about a model's Pass@1 on which advice rests."""

    rates: Rates | None
    """Distribution of the base model's pass rates; None where nobody measured them."""
    base: DesignScore | None
    """Pass@1 of the base model, with an interval for questions drawn at random."""
    scores: dict[Key, DesignScore]
    origins: tuple[str, ...]
    """Sentences on where the evidence comes from."""


def design_key(design: Design) -> Key:
    """Return the fields of a design that must be equal for two designs to count as one."""
    return design.batch_size, design.rollouts, design.support_rollouts, design.replay_window


def gather_evidence(root: Path, pair: str | None, imported: str | None, rates: Path | None) -> AdviceEvidence:
    """Return the evidence of a pilot, of imported runs and of a file of pass rates, each if it is named. Raises
    UserError where one that is named is missing."""
    measured: MeasuredRates | None = None
    known: Fitted | None = None
    scores: dict[Key, DesignScore] = {}
    origins: list[str] = []
    if pair is not None:  # its runs count too, where the results folder has the pilot
        measured = pilot_rates(root, pair)
        known = fit_rates(measured)
        size = f"{len(measured.rates)} training questions, {measured.responses} responses each"
        origins.append(f"pilot of {pair}: {size}; {known.origin}")
        runs = read_pilot(root, pair).runs if path_kind(pilot_path(root, pair)) else ()
        for run in runs:
            scores[design_key(CELLS[run.cell])] = DesignScore(float(run.curve.test_pass_at_1[-1]), nan, nan, 1)
        origins += [f"its {len(runs)} runs, one of each design"] * bool(runs)
    if rates is not None:
        measured = read_rates(rates, None, None)
        known = fit_rates(measured)
        origins.append(f"pass rates of {rates.name}: {known.origin}")
    if imported is not None:
        more, source = _imported_scores(root, imported)
        scores |= more
        origins.append(source)
    if measured is None or known is None:
        return AdviceEvidence(None, None, scores, tuple(origins))
    base = DesignScore(*mean_rate(1, measured.rates, measured.responses).interval(), 1)
    return AdviceEvidence(known.rates, base, scores, tuple(origins))


def _imported_scores(root: Path, name: str) -> tuple[dict[Key, DesignScore], str]:
    """Return test Pass@1 by design of imported runs whose B and K are known, and a sentence on which these are."""
    grouped: dict[Key, list[float]] = defaultdict(list)
    runs, task = selected(root, name)
    for run in runs:
        score = final_score(run, task)
        if score is not None and run.design.prompts and run.design.rollouts:
            grouped[run.design.prompts, run.design.rollouts, 0, 0].append(score)
    unknown = f"imported runs {name!r}: of none are B, K and a test Pass@1 known; allowed: runs with all three"
    check(bool(grouped), unknown)
    used = f"{sum(map(len, grouped.values()))} of {len(runs)} runs with B, K and a test Pass@1"
    said = f"runs of {plain(name)}: {used};\n  whatever else differs between them is not looked at"
    return {key: mean_score(np.array(values)) for key, values in grouped.items()}, said


def mean_score(values: np.ndarray) -> DesignScore:
    """Return the mean and the 95% interval (Student's t) of repeats (n,)."""
    mean, low, high = interval(values)
    ends: tuple[float, float] = (max(0.0, low), min(1.0, high)) if len(values) > 1 else (nan, nan)
    return DesignScore(mean, *ends, len(values))
