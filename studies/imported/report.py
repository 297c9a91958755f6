"""`rftlab report imported:NAME`: a page of one collection, with its designs in our terms, its repairs and what could
not be told."""

from pathlib import Path

from rich.console import Console

from rftlab.shared.errors import UserError
from rftlab.shared.folders import folder_below
from rftlab.studies.imported.groups import MEASURES
from rftlab.studies.imported.level import measures_in, parse_imported, runs_of, side_of
from rftlab.studies.imported.page import view_of, write

AXIS = "rounds"


def report(console: Console, name: str, root: Path, quiet: bool) -> Path:
    """Write the page into root/report-imported-NAME; returns its path. Raises UserError where there is nothing to
    draw."""
    one = parse_imported(name)
    runs = runs_of(one, root)
    have = measures_in(one, runs)
    measure = next((measure for measure in MEASURES if measure in have), None)
    if measure is None:
        raise UserError(f"{one.name} has neither Pass@1 nor a mean reward after round 0; allowed: runs with one")
    folder = folder_below(root, f"report-{one.slug}")
    return write(console, view_of([side_of(one, runs, measure, root)], AXIS), folder, "report.html", one.name, quiet)
