"""What the estimator tests share: the functions under test as one value, reference vectors, and random batches.

A check is a function of an `Api`, the functions under test. The tests run every check on the package itself, and on wrong variants
of it, which the check must refuse with an AssertionError.

    python -m tests.vectors     writes the compact subset, tests/golden, from the whole set of reference vectors
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shared import kl, surrogate
from shared.advantage import advantages, pool_of
from shared.aggregation import shares
from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate, rule_of
from shared.replay import empty_windows, push, window_pool
from shared.weigh import freeze, prepare, shaped_rewards, weigh

ROOT = Path(__file__).resolve().parent.parent
SUBSET = ROOT / "tests" / "golden"
WHOLE = ROOT / (os.environ.get("RFTLAB_GOLDEN") or "../shared/data/golden")


@dataclass(frozen=True)
class Api:
    """The functions under test. `dataclasses.replace` makes a wrong variant."""

    pool_of: Callable = pool_of
    advantages: Callable = advantages
    empty_windows: Callable = empty_windows
    push: Callable = push
    window_pool: Callable = window_pool
    shares: Callable = shares
    rule_of: Callable = rule_of
    freeze: Callable = freeze
    prepare: Callable = prepare
    shaped_rewards: Callable = shaped_rewards
    weigh: Callable = weigh
    surrogate: Callable = surrogate.surrogate
    kl_penalty: Callable = kl.kl_penalty


REAL = Api()


def close(actual, expected, what: str, tolerance: float = 1e-9) -> int:
    """Assert |actual - expected| <= tolerance max(1, |expected|) wherever `expected` is not None; return how many were compared."""
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
        raise AssertionError(f"{what}: {int(wrong.sum())} of {a.size} differ; first, number {first}: {a[first]!r} instead of {e[first]!r}")
    return a.size


def same(actual, expected, what: str) -> None:
    """Assert equality to the last bit."""
    if not np.array_equal(actual, expected):
        raise AssertionError(f"{what}: {actual!r} is not exactly {expected!r}")


# --- reference vectors ---


FAMILIES = (
    "adv_grpo",
    "adv_grpo_nostd",
    "adv_rloo",
    "adv_onerpo",
    "adv_onerpo_nostd",
    "adv_asyttgrpo",
    "adv_asyttgrpo_nostd",
    "loss_vanilla",
    "agg_modes",
    "kl_penalty",
)


class Case(NamedTuple):
    """One case of a reference file."""

    name: str
    params: dict
    inputs: dict
    outputs: dict


def folder_of(golden: Path) -> Path:
    """The folder that holds the estimators' reference files."""
    return golden / "estimators" if (golden / "estimators").is_dir() else golden


def cases_of(golden: Path, family: str) -> list[Case]:
    """Every case of a family; none where its file is missing."""
    path = folder_of(golden) / f"{family}.json"
    if not path.is_file():
        return []
    cases = json.loads(path.read_text())["cases"]
    return [Case(f"{case.get('id') or f'{family}-{i}'}", case.get("params") or {}, case["inputs"], case["outputs"]) for i, case in enumerate(cases)]


def starts_of(lengths: Sequence[int]) -> np.ndarray:
    """Offsets (R+1,) of packed responses."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int64)


def no_kl(advantage: Advantage, surrogate: Surrogate | None = None, aggregation: Aggregation | None = None) -> Estimator:
    """An estimator without KL penalty."""
    return Estimator(advantage, surrogate or Surrogate(), KL("none"), aggregation or Aggregation())


# --- random batches ---


class Batches(NamedTuple):
    """A random batch of responses; see the package's glossary for the shapes."""

    rewards: np.ndarray
    group: np.ndarray
    starts: np.ndarray
    old_logp: np.ndarray
    ref_logp: np.ndarray
    logp: np.ndarray
    correction: np.ndarray
    n_groups: int


def random_rewards(rng: np.random.Generator, n: int) -> np.ndarray:
    """Binary, coarse (sums are exact, ties are common) or real."""
    kind = rng.integers(3)
    return rng.normal(size=n) if kind == 0 else rng.integers(-64, 65, n) / 32.0 if kind == 1 else rng.integers(0, 2, n).astype(np.float64)


def random_batch(rng: np.random.Generator, shortest: int = 0, fewest: int = 1) -> Batches:
    """Groups of unequal sizes from `fewest`, their responses shuffled, lengths from `shortest`; some tokens are exactly on-policy."""
    n_groups = int(rng.integers(1, 5))
    group = rng.permutation(np.repeat(np.arange(n_groups), rng.integers(fewest, 6, n_groups)))
    lengths = rng.integers(shortest, 4, group.size)
    lengths[rng.integers(group.size)] += 1
    starts = starts_of(lengths)
    old = -rng.exponential(2.0, starts[-1])
    spread = rng.choice([0.05, 0.5, 2.0, 15.0])
    logp = np.where(rng.random(old.size) < 0.15, old, old + spread * rng.normal(size=old.size))
    ref = np.where(rng.random(old.size) < 0.15, logp, logp + spread * rng.normal(size=old.size))
    return Batches(random_rewards(rng, group.size), group, starts, old, ref, logp, rng.exponential(1.0, old.size), n_groups)


def random_advantage(rng: np.random.Generator) -> Advantage:
    return Advantage(
        kind=rng.choice(["reward", "group_mean", "group_zscore", "leave_one_out", "batch_mean"]).item(),
        ddof=int(rng.integers(2)),
        eps=float(rng.choice([1e-6, 1e-3, 0.5])),
        singleton=rng.choice(["raw", "zero"]).item(),
    )


def random_estimator(rng: np.random.Generator) -> Estimator:
    """Every choice of every field, independently."""
    kind = rng.choice(["token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean"]).item()
    high, dual = float(rng.choice([0.0, 0.2, 0.4, np.inf])), rng.choice([None, 1.5, 3.0])
    return Estimator(
        random_advantage(rng),
        Surrogate(rng.choice(["reinforce", "clip", "clip"]).item(), float(rng.choice([0.0, 0.1, 0.3, 1.0])), high, dual),
        KL(
            kind=rng.choice(["none", "k1", "k2", "k3", "abs"]).item(),
            coef=float(rng.choice([0.0, 0.3, 1.0])),
            place=rng.choice(["loss", "loss", "reward"]).item(),
            straight_through=bool(rng.integers(2)),
        ),
        Aggregation(
            kind,
            length=rng.choice([None, 7.5]) if kind.endswith("token_sum") else None,
            eps=float(rng.choice([0.0, 1e-8, 0.5])),
            empty=rng.choice(["skip", "count"]).item(),
        ),
    )


def seeds(first: int, count: int) -> Iterator[np.random.Generator]:
    """Generators of consecutive seeds."""
    return (np.random.default_rng(seed) for seed in range(first, first + count))


# --- the compact subset ---


def features(case: dict) -> set[str]:
    """What the subset must show at least `DEPTH` times, where the whole does."""
    params, outputs = case.get("params") or {}, case["outputs"]
    named = {f"{key}={params[key]}" for key in ("agg_mode", "kind") if key in params}
    given = {f"with {key}" for key, value in params.items() if value is not None}
    answers = {f"{key} is {'null' if value is None else 'given'}" for key, value in outputs.items()}
    tags = {f"tag {tag}" for tag in case.get("tags") or []} | ({f"kind {case['kind']}"} if case.get("kind") else set())
    return named | given | answers | tags


DEPTH, LARGEST = 4, 500_000


def choose(cases: list[dict]) -> list[dict]:
    """Few small cases that show every feature at least `DEPTH` times, in their first order."""
    missing = {feature: DEPTH for case in cases for feature in features(case)}
    left, chosen = dict(enumerate(cases)), []
    size = {i: len(json.dumps(case)) for i, case in left.items()}
    while left:
        gain = {i: sum(missing[feature] > 0 for feature in features(case)) for i, case in left.items()}
        best = max(left, key=lambda i: (gain[i] / size[i] ** 0.25, -i))
        if not any(gain.values()):
            break
        for feature in features(left.pop(best)):
            missing[feature] -= 1
        chosen.append(best)
    return [cases[i] for i in sorted(chosen)]


def write_subset() -> None:
    """Fill the folder of the compact subset from the whole set."""
    target = folder_of(SUBSET)
    for family in FAMILIES:
        whole = json.loads((folder_of(WHOLE) / f"{family}.json").read_text())
        cases = choose(whole["cases"])
        (target / f"{family}.json").write_text(json.dumps(whole | {"n_cases": len(cases), "cases": cases}, separators=(",", ":")) + "\n")
        print(f"{family}: {len(cases)} of {len(whole['cases'])} cases")
    total = sum(path.stat().st_size for path in target.glob("*.json"))
    print(f"{total} bytes")
    assert total < LARGEST


if __name__ == "__main__":
    write_subset()
