"""Measure the responses to a prompt in a user's training run: rewards, lengths, and sketched gradients of two halves.

Only inner products of gradients are needed, so a gradient is not kept. It is sketched to SIZE numbers by one fixed
random map that preserves inner products on average (feature hashing with random signs, Weinberger et al. 0902.2206), up
to about sqrt(2 / SIZE) of the norms.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

SIZE = 8191
"""Size of a sketch, a prime, so that no layer's width divides it."""
CHUNK = 1 << 24
"""Approximate number of a gradient's entries that are sketched at once."""


def sketched(gradients: Sequence[torch.Tensor | None]) -> np.ndarray:
    """Return the sketch (SIZE,) float64 of gradients by parameter; None counts as 0. Entry i of a parameter is added,
    with a random sign, to place i modulo SIZE, counted from a random place."""
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
    """Return the weights (2, n) in the mean gradient of the n responses of a half: with raw rewards, and with each
    reward minus the mean of the others."""
    n = len(rewards)
    return np.stack([rewards, (n * rewards - rewards.sum()) / (n - 1)]) / n


class GroupNoise(NamedTuple):
    """Measurements of one prompt's K responses."""

    rewards: np.ndarray
    """(K,) rewards."""
    lengths: np.ndarray
    """(K,) number of tokens."""
    surprise: np.ndarray
    """(K,) -log pi, summed over the tokens."""
    sketches: np.ndarray
    """(2, 2, SIZE) sketches of raw and centred gradients, for two halves."""


def measure_group(
    log_probs: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    rewards: np.ndarray,
    parameters: list[torch.Tensor],
) -> GroupNoise:
    """Measure K responses to a prompt, an even number, every other one in the first half; rewards (K,). Gradients that
    the parameters hold stay unchanged.

    log_probs: function of rows (n,) below K that returns the log-probabilities of their tokens (n, L), with a graph,
    and the mask of tokens that count.
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
    """Enable gradients inside the block, and leave the run's random numbers unchanged."""
    with torch.random.fork_rng(), torch.enable_grad():
        yield
