"""A results folder as a Python object: what ran in it, and its curves as one data frame."""

from pathlib import Path

import pandas as pd

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import kind_of
from rftlab.shared.plumbing.notebook import table
from rftlab.studies.analysis.imported.own import check_sealed, folders_of
from rftlab.studies.data.paper.pairs import LEVELS
from rftlab.studies.readers.formats.own_run import CURVE

TRAINED = "train"
"""Level of what `rftlab train` left in the folder."""


class ResultsFolder:
    """Finished runs of a results folder of `rftlab run`, `reproduce` or `train`; it is only read.

        rl.ResultsFolder("results").runs()          # a row a run
        rl.ResultsFolder("results").curves("sim")   # all their evaluations

    Raises UserError where the folder is none, or holds no finished run.
    """

    def __init__(self, root: str | Path = "results"):
        self.root = Path(root)
        check(kind_of(self.root) is not None, f"{self.root}; allowed: a results folder")
        self._folders = folders_of(self.root)
        check(bool(self._folders), f"{self.root} holds no finished run; allowed: a folder of `rftlab run` or `train`")

    def runs(self, level: str | None = None) -> pd.DataFrame:
        """A row for each run, of one level (sim, llm, train) or of all: level, pair, cell, seed, folder."""
        rows = [row for row in map(self._row, self._folders) if level in (None, row["level"])]
        return pd.DataFrame(rows, columns=["level", "pair", "cell", "seed", "folder"])

    def curves(self, level: str | None = None) -> pd.DataFrame:
        """The learning curves (`rftlab.shared.curve`) of these runs in one table, with level, pair, cell and seed.
        Raises UserError where a run was changed."""
        tables = []
        for row in self.runs(level).to_dict("records"):
            folder = self.root / row.pop("folder")
            if row["level"] != TRAINED:
                check_sealed(folder)
            tables.append(pd.read_parquet(folder / CURVE).drop(columns=list(row), errors="ignore").assign(**row))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _row(self, folder: Path) -> dict:
        where = folder.relative_to(self.root)
        if len(where.parts) != 3 or where.parts[0] not in LEVELS:
            return {"level": TRAINED, "pair": "", "cell": folder.name, "seed": pd.NA, "folder": str(where)}
        level, pair, name = where.parts
        cell, _, seed = name.rpartition("-")[0].rpartition("-s")
        return {"level": level, "pair": pair, "cell": cell, "seed": int(seed), "folder": str(where)}

    def __repr__(self) -> str:
        return f"ResultsFolder({str(self.root)!r}): {len(self._folders)} finished runs"

    def _repr_html_(self) -> str:
        """Runs and designs of each level and pair, for notebooks."""
        counted = self.runs().groupby(["level", "pair"]).agg(runs=("cell", "size"), designs=("cell", "nunique"))
        rows = [
            (f"{level} {pair}".strip(), f"{row.runs} runs of {row.designs} designs")
            for (level, pair), row in zip(counted.index, counted.itertuples(), strict=True)
        ]
        return table(str(self.root), rows)
