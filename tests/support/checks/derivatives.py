"""The checks of tests/estimators/test_derivatives.py."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rftlab import KL, Advantage, Estimator, Ratio
from rftlab.shared.cards import PRESETS
from rftlab.shared.config.mask import Unmasked
from rftlab.shared.config.surrogate import Cispo, Clip, GeometricMean, Surrogate, Topr, Vespo
from tests.support.estimators.random_batches import Batches, baseline_for, binary, random_batch, random_estimator
from tests.support.estimators.vectors import Api, seeds

H, SMOOTH = 1e-5, 1e-3


def difference(function: Callable[[float], float], x: float) -> float:
    """Central difference, with the width that x really moved by."""
    above, below = x + H, x - H
    return (function(above) - function(below)) / (above - below)


def agree(slope: float, measured: float, scale: float, what: str) -> None:
    """Within 1e-7 of the scale of the value: h^2/6 of truncation, and rounding of 1e-16/h."""
    assert abs(slope - measured) <= 1e-7 * max(abs(scale), 1e-6), f"{what}: slope {slope!r}, difference {measured!r}"


FIXED = (Cispo, Topr, Vespo)
"""Surrogates that hold the ratio fixed, so that their derivative is not that of their value."""


def differentiable(estimator: Estimator) -> bool:
    """Whether the weights are the derivative of the value."""
    fixed = isinstance(estimator.surrogate, FIXED) or estimator.ratio.level == "sequence_token"
    return not fixed and not estimator.kl.straight_through


def kinks(spec: Surrogate, ratio: Ratio) -> list[float]:
    """Log-ratios where the surrogate may turn."""
    turns = [1.0 - spec.low, 1.0 + spec.high] if isinstance(spec, (Clip, Cispo)) else []
    turns += [spec.dual] if isinstance(spec, Clip) else []
    edges = [-spec.low, spec.high] if isinstance(spec, GeometricMean) else []
    return [math.log(turn) for turn in turns if 0 < turn < math.inf] + edges + [ratio.floor, ratio.cap, -20.0, 20.0]


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
    """dJ/dlogp of every token of one batch; sets have as many rewards as pass@k may ask for."""
    batch = smooth_batch(rng, estimator, 0.6)
    batch = binary(batch, rng) if estimator.advantage.credit == "pass_at_k" else batch
    support = np.tile([0.0, 1.0], 4 * batch.n_groups), np.repeat(np.arange(batch.n_groups), 8)
    rest = {"correction": batch.correction if rng.integers(2) else None}
    rest["pool"] = api.make_pool(batch.n_groups, (batch.rewards, batch.group), support)
    tokens = batch.starts, batch.old_logp, batch.ref_logp
    rest["baseline"] = baseline_for(estimator.advantage, batch)
    prepared = api.prepare(estimator, batch.rewards, batch.group, *tokens, **rest)
    found = api.objective_and_weights(estimator, prepared, batch.logp)
    for t, unit in enumerate(np.eye(batch.logp.size)):

        def along(x, t=t, unit=unit):
            return api.objective_and_weights(estimator, prepared, batch.logp + unit * (x - batch.logp[t])).objective

        scale = float(np.abs(found.weight).max())
        agree(found.weight[t], difference(along, batch.logp[t]), scale, f"{name}: weight of token {t}")


def check_slopes(api: Api) -> None:
    """Every preset that is differentiated through its ratio, and random surrogates, levels, penalties and
    aggregations; with importance correction and without."""
    presets = PRESETS | {"kl in the reward": replace(PRESETS["dr_grpo"], kl=KL("k3", 0.3, "reward"))}
    fixed = {"advantage": lambda rng: Advantage("none"), "mask": lambda rng: Unmasked()}
    drawn = {f"estimator {i}": random_estimator(rng, **fixed) for i, rng in enumerate(seeds(200, 400))}
    for i, (name, estimator) in enumerate((presets | drawn).items()):
        for rng in seeds(1000 + i, (6 if name in presets else 2) * differentiable(estimator)):
            check_objective(api, name, estimator, rng)


CHECKS = {"check_slopes": check_slopes}
