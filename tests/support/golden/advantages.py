"""Adapters of the reference vectors that hold advantages: one case of a family as calls of the package.

An adapter returns how many numbers it compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from rftlab.shared.config.advantage import Advantage
from tests.support.estimators.vectors import Api, Case, Packed, close, no_kl, same, starts_of

GRPO = Advantage("group_mean", "group_std", ddof=1, eps=1e-6, singleton="raw")
GDPO = replace(GRPO, whiten="tokens", combine="advantages")
CENTRED = Advantage("group_mean", singleton="raw")
FLOAT32 = 1e-5
"""Tolerance where the source computes in float32."""


def trained(api: Api, spec: Advantage, rewards, group, pool, lengths=None) -> np.ndarray:
    """Advantages (R,) by the public path; the tokens of a prepared batch carry the same numbers."""
    rewards, group = np.asarray(rewards, dtype=np.float64), np.asarray(group, dtype=np.int64)
    starts = starts_of(np.ones(rewards.size) if lengths is None else lengths)
    batch = api.prepare(no_kl(spec), rewards, group, starts, np.full(starts[-1], -1.0), pool=pool)
    out = api.advantages(spec, rewards, group, pool, starts=starts)
    same(batch.advantage, np.repeat(out, np.diff(starts)), "the advantage of a response on each of its tokens")
    return out


def indices(*labels: Sequence) -> dict:
    """0, 1, 2, ... for labels in the order in which they appear."""
    return {label: i for i, label in enumerate(dict.fromkeys(label for part in labels for label in part))}


def check_groups(api: Api, spec: Advantage, case: Case, tolerance: float = 1e-9) -> int:
    """One reward per response, any integer labels, maybe support rollouts."""
    rewards, group = case.inputs["rewards"], case.inputs["group"]
    extra_rewards, extra_group = case.inputs.get("extra_rewards") or [], case.inputs.get("extra_group") or []
    index = indices(group, extra_group)
    trained_group, support_group = ([index[label] for label in labels] for labels in (group, extra_group))
    support = [(extra_rewards, support_group)] if extra_rewards else []
    pool = api.make_pool(len(index), (rewards, trained_group), *support)
    actual = trained(api, spec, rewards, trained_group, pool, case.inputs.get("lengths"))
    return case.compared("advantage", actual, tolerance)


def is_noise(case: Case) -> bool:
    """Real rewards that are all equal in a group: the source's float32 mean is off, and its eps of 1e-6 makes 0.1
    out of that."""
    return {"kind real", "has_all_equal_group"} <= case.tags


def check_vectorized(api: Api, spec: Advantage, case: Case) -> int:
    return 0 if is_noise(case) else check_groups(api, spec, case, FLOAT32)


def check_several_rewards(api: Api, case: Case) -> int:
    """GDPO: z-scores of each component of the reward, their weighted sum, whitened over the tokens."""
    if is_noise(case):
        return 0
    components, weights = np.array(case.inputs["reward_components"]), case.params.get("weights")
    index = indices(case.inputs["group"])
    group, lengths = np.array([index[label] for label in case.inputs["group"]]), case.inputs["lengths"]
    weights = np.ones(len(components)) if weights is None else np.array(weights)
    actual = api.combined_advantages(GDPO, components, weights, group, starts=starts_of(lengths))
    return case.compared("advantage", actual, FLOAT32)


# --- replay windows ---


def check_replay(api: Api, spec: Advantage, case: Case) -> int:
    """Windows that are given ("direct"), or that fill step by step ("stream")."""
    return (check_stream if "steps" in case.inputs else check_direct)(api, spec, case)


def check_direct(api: Api, spec: Advantage, case: Case) -> int:
    given, rewards = case.inputs["windows"], case.inputs.get("rewards")
    rewards = np.zeros(len(given)) if rewards is None else rewards
    label = np.repeat(np.arange(len(given)), [len(window) for window in given])
    pool = api.make_pool(len(given), (np.concatenate(given), label))
    windows = api.empty_windows(len(given), max(len(window) for window in given))
    api.push(windows, label, np.concatenate(given))
    pushed = api.window_pool(windows, np.arange(len(given)))
    same(pushed.rewards, pool.rewards, f"{case.name}: rewards that went through a window")
    same(pushed.starts, pool.starts, f"{case.name}: sizes of the windows")
    group = np.arange(len(rewards)) // (case.params.get("responses_per_window") or len(rewards) // len(given))
    return case.compared("advantage", trained(api, spec, rewards, group, pushed, case.inputs.get("lengths")))


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
            same(
                pool.rewards[pool.starts[g] : pool.starts[g + 1]],
                np.array(window, dtype=np.float64),
                f"{case.name}: window {g} after step {i}",
            )
        actual = trained(api, spec, step["rewards"], np.repeat(np.arange(contexts.size), each), pool)
        compared += close(actual, expected.get("advantage"), f"{case.name}: advantage of step {i}")
    return compared


# --- advantages that vary by token ---


def check_tokens(api: Api, case: Case, spec: Advantage, baseline=None) -> int:
    """Rewards at tokens; advantages by the public path, and the returns, which are the advantages before baseline
    and whitening: rewards to go, or with a critic its advantages plus its values."""
    rows, n = Packed(case.inputs["mask"]), len(case.inputs["mask"])
    rewards, given = rows.pack(case.inputs["token_rewards"]), baseline and baseline(rows)
    columns = np.zeros(n), np.arange(n), rows.starts, np.full(rewards.size, -1.0)
    batch = api.prepare(no_kl(spec), *columns, token_rewards=rewards, baseline=given)
    critic, values = (spec.baseline, [given]) if spec.baseline == "value" else ("none", [])
    plain = Advantage(critic, gamma=spec.gamma, lam=spec.lam)
    returns = sum(values, api.token_advantages(plain, rewards, rows.starts, *values))
    found = {"advantage": batch.advantage, "returns": returns}
    outputs = {name: list(chain(*case.outputs[f"{name}_tokens"])) for name in found}
    return sum(case._replace(outputs=outputs).compared(name, values) for name, values in found.items())


def check_reinforce_plus_plus(api: Api, case: Case) -> int:
    return check_tokens(api, case, Advantage("none", whiten="tokens", gamma=case.params["gamma"]))


def check_gae(api: Api, case: Case) -> int:
    spec = Advantage("value", whiten="tokens", gamma=case.params["gamma"], lam=case.params["lam"])
    return check_tokens(api, case, spec, lambda rows: rows.pack(case.inputs["values"]))


def check_remax(api: Api, case: Case) -> int:
    return check_tokens(api, case, Advantage("greedy"), lambda rows: np.array(case.inputs["baseline"]))


def check_optimal(api: Api, case: Case, by_column: bool) -> int:
    """Positions are columns of the padded rows, or places among the valid tokens."""

    def baseline(rows: Packed) -> np.ndarray:
        index = indices(case.inputs["group"])
        correction = case.inputs.get("is_weights")
        returns = api.token_advantages(Advantage("none"), rows.pack(case.inputs["token_rewards"]), rows.starts)
        columns = rows.pack(np.broadcast_to(np.arange(rows.width), rows.mask.shape)).astype(np.int64)
        return api.optimal_token_baseline(
            returns,
            rows.pack(case.inputs["old_log_prob"]),
            rows.pack(case.inputs["sum_pi_squared"]),
            rows.starts,
            np.array([index[label] for label in case.inputs["group"]]),
            correction=None if correction is None else rows.pack(correction),
            position=columns if by_column else None,
            zero_tail=bool(case.params.get("handle_zero_tail")),
        )

    return check_tokens(api, case, Advantage("optimal"), baseline)


def by_groups(spec: Advantage, check: Callable = check_groups) -> Callable[[Api, Case], int]:
    return lambda api, case: check(api, spec, case)


OF_2026 = {
    "compute_maxrl_advantage": Advantage("group_mean", "group_mean"),
    "GRPOAdvantageEstimator": Advantage("leave_one_out", "others_std", singleton="zero"),
    "Normalization": Advantage("group_mean", "group_std", "tokens"),
}
"""Of SkyRL, NeMo-RL and AReaL, whose eps of whitening is 0 here."""


def check_of_2026(api: Api, case: Case) -> int:
    return check_groups(api, OF_2026[case.params["function"]], case, FLOAT32)


ADAPTERS: dict[str, Callable[[Api, Case], int]] = {
    "adv_of_2026": check_of_2026,
    "adv_grpo": by_groups(GRPO),
    "adv_grpo_nostd": by_groups(CENTRED),
    "adv_grpo_vectorized": by_groups(GRPO, check_vectorized),
    "adv_grpo_vectorized_nostd": by_groups(CENTRED, check_vectorized),
    "adv_grpo_passk": by_groups(Advantage("second_best", "group_std", ddof=1, eps=1e-6, singleton="error")),
    "adv_grpo_passk_nostd": by_groups(Advantage("second_best", singleton="error")),
    "adv_rloo": by_groups(Advantage("leave_one_out", singleton="raw")),
    "adv_rloo_vectorized": by_groups(Advantage("leave_one_out", singleton="zero")),
    "adv_opo": by_groups(Advantage("length_weighted", singleton="raw")),
    "adv_gpg": by_groups(Advantage("group_mean", "nonzero", singleton="raw")),
    "adv_reinforce_plus_plus_baseline": by_groups(Advantage("group_mean", whiten="tokens", singleton="raw")),
    "adv_gdpo_single": by_groups(Advantage("group_mean", "group_std", "tokens", ddof=1, eps=1e-6, singleton="raw")),
    "adv_gdpo_multi": check_several_rewards,
    "adv_arpo": by_groups(Advantage("none", credit="set_mean")),
    "adv_banditpo": by_groups(Advantage("none", credit="set_mean"), check_replay),
    "adv_onerpo": by_groups(GRPO),
    "adv_onerpo_nostd": by_groups(CENTRED),
    "adv_asyttgrpo": by_groups(GRPO, check_replay),
    "adv_asyttgrpo_nostd": by_groups(CENTRED, check_replay),
    "adv_reinforce_plus_plus": check_reinforce_plus_plus,
    "adv_gae": check_gae,
    "adv_remax": check_remax,
    "adv_optimal_token_baseline": lambda api, case: check_optimal(api, case, by_column=True),
    "adv_tir_optimal_token_baseline": lambda api, case: check_optimal(api, case, by_column=False),
}
