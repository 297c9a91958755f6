"""The main job: all seven experiments, next to published numbers, with verdicts and a report."""

import json
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from llm.writing import write_file
from shared.errors import UserError, check
from studies import store
from studies.about import commit, machine, versions
from studies.claims import CLAIMS, judge
from studies.endpoints import endpoint_table
from studies.experiments import EXPERIMENTS
from studies.pairs import PAIRS, pair
from studies.points import Point, points_of
from studies.progress import progress_of, steps_of
from studies.runner import available_threads, collect, run_points, split

MANIFEST = "study.json"
NOTES = [
    "The contexts and the base policy of a pair are the same for all its seeds, as a data set and a model are: intervals show the spread of training.",
    "Designs with one seed share their random numbers, so differences between designs are paired. Verdicts are not corrected for the number of claims.",
    "With one response token and one update per round, the estimators paper_text and paper_code coincide, so one of them is run.",
]


class Study(NamedTuple):
    """What was asked for; kept in the results folder so that the report can be made again."""

    pairs: list[str]
    seeds: int
    rounds: int
    eval_every: int

    def points(self) -> list[Point]:
        """Every run of the study."""
        return points_of(list(EXPERIMENTS.values()), self.pairs, self.seeds, self.rounds, self.eval_every)


def threads_of(asked: int) -> int:
    """Threads to use; 0 asks for all."""
    check(asked >= 0, f"threads = {asked}; allowed: 0 (all) or more")
    return asked or available_threads()


def study_of(pairs: list[str], seeds: int, rounds: int) -> Study:
    """A checked study; 21 evaluations per run, or fewer where the rounds do not divide."""
    check(len(pairs) > 0, f"pairs: name at least one of {', '.join(PAIRS)}")
    for name in pairs:
        pair(name)
    check(len(set(pairs)) == len(pairs), f"pairs: {', '.join(pairs)} names one twice")
    check(seeds >= 1, f"seeds = {seeds}; allowed: 1 or more")
    check(rounds >= 1, f"rounds = {rounds}; allowed: 1 or more")
    return Study(pairs, seeds, rounds, next(rounds // n for n in (20, 10, 5, 4, 2, 1) if rounds % n == 0))


def finish_points(console: Console, root: Path, points: list[Point], threads: int, quiet: bool) -> None:
    """Run whatever of `points` is not in the store yet."""
    finished, todo = split(root, points, lambda text: console.print(text, style="yellow", markup=False))
    if finished and not quiet:
        console.print(f"{len(finished)} of {len(points)} runs are there already")
    with progress_of(console, todo, quiet) as report:
        run_points(root, todo, threads, report)


def reproduce(console: Console, study: Study, root: Path, threads: int, quiet: bool) -> Path:
    """Run the study, judge the claims, write the report; returns the report's path."""
    began = time.perf_counter()
    store.open_store(root)
    write_file(root / MANIFEST, json.dumps(study._asdict(), indent=1).encode())
    finish_points(console, root, study.points(), threads_of(threads), quiet)
    return write(console, study, root, quiet, {"run time": f"{time.perf_counter() - began:.1f} s before the report, on {threads_of(threads)} threads"})


def read_study(root: Path) -> Study:
    """The study a results folder holds. Raises UserError where there is none or it is not readable."""
    store.check_format(root)
    try:
        asked = Study(**json.loads((root / MANIFEST).read_text()))
        return study_of(list(asked.pairs), asked.seeds, asked.rounds)
    except UserError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{root / MANIFEST} cannot be read ({error}); run `rftlab reproduce --results {root}` first") from None


def write(console: Console, study: Study, root: Path, quiet: bool, about: dict[str, str]) -> Path:
    """Make the report of a finished study from the store, and print its short form."""
    from studies.report import terminal_summary, write_report
    from studies.theory import ALL_CHECKS
    from studies.theory.command import counts_of, run_all
    from studies.theory.page import theory_section

    results = collect(root, study.points())
    endpoints = endpoint_table(results.curves, list(EXPERIMENTS.values()), study.pairs)
    findings = judge(results.curves, study.pairs)
    with steps_of(console, "checking theory", quiet) as step:
        checks = run_all(ALL_CHECKS, tell=lambda check, done: step(ALL_CHECKS.index(check) + done, len(ALL_CHECKS)))
    with steps_of(console, "drawing figures", quiet) as step:
        facts, experiments, theory = _about(study, about), list(EXPERIMENTS.values()), theory_section(checks, root / "report" / "figures")
        path = write_report(root / "report", experiments, results.curves, endpoints, findings, facts, results.diverged, NOTES, theory, step)
    terminal_summary(endpoints, findings, console)
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    console.print(f"theory: {counts_of(checks)} (rftlab theory)", markup=False, highlight=False)
    console.print(f"report: {path}", markup=False, soft_wrap=True)
    return path


def _about(study: Study, more: dict[str, str]) -> dict[str, str]:
    configuration = f"{len(EXPERIMENTS)} experiments, {len(CLAIMS)} claims, {len(study.points())} runs"
    seeds = f"0 to {study.seeds - 1}, {study.rounds} rounds each, evaluated every {study.eval_every}"
    return {"configuration": configuration, "pairs": ", ".join(study.pairs), "seeds": seeds, "commit": commit(), "machine": machine(), **more, **versions()}
