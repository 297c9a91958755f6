"""Write the report of a study: one self-contained HTML page with every figure, table and verdict, the tables as CSV,
and a summary for the terminal.

curves      one row per run and evaluation: columns of
            rftlab.studies.data.runs.runner.Results; a run that diverged has fewer rows
endpoints   one row per experiment, pair, split and cell: tick, mean, low, high, seeds, published, difference; nan where
            undefined; the base model has the experiment and cell 'base'
findings    returned by rftlab.studies.data.results.claims.judge
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from rich.console import Console
from rich.text import Text

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.console.table import write_numbers
from rftlab.studies.data.paper.experiments import BASELINE, Experiment, label
from rftlab.studies.data.paper.pairs import Level
from rftlab.studies.data.results.claims import SAME
from rftlab.studies.data.results.endpoints import agreement, gains
from rftlab.studies.data.results.language import PHASES, costs, has_costs
from rftlab.studies.data.results.verdicts import FAILS, MORE, ClaimFinding
from rftlab.studies.report import figures
from rftlab.studies.report.chart import Drawn
from rftlab.studies.report.choose import WIDE, Advice, advise_pairs
from rftlab.studies.report.claims import (
    HOW_SURE,
    LEGEND,
    MARKS,
    NAMES,
    SIDES,
    claim_rows,
    count_verdicts,
    findings_table,
    found_words,
    judgement_words,
    mark_name,
    measured_quantities,
    ordered_pairs,
    range_words,
    show_claims,
)
from rftlab.studies.report.draw import save_chart
from rftlab.studies.report.figures import by_dataset, pair_rows, pretty
from rftlab.studies.report.svg import chart_html

LEVEL_NAMES = {"sim": "In the simulator", "llm": "On a small language model"}
SAMPLES = {"gsm8k": "in-sample", "math": "in-sample"}
"""Data sets whose published endpoints were known when the simulator's parameters were chosen: all."""
FITTED = "The simulator's parameters were fitted to these published numbers, so that small errors are no foresight."
FLOOR = "95% intervals are over seeds, and not corrected for the number of claims."
FAR = 0.05
"""Difference from the paper above which a number is marked in the tables."""
TEMPLATES = Path(__file__).parent / "templates"
Plan = Callable[[], Drawn]
"""Function that draws a figure when it is called."""


class ReportPart(NamedTuple):
    """Runs of one level in a report."""

    level: Level
    curves: pd.DataFrame
    endpoints: pd.DataFrame
    findings: list[ClaimFinding]
    diverged: list[str]
    """Lines about runs that diverged, one for each."""
    changed: str = ""
    """Settings that differ from those of the pairs, in words."""

    @property
    def pairs(self) -> list[str]:
        """Pairs of the runs, those of a data set together."""
        return [pair for group in by_dataset(self.curves["pair"].unique()).values() for pair in group]


def write_report(
    folder: Path,
    experiments: Iterable[Experiment],
    main: ReportPart,
    beside: ReportPart | None,
    about: dict[str, str],
    notes: list[str],
    theory: Callable[[], str] = str,
    public: str = "",
    progress: Callable[[int, int], object] = noop,
) -> Path:
    """Draw all figures into folder/figures, and write endpoints.csv, gains.csv, findings.csv and report.html.

    main: the runs that the report is about. beside: runs of another level that are shown next to them, if any. theory:
    a function that is called when all figures are drawn, and returns HTML of the section on theory checks. public: HTML
    of the section on public runs, if any. progress: called with the number of drawn figures and of all.
    """
    parts = {"": main} if beside is None else {"": main, f"{beside.level}-": beside}
    findings = [f for part in parts.values() for f in part.findings]
    experiments = [e for e in experiments if main.curves["cell"].isin(map(label, e.cells)).any()]
    folder.mkdir(parents=True, exist_ok=True)
    parted = {prefix: gains(part.curves) for prefix, part in parts.items()}
    write_numbers(folder / "endpoints.csv", pd.concat([part.endpoints for part in parts.values()]))
    write_numbers(folder / "gains.csv", pd.concat(parted.values()))
    write_numbers(folder / "findings.csv", findings_table(findings))
    context = {
        "figures": draw_all(folder_below(folder, "figures"), _plans(experiments, parts), progress),
        "experiments": experiments,
        "levels": {prefix: _tables(part, parted[prefix], experiments) for prefix, part in parts.items()},
        "baseline": label(BASELINE),
        "level_of": {pair: part.level for part in parts.values() for pair in part.pairs},
        "facets": _facets(experiments, list(parts.values())),
        "advice": _advice(experiments, list(parts.values())),
        "level": main.level,
        "columns": ordered_pairs(findings),
        "claims": claim_rows(findings),
        "counts": [one for p in parts.values() for one in count_verdicts(p.level, p.findings, bool(p.changed))],
        "errors": agreement(main.endpoints).to_dict("records"),
        "unfair": unfair(main),
        "in_sample": main.level == "sim" and not main.changed,
        "about": about,
        "notes": notes,
        "theory": Markup(theory()),
        "public": Markup(public),
    }
    page = template("report.html.j2").render(context)
    write_file(folder / "report.html", page.encode())
    return folder / "report.html"


def terminal_summary(parts: list[ReportPart], console: Console) -> None:
    """Print the verdicts as a matrix of claims and pairs, with counts and their certainty. Then print the mean absolute
    errors of the first part against the paper, whether it was fitted to these numbers, and whether the comparison is
    fair."""
    show_claims(console, [(part.level, part.findings, bool(part.changed)) for part in parts])
    console.print(FLOOR)
    errors = agreement(parts[0].endpoints)
    if len(errors):
        console.print(Text("What is fitted", style="bold"))
        console.print(FITTED if parts[0].level == "sim" else "Nothing here is fitted to the paper's numbers.")
    for dataset, rows in errors.groupby("dataset", sort=False):
        said = ", ".join(f"{row.split} {row.mae:.3f} ({row.cells} cells)" for row in rows.itertuples())
        console.print(Text(f"mean absolute error to the paper, {_dataset_title(dataset, parts[0].level)}: {said}"))
    if unfair(parts[0]):
        console.print(Text(unfair(parts[0]), style="yellow"))


def unfair(part: ReportPart) -> str:
    """Return why a part's numbers cannot be compared fairly with the published ones; "" where they can, or where there
    are none."""
    rounds = int(part.curves["planned_rounds"].max())
    if part.changed:
        return f"This study changes {part.changed}: verdicts on the paper's numbers are of other runs than its."
    if rounds == BASELINE.rounds or agreement(part.endpoints).empty:
        return ""
    return (
        f"This study trains for {rounds} rounds and the paper for {BASELINE.rounds}: its numbers are no "
        "fair comparison here."
    )


def _facets(experiments: list[Experiment], parts: list[ReportPart]) -> dict[str, dict[str, str]]:
    """Return the filters of the page: the values of each fact, with their names for readers."""
    return {
        "pair": {pair: pretty(pair) for part in parts for pair in part.pairs},
        "experiment": {e.name: e.title for e in experiments},
        "level": {part.level: LEVEL_NAMES[part.level] for part in parts},
        "split": {split: split for split in SPLITS},
    }


def _advice(experiments: list[Experiment], parts: list[ReportPart]) -> list[Advice]:
    designs = {label(cell): cell for e in experiments for cell in e.cells}
    return [one for part in parts for one in advise_pairs(part.curves, part.endpoints, part.level, designs)]


def _dataset_title(dataset: str, level: Level) -> str:
    return pretty(dataset) + (f" ({SAMPLES[dataset]})" if level == "sim" and dataset in SAMPLES else "")


def _plans(experiments: list[Experiment], parts: dict[str, ReportPart]) -> dict[str, Plan]:
    """Return every figure that has something to show, by name."""
    plans: dict[str, Plan] = {}
    for prefix, part in parts.items():
        if any(e.name in figures.OVERVIEW for e in experiments):
            plans[f"{prefix}overview"] = partial(figures.overview, part.endpoints, pair_rows(part.pairs)[0])
        known = part.endpoints.dropna(subset=["published", "mean"]).drop_duplicates(["pair", "split", "cell"])
        if len(known):
            plans[f"{prefix}agreement"] = partial(
                figures.agreement_figure, known, _error_lines(part.endpoints, part.level)
            )
        for e in experiments:
            plans[f"{prefix}{e.name}-endpoints"] = partial(figures.tradeoff, e, part.endpoints, part.pairs)
            plans[f"{prefix}{e.name}-curves"] = partial(
                figures.learning_curves, e, part.curves, part.endpoints, part.pairs
            )
    return plans


def draw_all(folder: Path, plans: dict[str, Plan], progress: Callable[[int, int], object]) -> dict[str, Markup]:
    """Draw and save every figure; return each as a part of a page, by name."""
    shown = {}
    for done, (name, plan) in enumerate(plans.items()):
        progress(done, len(plans))
        shown[name] = draw(folder, name, plan())
    progress(len(plans), len(plans))
    return shown


def draw(folder: Path, name: str, drawn: Drawn) -> Markup:
    """Save a figure, and return it as a part of a page."""
    chart, numbers = drawn
    save_chart(chart, folder, name, numbers)
    return chart_html(chart)


def _error_lines(endpoints: pd.DataFrame, level: Level) -> dict[str, list[str]]:
    """Return the lines about errors of each split for the titles of the agreement figure."""
    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for row in agreement(endpoints).itertuples():
        lines[row.split].append(f"MAE {_dataset_title(row.dataset, level)} {row.mae:.3f} (n = {row.cells})")
    return lines


def _tables(part: ReportPart, gained: pd.DataFrame, experiments: list[Experiment]) -> dict[str, Any]:
    """Return the tables of the page for a part: endpoints by experiment, the parts of gains, and the costs of language
    models."""
    return {
        "level": part.level,
        "pairs": part.pairs,
        "diverged": part.diverged,
        "gains": gained.to_dict("records"),
        "costs": costs(part.curves).to_dict("records") if has_costs(part.curves) else [],
        "rows": {e.name: _endpoint_rows(e, part.endpoints, part.pairs) for e in experiments},
    }


def _endpoint_rows(experiment: Experiment, endpoints: pd.DataFrame, pairs: list[str]) -> list[dict[str, Any]]:
    """Return the rows of an experiment's table: a tick, and per pair and split the endpoint or None. A single cell is
    shown below the base model."""
    names = ["base", experiment.name] if len(experiment.cells) == 1 else [experiment.name]
    chosen = endpoints[endpoints["experiment"].isin(names)]
    known = {(row.cell, row.pair, row.split): row for row in chosen.itertuples()}
    ticks = experiment.ticks_by_cell
    if len(names) == 2:
        ticks = {"base": "base model"} | ticks
    return [
        {"tick": tick, "cells": [(pair, split, known.get((cell, pair, split))) for pair in pairs for split in SPLITS]}
        for cell, tick in ticks.items()
    ]


def signed(value: float) -> str:
    """Return a number with its sign as text."""
    return f"{value:+.3f}".replace("-", "−")


@cache
def script() -> str:
    """Return the script of every page: theme, filters, sorting, and the numbers of marks."""
    return (TEMPLATES / "page.js").read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a page template, with the filters and names that all pages share; values passed to it are escaped."""
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "pretty": pretty,
        "dataset_title": _dataset_title,
        "key": mark_name,
        "judgement": judgement_words,
        "quantities": measured_quantities,
        "found": found_words,
        "range": range_words,
        "slug": lambda text: text.replace(" ", "-"),
        "signed": signed,
        "capitalise": lambda text: text[:1].upper() + text[1:],
        "finite": isfinite,
        "code": lambda text: Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))),
    }
    environment.globals |= {
        "splits": SPLITS,
        "symbols": MARKS,
        "mark_names": NAMES,
        "sides": SIDES,
        "how_sure": HOW_SURE,
        "legend": LEGEND,
        "floor": FLOOR,
        "fitted": FITTED,
        "more": MORE,
        "failed": FAILS,
        "far": FAR,
        "same": SAME,
        "wide": WIDE,
        "phases": PHASES,
        "level_names": LEVEL_NAMES,
        "script": Markup(script()),
        "script_hash": "sha256-" + b64encode(hashlib.sha256(script().encode()).digest()).decode(),
    }
    return environment.get_template(name)
