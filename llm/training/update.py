"""Update a policy from a frozen batch: micro-batches add up to the gradient of the whole, then the optimiser steps.
Also check that engine and trainer give a batch the same log-probabilities."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from rftlab.llm.config import AdamW
from rftlab.llm.losses.layout import send
from rftlab.llm.policy.packing import Responses, token_indices
from rftlab.llm.truncation import WHOLE, Truncation
from rftlab.shared.aggregation import shares
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.errors import check
from rftlab.shared.prepare import Batch


def add_gradient(columns: Sequence[torch.Tensor], slopes: Sequence[np.ndarray]) -> None:
    """Add the gradient of -J to the parameters, from columns (n,) of tokens with their graph, on one device and of one
    number type, and dJ/dcolumn (n,) of each."""
    (sent,) = send([-np.stack(slopes)], columns[0].device, columns[0].dtype)
    torch.autograd.backward(list(columns), list(sent))


def batch_part(batch: Batch, tokens: np.ndarray) -> Batch:
    """Return the slice of a frozen batch for a micro-batch; tokens (n,) are those of whole responses."""
    return Batch(*(column[tokens] for column in batch))


class Updated(NamedTuple):
    """Record of an update: its objective, sums over its tokens, and the log-probabilities (T,) at which weights were
    computed."""

    objective: float
    clipped: int
    kl: float
    logp: np.ndarray
    entropy: float
    """Mean entropy over its tokens; nan without an entropy bonus."""


def make_optimizer(policy, spec: AdamW) -> torch.optim.Optimizer:
    """Return the AdamW optimiser of a policy, without moments yet."""
    parameters = [parameter for _, parameter in policy.named_parameters()]
    return torch.optim.AdamW(
        parameters, spec.learning_rate, (spec.beta1, spec.beta2), spec.eps, spec.weight_decay, fused=True
    )


def rate_at(spec: AdamW, step: int) -> float:
    """Return the learning rate of the step'th update, from 0."""
    return spec.learning_rate * min(1.0, (step + 1) / max(1, spec.warmup_steps))


def accumulate(
    policy,
    estimator: Estimator,
    batch: Batch,
    responses: Responses,
    on_policy: bool = False,
    bonus: float | None = None,
) -> Updated:
    """Add the gradient of -J, entropy bonus included, to the parameters of a policy, micro-batch by micro-batch.

    J is that of the whole batch: shares are fixed, so the split into micro-batches changes nothing but rounding.
    policy: has micro_batches and log_probs.
    on_policy: use the log-probabilities computed here as the old ones, so that every ratio is 1, and ignore the
    batch's.
    bonus: coefficient of the entropy bonus; by default the estimator's.
    """
    bonus, bonus_T = estimator.entropy if bonus is None else bonus, None
    if bonus:
        bonus_T = bonus * shares(estimator.aggregation, responses.starts, group=responses.group)
    total, clipped, kl, found_T, entropies = 0.0, 0, 0.0, np.empty(len(responses.tokens)), 0.0
    for rows_r in policy.micro_batches(responses):
        tokens_t = token_indices(responses.starts, rows_r)
        logp_t, entropy_t = policy.log_probs(responses, rows_r, with_entropy=estimator.has_bonus)
        columns = [logp_t] if entropy_t is None else [logp_t, entropy_t]
        now = torch.stack([column.detach() for column in columns]).cpu().numpy()  # the only wait for a device
        found_T[tokens_t] = now[0]
        part = batch_part(batch, tokens_t)
        if on_policy:
            part = part._replace(
                old_logp=found_T[tokens_t],
                ref_logp=found_T[tokens_t] if estimator.kl.anchor == "old" else part.ref_logp,
            )
        weighed = objective_and_weights(estimator, part, found_T[tokens_t])
        value, slopes = weighed.objective, [weighed.weight]
        if bonus_T is not None:
            entropy_now = torch.from_numpy(now[1])
            value += float((torch.from_numpy(bonus_T[tokens_t]).to(entropy_now) * entropy_now).sum())
            slopes.append(bonus_T[tokens_t])
        entropies += float(now[1].sum()) if entropy_t is not None else math.nan
        add_gradient(columns[: len(slopes)], slopes)
        total, clipped, kl = total + value, clipped + weighed.clipped, kl + weighed.kl
    return Updated(total, clipped, kl, found_T, entropies / max(1, len(found_T)))


def step(policy, optimizer: torch.optim.Optimizer, spec: AdamW, index: int) -> float:
    """Make one step along the gradient, which is then set to 0, and return its norm before clipping. No step is made
    where the norm is not finite; nan is returned where a weight then is not finite."""
    parameters = [parameter for _, parameter in policy.named_parameters()]
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, spec.max_grad_norm))
    if math.isfinite(norm):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(spec, index)
        optimizer.step()
        # Sums are stacked first, so that a device is waited for once instead of for each parameter.
        finite = math.isfinite(torch.stack([parameter.detach().sum() for parameter in parameters]).sum())
        norm = norm if finite else math.nan
    optimizer.zero_grad()
    return norm


def rows_between(batch_groups: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the rows whose group lies in low .. high-1."""
    return np.flatnonzero((batch_groups >= low) & (batch_groups < high))


def check_mismatch(
    sampler_logp: np.ndarray,
    trainer_logp: np.ndarray,
    threshold: float,
    round_index: int,
    truncation: Truncation = WHOLE,
) -> float:
    """Return the mean |difference| of log-probabilities (T,) of a round's tokens, 0 without tokens. Where the sampler
    truncates, its log-probabilities are rightly higher, so only differences in the other direction count. Raises
    UserError where the mean is above the threshold."""
    gaps = trainer_logp - sampler_logp
    difference = float((np.abs(gaps) if truncation == WHOLE else gaps.clip(0)).mean()) if len(gaps) else 0.0
    check(
        difference <= threshold,
        f"mismatch: in round {round_index + 1} the log-probabilities of sampler and trainer differ by "
        f"{difference:.2g} on average; allowed: {threshold:.2g}; "
        "the sampler may hold old weights or sample at another temperature",
    )
    return difference
