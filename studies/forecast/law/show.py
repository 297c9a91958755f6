"""The law as tables for the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rftlab.shared.effective_batch import (
    Costs,
    NoiseRatios,
    best_rollouts,
    best_split,
    design_batch,
    time_per_round,
)
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.forecast.law.curve import NOISE, forecast
from rftlab.studies.forecast.law.limits import TriedRun, beyond
from rftlab.studies.forecast.law.noise import MeasuredNoise
from rftlab.studies.forecast.law.ranked import RankedPair, language_pairs, piloted_pair, simulated_noise
from rftlab.studies.forecast.pilot.pilot import CELLS
from rftlab.studies.forecast.pilot.store import pilot_path, shipped_pairs

NARROW: dict[str, Any] = {"wrap": "never", "collapse_padding": True}
"""Layout of tables with many columns."""


def show_ratios(console: Console, noise: MeasuredNoise, name: str) -> None:
    """r and phi, and what is believed of them."""
    believed = noise.ratios
    lost = "" if believed.gain == noise.gain else "; phi is within two errors of 1 and counts as 1"
    below = "; r below 0 counts as 0" if noise.between < 0 else ""
    text = f"r = {noise.between:.4g} ± {noise.between_error:.2g}, phi = {noise.gain:.3g} ± {noise.gain_error:.2g}"
    say(console, f"{name}: {text}{below}{lost}")


def show_designs(console: Console, pair: RankedPair) -> None:
    """All designs of the grid, best first, with forecasts where runs are known."""
    noise = pair.noise[0]
    rounds = pair.rounds or max(design.rounds for design in pair.designs)
    designs = tuple(replace(design, rounds=rounds, eval_every=rounds) for design in CELLS.values())
    each = [time_per_round(design, noise) for design in designs]
    predicted = forecast(pair.base, list(pair.known), pair.error, designs) if pair.known and pair.error else None
    tried = [TriedRun(run.design, None, run.values, np.full(len(run.values), NOISE)) for run in pair.known]
    far = [beyond(design, None, tried) if tried else "" for design in designs]
    ends = {label(design): end for design, end in zip(pair.designs, pair.ends, strict=True)}
    seen = ", ".join(short_label(label(run.design)) for run in pair.known)
    head = (Column("forecast", ".3f"), "80%", Column("measured", ".3f")) if predicted else ()
    columns = ("design", Column("B_eff", ",.1f"), Column("tau a round", ".2f"), *head)
    table = Table(*columns, title="designs of the grid, best first", **NARROW)
    for i in sorted(range(len(designs)), key=lambda i: (far[i] != "", -each[i])):
        name = short_label(label(designs[i])) + "*" * bool(far[i])
        row = [name, design_batch(designs[i], noise), each[i]]
        if predicted:
            interval = f"{predicted.low[i]:.3f}-{predicted.high[i]:.3f}"
            row += [predicted.values[i], interval, ends.get(label(designs[i]))]
        table.add(*row)
    console.print(table)
    for reason in dict.fromkeys(filter(None, far)):
        say(console, f"* outside what was measured, may fail: {reason}", "yellow")
    if predicted:
        say(console, f"forecast after {rounds} rounds from {seen}; how far to trust a level: docs/lab/law.md", "dim")


def show_split(console: Console, noise: NoiseRatios, costs: Costs, budget: float) -> None:
    """The best B and K for the money, with the raw reward and with a baseline."""
    title = f"best split of {budget:g} a round; a prompt costs {costs.prompt:g}, a rollout {costs.rollout:g}"
    table = Table("", "K*", "B", "K", "B_eff", "cost", **NARROW)
    for baseline in (False, True):
        ideal, one = best_rollouts(noise, costs, baseline), best_split(noise, costs, budget, baseline)
        spent = one.batch_size * (costs.prompt + one.rollouts * costs.rollout)
        name = "mean of the others as baseline" if baseline else "raw reward"
        shown = f"{ideal:.2f}" if np.isfinite(ideal) else "all"
        table.add(name, shown, str(one.batch_size), str(one.rollouts), f"{one.effective:,.1f}", f"{spent:g}")
    put(console, title, table)


def show_pair(console: Console, pair: str, results: Path, costs: Costs, budget: float) -> None:
    """r, phi, designs, forecasts and the best split of a pair: of a pilot in the results folder, else of one that comes
    with rftlab, else of the simulator. Raises UserError for a pair that nobody measured."""
    own = path_kind(pilot_path(results, pair)) is not None if pair in PAIRS else False
    check(
        own or pair in (*shipped_pairs(), *pairs_at("sim")),
        f"pair = {pair!r} has no pilot in {results}; allowed: {', '.join((*shipped_pairs(), *pairs_at('sim')))}, "
        "or one of `rftlab pilot`",
    )
    if own or pair in shipped_pairs():
        known = piloted_pair(results, pair) if own else next(one for one in language_pairs() if one.pair == pair)
        assert known.error is not None
        where = "half way through the baseline's run" if known.base_noise else "base model"
        show_ratios(console, known.error, f"{where}, from the pilot's gradients")
        show_designs(console, known)
        show_split(console, known.noise[0], costs, budget)
        return
    base, midway = simulated_noise(pair)
    show_ratios(console, base, "base policy of the simulator")
    show_ratios(console, midway, "half way through the baseline's run")
    show_split(console, midway.ratios, costs, budget)
