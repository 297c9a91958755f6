"""Masks: shares of 0 for tokens that take no part in an update; `rftlab.shared.mask` for tensors."""

import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.layout import Layout, wide
from rftlab.llm.losses.prepare import FrozenBatch
from rftlab.shared.config.mask import CLIP_COV, DIVERGENCE, DRIFT, KL_COV, UNMASKED, MaskRule
from rftlab.shared.estimator import Rule
from rftlab.shared.mask import COV_EPS
from rftlab.shared.plumbing.errors import check


def _covariance(layout: Layout, batch: FrozenBatch, logp: torch.Tensor, eps: float) -> torch.Tensor:
    """(A - mean)(logp - mean) of each token."""
    count = layout.lengths.sum().to(logp.dtype) + eps
    logp = layout.clean(logp)
    advantage = layout.clean(batch.advantage + 0.0 * logp)
    return (advantage - advantage.sum() / count) * (logp - logp.sum() / count)


def _first(layout: Layout, keys: torch.Tensor, mask: MaskRule) -> torch.Tensor:
    """Whether a token's key is among the smallest: a fraction of all tokens, at least one."""
    order = torch.argsort(keys.flatten(), stable=True)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))
    most = (layout.lengths.sum().to(wide(keys.device)) * mask.fraction).floor().clamp(min=1)
    return (rank < most).reshape(keys.shape)


def masked(
    rule: Rule, layout: Layout, batch: FrozenBatch, logp: torch.Tensor, keys: torch.Tensor | None
) -> FrozenBatch:
    """The batch without the tokens that the estimator's mask drops at `logp`. keys: random numbers of tokens, for
    ClipCov."""
    mask, f = rule.mask, formulas(logp.dtype)
    if mask.kind == UNMASKED:
        return batch
    if mask.kind == DIVERGENCE:
        dropped = f.diverged(mask, batch.advantage, logp, batch.old_logp)
    elif mask.kind == DRIFT:
        drift = layout.rows(batch.old_logp - logp) / layout.divisor
        dropped = (batch.advantage < 0) & layout.spread(drift > mask.threshold)
    elif mask.kind == CLIP_COV:
        gap = logp - batch.old_logp
        clipped = f.surrogate(rule.surrogate, rule.ratio, batch.advantage, logp, gap)[2]
        covariance = _covariance(layout, batch, logp, COV_EPS)
        candidate = (covariance > mask.low) & (covariance < mask.high) & layout.shown
        candidate = candidate & torch.logical_not(torch.as_tensor(clipped, device=logp.device))
        keys = torch.rand_like(covariance) if keys is None else keys.to(covariance)
        dropped = candidate & _first(layout, torch.where(candidate, keys, torch.inf), mask)
    else:
        check(mask.kind == KL_COV, "mask is of a kind that no kernel computes")
        covariance = torch.where(layout.shown, _covariance(layout, batch, logp, 0.0), -torch.inf)
        return batch._replace(kl_share=torch.where(_first(layout, -covariance, mask), batch.kl_share, 0.0))
    return batch._replace(share=torch.where(dropped, 0.0, batch.share))
