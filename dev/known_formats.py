"""Simulate runs with a known share of the format in the gain, planted runs and near misses.

A run is repeated with test contexts on which every response is well formed. Training is the same bit for bit, so the
gain of Pass@1 there is exactly that of a lenient grader; the rest of the strict gain is the format.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from dev.known_worlds import KnownCase, between, run_of
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.sim.config import Linear, Optimizer, Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.sim.world import World
from rftlab.studies.readers.run import KnownDesign

RATES = (5e-4, 2e-3, 1e-2, 3e-2)
LENIENT = 1e4
"""Logit of the format at which every response is well formed."""
KIND = "format only"


def format_worlds() -> list[Linear]:
    """Return worlds in which only the format can be learnt, as nothing transfers to the test set; in which little else
    can; in which the answers can too; and in which the format is known from the start."""
    small = Linear(n_train=1000, n_test=400, n_features=64)
    weak = replace(small, align=0.3, kappa=2.0)
    return [
        replace(small, rho=0.0, n_features=448, n_train=400),
        small,
        replace(small, base_format=-1.0),
        replace(small, unsolvable=0.7, align=0.95, kappa=8.0),
        weak,
        replace(weak, base_format=-2.0, n_train=4000),
        replace(weak, base_format=3.0),
        replace(weak, base_format=3.0, unsolvable=0.9),
        replace(weak, base_format=6.0, n_answers=16, n_styles=1, align=0.0),
    ]


def format_cases(places: list[Linear], seeds: int, graded: bool) -> Iterator[KnownCase]:
    """Yield runs of every world, estimator, rate and seed. graded: whether their logs have a lenient grade besides
    Pass@1."""
    designs = [
        Design(32, 8, estimator=preset("grpo"), rounds=300, eval_every=5),
        Design(64, 4, estimator=preset("rloo"), rounds=150, eval_every=10, epochs=2),
    ]
    for number, environment in enumerate(places):
        world = build(environment)
        for place, design in enumerate(designs):
            for rate in RATES:
                for seed in range(seeds):
                    run = Simulation(environment, design, Optimizer("adam", rate), evaluation="sampled", seed=seed)
                    name = f"{number} {place} rate {rate:g} seed {seed}"
                    log, truth = graded_curve(run, world)
                    log = log if graded else log.drop(columns="test_flexible")
                    known = KnownDesign(prompts=design.batch_size, rollouts=design.rollouts)
                    yield KnownCase(run_of(name, log, environment.n_test, known), truth)


def graded_curve(run: Simulation, world: World) -> tuple[pd.DataFrame, dict[str, bool]]:
    """Return the curve of a run with `test_flexible`, both sampled, and whether its exact gain is the format's: true
    from 70% on, false up to 50%, where Pass@1 gained more than 0.1."""
    formed = np.full_like(world.test.base_format, LENIENT)
    lenient = world._replace(test=world.test._replace(base_format=formed))
    exact = replace(run, evaluation="exact")
    log, easy, strict, flexible = (
        simulate(each, place).curve for each, place in ((run, world), (run, lenient), (exact, world), (exact, lenient))
    )
    gain, rest = (float(curve.test_pass_at_1[-1] - curve.test_pass_at_1[0]) for curve in (strict, flexible))
    truth = between(KIND, 1 - rest / gain, 0.7, 0.5) if gain > 0.1 else {}
    return log.to_frame().assign(test_flexible=easy.test_pass_at_1), truth
