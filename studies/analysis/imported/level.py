"""The levels `imported:NAME`, `public:SOURCE` and `train:FOLDER`: which runs a name on the command line means."""

import hashlib
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from rftlab.llm.stored import trained_in
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.studies.analysis.imported.groups import MEASURES, Measure, RunGroups, groups_of, measures_of
from rftlab.studies.analysis.public.read import read_source
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun
from rftlab.studies.readers.store import check_name, read_collection

PREFIX, PUBLIC, TRAIN = "imported:", "public:", "train:"
FORM = (
    "imported:NAME, imported:NAME/TASK, imported:NAME#RUN or both, RUN with * for any letters; public:SOURCE, and the "
    "same parts of it; train:FOLDER"
)


class ImportedName(NamedTuple):
    """A collection or public source, or a part of it; or runs of `rftlab train` where they lie."""

    collection: str
    task: str | None = None
    run: str | None = None
    prefix: str = PREFIX
    """Of the level: `PREFIX` or `PUBLIC`."""
    folder: Path | None = None
    """Of a run of `rftlab train`, or with several; it takes the place of a collection."""

    @property
    def name(self) -> str:
        """What the user writes."""
        if self.folder is not None:
            return f"{TRAIN}{self.folder}"
        task, run = f"/{self.task}" if self.task else "", f"#{self.run}" if self.run else ""
        return f"{self.prefix}{self.collection}{task}{run}"

    @property
    def slug(self) -> str:
        """The same as a part of a folder's name; of a folder its own, and a part of a checksum of its place."""
        if self.folder is not None:
            place = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:6]
            return re.sub(r"[^A-Za-z0-9._-]+", "-", f"train-{self.folder.resolve().name[:60]}-{place}")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).rstrip("-")[:120]


def is_imported(name: str) -> bool:
    """Whether a name on the command line is of this level."""
    return name.startswith((PREFIX, PUBLIC, TRAIN))


def parse_imported(name: str) -> ImportedName:
    """A name of this level. Raises UserError for anything else, with what is allowed."""
    if name.startswith(TRAIN):
        check(len(name) > len(TRAIN), f"{plain(name)!r}; allowed: {FORM}")
        return ImportedName("", folder=Path(name.removeprefix(TRAIN)))
    prefix = PUBLIC if name.startswith(PUBLIC) else PREFIX
    rest, hashed, run = name.removeprefix(prefix).partition("#")
    collection, slash, task = rest.partition("/")
    whole = is_imported(name) and (run or not hashed) and (task or not slash)
    check(bool(whole), f"{plain(name)!r}; allowed: {FORM}")
    return ImportedName(check_name(collection), task or None, run or None, prefix)


def runs_of(one: ImportedName, root: Path) -> list[ImportedRun]:
    """The runs that a name means, with the values of all their tasks. Raises UserError where there are none."""
    if one.folder is not None:
        found = trained_in(one.folder)
        check(bool(found), f"{one.folder} holds no run of rftlab train; allowed: its folder, or one with several")
        return read_logs(found)
    runs = _whole(one, root)
    names = [run.name for run in runs]
    wanted = runs
    if one.run is not None:
        wanted = [run for run in runs if run.name == one.run] or [r for r in runs if fnmatchcase(r.name, one.run)]
        check(bool(wanted), f"{one.prefix}{one.collection} has no run {plain(one.run)!r}; allowed: {few(names)}")
    if one.task is not None:
        tasks = sorted({piece.task for run in wanted for piece in run.pieces if piece.task})
        check(one.task in tasks, f"{one.name}: task = {plain(one.task)!r}; allowed: {few(tasks) or 'none is named'}")
    return wanted


def _whole(one: ImportedName, root: Path) -> list[ImportedRun]:
    """The collection or source, whatever part of it is meant."""
    return read_source(one.collection) if one.prefix == PUBLIC else read_collection(root, one.collection)


def side_of(one: ImportedName, runs: list[ImportedRun], measure: Measure, root: Path | None = None) -> RunGroups:
    """A level of runs by one measure. root: the results folder, where untrained models are looked for in the rest of
    the collection too."""
    beside = [] if root is None or one.run is None else [run for run in _whole(one, root) if not run.rounds]
    groups = groups_of(runs, measure, one.task, beside)
    counted = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    formats = ", ".join(sorted({run.format for run in runs}))
    return RunGroups(one.name, f"{counted} from {formats}", measure, groups, tuple(runs))


def common_measure(have: dict[str, set[Measure]]) -> Measure:
    """The first of `MEASURES` that all levels have. Raises UserError, naming what each has, where there is none."""
    found = next((one for one in MEASURES if all(one in own for own in have.values())), None)
    if found is None:
        measures = "; ".join(
            f"{name} has {few([' '.join(one) for one in sorted(own)]) or 'none'}" for name, own in have.items()
        )
        raise UserError(f"no measure is common: {measures}; allowed: levels with a Pass@1 or mean reward of one split")
    return found


def measures_in(one: ImportedName, runs: list[ImportedRun]) -> set[Measure]:
    """Measures of the runs that a name means, on its task, after training began."""
    return {measure for measure in measures_of(runs) if groups_of(runs, measure, one.task)}


def few(names: list[str]) -> str:
    """Some of many names."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
