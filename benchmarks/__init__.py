"""Peers of the simulator: a training round of the linear environment written in NumPy, in PyTorch and in JAX.

Every peer has run(world, cell, rounds, seeds, rate) -> {"seconds", "train", "test"}: wall seconds of all seeds (warm-up
and compilation excluded, drawing the order of contexts and exact evaluation every 100 rounds included) and the final
exact Pass@1 of each seed. Each peer draws its own random numbers, so they agree in distribution, not in bits. Here N =
contexts, d = features, A = arms, B = contexts per round, K = trained rollouts, M = support rollouts, R = K + M.
"""

from collections.abc import Callable, Iterator

import numpy as np

EVALUATE_EVERY = 100
KL_COEFFICIENT = 0.001
KL_RATIO_MIN, KL_RATIO_MAX = 1.6701979751525093e-05, 13.610868638150247
"""Ratios pi_base/pi between which the KL estimate k3 is below 10; beyond, it is clipped to 10 and has no slope."""
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
"""Constants of Adam."""
SPREAD_EPS = 1e-6
"""Constant added to the standard deviation of a baseline set."""


def cell(batch_size: int, rollouts: int, support: int = 0, window: int = 0, advantage: str = "grpo") -> dict:
    """Return a design: contexts per round, trained rollouts, support rollouts, replay window (0 = off), advantage
    reward or grpo."""
    return {
        "batch_size": batch_size,
        "rollouts": rollouts,
        "support": support,
        "window": window,
        "advantage": advantage,
    }


CELLS = {
    "(32,1) raw": cell(32, 1, advantage="reward"),
    "(32,1)+7": cell(32, 1, support=7),
    "(32,8)": cell(32, 8),
    "(32,64)": cell(32, 64),
    "(256,1) window 8": cell(256, 1, window=8),
    "(2048,1) window 8": cell(2048, 1, window=8),
}


def epoch_batches(n: int, batch_size: int, rounds: int, seed: int) -> np.ndarray:
    """Return contexts (rounds, B) in epoch order, reshuffled every epoch, without the last partial batch."""
    rng = np.random.default_rng(seed)
    per_epoch = n // batch_size
    epochs = [
        rng.permutation(n)[: per_epoch * batch_size].reshape(per_epoch, batch_size)
        for _ in range(-(-rounds // per_epoch))
    ]
    return np.concatenate(epochs)[:rounds]


def segments(rounds: int) -> Iterator[slice]:
    """Return slices of rounds between evaluations."""
    return (slice(start, min(start + EVALUATE_EVERY, rounds)) for start in range(0, rounds, EVALUATE_EVERY))


def random_world(
    seed: int = 0, n_train: int = 7473, n_test: int = 1319, d: int = 448, answers: int = 8, styles: int = 2
) -> dict:
    """Return a learnable world: a linear teacher scores the answers, and the base policy is a noisy copy of it."""
    rng = np.random.default_rng(seed)
    teacher = rng.standard_normal((d, answers)) / np.sqrt(d)
    world = {"format_scale": 30.0, "nuisance": 1.0}
    for name, n in (("train", n_train), ("test", n_test)):
        x = rng.standard_normal((n, d))
        score = x @ teacher
        right = score.argmax(1)[:, None] == np.arange(answers)
        logits = 4.0 * np.repeat(score, styles, axis=1) + 0.5 * rng.standard_normal((n, answers * styles))
        arrays = {
            "x": x,
            "z0": logits,
            "h0": -4.0 + rng.standard_normal(n),
            "correct": np.repeat(right, styles, axis=1),
        }
        world |= {f"{key}_{name}": np.ascontiguousarray(value, dtype=np.float32) for key, value in arrays.items()}
    return world


def report(
    name: str, run: Callable[[dict, dict, int, list[int], float], dict], world: dict | None = None, repeats: int = 3
) -> None:
    """Print the best microseconds per round of each cell, evaluation included."""
    world = world or random_world()
    for label, design in CELLS.items():
        rounds = 200 if design["batch_size"] > 1000 else 1000
        seconds = min(run(world, design, rounds, [seed], 4e-3)["seconds"] for seed in range(repeats))
        print(f"{name:>6}  {label:<18} {1e6 * seconds / rounds:8.1f} us per round", flush=True)
