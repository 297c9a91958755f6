"""The law as tables for the terminal."""

from collections.abc import Iterable
from dataclasses import replace

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
from rftlab.studies.console.table import Table, number, put, say
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.results.claims import short
from rftlab.studies.forecast.law.curve import NOISE, forecast
from rftlab.studies.forecast.law.levels import RankedPair
from rftlab.studies.forecast.law.limits import TriedRun, beyond
from rftlab.studies.forecast.law.noise import MeasuredNoise
from rftlab.studies.forecast.law.score import LawScore
from rftlab.studies.forecast.pilot.grid import CELLS


def show_scores(console: Console, found: Iterable[tuple[RankedPair, LawScore]]) -> None:
    """A row per pair and split, by level."""
    columns = ("n", "r", "phi", "law", "base", "f = 1", "B K", "B", "regret")
    ranks = Table(
        "pair", *columns, wrap="never", collapse_padding=True, title="Spearman rank correlation with Pass@1 at the end"
    )
    errors = Table(
        "pair",
        "held out",
        "error",
        "80% covers",
        wrap="never",
        collapse_padding=True,
        title="forecasts from a few runs",
    )
    level = ""
    for pair, one in found:
        if pair.level != level:
            level = pair.level
            ranks.add(level, style="italic")
        r = f"{one.noise.between:.4f}" + ("*" if len(pair.noise) > 1 else "")
        numbers = (one.law, one.at_base, one.plain, one.rollouts, one.prompts)
        ranks.add(
            f"{pair.pair}, {pair.split}",
            str(len(pair.designs)),
            r,
            f"{one.noise.gain:.2f}",
            *(number(value, 2) for value in numbers),
            number(one.regret),
        )
        if one.held_out:
            name = f"{pair.pair}, {pair.split} ({level})"
            errors.add(name, str(one.held_out), number(one.error), f"{one.covered:.0%}")
    console.print(ranks)
    say(console, "law: tau with B_eff = B / (r + f/K); base: r and phi of the base policy; f = 1: no baselines", "dim")
    text = "B K, B: rollouts, prompts of the run; regret: of the law's choice at equal rollouts"
    say(console, f"{text}; *: nobody measured r, best of six", "dim")
    console.print(errors)


def show_noise(console: Console, noise: MeasuredNoise, name: str) -> None:
    """r and phi, and what is believed of them."""
    believed = noise.ratios
    lost = "" if believed.gain == noise.gain else "; phi is within two errors of 1 and counts as 1"
    below = "; r below 0 counts as 0" if noise.between < 0 else ""
    text = f"r = {noise.between:.4g} ± {noise.between_error:.2g}, phi = {noise.gain:.3g} ± {noise.gain_error:.2g}"
    say(console, f"{name}: {text}{below}{lost}")


def show_designs(console: Console, found: RankedPair) -> None:
    """All designs of the grid, best first, with forecasts where runs are known."""
    noise = found.noise[0]
    rounds = found.rounds or max(design.rounds for design in found.designs)
    designs = tuple(replace(design, rounds=rounds, eval_every=rounds) for design in CELLS.values())
    each = [time_per_round(design, noise) for design in designs]
    predicted = forecast(found.base, list(found.known), found.error, designs) if found.known and found.error else None
    tried = [TriedRun(run.design, None, run.values, np.full(len(run.values), NOISE)) for run in found.known]
    far = [beyond(design, None, tried) if tried else "" for design in designs]
    ends = {label(design): end for design, end in zip(found.designs, found.ends, strict=True)}
    seen = ", ".join(short(label(run.design)) for run in found.known)
    head = ("forecast", "80%", "measured") if predicted else ()
    table = Table(
        "design",
        "B_eff",
        "tau a round",
        *head,
        wrap="never",
        collapse_padding=True,
        title="designs of the grid, best first",
    )
    for i in sorted(range(len(designs)), key=lambda i: (far[i] != "", -each[i])):
        name = short(label(designs[i])) + "*" * bool(far[i])
        row = [name, f"{design_batch(designs[i], noise):,.1f}", f"{each[i]:.2f}"]
        if predicted:
            row += [f"{predicted.median[i]:.3f}", f"{predicted.low[i]:.3f}-{predicted.high[i]:.3f}"]
            row += [number(ends.get(label(designs[i]), float("nan")))]
        table.add(*row)
    console.print(table)
    for reason in dict.fromkeys(filter(None, far)):
        say(console, f"* outside what was measured, may fail: {reason}", "yellow")
    if predicted:
        say(console, f"forecast after {rounds} rounds from {seen}; read docs/law.md before you believe a level", "dim")


def show_split(console: Console, noise: NoiseRatios, costs: Costs, budget: float) -> None:
    """The best B and K for the money, with the raw reward and with a baseline."""
    title = f"best split of {budget:g} a round; a prompt costs {costs.prompt:g}, a rollout {costs.rollout:g}"
    table = Table("", "K*", "B", "K", "B_eff", "cost", wrap="never", collapse_padding=True)
    for baseline in (False, True):
        ideal, one = best_rollouts(noise, costs, baseline), best_split(noise, costs, budget, baseline)
        spent = one.batch_size * (costs.prompt + one.rollouts * costs.rollout)
        name = "mean of the others as baseline" if baseline else "raw reward"
        shown = f"{ideal:.2f}" if np.isfinite(ideal) else "all"
        table.add(name, shown, str(one.batch_size), str(one.rollouts), f"{one.effective:,.1f}", f"{spent:g}")
    put(console, title, table)
