"""Checks of tests/estimators/test_identities.py: equations of surrogates, levels of the ratio and masks."""

import math
from dataclasses import replace
from itertools import product

import numpy as np

from rftlab import KL, Advantage, Aggregation, Estimator, Ratio
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Surrogate, Vespo
from tests.support.estimators.random_batches import Batches, random_batch, random_surrogate
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, same, seeds
from tests.support.golden.trl import two_sided

CENTRED = Advantage("group_mean")
UNCLIPPED = Clip(low=1.0, high=math.inf)


def frozen_at(api: Api, batch: Batches, estimator: Estimator, **rest):
    """The batch, frozen for an estimator from advantages that do not depend on it, one per response."""
    advantage = np.repeat(np.cos(3.0 * np.arange(batch.group.size)), np.diff(batch.starts))
    return api.batch_from_advantages(estimator, advantage, batch.starts, batch.old_logp, batch.ref_logp, **rest)


def same_objectives(
    api: Api, batch: Batches, first: Estimator, second: Estimator, what: str, exact=False, **rest
) -> None:
    """Both estimators, the second with more arguments, have the same weights and the same objective."""
    ours, theirs = (
        api.objective_and_weights(estimator, frozen_at(api, batch, estimator, **more), batch.logp)
        for estimator, more in ((first, {}), (second, rest))
    )
    if exact:
        same(ours.weight, theirs.weight, f"weights: {what}")
    tolerance = EXACT * (1.0 + float(np.abs(theirs.weight).sum()) + abs(theirs.objective))
    close(ours.weight, theirs.weight, f"weights: {what}", tolerance)
    close(ours.objective, theirs.objective, f"objective: {what}", tolerance)


def single_tokens(batch: Batches) -> Batches:
    """The batch with a response for each token."""
    n = batch.logp.size
    return batch._replace(starts=np.arange(n + 1), group=np.zeros(n, dtype=np.int64))


def check_unclipped(api: Api) -> None:
    """Clipping between 0 and infinity is importance weighting: the weight is share A ratio, and so is the objective."""
    for rng in seeds(600, 30):
        batch, estimator = random_batch(rng), no_kl(surrogate=UNCLIPPED)
        prepared = frozen_at(api, batch, estimator)
        logp = np.clip(batch.logp, batch.old_logp - 19.0, batch.old_logp + 19.0)
        expected = prepared.share * prepared.advantage * np.exp(logp - batch.old_logp)
        found = api.objective_and_weights(estimator, prepared, logp)
        close(found.weight, expected, "weights without clipping", EXACT)
        tolerance = EXACT * (1.0 + float(np.abs(expected).sum()))
        close(found.objective, expected.sum(), "objective without clipping", tolerance)
        same((found.clipped, found.dual_clipped), (0, 0), "clipped tokens without clipping")


def check_on_policy(api: Api) -> None:
    """Where the policy has not moved, every surrogate gives the weights of REINFORCE, however tight its clip is."""
    kinds = [Clip(), Clip(0.0, 0.0), Clip(dual=1.5), UNCLIPPED, Cispo(), Cispo(0.0, 0.0)]
    kinds += [Sapo(), Sapo(3.0, 0.5), Dro(2.0), GeometricMean(), Vespo()]
    for rng in seeds(700, 30):
        batch = random_batch(rng)
        for surrogate in kinds:
            ratio = Ratio("product") if isinstance(surrogate, Vespo) else Ratio()
            estimators = no_kl(CENTRED, surrogate, ratio=ratio), no_kl(CENTRED, Reinforce())
            prepared = frozen_at(api, batch, estimators[0])
            ours, plain = (api.objective_and_weights(one, prepared, batch.old_logp).weight for one in estimators)
            close(ours, plain, f"{surrogate} on-policy and REINFORCE", EXACT)
            close(ours, prepared.share * prepared.advantage, f"{surrogate} on-policy: share A", EXACT)


def check_fixed_ratios(api: Api) -> None:
    """CISPO with no bounds is REINFORCE with the ratios as importance weights; DRO without its pull is REINFORCE."""
    for rng in seeds(750, 30):
        batch = random_batch(rng, spreads=(0.05, 0.5, 2.0))
        cispo, dro, reinforce = (no_kl(surrogate=one) for one in (Cispo(1.0, math.inf), Dro(0.0), Reinforce()))
        ratios, what = np.exp(batch.logp - batch.old_logp), "CISPO without bounds, importance-weighted REINFORCE"
        same_objectives(api, batch, cispo, reinforce, what, correction=ratios)
        same_objectives(api, batch, dro, reinforce, "DRO with beta 0, REINFORCE", exact=True)


def check_sapo_gate(api: Api) -> None:
    """At r = 1 the gate is half open: J = 2 A/tau with slope A; far out it is flat, at 4 A/tau."""
    for advantage, tau in ((0.7, 2.0), (-1.3, 3.0)):
        spec = Sapo(2.0, 3.0)
        value, slope, _, _ = api.surrogate(spec, Ratio(), advantage, -1.0, 0.0)
        same((value, slope), (2.0 * advantage / tau, advantage), "SAPO at r = 1")
        value, slope, _, _ = api.surrogate(spec, Ratio(), advantage, -1.0, 5.0)
        close([value, slope], [4.0 * advantage / tau, 0.0], "SAPO at r = 148", EXACT)


def check_vespo_peak(api: Api) -> None:
    """phi is 1 at r = 1, and largest at r = k/lam."""
    spec, ratio = Vespo(2.0, 3.0, 3.0, 2.0), Ratio("product")
    for advantage, peak in ((0.7, 2.0 / 3.0), (-1.3, 1.5)):
        phi = [
            api.surrogate(spec, ratio, advantage, -1.0, x)[1] / advantage
            for x in (0.0, math.log(peak), math.log(peak) - 0.1, math.log(peak) + 0.1)
        ]
        same(phi[0], 1.0, "phi at r = 1")
        if not phi[1] > max(phi[0], phi[2], phi[3]):
            raise AssertionError(f"phi at its peak {peak} and around: {phi}")


def check_geometric_mean(api: Api) -> None:
    """GMPO at length 1, within its range, is A r; without a clip it is the unclipped ratio of the response."""
    free = no_kl(surrogate=UNCLIPPED)
    for rng in seeds(800, 30):
        single = single_tokens(random_batch(rng, shortest=1, longest=2, spreads=(0.1,)))
        bound = float(np.abs(single.logp - single.old_logp).max())
        bounded = no_kl(surrogate=GeometricMean(bound, bound))
        same_objectives(api, single, bounded, free, "GMPO at length 1, A r")
        batch, sequence = random_batch(rng, longest=6, spreads=(0.5, 2.0)), Ratio("sequence", -math.inf, math.inf)
        pair = no_kl(surrogate=GeometricMean(math.inf, math.inf)), no_kl(surrogate=UNCLIPPED, ratio=sequence)
        same_objectives(api, batch, *pair, "GMPO without a clip, ratio of the response")


TWO_SIDED = [(0.2, 0.28, 1.5), (0.2, 0.4, 1.2), (0.1, 0.2, 4.0), (0.3, 0.3, 1.0), (0.2, 0.5, 1.5), (0.2, 0.2, None)]


def check_two_sided(api: Api) -> None:
    """TRL's min(min(r, delta) A, clip(r) A) is a clip whose bounds, for either sign of A, delta moves; value and
    slope, for delta from 1 on."""
    for (low, high, delta), advantage, x in product(TWO_SIDED, (0.7, -1.3), np.linspace(-2.0, 3.0, 101)):
        most = math.inf if delta is None else delta
        r, turns = math.exp(x), (1.0 - low, 1.0 + high, most)
        capped, clipped = min(r, most) * advantage, min(max(r, 1.0 - low), 1.0 + high) * advantage
        value, slope, _, _ = api.surrogate(two_sided(low, high, delta), Ratio(), advantage, x - 1.0, x)
        what = f"of low {low}, high {high}, delta {delta}, A {advantage}, r {r}"
        close(value, min(capped, clipped), f"value {what}", EXACT)
        free = (capped <= clipped and r < most) or (clipped < capped and 1.0 - low < r < 1.0 + high)
        if min(abs(r - turn) for turn in turns) > 1e-9:
            close(slope, advantage * r if free else 0.0, f"slope {what}", EXACT)


def check_clip_stops(api: Api) -> None:
    """A token beyond the range has weight 0 where the advantage pushes it further out, and keeps its weight where it
    pulls it back."""
    clip = no_kl(surrogate=Clip(low=0.1, high=0.5), aggregation=Aggregation("token_sum"))
    starts, old, log_ratio = np.arange(5), np.full(4, -2.0), np.log([1.3, 1.6, 0.8, 0.95])
    for sign, free in ((1.0, [True, False, True, True]), (-1.0, [True, True, False, True])):
        batch = api.prepare(clip, np.full(4, sign), np.arange(4), starts, old)
        found, learning = (
            api.objective_and_weights(replace(clip, surrogate=one), batch, old + log_ratio)
            for one in (clip.surrogate, Cispo(0.1, 0.5))
        )
        close(found.weight, np.where(free, sign * np.exp(log_ratio), 0.0), f"weights with advantage {sign}", EXACT)
        same(found.clipped, free.count(False), f"clipped tokens with advantage {sign}")
        held = sign * np.clip(np.exp(log_ratio), 0.9, 1.5)
        close(learning.weight, held, f"weights of CISPO with advantage {sign}", EXACT)


LEVELS = ("sequence", "sequence_token", "product")


def for_levels(rng: np.random.Generator) -> Surrogate:
    """A surrogate that works at every level."""
    while True:
        surrogate = random_surrogate(rng)
        if isinstance(surrogate, (Clip, Cispo, Sapo)):
            return surrogate


def check_length_one(api: Api) -> None:
    """For responses of one token every level is the token's: GSPO is PPO's clip."""
    for rng in seeds(1000, 40):
        batch, surrogate = single_tokens(random_batch(rng, shortest=1, longest=2)), for_levels(rng)
        for level in LEVELS:
            shared, own = no_kl(surrogate=surrogate, ratio=Ratio(level)), no_kl(surrogate=surrogate)
            same_objectives(api, batch, shared, own, f"{level} of one token, {surrogate}", exact=True)


def check_sequence_token(api: Api) -> None:
    """Where advantage and share are constant in a response, GSPO-token's weights are GSPO's."""
    for rng in seeds(1100, 40):
        batch, surrogate = random_batch(rng, longest=6), for_levels(rng)
        pair = (no_kl(surrogate=surrogate, ratio=Ratio(level)) for level in ("sequence", "sequence_token"))
        same_objectives(api, batch, *pair, f"sequence and sequence_token, {surrogate}")


def check_equal_ratios(api: Api) -> None:
    """Where all tokens of a response moved alike, its mean log-ratio is theirs; the product's is n times that."""
    for rng in seeds(1200, 40):
        batch, surrogate = random_batch(rng, shortest=1, longest=6), for_levels(rng)
        frozen, lengths = frozen_at(api, batch, no_kl()), np.diff(batch.starts)
        shift = np.repeat(rng.normal(0.0, 0.3, lengths.size), lengths)
        for level, by in (("sequence_token", 1.0), ("product", np.repeat(lengths, lengths).astype(np.float64))):
            whole, one = (no_kl(surrogate=surrogate, ratio=Ratio(name)) for name in (level, "token"))
            ours = api.objective_and_weights(whole, frozen, batch.old_logp + shift)
            tokens = api.objective_and_weights(one, frozen, batch.old_logp + by * shift)
            if not isinstance(surrogate, Cispo):  # its value has logp itself
                close(ours.objective, tokens.objective, f"objective at level {level}, {surrogate}", 1e-9)
            if isinstance(surrogate, Cispo) or level == "sequence_token":
                close(ours.weight, tokens.weight, f"weights at level {level}, {surrogate}", 1e-9)


def check_masks_on_policy(api: Api) -> None:
    """Where the policy has not moved, no token has drifted; an empty range of covariances holds no token either."""
    empty = ClipCov(1.0, 5.0, 5.0)
    for rng in seeds(1300, 30):
        batch = random_batch(rng)
        still = [Divergence("tv", 0.0, 0.0), Divergence("kl", 0.0, 0.0), Drift(0.0), empty]
        for mask, logp in [*((mask, batch.old_logp) for mask in still), (empty, batch.logp)]:
            estimator = no_kl(mask=mask)
            frozen = frozen_at(api, batch, estimator)
            same(api.apply_mask(estimator, frozen, logp, batch.keys).share, frozen.share, f"shares, {mask}")


def check_sides(api: Api) -> None:
    """Divergence drops only tokens that moved with their advantage; Drift only responses with A < 0 whose tokens
    became rarer."""
    estimator, old = no_kl(aggregation=Aggregation("token_sum")), np.full(8, -1.0)
    logp = old + np.array([1.0, 0.5, 1.0, 0.5, -1.0, -0.5, -1.0, -0.5])
    batch = api.prepare(estimator, np.array([1.0, -1.0, 1.0, -1.0]), np.arange(4), np.arange(0, 9, 2), old)
    masks = {Drift(0.74): [6, 7], Drift(0.76): []}
    for measure in ("tv", "kl"):  # the second with a wide lower threshold
        masks |= {Divergence(measure, 0.01, 0.01): [0, 1, 6, 7], Divergence(measure, 5.0, 0.01): [0, 1]}
    for mask, dropped in masks.items():
        masked = api.apply_mask(replace(estimator, mask=mask), batch, logp)
        same(np.flatnonzero(masked.share == 0.0), dropped, f"tokens that {mask} drops")


def check_cov_fractions(api: Api) -> None:
    """KL-Cov on all tokens is the plain penalty; on a part, the largest covariances keep it. Clip-Cov draws the
    smallest keys, at least one."""
    for rng in seeds(1400, 30):
        batch = random_batch(rng, shortest=1, longest=6)
        plain = Estimator(Advantage("none"), Clip(), KL("abs", 0.5, anchor="old"))
        n, frozen = batch.logp.size, frozen_at(api, batch, plain)
        whole = api.apply_mask(replace(plain, mask=KLCov(1.0)), frozen, batch.logp)
        same(whole.kl_share, frozen.kl_share, "penalty on all tokens")
        some = api.apply_mask(replace(plain, mask=KLCov(0.4)), frozen, batch.logp)
        covariance, kept = (
            (frozen.advantage - frozen.advantage.mean()) * (batch.logp - batch.logp.mean()),
            some.kl_share != 0.0,
        )
        same(kept.sum(), max(1, int(0.4 * n)), "penalised tokens")
        same(some.share, frozen.share, "tokens in the surrogate")
        if not covariance[kept].min() >= covariance[~kept].max(initial=-math.inf) - 1e-12:
            raise AssertionError(f"covariances with a penalty {covariance[kept]} and without {covariance[~kept]}")
        open_range = replace(no_kl(surrogate=UNCLIPPED), mask=ClipCov(0.4, -math.inf, math.inf))
        drawn = np.flatnonzero(api.apply_mask(open_range, frozen, batch.logp, batch.keys).share == 0.0)
        same(drawn, np.sort(np.argsort(batch.keys)[: max(1, int(0.4 * n))]), "tokens with the smallest keys")


CHECKS = {name: check for name, check in dict(globals()).items() if name.startswith("check_")}
