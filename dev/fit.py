"""Fit a pair's simulator parameters to its published endpoints: `python -m dev.fit qwen-gsm8k`.

It starts at the preset and minimises the absolute error of the mean over training seeds, over published cells and the
base model, train and test. The cell with the largest batch costs as much as all others; it is not fitted, and scored
separately. Runs are noisy and the parameters trade off against each other, so the search is CMA-ES (Hansen 2016, arXiv
1604.00772; `pip install cma`). With `--runs FILE` every run is kept there, and an interrupted search goes on. Damage is
scaled with the rate, so that the same multiples of it break a policy. With `--evaluations 0` it prints the errors of
the presets. Its output belongs into `studies/assets/pairs.csv`.
"""

import argparse
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import expit, logit

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import write_file
from rftlab.sim.config import Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.console.terminal import guarded
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, published
from rftlab.studies.data.paper.pairs import Pair, linear_environment, pair, start_at

FITTED = 256
"""Largest batch size of a cell that is fitted."""
BEND, SPREAD = 0.02, 0.7
"""Error below which the loss is quadratic; standard deviation of the first runs, in steps of the knobs."""


@dataclass(frozen=True)
class FitKnob:
    """A parameter that is fitted, in an unbounded coordinate whose unit is a useful step."""

    name: str
    kind: Literal["log", "logit", "plain"]
    step: float
    least: float = 1e-3
    """Value in place of 0 (and 1 - it in place of 1), which these coordinates cannot represent."""

    def encode(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.kind == "plain":
            return value / self.step
        value = max(value, self.least)
        return float(np.log(value) if self.kind == "log" else logit(min(value, 1 - self.least))) / self.step

    def decode(self, x: float) -> float:
        """Return the value at a coordinate."""
        x = x * self.step
        return float(x if self.kind == "plain" else np.exp(x) if self.kind == "log" else expit(x))


KNOBS = (
    FitKnob("learning_rate", "log", 0.25, 1e-8),
    FitKnob("nuisance", "log", 0.3),
    FitKnob("kappa", "log", 0.2),
    FitKnob("align", "logit", 0.3),
    FitKnob("rho", "logit", 0.5),
    FitKnob("base_format", "plain", 0.4),
    FitKnob("familiarity", "plain", 0.4),
    FitKnob("unsolvable", "logit", 0.7, 2e-3),
)


def encode(run: Simulation) -> np.ndarray:
    """Return the coordinates of a run, one for each of KNOBS."""
    environment = linear_environment(run)
    values = [getattr(run.optimizer if knob.name == "learning_rate" else environment, knob.name) for knob in KNOBS]
    return np.array([knob.encode(value) for knob, value in zip(KNOBS, values, strict=True)])


def decode(run: Simulation, x: np.ndarray) -> Simulation:
    """Return the run at coordinates x."""
    rate, *values = (knob.decode(float(at)) for knob, at in zip(KNOBS, x, strict=True))
    changes: dict[str, Any] = {knob.name: value for knob, value in zip(KNOBS[1:], values, strict=True)}
    environment = linear_environment(run)
    changes["damage"] = environment.damage * (run.optimizer.learning_rate / rate) ** 2
    return replace(
        run,
        environment=replace(environment, **changes),
        optimizer=replace(run.optimizer, learning_rate=rate),
    )


def errors(known: Pair, run: Simulation, seed: int, batch_size: int = 10**9) -> np.ndarray:
    """Return simulated minus published Pass@1 of the base model and of every published cell of at most `batch_size`,
    train then test."""
    world = build(run.environment)
    reported = {split: partial(published, known.model, known.dataset, split) for split in SPLITS}
    cells = [
        cell
        for cell in distinct_cells(list(EXPERIMENTS.values()))
        if cell.batch_size <= batch_size and reported["test"](cell) is not None
    ]
    with ThreadPoolExecutor() as pool:
        runs = [replace(run, design=replace(cell, eval_every=cell.rounds), seed=seed) for cell in cells]
        curves = [outcome.curve for outcome in pool.map(lambda run: simulate(run, world), runs)]
    differences: list[float] = []
    for split in SPLITS:
        scores = [getattr(curve, f"{split}_pass_at_1") for curve in curves]
        differences += [score[-1] - reported[split](cell) for score, cell in zip(scores, cells, strict=True)]
        differences.append(scores[-1][0] - reported[split](None))
    return np.array(differences)


def loss_of(found: np.ndarray) -> float:
    """Return the mean absolute error, smoothed at 0."""
    return float((np.sqrt(found**2 + BEND**2) - BEND).mean())


def read_runs(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return coordinates and errors of the runs in a file. An incomplete last line is removed from the file. Raises
    UserError for any other line that is no run."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    try:
        known = [(np.array(at, dtype=float), np.array(off, dtype=float)) for at, off in map(json.loads, lines)]
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} holds no runs of a search ({error}); allowed: another file") from None
    if lines:
        write_file(path, ("\n".join(lines) + "\n").encode())
    return known


def fit(name: str, evaluations: int, seeds: int, runs: Path | None) -> Simulation:
    """Return the simulation with parameters fitted to the mean over `seeds` training seeds; each improvement is
    printed. runs: file with the runs so far."""
    known, run = pair(name), start_at(name, "sim")
    if not evaluations:
        return run
    check(find_spec("cma") is not None, "a search needs cma; allowed: pip install cma")
    import cma

    known_runs = [] if runs is None else read_runs(runs)
    search = cma.CMAEvolutionStrategy(encode(run), SPREAD, {"seed": seeds, "verbose": -9})
    best, least = encode(run), np.inf
    for generation in range(math.ceil(evaluations / search.popsize)):
        points, losses = search.ask(), []
        for number, x in enumerate(points, start=generation * search.popsize):
            if number < len(known_runs):
                at, off = known_runs[number]
                check(at.shape == x.shape and np.allclose(at, x), f"{runs} holds another search; allowed: another file")
            else:
                off = np.mean([errors(known, decode(run, x), seed, FITTED) for seed in range(seeds)], axis=0)
                if runs is not None:
                    with runs.open("a") as file:
                        file.write(json.dumps([x.tolist(), off.tolist()]) + "\n")
            losses.append(loss_of(off))
            if losses[-1] < least:
                best, least = x, losses[-1]
                values = " ".join(f"{knob.name}={knob.decode(at):.4g}" for knob, at in zip(KNOBS, x, strict=True))
                print(f"{number} {np.abs(off).mean():.4f} {values}", flush=True)
        search.tell(points, losses)
    return decode(run, best)


def main() -> int:
    """Search better parameters for a pair, and print their errors, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pair")
    parser.add_argument("--evaluations", type=int, default=400, help="a generation has ten")
    parser.add_argument("--seeds", type=int, default=3, help="0, 1, .. of which the mean is fitted")
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    for name, least in (("evaluations", 0), ("seeds", 1)):
        check(getattr(arguments, name) >= least, f"{name} = {getattr(arguments, name)}; allowed: {least} or more")
    fitted = fit(arguments.pair, arguments.evaluations, arguments.seeds, arguments.runs)
    off = np.array([errors(pair(arguments.pair), fitted, seed) for seed in range(max(5, arguments.seeds))])
    rows = {f"mean of {arguments.seeds} seeds": off[: arguments.seeds].mean(axis=0)}
    rows |= {f"seed {seed}": differences for seed, differences in enumerate(off)}
    for name, differences in rows.items():
        train, test = differences.reshape(2, -1)
        print(
            f"{name}: mean absolute error {np.abs(train).mean():.4f} train, {np.abs(test).mean():.4f} test; error of "
            f"the largest batch, not fitted, {train[-2]:.4f} and {test[-2]:.4f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
