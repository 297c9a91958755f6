"""`rftlab report` of runs that belong to no study: of one collection of imported runs, or of what `rftlab run` and
`rftlab train` left in a folder. The page has their designs in our terms, repairs, and what could not be told."""

from pathlib import Path

from rich.console import Console

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.imported.groups import MEASURES
from rftlab.studies.analysis.imported.level import ImportedName, measures_in, parse_imported, runs_of, side_of
from rftlab.studies.analysis.imported.own import own_runs
from rftlab.studies.analysis.imported.page import view_of, write
from rftlab.studies.readers.run import ImportedRun

AXIS, OWN = "rounds", "runs"


def report(console: Console, name: str, root: Path, quiet: bool) -> Path:
    """Write the page into root/report-imported-NAME; returns its path. Raises UserError where there is nothing to
    draw."""
    one = parse_imported(name)
    return _write(console, one, runs_of(one, root), root, quiet)


def report_own(console: Console, root: Path, quiet: bool) -> Path:
    """Write the page of a folder's own runs into root/report-runs; returns its path. Raises UserError where there is
    nothing to draw."""
    return _write(console, ImportedName(OWN), own_runs(root), root, quiet, f"Runs in {root.resolve().name}")


def _write(
    console: Console, one: ImportedName, runs: list[ImportedRun], root: Path, quiet: bool, title: str = ""
) -> Path:
    have = measures_in(one, runs)
    measure = next((measure for measure in MEASURES if measure in have), None)
    if measure is None:
        name = title or one.name
        raise UserError(f"{name} has neither Pass@1 nor a mean reward after round 0; allowed: runs with one")
    side = side_of(one, runs, measure, root)
    folder = folder_below(root, f"report-{OWN if title else one.slug}")
    view = view_of([side._replace(name=title) if title else side], AXIS)
    return write(console, view, folder, "report.html", title or one.name, quiet)
