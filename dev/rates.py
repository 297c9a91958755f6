"""Choose the learning rate of a language model's pair: `python -m dev.rates tiny-mix97`.

Four cells that ask different things of a rate run with each rate, on the validation split, so that the test split
decides nothing. The rate with the highest mean Pass@1 after training goes into `studies/data/paper/pairs.py`.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.finish import finish_points
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.runner import collect

_SPLITS = EXPERIMENTS["tradeoff"].cells
CELLS = (BASELINE, EXPERIMENTS["rollouts"].cells[1], _SPLITS[0], _SPLITS[-2])
"""Cells that are run: the minimalist baseline, (32, 8), and the ends of the trade-off, (1, 256) and (256, 1)."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3)


def points_at(pair: str, rates: list[float], seeds: int) -> list[list[RunSpec]]:
    """Return the runs of each rate."""
    start = start_at(pair, "llm")
    start = replace(start, evaluation=replace(start.evaluation, split="validation"))
    designs = [replace(cell, rounds=start.design.rounds, eval_every=start.design.eval_every) for cell in CELLS]
    return [
        [
            RunSpec(pair, replace(start, design=d, seed=s, optimizer=replace(start.optimizer, learning_rate=rate)))
            for d in designs
            for s in range(seeds)
        ]
        for rate in rates
    ]


def scores(curves: pd.DataFrame) -> pd.Series:
    """Return validation Pass@1 after training by cell, means over seeds; a run that diverged counts as 0."""
    last = curves[curves["round"] == curves["planned_rounds"]].groupby("cell")["test_pass_at_1"].sum()
    return last.reindex(map(label, CELLS), fill_value=0.0) / curves["seed"].nunique()


def main() -> None:
    """Run the cells, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pair")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments, console = parser.parse_args(), Console()
    check(arguments.seeds >= 1, f"seeds = {arguments.seeds}; allowed: 1 or more")
    runs = points_at(arguments.pair, arguments.rates, arguments.seeds)
    finish_points(
        console,
        store.open_store(arguments.results),
        [point for of_rate in runs for point in of_rate],
        0,
        False,
    )
    table = pd.DataFrame(
        {
            rate: scores(collect(arguments.results, of_rate).curves)
            for rate, of_rate in zip(arguments.rates, runs, strict=True)
        }
    ).T
    table["mean"] = table.mean(axis=1)
    say(console, table.round(3).to_string())
    console.print(f"highest mean: {table['mean'].idxmax():g}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(f"rates: {error}", file=sys.stderr)
        sys.exit(2)
