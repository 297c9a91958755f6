"""The runs of a results folder, or of one run's folder, as a collection: what `rftlab run` and `rftlab train` leave."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import FILE, folders_in, kind_of, read_file, read_json
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.data.runs.seal import read_sealed
from rftlab.studies.readers.formats.own_run import CONFIG, CURVE
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun

DONE, MAX_RUNS = "done.json", 500
"""What a finished run of a results folder has; and runs of a page."""


def folders_of(root: Path) -> list[Path]:
    """Folders with the curve of a run: finished ones of a results folder, those of `rftlab train` right below it, or
    itself where it is one. No link is followed."""
    if kind_of(root / CURVE) == FILE:
        return [root]
    stored = [run for level in LEVELS for pair in folders_in(root / level) for run in folders_in(pair)]
    done = [run for run in stored if kind_of(run / DONE) == FILE]
    return [run for run in [*done, *folders_in(root)] if kind_of(run / CURVE) == FILE]


def own_runs(root: Path) -> list[ImportedRun]:
    """Those runs in our terms, with their pair in the place of a model that is not named. Raises UserError where there
    are none, more than fit a page, or one that was changed."""
    folders = folders_of(root)
    check(
        0 < len(folders) <= MAX_RUNS,
        f"{root} holds {len(folders)} finished runs; allowed: 1 to {MAX_RUNS} for a report without a study",
    )
    return _told_apart([_named(folder) for folder in folders])


def _named(folder: Path) -> ImportedRun:
    """A run as its pair, design and seed call it; the hash of its folder says nothing to a reader."""
    (run,) = read_logs([folder])
    if kind_of(folder / DONE) != FILE:
        return run
    check_sealed(folder)
    pair = folder.parent.name
    design = replace(run.design, model=run.design.model or pair)
    return replace(run, name=f"{pair}/{folder.name.rpartition('-')[0]}", design=design)


def _told_apart(runs: list[ImportedRun]) -> list[ImportedRun]:
    """Runs of other configurations under one name get their number among them."""
    counts, seen, apart = Counter(run.name for run in runs), Counter[str](), []
    for run in runs:
        seen[run.name] += 1
        name = f"configuration {seen[run.name]}: {run.name}" if counts[run.name] > 1 else run.name
        apart.append(replace(run, name=name))
    return apart


def check_sealed(folder: Path) -> None:
    """Raise UserError where a stored run is not what its seal says."""
    try:
        facts = read_sealed(folder / DONE, read_json(folder / CONFIG))
        if hashlib.sha256(read_file(folder / CURVE)).hexdigest() != facts.get("curve_sha256"):
            raise ValueError(f"{CURVE} does not match its checksum")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be trusted: {error}; remove it and run the same command again") from None
