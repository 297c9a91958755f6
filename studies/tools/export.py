"""Take the language-model runs of a results folder as the reference runs that come with the package: `python -m rftlab.studies.tools.export RESULTS`."""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rftlab.shared.folders import kind_of
from rftlab.studies.cli.reproduce import has_study, read_study
from rftlab.studies.paper.experiments import EXPERIMENTS
from rftlab.studies.paper.pairs import start_at
from rftlab.studies.results import reference
from rftlab.studies.runs import store
from rftlab.studies.runs.points import Point
from rftlab.studies.runs.runner import collect


def smollm2_points() -> list[Point]:
    """The baseline and (32, 8) GRPO, sampled by vLLM."""
    start = start_at("smollm2-words", "llm")
    start = replace(start, compute=replace(start.compute, engine="vllm", threads=1))
    cells = (EXPERIMENTS["baseline"].cells[0], EXPERIMENTS["batch"].cells[0])
    return [Point("smollm2-words", replace(start, design=replace(cell, rounds=start.design.rounds, eval_every=start.design.eval_every))) for cell in cells]


def export(root: Path) -> None:
    """Take the runs of a results folder as the shipped ones of their pairs; those of other pairs stay."""
    points = read_study(root, "llm").points() if has_study(root, "llm") else []
    points += [point for point in smollm2_points() if kind_of(store.folder_of(root, point))]
    fresh, there = (curves[list(reference.COLUMNS)] for curves in (collect(root, points).curves, reference.shipped()))
    kept = there[~there["pair"].isin(fresh["pair"])]
    pd.concat([kept, fresh], ignore_index=True).to_parquet(Path(str(reference.FILE)), index=False, compression="zstd")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
