"""Show the public runs in the terminal and in the report: noise, credit, claims with verdicts, figures and sources."""

from base64 import b64encode
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup
from rich.console import Console

from rftlab.shared.plumbing.errors import check_choice
from rftlab.studies.analysis.public.claims import (
    cell_deviations,
    curves_on,
    facts,
    findings,
    values_at,
    without_repeat,
)
from rftlab.studies.analysis.public.credit import blind_lines, credit_figure, credit_lines, reported_scores, show_credit
from rftlab.studies.analysis.public.store import BY_NAME, DATA, SOURCES, Source, curves, of_source, runs, score_rows
from rftlab.studies.console.table import Table, say
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.results.verdicts import ClaimFinding
from rftlab.studies.report.chart import Chart, Drawn, LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries, shades
from rftlab.studies.report.claims import VERDICTS
from rftlab.studies.report.report import draw, signed, template

FLOOR = (
    "Verdicts are not corrected for the number of claims, and the claims were written with the data in view.\n"
    "That two designs match within 0.02 also holds where nothing that was varied matters."
)


def show_sources(console: Console, name: str | None) -> None:
    """Print all sources and claims, or everything about one source. Raises UserError where the source is not known."""
    if name is not None:
        check_choice("source", name, tuple(BY_NAME))
        _one(console, BY_NAME[name])
        return
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
            measured, low, high = map(signed, part.measured)
            say(console, f"    {part.name}: {measured} [{low}, {high}], {part.note}")
        if claim.remark:
            say(console, f"    {claim.remark}")
    say(console, "\n" + "   ".join(f"{symbol} {verdict}" for verdict, symbol in VERDICTS.items()))
    say(console, FLOOR)


def noise_lines() -> list[str]:
    """Return sentences about how far runs of one configuration differ."""
    cells = cell_deviations(of_source("pods", runs(), curves()))
    usual = cells.sort_values()[:-1]
    pairs = [spread["value"] for spread in facts().spreads]
    noise, with_all, without = facts().noise, *facts().fits
    return [
        f"Noise of repeats, PODS: ten runs of a cell deviate by {usual.min():.3f} to {usual.max():.3f} on GSM8K after "
        f"six hours (largest reward alone: {cells.max():.3f}).",
        f"Noise of single seeds, shibukizero: {len(pairs)} pairs of runs of one configuration differ by "
        f"{', '.join(f'{value:.3f}' for value in pairs)} on average; root mean square {noise.error:.3f}, so that a "
        f"difference of two single runs has an interval of ±{noise.half:.2f}.",
        "The other sources have no repeats.",
        f"One sigmoid for {without['rates']} learning rates: error {without['rate_steps']:.3f} against rate × steps, "
        f"{without['steps']:.3f} against steps; with the two that fail {with_all['rate_steps']:.3f} and "
        f"{with_all['steps']:.3f}.",
    ]


AXES = {"round": ("steps", 1.0), "rollouts": ("thousand rollouts", 1e-3), "seconds": ("hours", 1 / 3600)}
FAMILIES = {
    "responses a prompt, 16 trained on": {f"{n}": f"n{n}-m16" for n in (16, 32, 64, 128, 256)},
    "trained on, of 64 responses": {f"{m}": f"n64-m{m}" for m in (2, 4, 8, 16)},
    "16 of 64 chosen by": {"variance": "n64-m16", "random": "n64-m16-random", "largest reward": "n64-m16-maxreward"},
}
POINTS = 13


def pods_numbers(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean test Pass@1 on GSM8K of each cell of PODS and its 95% interval over runs, along each axis as far
    as all runs of the cell reach."""
    scores = score_rows(curves, "gsm8k")
    scores = scores.assign(cell=without_repeat(scores["run_id"]).str.removeprefix("pods/gsm8k-"))
    rows = []
    for family, cells in FAMILIES.items():
        for tick, cell in cells.items():
            own = scores[scores["cell"] == cell]
            for axis in AXES:
                runs = curves_on(own, axis)
                for x in np.linspace(max(where[0] for where, _ in runs), min(where[-1] for where, _ in runs), POINTS):
                    values = values_at(runs, x)
                    rows.append((family, tick, axis, x, *interval(values), values.size))
    return pd.DataFrame(rows, columns=["family", "tick", "axis", "x", "mean", "low", "high", "runs"])


def pods_figure(curves: pd.DataFrame) -> Drawn:
    """Draw Pass@1 of PODS against steps, rollouts and hours (columns), with a row for each quantity that was varied.
    Bands are 95% intervals over ten runs."""
    numbers = pods_numbers(curves)
    panels = []
    for family, cells in FAMILIES.items():
        styles = dict(zip(cells, map(MarkStyle, shades(len(cells))), strict=True))
        for axis, (name, unit) in AXES.items():
            own = numbers[(numbers["family"] == family) & (numbers["axis"] == axis)]
            series = tuple(
                PlotSeries(line["x"] * unit, line["mean"], style, tick, line["low"], line["high"])
                for tick, style in styles.items()
                if len(line := own[own["tick"] == tick])
            )
            last = axis == list(AXES)[-1]
            keys = tuple(LegendKey(tick, style) for tick, style in styles.items()) if last else ()
            panels.append(Panel("", PlotAxis(name), PlotAxis("test Pass@1"), series, keys=keys, keys_title=family))
    return Chart(tuple(panels), (10, 7.6), len(AXES), share_x="column", share_y="row"), numbers


PICTURES = ("public_learning_rates.png", "public_single_runs.png", "public_starts.png")
"""Figures of runs whose numbers are not shipped (dev/public_runs.py); the template says what to see in them."""


def public_section(folder: Path) -> Markup:
    """Return the HTML of the section on public runs; its figures and the numbers drawn are written into the folder."""
    pods = draw(folder, "public-pods", pods_figure(curves()))
    credit = draw(folder, "public-credit", credit_figure())
    page = template("public.html.j2").render(
        noise=noise_lines(),
        findings=findings(),
        sources=SOURCES,
        pods=pods,
        credit=credit,
        credit_lines=credit_lines(reported_scores()) + blind_lines(),
        pictures={name: b64encode((DATA / name).read_bytes()).decode() for name in PICTURES},
        floor=FLOOR,
        points=f"{sum(source.points for source in SOURCES):,}",
        runs=sum(source.runs for source in SOURCES),
    )
    return Markup(page)
