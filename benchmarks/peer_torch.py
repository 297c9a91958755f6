"""The peer in PyTorch: python -m benchmarks.peer_torch.

Closed-form gradients, compiled by torch.compile (needs a C++ compiler); on one core: torch.set_num_threads(1). Small
batches compile ten rounds as one graph, because calling a graph costs as much as such a round; for large ones only what
lies between the matrix products is compiled. Arms come first in every array of a batch, (A, B), so that softmax,
sampling and gradients run along contiguous contexts.
"""

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks import (
    BETA1,
    BETA2,
    EPS,
    KL_COEFFICIENT,
    KL_RATIO_MAX,
    KL_RATIO_MIN,
    SPREAD_EPS,
    epoch_batches,
    report,
    segments,
)

UNROLL, UNROLL_BELOW = 10, 512
"""Number of rounds in one graph, and number of contexts in a batch below which rounds are joined."""
DRAWS_AT_ONCE = 2**14
torch._dynamo.config.recompile_limit = 64
"""Limit of compiled graphs; every design has its own."""
ONEDNN = torch.backends.mkldnn.is_available()


class State:
    """W (A, d), theta_f, the moments and steps of Adam; ring buffers (N w,) of each context's latest rewards, and the
    numbers of rewards pushed (N,)."""

    def __init__(self, n: int, d: int, arms: int, window: int):
        self.parameters, self.m, self.v = ([torch.zeros(arms, d), torch.zeros(())] for _ in range(3))
        self.steps, self.ring, self.pushed = (
            [torch.zeros(()), torch.zeros(())],
            torch.zeros(n * window),
            torch.zeros(n, dtype=torch.long),
        )


def matmul_t(a: Tensor, b: Tensor) -> Tensor:
    """Return a b^T. PyTorch multiplies with MKL, which uses only AVX2 on AMD processors; outside of graphs, for large
    batches, oneDNN is faster."""
    if torch.compiler.is_compiling() or not ONEDNN:
        return a @ b.t()
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


def exp_logits(z: Tensor) -> Tensor:
    """Return exp(z - max z) (A, B) for z (B, A), the softmax before it is normalised."""
    return (z.t() - z.t().amax(0)).exp()


def push(cell: dict, state: State, i: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Append rewards (K, B) to the windows of contexts i; return sum and number (B,) of the rewards in the windows."""
    size, pushed = cell["window"], state.pushed[i]
    state.ring[i * size + (pushed + torch.arange(rewards.shape[0])[:, None]) % size] = rewards
    pushed = pushed + rewards.shape[0]
    state.pushed[i] = pushed
    return state.ring.view(-1, size).index_select(0, i).sum(1), pushed.clamp(max=size)


def advantages(cell: dict, state: State, i: Tensor, rewards: Tensor) -> Tensor:
    """Return advantages (K, B) of the trained rollouts among rewards (R, B). Rewards are 0 or 1, so their sum equals
    their sum of squares."""
    trained, support = rewards[: cell["rollouts"]], rewards[cell["rollouts"] :]
    if cell["advantage"] == "reward":
        return trained
    if cell["window"]:
        total, size = push(cell, state, i, trained)
        total, size = total + support.sum(0), size + support.shape[0]
    else:
        total, size = rewards.sum(0), torch.tensor(rewards.shape[0])
    mean = total / size
    std = ((total - total * mean) / (size - 1).clamp(min=1)).sqrt()
    mean, std = torch.where(size == 1, 0.0, mean), torch.where(size == 1, 1.0, std)
    return (trained - mean) / (std + SPREAD_EPS)


def respond(
    world: dict, cell: dict, state: State, i: Tensor, change: Tensor, u: Tensor, nuisance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sample contexts i (B,) with x W^T (B, A), uniforms (2, R, B), nuisance (A, B). Return dJ/dlogits (A, B),
    dJ/dtheta_f, and the mean of the trained rewards."""
    rollouts, arms = cell["rollouts"], nuisance.shape[0]
    e = exp_logits(change + world["z0_train"].index_select(0, i))
    cumulative = world["triangle"] @ e
    total = cumulative[-1]
    h0 = world["h0_train"].index_select(0, i)
    odds, odds0 = (-h0 - world["format_scale"] * state.parameters[1]).exp(), (-h0).exp()
    p = 1 / (1 + odds)

    arm = (cumulative[:-1, None] <= u[0] * total).sum(0)
    formatted = u[1] < p
    rewards = world["correct_train"].take(i * arms + arm) * formatted
    advantage = advantages(cell, state, i, rewards)

    arm, formatted = arm[:rollouts], formatted[:rollouts]
    ratio = world["base"].take(i * arms + arm) * total / e.gather(0, arm)
    ratio = ratio * torch.where(formatted, (1 + odds) / (1 + odds0), (1 + 1 / odds) / (1 + 1 / odds0))
    kl_slope = torch.where((ratio > KL_RATIO_MIN) & (ratio < KL_RATIO_MAX), 1 - ratio, 0.0)
    w = (advantage - KL_COEFFICIENT * kl_slope) / arm.numel()

    w_sum = w.sum(0)
    chosen = torch.zeros_like(e).scatter_add(0, arm, w)
    g = chosen - e * (w_sum / total) + world["nuisance"] * (w * w).sum(0).sqrt() * nuisance
    return g, world["format_scale"] * ((w * formatted).sum() - (w_sum * p).sum()), rewards[:rollouts].mean()


def ascend(state: State, slopes: list[Tensor], rate: float) -> None:
    """Make one step of Adam, by PyTorch's fused kernel, or in a graph, which cannot contain that kernel, by the same
    operations."""
    torch._foreach_add_(state.steps, 1)
    if not torch.compiler.is_compiling():
        options = {
            "lr": rate,
            "beta1": BETA1,
            "beta2": BETA2,
            "eps": EPS,
            "weight_decay": 0.0,
            "amsgrad": False,
            "maximize": True,
        }
        torch._fused_adam_(state.parameters, slopes, state.m, state.v, [], state.steps, **options)
        return
    for p, g, m, v, step in zip(state.parameters, slopes, state.m, state.v, state.steps, strict=True):
        m.copy_(BETA1 * m + (1 - BETA1) * g)
        v.copy_(BETA2 * v + (1 - BETA2) * g * g)
        rate_m, scale_v = (scale / -torch.expm1(step * math.log(beta)) for scale, beta in ((rate, BETA1), (1, BETA2)))
        p.add_(rate_m * m / ((scale_v * v).sqrt() + EPS))


def player(cell: dict, rate: float) -> Callable[..., Tensor]:
    """Return a function that plays rounds on batches (rounds, B) and returns their mean rewards."""
    unrolled = cell["batch_size"] < UNROLL_BELOW
    options = {"fullgraph": True, "dynamic": False}
    middle = respond if unrolled else torch.compile(respond, **options)

    def play(world: dict, state: State, batches: Tensor, uniforms: Tensor, nuisances: Tensor) -> Tensor:
        rewards = []
        for i, u, nuisance in zip(batches, uniforms, nuisances, strict=True):
            x = world["x_train"].index_select(0, i)
            g, slope, reward = middle(world, cell, state, i, matmul_t(x, state.parameters[0]), u, nuisance)
            ascend(state, [matmul_t(g, x.t()), slope], rate)
            rewards.append(reward)
        return torch.stack(rewards)

    return torch.compile(play, **options) if unrolled else play


def draws(
    generator: torch.Generator, blocks: int, shape: tuple[int, ...], arms: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each block of rounds, shape = (rounds, R, B), uniforms (rounds, 2, R, B) for formats and arms, and
    nuisance (rounds, A, B); drawn for many small blocks at once."""
    rounds, responses, batch_size = shape
    together = max(1, DRAWS_AT_ONCE // (rounds * batch_size * (arms + 2 * responses)))
    for _ in range(0, blocks, together):
        u = torch.rand(together, rounds, 2, responses, batch_size, generator=generator)
        yield from zip(u, torch.randn(together, rounds, arms, batch_size, generator=generator), strict=True)


@torch.compile(dynamic=False)
def pass_at_1(change: Tensor, z0: Tensor, correct: Tensor, h0: Tensor, format_logit: Tensor) -> Tensor:
    """Return exact Pass@1 of contexts with x W^T (N, A)."""
    e = exp_logits(change + z0)
    return ((e * correct.t()).sum(0) / e.sum(0) * torch.sigmoid(h0 + format_logit)).mean()


def evaluate(world: dict, state: State, name: str) -> float:
    """Return exact Pass@1 on all contexts of train or test."""
    x, *arrays = (world[f"{key}_{name}"] for key in ("x", "z0", "correct", "h0"))
    return float(pass_at_1(matmul_t(x, state.parameters[0]), *arrays, world["format_scale"] * state.parameters[1]))


@torch.inference_mode()
def train(
    play: Callable[..., Tensor], world: dict, cell: dict, batches: Tensor, seed: int, state: State
) -> tuple[float, float, Tensor]:
    """Run all rounds; return final Pass@1 on train and test, and the mean reward of every round."""
    generator, rewards = torch.Generator().manual_seed(seed), []
    for segment in segments(batches.shape[0]):
        rounds, batch_size = batches[segment].shape
        block = math.gcd(rounds, UNROLL) if batch_size < UNROLL_BELOW else 1
        blocks = batches[segment].view(-1, block, batch_size)
        stream = draws(
            generator, len(blocks), (block, cell["rollouts"] + cell["support"], batch_size), world["z0_train"].shape[1]
        )
        rewards += [play(world, state, i, u, nuisance) for i, (u, nuisance) in zip(blocks, stream, strict=False)]
        train, test = evaluate(world, state, "train"), evaluate(world, state, "test")
    return train, test, torch.cat(rewards)


def run(world: dict, cell: dict, rounds: int, seeds: list[int], rate: float) -> dict:
    """Train every seed, one after the other; return seconds and final Pass@1."""
    world = {key: torch.as_tensor(value) if hasattr(value, "shape") else value for key, value in world.items()}
    (n, d), arms = world["x_train"].shape, world["z0_train"].shape[1]
    world |= {"base": world["z0_train"].softmax(1), "triangle": torch.ones(arms, arms).tril()}

    def batches_of(seed: int) -> Tensor:
        return torch.as_tensor(epoch_batches(n, cell["batch_size"], rounds, seed))

    play = player(cell, rate)
    warm, *states = [State(n, d, arms, cell["window"]) for _ in range(len(seeds) + 1)]
    for segment in {s.stop - s.start: s for s in segments(rounds)}.values():
        train(play, world, cell, batches_of(seeds[0])[segment], seeds[0], warm)
    start = time.perf_counter()
    finals = [
        train(play, world, cell, batches_of(seed), seed, state) for seed, state in zip(seeds, states, strict=True)
    ]
    return {
        "seconds": time.perf_counter() - start,
        "train": [final[0] for final in finals],
        "test": [final[1] for final in finals],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    report("torch", run)
