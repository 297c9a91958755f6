"""Read and check the files of a results folder, to which other processes, here or on other machines, may be writing:
Parquet tables, sealed JSON files, and half-written files of killed processes.

Parquet is read in the calling thread: where a thread of pyarrow releases a Python object after Python has ended, the
process aborts and its exit status is lost. JSON files have a checksum of their facts and of what they are about. A
forged checksum is noticed because facts and tables must be possible for their configuration.
"""

import contextlib
import hashlib
import io
import json
import math
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from rftlab.shared.curve import FLEXIBLE, SPLITS, Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import WRITING, reason
from rftlab.shared.plumbing.folders import entries, read_json, remove
from rftlab.studies.data.runs.points import RunSpec


def arrow_table(source: bytes | IO[bytes], labels: Sequence[str] = ()) -> pa.Table:
    """Read a Parquet table. labels: columns that are read as dictionaries. Raises ArrowException, OSError or ValueError
    where it is damaged."""
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    whole = parquet.ParquetFile(file, read_dictionary=list(labels) or None, pre_buffer=False)
    return whole.read(use_threads=False)


def data_frame(source: bytes | IO[bytes]) -> pd.DataFrame:
    """Read a Parquet table as a data frame; raises as `arrow_table`."""
    return arrow_table(source).to_pandas(use_threads=False)


STALE = 3600.0
"""Seconds after which a half-written file is abandoned: writing a figure, a table or a curve takes a moment."""


def check_writable(folder: Path) -> None:
    """Raise UserError unless files can be written into a folder, which is made if it is new. Half-written files of
    killed processes are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        remove_stale(folder, f"{WRITING}*")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {reason(error)}") from None


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove files and folders whose names match and that were not touched for an hour."""
    for path in entries(folder):
        with contextlib.suppress(OSError):
            if fnmatchcase(path.name, pattern) and time.time() - path.lstat().st_mtime >= STALE:
                remove(path)


SEAL = "sha256"


def checksummed(facts: dict[str, Any], of: Any, indent: int | None = 1) -> bytes:
    """Return the content of a file with `facts` about `of`, sealed with their checksum; both are plain JSON values."""
    return json.dumps(facts | {SEAL: _sum(facts, of)}, indent=indent).encode()


def read_checksummed(path: Path, of: Any) -> dict[str, Any]:
    """Read the facts of a file about `of`. Raises OSError without the file, and ValueError where its checksum is
    wrong."""
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.pop(SEAL, None) != _sum(facts, of):
        raise ValueError(f"{path.name} was changed, or is of something else, or of another version of rftlab")
    return facts


def _sum(facts: dict[str, Any], of: Any) -> str:
    return hashlib.sha256(json.dumps([of, facts], sort_keys=True).encode()).hexdigest()


_WHOLE = ("seed", "round", "rollouts", "tokens")
_ROUNDING = 1e-6
"""Amount by which a mean of probabilities may exceed 1."""


def check_facts(facts: dict[str, Any], point: RunSpec) -> None:
    """Raise ValueError unless done.json says where a run ended, by which commit, with which versions and in how many
    seconds."""
    ended, versions, seconds = (facts.get(name) for name in ("diverged_at", "versions", "seconds"))
    _check(
        ended is None or (type(ended) is int and 0 <= ended <= point.run.design.rounds),
        "done.json: diverged_at is no round of the run",
    )
    _check(type(facts.get("commit")) is str, "done.json: commit is no text")
    known = isinstance(versions, dict) and all(type(version) is str for version in versions.values())
    _check(known, "done.json: versions are no texts by name")
    timed = isinstance(seconds, int | float) and type(seconds) is not bool and 0 <= seconds < math.inf
    _check(timed, "done.json: seconds is no number of seconds")


def curve_from(frame: pd.DataFrame, point: RunSpec, diverged_at: int | None) -> Curve:
    """Return the curve in a table. Raises ValueError unless its columns, seed, rounds and rollouts are those of the
    run, and its Pass@1 are rates."""
    _check_columns(frame, Curve._fields, "curve.parquet")
    curve, design = Curve(*(frame[name].to_numpy() for name in Curve._fields)), point.run.design
    _check(
        all(getattr(curve, name).dtype.kind == "i" for name in _WHOLE),
        "curve.parquet: seed, round, rollouts and tokens must be whole numbers",
    )
    _check(bool((curve.seed == point.run.seed).all()), f"curve.parquet is not of seed {point.run.seed}")
    _check_rounds(curve.round, design, diverged_at)
    least = design.round_rollouts
    most = (least + design.batch_size) * design.sampling.tries  # a greedy baseline has one more for each context
    spent = (curve.rollouts >= curve.round * least) & (curve.rollouts <= curve.round * most)
    _check(bool(spent.all()), "curve.parquet: rollouts are not those of the design")
    for name in (*(f"{split}_pass_at_1" for split in SPLITS), *FLEXIBLE):
        rates = getattr(curve, name)
        known = (rates >= 0) & (rates <= 1 + _ROUNDING) | (np.isnan(rates) & (diverged_at is not None))
        _check(bool(known.all()), f"curve.parquet: {name} must be rates")
    return curve


def _check_rounds(rounds: np.ndarray, design: Design, diverged_at: int | None) -> None:
    last = (
        design.rounds
        if diverged_at is None
        else min(diverged_at, design.rounds - 1) // design.eval_every * design.eval_every
    )
    until = np.arange(0, last + 1, design.eval_every)
    whole = np.array_equal(rounds, until) or (
        diverged_at is not None and np.array_equal(rounds, until[:-1])
    )  # the last evaluation may have noticed the divergence
    _check(
        whole and len(rounds) > 0, f"curve.parquet: rounds must be those from 0 to {last}, every {design.eval_every}"
    )


def check_metrics(frame: pd.DataFrame, curve: Curve) -> None:
    """Raise ValueError unless a table has a row of numbers for every row of the curve."""
    _check_columns(frame, ("seed", "round"), "metrics.parquet")
    _check_columns(frame, tuple(frame.columns), "metrics.parquet")
    same = all(np.array_equal(frame[name].to_numpy(), getattr(curve, name)) for name in ("seed", "round"))
    _check(same, "metrics.parquet: seed and round are not those of curve.parquet")


def _check_columns(frame: pd.DataFrame, names: tuple[str, ...], table: str) -> None:
    for name in names:
        _check(
            name in frame and frame[name].ndim == 1 and frame[name].dtype.kind in "if",
            f"{table} has no column of numbers {str(name)[:40]!r}",
        )


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
