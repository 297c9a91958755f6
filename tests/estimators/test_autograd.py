"""Every surrogate, level of the ratio and penalty written once more with torch; autograd must give the same weights,
away from ties. Skipped without torch."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Unmasked
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Topr, Vespo
from rftlab.shared.estimator import Estimator
from tests.support.estimators.random_batches import (
    SURROGATES,
    Batches,
    drawn,
    random_batch,
    random_estimator,
    random_kl,
    random_ratio,
)
from tests.support.estimators.vectors import EXACT, REAL, Api, close, seeds

torch = pytest.importorskip("torch")


def clamped(x, low: float, high: float):
    return x.clamp(low, high)


def either(condition, yes: float, no: float):
    """torch.where of two numbers, in float64."""
    return torch.where(condition, torch.tensor(yes, dtype=torch.float64), torch.tensor(no, dtype=torch.float64))


def response_log_ratio(level: str, x, row):
    """Log-ratio that each token sees; row (T,) is the index of its response."""
    if level == "token":
        return x
    n_rows = int(row.max()) + 1
    parts = clamped(x, -20.0, 20.0) if level == "product" else x
    total = torch.zeros(n_rows, dtype=x.dtype).index_add(0, row, parts)[row]
    if level == "product":
        return total
    mean = total / torch.bincount(row, minlength=n_rows)[row]
    return mean if level == "sequence" else mean.detach() + x - x.detach()


def clip(spec: Clip, advantage, ratio):
    value = torch.minimum(advantage * ratio, advantage * clamped(ratio, 1.0 - spec.low, 1.0 + spec.high))
    return (
        torch.where(advantage < 0, torch.maximum(value, advantage * spec.dual), value)
        if math.isfinite(spec.dual)
        else value
    )


def surrogate(estimator: Estimator, advantage, logp, x, row):
    """Objective of each token (T,)."""
    spec, bounds = estimator.surrogate, estimator.ratio
    seen = response_log_ratio(bounds.level, x, row)
    ratio = clamped(seen, bounds.floor, bounds.cap).exp()
    if isinstance(spec, Reinforce):
        return advantage * logp
    if isinstance(spec, Dro):
        return advantage * logp - 0.5 * spec.beta * x**2
    if isinstance(spec, Clip):
        return clip(spec, advantage, ratio)
    if isinstance(spec, Cispo):
        return clamped(ratio, 1.0 - spec.low, 1.0 + spec.high).detach() * advantage * logp
    if isinstance(spec, Topr):
        weight = torch.where(advantage >= 0, torch.ones_like(ratio), ratio.clamp(max=1.0))
        return weight.detach() * advantage * logp
    if isinstance(spec, Sapo):
        tau = either(advantage > 0, spec.tau_positive, spec.tau_negative)
        return torch.sigmoid(tau * (ratio - 1.0)) * 4.0 / tau * advantage
    if isinstance(spec, Vespo):
        k = either(advantage >= 0, spec.k_positive, spec.k_negative)
        lam = either(advantage >= 0, spec.lam_positive, spec.lam_negative)
        return (lam + k * ratio.log() - lam * ratio).exp().detach() * advantage * logp
    return geometric(spec, estimator.aggregation.eps, advantage, x, row)


def geometric(spec: GeometricMean, eps: float, advantage, x, row):
    side, n_rows = advantage.sign(), int(row.max()) + 1
    kept = side * torch.minimum(side * x, side * clamped(x, -spec.low, spec.high))
    total = torch.zeros(n_rows, dtype=x.dtype).index_add(0, row, kept)
    return advantage * (total / (torch.bincount(row, minlength=n_rows).double() + eps)).exp()[row]


def penalty(spec: KL, logp, ref_logp, ratio):
    d = logp - ref_logp
    limit, most = (20.0, 10.0) if spec.bounded else (math.inf, math.inf)
    u = clamped(-d, -limit, limit)
    value = {"none": 0.0 * d, "k1": d, "k2": d**2 / 2, "k3": clamped(u.exp() - u - 1.0, -most, most), "abs": d.abs()}[
        spec.kind
    ]
    if spec.straight_through and spec.kind != "none":
        value = value.detach() + d**2 / 2 - (d**2 / 2).detach()
    return value * ratio if spec.weighted else value


def check_autograd(api: Api, estimator: Estimator, batch: Batches) -> None:
    """J and all of its derivatives, from one call of backward."""
    frozen = api.batch_from_advantages(
        estimator, batch.values, batch.starts, batch.old_logp, batch.ref_logp, correction=batch.correction
    )
    found = api.objective_and_weights(estimator, frozen, batch.logp)
    advantage, share, kl_share, old, ref, row = (torch.from_numpy(np.ascontiguousarray(column)) for column in frozen)
    logp = torch.from_numpy(batch.logp.copy()).requires_grad_()
    x = logp - old
    ratio = clamped(response_log_ratio(estimator.ratio.level, x, row), estimator.ratio.floor, estimator.ratio.cap).exp()
    penalties = penalty(estimator.kl, logp, ref, ratio)
    objective = (share * surrogate(estimator, advantage, logp, x, row) - kl_share * penalties).sum()
    objective.backward()
    scale = 1.0 + logp.grad.abs().sum().item() + (kl_share * penalties).abs().sum().item()
    close(found.weight, logp.grad.numpy(), f"weights of {estimator}", EXACT * scale)
    close(found.objective, objective.item(), f"objective of {estimator}", EXACT * (scale + abs(objective.item())))


def without_ties(batch: Batches) -> Batches:
    """Where a bound is met exactly a function has several subgradients, and each library, each version of it, takes
    its own: no log-probabilities are equal."""
    equal = (batch.logp == batch.old_logp) | (batch.logp == batch.ref_logp)
    return batch._replace(logp=batch.logp + 1e-3 * equal)


LEVELS = ("token", "sequence", "sequence_token", "product")
PAIRS = [
    pytest.param(kind, choices, level, id=f"{kind.__name__}-{level}")
    for kind, choices in SURROGATES
    for level in LEVELS
    if (kind in (Clip, Cispo, Sapo)) or level == ("product" if kind is Vespo else "token")
]


@pytest.mark.parametrize(("kind", "choices", "level"), PAIRS)
def test_autograd(kind, choices, level):
    """Bounds of the ratio, penalties and aggregations are drawn at random; log-ratios up to 6, where nothing
    overflows."""
    for rng in seeds(0, 150):
        estimator = random_estimator(
            rng,
            surrogate=lambda rng: drawn(rng, kind, **choices),
            ratio=lambda rng: Ratio(level, *(getattr(random_ratio(rng), side) for side in ("floor", "cap"))),
            kl=random_kl,
            mask=lambda rng: Unmasked(),
        )
        check_autograd(REAL, estimator, without_ties(random_batch(rng, longest=6, spreads=(0.05, 0.5, 2.0))))


def test_wrong_weights_are_refused():
    """The comparison can fail: with weights of the other sign, and with PPO's clip, under which a clipped token
    stops learning, for CISPO's."""
    flipped = replace(
        REAL,
        objective_and_weights=lambda *args: (lambda found: found._replace(weight=-found.weight))(
            REAL.objective_and_weights(*args)
        ),
    )
    estimator, batch = Estimator(surrogate=Cispo()), random_batch(np.random.default_rng(0), spreads=(0.5,))
    check_autograd(REAL, estimator, batch)
    with pytest.raises(AssertionError, match="weights"):
        check_autograd(flipped, estimator, batch)
    stopped = replace(
        REAL, objective_and_weights=lambda spec, *args: REAL.objective_and_weights(Estimator(surrogate=Clip()), *args)
    )
    with pytest.raises(AssertionError, match="weights"):
        check_autograd(stopped, estimator, batch)
