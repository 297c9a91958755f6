"""Define the runs of a fact and compute the numbers that test it. A run is a change of the usual one of a world, which
is (32, 8) with GRPO and no KL penalty. Numbers come from curves by the name of their setting: one per seed, or one with
its interval."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Evaluation, Sampler, Simulation
from rftlab.studies.data.paper.pairs import linear_environment
from rftlab.studies.data.results.stats import Estimate, pooled_deviation

GRPO = Estimator(aggregation=Aggregation("seq_mean_token_mean"))
SPELLED: dict[str, Any] = {"style_tokens": 15.0, "exploration": 3.0}
"""Fields of an environment with style tokens that explore."""


class RunChange(NamedTuple):
    """Change of a world's usual run: a design, and settings other than the world's own."""

    design: Design
    rate: float = 1.0
    """Learning rate as a multiple of the world's."""
    bf16: float = 0.0
    """Learning rate with bf16 weights that the run stands for."""
    lag: int = 0
    measured: bool = False
    """Whether the run has the measures of `rftlab.sim.round.measures`."""
    spelled: bool = False
    """Whether a world with virtual lengths gets the style tokens of SPELLED in their place."""
    world: tuple[tuple[str, Any], ...] = ()
    """Changed fields of the environment."""

    def run(self, start: Simulation, seed: int) -> Simulation:
        """Return the run in the world of `start`."""
        environment = replace(linear_environment(start), **dict(self.world))
        if self.spelled and environment.verbosity > 0:
            environment = replace(environment, **SPELLED)
        rate = self.rate * start.optimizer.learning_rate
        optimizer = replace(start.optimizer, learning_rate=rate, bf16_rate=self.bf16)
        evaluation: Evaluation = "full" if self.measured else "exact"
        return Simulation(environment, self.design, optimizer, Sampler(self.lag), evaluation=evaluation, seed=seed)


def change(rounds: int = 400, evaluations: int = 4, design: dict[str, Any] | None = None, **rest: Any) -> RunChange:
    """Return a change with these fields of the usual design, and these of `RunChange`."""
    fields: dict[str, Any] = {"rollouts": 8, "estimator": GRPO} | (design or {})
    return RunChange(Design(rounds=rounds, eval_every=rounds // evaluations, **fields), **rest)


DATA = files("rftlab.studies") / "assets"
TEST = "test_pass_at_1"
Runs = list[pd.DataFrame]
"""Curves of one setting, one per seed, with the columns of `rftlab.studies.data.runs.runner.Results`."""


def value(run: pd.DataFrame, column: str = TEST, at: int = -1) -> float:
    """Return an entry of a column, the last by default; 0 at the end of a run that diverged."""
    if at == -1 and run["round"].iloc[-1] < run["planned_rounds"].iloc[-1]:
        return 0.0
    return float(run[column].iloc[at])


def ends(runs: Runs, column: str = TEST) -> np.ndarray:
    """Return the last values (seeds,) of a column."""
    return np.array([value(run, column) for run in runs])


def end_changes(runs: Runs, column: str = TEST) -> np.ndarray:
    """Return the last values minus the first (seeds,) of a column."""
    return ends(runs, column) - np.array([value(run, column, 0) for run in runs])


def at_rollouts(run: pd.DataFrame, rollouts: float) -> float:
    """Return test Pass@1 after so many rollouts, linear between evaluations; nan beyond the last."""
    return float(np.interp(rollouts, run["rollouts"], run[TEST], right=np.nan))


def rounds_to(run: pd.DataFrame, target: float) -> float:
    """Return the rounds until test Pass@1 reaches `target`, linear between evaluations; nan where it does not."""
    scores, rounds = run[TEST].to_numpy(), run["round"].to_numpy()
    there = np.flatnonzero(scores >= target)
    if there.size == 0 or there[0] == 0:
        return float("nan")
    after = there[0]
    part = (target - scores[after - 1]) / (scores[after] - scores[after - 1])
    return float(rounds[after - 1] + part * (rounds[after] - rounds[after - 1]))


def exponent(slow: Runs, fast: Runs, factor: float) -> np.ndarray:
    """Return x (seeds,) where a setting that is `factor` times as large needs 1 / factor^x of the rounds to reach half
    of the slower runs' gain; nan where either does not get there."""
    values = []
    for a, b in zip(slow, fast, strict=True):
        first = value(a, at=0)
        target = first + 0.5 * (value(a) - first)
        values.append(np.log(rounds_to(a, target) / rounds_to(b, target)) / np.log(factor))
    return np.array(values)


Measured = np.ndarray | Estimate
"""One value per seed, nan where there is none; or a value with its interval."""
Measure = Callable[[dict[str, Runs]], Measured]
HALF = 0.5
"""Share of the usual run's end below which a run has collapsed."""
FORMED = 0.9
"""Share of well-formed responses from which a run learns answers, not the format."""


def best_k(runs: dict[str, Runs], budget: float) -> np.ndarray:
    """Return log2 of the best K (seeds,) after `budget` rollouts: the vertex of a parabola through the scores, or the
    best measured K where the parabola has no maximum."""
    scores = np.array([[at_rollouts(run, budget) for run in of_k] for of_k in runs.values()])
    doublings = np.log2([int(name.split()[1]) for name in runs])
    curve, slope, _ = np.polyfit(doublings, scores, 2)
    best = doublings[scores.argmax(axis=0)]
    top = np.divide(-slope, 2 * curve, out=best.copy(), where=curve < 0)
    return np.clip(top, doublings[0], doublings[-1])


def growth(runs: dict[str, Runs], before: float, after: float) -> np.ndarray:
    """Return by how many doublings the best K (seeds,) grows between these parts of all rollouts."""
    whole = min(float(run["rollouts"].iloc[-1]) for of_k in runs.values() for run in of_k)
    return grown(runs, before * whole, after * whole)


def grown(runs: dict[str, Runs], before: float, after: float) -> np.ndarray:
    """Return by how many doublings the best K (seeds,) grows between two numbers of rollouts."""
    return best_k(runs, after) - best_k(runs, before)


def ratio(name: str, to: str) -> Measure:
    """Return the measure of the last test Pass@1 of a setting over that of another."""
    return lambda runs: ends(runs[name]) / np.maximum(ends(runs[to]), 1e-3)


def difference(name: str, other: str) -> Measure:
    """Return the measure of the last test Pass@1 of a setting minus that of another."""
    return lambda runs: ends(runs[name]) - ends(runs[other])


def saturated_growth(runs: dict[str, Runs]) -> Measured:
    """Return by how many doublings the best K grows with the last four times the rollouts, where it grew with the four
    times before."""
    return np.where(growth(runs, 1 / 16, 1 / 4) > 0, growth(runs, 1 / 4, 1), np.nan)


def speed(slow: str, fast: str, factor: float) -> Measure:
    """Return the measure of the `exponent` of a setting that is `factor` times as large in one run as in another."""
    return lambda runs: exponent(runs[slow], runs[fast], factor)


def reward_follows_entropy(runs: dict[str, Runs]) -> Measured:
    """Return minus the signed R^2 of train Pass@1 against exp(entropy): below 0 where they rise together."""
    r = [np.corrcoef(np.exp(run["train_entropy"]), run["train_pass_at_1"])[0, 1] for run in map(formed, runs["usual"])]
    return -np.sign(r) * np.square(r)


def formed(run: pd.DataFrame) -> pd.DataFrame:
    """Return the part of a run in which most responses are well formed."""
    return run[run["train_format_rate"] >= FORMED]


def rise(column: str) -> Measure:
    """Return the measure of a column's last value minus its minimum, which the learning of the format makes."""
    return lambda runs: np.array([value(run, column) - run[column].min() for run in runs["usual"]])


def lottery(runs: dict[str, Runs]) -> Measured:
    """Return the smaller of the shares of seeds that collapse and that do not, at the learning rate that divides the
    seeds most evenly, with Wilson's interval."""
    usual = ends(runs["usual"]).mean()
    collapsed = [ends(of_rate) < HALF * usual for name, of_rate in runs.items() if name.startswith("rate")]
    divided, seeds = max(min(int(fell.sum()), int((~fell).sum())) for fell in collapsed), len(runs["usual"])
    share = stats.binomtest(divided, seeds).proportion_ci(method="wilson")
    return Estimate(divided / seeds, float(share.low), min(float(share.high), 0.5))


def by_length(runs: dict[str, Runs]) -> Measured:
    """Return the end with the sequence mean over that with the token mean; nan in worlds without lengths."""
    right, wrong = (ends(runs["usual"], f"test_length_{name}") for name in ("right", "wrong"))
    return np.where(np.isclose(right, wrong), np.nan, ratio("raw, seq_mean_token_mean", "raw, token_mean")(runs))


def narrowed(runs: dict[str, Runs]) -> Measured:
    """Return the fall of flexible Pass@256, which ignores the format; nan where Pass@1 does not rise."""
    rises = end_changes(runs["usual"]) > 0
    return np.where(rises, -end_changes(runs["usual"], "test_flexible_pass_at_256"), np.nan)


def wrong_lengths(runs: dict[str, Runs]) -> Measured:
    """Return the mean length of wrong answers after GRPO over that after Dr. GRPO; nan in worlds without lengths."""
    grpo, dr = (ends(runs[name], "test_length_wrong") for name in ("usual", "Dr. GRPO"))
    return np.where(np.isclose(dr, ends(runs["Dr. GRPO"], "test_length_right")), np.nan, grpo / dr)


def kept_entropy(runs: dict[str, Runs]) -> Measured:
    """Return the entropy after a run with an upper clip of 0.28 over that with 0.2: of style tokens where they have an
    entropy of their own, else of the answer and format."""
    run, column = runs["clip 0.2"][0], "test_style_entropy"
    if column not in run or not np.isfinite(run[column].iloc[0]):
        column = "test_entropy"
    return ends(runs["clip 0.28"], column) / ends(runs["clip 0.2"], column)


def lag_harm(runs: dict[str, Runs]) -> Measured:
    """Return the loss by a lag of 16 rounds at a high learning rate, minus its absolute effect at a low one."""
    high, low = (ends(runs[f"{rate} rate"]) - ends(runs[f"{rate} rate, lag 16"]) for rate in ("high", "low"))
    return high - np.abs(low)


def spread(runs: dict[str, Runs]) -> Measured:
    """Return the standard deviation over seeds of the last test Pass@1, with its chi-squared interval."""
    return pooled_deviation([ends(runs["usual"])])


def saturation(runs: dict[str, Runs]) -> Measured:
    """Return the exponent of the rounds that a batch 4 times as large saves: from 8 to 32, minus from 128 to 512."""
    return exponent(runs["B 8"], runs["B 32"], 4) - exponent(runs["B 128"], runs["B 512"], 4)


def credit(runs: dict[str, Runs]) -> Measured:
    """Return the correlation over worlds between the gain and the base's flexible minus strict Pass@1, with Fisher's
    interval."""
    worlds = [of_world for name, of_world in runs.items() if name.startswith("world")]
    apart = [np.mean([value(run, "test_flexible", 0) - value(run, TEST, 0) for run in of_world]) for of_world in worlds]
    gains = [end_changes(of_world).mean() for of_world in worlds]
    r, half = np.corrcoef(apart, gains)[0, 1], 1.96 / np.sqrt(len(worlds) - 3)
    return Estimate(float(r), float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half)))


def by_rollouts(runs: dict[str, Runs]) -> Measured:
    """Return the lead of (32, 8) over raw rewards of (32, 1) at equal rounds, minus the distance at equal rollouts."""
    values = []
    for one, eight in zip(runs["raw, K 1"], runs["usual"], strict=True):
        spent = min(one["rollouts"].iloc[-1], eight["rollouts"].iloc[-1])
        rounds = min(one["round"].iloc[-1], eight["round"].iloc[-1])
        ahead = (np.interp(rounds, eight["round"], eight[TEST])) - np.interp(rounds, one["round"], one[TEST])
        values.append(ahead - abs(at_rollouts(eight, spent) - at_rollouts(one, spent)))
    return np.array(values)


def few_questions(runs: dict[str, Runs]) -> Measured:
    """Return the gain from 8 training questions as a share of that from all."""
    return end_changes(runs["8 questions"]) / end_changes(runs["all questions"])


def early_fall(runs: dict[str, Runs]) -> Measured:
    """Return the share of the entropy's fall in well-formed rounds that the first quarter of these rounds has."""
    losses = [formed(run)["train_entropy"].to_numpy() for run in runs["usual"]]
    drops = [loss[0] - loss for loss in losses]
    return np.array([drop[len(drop) // 4] / drop[-1] if drop[-1] > 0 else np.nan for drop in drops])
