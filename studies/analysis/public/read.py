"""The runs of a public source in the terms of imported ones: the level `public:SOURCE`."""

import tempfile
from functools import cache
from pathlib import Path

from rftlab.shared.plumbing.errors import check
from rftlab.studies.analysis.public.repeats import cell_of
from rftlab.studies.analysis.public.sources import BY_NAME
from rftlab.studies.analysis.public.store import curves, runs
from rftlab.studies.readers.formats.published import BESIDE, REPEATS
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun


def read_source(source: str) -> list[ImportedRun]:
    """Its runs, in the order of the tables. Raises UserError where its numbers are not shipped."""
    own = runs().query("source == @source")
    there = ", ".join(sorted(set(runs()["source"])))
    check(source in BY_NAME and len(own) > 0, f"public:{source} has no runs that come with rftlab; allowed: {there}")
    return list(_read(source))


@cache  # the explorer asks at every change
def _read(source: str) -> tuple[ImportedRun, ...]:
    """Through the tables that `rftlab import` reads."""
    own, values = runs().query("source == @source"), curves()
    values = values[values["run_id"].isin(own["run_id"])]
    with tempfile.TemporaryDirectory() as folder:
        own.assign(**{REPEATS: cell_of(own["run_id"]).where(own["seed_or_repeat"].notna())}).to_csv(
            Path(folder) / BESIDE, index=False
        )
        values.to_csv(Path(folder) / f"{source}.csv", index=False)
        return tuple(read_logs([Path(folder) / f"{source}.csv"]))
