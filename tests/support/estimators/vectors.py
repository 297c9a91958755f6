"""What the estimator tests share: the functions under test as one value, comparisons, and the reference vectors.

A check is a function of an `Api`, the functions under test. The tests run every check on the package itself, and on
wrong variants of it, which the check must refuse with an AssertionError.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab import Aggregation, Estimator
from rftlab.shared.advantage import advantages, whiten_into
from rftlab.shared.aggregation import shares
from rftlab.shared.combine import combined_advantages
from rftlab.shared.config.advantage import Advantage, advantage_rule
from rftlab.shared.config.kl import KL, kl_rule
from rftlab.shared.config.ratio import Ratio, ratio_rule
from rftlab.shared.config.surrogate import Clip, Surrogate, surrogate_rule
from rftlab.shared.correction import corrections
from rftlab.shared.credit import optimal_token_baseline, token_advantages
from rftlab.shared.kl import kl_penalty
from rftlab.shared.memory import (
    add,
    empty_averages,
    empty_bonus,
    empty_windows,
    estimated_pass_rate,
    move_bonus,
    push,
    read_averages,
    window_pool,
)
from rftlab.shared.objective import apply_mask, objective_and_weights
from rftlab.shared.plumbing.pool import make_pool
from rftlab.shared.prepare import batch_from_advantages, prepare, shaped_rewards
from rftlab.shared.sampling import allocate, keep_shortest
from rftlab.shared.surrogate import surrogate

ROOT = Path(__file__).resolve().parents[3]
SUBSET = ROOT / "tests" / "golden"
WHOLE = ROOT / (os.environ.get("RFTLAB_GOLDEN") or "../shared/data/golden")
EXACT = 1e-12


def token_surrogate(
    spec: Surrogate, ratio: Ratio, advantage: float, logp: float, log_ratio: float
) -> tuple[float, float, bool, bool]:
    """The kernel of one token's surrogate: value, derivative, clipped, dual-clipped."""
    return surrogate(surrogate_rule(spec), ratio_rule(ratio), advantage, logp, log_ratio)


def token_penalty(spec: KL, logp: float, ref_logp: float) -> tuple[float, float]:
    """The kernel of one token's KL penalty: value and derivative."""
    return kl_penalty(kl_rule(spec), logp, ref_logp)


def whiten(spec: Advantage, values, weights) -> np.ndarray:
    """A whitened copy of values (n,), where each counts weights (n,) times."""
    out = np.array(values, dtype=np.float64)
    if spec.whiten == "none":
        return out
    whiten_into(advantage_rule(spec).whiten, out, np.asarray(weights, dtype=np.float64), spec.ddof, spec.eps)
    return out


@dataclass(frozen=True)
class Api:
    """The functions under test. `dataclasses.replace` makes a wrong variant."""

    make_pool: Callable = make_pool
    advantages: Callable = advantages
    combined_advantages: Callable = combined_advantages
    whiten: Callable = whiten
    token_advantages: Callable = token_advantages
    optimal_token_baseline: Callable = optimal_token_baseline
    empty_windows: Callable = empty_windows
    push: Callable = push
    window_pool: Callable = window_pool
    empty_averages: Callable = empty_averages
    add: Callable = add
    read_averages: Callable = read_averages
    estimated_pass_rate: Callable = estimated_pass_rate
    empty_bonus: Callable = empty_bonus
    move_bonus: Callable = move_bonus
    allocate: Callable = allocate
    keep_shortest: Callable = keep_shortest
    shares: Callable = shares
    corrections: Callable = corrections
    batch_from_advantages: Callable = batch_from_advantages
    prepare: Callable = prepare
    shaped_rewards: Callable = shaped_rewards
    apply_mask: Callable = apply_mask
    objective_and_weights: Callable = objective_and_weights
    surrogate: Callable = token_surrogate
    kl_penalty: Callable = token_penalty


REAL = Api()


def close(actual, expected, what: str, tolerance: float = 1e-9) -> int:
    """Assert |actual - expected| <= tolerance max(1, |expected|) wherever `expected` is not None; return how many
    were compared."""
    if expected is None:
        return 0
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=object)
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {actual.shape} instead of {expected.shape}")
    known = np.array([value is not None for value in expected.ravel()], dtype=bool)
    a, e = actual.ravel()[known], expected.ravel()[known].astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(a - e) <= tolerance * np.maximum(1.0, np.abs(e))) & np.isfinite(e)) & ~(a == e)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {a.size} differ; first, number {first}: {a[first]!r} instead of "
            f"{e[first]!r}"
        )
    return a.size


def same(actual, expected, what: str) -> None:
    """Assert equality to the last bit."""
    if not np.array_equal(actual, expected):
        raise AssertionError(f"{what}: {actual!r} is not exactly {expected!r}")


def starts_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Offsets (R+1,) of packed responses."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int64)


def part_of(batch, start: int, stop: int):
    """The micro-batch of the tokens start .. stop-1: a slice of every array."""
    return type(batch)(*(column[start:stop] for column in batch))


def no_kl(
    advantage: Advantage | None = None,
    surrogate: Surrogate | None = None,
    aggregation: Aggregation | None = None,
    **rest,
) -> Estimator:
    """An estimator without KL penalty; raw reward and plain clipping unless something else is said."""
    return Estimator(
        advantage or Advantage("none"), surrogate or Clip(), KL("none"), aggregation or Aggregation(), **rest
    )


def seeds(first: int, count: int) -> Iterator[np.random.Generator]:
    """Generators of consecutive seeds."""
    return (np.random.default_rng(seed) for seed in range(first, first + count))


# --- reference vectors ---


class Case(NamedTuple):
    """One case of a reference file."""

    name: str
    params: dict
    inputs: dict
    outputs: dict
    tags: frozenset[str]

    def compared(self, key: str, actual, tolerance: float = 1e-9) -> int:
        """How many numbers of an output were compared; each is what was recorded."""
        return close(actual, self.outputs[key], f"{self.name}: {key}", tolerance)


def folder_of(golden: Path) -> Path:
    """The folder that holds the estimators' reference files."""
    return golden / "estimators" if (golden / "estimators").is_dir() else golden


def case_of(family: str, i: int, case: dict) -> Case:
    """A case as it stands in a file; its kind counts as a tag."""
    tags = frozenset([*(case.get("tags") or []), f"kind {case.get('kind')}"])
    return Case(f"{case.get('id') or f'{family}-{i}'}", case.get("params") or {}, case["inputs"], case["outputs"], tags)


def cases_of(golden: Path, family: str) -> list[Case]:
    """Every case of a family; none where its file is missing."""
    path = folder_of(golden) / f"{family}.json"
    return (
        [case_of(family, i, case) for i, case in enumerate(json.loads(path.read_text())["cases"])]
        if path.is_file()
        else []
    )


class Packed:
    """Rows with padding and holes, and their valid tokens as packed arrays."""

    def __init__(self, mask):
        self.mask = np.array(mask, dtype=np.float64) != 0
        self.n_rows, self.width = self.mask.shape
        self.lengths = self.mask.sum(1)
        self.starts = starts_of(self.lengths)

    def pack(self, rows) -> np.ndarray:
        return np.array(rows, dtype=np.float64)[self.mask]

    def unpack(self, tokens: np.ndarray) -> np.ndarray:
        out = np.zeros(self.mask.shape)
        out[self.mask] = tokens
        return out

    def per_token(self, values) -> np.ndarray:
        """The number of each row, once for each of its valid tokens."""
        return np.repeat(np.asarray(values, dtype=np.float64), self.lengths)
