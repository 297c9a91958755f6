"""Signal and power as tables for the terminal."""

from math import inf, log

import numpy as np
from rich.console import Console

from rftlab.shared.effective_batch import effective_batch
from rftlab.studies.console.table import Table, put, say
from rftlab.studies.forecast.pilot.headroom import measure_silence
from rftlab.studies.forecast.pilot.passrates import BetaBinomial
from rftlab.studies.forecast.pilot.pilot import Gradient
from rftlab.studies.forecast.signal.signal import Rates, expected_tries, posterior, zero_variance_share
from rftlab.studies.forecast.signal.source import Fitted, MeasuredRates

SHADES = " ░▒▓█"
DROP = 0.95
"""Chance that a group has zero variance from which a prompt is called worth dropping."""

MANY_TRIES = 1000
"""More batches than anybody samples."""
APART = 0.05
"""Difference of two fits from which neither is to be believed alone."""


def show_silent(console: Console, believed: Fitted, measured: MeasuredRates | None, rollouts: tuple[int, ...]) -> None:
    """Shares of zero-variance groups for each K, with what the counts say without a fit."""
    other = "without a form" if isinstance(believed.rates, BetaBinomial) else "beta-binomial"
    table = Table("K", "share", *((other, "from counts alone") if believed.other is not None else ()), wrap="never")
    for k in rollouts:
        table.add(str(k), f"{zero_variance_share(believed.rates, k):.3f}", *_otherwise(believed, measured, k))
    put(console, "zero-variance groups: all right or all wrong", table)
    if believed.other is not None:
        _show_apart(console, believed.rates, believed.other, rollouts)


def _otherwise(believed: Fitted, measured: MeasuredRates | None, k: int) -> tuple[str, ...]:
    """The share by the other fit and from the counts alone; () where no responses were counted."""
    if believed.other is None or measured is None or measured.counts is None:
        return ()
    alone = measure_silence(measured.counts, measured.responses, k)
    shown = f"{alone.value:.3f} ± {alone.error:.3f}" if alone else f"only to K = {measured.responses}"
    return f"{zero_variance_share(believed.other, k):.3f}", shown


def _show_apart(console: Console, rates: Rates, other: Rates, rollouts: tuple[int, ...]) -> None:
    """Warn where two fits explain the counts equally well but differ in their consequences."""
    apart = {k: abs(zero_variance_share(rates, k) - zero_variance_share(other, k)) for k in rollouts}
    worst = max(apart, key=apart.__getitem__)
    if apart[worst] > APART:
        text = f"The fits differ by {apart[worst]:.2f} at K = {worst}: the counts do not decide. More responses would."
        say(console, text, "yellow")


def show_groups(console: Console, rates: Rates, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> None:
    """Groups with signal at every (B, K)."""
    values = np.array([[b * (1 - zero_variance_share(rates, k)) for k in rollouts] for b in batches])
    put(console, "groups with signal, expected, of B", _map(values, batches, rollouts))


def show_noise(console: Console, gradient: Gradient, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> None:
    """B_eff at every (B, K), where a pilot measured gradients."""
    ratio = max(0.0, gradient.between / gradient.within)
    error = gradient.between_error / gradient.within
    values = np.array([[effective_batch(b, k, ratio) for k in rollouts] for b in batches])
    put(console, "effective batch B_eff = B / (r + 1/K), in responses", _map(values, batches, rollouts))
    lost = gradient.between < 2 * gradient.between_error
    say(
        console,
        f"r = {ratio:.3g} ± {error:.2g}, variance of gradients between prompts over that within, of a response"
        + (
            "; it is lost in its error, and B_eff is an upper end"
            if lost
            else f"; more than K = {1 / ratio:.0f} responses to a prompt lower the noise less than twice the prompts do"
        ),
        "dim",
    )


def _map(values: np.ndarray, batches: tuple[int, ...], rollouts: tuple[int, ...]) -> Table:
    """A heat map: numbers with a shade each, on a logarithmic scale."""
    table = Table("B \\ K", *(str(k) for k in rollouts), wrap="never")
    top = max(float(values.max()), 1e-9)
    for b, row in zip(batches, values, strict=True):
        table.add(str(b), *(f"{value:,.1f} {_shade(value, top)}" for value in row))
    return table


def _shade(value: float, top: float) -> str:
    """Darkest at the largest, a step lighter for each factor of four."""
    steps = log(top / value, 4) if value > 0 else inf
    return SHADES[max(0, len(SHADES) - 1 - round(min(steps, 9)))] * 2


def show_tries(console: Console, rates: Rates, batch: int, rollouts: tuple[int, ...]) -> None:
    """Tries of dynamic sampling for each K at one B."""
    table = Table("K", "expected", "enough in 95%", "responses trained on", "of those sampled", wrap="never")
    for k in rollouts:
        expected, likely = expected_tries(batch, zero_variance_share(rates, k))
        many = not expected <= MANY_TRIES
        tries = (f"over {MANY_TRIES:,}", "") if many else (f"{expected:,.2f}", f"{likely:,.0f}")
        table.add(str(k), *tries, f"{batch * k:,}", "0%" if many else f"{1 / expected:.0%}")
    put(console, f"dynamic sampling, B = {batch}: batches until {batch} groups have signal", table)


def show_drops(console: Console, fits: Fitted, measured: MeasuredRates, rollouts: tuple[int, ...]) -> None:
    """Questions that were always right or always wrong, with the chance that their groups have zero variance; nothing
    where no responses were counted."""
    counts, m, other = measured.counts, measured.responses, fits.other
    if counts is None or other is None:
        return
    table, worth = Table("outcome", "questions", "pass rate", *(f"K = {k}" for k in rollouts), wrap="never"), []
    for name, right in (("always wrong", 0), ("always right", m)):
        if not (counts == right).any():
            table.add(name, f"0 of {len(counts)}")
            continue
        believed, _ = after = [posterior(fit, m, right) for fit in (fits.rates, other)]
        share, chances = (
            f"{(counts == right).sum()} of {len(counts)}",
            (zero_variance_share(believed, k) for k in rollouts),
        )
        table.add(name, share, f"{believed.mean:.3f}", *(f"{chance:.2f}" for chance in chances))
        surely = [k for k in rollouts if min(zero_variance_share(fit, k) for fit in after) >= DROP]
        worth += [f"{name}, for K = {', '.join(map(str, surely))}"] if surely else []
    put(console, f"questions with one outcome in {m} responses: chance that a group of K has zero variance", table)
    if worth:
        say(
            console,
            f"worth dropping for now (zero variance with chance {DROP} or more by both fits): {'; '.join(worth)}",
        )
    else:
        say(console, f"worth dropping: none; no count makes a zero-variance group as likely as {DROP}")
    say(console, "A prompt that is always wrong now may teach later: measure it again before it is gone.", "dim")
