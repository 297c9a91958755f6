"""The mean curve of runs that repeat each other, whose evaluations need not be at equal rounds."""

import numpy as np
import pandas as pd


def mean_curve(curves: pd.DataFrame, column: str = "round") -> pd.DataFrame:
    """Mean, lowest and highest over runs at common places, and how many runs are behind each.

    curves: columns run, value and `column`, a row an evaluation. Places are those of all runs, at most as many as the
    run with the most has, as far as the most runs reach on both sides; and 0, where any run begins there. Between two
    evaluations a run's value is taken from the line through them; beyond its first and last it has none, so that no
    run is continued. Columns of the result: `column`, mean, lowest, highest, runs.
    """
    runs = [run.sort_values(column) for _, run in curves.groupby("run", sort=False, observed=True)]
    places = np.unique(curves[column].to_numpy())
    values = np.array([np.interp(places, run[column], run["value"], left=np.nan, right=np.nan) for run in runs])
    behind = np.isfinite(values).sum(axis=0)
    shared = np.flatnonzero(behind == behind.max())
    longest = max(len(run) for run in runs)
    if len(shared) > longest:
        shared = shared[np.linspace(0, len(shared) - 1, longest).round().astype(int)]
    kept = np.unique(np.append(shared, np.flatnonzero(places == 0)))
    values = values[:, kept]
    return pd.DataFrame(
        {
            column: places[kept],
            "mean": np.nanmean(values, axis=0),
            "lowest": np.nanmin(values, axis=0),
            "highest": np.nanmax(values, axis=0),
            "runs": behind[kept],
        }
    )
