"""Wrong variants, second part: slips in surrogates, penalties, masks, corrections and aggregation."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from rftlab import KL, Aggregation, Length, Ratio
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, SecondMoment, TopEntropy
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Topr, Vespo
from tests.support.estimators.vectors import REAL, Api, part_of
from tests.support.mutants.estimators import (
    anchored_at_base,
    changed,
    correction_on_kl,
    cut_in_two,
    dropping,
    every,
    kl_cov_uncorrected,
    normalised_by_micro_batch,
    put,
    swap,
    with_objective,
    wrap,
)

# --- surrogates ---


def clipped_slope_kept() -> Api:
    """Clipping limits the objective and leaves the slope as it is."""
    free = Clip(1.0, math.inf)

    def token(right, spec, *rest):
        out = right(spec, *rest)
        return (out[0], right(free, *rest)[1], *out[2:]) if isinstance(spec, Clip) else out

    def objective_and_weights(right, estimator, batch, logp):
        out = right(estimator, batch, logp)
        if not isinstance(estimator.surrogate, Clip):
            return out
        return out._replace(weight=right(replace(estimator, surrogate=free), batch, logp).weight)

    return wrap(surrogate=token, objective_and_weights=objective_and_weights)()


def slope_beyond_bounds() -> Api:
    """The ratio is held within its bounds, and its slope goes on."""

    def token(right, spec, ratio, advantage, logp, log_ratio):
        value, slope, is_clipped, is_dual = right(spec, ratio, advantage, logp, log_ratio)
        return value, value if isinstance(spec, Clip) and not is_clipped and not is_dual else slope, is_clipped, is_dual

    def objective_and_weights(right, estimator, batch, logp):
        out, x = right(estimator, batch, logp), logp - batch.old_logp
        beyond = (x < estimator.ratio.floor) | (x > estimator.ratio.cap)
        if not isinstance(estimator.surrogate, Clip) or estimator.ratio.level != "token" or not beyond.any():
            return out
        held = np.exp(np.clip(x, estimator.ratio.floor, estimator.ratio.cap))
        return out._replace(weight=out.weight + beyond * batch.share * batch.advantage * held)

    return wrap(surrogate=token, objective_and_weights=objective_and_weights)()


def through_fixed_ratio() -> Api:
    """CISPO lets the derivative through its ratio too."""

    def token(right, spec, ratio, advantage, logp, log_ratio):
        value, slope, *flags = right(spec, ratio, advantage, logp, log_ratio)
        return value, slope + value if isinstance(spec, Cispo) else slope, *flags

    def objective_and_weights(right, estimator, batch, logp):
        out = right(estimator, batch, logp)
        return out._replace(weight=out.weight * (1.0 + logp)) if isinstance(estimator.surrogate, Cispo) else out

    return wrap(surrogate=token, objective_and_weights=objective_and_weights)()


def pulled_away(right, estimator, batch, logp):
    """DRO pushes the policy away from the sampling policy."""
    out = right(estimator, batch, logp)
    if not isinstance(estimator.surrogate, Dro):
        return out
    free = right(replace(estimator, surrogate=Dro(0.0)), batch, logp)
    return out._replace(weight=2.0 * free.weight - out.weight, objective=2.0 * free.objective - out.objective)


def arithmetic(spec: GeometricMean) -> Clip:
    """The mean of the clipped ratios instead of their geometric mean."""
    return Clip(1.0 - math.exp(-spec.low), math.expm1(spec.high) if spec.high < 700 else math.inf)


# --- penalties, masks ---


def weight_of_penalty_fixed() -> Api:
    """A weighted penalty is not differentiated through its weight."""

    def objective_and_weights(right, estimator, batch, logp):
        out = right(estimator, batch, logp)
        if not estimator.kl.weighted or estimator.ratio.level != "token":
            return out
        free = KL(estimator.kl.kind, bounded=estimator.kl.bounded)
        values = np.array([REAL.kl_penalty(free, x, ref)[0] for x, ref in zip(logp, batch.ref_logp, strict=True)])
        x = logp - batch.old_logp
        inside = (x >= estimator.ratio.floor) & (x <= estimator.ratio.cap)
        return out._replace(weight=out.weight + inside * batch.kl_share * values * np.exp(np.where(inside, x, 0.0)))

    return wrap(objective_and_weights=objective_and_weights)()


def penalty_without_clamp_slope(right, spec, logp, ref_logp):
    value, slope = right(spec, logp, ref_logp)
    return value, 1.0 - math.exp(ref_logp - logp) if spec.kind == "k3" and not spec.straight_through else slope


def masked_with(change: Callable) -> Callable:
    """The mask is decided on change(batch), and put on the batch itself."""

    def wrapper(right, estimator, batch, logp, keys=None):
        found = right(estimator, change(batch), logp, keys)
        return batch._replace(share=found.share, kl_share=found.kl_share)

    return wrapper


def masks_penalty_too(right, estimator, batch, *args):
    found = right(estimator, batch, *args)
    return found._replace(kl_share=np.where((found.share == 0.0) & (batch.share != 0.0), 0.0, found.kl_share))


def drops_unpenalised(right, estimator, batch, *args):
    """KL-Cov drops tokens from the surrogate instead of from the penalty."""
    found = right(estimator, batch, *args)
    if not isinstance(estimator.mask, KLCov):
        return found
    return found._replace(share=np.where(found.kl_share == 0.0, 0.0, found.share), kl_share=batch.kl_share)


def clipped_may_be_drawn(right, estimator, *args):
    free = isinstance(estimator.surrogate, Clip)
    return right(replace(estimator, surrogate=Clip(1.0, math.inf)) if free else estimator, *args)


def drift_by_sum(right, estimator, batch, logp, keys=None):
    """Drift adds over a response instead of taking the mean."""
    if not isinstance(estimator.mask, Drift) or logp.size == 0:
        return right(estimator, batch, logp, keys)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(batch.row)) + 1, [logp.size]])
    parts = []
    for a, b in pairwise(edges):
        mask = Drift(estimator.mask.threshold / (b - a))
        parts.append(right(replace(estimator, mask=mask), part_of(batch, a, b), logp[a:b]).share)
    return batch._replace(share=np.concatenate(parts))


def put_on(kind: type, **fields) -> Callable[[], Api]:
    """Fields of one kind of surrogate."""
    return every(kind, lambda spec: changed(spec, **fields))


def negated_keys(right, estimator, batch, logp, keys=None):
    return right(estimator, batch, logp, None if keys is None else -keys)


def batching(wrapper: Callable) -> Callable[[], Api]:
    return wrap(prepare=wrapper, batch_from_advantages=wrapper)


def masking(wrapper: Callable) -> Callable[[], Api]:
    return wrap(apply_mask=wrapper)


level, kind = partial(swap, "ratio", "level"), partial(swap, "aggregation", "kind")

# --- which checks refuse them ---

BOTH = "objectives pipeline"
TWINS = f"surrogates {BOTH}"
TOKENS = f"loss_vanilla {TWINS}"
KLS = f"kl_penalty kls {BOTH}"
SHARES = f"loss_vanilla agg_modes shares {BOTH}"
DPPO = "loss_dppo_tv loss_dppo_kl objectives"
CORRECTIONS = "corrections pipeline"

COUNTLESS = dict.fromkeys(("prepare", "batch_from_advantages", "shares"), dropping("n_tokens", "n_rows"))

MUTANTS: dict[str, tuple[Callable[[], Api], str]] = {
    "TOPR without truncation": (every(Topr, lambda s: Cispo(1.0, math.inf)), f"{TWINS} loss_of_2026"),
    "TOPR truncates what worked": (every(Topr, lambda s: Cispo(1.0, 0.0)), TWINS),
    "TOPR without ratios": (every(Topr, lambda s: Reinforce()), TWINS),
    # clip
    "clip low and high swapped": (
        every(Clip, lambda s: changed(s, low=min(s.high, 1.0), high=s.low)),
        f"{TOKENS} loss_gspo loss_clip_cov trl_loss",
    ),
    "clip ignored": (
        put_on(Clip, low=1.0, high=math.inf),
        f"{TOKENS} loss_gspo loss_clip_cov trl_loss",
    ),
    "clip limits the value alone": (clipped_slope_kept, f"{TOKENS} slopes"),
    "dual clip ignored": (put("surrogate", dual=math.inf), f"{TOKENS} trl_loss"),
    "dual clip always on": (every(Clip, lambda s: changed(s, dual=min(s.dual, 1.1))), f"{TWINS} loss_gspo trl_loss"),
    "dual-clipped not counted as clipped": (
        with_objective(lambda out, *_: out._replace(clipped=out.clipped - out.dual_clipped)),
        f"loss_vanilla {BOTH}",
    ),
    "REINFORCE for clip": (every(Clip, lambda s: Reinforce()), "loss_vanilla surrogates"),
    "slopes beyond the bounds": (slope_beyond_bounds, f"{TOKENS} slopes"),
    "bounds of the ratio ignored": (put("ratio", floor=-math.inf, cap=math.inf), f"{TWINS} loss_gspo"),
    "bounds of the ratio everywhere": (put("ratio", floor=-1.0, cap=1.0), f"{TOKENS} loss_kl_cov trl_loss"),
    "narrow bounds for responses": (
        every(Ratio, lambda s: changed(s, floor=-0.2, cap=0.2) if s.level != "token" else s),
        f"loss_gspo trl_loss {BOTH}",
    ),
    # the other surrogates
    "CISPO without a lower bound": (put_on(Cispo, low=1.0), f"loss_cispo {TWINS}"),
    "CISPO without an upper bound": (put_on(Cispo, high=math.inf), f"loss_cispo loss_dppo_tv {TWINS}"),
    "CISPO's clipped tokens stop": (every(Cispo, lambda s: Clip(s.low, s.high)), "loss_cispo surrogates"),
    "CISPO through its ratio": (through_fixed_ratio, f"loss_cispo loss_dppo_kl trl_loss {BOTH}"),
    "SAPO's tau swapped": (every(Sapo, lambda s: Sapo(s.tau_negative, s.tau_positive)), f"loss_sapo trl_loss {TWINS}"),
    "SAPO with twice the tau": (put_on(Sapo, tau_positive=2.0), f"loss_sapo {TWINS}"),
    "SAPO is unclipped": (every(Sapo, lambda s: Clip(1.0, math.inf)), "loss_sapo trl_loss surrogates"),
    "DRO without its pull": (put_on(Dro, beta=0.0), f"loss_dro {TWINS}"),
    "DRO with beta for beta/2": (every(Dro, lambda s: Dro(2 * s.beta)), f"loss_dro {TWINS}"),
    "DRO pulls away": (wrap(objective_and_weights=pulled_away), f"loss_dro {BOTH}"),
    "DRO always pulls": (every(Dro, lambda s: Dro(s.beta or 1.0)), TWINS),
    "GMPO's bounds swapped": (every(GeometricMean, lambda s: GeometricMean(s.high, s.low)), f"loss_geo_mean {BOTH}"),
    "GMPO without bounds": (put_on(GeometricMean, low=math.inf, high=math.inf), f"loss_geo_mean {BOTH}"),
    "GMPO always clips": (put_on(GeometricMean, low=0.01, high=0.01), f"loss_geo_mean {BOTH}"),
    "GMPO's mean is arithmetic": (every(GeometricMean, arithmetic), f"loss_geo_mean {BOTH}"),
    "VESPO's signs swapped": (
        every(Vespo, lambda s: Vespo(s.k_negative, s.lam_negative, s.k_positive, s.lam_positive)),
        f"trl_loss {TWINS}",
    ),
    "VESPO's k and lam swapped": (
        every(Vespo, lambda s: Vespo(s.lam_positive, s.k_positive, s.lam_negative, s.k_negative)),
        f"trl_loss {TWINS}",
    ),
    # levels of the ratio
    "ratio of the token for the response's": (level("sequence", "token"), f"trl_loss {BOTH}"),
    "ratio of the token for GSPO-token's": (level("sequence_token", "token"), f"loss_gspo {BOTH}"),
    "GSPO through its own token alone": (
        level("sequence", "sequence_token"),
        f"trl_loss {BOTH} slopes",
    ),
    "GSPO-token through all tokens": (level("sequence_token", "sequence"), f"loss_gspo {BOTH}"),
    "product for the mean": (level("sequence", "product"), f"trl_loss {BOTH}"),
    "mean for the product": (level("product", "sequence"), BOTH),
    # penalties
    "k1 for k3": (swap("kl", "kind", "k3", "k1"), f"{KLS} trl_loss"),
    "k2 for abs": (swap("kl", "kind", "abs", "k2"), f"{KLS} loss_kl_cov"),
    "k1 for k2": (swap("kl", "kind", "k2", "k1"), KLS),
    "abs for k1": (swap("kl", "kind", "k1", "abs"), f"{KLS} loss_vanilla"),
    "KL always in the loss": (put("kl", place="loss"), "kl_penalty pipeline"),
    "straight-through ignored": (put("kl", straight_through=False), KLS),
    "straight-through always": (put("kl", straight_through=True), f"{KLS} trl_loss slopes"),
    "slope of k3 beyond its bounds": (wrap(kl_penalty=penalty_without_clamp_slope), "kls"),
    "bounds of k3 ignored": (put("kl", bounded=False), KLS),
    "bounds of k3 everywhere": (put("kl", bounded=True), f"kls {BOTH}"),
    "weight of the penalty ignored": (put("kl", weighted=False), f"trl_loss {BOTH}"),
    "penalty always weighted": (put("kl", weighted=True), f"trl_loss {BOTH}"),
    "weight of the penalty fixed": (weight_of_penalty_fixed, f"trl_loss {BOTH} slopes"),
    "anchor is the base policy": (batching(anchored_at_base), BOTH),
    "length penalty ignored": (put("length", coef=0.0), "pipeline length_penalty"),
    "length penalty without a ramp": (put("length", buffer=0.01), "pipeline length_penalty"),
    "length penalty begins at the limit": (
        every(Length, lambda s: replace(s, limit=s.limit + s.buffer)),
        "pipeline length_penalty",
    ),
    # masks
    "mask ignored": (
        masking(lambda right, spec, batch, *_: batch),
        f"{DPPO} loss_clip_cov loss_kl_cov trl_loss",
    ),
    "mask of the other side": (
        masking(masked_with(lambda batch: batch._replace(advantage=-batch.advantage))),
        f"{DPPO} loss_kl_cov trl_loss",
    ),
    "mask before the update": (
        masking(masked_with(lambda batch: batch._replace(old_logp=batch.old_logp + 0.3))),
        f"{DPPO} trl_loss",
    ),
    "thresholds of the divergence swapped": (every(Divergence, lambda s: replace(s, low=s.high, high=s.low)), DPPO),
    "total variation for KL": (every(Divergence, lambda s: replace(s, measure="tv")), "loss_dppo_kl objectives"),
    "KL for total variation": (every(Divergence, lambda s: replace(s, measure="kl")), "loss_dppo_tv objectives"),
    "drift added up": (masking(drift_by_sum), "trl_loss objectives"),
    "tokens of least entropy": (
        every(TopEntropy, lambda s: replace(s, fraction=max(0.1, 1.0 - s.fraction))),
        "objectives",
    ),
    "second moment of half the size": (
        every(SecondMoment, lambda s: replace(s, threshold=0.5 * s.threshold)),
        "objectives loss_of_2026",
    ),
    "second moment of responses": (every(SecondMoment, lambda s: Drift(s.threshold)), "objectives"),
    "mask drops the penalty too": (masking(masks_penalty_too), "objectives"),
    "largest keys drawn": (masking(negated_keys), "loss_clip_cov objectives"),
    "clipped tokens may be drawn": (masking(clipped_may_be_drawn), "loss_clip_cov objectives"),
    "twice as many drawn": (
        every(ClipCov, lambda s: replace(s, fraction=min(1.0, 2 * s.fraction))),
        "loss_clip_cov objectives",
    ),
    "any covariance drawn": (every(ClipCov, lambda s: replace(s, low=-math.inf, high=math.inf)), "loss_clip_cov"),
    "twice as many penalised": (every(KLCov, lambda s: replace(s, fraction=min(1.0, 2 * s.fraction))), "loss_kl_cov"),
    "KL-Cov drops tokens": (masking(drops_unpenalised), "loss_kl_cov objectives"),
    # corrections
    "correction ignored": (
        batching(dropping("correction", "sampler_logp")),
        f"loss_vanilla loss_geo_mean loss_kl_cov {BOTH}",
    ),
    "correction on the KL too": (wrap(prepare=correction_on_kl), "pipeline"),
    "KL-Cov's penalty uncorrected": (
        batching(kl_cov_uncorrected),
        "loss_kl_cov objectives",
    ),
    "masked for truncated": (swap("correction", "kind", "truncate", "mask"), CORRECTIONS),
    "truncated for masked": (swap("correction", "kind", "mask", "truncate"), CORRECTIONS),
    "weights of tokens for responses": (swap("correction", "level", "sequence", "token"), CORRECTIONS),
    "weights of responses for tokens": (swap("correction", "level", "token", "sequence"), CORRECTIONS),
    "mean for the product of weights": (swap("correction", "level", "sequence", "geometric"), CORRECTIONS),
    "largest weight ignored": (put("correction", high=math.inf), CORRECTIONS),
    "smallest weight ignored": (put("correction", low=0.0), CORRECTIONS),
    "smallest weight too large": (put("correction", low=1.0), CORRECTIONS),
    "sampler taken for the trainer": (swap("correction", "kind", "ratio", "none"), "pipeline"),
    # aggregation and batches
    "normalised by the micro-batch": (
        wrap(objective_and_weights=normalised_by_micro_batch, **COUNTLESS),
        f"{SHARES} kl_penalty split prepared_apart",
    ),
    "counts of the optimiser batch ignored": (wrap(**COUNTLESS), f"{SHARES} trl_loss prepared_apart"),
    "responses cut in two": (wrap(objective_and_weights=cut_in_two), f"loss_gspo trl_loss {BOTH} split"),
    "token mean for response means": (
        kind("seq_mean_token_mean", "token_mean"),
        f"{SHARES} trl_loss",
    ),
    "token mean for response sums": (
        kind("seq_mean_token_sum", "token_mean", length=None),
        f"{SHARES} trl_loss",
    ),
    "token mean for micro-batch means": (
        kind("micro_batch_token_mean", "token_mean", micro_batch=None),
        f"shares {BOTH}",
    ),
    "token mean for prompt means": (
        kind("prompt_mean", "token_mean"),
        "prompt_means loss_of_2026",
    ),
    "micro-batches of one response more": (
        every(Aggregation, lambda s: replace(s, micro_batch=s.micro_batch and s.micro_batch + 1)),
        f"shares {BOTH} prepared_apart",
    ),
    "length ignored": (put("aggregation", length=None), f"{SHARES} trl_loss"),
    "count eps ignored": (put("aggregation", eps=0.0), f"{SHARES} loss_geo_mean"),
    "count eps always": (every(Aggregation, lambda s: replace(s, eps=s.eps or 1e-8)), f"{SHARES} trl_loss"),
    "empty responses counted": (put("aggregation", empty="count"), f"{SHARES} prepared_apart"),
    "empty responses skipped": (
        put("aggregation", empty="skip"),
        f"agg_modes loss_geo_mean shares {BOTH} prepared_apart",
    ),
}
