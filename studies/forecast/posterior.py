"""A calibration that was interrupted goes on, and one that is finished is read: the log-likelihoods of its particles in
a file.

    results/calibrate/<pair>/<hash>.bin     log_likelihood (n,) as little-endian float64, for the evidence and the seed
                                            of which the name is a hash; before them 32 bytes, a checksum of the name
                                            and of them

All else about the particles is a function of evidence, seed and these numbers.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rftlab import sim
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import below, kind_of, read_file, remove
from rftlab.studies.forecast.calibrate import NOTHING, Posterior, Progress, calibrate
from rftlab.studies.forecast.evidence import Evidence


def calibrated(
    root: Path,
    pair: str,
    evidence: Evidence,
    seed: int,
    threads: int,
    progress: Progress,
    remark: Callable[[str], None],
) -> Posterior:
    """The posterior, with what a results folder has of it; a damaged file is named and made again."""
    path = below(root, "calibrate", pair, f"{identity(evidence, seed)}.bin")
    return calibrate(evidence, seed, threads, _read(path, remark), lambda found: _write(path, found), progress)


def identity(evidence: Evidence, seed: int) -> str:
    """Hash of everything that the particles depend on."""
    runs = [
        (asdict(run.design), run.rounds.tolist(), run.values.tolist(), run.errors.tolist())
        + (() if run.silent is None else tuple(column.tolist() for column in run.silent))
        for run in evidence.runs
    ]
    facts: tuple[Any, ...] = (sim.VERSION, seed, asdict(evidence.facts), runs)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _read(path: Path, remark: Callable[[str], None]) -> np.ndarray:
    if not kind_of(path):
        return NOTHING
    try:
        data = read_file(path)
        found = np.frombuffer(data[32:], "<f8")
        if data[:32] != _sum(path, data[32:]) or np.isnan(found).any():
            raise ValueError("it was changed, or is of another calibration or version of rftlab")
    except (OSError, ValueError) as damage:
        remark(f"damaged, redone: {path}: {damage}")
        with reported(path):
            remove(path)
        return NOTHING
    return found


def _write(path: Path, found: np.ndarray) -> None:
    data = found.astype("<f8").tobytes()
    with reported(path):
        write_file(path, _sum(path, data) + data)


def _sum(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.stem.encode() + data).digest()
