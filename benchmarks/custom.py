"""Functions of one's own beside the compiled estimator, in the simulator: `python -m benchmarks.custom`.

CPU time of a round, by turns in one process; the table has medians over the turns, and ratios to the compiled
`group_mean` of the same cell. Every turn is another seed, and its functions begin without what they found before;
the first turn, which compiles, is left out.
"""

import argparse
import statistics
import time
from dataclasses import replace

import numba
import numpy as np
from rich.console import Console

import rftlab as rl
from rftlab.shared.estimator import Estimator
from rftlab.sim.environments import build
from rftlab.sim.lanes.tiles import TARGET
from rftlab.studies.console.table import Table

CELLS = {"64x8": (64, 8), "32x8": (32, 8), "32x64": (32, 64)}
PENALTY = rl.KL("k1", coef=0.01, place="reward")
"""A penalty with which no two groups have equal rewards, so that no result is reused."""


def mean(rewards):
    """Return rewards minus their mean."""
    return rewards - rewards.mean()


def median(rewards, pool):
    """Return rewards minus their median, over the median deviation."""
    middle = np.median(pool)
    return (rewards - middle) / (np.median(np.abs(pool - middle)) + 0.5)


def stacked_median(rewards, pool):
    """Return `median` of all groups at once."""
    middle = np.median(pool, axis=1, keepdims=True)
    return (rewards - middle) / (np.median(np.abs(pool - middle), axis=1, keepdims=True) + 0.5)


def clip(advantage, logp, old_logp):
    """Return the clip of PPO."""
    ratio = np.exp(logp - old_logp)
    held = advantage * np.clip(ratio, 0.8, 1.2)
    return np.minimum(advantage * ratio, held), np.where(held < advantage * ratio, 0.0, advantage * ratio)


def estimators() -> dict[str, Estimator]:
    """Return the compiled estimator, then custom functions to compare with it."""
    rl.advantage("bench_mean")(mean)
    rl.advantage("bench_median")(median)
    rl.advantage("bench_stacked", batched=True)(stacked_median)
    rl.advantage("bench_compiled")(numba.njit(mean))
    rl.advantage("bench_compiled_median")(numba.njit(median))
    rl.surrogate("bench_clip", advantage=rl.Advantage("group_mean"))(clip)
    names = {"mean, numba": "compiled", "mean": "mean", "median": "median", "median, batched": "stacked"}
    names |= {"median, numba": "compiled_median", "clip": "clip"}
    own = {told: rl.preset(f"bench_{name}") for told, name in names.items()}
    return {"compiled": rl.Estimator(rl.Advantage("group_mean"))} | own


def cpu_us(run, world) -> float:
    """Return the CPU time of a round in us, after the compilation of the first rounds."""
    rl.simulate(replace(run, seed=run.seed + 1000, design=replace(run.design, rounds=2, eval_every=1)), world)
    began = time.thread_time()
    rl.simulate(run, world)
    return 1e6 * (time.thread_time() - began) / run.design.rounds


def turn(run, world, kl) -> dict[str, float]:
    """Return the CPU time of a round with each estimator. They are registered anew, which drops their stored
    results."""
    designs = {told: replace(run.design, estimator=replace(one, kl=kl)) for told, one in estimators().items()}
    return {told: cpu_us(replace(run, design=design), world) for told, design in designs.items()}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=[*CELLS])
    options = parser.parse_args()
    start = rl.start_at("qwen-gsm8k", "sim")
    columns = ("cell", "reward", "compiled, us a round", *[*estimators()][1:])
    world, table = build(start.environment), Table(*columns, title=TARGET.name)
    for cell in options.cells:
        for reward, kl in (("0/1", rl.KL()), ("with a KL penalty", PENALTY)):
            design = rl.Design(*CELLS[cell], rounds=options.rounds, eval_every=options.rounds)
            turns = [turn(replace(start, design=design, seed=seed), world, kl) for seed in range(options.turns + 1)][1:]
            usual = {told: statistics.median(times[told] for times in turns) for told in turns[0]}
            ratios = [f"{usual[told] / usual['compiled']:.1f}" for told in [*usual][1:]]
            table.add(cell, reward, f"{usual['compiled']:.0f}", *ratios)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
