"""The law as tables for the terminal: r and phi of a pair, and its designs with their ends, ranked by the law.
dev/law_scores.py says how well it ranks them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from scipy import stats

from rftlab.shared.design import Design
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
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, Base, midway_round
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot, shipped_base, shipped_pairs

RankedLevel = Literal["language model", "simulator", "published", "public"]
FEWEST = 3
"""Designs below which a rank correlation says nothing."""
RAW = label(BASELINE)


class RankedPair(NamedTuple):
    """Designs of a pair with the Pass@1 at which each ended (n,)."""

    level: RankedLevel
    pair: str
    split: str
    noise: tuple[NoiseRatios, ...]
    """r and phi; several that were tried where nobody measured them."""
    designs: tuple[Design, ...]
    """With their rounds."""
    ends: np.ndarray
    base: float = float("nan")
    """Pass@1 of the base model."""
    error: MeasuredNoise | None = None
    """The measurements behind `noise`, with errors."""
    base_noise: NoiseRatios | None = None
    """r and phi of the base policy, where `noise` was measured later."""
    known: tuple[KnownRun, ...] = ()
    """The runs that a forecast may see."""
    rounds: int | None = None
    """Rounds of the grid that is forecast; the longest of the designs' if left out."""
    curves: pd.DataFrame = pd.DataFrame()
    """design (index into `designs`), round, value: means over seeds."""


def language_pairs() -> Iterator[RankedPair]:
    """Test Pass@1 of the runs that come with rftlab, r and phi of the pilots. Known to forecasts: the pilot's designs
    where the whole grid is there, the baseline alone otherwise; seed 0."""
    curves = shipped_runs()
    for name in shipped_pairs():
        own, base = curves[curves["pair"] == name], shipped_base(name)
        known = PILOT_CELLS if set(CELLS) <= set(own["cell"]) else (RAW,)
        pair = ranked_pair("language model", name, "test", own, pilot_noise(base), known)
        yield pair._replace(base_noise=_base_noise(base))


def _base_noise(base: Base) -> NoiseRatios | None:
    """r and phi of the base model, where they were measured later too."""
    return pilot_noise(base._replace(midway=None)).ratios if base.midway else None


def piloted_pair(root: Path, name: str) -> RankedPair:
    """The results of a user's pilot: r, phi, and its runs, all of which a forecast may see. Raises UserError where
    there is none, or a damaged one."""
    pilot = read_pilot(root, name)
    noise = pilot_noise(pilot.base)
    designs = tuple(replace(run.design, rounds=pilot.rounds, eval_every=pilot.rounds) for run in pilot.runs)
    ends = [run.curve.test_pass_at_1[-1] if run.curve.round[-1] == pilot.rounds else np.nan for run in pilot.runs]
    known = (KnownRun(run.design, run.curve.round[1:], run.curve.test_pass_at_1[1:]) for run in pilot.runs)
    return RankedPair(
        "language model",
        name,
        "test",
        (noise.ratios,),
        designs,
        np.array(ends),
        pilot.base.test.rate("strict"),
        noise,
        _base_noise(pilot.base),
        tuple(run for run in known if len(run.rounds)),
        pilot.rounds,
    )


@cache
def simulated_noise(pair: str) -> tuple[MeasuredNoise, MeasuredNoise]:
    """r and phi of a simulated pair's base policy, and half way through the baseline's run."""
    start = start_at(pair, "sim")
    run = replace(start, design=replace(BASELINE, rounds=start.design.rounds, eval_every=start.design.eval_every))
    world = build(run.environment)
    return simulate_noise(run, world), simulate_noise(run, world, midway_round(run.design))


def ranked_pair(
    level: RankedLevel, pair: str, split: str, own: pd.DataFrame, noise: MeasuredNoise, known: tuple[str, ...]
) -> RankedPair:
    """From the rows of a pair's runs; runs that ended early are left out."""
    column = f"{split}_pass_at_1"
    own = own[own["cell"].isin(list(CELLS))]
    last = own[own["round"] == own["planned_rounds"]].groupby("cell")
    ends, rounds = last[column].mean(), last["round"].first()
    cells = [cell for cell in CELLS if cell in ends.index]
    designs = tuple(replace(CELLS[cell], rounds=int(rounds[cell]), eval_every=int(rounds[cell])) for cell in cells)
    seen = own[(own["seed"] == own["seed"].min()) & (own["round"] > 0)]
    runs = {cell: seen[seen["cell"] == cell] for cell in known if cell in cells}
    points = [
        KnownRun(CELLS[cell], run["round"].to_numpy(dtype=np.float64), run[column].to_numpy())
        for cell, run in runs.items()
    ]
    lines = own[own["round"] > 0].groupby(["cell", "round"])[column].mean().rename("value").reset_index()
    lines = lines[lines["cell"].isin(cells)]
    lines = lines.assign(design=lines["cell"].map(cells.index))[["design", "round", "value"]]
    base = float(own.loc[own["round"] == 0, column].mean())
    values = ends[cells].to_numpy()
    return RankedPair(
        level, pair, split, (noise.ratios,), designs, values, base, noise, None, tuple(points), curves=lines
    )


def rank_agreement(values: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where all values or all truths are alike, nan for fewer than three."""
    values, truth = np.asarray(values), np.asarray(truth)
    if len(truth) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(truth) == 0 else float(stats.spearmanr(values, truth).statistic)


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
    tried = [run._replace(errors=np.full(len(run.values), NOISE)) for run in pair.known]
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
