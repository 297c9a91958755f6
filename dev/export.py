"""Ship the language-model runs of a results folder as reference runs of the package: `python -m dev.export RESULTS`."""

import sys
from pathlib import Path

import pandas as pd

from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.data.results import reference
from rftlab.studies.data.results.reference import smollm2_points
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import has_study, read_study

KEY = ["pair", "cell", "seed"]


def export(root: Path) -> None:
    """Replace the shipped runs by those of a results folder, for its pairs, designs and seeds; others stay."""
    points = read_study(root, "llm").points() if has_study(root, "llm") else []
    points += [point for point in smollm2_points() if path_kind(store.point_folder(root, point))]
    fresh, there = (
        curves[list(reference.COLUMNS)] for curves in (collect(root, points).curves, reference.shipped_runs())
    )
    kept = there[~pd.MultiIndex.from_frame(there[KEY]).isin(pd.MultiIndex.from_frame(fresh[KEY]))]
    pd.concat([kept, fresh], ignore_index=True).to_parquet(Path(str(reference.FILE)), index=False, compression="zstd")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
