"""Translate a design into options of TRL's GRPOConfig, and back.

Names, defaults and formulas were read in TRL 1.16: trl/trainer/grpo_config.py and grpo_trainer.py (`_compute_loss`,
advantages). Every option that a design decides is set, because TRL has other defaults: a learning rate that falls
linearly to 0, loss_type dapo, and weights for what vLLM sampled.
"""

import math
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Drift, TopEntropy, Unmasked
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Sapo, Vespo
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check
from rftlab.studies.readers.designs.trl import DEFAULTS, LIBRARY
from rftlab.studies.readers.designs.values import Reader

EPS = 1e-4
"""Number that TRL adds to the deviation of rewards."""
_SCALES = {"group_std": "group", "batch_std": "batch", "none": "none"}
_FIELDS: dict[type, tuple[str, ...]] = {
    Sapo: ("sapo_temperature_pos", "sapo_temperature_neg"),
    Vespo: ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
}
"""Options for the fields of each surrogate, in the order of the fields."""
_LOSSES = {
    (Clip, "token_mean"): "dapo",
    (Clip, "seq_mean_token_mean"): "grpo",
    (Clip, "seq_mean_token_sum"): "dr_grpo",
    (Cispo, "token_mean"): "cispo",
    (Sapo, "seq_mean_token_mean"): "sapo",
    (Vespo, "token_mean"): "vespo",
}


def estimator_options(estimator: Estimator) -> dict[str, Any]:
    """Return the options of GRPOConfig that set an estimator. Raises UserError for what TRL does not have."""
    options = {
        "scale_rewards": _scale(estimator),
        **_loss(estimator),
        "beta": _beta(estimator),
        "mask_truncated_completions": False,
        "top_entropy_quantile": estimator.mask.fraction if isinstance(estimator.mask, TopEntropy) else 1.0,
        "entropy_coef": estimator.entropy,
    }
    if estimator.entropy_target != 0:
        options |= {"use_adaptive_entropy": True, "entropy_target": estimator.entropy_target}
        options["entropy_coef_delta"] = estimator.entropy_step
    options |= _correction(estimator.correction)
    if options["beta"]:
        options["use_bias_correction_kl"] = estimator.kl.weighted
    if isinstance(estimator.mask, Drift):
        options["off_policy_mask_threshold"] = estimator.mask.threshold
    known = isinstance(estimator.mask, Unmasked | Drift | TopEntropy)
    check(known, _lacks(f"mask {type(estimator.mask).__name__}", "none, Drift, TopEntropy"))
    check(estimator.length.coef == 0, _lacks("length.coef above 0", "0, and a reward function of your own"))
    return options


def differences(estimator: Estimator, limit: int, minibatches: int) -> tuple[str, ...]:
    """Return a sentence on everything that TRL computes differently. limit: largest number of tokens in a response."""
    spec, aggregation, kl = estimator.advantage, estimator.aggregation, estimator.kl
    total = aggregation.kind == "seq_mean_token_sum" and estimator.ratio.level == "token"
    held = 1.0 if aggregation.length is None else aggregation.length
    scaled = spec.scale != "none"
    differs = {
        f"TRL adds {EPS:g} to the deviation of rewards, the design {spec.eps:g}": scaled and spec.eps != EPS,
        "TRL divides by the deviation of a sample (ddof 1), the design by that of the population": (
            scaled and spec.ddof == 0
        ),
        f"dr_grpo divides token sums by {limit}, the design by {held:g}: a factor that Adam does not see": (
            total and held != limit
        ),
        "TRL averages over the tokens of the whole generation batch, the design over those of an update": (
            aggregation.kind == "token_mean" and minibatches > 1
        ),
        f"TRL adds nothing to token counts, the design {aggregation.eps:g}": aggregation.eps > 0,
        "TRL does not hold k3 at 10 or less": _beta(estimator) > 0 and kl.bounded,
        "TRL's entropy bonus is a mean over tokens, whatever the aggregation": (
            estimator.has_bonus and aggregation.kind != "token_mean"
        ),
        "TRL's mask of responses looks at vLLM's log-probabilities": isinstance(estimator.mask, Drift),
        "TRL takes the quantile of entropies in each micro-batch": isinstance(estimator.mask, TopEntropy),
    }
    return tuple(text for text, holds in differs.items() if holds)


def _lacks(what: str, allowed: str) -> str:
    return f"TRL's GRPO has no {what}; allowed: {allowed}"


def _scale(estimator: Estimator) -> str:
    spec = estimator.advantage
    own = type(spec) is Advantage and spec.credit == "reward" and spec.gamma == 1
    check(own and spec.baseline == "group_mean", _lacks(f"baseline {spec.baseline} of {spec.credit}", "group_mean"))
    check(spec.whiten == "none", _lacks(f"whitening by {spec.whiten}", "whiten none"))
    check(spec.scale in _SCALES, _lacks(f"scale {spec.scale}", ", ".join(_SCALES)))
    return _SCALES[spec.scale]


def _loss(estimator: Estimator) -> dict[str, Any]:
    surrogate, level, kind = estimator.surrogate, estimator.ratio.level, estimator.aggregation.kind
    name = _LOSSES.get((type(surrogate), kind))
    check(name is not None, _lacks(f"{type(surrogate).__name__} with aggregation {kind}", "a loss_type of TRL's"))
    if name == "dr_grpo" and level == "sequence" and estimator.aggregation.length is None:
        name = "luspo"
    levels = ("product",) if name == "vespo" else ("token", "sequence") if isinstance(surrogate, Clip) else ("token",)
    check(level in levels, _lacks(f"ratio of level {level} in {name}", ", ".join(levels)))
    check(name != "dr_grpo" or level == "token", _lacks("token sums by a length with a sequence's ratio", "no length"))
    usual = Ratio("product", floor=math.log(1e-8)) if level == "product" else Ratio(level)
    check(estimator.ratio == usual, _lacks("other bounds of the log-ratio", "the defaults"))
    options: dict[str, Any] = {"loss_type": name}
    if name != "vespo":
        options["importance_sampling_level"] = level
    if isinstance(surrogate, Clip):
        fits = surrogate.dual > 1 + surrogate.high and math.isfinite(surrogate.high)
        check(
            fits, _lacks(f"dual clip {surrogate.dual:g} at an upper range of {surrogate.high:g}", "more than 1 + high")
        )
        dual = {"delta": surrogate.dual} if math.isfinite(surrogate.dual) else {}
        return options | {"epsilon": surrogate.low, "epsilon_high": surrogate.high, **dual}
    if isinstance(surrogate, Cispo):
        check(surrogate.low >= 1, _lacks(f"lower clip {surrogate.low:g} of Cispo", "1, which is none"))
        return options | {"epsilon_high": 1 + surrogate.high}
    return options | dict(zip(_FIELDS[type(surrogate)], astuple(surrogate), strict=True))


def _beta(estimator: Estimator) -> float:
    """Return the coefficient of TRL's k3 penalty; 0 loads no reference model."""
    kl = estimator.kl
    if kl.kind == "none" or kl.coef == 0:
        return 0.0
    fits = kl.kind == "k3" and kl.place == "loss" and kl.anchor == "base" and not kl.straight_through
    check(fits, _lacks(f"KL {kl.kind} in the {kl.place}, anchor {kl.anchor}", "k3 in the loss, anchor base"))
    return kl.coef


def _correction(correction: Correction) -> dict[str, Any]:
    """Return the options that weight what vLLM sampled, which TRL does by default."""
    if correction.kind == "none":
        return {"vllm_importance_sampling_correction": False}
    fits = correction.kind in ("truncate", "mask") and correction.level in ("token", "sequence")
    check(fits, _lacks(f"correction {correction.kind} by {correction.level}", "truncate or mask by token or sequence"))
    low = {"vllm_importance_sampling_clip_min": correction.low} if correction.kind == "mask" else {}
    return {
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": f"{correction.level}_{correction.kind}",
        "vllm_importance_sampling_clip_max": correction.high,
        **low,
    }


def read_trl_estimator(config: Reader) -> Estimator:
    """Return the estimator of TRL's arguments, with TRL's defaults for those that are not stated. Raises UserError
    where it is unknown, or rftlab does not have it."""

    def option(name: str, kind: str = "real") -> Any:
        if not config.stated(name) and DEFAULTS[name] is None:
            return None
        value = config.stated_or(kind, name, DEFAULTS[name], LIBRARY)
        check(value is not None, f"{name} is not known; allowed: a configuration that says it")
        return value

    scale = {"true": "group", "false": "none"}.get(
        option("scale_rewards", "word").lower(), option("scale_rewards", "word")
    )
    name, level = option("loss_type", "word"), option("importance_sampling_level", "word")
    kind = {"bnpo": "token_mean", "luspo": "seq_mean_token_sum"} | {v: k[1] for k, v in _LOSSES.items()}
    check(name in kind, f"loss_type = {name}; allowed: {', '.join(kind)}")
    check(scale in _SCALES.values(), f"scale_rewards = {scale}; allowed: {', '.join(_SCALES.values())}")
    length = float(option("max_completion_length", "count")) if name == "dr_grpo" else None
    beta, threshold = option("beta"), option("off_policy_mask_threshold")
    quantile, moving = option("top_entropy_quantile"), {}
    if option("use_adaptive_entropy", "truth"):
        low, high = option("entropy_coef_min"), option("entropy_coef_max")
        bounds = f"entropy_coef_min = {low:g} and entropy_coef_max = {high:g} with use_adaptive_entropy"
        check((low, high) == (0, 1), f"{bounds}; allowed: 0 and 1")
        moving = {"entropy_target": option("entropy_target"), "entropy_step": option("entropy_coef_delta")}
    check(
        quantile == 1 or threshold is None,
        "top_entropy_quantile and off_policy_mask_threshold are two masks; allowed: one of them",
    )
    return Estimator(
        Advantage("group_mean", {v: k for k, v in _SCALES.items()}[scale], eps=EPS),  # type: ignore[arg-type]
        _surrogate(name, option),
        KL("k3", beta, weighted=option("use_bias_correction_kl", "truth"), bounded=False) if beta else KL(),
        Aggregation(kind[name], length),  # type: ignore[arg-type]
        Ratio("product", floor=math.log(1e-8)) if name == "vespo" else Ratio(level),
        Drift(threshold) if threshold is not None else TopEntropy(float(quantile)) if quantile < 1 else Unmasked(),
        _read_correction(option) if name != "vespo" else Correction(),
        entropy=option("entropy_coef"),
        **moving,
    )


def _surrogate(name: str, option: Callable[..., Any]) -> Clip | Cispo | Sapo | Vespo:
    high = option("epsilon_high")
    if name == "cispo":
        check(high is not None and high > 1, "cispo needs epsilon_high above 1; allowed: that")
        return Cispo(1.0, high - 1)
    if name in ("sapo", "vespo"):
        kind = Sapo if name == "sapo" else Vespo
        return kind(*map(option, _FIELDS[kind]))
    low, dual = option("epsilon"), option("delta")
    return Clip(low, low if high is None else high, math.inf if dual is None else dual)


def _read_correction(option: Callable[..., Any]) -> Correction:
    if not option("use_vllm", "truth") or not option("vllm_importance_sampling_correction", "truth"):
        return Correction()
    level, _, kind = option("vllm_importance_sampling_mode", "word").partition("_")
    low, high = option("vllm_importance_sampling_clip_min"), option("vllm_importance_sampling_clip_max")
    own = kind in ("truncate", "mask") and level in ("token", "sequence") and high is not None
    check(own, f"vllm_importance_sampling_mode = {level}_{kind}; allowed: token or sequence, truncate or mask, a bound")
    return Correction(kind, level, high=high, low=(low or 0.0) if kind == "mask" else min(Correction().low, high))
