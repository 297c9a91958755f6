"""The same bits for every target: a process of its own compiles for another one and trains the same runs."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rftlab import Design, Linear, Simulation, objective_and_weights, prepare, preset, simulate
from rftlab.sim.environments import build
from rftlab.sim.lanes.tiles import TARGET, TARGETS, find_target, tile_sizes
from tests.support.machine.isa import NUMBA, can_run, numpy_beyond_avx2

ROOT = Path(__file__).resolve().parents[2]
SMALL = Linear(n_train=70, n_test=19, n_features=48)
"""As few as make every kind of tile, a last one that is not full too; without fused multiply-add a round takes sixty
times as long."""
DESIGNS = {
    "raw": Design(batch_size=32, rollouts=1, estimator=preset("minimalist")),
    "groups": Design(batch_size=3, rollouts=37, estimator=preset("paper_text")),
    "window": Design(batch_size=64, rollouts=1, replay_window=8, estimator=preset("paper_text")),
    "again": Design(batch_size=8, rollouts=9, epochs=2, minibatches=2, estimator=preset("gspo")),
    "apply_mask": Design(batch_size=8, rollouts=4, estimator=preset("clip_cov")),
}


def world_digest() -> str:
    """A line for the world, for which nothing is compiled."""
    world = build(SMALL)
    return f"world {_digest(world.train.base_logits, world.train.base_lse, world.test.base_format_logp)}"


def digests() -> str:
    """A line for the world, for the curve of each design and for the weights of each of some estimators."""
    world, lines = build(SMALL), [world_digest()]
    for name, design in DESIGNS.items():
        curve = simulate(Simulation(SMALL, replace(design, rounds=3, eval_every=3), seed=1), world).curve
        lines.append(f"{name} {_digest(*(column for field, column in curve._asdict().items() if field != 'seconds'))}")
    for name in ("paper_text", "gmpo", "cispo", "dro"):
        lines.append(f"{name} {_digest(*_weighed(preset(name)))}")
    return "\n".join(lines)


def _weighed(estimator):
    rng, n = np.random.default_rng(0), 600
    old = -rng.random(n)
    batch = prepare(
        estimator,
        rng.integers(0, 2, n // 3),
        np.arange(n // 3) // 8,
        np.arange(0, n + 1, 3),
        old,
        old + 0.3 * rng.standard_normal(n),
    )
    found = objective_and_weights(estimator, batch, old + 0.1 * rng.standard_normal(n))
    return np.float64(found.objective), found.weight, np.float64(found.kl)


def _digest(*arrays) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def elsewhere(environment: dict[str, str], name: str = "digests") -> str:
    """What `digests`, or another function of that name, finds in a process with this environment."""
    code = f"from tests.sim.test_targets import {name}; print({name}())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("target", NUMBA)
def test_every_target_gives_the_same_bits(target):
    if not can_run(target):
        pytest.skip(f"this machine cannot run code for {target}")
    if TARGET.name.lower() == target:
        pytest.skip(f"{target} is what this process compiles for")
    assert elsewhere(NUMBA[target]) == digests()


def test_the_worlds_of_other_processors_are_the_same():
    """OpenBLAS and NumPy choose kernels by the processor, each with an order of sums of its own."""
    if not can_run("avx2"):
        pytest.skip("NumPy and OpenBLAS can be told to use other kernels on x86 alone")
    other = {"OPENBLAS_CORETYPE": "Sandybridge", "NPY_DISABLE_CPU_FEATURES": numpy_beyond_avx2()}
    assert elsewhere(other, "world_digest") == world_digest()


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ("+64bit,+avx2,+avx512f,+avx512bw", "AVX-512"),
        ("+avx,+avx2,-avx512f", "AVX2"),
        ("+fp-armv8,+neon", "NEON"),
        ("+sse2", "plain"),
        ("", "plain"),
    ],
)
def test_the_target_follows_from_the_features(features, name):
    assert find_target(features).name == name


def test_targets_have_room_for_their_tiles():
    """The sums of a tile and what they meet fit the registers, so that nothing of a loop waits in memory."""
    for target in TARGETS:
        tiles = tile_sizes(target)
        parts = 16 // target.lanes
        assert parts * tiles.contexts * tiles.halves < target.registers
        assert 8 % tiles.pairs == 0 and tiles.contexts <= 8
        assert tiles.pairs == 1 or parts * 2 * tiles.pairs < target.registers
