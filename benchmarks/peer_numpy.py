"""The peer in plain NumPy: python -m benchmarks.peer_numpy.

Arms come first in every array of a batch, (A, B), so that softmax, sampling and gradients run along contiguous
contexts. On AMD processors with AVX-512, OPENBLAS_CORETYPE=SkylakeX doubles the speed of OpenBLAS, which picks its AVX2
kernels there.
"""

import math
import time
from collections.abc import Iterator
from functools import partial

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

F32 = np.float32
DRAWS_AT_ONCE = 2**14
CHUNK = 128
"""Number of contexts per matrix product of the gradient; OpenBLAS has faster kernels for small matrices."""


class Policy:
    """W (d, A) and theta_f, their Adam moments, and the ascent step."""

    def __init__(self, d: int, arms: int, rate: float):
        self.weights, self.rate, self.step = np.zeros((d, arms), F32), rate, 0
        self.moments, self.gradient = np.zeros((2, d, arms), F32), np.zeros((2, d, arms), F32)
        """Discounted sums of g and g^2, and the two terms that this round adds."""
        self.scratch, self.decay = np.empty((d, arms), F32), np.array([BETA1, BETA2], F32)[:, None, None]
        self.theta, self.theta_m, self.theta_v = 0.0, 0.0, 0.0

    def ascend(self, theta_slope: float) -> None:
        """Make a step of Adam: theta += rate m_hat / (sqrt(v_hat) + eps), with the bias corrections folded into rate
        and eps."""
        self.step += 1
        spread = math.sqrt((1 - BETA2) / (1 - BETA2**self.step))
        rate, eps = self.rate * (1 - BETA1) / (1 - BETA1**self.step) / spread, EPS / spread
        g, squares = self.gradient
        np.multiply(g, g, out=squares)
        self.moments *= self.decay
        self.moments += self.gradient
        m, v = self.moments
        np.sqrt(v, out=self.scratch)
        self.scratch += F32(eps)
        np.divide(m, self.scratch, out=self.scratch)
        self.scratch *= F32(rate)
        self.weights += self.scratch
        self.theta_m = BETA1 * self.theta_m + theta_slope
        self.theta_v = BETA2 * self.theta_v + theta_slope * theta_slope
        self.theta += rate * self.theta_m / (math.sqrt(self.theta_v) + eps)


def normals(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return N(0, 1) in float32 by Box and Muller, because the ziggurat of `Generator` is not vectorised."""
    half = math.prod(shape) // 2
    radius, angle = rng.random((2, half), dtype=F32)
    np.subtract(F32(1), radius, out=radius)
    np.log(radius, out=radius)
    radius *= F32(-2)
    np.sqrt(radius, out=radius)
    angle *= F32(2 * math.pi)
    out = np.empty((2, half), F32)
    np.cos(angle, out=out[0])
    np.sin(angle, out=out[1])
    out *= radius
    return out.reshape(shape)


def draws(
    rng: np.random.Generator, rounds: int, responses: int, batch_size: int, arms: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each round uniforms (2, R, B) for formats and arms, and nuisance (A, B); drawn for many small rounds at
    once."""
    block = max(1, DRAWS_AT_ONCE // (batch_size * (arms + 2 * responses)))
    for _ in range(0, rounds, block):
        yield from zip(
            rng.random((block, 2, responses, batch_size), dtype=F32),
            normals(rng, (block, arms, batch_size)),
            strict=True,
        )


def exp_logits(x: np.ndarray, z0: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return exp(z - max z) (A, B), the softmax before it is normalised."""
    z = x @ weights
    z += z0
    e = z.T.copy()
    e -= np.maximum.reduce(e, axis=0)
    return np.exp(e, out=e)


def sample(e: np.ndarray, triangle: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return arms (R, B) by inverting the distribution at u (R, B), and the totals (B,) of e (A, B)."""
    cumulative = triangle @ e
    below = cumulative[:-1, None] <= u * cumulative[-1]
    return np.add.reduce(below.view(np.uint8), axis=0, dtype=np.uint8), cumulative[-1]


def contract(x: np.ndarray, g: np.ndarray, out: np.ndarray) -> None:
    """Set out (d, A) to x^T g^T, for x (B, d) and g (A, B)."""
    chunks = x.shape[0] // CHUNK if x.shape[0] % CHUNK == 0 else 1
    if chunks == 1:
        np.matmul(x.T, g.T, out=out)
    else:
        np.add.reduce(
            x.reshape(chunks, -1, x.shape[1]).transpose(0, 2, 1) @ g.T.reshape(chunks, -1, g.shape[0]), axis=0, out=out
        )


class Replay:
    """Ring buffers (N, w) of each context's latest rewards, and the numbers of rewards pushed (N,)."""

    def __init__(self, n: int, size: int, rollouts: int):
        self.rewards, self.pushed, self.ones = np.zeros((n, size), F32), np.zeros(n, np.int64), np.ones(size, F32)
        self.turns = np.arange(rollouts)[:, None]

    def push(self, i: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Append rewards (K, B) to the windows of contexts i; return sum and number (B,) of the rewards in the
        windows."""
        size, pushed = self.ones.size, self.pushed[i]
        np.put(self.rewards, i * size + (pushed + self.turns) % size, rewards)
        pushed += self.turns.size
        self.pushed[i] = pushed
        return self.rewards.take(i, axis=0) @ self.ones, np.minimum(pushed, size).astype(F32)


def advantages(cell: dict, replay: Replay | None, i: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Return advantages (K, B) of the trained rollouts among rewards (R, B). Rewards are 0 or 1, so their sum equals
    their sum of squares."""
    trained, support = rewards[: cell["rollouts"]], rewards[cell["rollouts"] :]
    if cell["advantage"] == "reward":
        return trained
    if replay:
        total, size = replay.push(i, trained)
        total += np.add.reduce(support, axis=0)
        size += support.shape[0]
    elif rewards.shape[0] == 1:
        return trained / F32(1 + SPREAD_EPS)
    else:
        total, size = np.add.reduce(rewards, axis=0), F32(rewards.shape[0])
    mean = total / size
    std = np.sqrt((total - total * mean) / np.maximum(size - 1, F32(1)))
    if replay:
        alone = size == 1
        mean[alone], std[alone] = 0, 1
    return (trained - mean) / (std + F32(SPREAD_EPS))


class Tables:
    """Read-only data of a run: pi_base(a) (N, A), P_base(f) (N, 2), correct arms (A, N)."""

    def __init__(self, world: dict, batch_size: int):
        base = np.exp(world["z0_train"] - world["z0_train"].max(1, keepdims=True))
        self.base = base / base.sum(1, keepdims=True)
        self.base_format = np.stack([1 / (1 + np.exp(world["h0_train"])), 1 / (1 + np.exp(-world["h0_train"]))], axis=1)
        self.correct_t = {name: np.ascontiguousarray(world[f"correct_{name}"].T) for name in ("train", "test")}
        self.triangle, self.columns = np.tri(base.shape[1], dtype=F32), np.arange(batch_size)


class Game:
    """One seed's run of one design."""

    def __init__(self, world: dict, cell: dict, tables: Tables, rate: float):
        self.world, self.cell, self.tables = world, cell, tables
        self.policy = Policy(world["x_train"].shape[1], tables.triangle.shape[0], rate)
        self.replay = Replay(world["h0_train"].size, cell["window"], cell["rollouts"]) if cell["window"] else None
        self.x = np.empty((cell["batch_size"], world["x_train"].shape[1]), F32)

    def play(self, i: np.ndarray, u: np.ndarray, nuisance: np.ndarray) -> float:
        """Run one round on contexts i (B,); return the mean reward of its trained rollouts."""
        world, tables, policy, rollouts = self.world, self.tables, self.policy, self.cell["rollouts"]
        arms = tables.triangle.shape[0]
        x = world["x_train"].take(i, axis=0, out=self.x, mode="clip")
        e = exp_logits(x, world["z0_train"].take(i, axis=0), policy.weights)
        odds = np.exp(F32(-world["format_scale"] * policy.theta) - world["h0_train"].take(i))
        p = 1 / (1 + odds)

        arm, total = sample(e, tables.triangle, u[0])
        formatted = u[1] < p
        where = i * arms + arm
        rewards = world["correct_train"].take(where)
        rewards *= formatted
        advantage = advantages(self.cell, self.replay, i, rewards)

        arm, formatted, where = arm[:rollouts], formatted[:rollouts], where[:rollouts]
        here = arm * np.intp(i.size) + tables.columns
        ratio = tables.base.take(where) * total / e.take(here)
        ratio *= tables.base_format.take(2 * i + formatted) / np.where(formatted, p, odds * p)
        kl_slope = np.where((ratio > F32(KL_RATIO_MIN)) & (ratio < F32(KL_RATIO_MAX)), 1 - ratio, F32(0))
        w = (advantage - F32(KL_COEFFICIENT) * kl_slope) / F32(arm.size)

        w_sum = np.add.reduce(w, axis=0)
        g = nuisance * (F32(world["nuisance"]) * np.sqrt(np.add.reduce(w * w, axis=0)))
        e *= w_sum / total
        g -= e
        g += np.bincount(here.ravel(), w.ravel(), g.size).astype(F32).reshape(g.shape)
        contract(x, g, policy.gradient[0])
        policy.ascend(world["format_scale"] * float(np.vdot(w, formatted) - np.dot(w_sum, p)))
        return np.count_nonzero(rewards[:rollouts]) / arm.size

    def evaluate(self, name: str, chunk: int = 1024) -> float:
        """Return exact Pass@1 on all contexts of train or test."""
        world, policy, correct, total = self.world, self.policy, self.tables.correct_t[name], 0.0
        p = 1 / (1 + np.exp(F32(-world["format_scale"] * policy.theta) - world[f"h0_{name}"]))
        for start in range(0, p.size, chunk):
            s = slice(start, start + chunk)
            e = exp_logits(world[f"x_{name}"][s], world[f"z0_{name}"][s], policy.weights)
            solved = np.add.reduce(e * correct[:, s], axis=0) / np.add.reduce(e, axis=0)
            total += float(np.dot(solved, p[s]))
        return total / p.size


def train(game: Game, batches: np.ndarray, seed: int) -> tuple[float, float, list[float]]:
    """Run all rounds; return final Pass@1 on train and test, and the mean reward of every round."""
    rounds, batch_size = batches.shape
    responses, arms = game.cell["rollouts"] + game.cell["support"], game.tables.triangle.shape[0]
    stream, rewards = draws(np.random.Generator(np.random.SFC64(seed)), rounds, responses, batch_size, arms), []
    for segment in segments(rounds):
        rewards += [game.play(i, u, nuisance) for i, (u, nuisance) in zip(batches[segment], stream, strict=False)]
        train, test = game.evaluate("train"), game.evaluate("test")
    return train, test, rewards


def run(world: dict, cell: dict, rounds: int, seeds: list[int], rate: float) -> dict:
    """Train every seed, one after the other; return seconds and final Pass@1."""
    tables, batches_of = (
        Tables(world, cell["batch_size"]),
        partial(epoch_batches, world["h0_train"].size, cell["batch_size"]),
    )
    warm, *games = [Game(world, cell, tables, rate) for _ in range(len(seeds) + 1)]
    train(warm, batches_of(10, seeds[0]), seeds[0])
    start = time.perf_counter()
    finals = [train(game, batches_of(rounds, seed), seed) for game, seed in zip(games, seeds, strict=True)]
    return {
        "seconds": time.perf_counter() - start,
        "train": [final[0] for final in finals],
        "test": [final[1] for final in finals],
    }


if __name__ == "__main__":
    report("numpy", run)
