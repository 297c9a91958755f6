"""Compute objectives and advantages of an estimator on tensors; these are the public functions."""

import inspect
from typing import Any, NamedTuple

import torch

from rftlab.llm.losses.credit import several_advantages, tells_tokens_apart, tensor_advantages
from rftlab.llm.losses.inputs import (
    Column,
    Given,
    Labels,
    Sets,
    at_tokens,
    check_tokens,
    column,
    finite,
    group_labels,
    in_reward,
    real_tensor,
)
from rftlab.llm.losses.layout import Layout, check_starts, make_layout, wide
from rftlab.llm.losses.weights import Count, Flag, TensorWeights, freeze, masked, tensor_weights
from rftlab.shared.cards import preset
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.plumbing.errors import check, check_type


class ObjectiveAndMetrics(NamedTuple):
    """An objective and its metrics for a log; scalars on the tensors' device."""

    objective: torch.Tensor
    """The objective J, to be maximised; autograd gives its derivative."""
    clip_fraction: torch.Tensor
    """Share of tokens whose clip is active."""
    dual_clip_fraction: torch.Tensor
    """Share of tokens whose dual clip is active."""
    kl: torch.Tensor
    """Mean of the KL penalty per token, without its coefficient; 0 without a penalty."""
    policy: torch.Tensor
    """The objective without its entropy bonus."""


class _Objective(torch.autograd.Function):
    """The objective of tokens as a function of their log-probabilities, with a known derivative."""

    @staticmethod
    def forward(ctx, logp: torch.Tensor, objective: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return objective.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope: torch.Tensor):
        (weight,) = ctx.saved_tensors
        return slope.to(weight.dtype) * weight, None, None


def _named(estimator: Any) -> Estimator:
    """Return the estimator of a name, or the estimator itself. Raises UserError for anything else."""
    estimator = preset(estimator) if isinstance(estimator, str) else estimator
    check(isinstance(estimator, Estimator), f"estimator {estimator!r}; allowed: an Estimator, or the name of one")
    return estimator


def _advantage(estimator: Estimator, layout: Layout, given: Given, old_logp, ref_logp) -> torch.Tensor:
    """Return advantages that broadcast to the tokens."""
    shape, by_token = tuple(layout.shown.shape), tells_tokens_apart(estimator.advantage, given.token_rewards)
    if given.advantages is None:
        values = tensor_advantages(estimator, layout, given, old_logp, ref_logp)
    else:
        sets = given.rewards is None and given.pool is None and given.support is None
        check(sets, "advantages are given; allowed: without rewards, pool, support")
        values = real_tensor("advantages", given.advantages).to(layout.shown.device)
        allowed = ((layout.n_rows,), shape)
        check(tuple(values.shape) in allowed, f"advantages {tuple(values.shape)}; allowed: {allowed[0]} or {shape}")
        by_token = tuple(values.shape) == shape and (len(shape) == 2 or shape[0] != layout.n_rows)
        values = values if by_token else finite("advantages", values)
    return values if by_token else layout.spread(values)


def _weigh(asked: dict[str, Any], flags: bool = False) -> tuple[torch.Tensor, TensorWeights, Layout]:
    """Return the result of `objective` for its arguments by name, the values from which it is computed, and the
    layout."""
    logp, old_logp, estimator, keys = (asked[name] for name in ("logp", "old_logp", "estimator", "keys"))
    given = Given(**{name: asked[name] for name in Given._fields})
    check_type("logp", logp, torch.Tensor, "a tensor")
    check(logp.is_floating_point(), f"logp of type {logp.dtype}; allowed: floating point")
    estimator = _named(estimator)
    check_tokens(estimator, given)
    mask, starts = (None if asked[name] is None else real_tensor(name, asked[name]) for name in ("mask", "starts"))
    layout = make_layout(tuple(logp.shape), logp.device, mask, starts)
    real = torch.float64 if logp.dtype == torch.float64 else torch.float32
    with torch.no_grad():
        now = logp.detach().to(real)
        old = now if old_logp is None else column("old_logp", old_logp, tuple(logp.shape), logp.device, real)
        names = ("ref_logp", "sampler_logp", "correction")
        ref, sampler, correction = (at_tokens(name, getattr(given, name), layout, real) for name in names)
        advantage = _advantage(estimator, layout, given, old, ref)
        counts = {"n_tokens": asked["n_tokens"], "n_rows": asked["n_rows"]}
        if given.group is not None and estimator.aggregation.kind == "prompt_mean":
            counts["group"] = group_labels(given, layout.n_rows)[0].to(logp.device)
        batch = freeze(estimator, layout, advantage, old, ref, sampler_logp=sampler, correction=correction, **counts)
        rule = as_rule(estimator)
        keys = given.entropy if isinstance(estimator.mask, TopEntropy) else keys
        batch = masked(rule, layout, batch, now, at_tokens("keys", keys, layout, wide(logp.device)))
        weighed = tensor_weights(rule, layout, batch, now, flags)
        weight = weighed.weight.to(logp.dtype)
    objective = _Objective.apply(logp, weighed.objective, weight)
    bonus = estimator.entropy if given.bonus is None else given.bonus
    if estimator.has_bonus and given.entropy is not None:
        check_type("entropy", given.entropy, torch.Tensor, "a tensor")
        shape = tuple(given.entropy.shape)
        check(shape == tuple(logp.shape), f"entropy {shape} must have one entry per token {tuple(logp.shape)}")
        objective = objective + bonus * layout.rows(batch.plain_share * given.entropy.to(real)).sum()
    return objective, weighed, layout


def objective(
    logp: torch.Tensor,
    old_logp: Column | None = None,
    rewards: Column | None = None,
    mask: Column | None = None,
    group: Labels | None = None,
    *,
    estimator: Any,
    starts: Column | None = None,
    advantages: Column | None = None,
    ref_logp: Column | None = None,
    sampler_logp: Column | None = None,
    correction: Column | None = None,
    pool: Sets | None = None,
    support: Sets | None = None,
    baseline: Column | None = None,
    token_rewards: Column | None = None,
    entropy: torch.Tensor | None = None,
    bonus: float | None = None,
    keys: Column | None = None,
    n_tokens: Count = None,
    n_rows: Count = None,
) -> torch.Tensor:
    """Return the objective J of an estimator, a scalar to be MAXIMISED: `(-objective(...)).backward()` trains.

    logp: log-probabilities of the sampled tokens under the policy that is trained, padded (R, L) with `mask`, or packed
    (T,) with `starts`; float64, float32, bfloat16 or float16. All else is moved to its device;
    results are float64 where logp is, else float32.
    old_logp: of the same tokens under the policy that sampled; by default logp itself.
    rewards (R,). group (R,): labels, which one prompt's responses share; whole numbers or texts.
    mask: 1 where a token counts; hidden places may hold anything. starts (R+1,): response i is packed from starts[i]
    to starts[i+1].
    estimator: a name of `rftlab estimators`, or an `Estimator`.
    advantages: (R,) or of tokens, in place of rewards and group; (R,) where there are as many packed tokens.
    ref_logp: of tokens under the base policy, for a KL penalty. sampler_logp: of tokens as the inference engine gave
    them, for a correction; correction: importance weights of tokens that are known already.
    pool: (rewards, labels) of the baseline sets, as a replay window holds them, in place of the rewards; support:
    (rewards, labels) of more responses, which are not trained on, in addition. Where an estimator subtracts
    penalties from rewards, they must be subtracted from both already.
    baseline: (R,) or of tokens, where it comes from elsewhere (a greedy response, a critic). token_rewards: rewards at
    tokens, besides the response's own. entropy: of tokens, with its graph for a bonus, or for TopEntropy. bonus: the
    coefficient of the entropy bonus at this update, for an estimator with an entropy_target
    (`rftlab.shared.memory.move_bonus`). keys: random numbers of tokens for ClipCov; by default drawn here.
    n_tokens, n_rows: tokens and responses of the optimiser batch, where this call sees a part of it; advantages then
    come from `advantages`, over the whole of it. Under prompt_mean n_rows counts prompts, each of which lies in one
    part, and group gives each response's prompt.

    Raises UserError where shapes disagree or the estimator needs something that is missing. An error that only numbers
    show (an empty baseline set) is an error where they lie on the CPU, and nan on a GPU, which never waits for it.
    """
    return _weigh(locals())[0]  # at this point these are the arguments alone


_SIGNATURE = inspect.signature(objective)


def objective_and_metrics(*arguments: Any, **named: Any) -> ObjectiveAndMetrics:
    """Return `objective` of the same arguments, with the shares of clipped tokens and the KL penalty."""
    bound = _SIGNATURE.bind(*arguments, **named)
    bound.apply_defaults()
    value, weighed, layout = _weigh(bound.arguments, flags=True)
    count = layout.lengths.sum().clamp(min=1)
    flags = weighed.clipped, weighed.dual_clipped, weighed.kl
    clipped, dual_clipped, kl = (_mean(layout, flag, count, value) for flag in flags)
    return ObjectiveAndMetrics(value, clipped, dual_clipped, kl, weighed.objective.detach())


def _mean(layout: Layout, values: Flag | float, count: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the mean over the tokens that count, for values that broadcast to them."""
    like = like.detach()
    if not isinstance(values, torch.Tensor):
        return torch.full_like(like, float(values))
    return layout.rows(values.to(like.dtype)).sum() / count


def advantages(
    rewards: Column,
    group: Labels | None = None,
    mask: Column | None = None,
    *,
    estimator: Any,
    starts: Column | None = None,
    old_logp: Column | None = None,
    ref_logp: Column | None = None,
    pool: Sets | None = None,
    support: Sets | None = None,
    baseline: Column | None = None,
    token_rewards: Column | None = None,
    weights: Column | None = None,
) -> torch.Tensor:
    """Return advantages (R,) of responses, or of their tokens in the shape of `mask` where these differ within a
    response; on the device of `rewards` (R,), in their number type.

    mask, or starts of packed tokens: needed where advantages depend on lengths or differ from token to token. old_logp,
    ref_logp: of tokens, for a KL penalty in the reward. Several rewards are (R, C), with weights (C,), 1 by default;
    `advantage.combine` decides whether rewards or advantages are summed. Other arguments and errors are as in
    `objective`.
    """
    estimator = _named(estimator)
    spec, rewards_R = estimator.advantage, real_tensor("rewards", rewards)
    check(rewards_R.ndim in (1, 2), f"rewards {tuple(rewards_R.shape)}; allowed: (responses,), (responses, rewards)")
    check(weights is None or rewards_R.ndim == 2, "weights; allowed: with rewards (responses, rewards)")
    of_lengths = spec.of_lengths or estimator.length.coef > 0
    looks = tells_tokens_apart(spec, token_rewards) or token_rewards is not None or of_lengths or in_reward(estimator)
    check(not looks or mask is not None or starts is not None, "this estimator needs mask (it looks at tokens)")
    check(not in_reward(estimator) or old_logp is not None, "this estimator needs old_logp (its KL penalty)")
    ends = None if starts is None else check_starts(real_tensor("starts", starts))
    shown = real_tensor("mask", mask) if mask is not None else None
    if shown is None and ends is None:
        shown = torch.ones((len(rewards_R), 1), dtype=torch.bool)
    shape = (int(ends[-1]),) if shown is None and ends is not None else tuple(() if shown is None else shown.shape)
    layout, real = make_layout(shape, rewards_R.device, shown, ends), wide(rewards_R.device)
    given = Given(rewards_R, group, ref_logp=ref_logp, pool=pool, support=support)
    given = given._replace(baseline=baseline, token_rewards=token_rewards)
    out_type = rewards_R.dtype if rewards_R.is_floating_point() else real
    if rewards_R.ndim == 2:
        count = rewards_R.shape[1]
        check(count > 0, "rewards without a column; allowed: one or more")
        weights_C = None if weights is None else column("weights", weights, (count,))
        if spec.combine == "advantages":
            return several_advantages(spec, layout, rewards_R.unbind(1), weights_C, given).to(out_type)
        given = given._replace(rewards=rewards_R.sum(1) if weights_C is None else rewards_R @ weights_C.to(rewards_R))
    old, ref = (at_tokens(name, part, layout, real) for name, part in (("old_logp", old_logp), ("ref_logp", ref_logp)))
    out = tensor_advantages(estimator, layout, given, old, ref)
    return out.to(out_type)
