"""Reference runs of the `tiny` language models, which come with the package so that the simulator's report can show them beside its own.

Made by `make reference`: all pairs of level llm with three seeds, then `python -m studies.reference RESULTS`.
"""

import sys
from importlib.resources import files
from pathlib import Path

import pandas as pd

from shared.curve import Curve
from studies.runner import Results, collect

FILE = files("studies") / "data" / "tiny.parquet"
COLUMNS = ("pair", "cell", "planned_rounds", *Curve._fields, "train_flexible", "test_flexible", "train_greedy_strict", "test_greedy_strict")
REFERENCE_NOTE = "reference runs that come with rftlab, three seeds of 600 rounds; `make reference` makes them again."


def reference() -> Results:
    """The shipped runs; the columns of their curves are COLUMNS."""
    with FILE.open("rb") as file:
        curves = pd.read_parquet(file)
    last = curves.groupby(["pair", "cell", "seed", "planned_rounds"], sort=False)["round"].max().reset_index()
    short = last[last["round"] < last["planned_rounds"]]
    return Results(curves, [f"{row.pair}, {row.cell}, seed {row.seed}: diverged after round {row.round}" for row in short.itertuples()])


def export(root: Path) -> None:
    """Take the runs of a results folder's study of level llm as the shipped ones of its pairs; those of other pairs stay."""
    from studies.reproduce import read_study

    study = read_study(root, "llm")
    fresh, there = collect(root, study.points()).curves[list(COLUMNS)], reference().curves
    kept = there[~there["pair"].isin(study.pairs)]
    pd.concat([kept, fresh], ignore_index=True).to_parquet(Path(str(FILE)), index=False, compression="zstd")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
