"""Run whatever of a list of points is not in the store yet."""

from pathlib import Path

from rich.console import Console

from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.data.runs.limits import NEEDS_LLM, check_threads, has_llm
from rftlab.studies.data.runs.llm_runner import run_llm_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.progress import study_progress
from rftlab.studies.data.runs.runner import available_threads, run_points, split


def count_threads(requested: int) -> int:
    """Threads to use; 0 asks for all."""
    check_threads(requested)
    return requested or available_threads()


def find_todo(console: Console, root: Path, points: list[RunSpec], quiet: bool) -> list[RunSpec]:
    """Those of `points` that are not in the store yet. Raises UserError where they cannot run here."""
    finished, todo = split(root, points, lambda text: console.print(text, style="yellow", markup=False))
    if finished and not quiet:
        console.print(f"{len(finished)} of {len(points)} runs are there already")
    check(has_llm() or all(point.level == "sim" for point in todo), f"level llm {NEEDS_LLM}")
    return todo


def run_todo(console: Console, root: Path, todo: list[RunSpec], threads: int, quiet: bool) -> None:
    """Run what `find_todo` found."""
    simulated, real = ([point for point in todo if point.level == level] for level in LEVELS)
    with study_progress(console, todo, quiet) as report:
        run_points(root, simulated, threads, report)
        run_llm_points(root, real, threads, report)


def finish_points(console: Console, root: Path, points: list[RunSpec], threads: int, quiet: bool) -> None:
    """Run whatever of `points` is not in the store yet."""
    run_todo(console, root, find_todo(console, root, points, quiet), threads, quiet)
