"""How well the law ranks designs, and how far off its forecasts are, wherever both are known: language models whose
runs come with rftlab, simulated pairs of a results folder, published numbers, and public runs that repeat their
designs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from rftlab.shared.curve import SPLITS
from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios, time_per_round
from rftlab.sim.environments import build
from rftlab.studies.analysis.public import store
from rftlab.studies.analysis.public.repeats import SIX_HOURS, without_repeat
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at, start_at
from rftlab.studies.data.paper.published import published
from rftlab.studies.data.results.reference import shipped
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.data.runs.study import has_study, read_study
from rftlab.studies.forecast.law.curve import KnownRun, forecast
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise, simulate_noise
from rftlab.studies.forecast.pilot.grid import CELLS, PILOT_CELLS, midway_round
from rftlab.studies.forecast.pilot.pilot import Base
from rftlab.studies.forecast.pilot.store import read_pilot, shipped_base, shipped_pairs

RankedLevel = Literal["language model", "simulator", "published", "public"]
SCANNED = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of r that are tried where nobody measured it."""
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
    """What `noise` comes from, with errors."""
    base_noise: NoiseRatios | None = None
    """r and phi of the base policy, where `noise` was measured later."""
    known: tuple[KnownRun, ...] = ()
    """The runs that a forecast may see."""
    rounds: int | None = None
    """Of the grid that is forecast; the longest of the designs' if left out."""
    curves: pd.DataFrame = pd.DataFrame()
    """design (index into `designs`), round, value: means over seeds."""


def language_pairs() -> Iterator[RankedPair]:
    """Test Pass@1 of the runs that come with rftlab, r and phi of the pilots. Known to forecasts: the pilot's designs
    where the whole grid is there, the baseline alone otherwise; seed 0."""
    curves = shipped()
    for name in shipped_pairs():
        own, base = curves[curves["pair"] == name], shipped_base(name)
        known = PILOT_CELLS if set(CELLS) <= set(own["cell"]) else (RAW,)
        pair = _measured("language model", name, "test", own, pilot_noise(base), known)
        yield pair._replace(base_noise=_base_noise(base))


def _base_noise(base: Base) -> NoiseRatios | None:
    """r and phi of the base model, where they were measured later too."""
    return pilot_noise(base._replace(midway=None)).ratios if base.midway else None


def piloted_pair(root: Path, name: str) -> RankedPair:
    """What a pilot of the user found: r, phi, and its runs, all of which a forecast may see. Raises UserError where
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


def simulated_pairs(root: Path) -> Iterator[RankedPair]:
    """Train and test Pass@1 of the study in a results folder, if it has one."""
    if not has_study(root, "sim"):
        return
    study = read_study(root, "sim")
    curves = collect(root, study.points()).curves
    for pair in study.pairs:
        base, noise = simulated_noise(pair)
        for split in SPLITS:
            ranked = _measured("simulator", pair, split, curves[curves["pair"] == pair], noise, PILOT_CELLS)
            yield ranked._replace(base_noise=base.ratios)


@cache
def simulated_noise(pair: str) -> tuple[MeasuredNoise, MeasuredNoise]:
    """r and phi of a simulated pair's base policy, and half way through the baseline's run."""
    start = start_at(pair, "sim")
    run = replace(start, design=replace(BASELINE, rounds=start.design.rounds, eval_every=start.design.eval_every))
    world = build(run.environment)
    return simulate_noise(run, world), simulate_noise(run, world, midway_round(run.design))


def _measured(
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


def published_pairs() -> Iterator[RankedPair]:
    """What arXiv 2601.22532 reports, with r and phi of the simulated pair, whose parameters were fitted to these very
    numbers on GSM8K, to those of the base model and of (32, 1) on MATH. These two are known to forecasts."""
    for name in pairs_at("sim"):
        model, dataset = PAIRS[name].model, PAIRS[name].dataset
        base_noise, noise = simulated_noise(name)
        for split in SPLITS:
            reported = {cell: published(model, dataset, split, design) for cell, design in CELLS.items()}
            ends = {cell: value for cell, value in reported.items() if value is not None}
            base = published(model, dataset, split, None)
            if base is not None and RAW in ends:
                yield RankedPair(
                    "published",
                    name,
                    split,
                    (noise.ratios,),
                    tuple(CELLS[cell] for cell in ends),
                    np.array(list(ends.values())),
                    base,
                    noise,
                    base_noise.ratios,
                    (KnownRun(BASELINE, np.array([float(BASELINE.rounds)]), np.array([ends[RAW]])),),
                )


def public_pairs() -> Iterator[RankedPair]:
    """PODS after six hours, GSM8K, mean of ten runs a cell: one prompt a round, K the responses trained on. Nobody
    measured r. What a rule that selects responses does is not in the law."""
    collection = store.shipped()
    rows = store.score_rows(store.of_source(collection, "pods"), "gsm8k")
    rows = rows[rows["seconds"] == SIX_HOURS].merge(collection.runs, on="run_id")
    trained = rows["trained_rollouts_per_prompt"].fillna(rows["rollouts_per_prompt"])
    table = rows.assign(trained=trained).groupby(without_repeat(rows["run_id"]))[["round", "value", "trained"]].mean()
    group = EXPERIMENTS["batch"].cells[0].estimator
    designs = tuple(
        Design(1, int(row.trained), estimator=group, rounds=round(row.round), eval_every=round(row.round))
        for row in table.itertuples()
    )
    noise = tuple(NoiseRatios(ratio) for ratio in SCANNED)
    yield RankedPair("public", "pods", "test", noise, designs, table["value"].to_numpy())


class LawScore(NamedTuple):
    """Of a pair; nan where a number cannot be had. Spearman rank correlations with the Pass@1 at the end."""

    noise: NoiseRatios
    """r and phi; of several, those that rank best."""
    law: float
    at_base: float
    """The law with r and phi of the base policy."""
    plain: float
    """B / (r + 1/K): no word of baselines."""
    rollouts: float
    """Rollouts of the run, support included."""
    prompts: float
    """Prompts of the run."""
    regret: float
    """At equal rollouts a round: Pass@1 of the best design less that of the one that the law puts first."""
    held_out: int
    """Designs that were forecast."""
    error: float
    """Mean absolute error of the forecasts of designs whose runs were not known."""
    covered: float
    """Share of them within the 80% interval."""


def law_times(designs: tuple[Design, ...], noise: NoiseRatios, plain: bool = False) -> np.ndarray:
    """tau (n,) at the end of each design."""
    return np.array([design.rounds * time_per_round(design, noise, plain) for design in designs])


def rank_agreement(values: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where all values or all truths are alike, nan for fewer than three."""
    values, truth = np.asarray(values), np.asarray(truth)
    if len(truth) < FEWEST:
        return float("nan")
    return 0.0 if np.ptp(values) == 0 or np.ptp(truth) == 0 else float(stats.spearmanr(values, truth).statistic)


def score_law(pair: RankedPair) -> LawScore:
    """All of it for a pair."""
    designs, ends, base = pair.designs, pair.ends, pair.base_noise
    ranks = [rank_agreement(law_times(designs, noise), ends) for noise in pair.noise]
    law = max(ranks, key=lambda value: np.nan_to_num(value, nan=-2))
    best = pair.noise[ranks.index(law)]
    return LawScore(
        best,
        law,
        rank_agreement(law_times(designs, base), ends) if base else float("nan"),
        rank_agreement(law_times(designs, best, plain=True), ends),
        rank_agreement(np.array([design.rounds * design.round_rollouts for design in designs]), ends),
        rank_agreement(np.array([design.rounds * design.batch_size for design in designs]), ends),
        regret(pair, best),
        *forecast_errors(pair),
    )


def regret(pair: RankedPair, noise: NoiseRatios) -> float:
    """Of the law's choice among designs without window or support that spend the most common number of rollouts."""
    plain = [i for i, one in enumerate(pair.designs) if one.replay_window == one.support_rollouts == 0]
    spent = np.array([pair.designs[i].round_rollouts for i in plain])
    values, counts = np.unique(spent, return_counts=True)
    if not counts.size or counts.max() < FEWEST:
        return float("nan")
    alike = [i for i, size in zip(plain, spent, strict=True) if size == values[counts.argmax()]]
    chosen = max(alike, key=lambda i: time_per_round(pair.designs[i], noise))
    return float(pair.ends[alike].max() - pair.ends[chosen])


def forecast_errors(pair: RankedPair) -> tuple[int, float, float]:
    """Designs forecast, mean absolute error, and share within the 80% interval, of those with no known run."""
    seen = {label(run.design) for run in pair.known}
    held = [i for i, one in enumerate(pair.designs) if label(one) not in seen]
    if not held or not pair.known or pair.error is None:
        return 0, float("nan"), float("nan")
    predicted = forecast(pair.base, list(pair.known), pair.error, tuple(pair.designs[i] for i in held))
    truth = pair.ends[held]
    inside = (predicted.low <= truth) & (truth <= predicted.high)
    return len(held), float(np.abs(predicted.values - truth).mean()), float(inside.mean())
