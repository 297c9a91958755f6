"""The one run that a command line names."""

from dataclasses import replace
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import kind_of
from rftlab.studies.analysis.imported.level import few, is_imported, parse_imported, runs_of
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun


def read_run(named: str, results: Path) -> ImportedRun:
    """A log file, a folder of a run, imported:NAME or public:SOURCE; `#RUN` after it where there are several runs.

    Raises UserError where there is none, or several and none is named.
    """
    if is_imported(named):
        one, (place, _, _) = parse_imported(named), named.partition("#")
        runs = [_on_task(run, one.task) for run in runs_of(one, results)]
    else:
        place, run = _parts(named)
        runs = read_logs([Path(place)])
        if run is not None:
            there = _some(runs)
            runs = [each for each in runs if each.name == run]
            check(bool(runs), f"{named} names no run; allowed after the #: {there}")
    check(len(runs) == 1, f"{named} holds {len(runs)} runs; allowed: {place}#RUN with one of {_some(runs)}")
    return runs[0]


def _on_task(run: ImportedRun, task: str | None) -> ImportedRun:
    """The run without evaluations on other tasks."""
    return replace(run, pieces=tuple(p for p in run.pieces if task in (None, p.task) or p.split != "test"))


def _some(runs: list[ImportedRun]) -> str:
    return few([ascii(run.name) for run in runs])


def _parts(named: str) -> tuple[str, str | None]:
    """Path, and the run where one is named. A path may have a # in it."""
    if "#" not in named or _there(named):
        return named, None
    place, _, run = named.rpartition("#")
    return place, run


def _there(named: str) -> bool:
    try:
        return kind_of(Path(named)) is not None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{named!r} cannot be read: {error}; allowed: a log, a folder, imported:NAME, public:SOURCE"
        ) from None
