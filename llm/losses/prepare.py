"""Freeze: what does not change while the policy moves, found from rewards; `rftlab.shared.prepare` for tensors."""

import math
from typing import NamedTuple, TypeAlias

import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.groups import groups_of, response_advantages, whitened
from rftlab.llm.losses.layout import Layout
from rftlab.shared.config.advantage import BY_TOKENS, Advantage
from rftlab.shared.config.aggregation import (
    MICRO_BATCH_TOKEN_MEAN,
    SEQ_MEAN_TOKEN_SUM,
    TOKEN_MEAN,
    TOKEN_SUM,
    Aggregation,
    aggregation_rule,
)
from rftlab.shared.config.correction import GEOMETRIC, LOG_LIMIT, MASK, TOKEN, TRUNCATE, Correction, correction_rule
from rftlab.shared.config.kl import NONE
from rftlab.shared.config.mask import KLCov
from rftlab.shared.errors import check
from rftlab.shared.estimator import Estimator, rule_of

Count: TypeAlias = int | float | torch.Tensor | None
PER_RESPONSE = ("greedy", "moving_average")
"""Baselines that a response has one of, wherever rewards lie."""


class FrozenBatch(NamedTuple):
    """What stays fixed while the policy moves; each entry broadcasts to the tokens."""

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
    """What shares are divided by: 1 in place of 0, where no token shares anything. Raises UserError for what is no
    count."""
    if isinstance(n, torch.Tensor):
        check(n.ndim == 0, f"{name} {tuple(n.shape)}; allowed: one number")
        return torch.where(n == 0, 1, n)
    check(isinstance(n, int | float) and 0 <= n < math.inf, f"{name} = {n!r}; allowed: 0 or more, finite")
    return n or 1


def shares_of(spec: Aggregation, layout: Layout, like: torch.Tensor, n_tokens: Count, n_rows: Count) -> torch.Tensor:
    """The aggregation's share of each token of a response; `rftlab.shared.aggregation.shares`."""
    rule, lengths = aggregation_rule(spec), layout.lengths.to(like.dtype)
    if n_tokens is None:
        n_tokens = lengths.sum()
    if n_rows is None:
        n_rows = layout.n_rows if rule.count_empty else (lengths > 0).to(like.dtype).sum()
    n_tokens, n_rows = _count("n_tokens", n_tokens), _count("n_rows", n_rows)
    if rule.kind == TOKEN_MEAN:
        share = torch.ones_like(lengths) / (n_tokens + rule.eps)
    elif rule.kind == TOKEN_SUM:
        share = torch.full_like(lengths, 1.0 / rule.length)
    elif rule.kind == SEQ_MEAN_TOKEN_SUM:
        share = torch.ones_like(lengths) / (n_rows * rule.length)
    elif rule.kind == MICRO_BATCH_TOKEN_MEAN:
        part = torch.arange(layout.n_rows, device=lengths.device) // rule.micro_batch
        tokens = torch.zeros_like(lengths).index_add(0, part, lengths)[part]
        share = torch.where(lengths > 0, 1.0 / (-(-n_rows // rule.micro_batch) * (tokens + rule.eps)), 0.0)
    else:
        share = torch.where(lengths > 0, 1.0 / (n_rows * (lengths + rule.eps)), 0.0)
    return layout.spread(share)


def corrections_of(
    spec: Correction, layout: Layout, old_logp: torch.Tensor, sampler_logp: torch.Tensor
) -> torch.Tensor | None:
    """Importance weights of tokens or of their responses; None where all are 1."""
    rule, gap = correction_rule(spec), old_logp - sampler_logp
    if rule.kind not in (TRUNCATE, MASK):
        return None
    if rule.level != TOKEN:
        sums = layout.rows(gap)
        gap = layout.spread(sums / layout.divisor if rule.level == GEOMETRIC else sums)
    weight = gap.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    if rule.kind == TRUNCATE:
        return weight.clamp(max=rule.high)
    return torch.where((weight >= rule.low) & (weight <= rule.high), weight, 0.0)


def shaped(
    estimator: Estimator,
    layout: Layout,
    rewards: torch.Tensor,
    old_logp: torch.Tensor,
    ref_logp: torch.Tensor | None,
) -> torch.Tensor:
    """Rewards (R,) after the length penalty and a KL penalty in the reward."""
    rule = rule_of(estimator)
    if rule.shaping.active and rule.shaping.coef > 0:
        over = (layout.lengths.to(rewards.dtype) - rule.shaping.limit + rule.shaping.buffer) / rule.shaping.buffer
        rewards = rewards - rule.shaping.coef * over.clamp(0.0, 1.0)
    if rule.kl.kind != NONE and rule.kl.in_reward > 0 and ref_logp is not None:
        kl, _ = formulas(old_logp.dtype).kl_penalty(rule.kl, old_logp, ref_logp)
        rewards = rewards - rule.kl.in_reward * layout.rows(kl).to(rewards.dtype)
    return rewards


def token_advantages_of(
    spec: Advantage, layout: Layout, token_rewards: torch.Tensor, baseline: torch.Tensor | None
) -> torch.Tensor:
    """`rftlab.shared.credit.token_advantages`: rewards to go or generalised advantage estimation, from rewards and
    baselines at tokens."""
    values = torch.zeros_like(token_rewards) if baseline is None else layout.clean(baseline + 0.0 * token_rewards)
    if spec.baseline == "value":
        delta = token_rewards + spec.gamma * layout.after(values) - values
        out = layout.following(delta, spec.gamma * spec.lam)
    else:
        out = layout.following(token_rewards, spec.gamma) - values
    if spec.whiten != "none":
        out = whitened(BY_TOKENS, layout.clean(out), layout.shown.to(out.dtype), spec.ddof, spec.eps)
    return out


def tells_tokens_apart(spec: Advantage, token_rewards: object) -> bool:
    """Whether advantages differ from token to token, with or without rewards at tokens."""
    return spec.by_token or (token_rewards is not None and spec.of_tokens)


def advantages_of(
    spec: Advantage,
    layout: Layout,
    rewards: torch.Tensor,
    group: torch.Tensor,
    pool: tuple[torch.Tensor, torch.Tensor] | None,
    baseline: torch.Tensor | None,
    token_rewards: torch.Tensor | None,
) -> torch.Tensor:
    """Advantages (R,), or of the tokens where it `tells_tokens_apart`; rewards (R,) are shaped already."""
    given = None if baseline is None else baseline.to(rewards)
    if tells_tokens_apart(spec, token_rewards):
        ends = torch.where(layout.last(), layout.spread(rewards), 0.0)
        if given is not None and (spec.baseline in PER_RESPONSE or given.shape != layout.shown.shape):
            given = layout.spread(given)
        ends = ends if token_rewards is None else ends + layout.clean(token_rewards)
        return token_advantages_of(spec, layout, ends, given)
    if token_rewards is not None:
        rewards = rewards + layout.rows(token_rewards)
    groups = groups_of(group, rewards, pool)
    return response_advantages(spec, rewards, groups, layout.lengths, given)


def freeze(
    estimator: Estimator,
    layout: Layout,
    advantage: torch.Tensor,
    old_logp: torch.Tensor,
    ref_logp: torch.Tensor | None = None,
    *,
    sampler_logp: torch.Tensor | None = None,
    correction: torch.Tensor | None = None,
    n_tokens: Count = None,
    n_rows: Count = None,
) -> FrozenBatch:
    """A frozen batch from advantages that broadcast to the tokens; all in the number type of `old_logp`."""
    kl = estimator.kl
    check(
        sampler_logp is None or correction is None, "sampler_logp and correction are both given; allowed: one of them"
    )
    plain = shares_of(estimator.aggregation, layout, old_logp, n_tokens, n_rows)
    reference = old_logp if ref_logp is None or kl.anchor == "old" else ref_logp
    if sampler_logp is not None and estimator.correction.kind == "ratio":
        old_logp = sampler_logp
    elif sampler_logp is not None:
        correction = corrections_of(estimator.correction, layout, old_logp, sampler_logp)
    share = plain if correction is None else plain * correction
    kl_share = (kl.coef if kl.place == "loss" else 0.0) * (share if isinstance(estimator.mask, KLCov) else plain)
    return FrozenBatch(advantage.to(old_logp.dtype), share, kl_share, plain, old_logp, reference)
