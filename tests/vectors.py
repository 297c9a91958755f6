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


GRPO, GRPO_NOSTD, RLOO = Advantage("group_zscore", ddof=1, eps=1e-6, singleton="raw"), Advantage("group_mean"), Advantage("leave_one_out")


def trained(api: Api, spec: Advantage, rewards, group, pool, lengths=None) -> np.ndarray:
    """Advantages (R,) by the public path; the tokens of a prepared batch carry the same numbers."""
    rewards, group = np.asarray(rewards, dtype=np.float64), np.asarray(group, dtype=np.int64)
    starts = starts_of(np.ones(rewards.size) if lengths is None else lengths)
    estimator = no_kl(spec)
    batch = api.prepare(estimator, rewards, group, starts, np.full(starts[-1], -1.0), pool=pool)
    out = api.advantages(api.rule_of(estimator), rewards, group, pool)
    same(batch.advantage, np.repeat(out, np.diff(starts)), "the advantage of a response on each of its tokens")
    return out


def indices(*labels: Sequence) -> dict:
    """0, 1, 2, ... for labels in the order in which they appear."""
    return {label: i for i, label in enumerate(dict.fromkeys(label for part in labels for label in part))}


def check_groups(api: Api, spec: Advantage, case: Case) -> int:
    """One reward per response, any integer labels, maybe support rollouts."""
    rewards, group = case.inputs["rewards"], case.inputs["group"]
    extra_rewards, extra_group = case.inputs.get("extra_rewards") or [], case.inputs.get("extra_group") or []
    index = indices(group, extra_group)
    trained_group, support_group = ([index[label] for label in labels] for labels in (group, extra_group))
    pool = api.pool_of(len(index), (rewards, trained_group), *([(extra_rewards, support_group)] if extra_rewards else []))
    return close(trained(api, spec, rewards, trained_group, pool, case.inputs.get("lengths")), case.outputs["advantage"], f"{case.name}: advantage")


def check_replay(api: Api, spec: Advantage, case: Case) -> int:
    """Windows that are given ("direct"), or that fill step by step ("stream")."""
    return (check_stream if "steps" in case.inputs else check_direct)(api, spec, case)


def check_direct(api: Api, spec: Advantage, case: Case) -> int:
    given, rewards = case.inputs["windows"], case.inputs["rewards"]
    label = np.repeat(np.arange(len(given)), [len(window) for window in given])
    pool = api.pool_of(len(given), (np.concatenate(given), label))
    windows = api.empty_windows(len(given), max(len(window) for window in given))
    api.push(windows, label, np.concatenate(given))
    pushed = api.window_pool(windows, np.arange(len(given)))
    same(pushed.rewards, pool.rewards, f"{case.name}: rewards that went through a window")
    same(pushed.starts, pool.starts, f"{case.name}: sizes of the windows")
    group = np.arange(len(rewards)) // (case.params.get("responses_per_window") or len(rewards) // len(given))
    return close(trained(api, spec, rewards, group, pushed, case.inputs.get("lengths")), case.outputs["advantage"], f"{case.name}: advantage")


def check_stream(api: Api, spec: Advantage, case: Case) -> int:
    steps = case.inputs["steps"]
    context = indices(*(step["prompt"] for step in steps))
    windows = api.empty_windows(len(context), case.params["window_size"])
    compared = 0
    for i, (step, expected) in enumerate(zip(steps, case.outputs["steps"], strict=True)):
        contexts = np.array([context[label] for label in step["prompt"]])
        each = case.params.get("responses_per_prompt") or len(step["rewards"]) // contexts.size
        api.push(windows, np.repeat(contexts, each), step["rewards"])
        pool = api.window_pool(windows, contexts)
        for g, window in enumerate(expected.get("windows") or []):
            same(pool.rewards[pool.starts[g] : pool.starts[g + 1]], np.array(window, dtype=np.float64), f"{case.name}: window {g} after step {i}")
        actual = trained(api, spec, step["rewards"], np.repeat(np.arange(contexts.size), each), pool)
        compared += close(actual, expected.get("advantage"), f"{case.name}: advantage of step {i}")
    return compared


VERSIONS = ("verl_0.9.1", "verl_0.8.0.dev", "fork_0.7.0.dev")


def aggregation_of(version: str, params: dict, width: int) -> Aggregation:
    """What a version of the source library calls `agg_mode`; `width` is the padded length of its rows."""
    mode = params["agg_mode"]
    fork = version == "fork_0.7.0.dev"
    empty = "count" if fork else "skip"
    if mode == "token-mean":
        return Aggregation("token_mean", eps=1e-8 if fork else 0.0)
    if mode == "token-sum":
        return Aggregation("token_sum")
    if mode == "seq-mean-token-sum":
        return Aggregation("seq_mean_token_sum", empty=empty)
    if mode == "seq-mean-token-mean":
        return Aggregation("seq_mean_token_mean", eps=0.0 if fork else 1e-8, empty=empty)
    if mode == "seq-mean-token-sum-norm":
        return Aggregation("seq_mean_token_sum" if version == "verl_0.9.1" else "token_sum", length=params.get("loss_scale_factor") or width)
    raise AssertionError(f"agg_mode {mode!r} is not known to these tests")


def counts(params: dict) -> dict:
    """Tokens and responses of the optimiser batch, where a case gives them."""
    return {"n_tokens": params.get("batch_num_tokens"), "n_rows": params.get("global_batch_size")}


class Packed:
    """Rows with padding and holes, and their valid tokens as packed arrays."""

    def __init__(self, mask):
        self.mask = np.array(mask, dtype=np.float64) != 0
        self.starts = starts_of(self.mask.sum(1))

    def pack(self, rows) -> np.ndarray:
        return np.array(rows, dtype=np.float64)[self.mask]

    def unpack(self, tokens: np.ndarray) -> np.ndarray:
        out = np.zeros(self.mask.shape)
        out[self.mask] = tokens
        return out


def check_agg_modes(api: Api, case: Case) -> int:
    """The loss of a token is the log-probability of a reinforce surrogate with advantage 1, so J is the aggregated loss and w its derivative."""
    rows = Packed(case.inputs["mask"])
    loss, n = rows.pack(case.inputs["loss_mat"]), rows.mask.shape[0]
    compared = 0
    for version in VERSIONS:
        expected = case.outputs.get(version)
        if expected is None:
            continue
        aggregation = aggregation_of(version, case.params, rows.mask.shape[1])
        estimator = no_kl(Advantage("reward"), Surrogate("reinforce"), aggregation)
        by_sum = version == "verl_0.8.0.dev" and case.params["agg_mode"] == "seq-mean-token-sum-norm"
        scale = 1 if by_sum else case.params.get("dp_size") or 1
        batch = api.prepare(estimator, np.ones(n), np.arange(n), rows.starts, loss, **counts(case.params))
        weighed = api.weigh(estimator, batch, loss)
        same(weighed.weight, api.shares(api.rule_of(estimator), rows.starts, **counts(case.params)), f"{case.name}: shares of {version}")
        if expected.get("loss") is not None:
            compared += close(scale * weighed.objective, expected["loss"], f"{case.name}: loss of {version}")
        if expected.get("grad") is not None:
            compared += close(scale * rows.unpack(weighed.weight), expected["grad"], f"{case.name}: gradient of {version}")
    return compared


def check_loss_vanilla(api: Api, case: Case) -> int:
    """PPO's clipped loss: value, derivative and metrics. Losses are minimised and objectives are maximised, hence the minus signs."""
    rows, params = Packed(case.inputs["mask"]), case.params
    advantage, old, new = (rows.pack(case.inputs[key]) for key in ("advantages", "old_log_prob", "log_prob"))
    correction = None if case.inputs.get("is_weights") is None else rows.pack(case.inputs["is_weights"])
    surrogate = Surrogate("clip", params["clip_ratio_low"], params["clip_ratio_high"], params.get("clip_ratio_c"))
    # approx_kl is the mean of old - new with the log-ratio held within +-20: k1 against the sampling policy, at coefficient 0
    estimator = Estimator(Advantage("reward"), surrogate, KL("k1", 0.0), aggregation_of("verl_0.9.1", params, rows.mask.shape[1]))
    reference = np.clip(old, new - 20.0, new + 20.0)
    batch = api.freeze(api.rule_of(estimator), advantage, rows.starts, old, reference, correction, **counts(params))
    per_row = [row[mask] for row, mask in zip(np.array(case.inputs["advantages"], dtype=np.float64), rows.mask, strict=True)]
    if all(np.unique(row).size <= 1 for row in per_row):
        rewards = np.array([row[0] if row.size else 0.0 for row in per_row])
        prepared = api.prepare(estimator, rewards, np.arange(rewards.size), rows.starts, old, reference, correction=correction, **counts(params))
        for field in batch._fields:
            same(getattr(prepared, field), getattr(batch, field), f"{case.name}: {field} by prepare and by freeze")
    weighed = api.weigh(estimator, batch, new)
    scale, total = params.get("dp_size") or 1, new.size + 1e-8
    actual = {
        "loss": -scale * weighed.objective,
        "grad_log_prob": -scale * rows.unpack(weighed.weight),
        "clip_frac": weighed.clipped / total,
        "clip_frac_lower": weighed.dual_clipped / total,
        "approx_kl": -weighed.kl / total,
    }
    return sum(close(value, case.outputs[key], f"{case.name}: {key}") for key, value in actual.items() if case.outputs.get(key) is not None)


KL_NAMES = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


def check_kl_penalty(api: Api, case: Case) -> int:
    """Value and derivative of every token, as penalty in the loss and, the value alone, in the reward."""
    name, new, ref = case.params["kind"], np.array(case.inputs["log_prob"]), np.array(case.inputs["ref_log_prob"])
    spec = KL(KL_NAMES[name.removesuffix("+")], 1.0, "loss", straight_through=name.endswith("+"))
    estimator = Estimator(Advantage("reward"), Surrogate("reinforce"), spec, Aggregation("token_sum"))
    batch = api.prepare(estimator, np.zeros(new.size), np.arange(new.size), np.arange(new.size + 1), new, ref)
    tokens = [api.weigh(estimator, type(batch)(*(column[t : t + 1] for column in batch)), new[t : t + 1]) for t in range(new.size)]
    compared = close([token.kl for token in tokens], case.outputs["value"], f"{case.name}: value as a metric")
    compared += close([-token.objective for token in tokens], case.outputs["value"], f"{case.name}: value in the objective")
    compared += close(-api.weigh(estimator, batch, new).weight, case.outputs["grad_log_prob"], f"{case.name}: derivative")
    in_reward = Estimator(kl=KL(spec.kind, 1.0, "reward"))
    return compared + close(
        -api.shaped_rewards(in_reward, np.zeros(new.size), np.arange(new.size + 1), new, ref), case.outputs["value"], f"{case.name}: value in the reward"
    )


FAMILIES: dict[str, Callable[[Api, Case], int]] = {
    "adv_grpo": lambda api, case: check_groups(api, GRPO, case),
    "adv_grpo_nostd": lambda api, case: check_groups(api, GRPO_NOSTD, case),
    "adv_rloo": lambda api, case: check_groups(api, RLOO, case),
    "adv_onerpo": lambda api, case: check_groups(api, GRPO, case),
    "adv_onerpo_nostd": lambda api, case: check_groups(api, GRPO_NOSTD, case),
    "adv_asyttgrpo": lambda api, case: check_replay(api, GRPO, case),
    "adv_asyttgrpo_nostd": lambda api, case: check_replay(api, GRPO_NOSTD, case),
    "loss_vanilla": check_loss_vanilla,
    "agg_modes": check_agg_modes,
    "kl_penalty": check_kl_penalty,
}


def check_subset(api: Api, family: str) -> None:
    """Every case of a family in the compact subset."""
    for case in cases_of(SUBSET, family):
        FAMILIES[family](api, case)


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
