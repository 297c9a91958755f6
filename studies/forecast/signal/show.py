"""Signal and power as tables for the terminal."""

from math import inf, isfinite, isnan, log, sqrt

import numpy as np
from rich.console import Console

from rftlab.shared.effective_batch import effective_batch
from rftlab.shared.plumbing.errors import plain
from rftlab.studies.console.table import Column, Table, put, say
from rftlab.studies.data.results.stats import MANY, seeds_needed
from rftlab.studies.forecast.pilot.headroom import measure_silence
from rftlab.studies.forecast.pilot.passrates import BetaBinomial
from rftlab.studies.forecast.pilot.pilot import Gradient
from rftlab.studies.forecast.signal.power import (
    Questions,
    compare_runs,
    find_repeats,
    pooled_sigma,
    questions_needed,
    sigma_of_difference,
    smallest_difference,
)
from rftlab.studies.forecast.signal.signal import (
    Fitted,
    MeasuredRates,
    Rates,
    expected_tries,
    fit_rates,
    posterior,
    zero_variance_share,
)
from rftlab.studies.readers.run import ImportedRun

SHADES = " ░▒▓█"
DROP = 0.95
"""Chance that its group has zero variance from which a prompt counts as worth dropping."""

MANY_TRIES = 1000
"""Expected number of batches above which it is not printed, because nobody samples so many."""
APART = 0.05
"""Difference between the zero-variance shares of two fits from which a warning is printed."""


def show_silent(console: Console, believed: Fitted, measured: MeasuredRates | None, rollouts: tuple[int, ...]) -> None:
    """Print shares of zero-variance groups for each K: by the fit, by the other fit, and from the counts alone. Warn
    where both fits explain the counts but differ in their shares."""
    name = "without a form" if isinstance(believed.rates, BetaBinomial) else "beta-binomial"
    table = Table("K", "share", *((name, "from counts alone") if believed.other is not None else ()), wrap="never")
    worst, gap = 0, 0.0
    for k in rollouts:
        share, beside = zero_variance_share(believed.rates, k), []
        if believed.other is not None and measured is not None and measured.counts is not None:
            other, shown = zero_variance_share(believed.other, k), f"only to K = {measured.responses}"
            if alone := measure_silence(measured.counts, measured.responses, k):
                # an error of 0, where all questions agree, is shown as that of one that does not
                shown = f"{alone.value:.3f} ± {alone.error or 1 / alone.questions:.3f}"
            beside = [f"{other:.3f}", shown]
            worst, gap = (k, abs(share - other)) if abs(share - other) > gap else (worst, gap)
        table.add(str(k), f"{share:.3f}", *beside)
    put(console, "zero-variance groups: all right or all wrong", table)
    if gap > APART:
        text = f"The fits differ by {gap:.2f} at K = {worst}: the counts do not decide. More responses would."
        say(console, text, "yellow")


def show_groups(console: Console, rates: Rates, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> None:
    """Print the expected number of groups with signal at every (B, K)."""
    values = np.array([[b * (1 - zero_variance_share(rates, k)) for k in rollouts] for b in batches])
    put(console, "groups with signal, expected, of B", _map(values, batches, rollouts))


def show_noise(console: Console, gradient: Gradient, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> None:
    """Print B_eff at every (B, K), where a pilot measured gradients."""
    ratio = max(0.0, gradient.between / gradient.within)
    error = gradient.between_error / gradient.within
    values = np.array([[effective_batch(b, k, ratio) for k in rollouts] for b in batches])
    put(console, "effective batch B_eff = B / (r + 1/K), in responses", _map(values, batches, rollouts))
    meaning = "it is lost in its error, and B_eff is an upper end"
    if gradient.between > 2 * gradient.between_error:
        meaning = f"more than K = {1 / ratio:.0f} responses to a prompt lower the noise less than twice the prompts do"
    said = f"r = {ratio:.3g} ± {error:.2g}, variance of gradients between prompts over that within, of a response"
    say(console, f"{said}; {meaning}", "dim")


def _map(values: np.ndarray, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> Table:
    """Return a heat map as a table: numbers, each with a shade on a logarithmic scale."""
    table = Table("B \\ K", *(str(k) for k in rollouts), wrap="never")
    top = max(float(values.max()), 1e-9)
    for b, row in zip(batches, values, strict=True):
        table.add(str(b), *(f"{value:,.1f} {_shade(value, top)}" for value in row))
    return table


def _shade(value: float, top: float) -> str:
    """Return the shade of a value: darkest at the largest, a step lighter for each factor of four."""
    steps = log(top / value, 4) if value > 0 else inf
    return SHADES[max(0, len(SHADES) - 1 - round(min(steps, 9)))] * 2


def show_tries(console: Console, rates: Rates, batch: int, rollouts: tuple[int, ...]) -> None:
    """Print the batches that dynamic sampling needs for each K at one B."""
    table = Table("K", "expected", "enough in 95%", "responses trained on", "of those sampled", wrap="never")
    for k in rollouts:
        expected, likely = expected_tries(batch, zero_variance_share(rates, k))
        many = not expected <= MANY_TRIES
        tries = (f"over {MANY_TRIES:,}", "") if many else (f"{expected:,.2f}", f"{likely:,.0f}")
        table.add(str(k), *tries, f"{batch * k:,}", "0%" if many else f"{1 / expected:.0%}")
    put(console, f"dynamic sampling, B = {batch}: batches until {batch} groups have signal", table)


def show_drops(console: Console, fits: Fitted, measured: MeasuredRates, rollouts: tuple[int, ...]) -> None:
    """Print the questions that were always right or always wrong, with the chance that their groups have zero variance;
    nothing where no responses were counted."""
    counts, m, other = measured.counts, measured.responses, fits.other
    if counts is None or other is None:
        return
    table, worth = Table("outcome", "questions", "pass rate", *(f"K = {k}" for k in rollouts), wrap="never"), []
    for name, right in (("always wrong", 0), ("always right", m)):
        if not (counts == right).any():
            table.add(name, f"0 of {len(counts)}")
            continue
        believed, _ = after = [posterior(fit, m, right) for fit in (fits.rates, other)]
        chances = [f"{zero_variance_share(believed, k):.2f}" for k in rollouts]
        table.add(name, f"{(counts == right).sum()} of {len(counts)}", f"{believed.mean:.3f}", *chances)
        # few questions fit too well; two more with one response of the other outcome give a bound of about 95%
        wary = np.append(counts, 2 * [1 if right == 0 else m - 1])
        doubted = fit_rates(MeasuredRates(wary, m, wary / m))
        after += [posterior(fit, m, right) for fit in (doubted.rates, doubted.other or doubted.rates)]
        surely = [k for k in rollouts if min(zero_variance_share(fit, k) for fit in after) >= DROP]
        worth += [f"{name}, for K = {', '.join(map(str, surely))}"] if surely else []
    put(console, f"questions with one outcome in {m} responses: chance that a group of K has zero variance", table)
    if worth:
        say(
            console,
            f"worth dropping for now (zero variance with chance {DROP} or more by both fits, and also if two more "
            f"questions had one other response): {'; '.join(worth)}",
        )
    else:
        say(console, f"worth dropping: none; no count makes a zero-variance group as likely as {DROP}")
    say(console, "A prompt that is always wrong now may teach later: measure it again before it is gone.", "dim")


SEEDS = (2, 3, 5, 10, 20)


def show_compared(console: Console, a: list[float], b: list[float], paired: bool, sigma: float | None) -> None:
    """Print whether measured runs differ."""
    difference = compare_runs(np.array(a), np.array(b), paired, sigma)
    sides = (
        f"{name}: {len(side)} run{'s' * (len(side) > 1)}, mean {np.mean(side):.4f}"
        for name, side in zip("ab", (a, b), strict=True)
    )
    say(console, "; ".join(sides))
    if not isfinite(difference.low):
        alike = "pairs that all differ by as much say" if paired else "runs of a side that are all equal say"
        why = "one run on a side says" if min(len(a), len(b)) < 2 else alike
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
        ways = "signs of the pairs" if paired else "ways to deal the runs"
        say(console, f"counted over all {ways}: {_p(difference.permutation)}", "dim")
        if difference.least > 0.05:
            least = f"with so few runs that cannot be below {difference.least:.3f}"
            kind = "t" if sigma is None else "z"
            say(console, f" {least}: the {kind} test decides, which takes noise as normal", "dim")
    # a smaller difference than (1.96 + 0.84) sqrt(2) deviations over sqrt(MANY) needs more than MANY seeds
    if abs(difference.value) > 4 * difference.sigma / sqrt(MANY) > 0:
        need = seeds_needed(difference.sigma, abs(difference.value), paired)
        what = "a difference of a pair" if paired else "a run"
        say(
            console,
            f"deviation of {what} {difference.sigma:.4f}: {need} seeds a side find a true difference of this size with "
            "chance 0.8",
        )


def _p(value: float) -> str:
    return f"p = {value:.3f}" if value >= 0.0005 else "p < 0.001"


def show_repeats(console: Console, runs: list[ImportedRun], task: str | None = None) -> float:
    """Print the standard deviation of repeated runs, with its 95% interval, and return it."""
    groups = find_repeats(runs, task)
    sigma, low, high = pooled_sigma([scores for *_, scores in groups])
    numbers = (Column(name, ".4f") for name in ("mean test Pass@1", "deviation"))
    table = Table("runs that repeat each other", "design", "runs", *numbers, wrap="never")
    for name, design, scores in groups:
        size = f"{design.prompts}x{design.rollouts}"
        table.add(plain(name), size, len(scores), scores.mean(), scores.std(ddof=1))
    console.print(table)
    degrees = sum(len(scores) - 1 for *_, scores in groups)
    say(console, f"sigma = {sigma:.4f}, 95% interval {low:.4f} to {high:.4f} ({degrees} degrees of freedom)")
    return sigma


def show_seeds(console: Console, sigma: float, difference: float, correlation: float) -> None:
    """Print the seeds for a difference, and the smallest difference for numbers of seeds."""
    between = sigma_of_difference(sigma, correlation)
    alone, paired = seeds_needed(sigma, difference), seeds_needed(between, difference, paired=True)
    say(console, f"to find a difference of {difference:g} with chance 0.8 (t test at 5%, sigma = {sigma:.4g}):")
    say(console, f" {alone} seeds an arm unpaired, {paired} paired (correlation {correlation:g})")
    table = Table("seeds an arm", Column("unpaired", ".4f"), Column("paired", ".4f"), wrap="never")
    for seeds in SEEDS:
        table.add(seeds, smallest_difference(sigma, seeds, False), smallest_difference(between, seeds, True))
    put(console, "smallest difference that is found with chance 0.8", table)


def show_questions(console: Console, known: Questions, difference: float | None, questions: int | None) -> None:
    """Print the test questions for a difference, and the standard errors that a number of questions leaves."""
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
