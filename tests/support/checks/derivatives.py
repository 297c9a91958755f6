"""The checks of tests/estimators/test_derivatives.py."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from rftlab.shared.cards import PRESETS
from rftlab.shared.config.advantage import PER_TOKEN, Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Surrogate, Topr, Vespo
from rftlab.shared.estimator import Estimator
from tests.support.estimators.random_batches import Batches, random_batch
from tests.support.estimators.vectors import Api, seeds

H, SMOOTH = 1e-5, 1e-3


def difference(function: Callable[[float], float], x: float) -> float:
    """Central difference, with the width that x really moved by."""
    above, below = x + H, x - H
    return (function(above) - function(below)) / (above - below)


def agree(slope: float, measured: float, scale: float, what: str) -> None:
    """Within 1e-7 of the scale of the value: h^2/6 of truncation, and rounding of 1e-16/h."""
    assert abs(slope - measured) <= 1e-7 * max(abs(scale), 1e-6), f"{what}: slope {slope!r}, difference {measured!r}"


RATIOS = (Ratio(), Ratio(floor=-1.0, cap=0.7), Ratio(floor=-math.inf, cap=math.inf))
THROUGH = (
    Clip(),
    Clip(0.1, 0.4),
    Clip(0.3, 0.1, 1.5),
    Clip(1.0, math.inf),
    Clip(1.0, math.inf, 3.0),
    Sapo(),
    Sapo(2.0, 3.0),
)
"""Surrogates whose derivative goes through the ratio, so that it is that of the value."""
FIXED = (Cispo(), Cispo(0.3, 0.4), Vespo(), Vespo(0.5, 1.0, 1.0, 0.7), Topr())
"""Surrogates that hold the ratio fixed: the derivative is that of the value in logp alone."""


def kinks(spec: Surrogate, ratio: Ratio) -> list[float]:
    """Log-ratios where the surrogate may turn."""
    turns = [1.0 - spec.low, 1.0 + spec.high] if isinstance(spec, (Clip, Cispo)) else []
    turns += [spec.dual] if isinstance(spec, Clip) else []
    edges = [-spec.low, spec.high] if isinstance(spec, GeometricMean) else []
    return [math.log(turn) for turn in turns if 0 < turn < math.inf] + edges + [ratio.floor, ratio.cap, -20.0, 20.0]


GRID = np.concatenate([np.linspace(-2.0, 2.0, 81), [-25.0, -19.5, 4.0, 19.5]])


def check_surrogate_slopes(api: Api) -> None:
    """Both signs of the advantage, every side of every kink, values that are differentiated through the ratio."""
    seen = set()
    for spec, ratio, advantage in product((Reinforce(), Dro(), Dro(2.0), *THROUGH), RATIOS, (-1.7, 0.6)):
        for log_ratio in GRID:
            if min(abs(log_ratio - kink) for kink in kinks(spec, ratio)) < SMOOTH:
                continue

            def value_at(logp, spec=spec, ratio=ratio, advantage=advantage):
                return api.surrogate(spec, ratio, advantage, logp, logp + 2.0)[0]

            value, slope, clipped, dual = api.surrogate(spec, ratio, advantage, -2.0 + log_ratio, log_ratio)
            what = f"{spec}, {ratio}, A {advantage}, log-ratio {log_ratio}"
            agree(slope, difference(value_at, -2.0 + log_ratio), max(1.0, abs(value)), what)
            seen.add((type(spec), advantage > 0, bool(clipped), bool(dual), log_ratio > ratio.cap))
    for expected in [
        (Clip, True, True, False),
        (Clip, False, True, False),
        (Clip, False, False, True),
        (Clip, True, False, False),
        (Sapo, True, False, False),
    ]:
        assert (*expected, False) in seen, f"no token was {expected}"
    assert (Clip, True, False, False, True) in seen and (Sapo, False, False, False, True) in seen


def check_fixed_ratio(api: Api) -> None:
    """Where the ratio is held fixed, the derivative is that of the value in logp at the same log-ratio."""
    for spec, ratio, advantage in product(FIXED, RATIOS, (-1.7, 0.0, 0.6)):
        for log_ratio in GRID:
            value, slope, _, _ = api.surrogate(spec, ratio, advantage, -2.0 + log_ratio, log_ratio)

            def value_at(logp, spec=spec, ratio=ratio, advantage=advantage, log_ratio=log_ratio):
                return api.surrogate(spec, ratio, advantage, logp, log_ratio)[0]

            agree(
                slope,
                difference(value_at, -2.0 + log_ratio),
                max(1.0, abs(value)),
                f"{spec}, {ratio}, A {advantage}, log-ratio {log_ratio}",
            )


def check_kl_slopes(api: Api) -> None:
    """Every kind; straight_through has the value of its kind and the derivative d of k2, whatever the kind."""
    for kind, straight_through, bounded in product(["none", "k1", "k2", "k3", "abs"], [False, True], [False, True]):
        spec, plain = KL(kind, straight_through=straight_through, bounded=bounded), KL(kind, bounded=bounded)
        for d in [-25.0, -19.0, -4.0, -2.6, -2.3, -0.7, -0.01, 0.02, 0.5, 3.0, 9.9, 10.9, 11.1, 19.0, 25.0]:
            value, slope = api.kl_penalty(spec, d - 3.0, -3.0)
            assert value == api.kl_penalty(plain, d - 3.0, -3.0)[0], (
                f"{kind}: straight_through changes the value at {d}"
            )
            measured = difference(lambda x, plain=plain: api.kl_penalty(plain, x, -3.0)[0], d - 3.0)
            if straight_through:
                measured = 0.0 if kind == "none" else d
            agree(slope, measured, max(1.0, abs(value)), f"{spec}, d {d}")


LEVELS = tuple(
    Ratio(level, floor, cap)
    for level in ("token", "sequence", "product")
    for floor, cap in ((-20.0, 20.0), (-0.4, 0.3))
)
PENALTIES = (
    KL("none"),
    KL("k1", 0.3),
    KL("k2", 0.3),
    KL("k3", 0.3),
    KL("abs", 0.3, anchor="old"),
    KL("k3", 0.3, weighted=True),
    KL("k1", 0.5, weighted=True),
)
AGGREGATIONS = (
    Aggregation("token_mean"),
    Aggregation("seq_mean_token_mean", eps=0.5),
    Aggregation("token_sum", length=16),
    Aggregation("micro_batch_token_mean", micro_batch=2),
)


def combinations() -> dict[str, Estimator]:
    """Every surrogate that is differentiated through its ratio, at every level, with every penalty; aggregations
    take turns."""
    token = (Reinforce(), Dro(0.7), GeometricMean(0.4, 0.2), GeometricMean(math.inf, math.inf))
    found = {}
    for spec, ratio, kl in [*product(THROUGH, LEVELS, PENALTIES), *product(token, (Ratio(),), PENALTIES)]:
        if not (kl.weighted and isinstance(spec, GeometricMean)):
            estimator = Estimator(Advantage("none"), spec, kl, AGGREGATIONS[len(found) % len(AGGREGATIONS)], ratio)
            found[f"{spec}, {ratio}, {kl}"] = estimator
    return found


PLAIN = PRESETS["dr_grpo"]
ESTIMATORS = {
    name: estimator for name, estimator in PRESETS.items() if not isinstance(estimator.surrogate, (Cispo, Topr, Vespo))
} | {
    "kl in the reward": replace(PLAIN, kl=KL("k3", 0.3, "reward")),
    "unclipped": Estimator(
        Advantage("batch_mean"), Clip(1.0, math.inf), KL("k3", 0.3), Aggregation("token_sum", length=16)
    ),
}


def smooth_batch(rng: np.random.Generator, estimator: Estimator, spread: float) -> Batches:
    """A batch whose log-ratios, of tokens or of responses, and whose KL arguments lie away from every kink."""
    while True:
        batch = random_batch(rng, fewest=2, spreads=(spread,))
        log_ratio = batch.logp - batch.old_logp
        log_ratio = np.where(log_ratio == 0.0, spread * 0.6, log_ratio)
        if estimator.ratio.level in ("sequence", "product"):
            sums = np.add.reduceat(np.append(log_ratio, 0.0), batch.starts[:-1])
            seen = sums / np.maximum(1, np.diff(batch.starts)) if estimator.ratio.level == "sequence" else sums
        else:
            seen = log_ratio
        d = np.maximum(batch.logp - batch.ref_logp, -2.0)
        d = np.where(np.abs(d) < 0.01, 0.1, d)
        apart = [abs(x - kink) > 2 * SMOOTH for x in seen for kink in kinks(estimator.surrogate, estimator.ratio)]
        if all(apart) and np.abs(log_ratio).min() > 0.01:
            logp = batch.old_logp + log_ratio
            return batch._replace(logp=logp, ref_logp=logp - d)


def check_objective(api: Api, name: str, estimator: Estimator, rng: np.random.Generator) -> None:
    """dJ/dlogp of every token of one batch."""
    batch = smooth_batch(rng, estimator, 0.6)
    correction = batch.correction if rng.integers(2) else None
    baseline = (
        np.zeros(batch.group.size) if estimator.advantage.baseline in ("greedy", "moving_average", "optimal") else None
    )
    baseline = np.zeros(batch.logp.size) if estimator.advantage.baseline in PER_TOKEN else baseline
    rewards = (
        (batch.rewards > 0).astype(np.float64) if estimator.advantage.credit == "pass_at_k" else batch.rewards + 0.1
    )
    prepared = api.prepare(
        estimator,
        rewards,
        batch.group,
        batch.starts,
        batch.old_logp,
        batch.ref_logp,
        correction=correction,
        baseline=baseline,
        pool=pool_for(api, batch, rewards),
    )
    found = api.objective_and_weights(estimator, prepared, batch.logp)
    scale = float(np.abs(found.weight).max())
    for t in range(batch.logp.size):

        def along(x, t=t):
            return api.objective_and_weights(
                estimator, prepared, np.concatenate([batch.logp[:t], [x], batch.logp[t + 1 :]])
            ).objective

        agree(found.weight[t], difference(along, batch.logp[t]), scale, f"{name}: weight of token {t}")


def pool_for(api: Api, batch: Batches, rewards: np.ndarray):
    """Baseline sets with support rollouts, so that a set has as many rewards as pass@k may ask for."""
    support = np.tile([0.0, 1.0], 4 * batch.n_groups), np.repeat(np.arange(batch.n_groups), 8)
    return api.make_pool(batch.n_groups, (rewards, batch.group), support)


def check_objective_slopes(api: Api) -> None:
    """Every preset that is differentiated through its ratio, with importance correction and without."""
    for name, estimator in ESTIMATORS.items():
        if estimator.ratio.level != "sequence_token":
            for rng in seeds(100, 6):
                check_objective(api, name, estimator, rng)


def check_combinations(api: Api) -> None:
    """Surrogate x level of the ratio x penalty."""
    for i, (name, estimator) in enumerate(combinations().items()):
        for rng in seeds(200 + i, 2):
            check_objective(api, name, estimator, rng)


CHECKS = {
    check.__name__: check
    for check in (
        check_surrogate_slopes,
        check_fixed_ratio,
        check_kl_slopes,
        check_objective_slopes,
        check_combinations,
    )
}
