"""The peer in PyTorch: python -m tests.bench.peer_torch

Closed-form gradients (autograd is slower), compiled by torch.compile; on one core: torch.set_num_threads(1).
Arms come first in every array of a batch, (A, B), so that softmax, sampling and gradients run along contiguous contexts.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tests.bench import BETA1, BETA2, EPS, KL_COEFFICIENT, SPREAD_EPS, epoch_batches, report, segments

DRAWS_AT_ONCE = 2**14
ONEDNN, ONEDNN_FROM = torch.backends.mkldnn.is_available(), 2**20
"""Multiply-adds from which oneDNN beats MKL, which on AMD processors keeps to AVX2."""


class State:
    """W (A, d), theta_f and their Adam moments; ring buffers (N w,) of each context's latest rewards, and how many were pushed (N,)."""

    def __init__(self, n: int, d: int, arms: int, window: int):
        self.parameters, self.m, self.v = ([torch.zeros(arms, d), torch.zeros(())] for _ in range(3))
        self.steps = [torch.zeros(()), torch.zeros(())]
        self.ring, self.pushed = torch.zeros(n * window), torch.zeros(n, dtype=torch.long)


def matmul_t(a: Tensor, b: Tensor) -> Tensor:
    """a b^T; MKL is fast for little work, oneDNN for much."""
    if not ONEDNN or a.numel() * b.shape[0] < ONEDNN_FROM:
        return a @ b.t()
    return (a @ b.t()) if torch.compiler.is_compiling() else torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


def exp_logits(weights: Tensor, x: Tensor, z0: Tensor) -> Tensor:
    """exp(z - max z) (A, B): the softmax before it is normalised."""
    z = (matmul_t(x, weights) + z0).t()
    return (z - z.amax(0)).exp()


def push(cell: dict, state: State, i: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Append rewards (K, B) to the windows of contexts i; sum and number (B,) of the rewards they then hold."""
    size, pushed = cell["window"], state.pushed[i]
    state.ring[i * size + (pushed + torch.arange(rewards.shape[0])[:, None]) % size] = rewards
    pushed = pushed + rewards.shape[0]
    state.pushed[i] = pushed
    return state.ring.view(-1, size).index_select(0, i).sum(1), pushed.clamp(max=size)


def advantages(cell: dict, state: State, i: Tensor, rewards: Tensor) -> Tensor:
    """Advantages (K, B) of the trained among the rewards (R, B). Rewards are 0 or 1, so their sum is their sum of squares."""
    trained, support = rewards[: cell["rollouts"]], rewards[cell["rollouts"] :]
    if cell["advantage"] == "reward":
        return trained
    if cell["window"]:
        total, size = push(cell, state, i, trained)
        total, size = total + support.sum(0), size + support.shape[0]
    elif rewards.shape[0] == 1:
        return trained / (1 + SPREAD_EPS)
    else:
        total, size = rewards.sum(0), torch.tensor(rewards.shape[0])
    mean = total / size
    std = ((total - total * mean) / (size - 1).clamp(min=1)).sqrt()
    mean, std = torch.where(size == 1, 0.0, mean), torch.where(size == 1, 1.0, std)
    return (trained - mean) / (std + SPREAD_EPS)


def learn(world: dict, cell: dict, state: State, i: Tensor, u: Tensor, nuisance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sample contexts i (B,) with uniforms (2, R, B) and nuisance (A, B); dJ/dW (A, d), dJ/dtheta_f, mean of the trained rewards."""
    (weights, theta), rollouts, arms = state.parameters, cell["rollouts"], nuisance.shape[0]
    x = world["x_train"].index_select(0, i)
    e = exp_logits(weights, x, world["z0_train"].index_select(0, i))
    cumulative = world["triangle"] @ e
    total = cumulative[-1]
    h0 = world["h0_train"].index_select(0, i)
    odds, odds0 = (-h0 - world["format_scale"] * theta).exp(), (-h0).exp()
    p = 1 / (1 + odds)

    arm = (cumulative[:-1, None] <= u[0] * total).sum(0)
    formatted = u[1] < p
    rewards = world["correct_train"].take(i * arms + arm) * formatted
    advantage = advantages(cell, state, i, rewards)

    arm, formatted = arm[:rollouts], formatted[:rollouts]
    ratio = world["base"].take(i * arms + arm) * total / e.gather(0, arm)
    ratio = ratio * torch.where(formatted, (1 + odds) / (1 + odds0), (1 + 1 / odds) / (1 + 1 / odds0))
    w = (advantage - KL_COEFFICIENT * (1 - ratio)) / arm.numel()

    w_sum = w.sum(0)
    chosen = torch.zeros_like(e).scatter_add(0, arm, w)
    g = chosen - e * (w_sum / total) + world["nuisance"] * (w * w).sum(0).sqrt() * nuisance
    slope = world["format_scale"] * ((w * formatted).sum() - (w_sum * p).sum())
    return matmul_t(g, x.t()), slope, rewards[:rollouts].mean()


def play(learn: Callable, world: dict, cell: dict, rate: float, state: State, *round_: Tensor) -> Tensor:
    """One round and its mean reward."""
    *slopes, reward = learn(world, cell, state, *round_)
    options = {"lr": rate, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "weight_decay": 0.0, "amsgrad": False, "maximize": True}
    for step in state.steps:
        step += 1
    torch._fused_adam_(state.parameters, slopes, state.m, state.v, [], state.steps, **options)
    return reward


def draws(generator: torch.Generator, rounds: int, responses: int, batch_size: int, arms: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Per round: uniforms (2, R, B) for formats and arms, nuisance (A, B); drawn for many small rounds at once."""
    block = max(1, DRAWS_AT_ONCE // (batch_size * (arms + 2 * responses)))
    for _ in range(0, rounds, block):
        u = torch.rand(block, 2, responses, batch_size, generator=generator)
        yield from zip(u.unbind(), torch.randn(block, arms, batch_size, generator=generator).unbind(), strict=True)


def evaluate(world: dict, state: State, name: str, chunk: int = 1024) -> float:
    """Exact Pass@1 on all contexts of train or test."""
    weights, theta = state.parameters
    p, total = torch.sigmoid(world[f"h0_{name}"] + world["format_scale"] * theta), 0.0
    for x, z0, correct, q in zip(*(a.split(chunk) for a in (world[f"x_{name}"], world[f"z0_{name}"], world[f"correct_{name}"], p)), strict=True):
        e = exp_logits(weights, x, z0)
        total += float(((e * correct.t()).sum(0) / e.sum(0)) @ q)
    return total / p.numel()


@torch.inference_mode()
def train(learn: Callable, world: dict, cell: dict, batches: Tensor, seed: int, rate: float, state: State) -> tuple[float, float, Tensor]:
    """Run all rounds; final Pass@1 on train and test, and the mean reward of every round."""
    rounds, batch_size = batches.shape
    stream = draws(torch.Generator().manual_seed(seed), rounds, cell["rollouts"] + cell["support"], batch_size, world["z0_train"].shape[1])
    rewards = []
    for segment in segments(rounds):
        rewards += [play(learn, world, cell, rate, state, i, u, nuisance) for i, (u, nuisance) in zip(batches[segment].unbind(), stream, strict=False)]
        train, test = evaluate(world, state, "train"), evaluate(world, state, "test")
    return train, test, torch.stack(rewards)


def run(world: dict, cell: dict, rounds: int, seeds: list[int], rate: float) -> dict:
    """Train every seed, one after the other; seconds and final Pass@1."""
    world = {key: torch.as_tensor(value) if hasattr(value, "shape") else value for key, value in world.items()}
    (n, d), arms = world["x_train"].shape, world["z0_train"].shape[1]
    world |= {"base": world["z0_train"].softmax(1), "triangle": torch.ones(arms, arms).tril()}
    batches = [torch.as_tensor(epoch_batches(n, cell["batch_size"], rounds, seed)) for seed in seeds]
    step = torch.compile(learn, fullgraph=True, dynamic=False) if COMPILED else learn
    warm, *states = [State(n, d, arms, cell["window"]) for _ in range(len(seeds) + 1)]
    train(step, world, cell, batches[0][:10], seeds[0], rate, warm)
    start = time.perf_counter()
    finals = [train(step, world, cell, batch, seed, rate, state) for batch, seed, state in zip(batches, seeds, states, strict=True)]
    return {"seconds": time.perf_counter() - start, "train": [final[0] for final in finals], "test": [final[1] for final in finals]}


COMPILED = True

if __name__ == "__main__":
    torch.set_num_threads(1)
    report("torch", run)
