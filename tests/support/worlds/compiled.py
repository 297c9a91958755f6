"""Compile both rounds for every kind of world.

`make test` runs this first (`python -m tests.support.worlds.compiled`). Without it, both workers of pytest begin with
the same worlds, and each compiles the same rounds for minutes.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from rftlab import preset, simulate
from rftlab.sim.environments import build
from tests.support.worlds.problems import NINE, PROBLEMS, TABULAR
from tests.support.worlds.simulations import DESIGNS, run_of

FAST, GENERAL = DESIGNS["raw"], replace(DESIGNS["raw"], estimator=preset("clip_cov"))
PARTS = {
    "linear": (("four", GENERAL), ("plain", FAST), ("four", FAST)),
    "tabular": (("plain", FAST), ("four", FAST), ("four", GENERAL)),
}
"""The world and the design of each run. The general rounds of the two kinds share the estimators' code, so one
comes first and the other last."""


def compile_rounds(kind: str) -> None:
    """Compile the rounds of one kind of world."""
    for name, design in PARTS[kind]:
        run = run_of(design, PROBLEMS[name] if kind == "linear" else NINE)
        simulate(run, TABULAR[name] if kind == "tabular" else build(run.environment))


def main() -> None:
    """Compile all of them, kind beside kind."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_rounds, PARTS))


if __name__ == "__main__":
    main()
