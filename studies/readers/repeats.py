"""Which runs of a collection repeat each other: as the user says, and what to tell of the others."""

from dataclasses import replace
from fnmatch import fnmatchcase

from rftlab.shared.plumbing.errors import check
from rftlab.studies.readers.run import FACTS, ImportedRun


def joined(runs: list[ImportedRun], patterns: tuple[str, ...]) -> list[ImportedRun]:
    """Runs whose names a pattern meets repeat each other. Raises UserError where it meets fewer than two, one that
    another has met, or two of which designs are known to differ."""
    marks: dict[str, str] = {}
    for pattern in patterns:
        own = [run for run in runs if fnmatchcase(run.name, pattern)]
        names = ", ".join(run.name for run in runs[:8])
        check(len(own) > 1, f"repeats = {pattern!r} meets {len(own)} runs; allowed: two or more of {names}")
        twice = next((run.name for run in own if run.name in marks), "")
        check(not twice, f"repeats = {pattern!r} meets {twice}, as one before it; allowed: each run once")
        for fact in FACTS:
            values = sorted({str(value) for run in own if (value := getattr(run.design, fact)) is not None})
            check(
                len(values) < 2,
                f"repeats = {pattern!r} meets runs of which {fact} differs ({', '.join(values[:3])}): "
                "no repeats; allowed: runs of one design",
            )
        marks |= dict.fromkeys((run.name for run in own), pattern)
    return [replace(run, repeats=marks.get(run.name, run.repeats)) for run in runs]


def alone(runs: list[ImportedRun]) -> str:
    """What to tell of runs of which nothing says whether they repeat each other; "" where there are no two."""
    names = [run.name for run in runs if not run.repeats]
    if len(names) < 2:
        return ""
    return (
        f"{len(names)} runs ({', '.join(names[:3])}{', ..' * (len(names) > 3)}) stay apart: without their "
        "configurations nothing says which repeat each other; --repeats 'NAME*' does"
    )
