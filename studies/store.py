"""The results store: one folder per run.

    results/rftlab.json                                  marks the folder as ours
    results/<level>/<pair>/<point-id>/config.json        the canonical configuration
                                      curve.parquet      the learning curve
                                      metrics.parquet    level llm: what only a language model has, with checkpoints and rollouts beside it
                                      done.json          checksums of the tables, where the run ended, commit, versions, seconds

A simulated run writes into a scratch folder beside the results and renames it into place, so it appears whole or not at all, and of two
processes that finish the same point the first one wins. A language model trains in its folder, from which it can be resumed; it is
finished when done.json is there. Reading verifies the checksums and the configuration.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from llm.writing import WRITING, reason, write_file
from shared.curve import Curve
from shared.errors import UserError, check
from sim.run import Outcome
from studies.points import Point, canonical

MARKER, FORMAT, SCRATCH = "rftlab.json", 1, ".scratch"


class Stored(NamedTuple):
    """A finished run: its curve, the round at which it diverged (the curve ends before) or None, and metrics where a language model ran."""

    curve: Curve
    diverged_at: int | None
    metrics: pd.DataFrame | None = None


class Damaged(Exception):
    """A stored point that cannot be trusted; the message says why."""


def open_store(root: Path) -> Path:
    """A results folder, made if new. Raises UserError where it cannot be written or is somebody else's."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        # listed before the marker is looked for: another process may be making the same folder
        others = [entry for entry in root.iterdir() if not entry.name.startswith(WRITING)]
        if not (root / MARKER).exists():
            check(not others, f"{root} holds other files and no {MARKER}; name a new or empty folder, or one made by rftlab")
            write_file(root / MARKER, json.dumps({"format": FORMAT}).encode())
        check_format(root)
        probe = tempfile.mkdtemp(dir=_scratch(root))
        os.rmdir(probe)
    except OSError as error:
        raise UserError(f"results folder {root} cannot be written: {reason(error)}") from None
    return root


def check_format(root: Path) -> None:
    """Raise UserError unless `root` is a results folder of this format."""
    try:
        marker = read_json(root / MARKER)
    except (OSError, ValueError):
        raise UserError(f"{root} is not a results folder of rftlab (no readable {MARKER} in it)") from None
    known = isinstance(marker, dict) and marker.get("format") == FORMAT
    check(known, f"{root / MARKER} is not of format {FORMAT}, which this version reads")


def read_json(path: Path) -> Any:
    """What a file says. Raises OSError, and ValueError where it is not JSON that can be read."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _scratch(root: Path) -> Path:
    folder = root / SCRATCH
    folder.mkdir(exist_ok=True)
    return folder


def folder_of(root: Path, point: Point) -> Path:
    """Where a point is stored."""
    return root / point.level / point.pair / point.id


def write(root: Path, point: Point, outcome: Outcome, about: dict) -> None:
    """Store a finished simulation. `about` (commit, versions, seconds) is kept beside it."""
    frame = io.BytesIO()
    pd.DataFrame(outcome.curve._asdict()).to_parquet(frame, index=False)
    done = {"curve_sha256": hashlib.sha256(frame.getvalue()).hexdigest(), "diverged_at": outcome.diverged_at, **about}
    target = folder_of(root, point)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=_scratch(root)))
    scratch.chmod(_scratch(root).stat().st_mode & 0o777)  # others may read what the umask lets them read
    try:
        for name, data in (("config.json", canonical(point.config)), ("curve.parquet", frame.getvalue()), ("done.json", json.dumps(done, indent=1).encode())):
            write_file(scratch / name, data)
        os.rename(scratch, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def seal(root: Path, point: Point, diverged_at: int | None, about: dict) -> None:
    """Declare finished what a language model wrote into its folder."""
    folder = folder_of(root, point)
    sums = {f"{table}_sha256": hashlib.sha256((folder / f"{table}.parquet").read_bytes()).hexdigest() for table in _tables(point)}
    write_file(folder / "done.json", json.dumps({**sums, "diverged_at": diverged_at, **about}, indent=1).encode())


def _tables(point: Point) -> tuple[str, ...]:
    return ("curve", "metrics") if point.level == "llm" else ("curve",)


def read(root: Path, point: Point) -> Stored | None:
    """A finished point, or None where there is none. Raises Damaged where what is stored cannot be trusted."""
    folder = folder_of(root, point)
    if not (folder / "done.json" if point.level == "llm" else folder).exists():
        return None
    try:
        config, facts = (read_json(folder / name) for name in ("config.json", "done.json"))
        tables = {name: (folder / f"{name}.parquet").read_bytes() for name in _tables(point)}
        diverged_at, sums = facts["diverged_at"], {name: facts[f"{name}_sha256"] for name in tables}
        same = canonical(config) == canonical(point.config)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{folder}: {type(error).__name__}: {error}") from None
    if not same:
        raise Damaged(f"{folder}: config.json is not the configuration that its name stands for")
    if diverged_at is not None and type(diverged_at) is not int:
        raise Damaged(f"{folder}: done.json says no round at which the run diverged")
    for name, data in tables.items():
        if hashlib.sha256(data).hexdigest() != sums[name]:
            raise Damaged(f"{folder}: {name}.parquet does not match its checksum")
    frames = {name: pd.read_parquet(io.BytesIO(data)) for name, data in tables.items()}
    return Stored(Curve(*(frames["curve"][name].to_numpy() for name in Curve._fields)), diverged_at, frames.get("metrics"))


def discard(root: Path, point: Point) -> None:
    """Remove a damaged point, so that it can be redone; whole at once, and no matter if another process just did.

    Of a language model only what says that it is finished goes: its last checkpoint has all that was measured, and writes the tables again.
    """
    folder = folder_of(root, point)
    if point.level == "llm":
        for name in ("done.json", "config.json"):
            (folder / name).unlink(missing_ok=True)
        return
    away = Path(tempfile.mkdtemp(dir=_scratch(root)))
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, away / "damaged")
    shutil.rmtree(away, ignore_errors=True)
