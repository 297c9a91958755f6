"""The main job: all seven experiments, next to published numbers, with verdicts and a report."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from rftlab.shared.errors import UserError, check
from rftlab.shared.files import write_file
from rftlab.shared.folders import folder_below, kind_of
from rftlab.studies.cli.common import NEEDS_LLM, Engine, check_size, check_threads, has_llm
from rftlab.studies.paper.experiments import EXPERIMENTS
from rftlab.studies.paper.pairs import LEVELS, Level, start_at, usual_pairs
from rftlab.studies.paper.questions import evaluated_on
from rftlab.studies.results.claims import CLAIMS, judge
from rftlab.studies.results.endpoints import SPLITS, endpoint_table
from rftlab.studies.results.provenance import provenance
from rftlab.studies.results.reference import REFERENCE_NOTE, reference
from rftlab.studies.runs import store
from rftlab.studies.runs.about import commit, machine
from rftlab.studies.runs.llm_runner import run_llm_points
from rftlab.studies.runs.points import Point, points_of, schedule
from rftlab.studies.runs.progress import progress_of, steps_of
from rftlab.studies.runs.ray_runner import check_ray, run_on_ray
from rftlab.studies.runs.runner import Results, available_threads, collect, run_points, split
from rftlab.studies.runs.scratch import check_writable
from rftlab.studies.runs.seal import read_sealed, sealed

_PAIRED = "Designs with one seed share their random numbers, so differences between designs are paired. Verdicts are not corrected for the number of claims."
NOTES = {
    "sim": [
        "The contexts and the base policy of a pair are the same for all its seeds, as a data set and a model are: intervals show the spread of training.",
        _PAIRED,
        "With one response token and one update per round, the estimators paper_text and paper_code coincide, so one of them is run.",
        f"Columns of the language model: {REFERENCE_NOTE}",
    ],
    "llm": ["The questions and the base model of a pair are the same for all its seeds: intervals show the spread of training.", _PAIRED],
}
"""What a reader of each level's report should know."""


class Study(NamedTuple):
    """What was asked for; kept in the results folder so that the report can be made again."""

    level: Level
    pairs: list[str]
    seeds: int
    rounds: int | None
    """None: each pair's own."""
    whole_sets: bool = False
    """Whether language models are evaluated on all questions, as in the paper."""

    def points(self) -> list[Point]:
        """Every run of the study."""
        return points_of(list(EXPERIMENTS.values()), self.level, self.pairs, self.seeds, self.rounds, self.whole_sets)


def manifest_of(root: Path, level: Level) -> Path:
    """Where a results folder keeps what its study of a level was asked for."""
    return root / f"study-{level}.json"


def has_study(root: Path, level: Level) -> bool:
    """Whether a results folder has one, or what should be one."""
    return kind_of(manifest_of(root, level)) is not None


def threads_of(asked: int) -> int:
    """Threads to use; 0 asks for all."""
    check_threads(asked)
    return asked or available_threads()


def study_of(level: Level, pairs: list[str], seeds: int, rounds: int | None, whole_sets: bool = False) -> Study:
    """A checked study; no pairs: the level's usual ones."""
    pairs = pairs or list(usual_pairs(level))
    for name in pairs:
        start_at(name, level)
    check(len(set(pairs)) == len(pairs), f"pairs: {', '.join(pairs)} names one twice")
    check_size(seeds, rounds)
    check(not whole_sets or level == "llm", f"whole_sets with level {level}: the simulator evaluates on all contexts anyway; allowed: with --level llm")
    return Study(level, pairs, seeds, rounds, whole_sets)


def find_todo(console: Console, root: Path, points: list[Point], quiet: bool, engine: Engine = "local") -> list[Point]:
    """Those of `points` that are not in the store yet. Raises UserError where they cannot run here."""
    finished, todo = split(root, points, lambda text: console.print(text, style="yellow", markup=False))
    if finished and not quiet:
        console.print(f"{len(finished)} of {len(points)} runs are there already")
    check(has_llm() or all(point.level == "sim" for point in todo), f"level llm {NEEDS_LLM}")
    if engine == "ray":
        check_ray(todo)
    return todo


def run_todo(console: Console, root: Path, todo: list[Point], threads: int, quiet: bool, engine: Engine = "local") -> None:
    """Run what `find_todo` found."""
    simulated, real = ([point for point in todo if point.level == level] for level in LEVELS)
    with progress_of(console, todo, quiet) as report:
        if engine == "ray":
            run_on_ray(root, todo, threads, report)
        else:
            run_points(root, simulated, threads, report)
            run_llm_points(root, real, threads, report)


def finish_points(console: Console, root: Path, points: list[Point], threads: int, quiet: bool, engine: Engine = "local") -> None:
    """Run whatever of `points` is not in the store yet."""
    run_todo(console, root, find_todo(console, root, points, quiet, engine), threads, quiet, engine)


def reproduce(console: Console, study: Study, root: Path, threads: int, quiet: bool, engine: Engine = "local") -> Path:
    """Run the study, judge the claims, write the report; returns the report's path. A study that cannot run here leaves the record of another one alone."""
    threads = threads_of(threads)
    todo = find_todo(console, store.open_store(root), study.points(), quiet, engine)
    write_study(root, study)
    run_todo(console, root, todo, threads, quiet, engine)
    return write(console, study, root, quiet)


def write_study(root: Path, study: Study) -> None:
    """Note in a results folder what was asked for."""
    write_file(manifest_of(root, study.level), sealed(study._asdict(), study.level))


def read_study(root: Path, level: Level) -> Study:
    """The study of a level that a results folder holds. Raises UserError, which names the file, where there is none or it is not readable."""
    store.check_format(root)
    manifest = manifest_of(root, level)
    try:
        asked = Study(**read_sealed(manifest, level))
        _check_kinds(asked, level)
        return study_of(*asked)
    except (OSError, ValueError, TypeError, UserError) as error:
        raise UserError(f"{manifest} cannot be read ({error}); run `rftlab reproduce --level {level} --results {root}` first") from None


def _check_kinds(asked: Study, level: Level) -> None:
    """Raise UserError where a field of a file's study cannot be what `reproduce` wrote."""
    check(asked.level == level, f"level; allowed: {level}")
    check(isinstance(asked.pairs, list) and all(isinstance(name, str) for name in asked.pairs), "pairs; allowed: a list of names")
    check(type(asked.seeds) is int, "seeds; allowed: a whole number")
    check(asked.rounds is None or type(asked.rounds) is int, "rounds; allowed: a whole number or null")
    check(isinstance(asked.whole_sets, bool), "whole_sets; allowed: true, false")


def write(console: Console, study: Study, root: Path, quiet: bool) -> Path:
    """Make the report of a finished study from the store, and print its short form. Raises UserError where it cannot be written, before it computes."""
    from rftlab.studies.report.report import terminal_summary, write_report

    folder, experiments = report_of(root, study.level), list(EXPERIMENTS.values())
    check_writable(folder)
    main = _part(study.level, collect(root, study.points()))
    beside = _part("llm", reference()) if study.level == "sim" else None
    theory, verdicts = _theory(console, folder, quiet) if study.level == "sim" else ("", "")
    with steps_of(console, "drawing figures", quiet) as step:
        path = write_report(folder, experiments, main, beside, _about(study, root), NOTES[study.level] + _questions(study, main.curves), theory, step)
    terminal_summary([main] if beside is None else [main, beside], console)
    for line in main.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    console.print(f"{verdicts}report: {path}", markup=False, highlight=False, soft_wrap=True)
    return path


def report_of(root: Path, level: Level) -> Path:
    """Folder of a level's report. Raises UserError where that is no place below the results folder."""
    return folder_below(root, "report" if level == "sim" else f"report-{level}")


def _part(level: Level, results: Results):
    from rftlab.studies.report.report import Part

    pairs = list(results.curves["pair"].unique())
    return Part(level, results.curves, endpoint_table(results.curves, list(EXPERIMENTS.values()), pairs), judge(results.curves, pairs), results.diverged)


def _questions(study: Study, curves: pd.DataFrame) -> list[str]:
    """A note for each pair of language models: the questions of its evaluations, and the error that a part of them leaves in Pass@1 after training."""
    if study.level == "sim":
        return []
    ends = curves[curves["round"] == curves["planned_rounds"]]
    runs = {point.pair: point.run for point in study.points()}
    return [f"{name}: {evaluated_on(run, {split: ends.loc[ends['pair'] == name, f'{split}_pass_at_1'] for split in SPLITS})}." for name, run in runs.items()]


def _theory(console: Console, folder: Path, quiet: bool) -> tuple[str, str]:
    """The report's section on theory checks, and their counts as a line for the terminal."""
    from rftlab.studies.theory import ALL_CHECKS
    from rftlab.studies.theory.command import counts_of, run_all
    from rftlab.studies.theory.page import theory_section

    with steps_of(console, "checking theory", quiet) as step:
        checks = run_all(ALL_CHECKS, tell=lambda check, done: step(ALL_CHECKS.index(check) + done, len(ALL_CHECKS)))
    return theory_section(checks, folder_below(folder, "figures")), f"theory: {counts_of(checks)} (rftlab theory)\n"


def _about(study: Study, root: Path) -> dict[str, str]:
    configuration = f"level {study.level}, {len(EXPERIMENTS)} experiments, {len(CLAIMS)} claims, {len(study.points())} runs"
    usual = {schedule(start_at(name, study.level).design, study.rounds) for name in study.pairs}
    rounds = "; ".join(f"{total} rounds, evaluated every {every}" for total, every in sorted(usual))
    seeds = f"0 to {study.seeds - 1}, {rounds}"
    asked = {"configuration": configuration, "pairs": ", ".join(study.pairs), "seeds": seeds}
    return asked | provenance(root, study.points()) | {"report": f"by commit {commit()} on {machine()}"}
