"""The public runs on the terminal: sources, noise, credit, and claims with verdicts."""

import numpy as np
from rich.console import Console

from rftlab.shared.plumbing.errors import check_choice
from rftlab.studies.analysis.public.credit import show_credit
from rftlab.studies.analysis.public.facts import facts, findings, spreads
from rftlab.studies.analysis.public.repeats import single_interval
from rftlab.studies.analysis.public.sources import BY_NAME, SOURCES, Source
from rftlab.studies.console.table import Table, say
from rftlab.studies.data.results.verdicts import ClaimFinding, Part
from rftlab.studies.report.claims import VERDICTS

FLOOR = "Verdicts are not corrected for the number of claims, and the claims were written with the data in view."


def show_sources(console: Console, name: str | None) -> None:
    """Print all sources and claims, or everything about one source. Raises UserError where it is not known."""
    if name is None:
        _all(console)
    else:
        check_choice("source", name, tuple(BY_NAME))
        _one(console, BY_NAME[name])


def _all(console: Console) -> None:
    table = Table("source", "licence", "runs", "points", "model", align="left", padding=(0, 2, 0, 0))
    for source in SOURCES:
        mark = "" if source.shipped else "*"
        table.add(source.name, source.licence + mark, source.runs, f"{source.points:,}", source.model)
    console.print(table)
    say(console, "* numbers not shipped: pictures and statistics alone.\n")
    for line in noise_lines():
        say(console, line)
    say(console, "")
    show_credit(console)
    say(console, "")
    _claims(console, findings())


def _one(console: Console, source: Source) -> None:
    say(console, f"{source.name}: {source.reference}")
    say(console, f"licence: {source.licence}" + ("" if source.shipped else ", so its numbers are not shipped"))
    say(console, f"{source.model} on {source.data}; varied: {source.varied}\n{source.shows}\n")
    for trap in source.traps:
        say(console, f"* {trap}")
    own = tuple(finding for finding in findings() if finding.claim.source == source.name)
    say(console, "" if own else "\nNo claim here can be tested with it.")
    if own:
        _claims(console, own)


def _claims(console: Console, findings: tuple[ClaimFinding, ...]) -> None:
    for finding in findings:
        claim = finding.claim
        say(console, f"{VERDICTS[finding.within.verdict]} {claim.name} ({claim.source}): {claim.statement}")
        for part in finding.parts:
            say(console, f"    {words(part)}")
        if claim.remark:
            say(console, f"    {claim.remark}")
    say(console, "\n" + "   ".join(f"{symbol} {verdict}" for verdict, symbol in VERDICTS.items()))
    say(console, FLOOR)


def words(part: Part) -> str:
    """A part in a line: estimate, interval, what it rests on."""
    mean, low, high = (signed_text(value) for value in part.measured)
    return f"{part.name}: {mean} [{low}, {high}], {part.note}"


def signed_text(value: float) -> str:
    """Three decimals with a sign."""
    return f"{value:+.3f}".replace("-", "−")


def noise_lines() -> list[str]:
    """How far runs of one configuration differ, in sentences."""
    known = spreads()
    cells = np.array([spread.value for spread in known if spread.source == "pods"])
    usual = np.sort(cells)[:-1]
    pairs = [spread.value for spread in known if spread.source == "shibukizero"]
    scale, with_all, without = facts().noise, *facts().fits
    half = single_interval(0.0, scale).high
    return [
        f"Noise of repeats, PODS: ten runs of a cell deviate by {usual.min():.3f} to {usual.max():.3f} on GSM8K after "
        f"six hours (largest reward alone: {cells.max():.3f}).",
        f"Noise of single seeds, shibukizero: {len(pairs)} pairs of runs of one configuration differ by "
        f"{', '.join(f'{value:.3f}' for value in pairs)} on average; root mean square {scale.scale:.3f}, so that a "
        f"difference of two single runs has an interval of ±{half:.2f}.",
        "The other sources have no repeats.",
        f"One sigmoid for {without.rates} learning rates: error {without.rate_steps:.3f} against rate × steps, "
        f"{without.steps:.3f} against steps; with the two that fail {with_all.rate_steps:.3f} and "
        f"{with_all.steps:.3f}.",
    ]
