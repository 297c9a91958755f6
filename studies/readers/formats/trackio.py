"""Trackio's database, ~/.cache/huggingface/trackio/PROJECT.db: SQLite with a row a log call (run_name, step, metrics as
JSON). Its Parquet copies are tables.

Anybody may have made the file: it is opened to be read alone, no text in it is a statement, nothing but a plain table
is asked, and work, rows and cells have limits. Rows of a write-ahead log that lies beside it are read too; without
such a log nothing is written beside the database.

Its step counts log calls, as W&B's does, unless the trainer gives one."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import path_kind
from rftlab.studies.readers.formats.json_records import collect_runs
from rftlab.studies.readers.formats.tables import CALLS
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head

FORMAT, MARK = "Trackio", b"SQLite format 3\0"
_ROWS = "SELECT run_name, step, metrics FROM metrics NOT INDEXED ORDER BY rowid"
_KIND = "SELECT type, sql FROM sqlite_schema WHERE lower(name) = 'metrics'"
_PLAIN = re.compile(r"\s{0,9}CREATE\s{1,9}TABLE\s", re.IGNORECASE)
ALLOWED = "allowed: a project of Trackio, with a plain table of metrics"
MAX_ROWS, LONGEST, LARGEST = 2_000_000, 1 << 20, 1 << 30
"""Rows, bytes of a cell, and characters of all cells that are read."""
STEPS, TURN = 400_000_000, 1_000_000
"""Of SQLite's machine, and how many it takes before it asks whether to go on."""


def is_database(head: Head) -> bool:
    """Whether it is an SQLite database."""
    return head.raw.startswith(MARK)


def read_database(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The runs of a project. Raises UserError for a database of something else, or a damaged one."""
    notes: list[str] = []
    records = _records(path, notes)
    numbered = list(enumerate(records, start=1))
    return collect_runs(path, FORMAT, records[:500], numbered, columns, notes, place="row")


def _records(path: Path, notes: list[str]) -> list[dict]:
    logged = path_kind(path.resolve().with_name(f"{path.resolve().name}-wal")) is not None
    place = f"file:{quote(str(path.resolve()))}?mode=ro{'' if logged else '&immutable=1'}"
    records: list[dict] = []
    try:
        with closing(sqlite3.connect(place, uri=True)) as database:
            _limit(database)
            kinds = database.execute(_KIND).fetchmany(2)
            if len(kinds) != 1 or kinds[0][0] != "table":
                raise ValueError("metrics is no table")
            virtual = not isinstance(kinds[0][1], str) or not _PLAIN.match(kinds[0][1])
            computed = any(column[-1] for column in database.execute("PRAGMA table_xinfo(metrics)"))
            if virtual or computed:
                raise ValueError("the table metrics is virtual or computed")
            size = 0
            for name, step, text in database.execute(_ROWS):
                size += len(text) if isinstance(text, str | bytes) else 0
                if len(records) >= MAX_ROWS or size > LARGEST:
                    notes.append(f"the database has more than {len(records)} rows, of which the first are read")
                    break
                metrics = json.loads(text)
                if isinstance(metrics, dict):
                    records.append(
                        {key: value for key, value in metrics.items() if key != "run"} | {CALLS: step, "run": str(name)}
                    )
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
        beside = ", with the write-ahead log beside it" * logged
        raise UserError(
            f"{path} is an SQLite database{beside}, and no table of Trackio's can be read in it: {str(error)[:100]}; "
            f"{ALLOWED}"
        ) from None
    return records


def _limit(database: sqlite3.Connection) -> None:
    """Stop what works for too long, and let no schema call a function or write."""
    left = STEPS // TURN

    def over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    database.set_progress_handler(over, TURN)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    database.execute("PRAGMA query_only = 1")
    database.execute("PRAGMA trusted_schema = 0")
    database.execute("PRAGMA temp_store = 2")
