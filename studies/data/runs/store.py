"""Read and write the results store, which has one folder per run.

    results/rftlab.json                                  marks the folder as ours
    results/<level>/<pair>/<point-id>/config.json        the canonical configuration
                                      curve.parquet      the learning curve
                                      metrics.parquet    level llm: what only a language model has, with checkpoints and
                                                         rollouts beside it; level sim: measures that were asked for
                                      done.json          checksums of the tables, where the run ended, commit, versions,
                                                         seconds; sealed to the configuration

A simulated run writes into a scratch folder beside the results and renames it into place, so it appears whole or not at
all, and of two processes that finish the same point the first one wins. A language model trains in its folder, from
which it can be resumed; it is finished when done.json is there. Reading verifies the checksums, the configuration, and
that tables and facts are possible for the run. Links are not followed (shared/plumbing/folders.py): anything but a
folder in the place of a point is a damaged point, and above a point it is an error.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rftlab.llm.config import LLMRun
from rftlab.llm.stored import is_run
from rftlab.shared.curve import Curve
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import WRITING, file_sha256, reason, write_file
from rftlab.shared.plumbing.folders import FOLDER, below, entries, folder_below, path_kind, read_file, read_json, remove
from rftlab.sim.run import SimulationResult
from rftlab.studies.data.runs.files import (
    check_facts,
    check_metrics,
    checksummed,
    curve_from,
    data_frame,
    read_checksummed,
)
from rftlab.studies.data.runs.points import RunSpec, canonical

MARKER, FORMAT, SCRATCH, ROLLOUTS = "rftlab.json", 1, ".scratch", "rollouts"


class Stored(NamedTuple):
    """Finished run: its curve, the round at which it diverged (the curve ends before) or None, and metrics where there
    are any."""

    curve: Curve
    diverged_at: int | None
    metrics: pd.DataFrame | None = None


class DamagedPoint(Exception):
    """Error for a stored point that cannot be trusted; the message says why."""


def open_store(root: Path) -> Path:
    """Return a results folder, made if it is new. Raises UserError where it cannot be written or holds other files."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        # listed before the marker is looked for: another process may be making the same folder
        # runs of `rftlab train` may have come first
        others = [entry for entry in root.iterdir() if not entry.name.startswith(WRITING) and not is_run(entry)]
        if not path_kind(root / MARKER):
            check(
                not others,
                f"{root} holds other files and no {MARKER}; name a new or empty folder, or one made by rftlab",
            )
            write_file(root / MARKER, json.dumps({"format": FORMAT}).encode())
        check_format(root)
        probe = tempfile.mkdtemp(dir=scratch_folder(root))
        os.rmdir(probe)
    except OSError as error:
        raise UserError(f"results folder {root} cannot be written: {reason(error)}") from None
    return root


def is_marked(root: Path) -> bool:
    """Whether `root` is marked as a results folder, of any format."""
    return path_kind(root / MARKER) is not None


def check_format(root: Path) -> None:
    """Raise UserError unless `root` is a results folder of this format."""
    try:
        marker = read_json(root / MARKER)
    except (OSError, ValueError):
        raise UserError(f"{root} is not a results folder of rftlab (no readable {MARKER} in it)") from None
    known = isinstance(marker, dict) and marker.get("format") == FORMAT
    check(known, f"{root / MARKER} is not of format {FORMAT}, which this version reads")


def scratch_folder(root: Path) -> Path:
    """Return the scratch folder for files that are being written, made if it is new."""
    folder = folder_below(root, SCRATCH)
    folder.mkdir(exist_ok=True)
    return folder


def point_folder(root: Path, point: RunSpec) -> Path:
    """Return the folder of a point. Raises UserError where it would not be below the results folder."""
    return below(root, point.level, point.pair, point.id)


def write(root: Path, point: RunSpec, outcome: SimulationResult, about: dict) -> None:
    """Store a finished simulation. `about` (commit, versions, seconds) is kept beside it."""
    frames = {"curve": outcome.curve.to_frame(), "metrics": outcome.metrics}
    tables = {name: frames[name].to_parquet(index=False) for name in _tables(point)}
    sums = {f"{name}_sha256": hashlib.sha256(table).hexdigest() for name, table in tables.items()}
    files = {
        "config.json": canonical(point.config),
        **{f"{name}.parquet": table for name, table in tables.items()},
        "done.json": checksummed({**sums, "diverged_at": outcome.diverged_at, **about}, _plain(point)),
    }
    target = point_folder(root, point)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=scratch_folder(root)))
    scratch.chmod(scratch_folder(root).stat().st_mode & 0o777)  # others may read what the umask lets them read
    try:
        for name, data in files.items():
            write_file(scratch / name, data)
        os.rename(scratch, target)  # atomic, and refused where another process was first
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _plain(point: RunSpec) -> dict:
    """Return a point's configuration as it is read back from a file: JSON turns tuples into lists."""
    return json.loads(canonical(point.config))


def mark_done(root: Path, point: RunSpec, diverged_at: int | None, about: dict) -> None:
    """Mark the run that a language model wrote into its folder as finished."""
    folder = point_folder(root, point)
    sums = {
        f"{table}_sha256": hashlib.sha256(read_file(folder / f"{table}.parquet")).hexdigest()
        for table in _tables(point)
    }
    rollouts = {path.name: file_sha256(path) for path in entries(folder_below(folder, ROLLOUTS))}
    write_file(
        folder / "done.json",
        checksummed({**sums, ROLLOUTS: rollouts, "diverged_at": diverged_at, **about}, _plain(point)),
    )


def _tables(point: RunSpec) -> tuple[str, ...]:
    measured = isinstance(point.run, LLMRun) or point.run.evaluation == "full"
    return ("curve", "metrics") if measured else ("curve",)


def is_there(root: Path, point: RunSpec) -> bool:
    """Whether a point is finished, or its place is taken by something else; an unfinished run of a language model does
    not count."""
    folder = point_folder(root, point)
    kind = path_kind(folder)
    return kind is not None and (kind != FOLDER or point.level == "sim" or path_kind(folder / "done.json") is not None)


def read_facts(root: Path, point: RunSpec) -> dict | None:
    """Return the content of done.json of a finished point; None where there is none. Raises DamagedPoint."""
    folder = point_folder(root, point)
    if not is_there(root, point):
        return None
    try:
        if path_kind(folder) != FOLDER:
            raise ValueError(f"it is {path_kind(folder)}, not a folder")
        facts = read_checksummed(folder / "done.json", _plain(point))
        check_facts(facts, point)
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from None
    return facts


def read(root: Path, point: RunSpec) -> Stored | None:
    """Return a finished point, or None where there is none. Raises DamagedPoint where it cannot be trusted."""
    facts, folder = read_facts(root, point), point_folder(root, point)
    if facts is None:
        return None
    try:
        if canonical(read_json(folder / "config.json")) != canonical(point.config):
            raise ValueError("config.json is not the configuration that its name stands for")
        frames = {name: _table(folder / f"{name}.parquet", facts[f"{name}_sha256"]) for name in _tables(point)}
        curve = curve_from(frames["curve"], point, facts["diverged_at"])
        if "metrics" in frames:
            check_metrics(frames["metrics"], curve)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(folder, error) from None
    return Stored(curve, facts["diverged_at"], frames.get("metrics"))


def _table(path: Path, checksum: str) -> pd.DataFrame:
    data = read_file(path)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{path.name} does not match its checksum")
    try:
        return data_frame(data)
    except MemoryError:
        raise
    except Exception as error:  # a forged table can make the reader raise anything
        raise ValueError(f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}") from None


def _damaged(folder: Path, error: Exception) -> DamagedPoint:
    return DamagedPoint(f"{folder}: {type(error).__name__}: {error}")


def discard(root: Path, point: RunSpec) -> None:
    """Remove a damaged point as a whole, so that it can be run again; nothing happens where another process just did
    so.

    The run of a language model loses only the mark that it is finished: its last checkpoint has all measurements, and
    writes the tables again.
    """
    folder = point_folder(root, point)
    if point.level == "llm" and path_kind(folder) == FOLDER:
        for name in ("done.json", "config.json"):
            remove(folder / name)
        return
    # renamed before it is removed: no process sees half of a point, nor removes one that was written again
    away = Path(tempfile.mkdtemp(dir=scratch_folder(root)))
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, away / "damaged")
    shutil.rmtree(away, ignore_errors=True)
