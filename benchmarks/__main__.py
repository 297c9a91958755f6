"""Our simulator beside its peers, in one process on one core: `make bench`, or `python -m benchmarks --help`.

Every cell of the seven experiments is timed in turn (ours, NumPy, PyTorch, JAX, and again), evaluation included,
compilation not; medians and ratios are printed. The libraries are kept to one thread, and with --isa avx2 to AVX2
(`tests/support/machine/isa.py`), for which the process starts itself again. The grid is the time of 2,000 rounds of
every cell. Results are not checked here but in the test suite.
"""

import argparse
import importlib
import os
import resource
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from rich.console import Console

from benchmarks import cell as peer_cell
from rftlab.shared.cards import preset
from rftlab.shared.estimator import as_rule
from rftlab.shared.objective import objective_and_weights_into
from rftlab.shared.prepare import prepare
from rftlab.sim.config import Simulation
from rftlab.sim.environments import build
from rftlab.sim.lanes.tiles import TARGET
from rftlab.sim.run import epoch_order, simulate
from rftlab.studies.console.table import Table
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.points import RunSpec
from tests.support.machine.isa import ONE_THREAD, only_avx2

PAIR, ROUNDS, EVAL_EVERY = "qwen-gsm8k", 2000, 100
PEERS = ("numpy", "torch", "jax")
ISAS = {"native": lambda: ONE_THREAD, "avx2": lambda: ONE_THREAD | only_avx2()}
JAX_NOTE = (
    "; the matrix products of JAX's library still choose theirs by the processor, which favours JAX "
    "where that has AVX-512"
)
FEW = ("32x1", "32x1+7", "32x8", "32x64", "256x1w8", "2048x1w8")


def start() -> Simulation:
    """Return the pair's run, without the sharpening that the peers do not have."""
    known = start_at(PAIR, "sim")
    return replace(known, environment=replace(known.environment, sharpening=0.0))


def restart_with(environment: dict[str, str]) -> None:
    """Replace this process by one with an environment, because libraries read it when they are imported. Do nothing
    where this process has it."""
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **environment})


def peak_flops() -> float:
    """Return the floating-point operations per second of a large single-precision matrix product on this core."""
    a = np.random.default_rng(0).standard_normal((2048, 2048), dtype=np.float32)
    return 2 * 2048**3 / statistics.median(_seconds(lambda: a @ a) for _ in range(5))


def _seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peer_world(world) -> dict:
    """Return our world in the peers' terms."""
    arms = np.arange(world.n_arms, dtype=np.uint32)
    known = {"format_scale": world.format_scale, "nuisance": world.nuisance}
    for name, part in (("train", world.train), ("test", world.test)):
        correct = ((part.correct[:, None] >> arms) & 1).astype(np.float32)
        arrays = {
            "x": part.features,
            "z0": part.base_logits[:, : world.n_arms],
            "h0": part.base_format,
            "correct": correct,
        }
        known |= {f"{key}_{name}": np.ascontiguousarray(value, dtype=np.float32) for key, value in arrays.items()}
    return known


def timed_rounds(design) -> int:
    """Return the number of rounds to time: about equal work in every cell, in whole evaluations."""
    pulls = design.batch_size * (design.rollouts + design.support_rollouts)
    return max(2, min(10, 20000 // max(pulls, design.batch_size * 4))) * EVAL_EVERY


def cell_times(design, world, theirs, peers, repeats) -> dict[str, float]:
    """Return the median seconds per round of every contender on one design, run in turn."""
    known, rounds = start(), timed_rounds(design)
    run = Simulation(known.environment, replace(design, rounds=rounds, eval_every=EVAL_EVERY), known.optimizer)
    advantage = "reward" if design.estimator.advantage.baseline == "none" else "grpo"
    same = peer_cell(design.batch_size, design.rollouts, design.support_rollouts, design.replay_window, advantage)
    seconds = {name: [] for name in ("ours", *peers)}
    for seed in range(repeats):
        epoch_order.cache_clear()  # because the peers draw their orders too
        seconds["ours"].append(_seconds(lambda seed=seed: simulate(replace(run, seed=seed), world)) / rounds)
        for name, module in peers.items():
            taken = module.run(theirs, same, rounds, [seed], known.optimizer.learning_rate)["seconds"]
            seconds[name].append(taken / rounds)
    return {name: statistics.median(values) for name, values in seconds.items()}


def compare(console: Console, designs: list, peers: dict, repeats: int) -> None:
    """Print the table of cells, and the time of the grid."""
    known, peak = start(), peak_flops()
    world = build(known.environment)
    theirs, sums, worst = peer_world(world), dict.fromkeys(("ours", *peers), 0.0), {}
    title = f"microseconds per round, {PAIR}, one core; matrix products at peak {peak / 1e9:.0f} GFLOP/s"
    table = Table("cell", "ours", "of peak", *peers, *(f"{name}/ours" for name in peers), title=title)
    for design in designs:
        times = cell_times(design, world, theirs, peers, repeats)
        d, arms = known.environment.n_features, world.n_arms
        contexts = 2 * design.batch_size + (known.environment.n_train + known.environment.n_test) / EVAL_EVERY
        ratios = {name: times[name] / times["ours"] for name in peers}
        worst = {name: min(worst.get(name, np.inf), ratio) for name, ratio in ratios.items()}
        sums = {name: sums[name] + ROUNDS * value for name, value in times.items()}
        share = 2 * d * arms * contexts / times["ours"] / peak
        cells = [
            f"{1e6 * times['ours']:.0f}",
            f"{share:.0%}",
            *(f"{1e6 * times[name]:.0f}" for name in peers),
            *(f"{r:.1f}x" for r in ratios.values()),
        ]
        table.add(label(design), *cells)
    console.print(table)
    for name in peers:
        ratio = sums[name] / sums["ours"]
        times = f"ours {sums['ours']:.1f} s, {name} {sums[name]:.1f} s"
        console.print(
            f"grid of {len(designs)} cells x {ROUNDS} rounds: {times}: {ratio:.2f}x; worst cell {worst[name]:.2f}x"
        )


def objective_times(console: Console, n: int = 32_768) -> None:
    """Print the nanoseconds per token of the clipped surrogate with k3."""
    rng, estimator = np.random.default_rng(0), preset("paper_text")
    old = -rng.random(n)
    batch = prepare(
        estimator, rng.integers(0, 2, n), np.arange(n) // 8, np.arange(n + 1), old, old + 0.3 * rng.standard_normal(n)
    )
    weight, rule = np.empty(n), as_rule(estimator)
    for name, logp in (("on-policy", old), ("off-policy", old + 0.1 * rng.standard_normal(n))):
        objective_and_weights_into(rule, batch, logp, weight)
        seconds = statistics.median(
            _seconds(lambda logp=logp: objective_and_weights_into(rule, batch, logp, weight)) for _ in range(100)
        )
        console.print(f"objective_and_weights, {name}: {1e9 * seconds / n:.1f} ns per token")


def grid(console: Console, threads: int, seeds: int) -> float:
    """Return the wall seconds of all cells of one pair, 2,000 rounds, on `threads` threads, the longest first as in a
    study."""
    known = start_at(PAIR, "sim")
    world = build(known.environment)
    runs = [
        Simulation(known.environment, design, known.optimizer, seed=seed)
        for seed in range(seeds)
        for design in distinct_cells(list(EXPERIMENTS.values()))
    ]
    runs.sort(key=lambda run: -RunSpec(PAIR, run).cost)
    cpu = time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        wall = _seconds(lambda: list(pool.map(lambda run: simulate(run, world), runs)))
    console.print(
        f"all {len(runs)} runs on {threads} threads: {wall:.2f} s wall, {time.process_time() - cpu:.2f} CPU-seconds"
    )
    return wall


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--few", action="store_true", help="six cells instead of all (PyTorch compiles for most of a minute per cell)"
    )
    parser.add_argument("--isa", default="native", choices=ISAS, help="instruction set of ours and the peers")
    arguments, console = parser.parse_args(), Console(width=150)
    restart_with(ISAS[arguments.isa]())
    console.print(
        f"instruction set: {TARGET.name}{JAX_NOTE if arguments.isa == 'avx2' and 'jax' in arguments.peers else ''}"
    )
    cores = os.sched_getaffinity(0)
    small = replace(start().environment, n_train=64, n_test=64)
    simulate(Simulation(small), build(small))
    objective_times(console)
    walls = {threads: grid(console, threads, 2) for threads in (1, min(2, len(cores)))}
    console.print(f"parallel efficiency on 2 threads: {walls[1] / (2 * walls[min(2, len(cores))]):.0%}")
    console.print(f"peak memory so far: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
    os.sched_setaffinity(0, {max(cores)})
    designs = distinct_cells(list(EXPERIMENTS.values()))
    if arguments.few:
        designs = [design for design in designs if label(design).split("-")[0] in FEW]
    compare(
        console,
        designs,
        {name: importlib.import_module(f"benchmarks.peer_{name}") for name in arguments.peers},
        arguments.repeats,
    )


if __name__ == "__main__":
    main()
