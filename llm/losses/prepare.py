"""Freeze: what does not change while the policy moves, and which tokens take part in an update; `rftlab.shared.prepare`
and `rftlab.shared.mask` for tensors."""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.layout import Layout, packed_on_cpu
from rftlab.shared.config.aggregation import MICRO_BATCH_TOKEN_MEAN, PROMPT_MEAN, Aggregation, aggregation_rule
from rftlab.shared.config.correction import GEOMETRIC, TOKEN, Correction, correction_rule
from rftlab.shared.config.mask import CLIP_COV, DIVERGENCE, UNMASKED, KLCov
from rftlab.shared.estimator import Estimator, Rule
from rftlab.shared.mask import mask_into
from rftlab.shared.plumbing.errors import check
from rftlab.shared.prepare import Batch

Count: TypeAlias = int | float | torch.Tensor | None


class FrozenBatch(NamedTuple):
    """Values that stay fixed while the policy moves; each entry broadcasts to the tokens."""

    advantage: torch.Tensor
    share: torch.Tensor
    """Share of the surrogate, times the importance correction."""
    kl_share: torch.Tensor
    """Share of the KL penalty, times its coefficient."""
    plain_share: torch.Tensor
    """Share of the entropy bonus: the aggregation's alone."""
    old_logp: torch.Tensor
    ref_logp: torch.Tensor


def _count(name: str, n: int | float | torch.Tensor) -> int | float | torch.Tensor:
    """The divisor of shares: 1 in place of 0, where no token shares anything. Raises UserError for what is no
    count."""
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
    """The aggregation's share of each token of a response; `rftlab.shared.aggregation.shares`."""
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
    """Importance weights of tokens or of their responses; `rftlab.shared.correction`."""
    rule, gap = correction_rule(spec), old_logp - sampler_logp
    if rule.level != TOKEN:
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
    """A frozen batch from advantages that broadcast to the tokens; all in the number type of `old_logp`."""
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
    """The batch without the tokens that the estimator's mask drops at `logp`. keys: random numbers of tokens, for
    ClipCov. A mask that looks at one token alone is computed where the tokens are, others on the CPU."""
    if rule.mask.kind == UNMASKED:
        return batch
    if rule.mask.kind == DIVERGENCE:
        dropped = formulas(logp.dtype).diverged(rule.mask, batch.advantage, logp, batch.old_logp)
        return batch._replace(share=torch.where(dropped, 0.0, batch.share))
    if keys is None:
        keys = torch.rand_like(logp) if rule.mask.kind == CLIP_COV else logp
    columns = [logp, keys, batch.advantage, batch.share, batch.kl_share, batch.old_logp]
    place, (logp_T, keys_T, advantage, share, kl_share, old_logp), _ = packed_on_cpu(layout, columns, [])
    row = np.repeat(np.arange(layout.n_rows), np.diff(place.starts))
    mask_into(rule, Batch(advantage, share, kl_share, old_logp, old_logp, row), logp_T, keys_T, share, kl_share)
    shares = (place.tensor(values, logp.dtype) for values in (share, kl_share))
    return batch._replace(**dict(zip(("share", "kl_share"), shares, strict=True)))
