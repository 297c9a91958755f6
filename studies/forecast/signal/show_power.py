"""Power as lines and tables for the terminal."""

from math import isfinite, isnan, sqrt

import numpy as np
from rich.console import Console
from scipy.stats import chi2

from rftlab.shared.plumbing.errors import plain
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.forecast.signal.power import (
    Questions,
    compare_runs,
    questions_needed,
    seeds_for,
    sigma_of_difference,
    smallest_difference,
)
from rftlab.studies.forecast.signal.repeats import find_repeats, pooled_sigma, tasks_told
from rftlab.studies.readers.run import ImportedRun

SEEDS = (2, 3, 5, 10, 20)


def show_compared(console: Console, a: np.ndarray, b: np.ndarray, paired: bool, sigma: float | None) -> None:
    """Whether measured runs differ."""
    difference = compare_runs(a, b, paired, sigma)
    sides = (
        f"{name}: {len(side)} run{'s' * (len(side) > 1)}, mean {side.mean():.4f}"
        for name, side in zip("ab", (a, b), strict=True)
    )
    say(console, "; ".join(sides))
    if not isfinite(difference.low):
        why = "one run on a side says" if min(len(a), len(b)) < 2 else "runs of a side that are all equal say"
        say(
            console,
            f"difference {difference.value:+.4f}; {why} nothing about the seeds, so it is unknown whether it is real",
        )
        say(console, "more seeds, or --sigma of such runs, would tell", "dim")
        return
    test = "z test" if sigma is not None else "t test of pairs" if paired else "Welch's t test"
    say(
        console,
        f"difference {difference.value:+.4f}, 95% interval {difference.low:+.4f} to {difference.high:+.4f} ({test}, "
        f"{_p(difference.p_value)})",
    )
    unseen = "no difference seen: the interval holds 0, and so differences of either sign up to its ends"
    say(console, "a difference: the interval leaves out 0" if difference.seen else unseen, "bold")
    if not isnan(difference.permutation):
        say(console, f"counted over all ways to deal the runs: {_p(difference.permutation)}", "dim")
        if difference.least > 0.05:
            least = f"with so few runs that cannot be below {difference.least:.3f}"
            say(console, f" {least}: the t test decides, which takes noise as normal", "dim")
    if difference.sigma > 0 and difference.value != 0:
        need = seeds_for(abs(difference.value), difference.sigma, paired)
        what = "a difference of a pair" if paired else "a run"
        say(
            console,
            f"deviation of {what} {difference.sigma:.4f}: {need} seeds a side find a true difference of this size with "
            "chance 0.8",
        )


def _p(value: float) -> str:
    return f"p = {value:.3f}" if value >= 0.0005 else "p < 0.001"


def show_tasks(console: Console, runs: list[ImportedRun], task: str | None = None) -> None:
    """Over which test sets a Pass@1 is a mean, where it is one."""
    if text := tasks_told(runs, task):
        say(console, text)


def show_repeats(console: Console, runs: list[ImportedRun], task: str | None = None) -> float:
    """The deviation of repeated runs, with its 95% interval; returns it."""
    groups = find_repeats(runs, task)
    sigma, degrees = pooled_sigma([group.scores for group in groups])
    numbers = (Column(name, ".4f") for name in ("mean test Pass@1", "deviation"))
    table = Table("runs that repeat each other", "design", "runs", *numbers, wrap="never")
    for name, design, scores in groups:
        size = f"{design.prompts}x{design.rollouts}"
        table.add(plain(name), size, len(scores), scores.mean(), scores.std(ddof=1))
    console.print(table)
    low, high = (sigma * sqrt(degrees / chi2.ppf(at, degrees)) for at in (0.975, 0.025))
    say(console, f"sigma = {sigma:.4f}, 95% interval {low:.4f} to {high:.4f} ({degrees} degrees of freedom)")
    return sigma


def show_seeds(console: Console, sigma: float, difference: float, correlation: float) -> None:
    """Seeds for a difference, and differences for numbers of seeds."""
    between = sigma_of_difference(sigma, correlation)
    alone, paired = seeds_for(difference, sigma, False), seeds_for(difference, between, True)
    say(console, f"to find a difference of {difference:g} with chance 0.8 (t test at 5%, sigma = {sigma:.4g}):")
    say(console, f" {alone} seeds an arm unpaired, {paired} paired (correlation {correlation:g})")
    table = Table("seeds an arm", Column("unpaired", ".4f"), Column("paired", ".4f"), wrap="never")
    for seeds in SEEDS:
        table.add(seeds, smallest_difference(sigma, seeds, False), smallest_difference(between, seeds, True))
    put(console, "smallest difference that is found with chance 0.8", table)


def show_questions(console: Console, known: Questions, difference: float | None, questions: int | None) -> None:
    """Test questions for a difference, and what those that there are leave open."""
    if difference is not None:
        other, same = (questions_needed(known, difference, same) for same in (False, True))
        say(
            console,
            f"test questions for a difference of {difference:g}, {known.responses} response(s) to each, seeds without "
            "noise:",
        )
        say(console, f" {other:,} unpaired (each run its own questions), {same:,} paired (the same questions)")
    if questions is not None:
        error, twin = (sqrt(known.variance(same) / questions) for same in (False, True))
        say(
            console,
            f"{questions:,} questions: standard error of a Pass@1 {error / sqrt(2):.4f}; of a difference "
            f"{error:.4f} unpaired, {twin:.4f} paired",
        )
    if known.spread == 0:
        text = "Without --spread all questions count as alike; then the same questions gain nothing. "
        say(console, text + "`rftlab signal` measures it.", "dim")
    say(console, "Paired: if the difference is as large on every question; otherwise more.", "dim")
