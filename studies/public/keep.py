"""A public source as imported runs, so that report, compare, diagnose, power and advise take it."""

import tempfile
from pathlib import Path

from rftlab.shared.errors import check
from rftlab.studies.logs.formats.published import BESIDE
from rftlab.studies.logs.read import read_logs
from rftlab.studies.logs.run import ImportedRun
from rftlab.studies.logs.store import write_collection
from rftlab.studies.public.sources import BY_NAME
from rftlab.studies.public.store import curves, runs


def keep(root: Path, source: str) -> tuple[list[ImportedRun], bool]:
    """Keep the runs of a source in a results folder as the collection of its name; False where they are there. Raises
    UserError where its numbers are not shipped."""
    own = runs().query("source == @source")
    there = ", ".join(sorted(set(runs()["source"])))
    check(len(own) > 0, f"{source} has no runs whose numbers come with rftlab; allowed: {there}")
    found = read_shipped(source)
    return found, write_collection(root, source, found)


def read_shipped(source: str) -> list[ImportedRun]:
    """The runs of a source in the terms of imported ones, through the tables that `rftlab import` reads."""
    own = runs().query("source == @source")
    values = curves()
    values = values[values["run_id"].isin(own["run_id"])]
    assert source in BY_NAME  # the name of a file
    with tempfile.TemporaryDirectory() as folder:
        own.to_csv(Path(folder) / BESIDE, index=False)
        values.to_csv(Path(folder) / f"{source}.csv", index=False)
        return read_logs([Path(folder) / f"{source}.csv"])
