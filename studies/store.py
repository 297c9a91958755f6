"""The results store: one folder per finished run, which appears whole or not at all.

    results/rftlab.json                                  marks the folder as ours
    results/<level>/<pair>/<point-id>/config.json        the canonical configuration
                                      curve.parquet      the learning curve
                                      done.json          checksum of the curve, where it ended, commit, versions, seconds

A run writes into a scratch folder beside the results and renames it into place. So a run killed at any moment leaves no half of a
point, and of two processes that finish the same point the first one wins. Reading verifies the checksum and the configuration.
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

import pandas as pd

from llm.writing import WRITING, reason, write_file
from shared.curve import Curve
from shared.errors import UserError, check
from sim.run import Outcome
from studies.points import Point, canonical

MARKER, FORMAT, SCRATCH = "rftlab.json", 1, ".scratch"


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
        marker = json.loads((root / MARKER).read_text())
    except (OSError, ValueError):
        raise UserError(f"{root} is not a results folder of rftlab (no readable {MARKER} in it)") from None
    known = isinstance(marker, dict) and marker.get("format") == FORMAT
    check(known, f"{root / MARKER} says {marker!r}; this version reads format {FORMAT}")


def _scratch(root: Path) -> Path:
    folder = root / SCRATCH
    folder.mkdir(exist_ok=True)
    return folder


def folder_of(root: Path, point: Point) -> Path:
    """Where a point is stored."""
    return root / "sim" / point.pair / point.id


def write(root: Path, point: Point, outcome: Outcome, about: dict) -> None:
    """Store a finished point. `about` (commit, versions, seconds) is kept beside it."""
    frame = io.BytesIO()
    pd.DataFrame(outcome.curve._asdict()).to_parquet(frame, index=False)
    done = {"curve_sha256": hashlib.sha256(frame.getvalue()).hexdigest(), "diverged_at": outcome.diverged_at, **about}
    target = folder_of(root, point)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=_scratch(root)))
    try:
        for name, data in (("config.json", canonical(point.config)), ("curve.parquet", frame.getvalue()), ("done.json", json.dumps(done, indent=1).encode())):
            write_file(scratch / name, data)
        os.rename(scratch, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def read(root: Path, point: Point) -> Outcome | None:
    """A stored point, or None where there is none. Raises Damaged where what is stored cannot be trusted."""
    folder = folder_of(root, point)
    if not folder.exists():
        return None
    try:
        config, data, done = ((folder / name).read_bytes() for name in ("config.json", "curve.parquet", "done.json"))
        facts = json.loads(done)
        diverged_at, checksum = facts["diverged_at"], facts["curve_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{folder}: {type(error).__name__}: {error}") from None
    if config != canonical(point.config):
        raise Damaged(f"{folder}: config.json is not the configuration that its name stands for")
    if hashlib.sha256(data).hexdigest() != checksum:
        raise Damaged(f"{folder}: curve.parquet does not match its checksum")
    frame = pd.read_parquet(io.BytesIO(data))
    return Outcome(Curve(*(frame[name].to_numpy() for name in Curve._fields)), diverged_at)


def discard(root: Path, point: Point) -> None:
    """Remove a damaged point, so that it can be redone; whole at once, and no matter if another process just did."""
    away = Path(tempfile.mkdtemp(dir=_scratch(root)))
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder_of(root, point), away / "damaged")
    shutil.rmtree(away, ignore_errors=True)
