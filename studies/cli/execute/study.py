"""Run a study, judge its claims and write its report, for `rftlab reproduce`, `rftlab report` and `rftlab run`; and
write the pages of the studies `first` and `next_checks`."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import HEAVY_HEAD
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import folder_below
from rftlab.sim.config import Simulation
from rftlab.studies.analysis.followup.first import known_ends, rule_errors, rule_table
from rftlab.studies.analysis.followup.next_checks import (
    CHECKS,
    Section,
    check_points,
    check_section,
    count_words,
    judge_check,
    measured_ends,
    write_study_page,
)
from rftlab.studies.cli.simulate import StudyCommand
from rftlab.studies.console.table import Table, say
from rftlab.studies.data.paper.experiments import EXPERIMENTS, FOLLOW_UPS, Experiment, label
from rftlab.studies.data.paper.pairs import Level, start_at
from rftlab.studies.data.paper.questions import evaluated_on
from rftlab.studies.data.results.claims import CLAIMS, judge
from rftlab.studies.data.results.endpoints import endpoint_table, gain_table, has_measures, measure_pair, measure_table
from rftlab.studies.data.results.language import cost_table, has_costs
from rftlab.studies.data.results.reference import REFERENCE_NOTE, reference
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.about import commit, machine, provenance
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.finish import find_todo, finish_points, run_todo
from rftlab.studies.data.runs.limits import check_threads
from rftlab.studies.data.runs.points import RunSpec, schedule
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.runner import Results, collect
from rftlab.studies.data.runs.study import Study, write_study
from rftlab.studies.report.figures import tradeoff

_PAIRED = "Designs with one seed share their random numbers, so differences between designs are paired."
NOTES = {
    "sim": [
        "The contexts and the base policy of a pair are the same for all its seeds, as a data set and a model "
        "are: intervals show the spread of training.",
        _PAIRED,
        "With one response token, one update per round and whole micro-batches of four responses, the estimators "
        "paper_text and paper_code coincide, so one of them is run.",
        f"Columns of the language model: {REFERENCE_NOTE}",
    ],
    "llm": [
        "The questions and the base model of a pair are the same for all its seeds: intervals show the spread "
        "of training.",
        _PAIRED,
    ],
}
"""The facts that a reader of each level's report should know."""


def reproduce(console: Console, study: Study, root: Path, threads: int, quiet: bool) -> Path:
    """Run the study, judge the claims, write the report and return its path. A study that cannot run here leaves the
    record of another one as it is."""
    check_threads(threads)
    todo = find_todo(console, store.open_store(root), study.points(), quiet)
    write_study(root, study)
    run_todo(console, root, todo, threads, quiet)
    return write_study_report(console, study, root, quiet)


def write_study_report(console: Console, study: Study, root: Path, quiet: bool) -> Path:
    """Write the report of a finished study from the store, print its short form, and return its path. Raises UserError,
    before anything is computed, where it cannot be written."""
    from rftlab.studies.analysis.public.show import public_section
    from rftlab.studies.report.report import terminal_summary, write_report

    folder, experiments = report_folder(root, study.level), list(EXPERIMENTS.values())
    check_writable(folder)
    main = _part(study.level, collect(root, study.points()), study.changed)
    beside = _part("llm", reference()) if study.level == "sim" else None
    verdicts = ""
    with ProcessPoolExecutor(1, get_context("spawn")) as beside_figures:
        simulated = study.level == "sim"
        theory = beside_figures.submit(_theory, folder, root) if simulated else None
        with step_progress(
            console, "drawing figures, checking theory" if simulated else "drawing figures", quiet
        ) as step:
            path = write_report(
                folder,
                experiments,
                main,
                beside,
                _about_study(study, root),
                NOTES[study.level] + _questions(study, main.curves),
                (lambda: theory.result()[0]) if theory else str,
                public_section(folder_below(folder, "figures")) if simulated else "",
                step,
            )
        if theory:
            verdicts = theory.result()[1]
    terminal_summary([main] if beside is None else [main, beside], console)
    for line in main.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    say(console, f"{verdicts}report: {path}")
    if study.level == "sim":
        say(console, "your own batch size, in the browser: make explore, or rftlab explore with the extra 'explore'")
    return path


def report_folder(root: Path, level: Level) -> Path:
    """Return the folder of a level's report. Raises UserError where that is no place below the results folder."""
    return folder_below(root, "report" if level == "sim" else f"report-{level}")


def _part(level: Level, results: Results, changed: str = ""):
    from rftlab.studies.report.report import ReportPart

    pairs = list(results.curves["pair"].unique())
    endpoints = endpoint_table(results.curves, list(EXPERIMENTS.values()), pairs)
    return ReportPart(
        level,
        results.curves,
        endpoints.assign(published=np.nan, difference=np.nan) if changed else endpoints,
        judge(results.curves, pairs),
        results.diverged,
        changed,
    )


def _questions(study: Study, curves: pd.DataFrame) -> list[str]:
    """Return a note for each pair of language models: the questions of its evaluations, and the error that a part of
    them leaves in Pass@1 after training."""
    if study.level == "sim":
        return []
    ends = curves[curves["round"] == curves["planned_rounds"]]
    runs = {point.pair: point.llm_run for point in study.points()}
    rates = {name: {split: ends.loc[ends["pair"] == name, f"{split}_pass_at_1"] for split in SPLITS} for name in runs}
    return [f"{name}: {evaluated_on(run, rates[name])}." for name, run in runs.items()]


def _theory(folder: Path, root: Path) -> tuple[str, str]:
    """Return the report's section on theory checks, and their counts as a line for the terminal. A process of its own
    runs it while figures are drawn: each takes one core."""
    from rftlab.studies.theory import ALL_CHECKS
    from rftlab.studies.theory.command import count_line, run_all
    from rftlab.studies.theory.facts.command import stored_facts
    from rftlab.studies.theory.page import theory_section

    checks = run_all(check for check in ALL_CHECKS if check.tier == "fast")
    section = theory_section(checks, folder_below(folder, "figures"), stored_facts(root))
    return section, f"theory: {count_line(checks)} (rftlab theory)\n"


def _about(asked: dict[str, str], root: Path, points: list[RunSpec]) -> dict[str, str]:
    """Return the facts of a page about its runs: what was asked for, where they come from, and what wrote the page."""
    return asked | provenance(root, points) | {"report": f"by commit {commit()} on {machine()}"}


def _about_study(study: Study, root: Path) -> dict[str, str]:
    configuration = (
        f"level {study.level}, {len(EXPERIMENTS)} experiments, {len(CLAIMS)} claims, {len(study.points())} runs"
    )
    usual = {schedule(start_at(name, study.level).design, study.rounds) for name in study.pairs}
    rounds = "; ".join(f"{total} rounds, evaluated every {every}" for total, every in sorted(usual))
    seeds = f"0 to {study.seeds - 1}, {rounds}"
    asked = {"configuration": configuration, "pairs": ", ".join(study.pairs), "seeds": seeds}
    asked |= {"changed": study.changed} if study.changes else {}
    return _about(asked, root, study.points())


def cell_points(command: StudyCommand, chosen: Experiment, start: Simulation | LLMRun) -> list[RunSpec]:
    """Return the runs of the cells of a study, cell by cell and seed by seed."""
    return [
        RunSpec(command.pair, replace(start, design=cell, seed=seed))
        for cell in chosen.cells
        for seed in range(command.seeds)
    ]


def run_study(
    console: Console, command: StudyCommand, chosen: Experiment, start: Simulation | LLMRun, changed: list[str]
) -> pd.DataFrame:
    """Run the cells of a study from `start`, print where they end, and return the curves. changed: names of the
    settings that are not the pair's own."""
    points = cell_points(command, chosen, start)
    finish_points(console, store.open_store(command.results), points, command.threads, command.quiet)
    results = collect(command.results, points)
    _show_endpoints(console, chosen, command.pair, results.curves, changed)
    console.print(gain_table(results.curves))
    if has_measures(results.curves):
        console.print(measure_table(results.curves))
    if has_costs(results.curves):
        console.print(cost_table(results.curves))
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    return results.curves


def _show_endpoints(console: Console, chosen: Experiment, pair_name: str, curves, changed: list[str]) -> None:
    names = ("cell", "split", "Pass@1", "95% interval", *(() if changed else ("published",)))
    title = f"{chosen.title}: {pair_name}"
    table = Table(*names, title=title, align="left", box=HEAVY_HEAD)
    rows = endpoint_table(curves, [chosen], [pair_name])
    for row in rows[rows["experiment"] == chosen.name].itertuples():
        interval = "" if row.low != row.low else f"{row.low:.3f} to {row.high:.3f}"
        published = "" if row.published != row.published else f"{row.published:.2f}"
        table.add(row.cell, row.split, f"{row.mean:.3f}", interval, *(() if changed else (published,)))
    console.print(table)
    if changed and rows["published"].notna().any():
        console.print(
            f"published numbers are left out: not the pair's own are {', '.join(changed)}", markup=False, soft_wrap=True
        )


def show_first(
    console: Console, command: StudyCommand, chosen: Experiment, curves: pd.DataFrame, changed: list[str]
) -> None:
    """Print the answers of the rules for the runs of study `first`, and how often they are wrong, and write them as a
    page."""
    counts, lines = rule_errors(known_ends(command.results))
    names = dict(zip(map(label, chosen.cells), map(label, FOLLOW_UPS["first"].cells), strict=True))
    ends = measure_pair(curves.assign(cell=curves["cell"].map(names)), command.pair)
    endpoints = endpoint_table(curves, [chosen], [command.pair])
    figure = tradeoff(chosen, endpoints.assign(published=np.nan) if changed else endpoints, [command.pair])
    sections = [
        Section("first", f"Three runs: {command.pair}", chosen.question, [rule_table(ends)], figure=figure),
        Section(
            "record",
            "How often these rules are wrong",
            "Each rule on every pair whose other designs are known, by means over seeds, beside always going on and "
            "always stopping. A rule that is wrong as often as one of these tells nothing.",
            [counts],
            tuple(lines),
        ),
    ]
    points = cell_points(command, chosen, command.start())
    about = _about_command(command, points, changed)
    write_study_page(console, command.results, "first", chosen.title, sections, about)


def run_next_checks(
    console: Console, command: StudyCommand, chosen: Experiment, start: Simulation | LLMRun, changed: list[str]
) -> None:
    """Run the checks, judge their claims, write the page. Raises UserError for a language model."""
    if not isinstance(start, Simulation):
        raise UserError(f"study {chosen.name} with level llm; allowed: with --level sim")
    root = store.open_store(command.results)
    points = [check_points(check, command.pair, start, chosen, command.seeds) for check in CHECKS]
    every = list(dict.fromkeys(point for rows in points for row in rows for point in row))
    finish_points(console, root, every, command.threads, command.quiet)
    sections, findings = [], []
    for check, rows in zip(CHECKS, points, strict=True):
        ends = measured_ends(root, check, rows)
        judged = judge_check(check, command.pair, ends["test"])
        sections.append(check_section(check, ends, judged))
        findings += judged
    count = Section("count", "How many claims hold", "Over all checks of this pair.", [], (count_words(findings),))
    write_study_page(
        console, root, chosen.name, chosen.title, [*sections, count], _about_command(command, every, changed)
    )


def _about_command(command: StudyCommand, points: list[RunSpec], changed: list[str]) -> dict[str, str]:
    asked = {"pair": command.pair, "seeds": f"0 to {command.seeds - 1}", "rounds": f"{command.design.rounds}"}
    asked |= {"changed from the pair's own": ", ".join(changed)} if changed else {}
    return _about(asked, command.results, points)
