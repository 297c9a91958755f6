"""Compute advantages from rewards by `rftlab.shared.advantage` and `rftlab.shared.credit` on the CPU, once for a batch.

Where all tokens of a response share an advantage, these are R numbers. Rewards on a GPU are brought over in one copy,
with all other columns of responses, and rewards on the CPU need no copy. Where advantages differ from token to token (a
discount, a critic, rewards at tokens), the copy includes the tokens' rewards and baselines.
"""

from collections.abc import Sequence

import numpy as np
import torch

from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.inputs import (
    PER_RESPONSE,
    Given,
    at_tokens,
    check_baseline,
    check_rewards,
    column,
    finite,
    group_labels,
    set_rewards,
)
from rftlab.llm.losses.layout import Layout, on_cpu, packed_on_cpu, send, wide
from rftlab.shared import credit
from rftlab.shared.advantage import advantages
from rftlab.shared.combine import combined_advantages
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.kl import NONE
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.pool import make_pool


def shaped(
    estimator: Estimator,
    layout: Layout,
    rewards: torch.Tensor,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
) -> torch.Tensor:
    """Return rewards (R,) after the length penalty and a KL penalty in the reward; on the tokens' device where there is
    a penalty."""
    rule, device = as_rule(estimator), layout.shown.device
    if rule.shaping.coef > 0:
        rewards = rewards.to(device)
        rewards = rewards - formulas(rewards.dtype).length_penalty(rule.shaping, layout.lengths.to(rewards.dtype))
    if rule.kl.kind != NONE and rule.kl.in_reward > 0 and old_logp is not None and ref_logp is not None:
        kl, _ = formulas(old_logp.dtype).kl_penalty(rule.kl, old_logp, ref_logp)
        rewards = rewards.to(device) - rule.kl.in_reward * layout.rows(kl).to(rewards.dtype)
    return rewards


def response_advantages(
    spec: Advantage,
    layout: Layout,
    rewards: torch.Tensor,
    given: Given,
    baseline: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return advantages (R,) on the tokens' device, from shaped rewards (R,) and the given baseline sets; baseline
    (R,): given where it comes from elsewhere."""
    if spec.combine == "advantages":
        return several_advantages(spec, layout, [rewards], None, given)
    mine, *others = group_labels(given, rewards.shape[0])
    sets = [("pool or support", part) for part in set_rewards(given, [labels.shape for labels in others])]
    reals = [("rewards", rewards), *([] if baseline is None else [("baseline", baseline)]), *sets]
    lengths = [layout.lengths] if spec.of_lengths else []
    brought = on_cpu([*(part for _, part in reals), mine, *others, *lengths])
    for (name, _), values in zip(reals, brought, strict=False):
        check(bool(np.isfinite(values).all()), f"{name} has numbers that are not finite; allowed: finite ones")
    (rewards_R, *pools), rest = brought[: len(reals)], brought[len(reals) :]
    baseline_R = None if baseline is None else pools.pop(0)
    starts = np.concatenate([[0], np.cumsum(rest.pop())]) if lengths else None
    known, number = np.unique(np.concatenate(rest), return_inverse=True)
    group_R, *numbers = np.split(number, np.cumsum([len(labels) for labels in rest])[:-1])
    parts = list(zip(pools, numbers, strict=True))
    pool = make_pool(len(known), *([] if given.pool is not None else [(rewards_R, group_R)]), *parts)
    advantages_R = advantages(spec, rewards_R, group_R, pool, starts=starts, baseline=baseline_R)
    return send([advantages_R], layout.shown.device, wide(layout.shown.device))[0]


def several_advantages(
    spec: Advantage, layout: Layout, rewards: Sequence[torch.Tensor], weights: torch.Tensor | None, given: Given
) -> torch.Tensor:
    """Return advantages (R,) on the tokens' device, from several rewards, each (R,), with weights (C,), 1 by default,
    against their groups."""
    beside = [name for name in ("pool", "support", "baseline", "token_rewards") if getattr(given, name) is not None]
    check(not beside, f"{', '.join(beside)} with several rewards; allowed: neither")
    lengths = [layout.lengths] if spec.of_lengths else []
    columns = [*rewards, group_labels(given, rewards[0].shape[0])[0], *([] if weights is None else [weights]), *lengths]
    brought = on_cpu(columns)
    starts = np.concatenate([[0], np.cumsum(brought.pop())]) if lengths else None
    weights_C = np.ones(len(rewards)) if weights is None else brought.pop()
    group_R = np.unique(brought.pop(), return_inverse=True)[1]
    advantages_R = combined_advantages(spec, np.array(brought), weights_C, group_R, starts=starts)
    return send([advantages_R], layout.shown.device, wide(layout.shown.device))[0]


def token_advantages(
    spec: Advantage,
    layout: Layout,
    rewards: torch.Tensor,
    token_rewards: torch.Tensor | None,
    baseline: torch.Tensor | None,
) -> torch.Tensor:
    """Return advantages in the shape of the tokens, on their device, by `rftlab.shared.credit` on the CPU: from rewards
    (R,) on the last tokens that count, and from rewards and baselines at tokens. Hidden tokens have 0."""
    parts = [part for part in (token_rewards, baseline) if part is not None]
    starts, columns, (rewards_R,), unpacked = packed_on_cpu(layout, parts, [rewards])
    baseline_T = None if baseline is None else columns.pop()
    rewards_T = credit.rewards_at_ends(rewards_R, starts, columns[0] if columns else None)
    return unpacked(credit.token_advantages(spec, rewards_T, starts, baseline_T), wide(layout.shown.device))


def tells_tokens_apart(spec: Advantage, token_rewards: object) -> bool:
    """Whether advantages differ from token to token, given rewards at tokens or None."""
    return spec.by_token or (token_rewards is not None and spec.of_tokens)


def tensor_advantages(
    estimator: Estimator,
    layout: Layout,
    given: Given,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
) -> torch.Tensor:
    """Return advantages (R,) from rewards, or advantages of tokens where `tells_tokens_apart`."""
    check_rewards(estimator, given)
    assert given.rewards is not None
    spec, device = estimator.advantage, layout.shown.device
    rewards = finite("rewards", column("rewards", given.rewards, (layout.n_rows,)))
    rewards = shaped(estimator, layout, rewards, old_logp, ref_logp)
    baseline = check_baseline(estimator, layout, given)
    rewards_T = at_tokens("token_rewards", given.token_rewards, layout, wide(device))
    if not tells_tokens_apart(spec, given.token_rewards):
        rewards = rewards if rewards_T is None else rewards.to(device) + layout.rows(rewards_T)
        return response_advantages(spec, layout, rewards, given, baseline)
    if baseline is not None and (spec.baseline in PER_RESPONSE or baseline.shape != layout.shown.shape):
        baseline = layout.spread(baseline.to(device))
    return token_advantages(spec, layout, rewards, rewards_T, baseline)
