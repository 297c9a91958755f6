"""Load the reference runs of language models that come with the package, for the simulator's report and comparisons.

They are whole studies of the `tiny` pairs with three seeds, made by `make reference`, and single cells of SmolLM2 on
two tasks, made by `make reference-smollm2`. dev/export.py takes them from a results folder.
"""

from dataclasses import replace
from importlib.resources import files

import pandas as pd

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import start_at, usual_pairs
from rftlab.studies.data.runs.files import data_frame
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import Results

FILE = files("rftlab.studies") / "assets" / "language.parquet"
COLUMNS = ("pair", "cell", "planned_rounds", *Curve._fields)
REFERENCE_NOTE = "reference runs that come with rftlab, 600 rounds, three seeds; `make reference` makes them again."


def shipped_runs() -> pd.DataFrame:
    """Return all shipped runs, whole studies and single cells, as rows with COLUMNS."""
    with FILE.open("rb") as file:
        return data_frame(file)


def reference() -> Results:
    """Return the whole studies among the shipped runs."""
    curves = shipped_runs()
    curves = curves[curves["pair"].isin(usual_pairs("llm"))].reset_index(drop=True)
    last = curves.groupby(["pair", "cell", "seed", "planned_rounds"], sort=False)["round"].max().reset_index()
    short = last[last["round"] < last["planned_rounds"]]
    return Results(
        curves,
        [f"{row.pair}, {row.cell}, seed {row.seed}: diverged after round {row.round}" for row in short.itertuples()],
    )


def smollm2_points() -> list[RunSpec]:
    """Return the runs of SmolLM2: the baseline, and GRPO at 256 rollouts a round from 32 and from 8 prompts, on two
    tasks, sampled by vLLM. On `words` the first two have three seeds and the last two."""
    raw = EXPERIMENTS["baseline"].cells[0]
    splits = {cell.batch_size: cell for cell in EXPERIMENTS["tradeoff"].cells if not cell.replay_window}
    words = _points("smollm2-words", (raw, splits[32]), 3) + _points("smollm2-words", (splits[8],), 2)
    return words + _points("smollm2-largest", (raw, splits[32], splits[8]), 1)


def _points(pair: str, cells: tuple[Design, ...], seeds: int) -> list[RunSpec]:
    """Return the runs of designs of a pair, each with seeds 0 .. seeds-1."""
    start = start_at(pair, "llm")
    start = replace(start, compute=replace(start.compute, engine="vllm", threads=1))
    rounds, every = start.design.rounds, start.design.eval_every
    return [
        RunSpec(pair, replace(start, design=replace(cell, rounds=rounds, eval_every=every), seed=seed))
        for cell in cells
        for seed in range(seeds)
    ]
