"""Simulate runs with known truth, as logs with sampled evaluations.

The truth is computed from the exact Pass@1 of the run, of other learning rates, and of the same run with half as many
rounds again. A case in between is neither true nor false.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.sim.config import Environment, Linear, Optimizer, OptimizerKind, Simulation, Tabular
from rftlab.sim.run import simulate
from rftlab.studies.analysis.diagnose.progress import visible
from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries

METRICS = {
    "test_pass_at_1": ("test", "pass_at_1"),
    "reward": ("train", "reward_mean"),
    "clip_fraction": ("train", "clip_fraction"),
    "zero_signal_fraction": ("train", "zero_signal_fraction"),
    "grad_norm": ("train", "grad_norm"),
    "test_flexible": ("", "test_flexible"),
    "kl": ("train", "kl_ref"),
    "length": ("train", "response_length"),
    "mismatch": ("", "mismatch"),
}


class KnownCase(NamedTuple):
    """A run, with the truth about it by kind of finding."""

    run: ImportedRun
    truth: dict[str, bool]


def run_of(name: str, curve: pd.DataFrame, questions: int | None, design: KnownDesign) -> ImportedRun:
    """Return a curve of ours as a log. questions: number behind each evaluation; nan where None."""
    found: list[MetricSeries] = []
    for column, (split, metric) in METRICS.items():
        if column in curve:
            n = float(questions) if questions and split == "test" else np.nan
            rows = curve.assign(value=curve[column], n=n, source_step=curve["round"])
            found += pieces_of(rows, split, "", metric, column)
    return ImportedRun(name, "curve", "", (), design, in_order(found))


def pieces_of(rows: pd.DataFrame, split: str, task: str, metric: str, source: str) -> list[MetricSeries]:
    """Return the finite values of one metric as a series, from columns round, value, n and source_step; an empty list
    where there are none."""
    rows = rows[np.isfinite(rows["value"])].sort_values("round", kind="stable")
    rounds, steps = rows["round"].to_numpy(int), rows["source_step"].fillna(-1).to_numpy(int)
    values, n = (rows[name].to_numpy(float) for name in ("value", "n"))
    return [MetricSeries(split, task, metric, source, rounds, values, n, steps)] if len(rows) else []


def in_order(pieces: list[MetricSeries]) -> tuple[MetricSeries, ...]:
    """Return the series in the order of an imported run."""
    return tuple(sorted(pieces, key=lambda piece: (piece.split != "test", *piece[:4])))


FORMED = 3.0
"""Mean logit of the format from which on nearly all first answers are well formed."""
RATES = (2e-4, 1e-3, 5e-3, 2e-2, 1e-1, 5e-1)


FEWEST = 8
"""Fewest values of a curve that is judged after a third of its rounds."""


class InWorld(NamedTuple):
    """Common settings of runs with different learning rates."""

    environment: Environment
    design: Design
    kind: OptimizerKind = "adam"
    scale: float = 1.0
    """Factor of every rate."""


def designs(rounds: int, *choices: tuple[str, int, int, int]) -> list[Design]:
    """Return designs from presets, prompts, rollouts and epochs."""
    return [
        Design(prompts, k, estimator=preset(name), rounds=rounds, eval_every=rounds // 60, epochs=epochs)
        for name, prompts, k, epochs in choices
    ]


def chosen() -> list[InWorld]:
    """Return linear worlds: usual, mostly unsolvable, half unsolvable, easy; with three estimators."""
    small = Linear(n_train=1000, n_test=400, n_features=64)
    worlds = (
        small,
        replace(small, unsolvable=0.9),
        replace(small, unsolvable=0.5, n_test=60),
        replace(small, base_format=3.0, kappa=8.0, align=0.97),
    )
    choices = designs(300, ("grpo", 32, 8, 1), ("grpo", 8, 4, 4), ("minimalist", 32, 1, 1))
    return [InWorld(world, design) for world, design in product(worlds, choices)]


def worlds() -> list[InWorld]:
    """Return other worlds: contexts that share nothing, answers of two tokens, little that generalises; with other
    estimators."""
    linear = Linear(n_train=600, n_test=200, n_features=128, n_answers=4, rho=0.5, kappa=2.0, base_format=-1.0)
    places: tuple[Environment, ...] = (
        Tabular(n_contexts=200, n_arms=8, n_correct=1, base_scale=2.0),
        Tabular(n_contexts=64, n_arms=4, n_correct=0),
        linear,
        replace(linear, n_answers=2, answer_tokens=4, n_styles=1, n_test=50),
        replace(linear, unsolvable=0.8, n_test=1000),
    )
    choices = designs(240, ("rloo", 16, 4, 1), ("dr_grpo", 32, 16, 2), ("paper_text", 16, 8, 6))
    adam = [InWorld(place, design) for place, design in product(places, choices)]
    return adam + [InWorld(linear, design, "sgd", 30.0) for design in choices]


def held() -> list[InWorld]:
    """Return worlds that were written down before the last change of any rule, and scored once, after it: forgetting
    and interference, answers of two tokens, many arms; with other estimators and numbers of rounds and evaluations."""
    linear = Linear(
        n_train=800, n_test=300, n_features=48, n_answers=5, rho=0.8, kappa=4.0, align=0.7, base_format=-2.0
    )
    places: tuple[Environment, ...] = (
        linear,
        replace(linear, forgetting=0.3, interference=0.2, n_test=150),
        replace(linear, n_answers=6, answer_tokens=2, n_styles=1, base_format=-3.0, n_test=500),
        Tabular(n_contexts=400, n_arms=16, n_correct=2, nuisance=0.5),
        replace(linear, unsolvable=0.6, base_format=2.0, n_test=800),
    )
    choices = [
        Design(64, 2, estimator=preset("reinforce"), rounds=360, eval_every=15),
        Design(16, 8, estimator=preset("cispo"), rounds=200, eval_every=5, epochs=4),
        Design(32, 4, estimator=preset("paper_code"), rounds=150, eval_every=3, epochs=8),
    ]
    adam = [InWorld(place, design) for place, design in product(places, choices)]
    return adam + [InWorld(linear, design, "sgd", 30.0) for design in choices]


def second() -> list[InWorld]:
    """Return worlds of another kind, written down before the shapes of curves were changed for plateau, and scored
    once, after it: sharpening, correctness, noisy rewards, surprise, margins."""
    base = Linear(
        n_train=1200, n_test=350, n_features=96, n_answers=6, rho=0.85, kappa=3.0, align=0.75, base_format=-3.0
    )
    places = (
        replace(base, sharpening=0.3),
        replace(base, correctness=0.2, familiarity=1.0),
        replace(base, reward_noise=0.2, base_format=-1.0),
        replace(base, surprise=0.5, base_format=1.0, n_test=700),
        replace(base, margin=0.2, kappa=1.5, align=0.5, base_format=0.0),
    )
    choices = [
        Design(48, 4, estimator=preset("rloo"), rounds=400, eval_every=10),
        Design(24, 12, estimator=preset("gspo"), rounds=160, eval_every=4, epochs=2),
        Design(128, 2, estimator=preset("dr_grpo"), rounds=260, eval_every=10, epochs=3),
    ]
    return [InWorld(place, design) for place, design in product(places, choices)]


def third() -> list[InWorld]:
    """Return worlds written down when it was known why `step too large` gave false alarms on `second`, before its rule
    was changed: contexts that share nothing or interfere, mostly unsolvable ones; ratios of a sequence and of a token,
    both with re-used rollouts."""
    linear = Linear(
        n_train=700, n_test=250, n_features=80, n_answers=3, rho=0.6, kappa=5.0, align=0.85, base_format=1.0
    )
    places: tuple[Environment, ...] = (
        Tabular(n_contexts=300, n_arms=12, n_correct=2, base_scale=1.5),
        replace(linear, interference=0.1, n_test=600),
        replace(linear, unsolvable=0.7),
    )
    choices = [
        Design(32, 8, estimator=preset("gspo"), rounds=200, eval_every=5, epochs=4),
        Design(64, 4, estimator=preset("luspo"), rounds=180, eval_every=6, epochs=2),
        Design(32, 8, estimator=preset("grpo"), rounds=200, eval_every=5, epochs=4),
    ]
    return [InWorld(place, design) for place, design in product(places, choices)]


def fourth() -> list[InWorld]:
    """Return worlds written down after both rules of `step too large` were changed, and scored once: more and fewer
    unsolvable contexts, forgetting, sharpening."""
    base = Linear(n_train=900, n_test=400, n_features=72, n_answers=7, rho=0.7, kappa=3.5, align=0.8, base_format=2.0)
    places: tuple[Environment, ...] = (
        replace(base, unsolvable=0.85),
        replace(base, unsolvable=0.4, forgetting=0.2),
        replace(base, unsolvable=0.5, sharpening=0.2, n_test=800),
        Tabular(n_contexts=250, n_arms=10, n_correct=1, base_scale=1.0, nuisance=0.3),
    )
    choices = [
        Design(32, 8, estimator=preset("rloo"), rounds=250, eval_every=5),
        Design(16, 16, estimator=preset("gspo"), rounds=160, eval_every=4, epochs=3),
        Design(48, 6, estimator=preset("cispo"), rounds=200, eval_every=10, epochs=2),
    ]
    return [InWorld(place, design) for place, design in product(places, choices)]


def damaged() -> list[InWorld]:
    """Return worlds that break: damage of 0.002 / rate^2 at a usual rate of 0.005, one to sixteen updates a round."""
    base = Linear(n_train=800, n_test=400, n_features=64, base_format=0.0, damage=0.002 / 0.005**2)
    places = (base, replace(base, unsolvable=0.5), replace(base, base_format=-3.0, kappa=2.0))
    choices = [
        Design(32, 8, estimator=preset("grpo"), rounds=200, eval_every=2),
        Design(32, 4, estimator=preset("rloo"), rounds=200, eval_every=2, epochs=4),
        Design(16, 8, estimator=preset("cispo"), rounds=160, eval_every=2, epochs=16),
    ]
    return [InWorld(place, design) for place, design in product(places, choices)]


def few() -> list[InWorld]:
    """Return worlds with few training contexts, in which memorising costs knowledge of the base policy."""
    base = Linear(n_train=16, n_test=1000, n_features=128, base_format=2.0, kappa=8.0, align=0.8, forgetting=0.1)
    places = (base, replace(base, n_train=40, forgetting=0.3), replace(base, n_train=400))
    design = Design(16, 8, estimator=preset("grpo"), rounds=300, eval_every=10)
    return [InWorld(place, design) for place in places]


def simulated(settings: list[InWorld], seeds: int) -> Iterator[KnownCase]:
    """Yield runs of every setting, rate and seed with their truth; and each of them after a third of its rounds, with
    the truth from its remaining rounds."""
    for number, setting in enumerate(settings):
        for seed in range(seeds):
            runs = [_run(setting, rate * setting.scale, seed) for rate in RATES]
            ends = [
                float(exact["test_pass_at_1"][exact["round"] <= setting.design.rounds].iloc[-1]) for _, exact in runs
            ]
            for at, (log, exact) in enumerate(runs):
                name = f"{number} rate {RATES[at] * setting.scale:g} seed {seed}"
                yield _case(name, setting, log, exact, ends, at)
                if (early := _early(name, setting, log, exact)) is not None:
                    yield early


def _run(setting: InWorld, rate: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the log with sampled evaluations, and the exact curve of half as many rounds again."""
    design = setting.design
    run = Simulation(setting.environment, design, Optimizer(setting.kind, rate), evaluation="sampled", seed=seed)
    more = replace(run, design=replace(design, rounds=design.rounds * 3 // 2), evaluation="exact")
    return simulate(run).curve.to_frame(), simulate(more).curve.to_frame()


def _case(name: str, setting: InWorld, log: pd.DataFrame, exact: pd.DataFrame, ends: list[float], at: int) -> KnownCase:
    rounds, design, world = setting.design.rounds, setting.design, setting.environment
    after = exact[exact["round"] > rounds]
    values = exact["test_pass_at_1"][exact["round"] <= rounds].to_numpy()
    truth = _collapsed(values, after["test_pass_at_1"].to_numpy()) | _gained(values, _questions(world))
    best_below, best = max(ends[: at + 1]), max(ends)
    truth |= _worth(exact, rounds, _questions(world)) | _apart(exact[exact["round"] <= rounds])
    truth |= between("step too large", best_below - ends[at], 0.1, 0.03 if ends[at] >= best - 0.03 else -1.0)
    if design.rollouts > 1:
        truth |= between("no signal", float(after["zero_signal_fraction"].mean()), 0.8, 0.7)
    if values[-1] - values[0] > 0.1 and (isinstance(world, Tabular) or world.base_format >= FORMED):
        truth["format only"] = False  # where the format is learnt too, dev.known_formats knows its share
    return KnownCase(_log(name, setting, log), truth)


def _apart(exact: pd.DataFrame) -> dict[str, bool]:
    """Return whether the test set loses while training gains, and whether no context was ever solved."""
    test, train = (exact[name].to_numpy() for name in ("test_pass_at_1", "train_pass_at_1"))
    at = int(np.argmax(test))
    lost, gained = float(test[at] - test[-1]), float(train[-1] - train[at])
    truth = between("train rises, test falls", min(lost, gained), 0.05, 0.005)
    return truth | between("out of reach", -float(max(test.max(), train.max())), -0.01, -0.04)


def _early(name: str, setting: InWorld, log: pd.DataFrame, exact: pd.DataFrame) -> KnownCase | None:
    """Return the first third of a run, or None where it has too few values."""
    every = setting.design.eval_every
    cut = setting.design.rounds // 3 // every * every
    seen = log[log["round"] <= cut]
    truth = _worth(exact, cut, _questions(setting.environment))
    return KnownCase(_log(f"{name} until {cut}", setting, seen), truth) if len(seen) >= FEWEST else None


def _log(name: str, setting: InWorld, log: pd.DataFrame) -> ImportedRun:
    loss = "ratio of a sequence" if setting.design.estimator.ratio.level.startswith("sequence") else None
    known = KnownDesign(prompts=setting.design.batch_size, rollouts=setting.design.rollouts, loss=loss)
    return run_of(name, log, _questions(setting.environment), known)


def _questions(world: Environment) -> int:
    return world.n_test if isinstance(world, Linear) else world.n_contexts


def _collapsed(values: np.ndarray, after: np.ndarray) -> dict[str, bool]:
    """Return whether a run collapsed, from exact Pass@1 at its evaluations and after it. Its level is one held for two
    evaluations, or the untrained model's; it is lost if neither the last fifth nor the later rounds have it."""
    best = max(float(values[0]), float(((values[:-1] + values[1:]) / 2).max()))
    end = float(values[-max(3, len(values) // 5) :].mean())
    if best <= 0.02 or end >= 0.8 * best:
        return {"collapse": False}
    return {"collapse": True} if max(end, float(after.mean())) <= 0.5 * best else {}


def _gained(values: np.ndarray, questions: int) -> dict[str, bool]:
    """Return whether the gain is small, compared with noise and with what the evaluation can show."""
    gain, last = float(values[-1] - values[0]), float(values[-1])
    truth = between("noise above progress", -abs(gain) / _error(last, questions), -1.0, -4.0)
    middle = float(np.clip((values[0] + last) / 2, 0.5 / questions, 1 - 0.5 / questions))
    return truth | between("evaluation too small", -abs(gain) / visible(middle, questions), -0.7, -1.4)


def _worth(exact: pd.DataFrame, cut: int, questions: int) -> dict[str, bool]:
    """Return whether a run that stopped at `cut` would be on a plateau, from the gain of half as many rounds again.
    Means of three evaluations are compared, because a policy's Pass@1 jumps."""
    part = exact[exact["round"] <= cut * 3 // 2]
    before, after = (
        rows["test_pass_at_1"].to_numpy() for rows in (part[part["round"] <= cut], part[part["round"] > cut])
    )
    count = min(3, max(1, len(after) // 2))
    last = float(before[-count:].mean())
    gain, later = last - float(before[0]), float(after[-count:].mean()) - last
    clear = gain > max(4 * _error(last, questions), 0.02)
    return between("plateau", -later / gain, -0.05, -0.1) if clear else {}


def _error(rate: float, questions: int) -> float:
    return float(np.sqrt(max(rate * (1 - rate), 0.5 / questions) / questions))


def between(kind: str, value: float, yes: float, no: float) -> dict[str, bool]:
    """Return True from `yes` on and False below `no`; neither in between."""
    return {kind: True} if value >= yes else {kind: False} if value <= no else {}
