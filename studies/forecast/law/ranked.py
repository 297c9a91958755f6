"""Designs of a pair with their ends, and the r and phi by which the law ranks them; dev/law_scores.py says how well."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios
from rftlab.sim.environments import build
from rftlab.studies.data.paper.experiments import BASELINE, label
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.law.curve import KnownRun
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise, simulate_noise
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, Base, midway_round
from rftlab.studies.forecast.pilot.store import read_pilot, shipped_base, shipped_pairs

RankedLevel = Literal["language model", "simulator", "published", "public"]
FEWEST = 3
"""Designs below which a rank correlation says nothing."""
RAW = label(BASELINE)


class RankedPair(NamedTuple):
    """Designs of a pair with the Pass@1 at which each ended (n,)."""

    level: RankedLevel
    pair: str
    split: str
    noise: tuple[NoiseRatios, ...]
    """r and phi; several that were tried where nobody measured them."""
    designs: tuple[Design, ...]
    """With their rounds."""
    ends: np.ndarray
    base: float = float("nan")
    """Pass@1 of the base model."""
    error: MeasuredNoise | None = None
    """The measurements behind `noise`, with errors."""
    base_noise: NoiseRatios | None = None
    """r and phi of the base policy, where `noise` was measured later."""
    known: tuple[KnownRun, ...] = ()
    """The runs that a forecast may see."""
    rounds: int | None = None
    """Rounds of the grid that is forecast; the longest of the designs' if left out."""
    curves: pd.DataFrame = pd.DataFrame()
    """design (index into `designs`), round, value: means over seeds."""


def language_pairs() -> Iterator[RankedPair]:
    """Test Pass@1 of the runs that come with rftlab, r and phi of the pilots. Known to forecasts: the pilot's designs
    where the whole grid is there, the baseline alone otherwise; seed 0."""
    curves = shipped_runs()
    for name in shipped_pairs():
        own, base = curves[curves["pair"] == name], shipped_base(name)
        known = PILOT_CELLS if set(CELLS) <= set(own["cell"]) else (RAW,)
        pair = ranked_pair("language model", name, "test", own, pilot_noise(base), known)
        yield pair._replace(base_noise=_base_noise(base))


def _base_noise(base: Base) -> NoiseRatios | None:
    """r and phi of the base model, where they were measured later too."""
    return pilot_noise(base._replace(midway=None)).ratios if base.midway else None


def piloted_pair(root: Path, name: str) -> RankedPair:
    """The results of a user's pilot: r, phi, and its runs, all of which a forecast may see. Raises UserError where
    there is none, or a damaged one."""
    pilot = read_pilot(root, name)
    noise = pilot_noise(pilot.base)
    designs = tuple(replace(run.design, rounds=pilot.rounds, eval_every=pilot.rounds) for run in pilot.runs)
    ends = [run.curve.test_pass_at_1[-1] if run.curve.round[-1] == pilot.rounds else np.nan for run in pilot.runs]
    known = (KnownRun(run.design, run.curve.round[1:], run.curve.test_pass_at_1[1:]) for run in pilot.runs)
    return RankedPair(
        "language model",
        name,
        "test",
        (noise.ratios,),
        designs,
        np.array(ends),
        pilot.base.test.rate("strict"),
        noise,
        _base_noise(pilot.base),
        tuple(run for run in known if len(run.rounds)),
        pilot.rounds,
    )


@cache
def simulated_noise(pair: str) -> tuple[MeasuredNoise, MeasuredNoise]:
    """r and phi of a simulated pair's base policy, and half way through the baseline's run."""
    start = start_at(pair, "sim")
    run = replace(start, design=replace(BASELINE, rounds=start.design.rounds, eval_every=start.design.eval_every))
    world = build(run.environment)
    return simulate_noise(run, world), simulate_noise(run, world, midway_round(run.design))


def ranked_pair(
    level: RankedLevel, pair: str, split: str, own: pd.DataFrame, noise: MeasuredNoise, known: tuple[str, ...]
) -> RankedPair:
    """From the rows of a pair's runs; runs that ended early are left out."""
    column = f"{split}_pass_at_1"
    own = own[own["cell"].isin(list(CELLS))]
    last = own[own["round"] == own["planned_rounds"]].groupby("cell")
    ends, rounds = last[column].mean(), last["round"].first()
    cells = [cell for cell in CELLS if cell in ends.index]
    designs = tuple(replace(CELLS[cell], rounds=int(rounds[cell]), eval_every=int(rounds[cell])) for cell in cells)
    seen = own[(own["seed"] == own["seed"].min()) & (own["round"] > 0)]
    runs = {cell: seen[seen["cell"] == cell] for cell in known if cell in cells}
    points = [
        KnownRun(CELLS[cell], run["round"].to_numpy(dtype=np.float64), run[column].to_numpy())
        for cell, run in runs.items()
    ]
    lines = own[own["round"] > 0].groupby(["cell", "round"])[column].mean().rename("value").reset_index()
    lines = lines[lines["cell"].isin(cells)]
    lines = lines.assign(design=lines["cell"].map(cells.index))[["design", "round", "value"]]
    base = float(own.loc[own["round"] == 0, column].mean())
    values = ends[cells].to_numpy()
    return RankedPair(
        level, pair, split, (noise.ratios,), designs, values, base, noise, None, tuple(points), curves=lines
    )


def rank_agreement(values: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where all values or all truths are alike, nan for fewer than three."""
    values, truth = np.asarray(values), np.asarray(truth)
    if len(truth) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(truth) == 0 else float(stats.spearmanr(values, truth).statistic)
