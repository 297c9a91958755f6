"""Random batches, and random values of every field of an estimator."""

import math
from collections.abc import Callable
from typing import NamedTuple, get_args

import numpy as np

from rftlab import Estimator, Length, UserError
from rftlab.shared.config.advantage import PER_TOKEN, Advantage, BaselineKind, CreditKind, ScaleKind, WhitenKind
from rftlab.shared.config.aggregation import Aggregation, AggregationKind
from rftlab.shared.config.correction import Correction, CorrectionKind, CorrectionLevel
from rftlab.shared.config.kl import KL, KLKind
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, Mask, SecondMoment, TopEntropy, Unmasked
from rftlab.shared.config.ratio import Ratio, RatioLevel
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Surrogate, Topr, Vespo
from tests.support.estimators.vectors import starts_of


class Batches(NamedTuple):
    """A random batch of responses; see the package's glossary for the shapes."""

    rewards: np.ndarray
    group: np.ndarray
    starts: np.ndarray
    old_logp: np.ndarray
    ref_logp: np.ndarray
    logp: np.ndarray
    sampler_logp: np.ndarray
    correction: np.ndarray
    values: np.ndarray
    """(T,) numbers that serve as a critic's values or as rewards at tokens."""
    keys: np.ndarray
    n_groups: int


def random_rewards(rng: np.random.Generator, n: int) -> np.ndarray:
    """Binary, coarse (sums are exact, ties are common) or real."""
    kind = rng.integers(3)
    if kind == 0:
        return rng.normal(size=n)
    return rng.integers(-64, 65, n) / 32.0 if kind == 1 else rng.integers(0, 2, n).astype(np.float64)


def random_batch(
    rng: np.random.Generator,
    shortest: int = 0,
    fewest: int = 1,
    longest: int = 4,
    spreads: tuple = (0.05, 0.5, 2.0, 15.0),
) -> Batches:
    """Groups of unequal sizes from `fewest`, their responses shuffled, lengths from `shortest`; some tokens are
    exactly on-policy."""
    n_groups = int(rng.integers(1, 5))
    group = rng.permutation(np.repeat(np.arange(n_groups), rng.integers(fewest, 6, n_groups)))
    lengths = rng.integers(shortest, longest, group.size)
    lengths[rng.integers(group.size)] += 1
    starts = starts_of(lengths)
    old = -rng.exponential(2.0, starts[-1])
    spread = rng.choice(spreads)
    logp, ref, sampler = (
        np.where(rng.random(old.size) < 0.15, old, old + spread * rng.normal(size=old.size)) for _ in range(3)
    )
    ref = np.where(rng.random(old.size) < 0.15, logp, ref)
    rest = sampler, rng.exponential(1.0, old.size), rng.normal(size=old.size), rng.random(old.size), n_groups
    return Batches(random_rewards(rng, group.size), group, starts, old, ref, logp, *rest)


def binary(batch: Batches, rng: np.random.Generator) -> Batches:
    """The batch with 0/1 rewards."""
    return batch._replace(rewards=rng.integers(0, 2, batch.group.size).astype(np.float64))


def baseline_for(spec: Advantage, batch: Batches) -> np.ndarray | None:
    """Numbers for a baseline that comes from elsewhere: per token for a critic, else per response."""
    if not spec.given:
        return None
    return batch.values if spec.baseline in PER_TOKEN else np.cos(np.arange(batch.group.size))


# --- estimators ---


def drawn(rng: np.random.Generator, kind: Callable, /, **choices):
    """A value of `kind` with one of the choices for each field; what the package refuses is drawn again."""
    while True:
        try:
            return kind(**{name: some[int(rng.integers(len(some)))] for name, some in choices.items()})
        except UserError:
            continue


def random_advantage(rng: np.random.Generator, baselines: tuple = get_args(BaselineKind), most: int = 3) -> Advantage:
    """Half of them plain, since most combinations of the rarer fields exclude each other; `most` is the largest k."""
    rare = bool(rng.integers(2))
    first = {"baseline": baselines, "constant": (0.0, 0.0, 0.5), "scale": get_args(ScaleKind)}
    names = {"whiten": get_args(WhitenKind), "credit": get_args(CreditKind), "k": tuple(range(1, most + 1))}
    last = {"ddof": (0, 1), "eps": (1e-6, 1e-3, 0.5), "singleton": ("raw", "zero")}
    tokens = {"gamma": (1.0, 0.9), "lam": (1.0, 0.5, 0.0)}
    choices = first | names | last | tokens
    plain = {"whiten": ("none",), "credit": ("reward",), "k": (1,), "gamma": (1.0,), "lam": (1.0,)}
    return drawn(rng, Advantage, **(choices if rare else choices | plain))


SURROGATES: tuple[tuple[Callable, dict], ...] = (
    (Reinforce, {}),
    (Clip, {"low": (0.0, 0.1, 0.3, 1.0), "high": (0.0, 0.2, 0.4, math.inf), "dual": (math.inf, 1.5, 3.0)}),
    (Cispo, {"low": (0.0, 0.3, 1.0), "high": (0.0, 0.4, math.inf)}),
    (Sapo, {"tau_positive": (1.0, 2.0), "tau_negative": (1.05, 3.0)}),
    (Dro, {"beta": (0.0, 0.5, 2.0)}),
    (Topr, {}),
    (GeometricMean, {"low": (0.0, 0.4, math.inf), "high": (0.0, 0.2, math.inf)}),
    (
        Vespo,
        {"k_positive": (2.0, 0.5), "lam_positive": (3.0, 1.0), "k_negative": (3.0, 1.0), "lam_negative": (2.0, 0.7)},
    ),
)


def random_surrogate(rng: np.random.Generator) -> Surrogate:
    """Clip, the hot case, twice as often as each of the others."""
    kind, choices = (*SURROGATES, SURROGATES[1])[int(rng.integers(len(SURROGATES) + 1))]
    return drawn(rng, kind, **choices)


def random_ratio(rng: np.random.Generator) -> Ratio:
    return drawn(rng, Ratio, level=get_args(RatioLevel), floor=(-20.0, -0.4, -math.inf), cap=(20.0, 0.3, math.inf))


def random_kl(rng: np.random.Generator) -> KL:
    flags = {"straight_through": (False, True), "weighted": (False, True), "bounded": (True, False)}
    places = {"place": ("loss", "loss", "reward"), "anchor": ("base", "old")}
    return drawn(rng, KL, kind=get_args(KLKind), coef=(0.0, 0.3, 1.0), **places, **flags)


MASKS: tuple[tuple[Callable, dict], ...] = (
    (Unmasked, {}),
    (Divergence, {"measure": ("tv", "kl"), "low": (0.0, 0.05, 0.2), "high": (0.0, 0.1, 0.2)}),
    (Drift, {"threshold": (0.0, 0.1, 1.0)}),
    (ClipCov, {"fraction": (1e-4, 0.3, 1.0), "low": (-1.0, 0.1), "high": (1.5, 40.0)}),
    (KLCov, {"fraction": (1e-4, 0.3, 1.0)}),
    (TopEntropy, {"fraction": (0.2, 0.5, 1.0)}),
    (SecondMoment, {"threshold": (0.0, 0.04, 1.0)}),
)


def random_mask(rng: np.random.Generator) -> Mask:
    kind, choices = MASKS[int(rng.integers(len(MASKS)))]
    return drawn(rng, kind, **choices)


def random_aggregation(rng: np.random.Generator) -> Aggregation:
    """Micro-batches take the place of token means that count empty responses, which make no difference there; means
    over prompts have a check of their own."""
    kinds = tuple(kind for kind in get_args(AggregationKind) if kind not in ("prompt_mean", "micro_batch_token_mean"))
    found = drawn(rng, Aggregation, kind=kinds, length=(None, 7.5), eps=(0.0, 1e-8, 0.5), empty=("skip", "count"))
    if found.kind == "token_mean" and found.empty == "count":
        return Aggregation("micro_batch_token_mean", eps=found.eps, micro_batch=3 if found.eps == 0.5 else 2)
    return found


def random_correction(rng: np.random.Generator) -> Correction:
    names = {"kind": get_args(CorrectionKind), "level": get_args(CorrectionLevel)}
    return drawn(rng, Correction, **names, low=(0.0, 0.5, 1.0), high=(1.0, 2.0, math.inf))


def random_length(rng: np.random.Generator) -> Length:
    return drawn(rng, Length, coef=(0.0, 0.0, 0.7), limit=(2, 3.5), buffer=(1, 2))


def random_estimator(rng: np.random.Generator, **fixed: Callable) -> Estimator:
    """Every choice of every field, independently, in combinations that are allowed; `fixed` are other ways to draw a
    field."""
    names = ("advantage", "surrogate", "kl", "aggregation", "ratio", "mask", "correction", "length")
    parts: dict[str, Callable] = {name: globals()[f"random_{name}"] for name in names} | fixed
    while True:
        try:
            return Estimator(**{name: draw(rng) for name, draw in parts.items()})
        except UserError:
            continue
