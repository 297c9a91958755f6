"""Seconds that a run had trained when a round was finished, from whatever its log tells of time."""

import numpy as np

from rftlab.studies.readers.run import ImportedRun, Piece

SO_FAR, OF_ROUND = "elapsed_seconds", "seconds"
"""Metrics: seconds since the start, and those of a round."""


def elapsed_at(run: ImportedRun, rounds: np.ndarray) -> np.ndarray:
    """Seconds (n,) when rounds (n,) were finished, linear between those that are known; nan where the log does not
    tell, and everywhere where its times fall."""
    known = _so_far(run) or _added(run)
    if known is None:
        return np.full(len(rounds), np.nan)
    at, seconds = known
    if at[0] > 0:
        at, seconds = np.append(0, at), np.append(0.0, seconds)
    if np.any(np.diff(seconds) < 0) or seconds[0] < 0 or seconds[-1] <= 0:
        return np.full(len(rounds), np.nan)
    return np.interp(rounds, at, seconds, left=np.nan, right=np.nan)


def _pieces(run: ImportedRun, metric: str) -> list[Piece]:
    return [piece for piece in run.pieces if piece.metric == metric and piece.split and len(piece.rounds)]


def _so_far(run: ImportedRun) -> tuple[np.ndarray, np.ndarray] | None:
    """Rounds and seconds of a log that says how long it has run; of a round that is there twice the earlier time."""
    pieces = _pieces(run, SO_FAR)
    if not pieces:
        return None
    rounds, seconds = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("rounds", "values"))
    order = np.lexsort((seconds, rounds))
    at, first = np.unique(rounds[order], return_index=True)
    return at.astype(float), seconds[order][first].astype(float)


def _added(run: ImportedRun) -> tuple[np.ndarray, np.ndarray] | None:
    """The same from the seconds of each round. Rounds between those that are logged count as the next; a log that
    begins late is not timed. TRL's are of an update."""
    piece = next(iter(_pieces(run, OF_ROUND)), None)
    if piece is None:
        return None
    apart = np.diff(piece.rounds, prepend=0)
    if len(apart) < 2 or apart[0] > np.median(apart[1:]):
        return None
    updates = (run.design.updates_per_round or 1) if run.tool == "trl" else 1
    return piece.rounds.astype(float), np.cumsum(piece.values * apart * updates)
