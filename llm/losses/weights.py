"""Compute the weights of a batch on tensors: its frozen values, the tokens that take part in an update, the objective
and its derivative, which is the weight of each token on its score.

The functions correspond to those of `rftlab.shared.prepare`, `rftlab.shared.mask` and `rftlab.shared.objective`.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.layout import Layout, packed_on_cpu
from rftlab.shared.config.aggregation import MICRO_BATCH_TOKEN_MEAN, PROMPT_MEAN, Aggregation, aggregation_rule
from rftlab.shared.config.correction import GEOMETRIC, Correction, correction_rule
from rftlab.shared.config.correction import TOKEN as EACH_TOKEN
from rftlab.shared.config.kl import NONE
from rftlab.shared.config.mask import CLIP_COV, DIVERGENCE, UNMASKED, KLCov
from rftlab.shared.config.ratio import PRODUCT, SEQUENCE_TOKEN, TOKEN, TOKEN_LIMIT
from rftlab.shared.config.surrogate import CLIP, CUSTOM, GEOMETRIC_MEAN
from rftlab.shared.custom.functions import surrogate_at
from rftlab.shared.estimator import Estimator, Rule
from rftlab.shared.mask import mask_into
from rftlab.shared.plumbing.errors import check
from rftlab.shared.prepare import Batch

Count: TypeAlias = int | float | torch.Tensor | None


class FrozenBatch(NamedTuple):
    """Values that stay fixed while the policy is updated; each entry broadcasts to the tokens."""

    advantage: torch.Tensor
    share: torch.Tensor
    """Share of a token's surrogate, times the importance correction."""
    kl_share: torch.Tensor
    """Share of a token's KL penalty, times its coefficient."""
    plain_share: torch.Tensor
    """Share of the entropy bonus, that of the aggregation without correction."""
    old_logp: torch.Tensor
    ref_logp: torch.Tensor


def _count(name: str, n: int | float | torch.Tensor) -> int | float | torch.Tensor:
    """Return the divisor of shares, with 1 in the place of 0. Raises UserError for values that are no count."""
    if isinstance(n, torch.Tensor):
        check(n.ndim == 0, f"{name} {tuple(n.shape)}; allowed: one number")
        return torch.where(n == 0, 1, n)
    check(isinstance(n, int | float) and 0 <= n < math.inf, f"{name} = {n!r}; allowed: 0 or more, finite")
    return n or 1


def token_shares(
    spec: Aggregation,
    layout: Layout,
    like: torch.Tensor,
    n_tokens: Count,
    n_rows: Count,
    group: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the aggregation's share of each token of a response, as `rftlab.shared.aggregation.shares` does."""
    rule, lengths = aggregation_rule(spec), layout.lengths.to(like.dtype)
    if n_tokens is None:
        n_tokens = lengths.sum()
    near, counted = lengths, (lengths >= 0 if rule.count_empty else lengths > 0).to(like.dtype)
    if rule.kind == PROMPT_MEAN:
        check(group is not None, "this estimator needs group (aggregation.kind prompt_mean), a label for each response")
        assert group is not None
        same = (group[:, None] == group).to(like.dtype)  # a prompt counts once, as one part of each of its responses
        near, counted = same @ lengths, (counted / (same @ counted).clamp(min=1))
    if n_rows is None:
        n_rows = layout.n_rows if rule.count_empty and rule.kind != PROMPT_MEAN else counted.sum().round()
    n_tokens, n_rows = _count("n_tokens", n_tokens), _count("n_rows", n_rows)
    if rule.kind == MICRO_BATCH_TOKEN_MEAN:
        part = torch.arange(layout.n_rows, device=lengths.device) // rule.micro_batch
        near = torch.zeros_like(lengths).index_add(0, part, lengths)[part]
    share = formulas(like.dtype).response_share(rule, lengths, near, n_tokens, n_rows)
    return layout.spread(torch.where(lengths > 0, share * torch.ones_like(lengths), 0.0))


def token_corrections(
    spec: Correction, layout: Layout, old_logp: torch.Tensor, sampler_logp: torch.Tensor
) -> torch.Tensor | float:
    """Return importance weights of tokens or of their responses, as `rftlab.shared.correction` does."""
    rule, gap = correction_rule(spec), old_logp - sampler_logp
    if rule.level != EACH_TOKEN:
        sums = layout.rows(gap)
        gap = layout.spread(sums / layout.divisor if rule.level == GEOMETRIC else sums)
    return formulas(gap.dtype).importance_weight(rule, gap)


def freeze(
    estimator: Estimator,
    layout: Layout,
    advantage: torch.Tensor,
    old_logp: torch.Tensor,
    ref_logp: torch.Tensor | None = None,
    *,
    sampler_logp: torch.Tensor | None = None,
    correction: torch.Tensor | float | None = None,
    group: torch.Tensor | None = None,
    n_tokens: Count = None,
    n_rows: Count = None,
) -> FrozenBatch:
    """Return a frozen batch from advantages that broadcast to the tokens, all in the number type of `old_logp`."""
    kl = estimator.kl
    check(
        sampler_logp is None or correction is None, "sampler_logp and correction are both given; allowed: one of them"
    )
    plain = token_shares(estimator.aggregation, layout, old_logp, n_tokens, n_rows, group)
    reference = old_logp if ref_logp is None or kl.anchor == "old" else ref_logp
    if sampler_logp is not None and estimator.correction.kind == "ratio":
        old_logp = sampler_logp
    elif sampler_logp is not None:
        correction = token_corrections(estimator.correction, layout, old_logp, sampler_logp)
    share = plain if correction is None else plain * correction
    kl_share = (kl.coef if kl.place == "loss" else 0.0) * (share if isinstance(estimator.mask, KLCov) else plain)
    return FrozenBatch(advantage.to(old_logp.dtype), share, kl_share, plain, old_logp, reference)


def masked(
    rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor, keys: torch.Tensor | None
) -> FrozenBatch:
    """Return the batch with shares of 0 for the tokens that the mask drops at `logp`. keys: random numbers of tokens
    for ClipCov. A mask of single tokens is computed on their device, others on the CPU."""
    if rule.mask.kind == UNMASKED:
        return batch
    if rule.mask.kind == DIVERGENCE:
        dropped = formulas(logp.dtype).diverged(rule.mask, batch.advantage, logp, batch.old_logp)
        return batch._replace(share=torch.where(dropped, 0.0, batch.share))
    if keys is None:
        keys = torch.rand_like(logp) if rule.mask.kind == CLIP_COV else logp
    columns = [logp, keys, batch.advantage, batch.share, batch.kl_share, batch.old_logp]
    starts, (logp_T, keys_T, advantage, share, kl_share, old_logp), _, unpacked = packed_on_cpu(layout, columns, [])
    row = np.repeat(np.arange(layout.n_rows), np.diff(starts))
    mask_into(rule, Batch(advantage, share, kl_share, old_logp, old_logp, row), logp_T, keys_T, share, kl_share)
    return batch._replace(share=unpacked(share, logp.dtype), kl_share=unpacked(kl_share, logp.dtype))


Flag: TypeAlias = torch.Tensor | bool


class TensorWeights(NamedTuple):
    """The objective of a batch at the current policy, and the values from which it is computed; each entry broadcasts
    to the tokens."""

    objective: torch.Tensor
    """The objective J, a scalar."""
    weight: torch.Tensor
    """dJ/dlogp of each token."""
    clipped: Flag
    """Whether the clip is active."""
    dual_clipped: Flag
    kl: Any
    """Values of the KL penalty; 0 without one."""


def _total(layout: Layout, share: torch.Tensor, value) -> torch.Tensor:
    """Return sum_t share_t value_t. Shares of responses multiply the sums over their tokens."""
    if share.ndim == 2 and share.shape[1] < layout.shown.shape[1]:
        return (layout.rows(value) * share[:, 0]).sum()
    return layout.rows(share * value).sum()


def _penalised(rule: Rule, layout: Layout, batch: FrozenBatch, logp, objective, weight) -> tuple[Any, Any, Any]:
    """Return objective and weights minus a KL penalty without the ratio as a factor, and the penalty's values."""
    if rule.kl.kind == NONE:
        return objective, weight, 0.0
    kl, slope = formulas(logp.dtype).kl_penalty(rule.kl, logp, batch.ref_logp)
    return objective - _total(layout, batch.kl_share, kl), weight - batch.kl_share * slope, kl


def _custom(rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor) -> list[torch.Tensor]:
    """Return value and derivative of each token by a custom surrogate, which runs on the CPU."""
    tokens = (part.expand(logp.shape)[layout.shown] for part in (batch.advantage, logp, batch.old_logp))
    weighed = surrogate_at(rule.surrogate.custom, *(part.to("cpu", torch.float64).numpy() for part in tokens))
    out = [torch.zeros_like(logp) for _ in weighed]
    for place, values in zip(out, weighed, strict=True):
        place[layout.shown] = torch.from_numpy(values).to(logp)
    return out


def _by_token(rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor) -> TensorWeights:
    """Compute weights where each token has its own ratio."""
    f, log_ratio = formulas(logp.dtype), logp - batch.old_logp
    if rule.surrogate.kind == CUSTOM:
        (value, slope), clipped, dual = _custom(rule, layout, batch, logp), False, False
    else:
        value, slope, clipped, dual = f.surrogate(rule.surrogate, rule.ratio, batch.advantage, logp, log_ratio)
    objective, weight, kl = _total(layout, batch.share, value), batch.share * slope, 0.0
    if rule.kl.kind != NONE:
        kl, kl_slope = f.weighted_penalty(rule, log_ratio, logp, batch.ref_logp)
        objective, weight = objective - _total(layout, batch.kl_share, kl), weight - batch.kl_share * kl_slope
    return TensorWeights(objective, weight, clipped, dual, kl)


def _bounds(rule: Rule, advantage: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-ratios between which a token under Clip has a gradient. Where A >= 0 the upper clip is the upper
    bound; else the lower clip is the lower bound and the dual clip the upper one. The ratio's own bounds always
    hold."""
    clip, ratio = rule.surrogate, rule.ratio
    rises = advantage >= 0
    fallen = math.log1p(-clip.low) if clip.low < 1 else -math.inf
    falls = (max(ratio.floor, fallen), min(ratio.cap, math.log(clip.dual)))
    low, high = (
        torch.where(rises, torch.full_like(advantage, up), down)
        for up, down in zip((ratio.floor, min(ratio.cap, math.log1p(clip.high))), falls, strict=True)
    )
    return low, high


def _clip(rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor) -> TensorWeights:
    """Compute `_by_token` for Clip without its flags, the most frequent case, in a third of the time: min(A r, A
    clip(r)) is A times a ratio that is clipped to two bounds, which the sign of A chooses."""
    log_ratio = logp - batch.old_logp
    held = torch.clamp(log_ratio, *_bounds(rule, batch.advantage))
    ratio, factor = layout.clean(held.exp()), batch.advantage * batch.share
    objective = _total(layout, factor, ratio)
    weight, kl = torch.where(held == log_ratio, factor * ratio, 0.0), 0.0
    objective, weight, kl = _penalised(rule, layout, batch, logp, objective, weight)
    return TensorWeights(objective, weight, False, False, kl)


def _log_ratio(rule: Rule, layout: Layout, gap: torch.Tensor) -> torch.Tensor:
    """Return the log-ratio of each response at its tokens."""
    formulas(gap.dtype).check_level(rule.ratio.level)
    if rule.ratio.level == PRODUCT:
        return layout.spread(layout.rows(gap.clamp(-TOKEN_LIMIT, TOKEN_LIMIT)))
    return layout.spread(layout.rows(gap) / layout.divisor)


def _by_response(rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor) -> TensorWeights:
    """Compute weights where the tokens of a response share a ratio; derivatives through it go to all of them."""
    f, gap, share = formulas(logp.dtype), logp - batch.old_logp, batch.share
    alone = rule.ratio.level == SEQUENCE_TOKEN
    log_ratio = _log_ratio(rule, layout, gap)
    value, slope, clipped, dual = f.surrogate(rule.surrogate, rule.ratio, batch.advantage, logp, log_ratio)
    spreads = f.through_ratio(rule.surrogate.kind) and not alone
    common = layout.rows(share * slope) if spreads else None
    objective, weight = _total(layout, share, value), torch.zeros_like(share) if spreads else share * slope
    kl: Any = 0.0
    if rule.kl.kind != NONE and not rule.kl.weighted:
        objective, weight, kl = _penalised(rule, layout, batch, logp, objective, weight)
    elif rule.kl.kind != NONE:
        kl, kl_slope = f.kl_penalty(rule.kl, logp, batch.ref_logp)
        ratio = f.ratio_at(rule.ratio, log_ratio)
        held = (log_ratio < rule.ratio.floor) | (log_ratio > rule.ratio.cap)
        kl, kl_slope = kl * ratio, kl_slope * ratio
        through = torch.where(held, 0.0, kl)
        if alone:
            kl_slope = kl_slope + through
        else:
            lost = layout.rows(batch.kl_share * through)
            common = -lost if common is None else common - lost
        objective, weight = objective - _total(layout, batch.kl_share, kl), weight - batch.kl_share * kl_slope
    if common is not None:
        # A product clips each token's log-ratio, and a token beyond the limit has no part in its derivative.
        each = layout.spread(common if rule.ratio.level == PRODUCT else common / layout.divisor)
        weight = weight + (torch.where(gap.abs() > TOKEN_LIMIT, 0.0, each) if rule.ratio.level == PRODUCT else each)
    return TensorWeights(objective, weight, clipped, dual, kl)


def _by_geometric_mean(rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor) -> TensorWeights:
    """Compute weights for the geometric mean of clipped token ratios (GMPO, 2507.20673, eq. 5); the second flag marks
    tokens clipped from below."""
    gap, side = logp - batch.old_logp, torch.sign(batch.advantage)
    length = layout.lengths.to(gap.dtype) + rule.aggregation.eps
    held = gap.clamp(-rule.surrogate.low, rule.surrogate.high)
    inside = (side * gap <= side * held) & (side != 0)
    total = layout.rows(side * torch.minimum(side * gap, side * held))
    credit = layout.rows(batch.share * batch.advantage)
    mean_ratio = (total / length).exp()
    empty = layout.lengths == 0
    objective = torch.where(empty, 0.0, credit * mean_ratio).sum()
    weight = torch.where(inside, layout.spread(torch.where(empty, 0.0, mean_ratio * credit / length)), 0.0)
    objective, weight, kl = _penalised(rule, layout, batch, logp, objective, weight)
    moved = gap != held
    return TensorWeights(objective, weight, moved & (side > 0), moved & (side < 0), kl)


def tensor_weights(
    rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor, flags: bool = True
) -> TensorWeights:
    """Return J and dJ/dlogp at log-probabilities in the number type of the batch; hidden tokens have weight 0. flags:
    whether to compute those of Clip too."""
    if rule.ratio.level == TOKEN and rule.surrogate.kind == CLIP and not rule.kl.weighted and not flags:
        weighed = _clip(rule, layout, batch, logp)
        return weighed if rule.kl.kind == NONE else weighed._replace(weight=layout.clean(weighed.weight))
    if rule.surrogate.kind == GEOMETRIC_MEAN:
        weighed = _by_geometric_mean(rule, layout, batch, logp)
    elif rule.ratio.level == TOKEN:
        weighed = _by_token(rule, layout, batch, logp)
    else:
        weighed = _by_response(rule, layout, batch, logp)
    return weighed._replace(weight=layout.clean(weighed.weight))
