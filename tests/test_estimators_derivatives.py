"""Every derivative against central differences of the value that the same function returns, away from kinks."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate
from shared.presets import PRESETS
from shared.surrogate import CLIP, surrogate
from tests.vectors import REAL, Api, random_batch, seeds

H, SMOOTH = 1e-5, 1e-3


def difference(function: Callable[[float], float], x: float) -> float:
    """Central difference, with the width that x really moved by."""
    above, below = x + H, x - H
    return (function(above) - function(below)) / (above - below)


def agree(slope: float, measured: float, scale: float, what: str) -> None:
    """Within 1e-7 of the scale of the value: h^2/6 of truncation, and rounding of 1e-16/h."""
    assert abs(slope - measured) <= 1e-7 * max(abs(scale), 1e-6), f"{what}: slope {slope!r}, difference {measured!r}"


SURROGATES = [
    Surrogate("reinforce"),
    Surrogate("clip"),
    Surrogate("clip", low=0.1, high=0.4),
    Surrogate("clip", low=0.3, high=0.1, dual=1.5),
    Surrogate("clip", low=1.0, high=float("inf")),
    Surrogate("clip", low=1.0, high=float("inf"), dual=3.0),
]


def kinks(spec: Surrogate) -> list[float]:
    """Log-ratios where the surrogate may turn."""
    turns = [1.0 - spec.low, 1.0 + spec.high, spec.dual or np.inf]
    return [float(np.log(turn)) for turn in turns if 0 < turn < np.inf] + [-20.0, 20.0]


def check_surrogate_slopes(api: Api) -> None:
    """Both kinds, both signs of the advantage, every side of every kink."""
    seen = set()
    for spec, advantage in product(SURROGATES, (-1.7, 0.6)):
        rule = api.rule_of(Estimator(surrogate=spec))
        for log_ratio in np.concatenate([np.linspace(-2.0, 2.0, 81), [-25.0, -19.5, 4.0, 19.5, 25.0]]):
            if min(abs(log_ratio - kink) for kink in kinks(spec)) < SMOOTH:
                continue

            def token(logp, rule=rule, advantage=advantage):
                return api.surrogate(rule.surrogate, rule.low, rule.high, rule.dual, advantage, logp, -2.0)

            value, slope, clipped, dual = token(-2.0 + log_ratio)
            agree(
                slope, difference(lambda x, token=token: token(x)[0], -2.0 + log_ratio), max(1.0, abs(value)), f"{spec}, A {advantage}, log-ratio {log_ratio}"
            )
            seen.add((spec.kind, advantage > 0, bool(clipped), bool(dual), abs(log_ratio) > 20))
    for expected in [("clip", True, True, False), ("clip", False, True, False), ("clip", False, False, True), ("clip", True, False, False)]:
        assert (*expected, False) in seen, f"no token was {expected}"
    assert ("clip", True, False, False, True) in seen and ("reinforce", False, False, False, False) in seen


def check_kl_slopes(api: Api) -> None:
    """Every kind; straight_through has the value of its kind and the derivative d of k2, whatever the kind."""
    for kind, straight_through in product(["none", "k1", "k2", "k3", "abs"], [False, True]):
        rule = api.rule_of(Estimator(kl=KL(kind, straight_through=straight_through)))
        plain = api.rule_of(Estimator(kl=KL(kind)))
        for d in [-25.0, -19.0, -4.0, -2.6, -2.3, -0.7, -0.01, 0.02, 0.5, 3.0, 9.9, 10.9, 11.1, 19.0, 25.0]:
            value, slope = api.kl_penalty(rule.kl, rule.kl_straight_through, d - 3.0, -3.0)
            assert value == api.kl_penalty(plain.kl, False, d - 3.0, -3.0)[0], f"{kind}: straight_through changes the value at {d}"
            if straight_through:
                measured = 0.0 if kind == "none" else d
            else:
                measured = difference(lambda x, rule=rule: api.kl_penalty(rule.kl, False, x, -3.0)[0], d - 3.0)
            agree(slope, measured, max(1.0, abs(value)), f"{kind}, straight_through {straight_through}, d {d}")


ESTIMATORS = PRESETS | {
    "k1": replace(PRESETS["grpo"], kl=KL("k1", 0.3)),
    "k2": replace(PRESETS["dr_grpo"], kl=KL("k2", 0.3)),
    "abs": replace(PRESETS["rloo"], kl=KL("abs", 0.3)),
    "kl in the reward": replace(PRESETS["minimalist"], kl=KL("k3", 0.3, "reward")),
    "unclipped": Estimator(Advantage("batch_mean"), Surrogate("clip", 1.0, float("inf")), KL("k3", 0.3), Aggregation("token_sum", length=16)),
}


def check_objective_slopes(api: Api) -> None:
    """dJ/dlogp of every token of whole batches, for every preset, with importance correction and without."""
    for name, estimator in ESTIMATORS.items():
        for rng in seeds(100, 12):
            batch = random_batch(rng, fewest=2)
            old = batch.old_logp
            log_ratio = rng.normal(0.0, 0.6, old.size)
            for kink in kinks(estimator.surrogate):
                log_ratio = np.where(np.abs(log_ratio - kink) < SMOOTH, kink + 2 * SMOOTH, log_ratio)
            logp = old + log_ratio
            d = np.maximum(rng.normal(size=old.size), -2.5)
            ref = logp - np.where(np.abs(d) < SMOOTH, SMOOTH, d)
            correction = batch.correction if rng.integers(2) else None
            prepared = api.prepare(estimator, batch.rewards, batch.group, batch.starts, old, ref, correction=correction)
            weighed = api.weigh(estimator, prepared, logp)
            scale = float(np.abs(weighed.weight).max())
            for t in range(old.size):

                def along(x, t=t, logp=logp, estimator=estimator, prepared=prepared):
                    return api.weigh(estimator, prepared, np.concatenate([logp[:t], [x], logp[t + 1 :]])).objective

                agree(weighed.weight[t], difference(along, logp[t]), scale, f"{name}: weight of token {t}")


CHECKS = {check.__name__: check for check in (check_surrogate_slopes, check_kl_slopes, check_objective_slopes)}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_slopes(check):
    check(REAL)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_log_probability_that_is_not_a_number_is_never_hidden(advantage):
    """A weight of 0 in its place would let a broken policy train on in silence."""
    value, slope, _, _ = surrogate(CLIP, 0.2, 0.2, 3.0, advantage, float("nan"), -1.0)
    assert np.isnan(value) and np.isnan(slope)
