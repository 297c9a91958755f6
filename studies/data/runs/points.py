"""Describe points: a point is one run, a configuration with its seed, identified by a hash of everything that its curve
depends on."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TypeVar

from rftlab import sim
from rftlab.llm.config import LLMRun, model_config
from rftlab.shared.config.checked import identity
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.sim.config import FLIPS, Simulation
from rftlab.studies.data.paper.experiments import Experiment, distinct_cells, label
from rftlab.studies.data.paper.pairs import Level, start_at
from rftlab.studies.data.paper.questions import on_whole_sets
from rftlab.studies.data.runs.limits import CHANGED_PARTS

AnyRun = TypeVar("AnyRun", Simulation, LLMRun, Simulation | LLMRun)
Changes = dict[str, float | str]
"""New values of the fields of a run's parts, such as {"environment.kappa": 5.0}."""


@dataclass(frozen=True)
class RunSpec:
    """Point: one run of a pair, simulated or with a language model."""

    pair: str
    run: Simulation | LLMRun

    @property
    def level(self) -> Level:
        """Level of the run: `sim` or `llm`."""
        return "llm" if isinstance(self.run, LLMRun) else "sim"

    @property
    def simulation(self) -> Simulation:
        """Run of a simulated point; raises TypeError for a point of level llm."""
        if not isinstance(self.run, Simulation):
            raise TypeError(f"{self.name} is of level {self.level}")
        return self.run

    @property
    def llm_run(self) -> LLMRun:
        """Run of a point of level llm; raises TypeError for a simulated point."""
        if not isinstance(self.run, LLMRun):
            raise TypeError(f"{self.name} is of level {self.level}")
        return self.run

    @property
    def cell(self) -> str:
        """Label of the run's design."""
        return label(self.run.design)

    @property
    def name(self) -> str:
        """Name of the run for readers."""
        return f"{self.pair} {self.cell} seed {self.run.seed}"

    @property
    def config(self) -> dict:
        """Canonical configuration, as plain JSON values."""
        return model_config(self.run) if isinstance(self.run, LLMRun) else _simulated_config(self.pair, self.run)

    @property
    def id(self) -> str:
        """Identity of the point: a readable label, then the hash that distinguishes points."""
        return f"{self.cell}-s{self.run.seed}-{hashlib.sha256(canonical(self.config)).hexdigest()[:12]}"

    @property
    def cost(self) -> float:
        """Rough run time in seconds, for the estimate of the time left."""
        return _llm_cost(self.run) if isinstance(self.run, LLMRun) else _simulated_cost(self.run)


LATER: dict[str, dict[str, float | str]] = {
    "environment": {
        **dict.fromkeys(("partial_credit", "reward_noise", "format_reward", "unknown"), 0.0),
        **dict.fromkeys(("damage", "verbosity", "exploration", *FLIPS), 0.0),
        "short_right": 1.0,
        "verbosity_noise": 1.0,
        "sticky_flips": False,
    },
    "optimizer": {"bf16_rate": 0.0},
    "sampler": {"every": 1},
    "design.estimator.advantage": {"constant": 0.0, "combine": "rewards"},
    "design.sampling": {"replayed": 0},
    "design.estimator": {"entropy_target": 0.0, "entropy_step": 0.005},
}
"""Fields that were added after the first runs were stored, with the values at which they change nothing."""


def _simulated_config(pair: str, run: Simulation) -> dict:
    """Return the configuration that identifies a simulated run; `kinds` names the classes of unions, whose fields may
    be equal."""
    estimator = run.design.estimator
    unions = {"environment": run.environment, "surrogate": estimator.surrogate, "mask": estimator.mask}
    kinds = {name: type(value).__name__ for name, value in unions.items()}
    return {"level": "sim", "version": sim.VERSION, "pair": pair, "kinds": kinds, **identity(run, LATER)}


def _simulated_cost(run: Simulation) -> float:
    design = run.design
    pulls = design.round_rollouts
    updates = design.epochs * design.minibatches
    style = 0.25e-6 * pulls * getattr(run.environment, "style_tokens", 0) * design.sampling.tries**0.5
    return (
        design.rounds * (12e-6 + style + (0.15e-6 + 0.2e-6 * updates) * design.batch_size + 0.04e-6 * pulls)
        + 1e-3 * design.rounds / design.eval_every
    )


def _llm_cost(run: LLMRun) -> float:
    """Return the relative cost of a run of a language model: sampling, and passes over the trained responses."""
    design = run.design
    trained, sampled = design.batch_size * design.rollouts, design.round_rollouts
    return (
        design.rounds * (0.02 + 0.1e-3 * sampled * design.sampling.tries**0.5 + 0.25e-3 * trained * design.epochs)
        + 0.5 * design.rounds / design.eval_every
    )


def canonical(config: dict) -> bytes:
    """Return a configuration as bytes, which are the same for equal configurations."""
    return json.dumps(config, sort_keys=True, indent=1, allow_nan=True).encode()


def schedule(usual: Design, rounds: int | None) -> tuple[int, int]:
    """Return rounds and evaluation interval: the usual ones, or so many rounds with 21 evaluations, or with fewer where
    20 does not divide them."""
    if rounds in (None, usual.rounds):
        return usual.rounds, usual.eval_every
    return rounds, next(rounds // n for n in (20, 10, 5, 4, 2, 1) if rounds % n == 0)


def changed(run: AnyRun, changes: Changes) -> AnyRun:
    """Return a run with new values of the fields of CHANGED_PARTS. Raises UserError for a field that
    it does not have, and for a value of another type or outside what the field allows."""
    for part in CHANGED_PARTS:
        values = {name.partition(".")[2]: value for name, value in changes.items() if name.partition(".")[0] == part}
        for name, value in values.items():
            own = vars(getattr(run, part)).get(name) if hasattr(run, part) else None
            kinds = (int, float) if type(own) is float else (type(own),)
            check(own is not None and type(value) in kinds, f"{part}.{name} = {value!r}; allowed: as in `rftlab run`")
        if values:
            run = replace(run, **{part: replace(getattr(run, part), **values)})
    return run


def study_points(
    experiments: list[Experiment],
    level: Level,
    pairs: list[str],
    seeds: int,
    rounds: int | None,
    whole_sets: bool = False,
    changes: Changes | None = None,
) -> list[RunSpec]:
    """Return every run of the experiments, pair by pair and seed by seed, each once however many experiments share it.

    rounds: None for each pair's own. whole_sets: whether language models are evaluated on all questions. changes: see
    `changed`.
    """
    points = []
    for name in pairs:
        start = changed(start_at(name, level), changes or {})
        start = on_whole_sets(start) if whole_sets and isinstance(start, LLMRun) else start
        total, every = schedule(start.design, rounds)
        cells = [replace(cell, rounds=total, eval_every=every) for cell in distinct_cells(experiments)]
        points += [RunSpec(name, replace(start, design=cell, seed=seed)) for seed in range(seeds) for cell in cells]
    return points
