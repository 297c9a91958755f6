"""Read the names of runs on the command line, and load the runs that they stand for.

sim:PAIR  llm:PAIR  published:PAIR       a pair of the paper: simulated, trained, or as arXiv 2601.22532 reports it
imported:NAME  public:SOURCE             runs of other people; /TASK, #RUN or both select a part of them
train:FOLDER                             runs of `rftlab train` in their own folder
"""

import hashlib
import re
import tempfile
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from rftlab.shared.plumbing.errors import UserError, check, check_choice, few, plain
from rftlab.shared.plumbing.folders import path_kind

if TYPE_CHECKING:
    from rftlab.studies.readers.run import ImportedRun

PairLevel = Literal["sim", "llm", "published"]
FREE = ("imported", "public", "train")
"""Kinds of sources whose runs may have any design, task and model."""
FORM = (
    "imported:NAME, imported:NAME/TASK, imported:NAME#RUN or both, RUN with * for any letters; public:SOURCE, and the "
    "same parts of it; train:FOLDER"
)
SETS_FORM = (
    "allowed: two or three of LEVEL:PAIR, such as sim:qwen-gsm8k llm:tiny-mix97 published:qwen-gsm8k imported:mine "
    "public:pods train:results/train"
)


class RunSource(NamedTuple):
    """Source of runs that a name on the command line stands for."""

    kind: str
    """One of `PairLevel` or `FREE`."""
    place: str
    """The pair, the collection, the public source, or the folder."""
    task: str | None = None
    run: str | None = None

    @property
    def whole(self) -> str:
        """Name of the whole source, without a task or a run."""
        return f"{self.kind}:{self.place}"

    @property
    def name(self) -> str:
        """Full name as the user writes it, with the task and the run."""
        return self.whole + (f"/{self.task}" if self.task else "") + (f"#{self.run}" if self.run else "")

    @property
    def slug(self) -> str:
        """Name as a part of a folder's name. For kind train it is the folder's own name and a checksum of its path."""
        if self.kind != "train":
            return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).rstrip("-")[:120]
        folder = Path(self.place).resolve()
        checksum = hashlib.sha256(str(folder).encode()).hexdigest()[:6]
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"train-{folder.name[:60]}-{checksum}")

    @property
    def free(self) -> bool:
        """Whether the runs are imported, public or trained ones, which may have any design, task and model."""
        return self.kind in FREE

    def collection(self, root: Path) -> "list[ImportedRun]":
        """Return all runs of a free source, whatever part the name stands for. Raises UserError without runs."""
        from rftlab.llm.stored import trained_in
        from rftlab.studies.readers.read import read_logs
        from rftlab.studies.readers.store import read_collection

        if self.kind == "train":
            folders = trained_in(Path(self.place))
            check(bool(folders), f"{self.place} holds no run of rftlab train; allowed: its folder, or one with several")
            return read_logs(folders)
        return [*read_public(self.place)] if self.kind == "public" else read_collection(root, self.place)

    def runs(self, root: Path) -> "list[ImportedRun]":
        """Return the runs of a free source that the name stands for, with the values of all their tasks. Raises
        UserError where no run has this name or this task."""
        runs = self.collection(root)
        wanted = runs
        if self.run is not None:
            wanted = [run for run in runs if run.name == self.run] or [r for r in runs if fnmatchcase(r.name, self.run)]
            names = few([run.name for run in runs])
            check(bool(wanted), f"{self.whole} has no run {plain(self.run)!r}; allowed: {names}")
        if self.task is not None:
            tasks = sorted({piece.task for run in wanted for piece in run.pieces if piece.task})
            allowed = few(tasks) or "none is named"
            check(self.task in tasks, f"{self.name}: task = {plain(self.task)!r}; allowed: {allowed}")
        return wanted


def is_free(name: str) -> bool:
    """Whether a name stands for imported, public or trained runs."""
    return name.startswith(tuple(f"{kind}:" for kind in FREE))


def free_source(name: str) -> RunSource:
    """Return the source that a name of imported, public or trained runs stands for. Raises UserError, with what is
    allowed, for any other name."""
    from rftlab.studies.readers.store import check_name

    kind, _, rest = name.partition(":")
    if kind == "train":
        check(bool(rest), f"{plain(name)!r}; allowed: {FORM}")
        return RunSource(kind, str(Path(rest)))
    rest, hashed, run = rest.partition("#")
    place, slash, task = rest.partition("/")
    complete = is_free(name) and (run or not hashed) and (task or not slash)
    check(bool(complete), f"{plain(name)!r}; allowed: {FORM}")
    return RunSource(kind, check_name(place), task or None, run or None)


def curve_sets(names: list[str]) -> list[RunSource]:
    """Return the sources of two or three names to be compared. Raises UserError for anything else."""
    check(2 <= len(names) <= 3, f"{len(names)} curve sets ({' '.join(names) or 'none'}); {SETS_FORM}")
    check(len(set(names)) == len(names), f"curve sets: {' '.join(names)} names one twice")
    return [named_source(name) for name in names]


def named_source(name: str) -> RunSource:
    """Return the source that a name of any kind stands for. Raises UserError for a name of no source."""
    if is_free(name):
        return free_source(name)
    kind, colon, pair = name.partition(":")
    check(bool(colon), f"curve set = {name!r}; {SETS_FORM}")
    check_choice(f"curve set {name!r}: level", kind, (*get_args(PairLevel), *FREE))
    check_choice(f"curve set {name!r}: pair", pair, _pairs_at(kind))
    return RunSource(kind, pair)


def _pairs_at(kind: str) -> tuple[str, ...]:
    """Return the names of the pairs that a level can have."""
    from rftlab.studies.data.paper.experiments import published
    from rftlab.studies.data.paper.pairs import FRAGILE, PAIRS

    if kind != "published":
        return tuple(name for name, pair in (PAIRS | FRAGILE).items() if getattr(pair, kind))
    return tuple(name for name, pair in PAIRS.items() if published(pair.model, pair.dataset, "test", None) is not None)


@cache  # the explorer asks at every change
def read_public(source: str) -> "tuple[ImportedRun, ...]":
    """Return the runs of a public source, in the order of the tables, as `rftlab import` reads such tables. Raises
    UserError where no runs of this source come with rftlab."""
    from rftlab.studies.analysis.public.claims import without_repeat
    from rftlab.studies.analysis.public.store import curves, of_source, runs
    from rftlab.studies.readers.formats.published import BESIDE, REPEATS
    from rftlab.studies.readers.read import read_logs

    shipped = runs()
    own, there = shipped[shipped["source"] == source], ", ".join(sorted(set(shipped["source"])))
    check(len(own) > 0, f"public:{source} has no runs that come with rftlab; allowed: {there}")
    values = of_source(source, shipped, curves())
    with tempfile.TemporaryDirectory() as folder:
        marks = without_repeat(own["run_id"]).where(own["seed_or_repeat"].notna())
        own.assign(**{REPEATS: marks}).to_csv(Path(folder) / BESIDE, index=False)
        values.to_csv(Path(folder) / f"{source}.csv", index=False)
        return tuple(read_logs([Path(folder) / f"{source}.csv"]))


def named_runs(named: str, results: Path) -> "list[ImportedRun]":
    """Return the runs that an argument of the command line names: a log file, the folder of a run, imported:NAME or
    public:SOURCE, or one run of these with `#RUN` after it. Raises UserError where no run has this name."""
    from rftlab.studies.readers.read import read_logs

    if is_free(named):
        source = free_source(named)
        return [
            replace(run, pieces=tuple(p for p in run.pieces if p.split != "test" or source.task in (None, p.task)))
            for run in source.runs(results)
        ]
    place, hashed, run = (named, "", "") if "#" not in named or _is_there(named) else named.rpartition("#")
    runs = read_logs([Path(place)])
    if hashed:
        there = few([ascii(each.name) for each in runs])
        runs = [each for each in runs if each.name == run]
        check(bool(runs), f"{named} names no run; allowed after the #: {there}")
    return runs


def read_run(named: str, results: Path) -> "ImportedRun":
    """Return the single run of `named_runs`. Raises UserError where there are several and none is chosen with
    `#RUN`."""
    runs = named_runs(named, results)
    there = few([ascii(run.name) for run in runs])
    place = named.partition("#")[0]
    check(len(runs) == 1, f"{named} holds {len(runs)} runs; allowed: {place}#RUN with one of {there}")
    return runs[0]


def _is_there(named: str) -> bool:
    """Whether a path exists; its name may contain a #. Raises UserError where the path cannot be looked up."""
    try:
        return path_kind(Path(named)) is not None
    except (OSError, ValueError) as error:
        raise UserError(
            f"{named!r} cannot be read: {error}; allowed: a log, a folder, imported:NAME, public:SOURCE"
        ) from None
