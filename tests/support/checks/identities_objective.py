"""Checks of tests/estimators/test_identities.py: equations of surrogates, levels of the ratio and masks."""

import math
from dataclasses import replace

import numpy as np

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Surrogate, Vespo
from rftlab.shared.estimator import Estimator
from tests.support.estimators.random_batches import Batches, random_batch, random_surrogate
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, same, seeds
from tests.support.golden.trl import two_sided

CENTRED = Advantage("group_mean")
UNCLIPPED = Clip(low=1.0, high=math.inf)
UNBOUNDED = {"floor": -math.inf, "cap": math.inf}


def frozen_pair(api: Api, batch: Batches, *estimators: Estimator, **rest):
    """The batch, frozen for each of the estimators from the same advantages, one per response."""
    advantage = np.repeat(np.cos(3.0 * np.arange(batch.group.size)), np.diff(batch.starts))
    return [
        api.batch_from_advantages(estimator, advantage, batch.starts, batch.old_logp, batch.ref_logp, **rest)
        for estimator in estimators
    ]


def equal_objectives(
    api: Api, batch: Batches, first: Estimator, second: Estimator, what: str, exact: bool = True, **second_rest
) -> None:
    """Both estimators have the same weights, and the same objective."""
    ours, theirs = (
        api.objective_and_weights(estimator, frozen_pair(api, batch, estimator, **rest)[0], batch.logp)
        for estimator, rest in ((first, {}), (second, second_rest))
    )
    if exact:
        same(ours.weight, theirs.weight, f"weights: {what}")
    scale = 1.0 + float(np.abs(theirs.weight).sum()) + abs(theirs.objective)
    close(ours.weight, theirs.weight, f"weights: {what}", EXACT * scale)
    close(ours.objective, theirs.objective, f"objective: {what}", EXACT * scale)


def check_unclipped(api: Api) -> None:
    """Clipping between 0 and infinity is importance weighting: the weight is share A ratio, and so is the objective."""
    for rng in seeds(600, 30):
        batch = random_batch(rng)
        estimator = no_kl(surrogate=UNCLIPPED)
        prepared = frozen_pair(api, batch, estimator)[0]
        logp = np.clip(batch.logp, batch.old_logp - 19.0, batch.old_logp + 19.0)
        expected = prepared.share * prepared.advantage * np.exp(logp - batch.old_logp)
        found = api.objective_and_weights(estimator, prepared, logp)
        close(found.weight, expected, "weights without clipping", EXACT)
        close(
            found.objective, expected.sum(), "objective without clipping", EXACT * (1.0 + float(np.abs(expected).sum()))
        )
        same((found.clipped, found.dual_clipped), (0, 0), "clipped tokens without clipping")


def check_on_policy(api: Api) -> None:
    """Where the policy has not moved, every surrogate gives the weights of REINFORCE, however tight its clip is."""
    kinds = (
        Clip(),
        Clip(0.0, 0.0),
        Clip(dual=1.5),
        UNCLIPPED,
        Cispo(),
        Cispo(0.0, 0.0),
        Sapo(),
        Sapo(3.0, 0.5),
        Dro(2.0),
        GeometricMean(),
        Vespo(),
    )
    for rng in seeds(700, 30):
        batch = random_batch(rng)
        reinforce, prepared = no_kl(CENTRED, Reinforce()), None
        for surrogate in kinds:
            ratio = Ratio("product") if isinstance(surrogate, Vespo) else Ratio()
            estimator = no_kl(CENTRED, surrogate, ratio=ratio)
            prepared = frozen_pair(api, batch, estimator)[0]
            weights = api.objective_and_weights(estimator, prepared, batch.old_logp).weight
            close(
                weights,
                api.objective_and_weights(reinforce, prepared, batch.old_logp).weight,
                f"{surrogate} on-policy and REINFORCE",
                EXACT,
            )
            close(weights, prepared.share * prepared.advantage, f"{surrogate} on-policy: share A", EXACT)


def check_fixed_ratios(api: Api) -> None:
    """CISPO with no bounds is REINFORCE with the ratios as importance weights; DRO without its pull is REINFORCE."""
    for rng in seeds(750, 30):
        batch = random_batch(rng, spreads=(0.05, 0.5, 2.0))
        ratios = np.exp(batch.logp - batch.old_logp)
        reinforce = no_kl(surrogate=Reinforce())
        equal_objectives(
            api,
            batch,
            no_kl(surrogate=Cispo(1.0, math.inf)),
            reinforce,
            "CISPO without bounds, importance-weighted REINFORCE",
            False,
            correction=ratios,
        )
        equal_objectives(api, batch, no_kl(surrogate=Dro(0.0)), reinforce, "DRO with beta 0, REINFORCE")


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
    for rng in seeds(800, 30):
        single = random_batch(rng, shortest=1, longest=2, spreads=(0.1,))
        single = single._replace(
            starts=np.arange(single.logp.size + 1), group=np.zeros(single.logp.size, dtype=np.int64)
        )
        bound = float(np.abs(single.logp - single.old_logp).max())
        equal_objectives(
            api,
            single,
            no_kl(surrogate=GeometricMean(bound, bound)),
            no_kl(surrogate=UNCLIPPED),
            "GMPO at length 1, A r",
            False,
        )
        batch = random_batch(rng, longest=6, spreads=(0.5, 2.0))
        free, sequence = (
            no_kl(surrogate=GeometricMean(math.inf, math.inf)),
            no_kl(surrogate=UNCLIPPED, ratio=Ratio("sequence", **UNBOUNDED)),
        )
        equal_objectives(api, batch, free, sequence, "GMPO without a clip, ratio of the response", False)


def check_two_sided(api: Api) -> None:
    """TRL's min(min(r, delta) A, clip(r) A) is a clip whose bounds, for either sign of A, delta moves; value and
    slope, for delta from 1 on."""
    for low, high, delta in (
        (0.2, 0.28, 1.5),
        (0.2, 0.4, 1.2),
        (0.1, 0.2, 4.0),
        (0.3, 0.3, 1.0),
        (0.2, 0.5, 1.5),
        (0.2, 0.2, None),
    ):
        spec = two_sided(low, high, delta)
        for advantage in (0.7, -1.3):
            for x in np.linspace(-2.0, 3.0, 101):
                most = math.inf if delta is None else delta
                r, turns = math.exp(x), (1.0 - low, 1.0 + high, most)
                capped, clipped = min(r, most) * advantage, min(max(r, 1.0 - low), 1.0 + high) * advantage
                value, slope, _, _ = api.surrogate(spec, Ratio(), advantage, x - 1.0, x)
                close(value, min(capped, clipped), f"value of {spec}, delta {delta}, A {advantage}, r {r}", EXACT)
                free = (capped <= clipped and r < most) or (clipped < capped and 1.0 - low < r < 1.0 + high)
                if min(abs(r - turn) for turn in turns) > 1e-9:
                    close(
                        slope,
                        advantage * r if free else 0.0,
                        f"slope of {spec}, delta {delta}, A {advantage}, r {r}",
                        EXACT,
                    )


def check_clip_stops(api: Api) -> None:
    """A token beyond the range has weight 0 where the advantage pushes it further out, and keeps its weight where it
    pulls it back."""
    estimator = no_kl(surrogate=Clip(low=0.1, high=0.5), aggregation=Aggregation("token_sum"))
    starts, old, log_ratio = np.arange(5), np.full(4, -2.0), np.log([1.3, 1.6, 0.8, 0.95])
    for sign, free in ((1.0, [True, False, True, True]), (-1.0, [True, True, False, True])):
        batch = api.prepare(estimator, np.full(4, sign), np.arange(4), starts, old)
        found = api.objective_and_weights(estimator, batch, old + log_ratio)
        close(found.weight, np.where(free, sign * np.exp(log_ratio), 0.0), f"weights with advantage {sign}", EXACT)
        same(found.clipped, free.count(False), f"clipped tokens with advantage {sign}")
        learning = api.objective_and_weights(replace(estimator, surrogate=Cispo(0.1, 0.5)), batch, old + log_ratio)
        close(
            learning.weight,
            sign * np.clip(np.exp(log_ratio), 0.9, 1.5),
            f"weights of CISPO with advantage {sign}",
            EXACT,
        )


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
        batch, surrogate = random_batch(rng, shortest=1, longest=2), for_levels(rng)
        batch = batch._replace(starts=np.arange(batch.logp.size + 1), group=np.zeros(batch.logp.size, dtype=np.int64))
        for level in LEVELS:
            equal_objectives(
                api,
                batch,
                no_kl(surrogate=surrogate, ratio=Ratio(level)),
                no_kl(surrogate=surrogate),
                f"{level} of one token, {surrogate}",
            )


def check_sequence_token(api: Api) -> None:
    """Where advantage and share are constant in a response, GSPO-token's weights are GSPO's."""
    for rng in seeds(1100, 40):
        batch, surrogate = random_batch(rng, longest=6), for_levels(rng)
        first, second = (no_kl(surrogate=surrogate, ratio=Ratio(level)) for level in ("sequence", "sequence_token"))
        equal_objectives(api, batch, first, second, f"sequence and sequence_token, {surrogate}", False)


def check_equal_ratios(api: Api) -> None:
    """Where all tokens of a response moved alike, its mean log-ratio is theirs; the product's is n times that."""
    for rng in seeds(1200, 40):
        batch, surrogate = random_batch(rng, shortest=1, longest=6), for_levels(rng)
        lengths = np.diff(batch.starts)
        shift = np.repeat(rng.normal(0.0, 0.3, lengths.size), lengths)
        for level, by in (("sequence_token", 1.0), ("product", np.repeat(lengths, lengths).astype(np.float64))):
            moved, as_tokens = (
                batch._replace(logp=batch.old_logp + shift),
                batch._replace(logp=batch.old_logp + by * shift),
            )
            ours = api.objective_and_weights(
                no_kl(surrogate=surrogate, ratio=Ratio(level)), frozen_pair(api, moved, no_kl())[0], moved.logp
            )
            tokens = api.objective_and_weights(
                no_kl(surrogate=surrogate), frozen_pair(api, as_tokens, no_kl())[0], as_tokens.logp
            )
            if not isinstance(surrogate, Cispo):  # its value has logp itself
                close(ours.objective, tokens.objective, f"objective at level {level}, {surrogate}", 1e-9)
            if isinstance(surrogate, Cispo) or level == "sequence_token":
                close(ours.weight, tokens.weight, f"weights at level {level}, {surrogate}", 1e-9)


def check_masks_on_policy(api: Api) -> None:
    """Where the policy has not moved, no token has drifted; an empty range of covariances holds no token either."""
    for rng in seeds(1300, 30):
        batch = random_batch(rng)
        for mask in (Divergence("tv", 0.0, 0.0), Divergence("kl", 0.0, 0.0), Drift(0.0), ClipCov(1.0, 5.0, 5.0)):
            estimator = no_kl(mask=mask)
            frozen = frozen_pair(api, batch, estimator)[0]
            same(
                api.apply_mask(estimator, frozen, batch.old_logp, batch.keys).share,
                frozen.share,
                f"shares on-policy, {mask}",
            )
        estimator = no_kl(mask=ClipCov(1.0, 5.0, 5.0))
        frozen = frozen_pair(api, batch, estimator)[0]
        same(
            api.apply_mask(estimator, frozen, batch.logp, batch.keys).share,
            frozen.share,
            "shares with an empty range of covariances",
        )


def check_sides(api: Api) -> None:
    """Divergence drops only tokens that moved with their advantage; Drift only responses with A < 0 whose tokens
    became rarer."""
    estimator, starts, old = no_kl(aggregation=Aggregation("token_sum")), np.array([0, 2, 4, 6, 8]), np.full(8, -1.0)
    logp = old + np.array([1.0, 0.5, 1.0, 0.5, -1.0, -0.5, -1.0, -0.5])
    batch = api.prepare(estimator, np.array([1.0, -1.0, 1.0, -1.0]), np.arange(4), starts, old)
    moved = {
        "tv": [True, True, False, False, False, False, True, True],
        "kl": [True, True, False, False, False, False, True, True],
    }
    for measure, dropped in moved.items():
        masked = api.apply_mask(replace(estimator, mask=Divergence(measure, 0.01, 0.01)), batch, logp)
        same(masked.share == 0.0, dropped, f"tokens that {measure} drops")
        one_sided = api.apply_mask(replace(estimator, mask=Divergence(measure, 5.0, 0.01)), batch, logp)
        same(
            one_sided.share == 0.0,
            [*dropped[:4], *[False] * 4],
            f"tokens that {measure} drops with a wide lower threshold",
        )
    for threshold, dropped in ((0.74, [False] * 6 + [True] * 2), (0.76, [False] * 8)):
        masked = api.apply_mask(replace(estimator, mask=Drift(threshold)), batch, logp)
        same(masked.share == 0.0, dropped, f"tokens of responses that drifted by 0.75 at threshold {threshold}")


def check_cov_fractions(api: Api) -> None:
    """KL-Cov on all tokens is the plain penalty; on a part, the largest covariances keep it. Clip-Cov draws the
    smallest keys, at least one."""
    for rng in seeds(1400, 30):
        batch = random_batch(rng, shortest=1, longest=6)
        plain = Estimator(Advantage("none"), Clip(), KL("abs", 0.5, anchor="old"))
        n, frozen = batch.logp.size, frozen_pair(api, batch, plain)[0]
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
