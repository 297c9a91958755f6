"""Read the runs that `rftlab run` and `rftlab train` leave in a results folder, as a collection of imported runs and as
a Python object."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rftlab.shared.plumbing.errors import UserError, check, check_choice, check_type
from rftlab.shared.plumbing.folders import FILE, folders_in, path_kind, read_file, read_json
from rftlab.shared.plumbing.notebook import table
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.data.runs.files import read_checksummed
from rftlab.studies.readers.formats.parquet import CONFIG, CURVE
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun

DONE, MAX_RUNS = "done.json", 500
"""Name of the file that marks a finished run in a results folder, and the largest number of runs on a page."""


def run_folders(root: Path) -> list[Path]:
    """Return the folders of runs: finished ones of a results folder, those of `rftlab train` right below it, or the
    folder itself where it is one run. Links are not followed."""
    if path_kind(root / CURVE) == FILE:
        return [root]
    stored = [run for level in LEVELS for pair in folders_in(root / level) for run in folders_in(pair)]
    done = [run for run in stored if path_kind(run / DONE) == FILE]
    return [run for run in [*done, *folders_in(root)] if path_kind(run / CURVE) == FILE]


def own_runs(root: Path) -> list[ImportedRun]:
    """Return the runs of a results folder as imported runs, with the pair as the model where none is named. Raises
    UserError where there are none, more than fit on a page, or one that was changed."""
    folders = run_folders(root)
    check(
        0 < len(folders) <= MAX_RUNS,
        f"{root} holds {len(folders)} finished runs; allowed: 1 to {MAX_RUNS} for a report without a study",
    )
    return _told_apart([_named(folder) for folder in folders])


def _named(folder: Path) -> ImportedRun:
    """Return a run under the name of its pair, design and seed; the hash of its folder says nothing to a reader."""
    (run,) = read_logs([folder])
    if path_kind(folder / DONE) != FILE:
        return run
    check_checksums(folder)
    pair = folder.parent.name
    design = replace(run.design, model=run.design.model or pair)
    return replace(run, name=f"{pair}/{folder.name.rpartition('-')[0]}", design=design)


def _told_apart(runs: list[ImportedRun]) -> list[ImportedRun]:
    """Return the runs with unique names: different configurations under one name get a number."""
    counts, seen, apart = Counter(run.name for run in runs), Counter[str](), []
    for run in runs:
        seen[run.name] += 1
        name = f"configuration {seen[run.name]}: {run.name}" if counts[run.name] > 1 else run.name
        apart.append(replace(run, name=name))
    return apart


def check_checksums(folder: Path) -> None:
    """Raise UserError where a stored run does not match its checksums."""
    try:
        facts = read_checksummed(folder / DONE, read_json(folder / CONFIG))
        if hashlib.sha256(read_file(folder / CURVE)).hexdigest() != facts.get("curve_sha256"):
            raise ValueError(f"{CURVE} does not match its checksum")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be trusted: {error}; remove it and run the same command again") from None


TRAINED = "train"
"""Level of the runs of `rftlab train` in the folder."""


class ResultsFolder:
    """Finished runs of a results folder of `rftlab run`, `reproduce` or `train`. The folder is only read.

        rl.ResultsFolder("results").runs()          # a row a run
        rl.ResultsFolder("results").curves("sim")   # all their evaluations

    Raises UserError where the folder does not exist or holds no finished run.
    """

    def __init__(self, root: str | Path = "results"):
        check_type("root", root, (str, Path), "a path")
        self.root = Path(root)
        check(path_kind(self.root) is not None, f"{self.root}; allowed: a results folder")
        self._folders = run_folders(self.root)
        check(bool(self._folders), f"{self.root} holds no finished run; allowed: a folder of `rftlab run` or `train`")

    def runs(self, level: str | None = None) -> pd.DataFrame:
        """Return a row for each run, of one level (sim, llm, train) or of all: level, pair, cell, seed, folder."""
        if level is not None:
            check_choice("level", level, (*LEVELS, TRAINED))
        rows = [row for row in map(self._row, self._folders) if level in (None, row["level"])]
        return pd.DataFrame(rows, columns=["level", "pair", "cell", "seed", "folder"])

    def curves(self, level: str | None = None) -> pd.DataFrame:
        """Return the learning curves (`rftlab.shared.curve`) of these runs in one table, with level, pair, cell and
        seed. Raises UserError where a run was changed."""
        tables = []
        for row in self.runs(level).to_dict("records"):
            folder = self.root / row.pop("folder")
            if row["level"] != TRAINED:
                check_checksums(folder)
            tables.append(pd.read_parquet(folder / CURVE).drop(columns=list(row), errors="ignore").assign(**row))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _row(self, folder: Path) -> dict:
        where = folder.relative_to(self.root)
        if len(where.parts) != 3 or where.parts[0] not in LEVELS:
            return {"level": TRAINED, "pair": "", "cell": folder.name, "seed": pd.NA, "folder": str(where)}
        level, pair, name = where.parts
        cell, _, seed = name.rpartition("-")[0].rpartition("-s")
        return {
            "level": level,
            "pair": pair,
            "cell": cell,
            "seed": int(seed) if seed.isdecimal() else pd.NA,
            "folder": str(where),
        }

    def __repr__(self) -> str:
        return f"ResultsFolder({str(self.root)!r}): {len(self._folders)} finished runs"

    def _repr_html_(self) -> str:
        """Return the numbers of runs and designs of each level and pair as HTML, for notebooks."""
        counted = self.runs().groupby(["level", "pair"]).agg(runs=("cell", "size"), designs=("cell", "nunique"))
        rows = [
            (f"{level} {pair}".strip(), f"{row.runs} runs of {row.designs} designs")
            for (level, pair), row in zip(counted.index, counted.itertuples(), strict=True)
        ]
        return table(str(self.root), rows)
