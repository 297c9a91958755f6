"""Trackio's database, ~/.cache/huggingface/trackio/PROJECT.db: SQLite with a row a log call (run_name, step, metrics as
JSON). It is opened to be read alone, and no text in it is a statement. Its Parquet copies are tables.

Its step counts log calls, as W&B's does, unless the trainer gives one."""

import json
import sqlite3
from pathlib import Path
from urllib.parse import quote

from rftlab.shared.errors import UserError
from rftlab.studies.logs.formats import json_lines
from rftlab.studies.logs.formats.tables import CALLS
from rftlab.studies.logs.run import RawRun
from rftlab.studies.logs.text import Head

FORMAT, MARK = "Trackio", b"SQLite format 3\0"
_ROWS = "SELECT run_name, step, metrics FROM metrics ORDER BY id"
MAX_ROWS = 2_000_000


def recognise(head: Head) -> bool:
    """Whether it is an SQLite database."""
    return head.raw.startswith(MARK)


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a project. Raises UserError for a database of something else, or a damaged one."""
    records = _records(path)
    numbered = list(enumerate(records, start=1))
    return json_lines.runs_of(path, FORMAT, records[:500], numbered, columns, [], place="row")


def _records(path: Path) -> list[dict]:
    try:
        database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        try:
            rows = database.execute(_ROWS).fetchmany(MAX_ROWS)
        finally:
            database.close()
        found = [(name, step, json.loads(text)) for name, step, text in rows]
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is an SQLite database, and no table of Trackio's can be read in it: {str(error)[:100]}; allowed: "
            "a project of Trackio"
        ) from None
    return [
        {key: value for key, value in metrics.items() if key != "run"} | {CALLS: step, "run": str(name)}
        for name, step, metrics in found
        if isinstance(metrics, dict)
    ]
