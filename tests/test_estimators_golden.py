"""Reference vectors: numbers that other libraries' own functions gave, reached by the package's public path, to 1e-9.

An adapter writes one case of a family as calls of the package and returns how many numbers it compared.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate
from tests.vectors import FAMILIES, LARGEST, REAL, SUBSET, WHOLE, Api, Case, cases_of, close, folder_of, no_kl, same, starts_of

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


ADAPTERS: dict[str, Callable[[Api, Case], int]] = {
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
        ADAPTERS[family](api, case)


def every_case():
    """(family, case) of the compact subset and of the whole set; one skipped entry for each family that the whole set lacks."""
    for source, folder in (("subset", SUBSET), ("whole", WHOLE)):
        for family in FAMILIES:
            cases = cases_of(folder, family)
            yield from (pytest.param(family, case, id=f"{source}-{family}-{case.name}") for case in cases)
            if not cases:
                reason = f"no reference vectors: {folder_of(folder) / family}.json is absent or empty (RFTLAB_GOLDEN names the folder)"
                yield pytest.param(family, None, id=f"{source}-{family}", marks=pytest.mark.skip(reason=reason))


@pytest.mark.parametrize(("family", "case"), list(every_case()))
def test_case(family, case):
    ADAPTERS[family](REAL, case)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_family_compares_numbers(folder, family):
    """An adapter that silently compares nothing would pass every case."""
    cases = cases_of(folder, family)
    if not cases and folder == WHOLE:
        pytest.skip(f"no reference vectors in {folder} (RFTLAB_GOLDEN names the folder)")
    assert sum(ADAPTERS[family](REAL, case) for case in cases) >= len(cases) > 0


def test_subset_is_compact():
    assert sum(path.stat().st_size for path in folder_of(SUBSET).glob("*.json")) < LARGEST
    assert {path.stem for path in folder_of(SUBSET).glob("*.json")} == set(FAMILIES) == set(ADAPTERS)


@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_reference_is_refused(family):
    """Every number that a case compares counts: shifted by 1e-6, the first one alone makes the check fail."""
    case = cases_of(SUBSET, family)[0]
    check_subset(REAL, family)
    with pytest.raises(AssertionError, match=case.name):
        ADAPTERS[family](REAL, case._replace(outputs=shifted(case.outputs, [1e-6])))


def shifted(value, left: list[float]):
    """The same nested outputs with the first number raised by left[0] relative to max(1, |x|), which is then used up."""
    if isinstance(value, dict):
        return {key: shifted(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [shifted(item, left) for item in value]
    return value + left.pop() * max(1.0, abs(value)) if left and value is not None else value
