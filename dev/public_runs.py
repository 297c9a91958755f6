"""Take a folder of the collection of public runs into the package: `python -m dev.public_runs FOLDER`.

Numbers of sources with a licence are shipped as tables. Of the others come figures, as pictures, and the statistics of
rftlab.studies.analysis.public.facts, each with its reference.
"""

import sys
from io import BytesIO
from pathlib import Path

import pandas as pd

from rftlab.shared.plumbing.files import write_file
from rftlab.studies.analysis.public import figures
from rftlab.studies.analysis.public.facts import FACTS, measure_facts, to_json
from rftlab.studies.analysis.public.pictures import PICTURES
from rftlab.studies.analysis.public.sources import SOURCES
from rftlab.studies.analysis.public.store import (
    COLUMNS,
    CURVES,
    DATA,
    ENDPOINTS,
    RUNS,
    Collection,
    of_source,
    read_folder,
)
from rftlab.studies.report.draw import picture

DOTS_PER_INCH = 130
LICENSED = [source.name for source in SOURCES if source.shipped]


def tables_of(collection: Collection) -> dict[str, bytes]:
    """Files with the numbers that are shipped."""
    runs, endpoints = (table[table["source"].isin(LICENSED)] for table in (collection.runs, collection.endpoints))
    curves = collection.curves.loc[collection.curves["run_id"].isin(runs["run_id"]), COLUMNS]
    ends = endpoints.to_csv(index=False, lineterminator="\n").encode()
    return {RUNS: _parquet(runs), CURVES: _parquet(curves), ENDPOINTS: ends}


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = BytesIO()
    table.reset_index(drop=True).to_parquet(buffer, index=False, compression="zstd", compression_level=19)
    return buffer.getvalue()


def pictures_of(collection: Collection) -> dict[str, bytes]:
    """Files with figures of the numbers that are not."""
    found = {}
    for one in PICTURES:
        chart, _ = getattr(figures, one.draw)(*(of_source(collection, source) for source in one.sources))
        found[one.file] = picture(chart, "png", DOTS_PER_INCH)
    return found


def take(folder: Path, into: Path) -> None:
    """Write every file of the public runs that comes with the package."""
    collection = read_folder(folder)
    contents = tables_of(collection) | pictures_of(collection) | {FACTS: to_json(measure_facts(collection)).encode()}
    for name, content in contents.items():
        write_file(into / name, content)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(str(DATA)))
