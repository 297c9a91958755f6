"""Score forecasts on collections of public runs for the package: `python -m dev.forecast_scores FOLDER..`.

A folder has curves.csv and runs.csv in the terms of docs/import.md, and a source is what stands before the first slash
of its runs' names. Runs whose names differ in a last part such as /s0 or /r01 alone are repeats.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.files import write_file
from rftlab.studies.analysis.imported.groups import Group, group_runs
from rftlab.studies.forecast.ending import ending_scores, leader_scores, show_ending_scores
from rftlab.studies.forecast.imported import TEST, last_values, rate_edge, trained_part, unusable
from rftlab.studies.forecast.law.limits import FALLEN, run_held
from rftlab.studies.forecast.record import DESIGNS, ENDS, LEADERS
from rftlab.studies.forecast.score.cases import known_case
from rftlab.studies.forecast.score.score import score_case
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.run import ImportedRun

ASSETS = Path("studies/assets")
COLUMNS = ["source", "task", "known", "cell", "other_rate", "outside", "truth", "forecast", "low", "high",
           "law", "curve", "steps", "still", "sigmoid"]  # fmt: skip


def marked(run: ImportedRun) -> ImportedRun:
    """Return the run with the first part of its name as the mark of its repeats."""
    front = re.sub(r"/[sr]\d+$", "", run.name)
    return replace(run, repeats=front) if front != run.name else run


def designs(source: str, runs: list[ImportedRun]) -> list[pd.DataFrame]:
    """Return scores of a source's designs, with the runs of each design known in turn."""
    tables: list[pd.DataFrame] = []
    sets: dict[tuple, list[Group]] = {}
    for group in map(trained_part, group_runs([marked(run) for run in runs], TEST)):
        if not unusable(group):
            sets.setdefault((group.design.model, group.task), []).append(group)
    for (_, task), groups in sets.items():
        cases = [known_case(source, runs, groups, i) for i in range(len(groups))] if len(groups) > 1 else []
        tried = [one for case in cases for one in case.evidence.tried()]
        for case, own, group in zip(cases, tried, groups if cases else [], strict=True):
            ends = last_values(group)
            if run_held(own, tried) and min(ends) >= FALLEN * max(ends):
                known = case.evidence.runs[0].learning_rate
                rates = np.array([rate or np.nan for rate in case.rates])
                # by the other sources; the table of settings calls this one by its name here and more
                edge = rate_edge(groups, case.evidence.precision, source.partition("-")[0])
                case = case._replace(evidence=case.evidence._replace(edge=edge))
                table = score_case(Path("unused"), case, 0, 1)
                table = table.assign(
                    source=source, task=task, known=case.known[0], outside=(table["outside"] != "") * 1
                )
                table["other_rate"] = (np.isfinite(rates) & (rates != known)) * 1 if known else 0
                tables.append(table.rename(columns={"forecast_low": "low", "forecast_high": "high"})[COLUMNS])
    return tables


def main(folders: list[str]) -> None:
    """Write the record, and print the numbers about ends in docs/forecast.md."""
    sources: dict[str, list[ImportedRun]] = {}
    for folder in folders:
        for run in read_logs([Path(folder) / "curves.csv"]):
            sources.setdefault(run.name.partition("/")[0], []).append(run)
    ends = ending_scores([(source, run) for source, runs in sources.items() for run in runs])
    show_ending_scores(Console(), ends)
    leaders = leader_scores(ends)[["source", "task", "part", "lead", "gap"]]
    tables = {
        DESIGNS: pd.concat([table for source, runs in sources.items() for table in designs(source, runs)]),
        ENDS: ends.drop(columns=["run", "known", "noise", "low", "high"]),
        LEADERS: leaders,
    }
    for name, table in tables.items():
        write_file(ASSETS / name, table.to_csv(index=False, float_format="%.3f", lineterminator="\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
