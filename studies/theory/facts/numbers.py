"""The runs of a fact, and the numbers that decide it: what a run changes in the usual one of a world, which is (32, 8)
with GRPO and no KL penalty, and numbers from curves by the name of their setting, one a seed, or one with its interval.
"""

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
"""Fields of an environment whose responses have style tokens that explore."""


class RunChange(NamedTuple):
    """A design, and what else is not a world's own."""

    design: Design
    rate: float = 1.0
    """The learning rate, as a multiple of the world's."""
    bf16: float = 0.0
    """The rate of bf16 weights that it stands for."""
    lag: int = 0
    measured: bool = False
    """With the measures of `rftlab.sim.round.measures`."""
    spelled: bool = False
    """In worlds with short answers: with the style tokens of SPELLED, in place of virtual lengths."""
    world: tuple[tuple[str, Any], ...] = ()
    """Fields of the environment."""

    def run(self, start: Simulation, seed: int) -> Simulation:
        """The run in the world of `start`."""
        environment = replace(linear_environment(start), **dict(self.world))
        if self.spelled and environment.verbosity > 0:
            environment = replace(environment, **SPELLED)
        rate = self.rate * start.optimizer.learning_rate
        optimizer = replace(start.optimizer, learning_rate=rate, bf16_rate=self.bf16)
        evaluation: Evaluation = "full" if self.measured else "exact"
        return Simulation(environment, self.design, optimizer, Sampler(self.lag), evaluation=evaluation, seed=seed)


def change(rounds: int = 400, evaluations: int = 4, design: dict[str, Any] | None = None, **rest: Any) -> RunChange:
    """A change with these fields of the usual design, and these of `RunChange`."""
    fields: dict[str, Any] = {"rollouts": 8, "estimator": GRPO} | (design or {})
    return RunChange(Design(rounds=rounds, eval_every=rounds // evaluations, **fields), **rest)


DATA = files("rftlab.studies") / "assets"
TEST = "test_pass_at_1"
Runs = list[pd.DataFrame]
"""Curves of one setting, a seed each; columns as of `rftlab.studies.data.runs.runner.Results`."""


def value(run: pd.DataFrame, column: str = TEST, at: int = -1) -> float:
    """An entry of a column, the last by default; 0 at the end of a run that diverged."""
    if at == -1 and run["round"].iloc[-1] < run["planned_rounds"].iloc[-1]:
        return 0.0
    return float(run[column].iloc[at])


def ends(runs: Runs, column: str = TEST) -> np.ndarray:
    """(seeds,) last values."""
    return np.array([value(run, column) for run in runs])


def end_changes(runs: Runs, column: str = TEST) -> np.ndarray:
    """(seeds,) last values less the first."""
    return ends(runs, column) - np.array([value(run, column, 0) for run in runs])


def at_rollouts(run: pd.DataFrame, rollouts: float) -> float:
    """Test Pass@1 after so many rollouts, on the line between evaluations; nan beyond the last."""
    return float(np.interp(rollouts, run["rollouts"], run[TEST], right=np.nan))


def rounds_to(run: pd.DataFrame, target: float) -> float:
    """Rounds until test Pass@1 reaches `target`, on the line between evaluations; nan where it does not."""
    scores, rounds = run[TEST].to_numpy(), run["round"].to_numpy()
    there = np.flatnonzero(scores >= target)
    if there.size == 0 or there[0] == 0:
        return float("nan")
    after = there[0]
    part = (target - scores[after - 1]) / (scores[after] - scores[after - 1])
    return float(rounds[after - 1] + part * (rounds[after] - rounds[after - 1]))


def exponent(slow: Runs, fast: Runs, factor: float) -> np.ndarray:
    """(seeds,) x where a knob that is `factor` times as large needs 1 / factor^x of the rounds to half of the slower
    runs' gain; nan where either does not get there."""
    values = []
    for a, b in zip(slow, fast, strict=True):
        first = value(a, at=0)
        target = first + 0.5 * (value(a) - first)
        values.append(np.log(rounds_to(a, target) / rounds_to(b, target)) / np.log(factor))
    return np.array(values)


Measured = np.ndarray | Estimate
"""One value a seed, nan where there is none; or a value with its interval."""
Measure = Callable[[dict[str, Runs]], Measured]
HALF = 0.5
"""A run has collapsed where it ends below this share of the usual one."""
FORMED = 0.9
"""Share of well-formed responses from which on a run learns answers, not the format."""


def best_k(runs: dict[str, Runs], budget: float) -> np.ndarray:
    """(seeds,) log2 of the K that is best after `budget` rollouts: the top of a parabola through the scores, or the
    best of the K where that has none among them."""
    scores = np.array([[at_rollouts(run, budget) for run in of_k] for of_k in runs.values()])
    doublings = np.log2([int(name.split()[1]) for name in runs])
    curve, slope, _ = np.polyfit(doublings, scores, 2)
    best = doublings[scores.argmax(axis=0)]
    top = np.divide(-slope, 2 * curve, out=best.copy(), where=curve < 0)
    return np.clip(top, doublings[0], doublings[-1])


def growth(runs: dict[str, Runs], before: float, after: float) -> np.ndarray:
    """(seeds,) by how many doublings the best K grows between these parts of all rollouts."""
    whole = min(float(run["rollouts"].iloc[-1]) for of_k in runs.values() for run in of_k)
    return grown(runs, before * whole, after * whole)


def grown(runs: dict[str, Runs], before: float, after: float) -> np.ndarray:
    """(seeds,) by how many doublings the best K grows between two numbers of rollouts."""
    return best_k(runs, after) - best_k(runs, before)


def ratio(name: str, to: str) -> Measure:
    """Last test Pass@1 of a setting over that of another."""
    return lambda runs: ends(runs[name]) / np.maximum(ends(runs[to]), 1e-3)


def difference(name: str, other: str) -> Measure:
    """Last test Pass@1 of a setting less that of another."""
    return lambda runs: ends(runs[name]) - ends(runs[other])


def saturated_growth(runs: dict[str, Runs]) -> Measured:
    """By how many doublings the best K grows with the last four times the rollouts, where it grew with the four times
    before."""
    return np.where(growth(runs, 1 / 16, 1 / 4) > 0, growth(runs, 1 / 4, 1), np.nan)


def speed(slow: str, fast: str, factor: float) -> Measure:
    """The exponent of a knob that is `factor` times as large in one setting as in another."""
    return lambda runs: exponent(runs[slow], runs[fast], factor)


def reward_follows_entropy(runs: dict[str, Runs]) -> Measured:
    """R^2 of train Pass@1 in exp(entropy), below 0 where they rise together."""
    r = [np.corrcoef(np.exp(run["train_entropy"]), run["train_pass_at_1"])[0, 1] for run in map(formed, runs["usual"])]
    return -np.sign(r) * np.square(r)


def formed(run: pd.DataFrame) -> pd.DataFrame:
    """The part of a run in which most responses are well formed."""
    return run[run["train_format_rate"] >= FORMED]


def rise(column: str) -> Measure:
    """Last value less the least before, which format learning makes."""
    return lambda runs: np.array([value(run, column) - run[column].min() for run in runs["usual"]])


def lottery(runs: dict[str, Runs]) -> Measured:
    """Return the smaller of the shares of seeds that collapse and that do not, at the rate that divides them most, with
    Wilson's interval."""
    usual = ends(runs["usual"]).mean()
    collapsed = [ends(of_rate) < HALF * usual for name, of_rate in runs.items() if name.startswith("rate")]
    divided, seeds = max(min(int(fell.sum()), int((~fell).sum())) for fell in collapsed), len(runs["usual"])
    share = stats.binomtest(divided, seeds).proportion_ci(method="wilson")
    return Estimate(divided / seeds, float(share.low), min(float(share.high), 0.5))


def by_length(runs: dict[str, Runs]) -> Measured:
    """End with the sequence mean over that with the token mean; nan in worlds without lengths."""
    right, wrong = (ends(runs["usual"], f"test_length_{name}") for name in ("right", "wrong"))
    return np.where(np.isclose(right, wrong), np.nan, ratio("raw, seq_mean_token_mean", "raw, token_mean")(runs))


def narrowed(runs: dict[str, Runs]) -> Measured:
    """Fall of Pass@256 where the format does not count; nan where Pass@1 does not rise."""
    rises = end_changes(runs["usual"]) > 0
    return np.where(rises, -end_changes(runs["usual"], "test_flexible_pass_at_256"), np.nan)


def wrong_lengths(runs: dict[str, Runs]) -> Measured:
    """Mean length of wrong answers after GRPO over that after Dr. GRPO; nan in worlds without lengths."""
    grpo, dr = (ends(runs[name], "test_length_wrong") for name in ("usual", "Dr. GRPO"))
    return np.where(np.isclose(dr, ends(runs["Dr. GRPO"], "test_length_right")), np.nan, grpo / dr)


def kept_entropy(runs: dict[str, Runs]) -> Measured:
    """Entropy after a run with an upper clip of 0.28 over that with 0.2: of style tokens where they have one of their
    own, else of the answer and format."""
    run, column = runs["clip 0.2"][0], "test_style_entropy"
    if column not in run or not np.isfinite(run[column].iloc[0]):
        column = "test_entropy"
    return ends(runs["clip 0.28"], column) / ends(runs["clip 0.2"], column)


def lag_harm(runs: dict[str, Runs]) -> Measured:
    """Return the cost of a lag of 16 rounds at a high rate, less its effect at a low one."""
    high, low = (ends(runs[f"{rate} rate"]) - ends(runs[f"{rate} rate, lag 16"]) for rate in ("high", "low"))
    return high - np.abs(low)


def spread(runs: dict[str, Runs]) -> Measured:
    """Standard deviation between seeds of the last test Pass@1, with its interval from the chi-squared distribution."""
    return pooled_deviation([ends(runs["usual"])])


def saturation(runs: dict[str, Runs]) -> Measured:
    """Rounds saved by a batch 4 times as large, as an exponent: from 8 to 32 less from 128 to 512."""
    return exponent(runs["B 8"], runs["B 32"], 4) - exponent(runs["B 128"], runs["B 512"], 4)


def credit(runs: dict[str, Runs]) -> Measured:
    """Correlation over worlds of the gain with flexible less strict Pass@1 of the base, with Fisher's interval."""
    worlds = [of_world for name, of_world in runs.items() if name.startswith("world")]
    apart = [np.mean([value(run, "test_flexible", 0) - value(run, TEST, 0) for run in of_world]) for of_world in worlds]
    gains = [end_changes(of_world).mean() for of_world in worlds]
    r, half = np.corrcoef(apart, gains)[0, 1], 1.96 / np.sqrt(len(worlds) - 3)
    return Estimate(float(r), float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half)))


def by_rollouts(runs: dict[str, Runs]) -> Measured:
    """How far (32, 8) is ahead of the raw reward of (32, 1) at equal rounds, less the distance at equal rollouts."""
    values = []
    for one, eight in zip(runs["raw, K 1"], runs["usual"], strict=True):
        spent = min(one["rollouts"].iloc[-1], eight["rollouts"].iloc[-1])
        rounds = min(one["round"].iloc[-1], eight["round"].iloc[-1])
        ahead = (np.interp(rounds, eight["round"], eight[TEST])) - np.interp(rounds, one["round"], one[TEST])
        values.append(ahead - abs(at_rollouts(eight, spent) - at_rollouts(one, spent)))
    return np.array(values)


def few_questions(runs: dict[str, Runs]) -> Measured:
    """Gain from 8 training questions as a share of that from all."""
    return end_changes(runs["8 questions"]) / end_changes(runs["all questions"])


def early_fall(runs: dict[str, Runs]) -> Measured:
    """Share of the entropy's fall, from where responses are well formed, that the first quarter of that part has."""
    losses = [formed(run)["train_entropy"].to_numpy() for run in runs["usual"]]
    drops = [loss[0] - loss for loss in losses]
    return np.array([drop[len(drop) // 4] / drop[-1] if drop[-1] > 0 else np.nan for drop in drops])
