"""What the simulator leaves out of a cell on every pair alike, learnt from the pairs whose whole grid is known; never from the pair that is forecast.

`studies/data/left_out.csv` has truth less forecast of every held-out cell of the reference pairs, each forecast from its own pilot without any such
correction. `python -m studies.bridge.discrepancy RESULTS` takes those of `rftlab score`.
"""

import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from llm.writing import write_file

FILE = files("studies") / "data" / "left_out.csv"


def left_out(scores: pd.DataFrame) -> pd.DataFrame:
    """Truth less forecast: columns pair, cell, left_out. scores: rows of `studies.bridge.score.score`."""
    return pd.DataFrame({"pair": scores["pair"], "cell": scores["cell"], "left_out": scores["truth"] - scores["alone"]})


def lean_of(known: pd.DataFrame, pair: str, cells: list[str]) -> np.ndarray:
    """Correction (cells,) of a pair: the mean over n other pairs, shrunk by n / (n + 1) as if one more pair had none; 0 where none has it."""
    others = known[known["pair"] != pair].groupby("cell")["left_out"]
    return (others.sum() / (others.count() + 1)).reindex(cells).fillna(0.0).to_numpy()


def shipped_left_out() -> pd.DataFrame:
    """Of the reference pairs that come with rftlab."""
    with FILE.open() as file:
        return pd.read_csv(file)


if __name__ == "__main__":
    write_file(Path(str(FILE)), left_out(pd.read_csv(Path(sys.argv[1]) / "score" / "language" / "scores.csv")).round(5).to_csv(index=False).encode())
