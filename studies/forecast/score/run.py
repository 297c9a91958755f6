"""Run the scoring, and write what was known, what was held out, and how far off every forecast was."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.diagnose.rates import alarm_rates, show_rates
from rftlab.studies.analysis.public.store import runs as public_runs
from rftlab.studies.analysis.source import RunSource, free_source, is_free
from rftlab.studies.console.table import say, write_numbers
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.finish import count_threads
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.forecast.ending import ending_scores, show_ending_scores
from rftlab.studies.forecast.score.cases import Case, cases_named
from rftlab.studies.forecast.score.score import score_case, summary
from rftlab.studies.forecast.score.show import score_figure, show_scores
from rftlab.studies.readers.run import ImportedRun
from rftlab.studies.report.draw import save_chart


def run_scores(
    console: Console,
    what: str,
    root: Path,
    seed: int,
    threads: int,
    quiet: bool,
    base: float | None = None,
    questions: int | None = None,
) -> None:
    """Score all cases, print tables, write files. base, questions: as `cases_named` takes them."""
    cases, slug = cases_named(what, root, base, questions)
    folder = folder_below(root, "score", slug)
    check_writable(folder)
    if what == "public" or is_free(what):
        runs = _finished_runs(what, root)
        score_endings(console, runs, folder)
        score_alarms(console, runs, folder)
    write_file(folder / "split.json", json.dumps([case.split for case in cases], indent=1).encode())
    announce(console, cases, quiet)
    tables = []
    for number, case in enumerate(cases, start=1):
        title = f"{case.pair}, {number} of {len(cases)}"
        with step_progress(console, title, quiet) as step:
            warn = partial(say, console, style="yellow")
            tables.append(score_case(root, case, seed, count_threads(threads), step, warn))
    table = pd.concat(tables, ignore_index=True)
    write_numbers(folder / "summary.csv", summary(table))
    figure, numbers = score_figure(table)
    show_scores(console, table, summary(table))
    say(console, f"scores: {save_chart(figure, folder, 'scores', numbers)}")


def _finished_runs(what: str, root: Path) -> list[tuple[str, ImportedRun]]:
    """The runs of public sources or of a collection, each with the name of its source."""
    sources = (
        [free_source(what)]
        if is_free(what)
        else [RunSource("public", name) for name in sorted(set(public_runs()["source"]))]
    )
    return [(source.name, run) for source in sources for run in source.runs(root)]


def score_endings(console: Console, runs: list[tuple[str, ImportedRun]], folder: Path) -> None:
    """Forecast the ends of the runs from their beginnings, print how far off that is, write endings.csv."""
    table = ending_scores(runs)
    if len(table):
        write_numbers(folder / "endings.csv", table)
        show_ending_scores(console, table)


def score_alarms(console: Console, runs: list[tuple[str, ImportedRun]], folder: Path) -> None:
    """Print how often the alarms of diagnose are right, and write alarms.csv. A collection has a source for each name
    before a slash."""
    named = [(run.name.partition("/")[0] if "/" in run.name else source, run) for source, run in runs]
    rates = alarm_rates(named)
    if rates[["failing", "healthy"]].to_numpy().any():
        write_numbers(folder / "alarms.csv", rates)
        show_rates(console, rates)


def announce(console: Console, cases: list[Case], quiet: bool) -> None:
    """Print the guesses, and what takes minutes, before it begins."""
    for case in cases:
        for text in case.remarks:
            say(console, f"{case.pair}: {text}", "dim")
    todo = sum(case.simulated for case in cases)
    if todo and not quiet:
        # Without a number of minutes, which would go with the rounds and designs of each case.
        text = f"{todo} calibration{'s' * (todo > 1)}, minutes each and longer for longer runs"
        say(console, f"{text}; what an earlier call finished is read")
