"""Reference runs of language models, which come with the package so that the simulator's report can show them beside its own.

Whole studies of the `tiny` pairs with three seeds, made by `make reference`; and two cells of SmolLM2 on word problems, one seed, made by
`make reference-smollm2`. Both end with `python -m studies.reference RESULTS`.
"""

import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pandas as pd

from shared.curve import Curve
from studies import store
from studies.experiments import EXPERIMENTS
from studies.pairs import start_at, usual_pairs
from studies.points import Point
from studies.runner import Results, collect

FILE = files("studies") / "data" / "language.parquet"
COLUMNS = ("pair", "cell", "planned_rounds", *Curve._fields, "train_flexible", "test_flexible")
REFERENCE_NOTE = "reference runs that come with rftlab, three seeds of 600 rounds; `make reference` makes them again."


def shipped() -> pd.DataFrame:
    """All runs, whole studies and single cells, as rows with COLUMNS."""
    with FILE.open("rb") as file:
        return pd.read_parquet(file)


def reference() -> Results:
    """The whole studies among them."""
    curves = shipped()
    curves = curves[curves["pair"].isin(usual_pairs("llm"))].reset_index(drop=True)
    last = curves.groupby(["pair", "cell", "seed", "planned_rounds"], sort=False)["round"].max().reset_index()
    short = last[last["round"] < last["planned_rounds"]]
    return Results(curves, [f"{row.pair}, {row.cell}, seed {row.seed}: diverged after round {row.round}" for row in short.itertuples()])


def smollm2_points() -> list[Point]:
    """The baseline and (32, 8) GRPO, sampled by vLLM."""
    start = start_at("smollm2-words", "llm")
    start = replace(start, compute=replace(start.compute, engine="vllm", threads=1))
    cells = (EXPERIMENTS["baseline"].cells[0], EXPERIMENTS["batch"].cells[0])
    return [Point("smollm2-words", replace(start, design=replace(cell, rounds=start.design.rounds, eval_every=start.design.eval_every))) for cell in cells]


def export(root: Path) -> None:
    """Take the runs of a results folder as the shipped ones of their pairs; those of other pairs stay."""
    from studies.reproduce import manifest_of, read_study

    points = read_study(root, "llm").points() if manifest_of(root, "llm").exists() else []
    points += [point for point in smollm2_points() if store.folder_of(root, point).exists()]
    fresh, there = (curves[list(COLUMNS)] for curves in (collect(root, points).curves, shipped()))
    kept = there[~there["pair"].isin(fresh["pair"])]
    pd.concat([kept, fresh], ignore_index=True).to_parquet(Path(str(FILE)), index=False, compression="zstd")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
