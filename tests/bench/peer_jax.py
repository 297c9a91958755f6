"""The peer in JAX: python -m tests.bench.peer_jax

jit over segments of 100 rounds and their evaluation, lax.scan over rounds, and optionally vmap over seeds.
On one core: XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".
Arms come first in every array of a batch, (A, B), and Adam sees flat vectors: XLA vectorises long last axes only.
"""

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.bench import BETA1, BETA2, EPS, EVALUATE_EVERY, KL_COEFFICIENT, SPREAD_EPS, epoch_batches, report


class World(NamedTuple):
    """The contexts of one split, and what a round needs of the base policy: log pi_base (N, A), h0 (N,)."""

    x: jax.Array
    z0: jax.Array
    h0: jax.Array
    correct: jax.Array
    base: jax.Array


class Design(NamedTuple):
    """What a compiled round is specialised on."""

    batch_size: int
    rollouts: int
    support: int
    window: int
    advantage: str
    format_scale: float
    nuisance: float
    rate: float


class Replay(NamedTuple):
    """Ring buffers (N, w) of each context's latest rewards, and how many were pushed (N,)."""

    rewards: jax.Array
    pushed: jax.Array


class State(NamedTuple):
    """Parameters {W (A d,), theta_f ()}, the sums of Adam, and the windows."""

    parameters: dict
    m: dict
    v: dict
    step: jax.Array
    replay: Replay


def world_of(world: dict, split: str) -> World:
    """One split of the world, with log pi_base."""
    arrays = {key: jnp.asarray(world[f"{key}_{split}"]) for key in ("x", "z0", "h0", "correct")}
    return World(**arrays, base=jax.nn.softmax(arrays["z0"], axis=1))


def start_state(world: World, design: Design) -> State:
    """A policy equal to its base, and empty windows."""
    n, d = world.x.shape

    def zeros() -> dict:
        return {"weights": jnp.zeros(d * world.z0.shape[1]), "theta": jnp.zeros(())}

    return State(zeros(), zeros(), zeros(), jnp.zeros(()), Replay(jnp.zeros((n, design.window)), jnp.zeros(n, jnp.int32)))


def push(replay: Replay, i: jax.Array, rewards: jax.Array) -> tuple[Replay, jax.Array, jax.Array]:
    """Append rewards (K, B) to the windows of contexts i; also sum and number (B,) of the rewards they then hold."""
    size, pushed = replay.rewards.shape[1], replay.pushed[i]
    slots = (pushed + jnp.arange(rewards.shape[0])[:, None]) % size
    ring = replay.rewards.at[i, slots].set(rewards, unique_indices=rewards.shape[0] <= size, mode="promise_in_bounds")
    pushed += rewards.shape[0]
    counts = replay.pushed.at[i].set(pushed, unique_indices=True, mode="promise_in_bounds")
    return Replay(ring, counts), ring[i].sum(1), jnp.minimum(pushed, size)


def advantages(design: Design, replay: Replay, i: jax.Array, rewards: jax.Array) -> tuple[Replay, jax.Array]:
    """Advantages (K, B) of the trained among the rewards (R, B). Rewards are 0 or 1, so their sum is their sum of squares."""
    trained, support = rewards[: design.rollouts], rewards[design.rollouts :]
    if design.advantage == "reward":
        return replay, trained
    if design.window:
        replay, total, size = push(replay, i, trained)
        total, size = total + support.sum(0), size + support.shape[0]
    else:
        total, size = rewards.sum(0), jnp.full(i.shape, rewards.shape[0])
    mean = total / size
    std = jnp.sqrt((total - total * mean) / jnp.maximum(size - 1, 1))
    mean, std = jnp.where(size == 1, 0.0, mean), jnp.where(size == 1, 1.0, std)
    return replay, (trained - mean) / (std + SPREAD_EPS)


def adam(state: State, slopes: dict, rate: float) -> State:
    """One ascent step of Adam."""
    step = state.step + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.m, slopes)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state.v, slopes)
    rate_m, scale_v = rate / (1 - BETA1**step), 1 / (1 - BETA2**step)
    parameters = jax.tree.map(lambda p, m, v: p + rate_m * m / (jnp.sqrt(scale_v * v) + EPS), state.parameters, m, v)
    return state._replace(parameters=parameters, m=m, v=v, step=step)


def play(design: Design, world: World, state: State, round_: tuple[jax.Array, ...]) -> tuple[State, jax.Array]:
    """One round on contexts i (B,) with uniforms (2, R, B) and nuisance (A, B); the mean reward of its trained rollouts."""
    i, u, nuisance = round_
    arms, rollouts = world.z0.shape[1], design.rollouts
    x = world.x[i]
    z = state.parameters["weights"].reshape(arms, -1) @ x.T + world.z0[i].T
    e = jnp.exp(z - z.max(0))
    cumulative = jnp.tri(arms) @ e
    total = cumulative[-1]
    odds = jnp.exp(-world.h0[i] - design.format_scale * state.parameters["theta"])
    p = 1 / (1 + odds)

    arm = (cumulative[:-1, None] <= u[0] * total).sum(0, dtype=jnp.int32)
    formatted = u[1] < p
    rewards = world.correct[i, arm] * formatted
    replay, advantage = advantages(design, state.replay, i, rewards)

    arm, formatted = arm[:rollouts], formatted[:rollouts]
    ratio = world.base[i, arm] * total / e[arm, jnp.arange(i.size)]
    odds0 = jnp.exp(-world.h0[i])
    ratio *= jnp.where(formatted, (1 + odds) / (1 + odds0), (1 + 1 / odds) / (1 + 1 / odds0))
    w = (advantage - KL_COEFFICIENT * (1 - ratio)) / arm.size

    w_sum = w.sum(0)
    chosen = jnp.where(arm == jnp.arange(arms)[:, None, None], w, 0.0).sum(1)
    g = chosen - e * (w_sum / total) + design.nuisance * jnp.sqrt((w * w).sum(0)) * nuisance
    slopes = {"weights": (g @ x).ravel(), "theta": design.format_scale * ((w * formatted).sum() - (w_sum * p).sum())}
    return adam(state._replace(replay=replay), slopes, design.rate), rewards[:rollouts].mean()


def evaluate(design: Design, world: World, parameters: dict) -> jax.Array:
    """Exact Pass@1 on all contexts of a split."""
    z = parameters["weights"].reshape(world.z0.shape[1], -1) @ world.x.T + world.z0.T
    e = jnp.exp(z - z.max(0))
    solved = (e * world.correct.T).sum(0) / e.sum(0)
    return (solved * jax.nn.sigmoid(world.h0 + design.format_scale * parameters["theta"])).mean()


@partial(jax.jit, static_argnames="design", donate_argnames="state")
def segment(design: Design, train: World, test: World, state: State, batches: jax.Array, key: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    """Rounds on batches (rounds, B), then Pass@1 on train and test; also the mean reward of every round."""
    rounds = batches.shape[0]
    keys = jax.random.split(key)
    u = jax.random.uniform(keys[0], (rounds, 2, design.rollouts + design.support, design.batch_size))
    nuisance = jax.random.normal(keys[1], (rounds, train.z0.shape[1], design.batch_size))
    state, rewards = jax.lax.scan(partial(play, design, train), state, (batches, u, nuisance))
    scores = jnp.stack([evaluate(design, world, state.parameters) for world in (train, test)])
    return state, scores, rewards


def train_seed(design: Design, train: World, test: World, batches: jax.Array, seed: int) -> np.ndarray:
    """All rounds of one seed; final Pass@1 on train and test."""
    state, key = start_state(train, design), jax.random.key(seed)
    for number, start in enumerate(range(0, batches.shape[0], EVALUATE_EVERY)):
        state, scores, _ = segment(design, train, test, state, batches[start : start + EVALUATE_EVERY], jax.random.fold_in(key, number))
    return np.asarray(scores)


def run(world: dict, cell: dict, rounds: int, seeds: list[int], rate: float) -> dict:
    """Train every seed, one after the other; seconds and final Pass@1."""
    train, test = world_of(world, "train"), world_of(world, "test")
    design = Design(**cell, format_scale=world["format_scale"], nuisance=world["nuisance"], rate=rate)
    batches = [jnp.asarray(epoch_batches(train.h0.size, design.batch_size, rounds, seed).astype(np.int32)) for seed in seeds]
    train_seed(design, train, test, batches[0][:EVALUATE_EVERY], seeds[0])
    start = time.perf_counter()
    finals = [train_seed(design, train, test, batch, seed) for batch, seed in zip(batches, seeds, strict=True)]
    return {"seconds": time.perf_counter() - start, "train": [float(final[0]) for final in finals], "test": [float(final[1]) for final in finals]}


if __name__ == "__main__":
    report("jax", run)
