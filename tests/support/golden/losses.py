"""Adapters of the reference vectors that hold losses of verl: value, derivative and metrics through the public
functions.

Losses are minimised and objectives are maximised, hence the minus signs. An adapter returns how many numbers it
compared.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rftlab import KL, Advantage, Aggregation, Estimator, Ratio
from rftlab.shared.cards import PRESETS
from rftlab.shared.config.mask import ClipCov, Divergence, KLCov, SecondMoment
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Topr
from rftlab.shared.objective import ObjectiveAndWeights
from rftlab.shared.prepare import Batch
from tests.support.estimators.vectors import Api, Case, Packed, close, no_kl, part_of, same

RAW = Advantage("none")
UNBOUNDED = Ratio(floor=-math.inf, cap=math.inf)
UNCLIPPED = Clip(low=1.0, high=math.inf)
VERSIONS = ("verl_0.9.1", "verl_0.8.0.dev", "fork_0.7.0.dev")


def aggregation_of(version: str, params: dict, width: int) -> Aggregation:
    """What a version of the source library calls `agg_mode`; `width` is the padded length of its rows."""
    fork = version == "fork_0.7.0.dev"
    empty, normed = "count" if fork else "skip", "seq_mean_token_sum" if version == "verl_0.9.1" else "token_sum"
    return {
        "token-mean": Aggregation("token_mean", eps=1e-8 if fork else 0.0),
        "token-sum": Aggregation("token_sum"),
        "seq-mean-token-sum": Aggregation("seq_mean_token_sum", empty=empty),
        "seq-mean-token-mean": Aggregation("seq_mean_token_mean", eps=0.0 if fork else 1e-8, empty=empty),
        "seq-mean-token-sum-norm": Aggregation(normed, length=params.get("loss_scale_factor") or width),
    }[params["agg_mode"]]


def counts(params: dict) -> dict:
    """Tokens and responses of the optimiser batch, where a case gives them."""
    return {"n_tokens": params.get("batch_num_tokens"), "n_rows": params.get("global_batch_size")}


class Tokens(NamedTuple):
    """The tokens of a case, packed."""

    rows: Packed
    advantage: np.ndarray
    old: np.ndarray
    new: np.ndarray
    correction: np.ndarray | None
    by_row: list[np.ndarray]
    """Advantages of each row."""


def tokens_of(case: Case) -> Tokens:
    rows, weights = Packed(case.inputs["mask"]), case.inputs.get("is_weights")
    advantage, old, new = (rows.pack(case.inputs[key]) for key in ("advantages", "old_log_prob", "log_prob"))
    by_row = np.split(advantage, rows.starts[1:-1])
    return Tokens(rows, advantage, old, new, None if weights is None else rows.pack(weights), by_row)


def frozen(api: Api, estimator: Estimator, tokens: Tokens, reference: np.ndarray | None, params: dict) -> Batch:
    """A batch by `batch_from_advantages`; where each row has one advantage, `prepare` gives the same with that as
    reward."""
    rest = {"correction": tokens.correction, **counts(params)}
    batch = api.batch_from_advantages(estimator, tokens.advantage, tokens.rows.starts, tokens.old, reference, **rest)
    if all(np.unique(row).size <= 1 for row in tokens.by_row):
        rewards = np.array([row[0] if row.size else 0.0 for row in tokens.by_row])
        columns = rewards, np.arange(rewards.size), tokens.rows.starts, tokens.old, reference
        prepared = api.prepare(estimator, *columns, **rest)
        for field in batch._fields:
            same(getattr(prepared, field), getattr(batch, field), f"{field} by prepare and by batch_from_advantages")
    return batch


def masked(api: Api, estimator: Estimator, batch: Batch, logp: np.ndarray, keys=None):
    """The masked batch, and which tokens the mask takes out of the surrogate and out of the penalty, whatever their
    shares are."""
    ones = np.ones_like(batch.share)
    found = api.apply_mask(estimator, batch._replace(share=ones, kl_share=ones), logp, keys)
    return api.apply_mask(estimator, batch, logp, keys), found.share == 0.0, found.kl_share == 0.0


def compare(case: Case, tokens: Tokens, found: ObjectiveAndWeights, **metrics) -> int:
    """Loss, derivative, and the metrics that a loss reports, which divide by the number of tokens plus 1e-8."""
    scale, total = case.params.get("dp_size") or 1, tokens.new.size + 1e-8
    metrics = {name: count / total for name, count in ({"approx_kl": -found.kl} | metrics).items()}
    metrics |= {"loss": -scale * found.objective, "grad_log_prob": -scale * tokens.rows.unpack(found.weight)}
    return sum(case.compared(name, value) for name, value in metrics.items())


def near(tokens: Tokens) -> np.ndarray:
    """The sampling policy, within +-20 of the policy."""
    return np.clip(tokens.old, tokens.new - 20.0, tokens.new + 20.0)


def check_loss(api: Api, case: Case, change: Callable[[dict], dict], bounded: bool = True) -> int:
    """A loss of token ratios; `change(params)` are the fields of its estimator. approx_kl is the mean of old - new,
    within +-20 where bounded.

    That is k1 against the sampling policy, at coefficient 0.
    """
    tokens = tokens_of(case)
    aggregation = {"aggregation": aggregation_of("verl_0.9.1", case.params, tokens.rows.width)}
    estimator = Estimator(RAW, kl=KL("k1", 0.0), **aggregation | change(case.params))
    batch = frozen(api, estimator, tokens, near(tokens) if bounded else tokens.old, case.params)
    found = api.objective_and_weights(estimator, batch, tokens.new)
    return compare(case, tokens, found, clip_frac=found.clipped, clip_frac_lower=found.dual_clipped)


def clip_of(params: dict) -> Clip:
    return Clip(params["clip_ratio_low"], params["clip_ratio_high"], params.get("clip_ratio_c") or math.inf)


def cispo(params: dict) -> dict:
    return {"surrogate": Cispo(params["clip_ratio_low"], params["clip_ratio_high"])}


def gspo(params: dict) -> dict:
    """The derivative goes through a token's own log-probability alone; the mean of the log-ratio is held at 10 or
    less."""
    clip = Clip(params["clip_ratio_low"], params["clip_ratio_high"])
    return {"surrogate": clip, "ratio": Ratio("sequence_token", floor=-math.inf, cap=10.0)}


def sapo(params: dict) -> dict:
    """Whatever the mode that is asked for, token means are averaged."""
    surrogate = Sapo(params["tau_pos"], params["tau_neg"])
    return {"surrogate": surrogate, "aggregation": Aggregation("seq_mean_token_mean", eps=1e-8)}


def check_dppo(api: Api, case: Case, measure: str) -> int:
    """Ratios up to c; tokens whose probability moved too far are masked. clip_frac counts those, clip_frac_lower
    capped ratios among the others."""
    tokens, params = tokens_of(case), case.params
    surrogate = Cispo(low=1.0, high=params["clip_ratio_c"] - 1.0)
    aggregation = aggregation_of("verl_0.9.1", params, tokens.rows.width)
    mask = Divergence(measure, params["clip_ratio_low"], params["clip_ratio_high"])
    estimator = Estimator(RAW, surrogate, KL("k1", 0.0), aggregation, mask=mask)
    plain = frozen(api, estimator, tokens, near(tokens), params)
    batch, dropped, _ = masked(api, estimator, plain, tokens.new)
    kept = Batch(*(column[~dropped] for column in batch))
    capped = api.objective_and_weights(estimator, kept, tokens.new[~dropped]).clipped
    found = api.objective_and_weights(estimator, batch, tokens.new)
    return compare(case, tokens, found, clip_frac=dropped.sum(), clip_frac_lower=capped)


def check_geo_mean(api: Api, case: Case) -> int:
    """A response has one objective, and one correction, the geometric mean of its tokens'. All rows count; the mode
    is ignored."""
    tokens, params = tokens_of(case), case.params
    aggregation = Aggregation("seq_mean_token_mean", eps=1e-8, empty="count")
    surrogate = GeometricMean(params["clip_ratio_low"], params["clip_ratio_high"])
    estimator = Estimator(RAW, surrogate, KL("k1", 0.0), aggregation)
    if tokens.correction is not None:
        logs = np.split(np.log(tokens.correction + 1e-10), tokens.rows.starts[1:-1])
        means = [math.exp(row.sum() / (row.size + 1e-8)) for row in logs]
        tokens = tokens._replace(correction=tokens.rows.per_token(means))
    batch = frozen(api, estimator, tokens, tokens.old, {})
    found = api.objective_and_weights(estimator, batch, tokens.new)
    return compare(case._replace(params={}), tokens, found, clip_frac=found.clipped, clip_frac_lower=found.dual_clipped)


def candidates_of(case: Case, tokens: Tokens) -> np.ndarray:
    """Tokens, in row-major order, that Clip-Cov may draw: not clipped, covariance between the bounds. Written here
    from the convention."""
    params, ratio, sign = case.params, np.exp(tokens.new - tokens.old), np.sign(tokens.advantage)
    high, low = ratio > 1.0 + params["clip_ratio_high"], ratio < 1.0 - params["clip_ratio_low"]
    clipped = ((sign > 0) & high) | ((sign < 0) & low)
    centred = [values - values.sum() / (values.size + 1e-8) for values in (tokens.advantage, tokens.new)]
    covariance = centred[0] * centred[1]
    return np.flatnonzero(~clipped & (covariance > params["clip_cov_lb"]) & (covariance < params["clip_cov_ub"]))


def check_clip_cov(api: Api, case: Case) -> int:
    """The recorded permutation of the candidates becomes their keys; the recorded tokens must come out."""
    tokens, params = tokens_of(case), case.params
    clip, aggregation = (
        clip_of(params | {"clip_ratio_c": None}),
        aggregation_of("verl_0.9.1", params, tokens.rows.width),
    )
    mask = ClipCov(params["clip_cov_ratio"], params["clip_cov_lb"], params["clip_cov_ub"])
    estimator = Estimator(RAW, clip, KL("k1", 0.0), aggregation, UNBOUNDED, mask)
    candidates, keys = candidates_of(case, tokens), np.full(tokens.new.size, -1.0)
    same(candidates.size, case.outputs["num_candidates"], f"{case.name}: candidates")
    for place, candidate in enumerate(case.outputs["perm"] or []):
        keys[candidates[candidate]] = place
    plain = frozen(api, estimator, tokens, tokens.old, params)
    batch, dropped, _ = masked(api, estimator, plain, tokens.new, keys)
    same(selected_of(tokens, dropped), sorted(case.outputs["selected"]), f"{case.name}: selected")
    same(dropped.sum(), min(case.outputs["clip_num"], candidates.size), f"{case.name}: clip_num")
    return compare(case, tokens, api.objective_and_weights(estimator, batch, tokens.new), clip_frac=dropped.sum())


def selected_of(tokens: Tokens, chosen: np.ndarray) -> list[list[int]]:
    """[row, column] of each chosen token, in row-major order."""
    return np.argwhere(tokens.rows.unpack(chosen) != 0.0).tolist()


def check_kl_cov(api: Api, case: Case) -> int:
    """A r without any clip, and |logp - old_logp| on the tokens with the largest covariance alone; the importance
    weights multiply both."""
    tokens, params = tokens_of(case), case.params
    penalty = KL("abs", params["ppo_kl_coef"], anchor="old")
    aggregation = aggregation_of("verl_0.9.1", params, tokens.rows.width)
    estimator = Estimator(RAW, UNCLIPPED, penalty, aggregation, UNBOUNDED, KLCov(params["kl_cov_ratio"]))
    plain = frozen(api, estimator, tokens, None, params)
    batch, _, unpenalised = masked(api, estimator, plain, tokens.new)
    same(selected_of(tokens, ~unpenalised), sorted(case.outputs["selected"]), f"{case.name}: selected")
    found = api.objective_and_weights(estimator, batch, tokens.new)
    return compare(case, tokens, found._replace(kl=-found.kl))


KL_NAMES = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


def check_kl_penalty(api: Api, case: Case) -> int:
    """Value and derivative of every token, as penalty in the loss and, the value alone, in the reward."""
    name, new, ref = case.params["kind"], np.array(case.inputs["log_prob"]), np.array(case.inputs["ref_log_prob"])
    spec = KL(KL_NAMES[name.removesuffix("+")], 1.0, "loss", straight_through=name.endswith("+"))
    estimator = Estimator(RAW, Reinforce(), spec, Aggregation("token_sum"))
    batch = api.prepare(estimator, np.zeros(new.size), np.arange(new.size), np.arange(new.size + 1), new, ref)
    tokens = [api.objective_and_weights(estimator, part_of(batch, t, t + 1), new[t : t + 1]) for t in range(new.size)]
    compared = case.compared("value", [token.kl for token in tokens])
    compared += case.compared("value", [-token.objective for token in tokens])
    compared += case.compared("grad_log_prob", -api.objective_and_weights(estimator, batch, new).weight)
    in_reward = Estimator(kl=KL(spec.kind, 1.0, "reward"))
    shaped = api.shaped_rewards(in_reward, np.zeros(new.size), np.arange(new.size + 1), new, ref)
    return compared + case.compared("value", -shaped)


def check_agg_modes(api: Api, case: Case) -> int:
    """The loss of a token is the log-probability of a reinforce surrogate with advantage 1, so J is the aggregated
    loss and w its derivative."""
    rows = Packed(case.inputs["mask"])
    loss, n, params = rows.pack(case.inputs["loss_mat"]), rows.n_rows, case.params
    compared = 0
    for version in VERSIONS:
        expected = case.outputs.get(version) or {}
        estimator = no_kl(RAW, Reinforce(), aggregation_of(version, params, rows.width))
        by_sum = version == "verl_0.8.0.dev" and params["agg_mode"] == "seq-mean-token-sum-norm"
        scale = 1 if by_sum else params.get("dp_size") or 1
        batch = api.prepare(estimator, np.ones(n), np.arange(n), rows.starts, loss, **counts(params))
        found = api.objective_and_weights(estimator, batch, loss)
        part = api.shares(estimator.aggregation, rows.starts, **counts(params))
        same(found.weight, part, f"{case.name}: shares of {version}")
        values = {"loss": scale * found.objective, "grad": scale * rows.unpack(found.weight)}
        compared += sum(close(value, expected.get(key), f"{case.name}: {key}") for key, value in values.items())
    return compared


def check_micro_batches(api: Api, cases: Sequence[Case], size: int) -> int:
    """Micro-batches of `size` rows one after the other give the mean of the fork's token means of each."""
    rows = [Packed(case.inputs["mask"]) for case in cases]
    loss = np.concatenate([each.pack(case.inputs["loss_mat"]) for each, case in zip(rows, cases, strict=True)])
    starts = np.concatenate([[0], np.cumsum([n for each in rows for n in np.diff(each.starts)])])
    estimator = no_kl(RAW, Reinforce(), Aggregation("micro_batch_token_mean", eps=1e-8, micro_batch=size))
    n = starts.size - 1
    batch = api.prepare(estimator, np.ones(n), np.arange(n), starts, loss)
    expected = np.mean([case.outputs["fork_0.7.0.dev"]["loss"] for case in cases])
    return close(api.objective_and_weights(estimator, batch, loss).objective, expected, "mean of the fork's losses")


def check_of_2026(api: Api, case: Case) -> int:
    """A mask, a surrogate, a default and an aggregation of Trinity-RFT, ROLL, prime-rl and SkyRL; the first sorts in
    float32."""
    preset, fields = PRESETS["prime_rl"], {"aggregation": Aggregation("token_mean"), "surrogate": UNCLIPPED}
    fields |= {
        "_compute_m2po_mask": {"mask": SecondMoment(case.params.get("m2_threshold", 0.0))},
        "_compute_topr_loss": {"surrogate": Topr()},
        "default_loss_fn": {name: getattr(preset, name) for name in ("surrogate", "kl", "ratio", "mask")},
        "prompt_mean": {"aggregation": Aggregation("prompt_mean")},
    }[case.params["function"]]
    estimator, tokens = Estimator(RAW, **fields), tokens_of(case)
    columns = tokens.advantage, tokens.rows.starts, tokens.old
    batch = api.batch_from_advantages(estimator, *columns, group=np.array(case.inputs["group"]))
    found = api.objective_and_weights(estimator, api.apply_mask(estimator, batch, tokens.new), tokens.new)
    compared = case.compared("loss", -found.objective)
    return compared + case.compared("grad_log_prob", -tokens.rows.unpack(found.weight))


ADAPTERS: dict[str, Callable[[Api, Case], int]] = {
    "loss_of_2026": check_of_2026,
    "loss_vanilla": lambda api, case: check_loss(api, case, lambda params: {"surrogate": clip_of(params)}),
    "loss_cispo": lambda api, case: check_loss(api, case, cispo),
    "loss_sapo": lambda api, case: check_loss(api, case, sapo),
    "loss_gspo": lambda api, case: check_loss(api, case, gspo, bounded=False),
    "loss_dro": lambda api, case: check_loss(api, case, lambda p: {"surrogate": Dro(p["dro_beta"])}, bounded=False),
    "loss_gpg": lambda api, case: check_loss(api, case, lambda params: {"surrogate": Reinforce()}),
    "loss_dppo_tv": lambda api, case: check_dppo(api, case, "tv"),
    "loss_dppo_kl": lambda api, case: check_dppo(api, case, "kl"),
    "loss_geo_mean": check_geo_mean,
    "loss_clip_cov": check_clip_cov,
    "loss_kl_cov": check_kl_cov,
    "kl_penalty": check_kl_penalty,
    "agg_modes": check_agg_modes,
}
