"""Compute log-probabilities from hidden states without the logits of a whole batch: the logits of one chunk are
computed at a time, and again for the gradient."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def token_log_probs(
    head: nn.Linear,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
    rows: int,
    entropy: bool = False,
    squares: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log pi(target) (n,) of pi = softmax(head(hidden) / temperature), hidden (n, d); and the entropy -sum pi
    log pi (n,), or sum_v pi(v)^2 (n,) without its gradient, or None. rows: tokens whose logits exist at a time."""
    settings = (temperature, rows, entropy, squares)
    logp, beside = _TokenLogProbs.apply(hidden, head.weight, head.bias, targets, *settings)
    return logp, beside if entropy or squares else None


class _TokenLogProbs(torch.autograd.Function):
    """Log-probabilities with one buffer of logits, and one for the gradient of the weight. With z the logits over the
    temperature and p = softmax(z): d log p_y / dz = e_y - p, and dH / dz = -p (log p + H)."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, temperature, rows, with_entropy, with_squares):
        device = hidden.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        wide = torch.promote_types(narrow, torch.float32)
        norm, chosen, entropy = (torch.empty(len(targets), dtype=wide, device=hidden.device) for _ in range(3))
        cast = _cast(narrow, weight, bias)
        for part in _parts(len(targets), rows):
            z = _logits(hidden[part].to(narrow), *cast, temperature, wide)
            norm[part] = z.logsumexp(-1)
            chosen[part] = z.gather(-1, targets[part, None])[:, 0]
            if with_entropy:
                entropy[part] = norm[part] - (torch.softmax(z, -1) * z).sum(-1)
            elif with_squares:
                entropy[part] = torch.softmax(z, -1).square().sum(-1)
        if not with_entropy:
            ctx.mark_non_differentiable(entropy)
        ctx.save_for_backward(hidden, weight, bias, targets, norm, entropy)
        ctx.reading, ctx.narrow, ctx.wide = (temperature, rows, with_entropy), narrow, wide
        return chosen - norm, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx, slope, entropy_slope):
        hidden, weight, bias, targets, norm, entropy = ctx.saved_tensors
        (temperature, rows, with_entropy), wants = ctx.reading, ctx.needs_input_grad
        cast = _cast(ctx.narrow, weight, bias)
        to_hidden = torch.empty_like(hidden) if wants[0] else None
        to_weight = torch.zeros_like(weight) if wants[1] else None
        to_bias = torch.zeros_like(bias) if bias is not None and wants[2] else None
        for part in _parts(len(targets), rows):
            states = hidden[part].to(ctx.narrow)
            log_p = _logits(states, *cast, temperature, ctx.wide).sub_(norm[part, None])
            # In place, because a second buffer of logits would double the peak; log_p becomes the gradient with respect
            # to z.
            if with_entropy:
                p = log_p.exp()
                to_z = log_p.add_(entropy[part, None]).mul_(-entropy_slope[part, None]).sub_(slope[part, None]).mul_(p)
            else:
                to_z = log_p.exp_().mul_(-slope[part, None])
            to_z[torch.arange(len(to_z), device=to_z.device), targets[part]] += slope[part]
            to_logits = to_z.div_(temperature).to(ctx.narrow)
            if to_hidden is not None:
                to_hidden[part] = to_logits @ cast[0]
            if to_weight is not None:
                _add_product(to_weight, to_logits.T, states)
            if to_bias is not None:
                to_bias += to_logits.sum(0)
        return to_hidden, to_weight, to_bias, None, None, None, None, None


def _parts(n: int, rows: int) -> list[slice]:
    return [slice(first, first + rows) for first in range(0, n, rows)]


def _cast(
    narrow: torch.dtype, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return weight.to(narrow), None if bias is None else bias.to(narrow)


def _logits(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, temperature: float, wide: torch.dtype
) -> torch.Tensor:
    """Return logits in the wide type: from the product itself on CUDA with torch 2.8 or newer, else converted after
    it."""
    if states.device.type == "cuda" and states.dtype != wide and hasattr(torch.ops.aten.mm, "dtype"):
        z = torch.mm(states, weight.T, out_dtype=wide)
        z = z if bias is None else z.add_(bias)
    else:
        z = functional.linear(states, weight, bias).to(wide)
    return z.div_(temperature)


def _add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Add a @ b to total, in place where the number types agree."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
