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
    tables,
    tensorboard,
    tidy,
    trackio,
    trl_console,
    trl_state,
    verl_console,
    wandb,
)
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head


class Format(NamedTuple):
    """One kind of log."""

    name: str
    recognise: Callable[[Head], bool]
    """Whether a file is of it, by its start."""
    read: Callable[[Path, Head, dict[str, str]], list[RawRun]]
    """The runs of a file; the last argument has the names of columns that the user gave."""
    find_files: Callable[[Path], list[Path]] | None = None
    """The files of which a run consists, where they are several."""


FORMATS = (
    Format(wandb.OFFLINE, wandb.is_offline_run, wandb.read_offline_run),
    Format(tensorboard.FORMAT, tensorboard.is_event_file, tensorboard.read_event_file),
    Format(trackio.FORMAT, trackio.is_database, trackio.read_database),
    Format(parquet.OWN, parquet.is_own_run, parquet.read_own_run, parquet.find_own_files),
    Format(trl_state.FORMAT, trl_state.is_trainer_state, trl_state.read_trainer_state),
    Format(rollouts.FORMAT, rollouts.is_rollouts, rollouts.read_rollouts),
    Format(json_records.LINES, json_records.is_json_lines, json_records.read_json_lines),
    Format(trl_console.FORMAT, trl_console.is_trl_console, trl_console.read_trl_console),
    Format(verl_console.FORMAT, verl_console.is_verl_console, verl_console.read_verl_console),
    Format(json_records.DOCUMENT, json_records.is_json_document, json_records.read_json_document),
    Format(published.FORMAT, published.is_long_form, published.read_long_form, published.files_beside),
    Format(wandb.EXPORT, wandb.is_export, wandb.read_export),
    Format(tables.FORMAT, tidy.is_tidy_table, tidy.read_tidy_table),
)
"""In the order in which they are asked."""
