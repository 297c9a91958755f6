"""Fit a pair's simulator parameters to its published endpoints: `python -m rftlab.studies.tools.fit qwen-gsm8k`.

Minimises the mean absolute error over every published cell and the base model, train and test, on one training seed, by
Nelder and Mead's simplex in unbounded coordinates (logarithms and logits) from the preset. Only GSM8K
pairs: the presets of MATH were chosen before most of its cells were read, and stay as they are so that these test them.
What it prints goes into `studies/paper/pairs.py`.
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from rftlab.shared.curve import SPLITS
from rftlab.shared.errors import check
from rftlab.sim.config import Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.paper.experiments import EXPERIMENTS, cells_of
from rftlab.studies.paper.pairs import PAIRS, Pair, linear_of, pair, start_at
from rftlab.studies.paper.published import published

_POSITIVE, _FRACTION = ("nuisance", "kappa"), ("align", "rho")


def _encode(known: Simulation) -> np.ndarray:
    environment = linear_of(known)
    logs = [np.log(known.optimizer.learning_rate), *(np.log(getattr(environment, name)) for name in _POSITIVE)]
    return np.array([*logs, *(logit(getattr(environment, name)) for name in _FRACTION), environment.base_format])


def _decode(known: Simulation, x: np.ndarray) -> Simulation:
    values = (*np.exp(x[1:3]), *expit(x[3:5]), x[5])
    changes: dict[str, Any] = dict(zip((*_POSITIVE, *_FRACTION, "base_format"), map(float, values), strict=True))
    environment = replace(linear_of(known), **changes)
    return replace(
        known, environment=environment, optimizer=replace(known.optimizer, learning_rate=float(np.exp(x[0])))
    )


def errors(known: Pair, run: Simulation, seed: int) -> np.ndarray:
    """Simulated less published Pass@1 of every published cell and the base model, train then test."""
    world = build(run.environment)
    found: dict[str, list[float]] = {split: [] for split in SPLITS}
    reported = {
        split: {
            cell: published(known.model, known.dataset, split, cell) for cell in cells_of(list(EXPERIMENTS.values()))
        }
        for split in SPLITS
    }
    for cell in (cell for cell, value in reported["test"].items() if value is not None):
        curve = simulate(replace(run, design=cell, seed=seed), world).curve
        for split in SPLITS:
            found[split].append(getattr(curve, f"{split}_pass_at_1")[-1] - reported[split][cell])
    for split in SPLITS:
        found[split].append(
            getattr(curve, f"{split}_pass_at_1")[0] - published(known.model, known.dataset, split, None)
        )
    return np.concatenate([found[split] for split in SPLITS])


def fit(name: str, evaluations: int, seed: int) -> Simulation:
    """The simulation with fitted parameters; each improvement is printed."""
    known, best = pair(name), np.inf
    check(
        known.dataset == "gsm8k",
        f"pair = {name!r} is held out, so nothing is fitted to it; allowed: "
        f"{', '.join(n for n, p in PAIRS.items() if p.dataset == 'gsm8k')}",
    )
    run = start_at(name, "sim")

    def loss(x: np.ndarray) -> float:
        nonlocal best
        candidate = _decode(run, x)
        value = float(np.abs(errors(known, candidate, seed)).mean())
        if value < best:
            best = value
            print(
                f"{value:.4f} rate={candidate.optimizer.learning_rate:.4g}",
                *(f"{k}={getattr(candidate.environment, k):.4g}" for k in (*_POSITIVE, *_FRACTION, "base_format")),
                flush=True,
            )
        return value

    start = _encode(run)
    simplex = np.vstack([start, start + np.diag([0.15, 0.15, 0.15, 0.3, 0.3, 0.3])])
    found = minimize(loss, start, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": evaluations})
    return _decode(run, found.x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pair")
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    fitted = fit(arguments.pair, arguments.evaluations, arguments.seed)
    for seed in range(5):
        train, test = np.abs(errors(pair(arguments.pair), fitted, seed)).reshape(2, -1).mean(axis=1)
        print(f"seed {seed}: mean absolute error {train:.4f} train, {test:.4f} test", flush=True)
