"""The run that a command line names."""

from pathlib import Path

from rftlab.shared.errors import UserError, check
from rftlab.shared.folders import kind_of
from rftlab.studies.logs.read import read_logs
from rftlab.studies.logs.run import ImportedRun
from rftlab.studies.logs.store import read_collection

IMPORTED = "imported:"
MAX_NAMED = 8


def read_run(named: str, results: Path) -> ImportedRun:
    """A log file, a folder of a run, or imported:NAME; `#RUN` after it where there are several runs.

    Raises UserError where there is none, or several and none is named.
    """
    place, run = _parts(named)
    runs = read_collection(results, place) if named.startswith(IMPORTED) else read_logs([Path(place)])
    names = [each.name for each in runs]
    some = ", ".join(ascii(name) for name in names[:MAX_NAMED]) + (" .." if len(names) > MAX_NAMED else "")
    if run is None:
        check(len(runs) == 1, f"{named} holds {len(runs)} runs; allowed: {named}#RUN with one of {some}")
        return runs[0]
    found = [each for each in runs if each.name == run]
    check(bool(found), f"{named} names no run; allowed after the #: {some}")
    return found[0]


def _parts(named: str) -> tuple[str, str | None]:
    """Collection or path, and the run where one is named. A path may have a # in it."""
    if named.startswith(IMPORTED):
        place, sign, run = named.removeprefix(IMPORTED).partition("#")
        return place, run if sign else None
    if "#" not in named or _there(named):
        return named, None
    place, _, run = named.rpartition("#")
    return place, run


def _there(named: str) -> bool:
    try:
        return kind_of(Path(named)) is not None
    except (OSError, ValueError) as error:
        raise UserError(f"{named!r} cannot be read: {error}; allowed: a log, a folder, imported:NAME") from None
