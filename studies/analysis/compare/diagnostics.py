"""What explains that levels disagree about designs: the signal in their gradients, contexts without signal, and pass
rates over time.

signal-to-noise   |G|^2 / (tr Sigma / B) of one update, from E|g_B|^2 = |G|^2 + tr Sigma / B (McCandlish et al.,
                  1812.06162): designs that differ in their batch size B alone have one G and one Sigma, those of a
                  single context's gradient, where their policies are alike. All aggregations of the seven experiments
                  are means over responses, so g_B is a mean over contexts. Curves hold the mean norm, whose square
                  stands for the mean square (it is smaller by the norm's own variance). Policies are taken as alike at
                  equal mean reward. A design without such relatives, or at rewards that they do not share, has no
                  estimate.
pass rates        share of training contexts in each of the bins of EDGES: exact in the simulator; from the rollouts of
                  a language model, over the rounds between two evaluations, for prompts with at least FEWEST responses.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.design import Design
from rftlab.sim.config import DAMAGE_PARTS, Simulation
from rftlab.sim.environments import build
from rftlab.sim.policy.common import base_logit_scale
from rftlab.sim.policy.products import places
from rftlab.sim.run import PlainLearner
from rftlab.sim.state import no_totals
from rftlab.sim.world import World
from rftlab.studies.analysis.compare.levels import CurveSet
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec

EDGES = np.array([0.0, 0.02, 0.25, 0.5, 0.75, 0.98, 1.0])
BINS = ("0 to 0.02", "to 0.25", "to 0.5", "to 0.75", "to 0.98", "to 1")
FEWEST = 4
_DESIGNS = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))}


def dynamics(own: CurveSet, cells: list[str]) -> pd.DataFrame:
    """Means over seeds after training began: columns cell, round, test_pass_at_1, zero_signal_fraction; a row per
    cell and evaluation."""
    trained = own.curves[(own.curves["round"] > 0) & own.curves["cell"].isin(cells)]
    return trained.groupby(["cell", "round"])[["test_pass_at_1", "zero_signal_fraction"]].mean().reset_index()


def relatives(cell: str) -> list[str]:
    """Designs of the seven experiments, `cell` among them, that differ from it in the batch size alone; none for one
    that replays.

    How old a window's rewards are depends on the batch size, so replaying designs of two batch sizes do not share a
    gradient.
    """
    if _DESIGNS[cell].replay_window:
        return []
    return [other for other, design in _DESIGNS.items() if _but_for_batch(design) == _but_for_batch(_DESIGNS[cell])]


def _but_for_batch(design: Design) -> Design:
    """The design at batch size 1. A group of one trains on its raw reward, whatever its baseline is called."""
    alone = design.smallest_set == 1 and design.replay_window == 0 and design.estimator.advantage.singleton == "raw"
    estimator = replace(design.estimator, advantage=Advantage("none")) if alone else design.estimator
    return replace(design, batch_size=1, estimator=estimator)


def signal_to_noise(curves: pd.DataFrame, cell: str) -> pd.DataFrame:
    """Gradient signal-to-noise of an update of `cell` (see above) by the policy's mean reward: columns reward and
    signal_to_noise.

    A row for each mean reward that a relative had at an evaluation and all of them passed; 0 where noise explains all
    of the norm.
    curves: rows of one pair with columns cell, round, reward, grad_norm.
    """
    trained = curves[(curves["round"] > 0) & curves["cell"].isin(relatives(cell))].assign(
        square=curves["grad_norm"] ** 2
    )
    means = {
        name: own.groupby("round")[["reward", "square"]].mean().sort_values("reward")
        for name, own in trained.groupby("cell")
    }
    if len(means) < 2:
        return pd.DataFrame({"reward": [], "signal_to_noise": []})
    rewards = np.sort(np.concatenate([own["reward"] for own in means.values()]))
    squares = np.array(
        [np.interp(rewards, own["reward"], own["square"], left=np.nan, right=np.nan) for own in means.values()]
    )
    shared = np.isfinite(squares).all(axis=0)
    signal, noise = decomposed(squares[:, shared], np.array([_DESIGNS[name].batch_size for name in means]))
    ratios = np.where(noise > 0, np.maximum(signal, 0.0) / (noise / _DESIGNS[cell].batch_size), np.nan)
    return pd.DataFrame({"reward": rewards[shared], "signal_to_noise": ratios}).dropna()


def decomposed(squares: np.ndarray, batch_sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|G|^2 and tr Sigma (n,) by least squares from mean squared norms (designs, n) at the batch sizes (designs,) of
    two designs or more."""
    inverse = 1 / batch_sizes - (1 / batch_sizes).mean()
    noise = inverse @ squares / (inverse**2).sum()
    return squares.mean(axis=0) - noise * (1 / batch_sizes).mean(), noise


def pass_rates(own: CurveSet, cell: str, root: Path) -> pd.DataFrame:
    """Share of training contexts by pass rate over the run of the first seed: columns cell, round and BINS; no rows
    where nothing tells.

    Raises store.DamagedPoint where the rollouts are not those that the run wrote.
    """
    points = sorted((point for point in own.points if point.cell == cell), key=lambda point: point.run.seed)
    rates = (
        {}
        if not points
        else simulated_rates(points[0].simulation)
        if points[0].level == "sim"
        else sampled_rates(points[0], root)
    )
    return rates_table(cell, rates)


def rates_table(cell: str, rates: dict[int, np.ndarray]) -> pd.DataFrame:
    """Pass rates of a cell by round as the table that `pass_rates` gives."""
    return pd.DataFrame(
        [(cell, at, *bin_shares(shares)) for at, shares in rates.items() if shares.size],
        columns=["cell", "round", *BINS],
    )


def bin_shares(rates: np.ndarray) -> np.ndarray:
    """Share of pass rates in each of BINS; sums to 1."""
    return np.histogram(rates, EDGES)[0] / rates.size


def simulated_rates(run: Simulation) -> dict[int, np.ndarray]:
    """Exact pass rates (N,) of the training contexts at every evaluation of a run of the seven experiments, which is
    simulated again."""
    world = build(run.environment)
    learner, rates = PlainLearner(run, world), {}
    for done in range(0, run.design.rounds + 1, run.design.eval_every):
        rates[done] = _rates(world, learner.state.theta)
        if (
            done == run.design.rounds
            or learner.advance(done, run.design.eval_every, no_totals()) < run.design.eval_every
        ):
            return rates
    return rates


def _rates(world: World, theta: np.ndarray) -> np.ndarray:
    """Probability (N,) that a response of one token to each training context of the linear environment is correct."""
    contexts, columns = world.train, world.train.base_logits.shape[1]
    kept = base_logit_scale(world.forgetting / world.n_arms, theta, world.n_common)
    sharpness, lift, damage, lengthen = _in_common(
        world, theta[theta.size - 1 - world.n_common : -1].astype(np.float64)
    )
    logits = kept * sharpness * contexts.base_logits + contexts.features @ theta[places(contexts.features.shape[1])]
    right = (contexts.correct[:, None] >> np.arange(columns, dtype=np.uint32)) & 1
    logits += lift * right + lengthen * ((world.long_arms >> np.arange(columns, dtype=np.uint32)) & 1)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    formed = 1 / (1 + np.exp(damage - kept * contexts.base_format - world.format_scale * theta[-1]))
    return formed * (chances * right).sum(axis=1) / chances.sum(axis=1)


def _in_common(world: World, learnt: np.ndarray) -> tuple[float, float, float, float]:
    """Factor of the base policy's logits, bonus of correct arms, damage of the format and bonus of long arms, from what
    all contexts have in common (`rftlab.sim.policy.common`)."""
    sharpens = int(world.sharpening > 0)
    sharpness = max(1 + world.sharpening * learnt[0], 1e-6) if sharpens else 1.0
    n_parts, n_damaged = world.correctness_parts * (world.correctness > 0), DAMAGE_PARTS * (world.damage > 0)
    learnt, damaged, rest = np.split(learnt[sharpens:], [n_parts, n_parts + n_damaged])
    damage = world.damage * np.square(damaged).sum() / DAMAGE_PARTS
    lengthen = world.verbosity * rest[0] if world.verbosity > 0 else 0.0
    return sharpness, world.correctness / np.sqrt(world.correctness_parts) * learnt.sum(), damage, lengthen


def sampled_rates(point: RunSpec, root: Path) -> dict[int, np.ndarray]:
    """Pass rates of the prompts that a language model's rollouts between two evaluations answered at least FEWEST
    times, by the later round."""
    files = store.stored_rollouts(root, point)
    if not files:
        return {}
    rows = pd.concat([pd.read_parquet(file, columns=["round", "prompt", "strict"]) for file in files])
    every = point.run.design.eval_every
    rows = rows.assign(until=(rows["round"] + every - 1) // every * every)
    prompts = rows.groupby(["until", "prompt"])["strict"].agg(["mean", "count"])
    prompts = prompts[prompts["count"] >= FEWEST]
    return {int(until): own["mean"].to_numpy() for until, own in prompts.groupby(level="until")}
