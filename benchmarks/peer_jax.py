"""The peer in JAX: python -m benchmarks.peer_jax.

jit over segments of 100 rounds and their evaluation, lax.scan over rounds, and optionally vmap over seeds.
On one core: XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".
Arms come first in every array of a batch, (A, B), and Adam sees flat vectors: XLA vectorises long last axes only.
"""

import math
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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

CHUNK = 128
"""Number of contexts worked on at a time, whose features stay in the second-level cache from the gather to the
gradient."""
BLOCK = 10
"""Number of rounds whose random numbers are drawn at once."""


class World(NamedTuple):
    """Contexts of one split, padded to whole chunks with contexts that have no correct arm; base is pi_base (N, A), n
    the unpadded N."""

    x: jax.Array
    z0: jax.Array
    h0: jax.Array
    correct: jax.Array
    base: jax.Array
    n: jax.Array


class Design(NamedTuple):
    """Settings on which a compiled round is specialised."""

    batch_size: int
    rollouts: int
    support: int
    window: int
    advantage: str
    format_scale: float
    nuisance: float
    rate: float


class Replay(NamedTuple):
    """Ring buffers (N, w) of each context's latest rewards, and the numbers of rewards pushed (N,)."""

    rewards: jax.Array
    pushed: jax.Array


class State(NamedTuple):
    """Parameters {W (A d,), theta_f ()}, the moments of Adam, and the windows."""

    parameters: dict
    m: dict
    v: dict
    step: jax.Array
    replay: Replay


def world_of(world: dict, split: str) -> World:
    """Return one split of the world."""
    n = len(world[f"h0_{split}"])
    padded = {
        key: np.concatenate([value := world[f"{key}_{split}"], np.zeros((-n % CHUNK, *value.shape[1:]), np.float32)])
        for key in ("x", "z0", "h0", "correct")
    }
    arrays = {key: jnp.asarray(value) for key, value in padded.items()}
    return World(**arrays, base=jax.nn.softmax(arrays["z0"], axis=1), n=jnp.asarray(n))


def start_state(world: World, design: Design) -> State:
    """Return a policy equal to its base, with empty windows."""
    n, d = world.x.shape

    def zeros() -> dict:
        return {"weights": jnp.zeros(d * world.z0.shape[1]), "theta": jnp.zeros(())}

    return State(
        zeros(), zeros(), zeros(), jnp.zeros(()), Replay(jnp.zeros((n, design.window)), jnp.zeros(n, jnp.int32))
    )


def push(replay: Replay, i: jax.Array, rewards: jax.Array) -> tuple[Replay, jax.Array, jax.Array]:
    """Append rewards (K, B) to the windows of contexts i. Return the buffers, and sum and number (B,) of the rewards in
    the windows."""
    size, pushed = replay.rewards.shape[1], replay.pushed[i]
    slots = (pushed + jnp.arange(rewards.shape[0])[:, None]) % size
    ring = replay.rewards.at[i, slots].set(rewards, unique_indices=rewards.shape[0] <= size, mode="promise_in_bounds")
    pushed += rewards.shape[0]
    counts = replay.pushed.at[i].set(pushed, unique_indices=True, mode="promise_in_bounds")
    return Replay(ring, counts), ring[i].sum(1), jnp.minimum(pushed, size)


def advantages(design: Design, replay: Replay, i: jax.Array, rewards: jax.Array) -> tuple[Replay, jax.Array]:
    """Return advantages (K, B) of the trained rollouts among rewards (R, B). Rewards are 0 or 1, so their sum equals
    their sum of squares."""
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
    """Make one ascent step of Adam."""
    step = state.step + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, state.m, slopes)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state.v, slopes)
    rate_m, scale_v = (scale / -jnp.expm1(step * math.log(beta)) for scale, beta in ((rate, BETA1), (1, BETA2)))
    parameters = jax.tree.map(lambda p, m, v: p + rate_m * m / (jnp.sqrt(scale_v * v) + EPS), state.parameters, m, v)
    return state._replace(parameters=parameters, m=m, v=v, step=step)


def exp_logits(weights: jax.Array, x: jax.Array, z0: jax.Array) -> jax.Array:
    """Return exp(z - max z) (A, B), the softmax before it is normalised."""
    z = weights.reshape(z0.shape[1], -1) @ x.T + z0.T
    return jnp.exp(z - z.max(0))


def learn(
    design: Design, world: World, parameters: dict, replay: Replay, chunk: tuple[jax.Array, ...]
) -> tuple[Replay, dict, jax.Array]:
    """Sample contexts i (B,) with uniforms (2, R, B) and nuisance (A, B). Return windows, dJ/dparameters, and the sum
    of the trained rewards."""
    i, u, nuisance = chunk
    arms, rollouts = nuisance.shape[0], design.rollouts
    x = world.x[i]
    e = exp_logits(parameters["weights"], x, world.z0[i])
    cumulative = jnp.tri(arms) @ e
    total = cumulative[-1]
    odds, odds0 = jnp.exp(-world.h0[i] - design.format_scale * parameters["theta"]), jnp.exp(-world.h0[i])
    p = 1 / (1 + odds)

    arm = (cumulative[:-1, None] <= u[0] * total).sum(0, dtype=jnp.int32)
    formatted = u[1] < p
    rewards = world.correct[i, arm] * formatted
    replay, advantage = advantages(design, replay, i, rewards)

    arm, formatted = arm[:rollouts], formatted[:rollouts]
    ratio = world.base[i, arm] * total / e[arm, jnp.arange(i.size)]
    ratio *= jnp.where(formatted, (1 + odds) / (1 + odds0), (1 + 1 / odds) / (1 + 1 / odds0))
    kl_slope = jnp.where((ratio > KL_RATIO_MIN) & (ratio < KL_RATIO_MAX), 1 - ratio, 0.0)
    w = (advantage - KL_COEFFICIENT * kl_slope) / (design.batch_size * rollouts)

    w_sum = w.sum(0)
    chosen = jnp.where(arm == jnp.arange(arms)[:, None, None], w, 0.0).sum(1)
    g = chosen - e * (w_sum / total) + design.nuisance * jnp.sqrt((w * w).sum(0)) * nuisance
    slopes = {"weights": (g @ x).ravel(), "theta": design.format_scale * ((w * formatted).sum() - (w_sum * p).sum())}
    return replay, slopes, rewards[:rollouts].sum()


def play(design: Design, world: World, state: State, chunks: tuple[jax.Array, ...]) -> tuple[State, jax.Array]:
    """Run one round, chunk by chunk; return its mean reward too."""

    def add(carry: tuple, chunk: tuple[jax.Array, ...]) -> tuple[tuple, None]:
        replay, slopes, reward = carry
        replay, *terms = learn(design, world, state.parameters, replay, chunk)
        return (replay, *jax.tree.map(jnp.add, (slopes, reward), tuple(terms))), None

    (replay, slopes, reward), _ = jax.lax.scan(
        add, (state.replay, jax.tree.map(jnp.zeros_like, state.parameters), 0.0), chunks
    )
    return adam(state._replace(replay=replay), slopes, design.rate), reward / (design.batch_size * design.rollouts)


def play_block(
    design: Design, world: World, state: State, block: tuple[jax.Array, jax.Array]
) -> tuple[State, jax.Array]:
    """Run rounds on batches (rounds, chunks, contexts), whose random numbers are drawn together."""
    batches, key = block
    rounds, chunks, size = batches.shape
    keys = jax.random.split(key)
    u = jax.random.uniform(keys[0], (rounds, chunks, 2, design.rollouts + design.support, size))
    nuisance = jax.random.normal(keys[1], (rounds, chunks, world.z0.shape[1], size))
    return jax.lax.scan(partial(play, design, world), state, (batches, u, nuisance))


def evaluate(design: Design, world: World, parameters: dict) -> jax.Array:
    """Return exact Pass@1 on all contexts of a split."""

    def add(total: jax.Array, chunk: World) -> tuple[jax.Array, None]:
        e = exp_logits(parameters["weights"], chunk.x, chunk.z0)
        solved = (e * chunk.correct.T).sum(0) / e.sum(0)
        return total + jnp.vdot(solved, jax.nn.sigmoid(chunk.h0 + design.format_scale * parameters["theta"])), None

    chunks = jax.tree.map(lambda a: a.reshape(-1, CHUNK, *a.shape[1:]), world._replace(n=None))
    return jax.lax.scan(add, 0.0, chunks)[0] / world.n


def segment(
    design: Design, train: World, test: World, state: State, batches: jax.Array, key: jax.Array
) -> tuple[State, jax.Array, jax.Array]:
    """Run rounds on batches (rounds, B), then evaluate Pass@1 on train and test; return the mean reward of every round
    too."""
    rounds, batch_size = batches.shape
    block, size = math.gcd(rounds, BLOCK), CHUNK if batch_size % CHUNK == 0 else batch_size
    keys = jax.random.split(jax.random.fold_in(key, state.step.astype(int)), rounds // block)
    state, rewards = jax.lax.scan(
        partial(play_block, design, train), state, (batches.reshape(rounds // block, block, -1, size), keys)
    )
    return state, jnp.stack([evaluate(design, world, state.parameters) for world in (train, test)]), rewards.ravel()


@partial(jax.jit, static_argnames="design", donate_argnames="state")
@jax.threefry_partitionable(False)
def segment_of_seeds(
    design: Design, train: World, test: World, state: State, batches: jax.Array, keys: jax.Array
) -> tuple[State, jax.Array, jax.Array]:
    """Run `segment` for S seeds at once. Partitionable threefry is turned off, because it draws one number where this
    draws two."""
    return jax.vmap(partial(segment, design, train, test))(state, batches, keys)


class Group(NamedTuple):
    """Seeds that run side by side: their state, and keys (S,)."""

    state: State
    keys: jax.Array


def group_of(design: Design, train: World, seeds: list[int]) -> Group:
    """Return everything that seeds need before their first round, except for the order of contexts."""
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], len(seeds), axis=0), start_state(train, design))
    return Group(state, jnp.stack([jax.random.key(seed) for seed in seeds]))


def batches_of(design: Design, train: World, rounds: int, seeds: list[int]) -> list[jax.Array]:
    """Return the batches (S, rounds, B) of each segment."""
    order = np.stack([epoch_batches(int(train.n), design.batch_size, rounds, seed) for seed in seeds]).astype(np.int32)
    return [jnp.asarray(order[:, s]) for s in segments(rounds)]


def finish(design: Design, train: World, test: World, group: Group, order: list[jax.Array]) -> np.ndarray:
    """Run all rounds of a group; return final Pass@1 on train and test (S, 2)."""
    state = group.state
    for batches in order:
        state, scores, _ = segment_of_seeds(design, train, test, state, batches, group.keys)
    return np.asarray(scores)


def run(world: dict, cell: dict, rounds: int, seeds: list[int], rate: float, at_once: int | None = None) -> dict:
    """Train the seeds, `at_once` of them side by side (by default all where batches are small, else one). Return
    seconds and final Pass@1."""
    train, test = world_of(world, "train"), world_of(world, "test")
    design = Design(**cell, format_scale=world["format_scale"], nuisance=world["nuisance"], rate=rate)
    at_once = at_once or (len(seeds) if design.batch_size < CHUNK else 1)
    parts = [seeds[first : first + at_once] for first in range(0, len(seeds), at_once)]
    groups = [group_of(design, train, part) for part in parts]
    for size in {len(part) for part in parts}:
        finish(
            design,
            train,
            test,
            group_of(design, train, seeds[:size]),
            batches_of(design, train, rounds, seeds[:size])[-2:],
        )
    jax.block_until_ready(groups)
    start = time.perf_counter()
    finals = np.concatenate(
        [
            finish(design, train, test, group, batches_of(design, train, rounds, part))
            for group, part in zip(groups, parts, strict=True)
        ]
    )
    return {"seconds": time.perf_counter() - start, "train": finals[:, 0].tolist(), "test": finals[:, 1].tolist()}


if __name__ == "__main__":
    report("jax", run)
