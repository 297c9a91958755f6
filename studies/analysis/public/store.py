"""Load the public runs as data frames, and their sources with place, licence, contents and pitfalls.

Conventions of the numbers
round     batches of freshly generated responses. Test rows: rounds finished before the evaluation, 0 = untrained. Train
          rows: the round in which the responses were generated (first = 1), so they show the model after round - 1.
updates   optimiser steps, and rollouts, responses generated (not trained on): cumulative to the end of that round; nan
          where they cannot be computed.
value     pass_at_1 on train is the batch mean of a strict 0/1 reward. correct_given_format is the correct and
          well-formed share of the well-formed. kl: sampling policy to the policy inside a round. zero_signal_fraction:
          groups with equal rewards.
n         responses behind a value; updates or prompts for some train metrics.
Nothing is smoothed or filled in. Six significant digits.
"""

import json
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from rftlab.studies.data.runs.files import data_frame


class Source(NamedTuple):
    """Public repository of training logs."""

    name: str
    reference: str
    """Repository, its commit where that is recorded, and paper."""
    licence: str
    """Licence as the source states it. Without a stated licence only figures and statistics are shipped."""
    runs: int
    """Number of training runs, including the untrained model where it has rows of its own."""
    points: int
    """Number of rows of the source's curves."""
    model: str
    data: str
    varied: str
    shows: str
    traps: tuple[str, ...]

    @property
    def shipped(self) -> bool:
        """Whether the source's numbers come with the package."""
        return not self.licence.startswith("none")


DATA = files("rftlab.studies") / "assets"
SOURCES = tuple(
    Source(**row | {"traps": tuple(row["traps"])})
    for row in json.loads((DATA / "public_sources.json").read_text(encoding="utf-8"))
)
BY_NAME = {source.name: source for source in SOURCES}
RUNS, CURVES, ENDPOINTS = "public_runs.parquet", "public_curves.parquet", "public_endpoints.csv"
COLUMNS = ["run_id", "round", "updates", "rollouts", "split", "metric", "value", "n", "task", "seconds", "source_step"]


def runs() -> pd.DataFrame:
    """Return the runs whose licence allows shipping: a row each, with settings, licence, commit and path."""
    return _parquet(RUNS)


def curves() -> pd.DataFrame:
    """Return every value of the shipped runs, with the columns COLUMNS; the module's docstring says what they mean."""
    return _parquet(CURVES)


def endpoints() -> pd.DataFrame:
    """Return published single scores (fractions): source, model, method, test_task, score and a note."""
    return csv_table(ENDPOINTS)


def csv_table(name: str) -> pd.DataFrame:
    """Read a file of comma-separated values that comes with the package."""
    with (DATA / name).open("rb") as file:
        return pd.read_csv(file)


def of_source(source: str, runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of curves that belong to runs of a source."""
    return curves[curves["run_id"].isin(runs.loc[runs["source"] == source, "run_id"])]


def score_rows(curves: pd.DataFrame, task: str | None = None) -> pd.DataFrame:
    """Return the rows of test Pass@1, of one task where it is given."""
    rows = curves[(curves["split"] == "test") & (curves["metric"] == "pass_at_1")]
    return rows if task is None else rows[rows["task"] == task]


def _parquet(name: str) -> pd.DataFrame:
    with (DATA / name).open("rb") as file:
        return data_frame(file)
