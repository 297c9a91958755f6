"""Adapters of the reference vectors of TRL's GRPO trainer: losses with derivatives and metrics, and advantages.

An adapter returns how many numbers it compared.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rftlab import KL, Advantage, Aggregation, Estimator, Ratio
from rftlab.shared.config.mask import Drift, Unmasked
from rftlab.shared.config.surrogate import Cispo, Clip, Sapo, Surrogate, Vespo
from tests.support.estimators.vectors import Api, Case, Packed, no_kl, part_of

FLOAT32 = 1e-6
"""Tolerance of metrics, which are reduced in float32."""
RAW = Advantage("none")
PLAIN = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


# --- losses ---


def two_sided(low: float, high: float, delta: float | None) -> Clip:
    """min(min(r, delta) A, clip(r, 1-low, 1+high) A): delta caps the ratio for both signs, where the clip's own
    branch does not bind."""
    return Clip(low, high) if delta is None else Clip(low, min(high, delta - 1.0), max(delta, 1.0 + high))


def surrogate_of(params: dict) -> Surrogate:
    kind = params["loss_type"]
    if kind in PLAIN:
        return two_sided(params["epsilon"], params["epsilon_high"], params["delta"])
    if kind == "cispo":
        return Cispo(low=1.0, high=params["epsilon_high"] - 1.0)
    if kind == "sapo":
        return Sapo(params["tau_pos"], params["tau_neg"])
    return Vespo(params["k_pos"], max(params["lambda_pos"], 1e-4), params["k_neg"], max(params["lambda_neg"], 1e-4))


def unbounded(params: dict) -> Ratio:
    """The ratio of the token or the response; no bounds."""
    return Ratio(params["is_level"], floor=-math.inf, cap=math.inf)


def ratio_at(params: dict) -> Ratio:
    """What the surrogate looks at: vespo takes a product over the response."""
    return Ratio("product", floor=math.log(1e-8), cap=20.0) if params["loss_type"] == "vespo" else unbounded(params)


def aggregation_of(params: dict, n_rows: int, n_tokens: int) -> tuple[Aggregation, dict]:
    """The aggregation, and the counts of an optimiser batch of `grad_accum` such batches."""
    kind, batches = params["loss_type"], params["grad_accum"]
    counts = {"n_rows": n_rows * batches}
    if kind in ("grpo", "sapo"):
        return Aggregation("seq_mean_token_mean", empty="count"), counts
    if kind == "luspo":
        return Aggregation("seq_mean_token_sum", empty="count"), counts
    if kind == "dr_grpo":
        return Aggregation("seq_mean_token_sum", length=params["max_completion_length"], empty="count"), counts
    if kind == "bnpo":
        return Aggregation("token_mean"), {"n_tokens": max(n_tokens, 1) * batches}
    return Aggregation("token_sum", length=max(params["num_items"], 1) * batches / params["steps_per_generation"]), {}


def estimator_of(params: dict, aggregation: Aggregation) -> Estimator:
    threshold, beta = params["off_policy_mask_threshold"], params["beta"]
    kl = KL("k3", beta, weighted=params["use_bias_correction_kl"], bounded=False) if beta > 0 else KL("none")
    mask = Unmasked() if threshold is None else Drift(threshold)
    return Estimator(RAW, surrogate_of(params), kl, aggregation, ratio_at(params), mask)


def parts_of(params: dict, estimator: Estimator, rewards: np.ndarray) -> list[tuple[Estimator, np.ndarray]]:
    """Estimators and rewards whose objectives add up to the loss: vespo's penalty is weighted by another ratio than
    its surrogate."""
    if estimator.ratio.level != "product" or not estimator.kl.weighted:
        return [(estimator, rewards)]
    penalty = replace(estimator, surrogate=Clip(), ratio=unbounded(params))
    return [(replace(estimator, kl=KL("none")), rewards), (penalty, np.zeros_like(rewards))]


def check_loss(api: Api, case: Case) -> int:
    """Loss, derivative and metrics of one batch."""
    params, rows = case.params, Packed(case.inputs["mask"])
    old, new = (rows.pack(case.inputs[key]) for key in ("old_log_prob", "log_prob"))
    ref = None if case.inputs["ref_log_prob"] is None else rows.pack(case.inputs["ref_log_prob"])
    aggregation, counts = aggregation_of(params, rows.n_rows, new.size)
    estimator, rewards = estimator_of(params, aggregation), np.array(case.inputs["advantages"])
    parts = []
    for part, credit in parts_of(params, estimator, rewards):
        batch = api.prepare(part, credit, np.arange(rows.n_rows), rows.starts, old, ref, **counts)
        parts.append(api.objective_and_weights(part, api.apply_mask(part, batch, new), new))
    compared = case.compared("loss", -sum(part.objective for part in parts))
    compared += case.compared("grad_log_prob", -rows.unpack(sum(part.weight for part in parts)))
    metrics = clip_metrics(api, params, rows, rewards, old, new) | {"kl_ref": parts[-1].kl / max(new.size, 1)}
    metrics["phi_mean"] = phi_mean(api, estimator, rows, rewards, old, new) if params["loss_type"] == "vespo" else None
    for name, value in metrics.items():
        compared += case.compared(name, value, FLOAT32)
    return compared


def clip_metrics(api: Api, params: dict, rows: Packed, rewards: np.ndarray, old: np.ndarray, new: np.ndarray) -> dict:
    """Parts of tokens (of rows, where rows share a ratio) that are clipped; a ratio that delta capped below 1 + high
    does not count."""
    surrogate = surrogate_of(params)
    if params["loss_type"] in PLAIN:
        capped = params["delta"] is not None and params["delta"] <= 1.0 + params["epsilon_high"]
        surrogate = Clip(params["epsilon"], math.inf if capped else params["epsilon_high"])
    estimator = no_kl(RAW, surrogate, Aggregation("token_sum"), ratio=ratio_at(params))
    batch = api.prepare(estimator, rewards, np.arange(rows.n_rows), rows.starts, old)
    parts = ((part_of(batch, a, b), new[a:b]) for a, b in pairwise(rows.starts))
    clipped = [api.objective_and_weights(estimator, *part).clipped for part in parts]
    clipped, sizes = np.array(clipped), np.maximum(rows.lengths, 1)
    if params["is_level"] == "sequence":
        clipped, sizes = clipped > 0, np.ones(rows.n_rows)
    low, high = clipped * (rewards < 0), clipped * (rewards > 0)
    if params["loss_type"] == "cispo":
        return {"clip_frac": high.sum() / sizes.sum()}
    means = {"clip_low_mean": low.sum(), "clip_high_mean": high.sum(), "clip_frac": (low + high).sum()}
    ends = {"clip_low_min": (low / sizes).min(), "clip_high_max": (high / sizes).max()}
    return {name: count / sizes.sum() for name, count in means.items()} | ends


def phi_mean(api: Api, estimator: Estimator, rows: Packed, rewards: np.ndarray, old, new) -> float:
    """Mean over rows of the detached weight, 1 in an empty row: the derivative where each advantage is its sign and
    each share 1."""
    sign = np.where(rewards >= 0, 1.0, -1.0)
    plain = replace(estimator, kl=KL("none"), mask=Unmasked(), aggregation=Aggregation("token_sum"))
    batch = api.prepare(plain, sign, np.arange(rows.n_rows), rows.starts, old)
    phi = api.objective_and_weights(plain, batch, new).weight * rows.per_token(sign)
    return float(np.mean([phi[a] if b > a else 1.0 for a, b in pairwise(rows.starts)]))


# --- advantages ---

SCALES = {"group": "group_std", "batch": "batch_std", "none": "none"}


def centred(api: Api, scale: str, rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Group-centred advantages (n,); 0 where the reward is missing (nan), and those rewards are in no mean and no
    deviation."""
    known, out = ~np.isnan(rewards), np.zeros(rewards.size)
    spec, columns = Advantage("group_mean", scale, ddof=1, eps=1e-4, singleton="zero"), (rewards[known], group[known])
    out[known] = api.advantages(spec, *columns, api.make_pool(int(group.max()) + 1, columns))
    return out


def check_advantage(api: Api, case: Case) -> int:
    """Several reward functions: summed and then centred and scaled, or each made a z-score, summed, and whitened
    over the responses."""
    params, rewards = case.params, np.array(case.inputs["rewards"], dtype=np.float64)
    weights, group = np.array(params["weights"]), np.arange(len(rewards)) // params["num_generations"]
    known = ~np.isnan(rewards).all(1)
    if params["aggregation"] == "sum_then_normalize":
        total = np.where(known, np.nansum(rewards * weights, axis=1), np.nan)
        advantage = centred(api, SCALES[params["scale_rewards"]], total, group)
    else:
        total = weights @ [centred(api, "group_std", column, group) for column in rewards.T]
        advantage, spec = np.zeros(len(rewards)), Advantage(whiten="responses", ddof=1, eps=1e-4)
        advantage[known] = api.whiten(spec, total[known], np.ones(known.sum()))
    return case.compared("advantage", advantage)


ADAPTERS: dict[str, Callable[[Api, Case], int]] = {"trl_loss": check_loss, "trl_adv": check_advantage}
