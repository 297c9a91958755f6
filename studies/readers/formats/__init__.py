"""The formats that are recognised by their content.

A format understands nothing of what it reads: names, rounds and repairs are for studies/readers/assemble.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rftlab.studies.readers.formats import (
    json_records,
    parquet,
    published,
    rollouts,
    stores,
    tables,
    tidy,
    trl,
    verl_console,
)
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head


class Format(NamedTuple):
    """One kind of log."""

    name: str
    recognise: Callable[[Head], bool]
    """Whether a file is of it, by its start."""
    read: Callable[[Head, dict[str, str]], list[RawRun]]
    """The runs of a file; the last argument has the names of columns that the user gave."""
    find_files: Callable[[Path], list[Path]] | None = None
    """The files of which a run consists, where they are several."""


FORMATS = (
    Format(stores.OFFLINE, stores.is_offline_run, stores.read_offline_run),
    Format(stores.EVENTS, stores.is_event_file, stores.read_event_file),
    Format(stores.TRACKIO, stores.is_database, stores.read_database),
    Format(parquet.OWN, parquet.is_own_run, parquet.read_own_run, parquet.find_own_files),
    Format(trl.STATE, trl.is_trainer_state, trl.read_trainer_state),
    Format(rollouts.FORMAT, rollouts.is_rollouts, rollouts.read_rollouts),
    Format(json_records.LINES, json_records.is_json_lines, json_records.read_json_lines),
    Format(trl.CONSOLE, trl.is_trl_console, trl.read_trl_console),
    Format(verl_console.FORMAT, verl_console.is_verl_console, verl_console.read_verl_console),
    Format(json_records.DOCUMENT, json_records.is_json_document, json_records.read_json_document),
    Format(published.FORMAT, published.is_long_form, published.read_long_form, published.files_beside),
    Format(tidy.EXPORT, tidy.is_export, tidy.read_export),
    Format(tables.FORMAT, tidy.is_tidy_table, tidy.read_tidy_table),
)
"""In the order in which they are asked."""
