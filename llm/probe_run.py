"""Measurements of the responses to a prompt in a user's training run: rewards, lengths, and gradients of two
halves, sketched.

Only inner products of gradients are wanted, so a gradient is not kept. It is sketched to SIZE numbers by one fixed
random map whose inner products are those of the gradients on average (feature hashing with random signs, Weinberger et
al. 0902.2206), off by about sqrt(2 / SIZE) of the norms.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

SIZE = 8191
"""Numbers of a sketch: a prime, so that no layer's width divides it."""
CHUNK = 1 << 24
"""Numbers of a gradient that are sketched at once, about."""


def sketched(gradients: Sequence[torch.Tensor | None]) -> np.ndarray:
    """The sketch (SIZE,) float64 of gradients by parameter; None counts as 0. Number i of a parameter is added, with a
    random sign, to place i modulo SIZE, from a random place on."""
    total = torch.zeros(SIZE, dtype=torch.float64)
    for index, gradient in enumerate(gradients):
        if gradient is None:
            continue
        flat = gradient.detach().flatten()
        random = torch.Generator(flat.device).manual_seed(index)
        step = SIZE * (CHUNK // SIZE)
        own = torch.zeros(SIZE, dtype=torch.float64)
        for first in range(0, len(flat), step):
            part = flat[first : first + step].float()
            signs = torch.randint(0, 2, part.shape, generator=random, device=part.device)
            part = torch.nn.functional.pad(part * (2 * signs - 1), (0, -len(part) % SIZE))
            own += part.view(-1, SIZE).sum(0, dtype=torch.float64).cpu()
        total += own.roll(int(np.random.default_rng([0, index]).integers(SIZE)))
    return total.numpy()


def half_weights(rewards: np.ndarray) -> np.ndarray:
    """Weights (2, n) of the responses of a half of n in the mean gradient: with raw rewards, and with each reward less
    the mean of the others."""
    n = len(rewards)
    return np.stack([rewards, (n * rewards - rewards.sum()) / (n - 1)]) / n


class GroupNoise(NamedTuple):
    """The measurements of one prompt's K responses."""

    rewards: np.ndarray
    """(K,)"""
    lengths: np.ndarray
    """(K,) tokens."""
    surprise: np.ndarray
    """(K,) -log pi, summed over tokens."""
    sketches: np.ndarray
    """(2, 2, SIZE) raw and centred, of two halves."""


def measure_group(
    log_probs: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    rewards: np.ndarray,
    parameters: list[torch.Tensor],
) -> GroupNoise:
    """Measure K responses to a prompt, an even number, every other one in the first half; rewards (K,). Gradients that
    the parameters hold stay as they are.

    log_probs: of rows (n,) below K, those of their tokens (n, L), with a graph, and which tokens count.
    """
    sketches, surprise, lengths = [], np.empty(len(rewards)), np.empty(len(rewards), dtype=np.int64)
    for h in (0, 1):
        half = slice(h, None, 2)
        logp, mask = log_probs(torch.arange(h, len(rewards), 2))
        sums = (logp.to(torch.promote_types(logp.dtype, torch.float32)) * mask).sum(1)
        surprise[half], lengths[half] = -sums.detach().double().cpu().numpy(), mask.sum(1).cpu().numpy()
        both = []
        for weights in half_weights(rewards[half]):
            gradients: Any = ()
            if weights.any():
                weighed = torch.as_tensor(weights, dtype=sums.dtype, device=sums.device)
                gradients = torch.autograd.grad(sums, parameters, weighed, retain_graph=True, allow_unused=True)
            both.append(sketched(gradients))
        sketches.append(both)
    return GroupNoise(rewards, lengths, surprise, np.array(sketches).transpose(1, 0, 2))


@contextmanager
def aside() -> Iterator[None]:
    """With gradients, and without a trace in the run's random numbers."""
    with torch.random.fork_rng(), torch.enable_grad():
        yield
