"""Tables of the law for the terminal: r and phi of a pair, and its designs with their ends, ranked by the law.

dev/law_scores.py measures how well it ranks them.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
from rftlab.sim.environments import build
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.paper.experiments import BASELINE, label
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at, start_at
from rftlab.studies.data.results.claims import short_label
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.law.curve import NOISE, KnownRun, forecast
from rftlab.studies.forecast.law.limits import beyond
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise, simulate_noise
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, at_rounds, midway_round, pilot_from
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot, shipped_base, shipped_pairs

NARROW: dict[str, Any] = {"wrap": "never", "collapse_padding": True}
"""Layout of tables with many columns."""


@cache
def simulated_noise(pair: str) -> tuple[MeasuredNoise, MeasuredNoise]:
    """Return r and phi of a simulated pair's base policy, and half way through the baseline's run."""
    start = start_at(pair, "sim")
    run = replace(start, design=replace(BASELINE, rounds=start.design.rounds, eval_every=start.design.eval_every))
    world = build(run.environment)
    return simulate_noise(run, world), simulate_noise(run, world, midway_round(run.design))


def show_ratios(console: Console, noise: MeasuredNoise, name: str) -> None:
    """Print r and phi, and where forecasts take other values."""
    believed = noise.ratios
    lost = "" if believed.gain == noise.gain else "; phi is within two errors of 1 and counts as 1"
    below = "; r below 0 counts as 0" if noise.between < 0 else ""
    text = f"r = {noise.between:.4g} ± {noise.between_error:.2g}, phi = {noise.gain:.3g} ± {noise.gain_error:.2g}"
    say(console, f"{name}: {text}{below}{lost}")


def show_designs(
    console: Console, noise: MeasuredNoise, base: float, known: list[KnownRun], ends: dict[str, float], rounds: int
) -> None:
    """Print all designs of the grid, best first, with forecasts from the base model's Pass@1 where runs are known.
    ends: final test Pass@1 of the designs that were run, by label."""
    designs = tuple(at_rounds(CELLS, rounds).values())
    names, each = list(CELLS), [time_per_round(design, noise.ratios) for design in designs]
    predicted = forecast(base, known, noise, designs) if known else None
    tried = [run._replace(errors=np.full(len(run.values), NOISE)) for run in known]
    far = [beyond(design, None, tried) if tried else "" for design in designs]
    head = (Column("forecast", ".3f"), "80%", Column("measured", ".3f")) if predicted else ()
    columns = ("design", Column("B_eff", ",.1f"), Column("tau a round", ".2f"), *head)
    table = Table(*columns, title="designs of the grid, best first", **NARROW)
    for i in sorted(range(len(designs)), key=lambda i: (far[i] != "", -each[i])):
        row = [short_label(names[i]) + "*" * bool(far[i]), design_batch(designs[i], noise.ratios), each[i]]
        if predicted:
            interval = f"{predicted.low[i]:.3f}-{predicted.high[i]:.3f}"
            row += [predicted.values[i], interval, ends.get(names[i])]
        table.add(*row)
    console.print(table)
    for reason in dict.fromkeys(filter(None, far)):
        say(console, f"* outside what was measured, may fail: {reason}", "yellow")
    if predicted:
        seen = ", ".join(short_label(label(run.design)) for run in known)
        say(console, f"forecast after {rounds} rounds from {seen}; how far to trust a level: docs/lab/law.md", "dim")


def show_split(console: Console, noise: NoiseRatios, costs: Costs, budget: float) -> None:
    """Print the best B and K for a budget, with the raw reward and with a baseline."""
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
    """Print r, phi, designs, forecasts and the best split of a pair: from a pilot in the results folder, else one that
    comes with rftlab, else the simulator. Raises UserError for a pair that nobody measured, and for a damaged pilot."""
    own = path_kind(pilot_path(results, pair)) is not None if pair in PAIRS else False
    check(
        own or pair in (*shipped_pairs(), *pairs_at("sim")),
        f"pair = {pair!r} has no pilot in {results}; allowed: {', '.join((*shipped_pairs(), *pairs_at('sim')))}, "
        "or one of `rftlab pilot`",
    )
    if not own and pair not in shipped_pairs():
        before, midway = simulated_noise(pair)
        show_ratios(console, before, "base policy of the simulator")
        show_ratios(console, midway, "half way through the baseline's run")
        show_split(console, midway.ratios, costs, budget)
        return
    if own:
        pilot = read_pilot(results, pair)
        curves, base = [run.curve for run in pilot.runs], pilot.base.test.rate("strict")
        last = [one.test_pass_at_1[-1] if one.round[-1] == pilot.rounds else np.nan for one in curves]
        ends = dict(zip([run.cell for run in pilot.runs], last, strict=True))
    else:
        rows = shipped_runs().query("pair == @pair")
        pilot = pilot_from(rows, shipped_base(pair), shipped_cells(rows))
        base = float(rows.loc[rows["round"] == 0, "test_pass_at_1"].mean())
        ends = rows[rows["round"] == rows["planned_rounds"]].groupby("cell")["test_pass_at_1"].mean().to_dict()
    known = [KnownRun(run.design, run.curve.round[1:], run.curve.test_pass_at_1[1:]) for run in pilot.runs]
    noise = pilot_noise(pilot.base)
    where = "half way through the baseline's run" if pilot.base.midway else "base model"
    show_ratios(console, noise, f"{where}, from the pilot's gradients")
    show_designs(console, noise, base, [run for run in known if len(run.rounds)], ends, pilot.rounds)
    show_split(console, noise.ratios, costs, budget)


def shipped_cells(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the designs of a shipped pair that a forecast may know: the pilot's where the whole grid is there, else
    the baseline alone."""
    return PILOT_CELLS if set(CELLS) <= set(rows["cell"]) else (label(BASELINE),)
