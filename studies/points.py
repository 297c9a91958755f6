"""A point is one run: a configuration with its seed. Its identity is a hash of everything that its curve depends on."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

import sim
from sim.run import Simulation
from studies.experiments import Experiment, cells_of, label
from studies.pairs import pair


@dataclass(frozen=True)
class Point:
    """One simulated run of a pair."""

    pair: str
    run: Simulation

    @property
    def cell(self) -> str:
        """Label of the design that runs."""
        return label(self.run.design)

    @property
    def config(self) -> dict:
        """The canonical configuration, as plain JSON values; `kinds` names the classes of unions, whose fields alone may coincide."""
        estimator = self.run.design.estimator
        unions = {"environment": self.run.environment, "surrogate": estimator.surrogate, "mask": estimator.mask}
        kinds = {name: type(value).__name__ for name, value in unions.items()}
        return {"level": "sim", "version": sim.VERSION, "pair": self.pair, "kinds": kinds, **asdict(self.run)}

    @property
    def id(self) -> str:
        """Readable label, then the hash that tells points apart."""
        return f"{self.cell}-s{self.run.seed}-{hashlib.sha256(canonical(self.config)).hexdigest()[:12]}"

    @property
    def cost(self) -> float:
        """Rough seconds of CPU, for the estimate of the time left."""
        design = self.run.design
        pulls = design.batch_size * (design.rollouts + design.support_rollouts)
        updates = design.epochs * design.minibatches
        style = 0.25e-6 * pulls * getattr(self.run.environment, "style_tokens", 0) * design.sampling.tries**0.5
        return design.rounds * (12e-6 + style + (0.15e-6 + 0.2e-6 * updates) * design.batch_size + 0.04e-6 * pulls) + 1e-3 * design.rounds / design.eval_every


def canonical(config: dict) -> bytes:
    """A configuration as bytes that equal configurations share."""
    return json.dumps(config, sort_keys=True, indent=1, allow_nan=True).encode()


def points_of(experiments: list[Experiment], pairs: list[str], seeds: int, rounds: int, eval_every: int) -> list[Point]:
    """Every run of the experiments, each once however many experiments share it: pair by pair, seed by seed."""
    cells = [replace(cell, rounds=rounds, eval_every=eval_every) for cell in cells_of(experiments)]
    return [Point(name, Simulation(pair(name).environment, cell, pair(name).optimizer, seed=seed)) for name in pairs for seed in range(seeds) for cell in cells]
