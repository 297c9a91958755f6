"""Logs of runs in which something is planted: a healthy run of 200 rounds, and changes of its columns."""

from collections.abc import Callable, Sequence

import numpy as np

from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries

ROUNDS, EVERY, QUESTIONS, LIMIT = 200, 5, 1000, 1024
Columns = dict[tuple[str, str], np.ndarray]
"""By split and metric: values of rounds 1 to 200, or of every fifth from 0 on."""


def healthy(seed: int = 0, rounds: int = ROUNDS, every: int = EVERY) -> Columns:
    """A run that learns all the way, from 0.30 to 0.70, with the noise of its batches and of its test set."""
    draw = np.random.default_rng(seed)
    at, tested = np.arange(1, rounds + 1), np.arange(0, rounds + 1, every)
    rate, test = 0.3 + 0.4 * at / rounds, 0.3 + 0.4 * tested / rounds
    return {
        ("train", "pass_at_1"): rate + 0.03 * draw.standard_normal(rounds),
        ("train", "entropy"): 0.6 - 0.3 * at / rounds + 0.02 * draw.standard_normal(rounds),
        ("train", "response_length"): 300 + 10 * draw.standard_normal(rounds),
        ("train", "zero_signal_fraction"): np.clip(0.4 + 0.05 * draw.standard_normal(rounds), 0, 1),
        ("train", "clip_fraction"): 0.01 + 0.003 * draw.random(rounds),
        ("train", "kl"): 0.001 * draw.standard_normal(rounds),
        ("train", "grad_norm"): np.exp(0.3 * draw.standard_normal(rounds)),
        ("train", "rollout_probs_diff"): 0.004 + 0.001 * draw.random(rounds),
        ("test", "pass_at_1"): draw.binomial(QUESTIONS, test) / QUESTIONS,
        ("test", "format_rate"): np.full(len(tested), 0.97),
    }


def log_of(columns: Columns, every: int = EVERY, questions: float = QUESTIONS, rollouts: int | None = 8) -> ImportedRun:
    """The columns as an imported run; values that are nan are left out, as the import does."""
    pieces = []
    for (split, metric), values in columns.items():
        at = np.arange(len(values)) * every if split == "test" else np.arange(1, len(values) + 1)
        pieces.append(piece_of(split, metric, at, values, questions if split == "test" else np.nan))
    kept = sorted((piece for piece in pieces if len(piece.rounds)), key=lambda piece: (piece.split != "test", piece[2]))
    return ImportedRun(
        "planted", "table", "", (), KnownDesign(prompts=32, rollouts=rollouts, response_limit=LIMIT), tuple(kept)
    )


def piece_of(split: str, metric: str, rounds: Sequence[int], values: Sequence[float], n: float) -> MetricSeries:
    """A metric under its own name, with n responses behind every value; values that are not finite are left out."""
    keep = np.isfinite(values)
    at = np.asarray(rounds)[keep]
    return MetricSeries(split, "", metric, metric, at, np.asarray(values)[keep], np.full(len(at), n), at)


Change = Callable[[Columns], Columns]


def changed(split: str, metric: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """One column through a function."""
    return lambda columns: columns | {(split, metric): change(columns[split, metric].copy())}


def after(part: float, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """A value in place of those from a part of the run on, with a thousandth of noise."""

    def change(values: np.ndarray) -> np.ndarray:
        start = int(part * len(values))
        values[start:] = value * (1 + 0.001 * np.random.default_rng(1).standard_normal(len(values) - start))
        return values

    return change


def towards(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """A line from the first value to this one."""
    return lambda values: values + np.linspace(0, value - values[0], len(values))
