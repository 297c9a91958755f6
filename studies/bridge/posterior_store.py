"""A calibration that was interrupted goes on, and one that is finished is read: the log-likelihoods of its particles in a file.

    results/calibrate/<pair>/<hash>.bin     log_likelihood (n,), for the evidence and the seed of which the name is a hash, with a checksum

All else about the particles is a function of evidence, seed and these numbers.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import sim
from llm.writing import reported, write_file
from studies.bridge.calibrate import NOTHING, Posterior, Progress, calibrate
from studies.bridge.evidence import Evidence


def calibrated(root: Path, pair: str, evidence: Evidence, seed: int, threads: int, progress: Progress, remark: Callable[[str], None]) -> Posterior:
    """The posterior, with what a results folder has of it; a damaged file is named and made again."""
    path = root / "calibrate" / pair / f"{identity(evidence, seed)}.bin"
    return calibrate(evidence, seed, threads, _read(path, remark), lambda found: _write(path, found), progress)


def identity(evidence: Evidence, seed: int) -> str:
    """Hash of everything that the particles depend on."""
    runs = [(asdict(run.design), run.rounds.tolist(), run.values.tolist(), run.errors.tolist()) for run in evidence.runs]
    facts: tuple[Any, ...] = (sim.VERSION, seed, asdict(evidence.facts), runs)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _read(path: Path, remark: Callable[[str], None]) -> np.ndarray:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return NOTHING
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        remark(f"damaged, redone: {path} does not match its checksum")
        return NOTHING
    return np.load(io.BytesIO(data[32:]), allow_pickle=False)


def _write(path: Path, found: np.ndarray) -> None:
    data = io.BytesIO()
    np.save(data, found, allow_pickle=False)
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, hashlib.sha256(data.getvalue()).digest() + data.getvalue())
