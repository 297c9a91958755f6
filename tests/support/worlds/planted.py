"""Evidence from a world that is known."""

from dataclasses import replace

import numpy as np

from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.forecast.calibrate import simulate_at
from rftlab.studies.forecast.evidence import Evidence, observe_curve
from rftlab.studies.forecast.knobs import SHORT, Effort, Facts
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS

TINY = replace(SHORT, effort=Effort(64, 16, 2))
FACTS = Facts(TINY, 96, 64, 0.1, 0.5)
CENTRE = np.zeros(len(TINY.knobs))


def planted(seed: int = 3) -> Evidence:
    """Evidence from the simulator itself at the middle of the prior."""
    start = simulate_at(Evidence(FACTS, ()), CENTRE, 1000 + seed)
    world = build(start.environment)
    designs = (
        replace(CELLS[PILOT_CELLS[0]], rounds=60, eval_every=10),
        replace(CELLS[PILOT_CELLS[1]], rounds=60, eval_every=10),
    )
    return Evidence(
        FACTS,
        tuple(
            observe_curve(design, simulate(replace(start, design=design), world).curve, (96, 64)) for design in designs
        ),
    )
