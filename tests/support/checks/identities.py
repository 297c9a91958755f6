"""The checks of tests/estimators/test_identities.py."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rftlab import KL, Advantage, Aggregation, Clip, Correction, Estimator
from rftlab.shared.config.mask import Divergence, Drift
from rftlab.shared.objective import ObjectiveAndWeights
from tests.support.estimators.random_batches import (
    SURROGATES,
    Batches,
    drawn,
    random_batch,
    random_estimator,
    random_rewards,
)
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, part_of, same, seeds

CENTRED = Advantage("group_mean")
PLAIN = no_kl(CENTRED)


def arguments(batch: Batches, rewards=None) -> dict:
    """The arguments of `prepare` for a random batch."""
    found = {name: getattr(batch, name) for name in ("rewards", "group", "starts", "old_logp")}
    return found if rewards is None else found | {"rewards": rewards}


def weighed(api: Api, estimator: Estimator, batch: Batches, logp=None, rewards=None, **rest) -> ObjectiveAndWeights:
    """Objective and weights of a random batch, at its own policy or another one."""
    prepared = api.prepare(estimator, **arguments(batch, rewards) | rest)
    return api.objective_and_weights(estimator, prepared, batch.logp if logp is None else logp)


def objectives_of_parts(api: Api, estimator: Estimator, prepared, logp: np.ndarray, bounds: list[int]) -> list:
    """What mask and weigh make of the micro-batches between `bounds`; a mask that compares tokens sees the whole
    batch first."""
    by_itself = isinstance(estimator.mask, (Divergence, Drift))
    whole = prepared if by_itself else api.apply_mask(estimator, prepared, logp, np.cos(np.arange(logp.size)))
    parts = []
    for a, b in pairwise(bounds):
        part = part_of(whole, a, b)
        part = api.apply_mask(estimator, part, logp[a:b]) if by_itself else part
        parts.append(api.objective_and_weights(estimator, part, logp[a:b]))
    return parts


def check_split(api: Api) -> None:
    """Micro-batches, cut between responses, give the same weights to the last bit, and objectives that add up: every
    surrogate, level and mask."""
    kinds = {}
    for i, (kind, choices) in enumerate(SURROGATES):
        fixed = {"advantage": lambda rng: CENTRED}
        fixed["surrogate"] = lambda rng, kind=kind, choices=choices: drawn(rng, kind, **choices)
        for rng in seeds(800 + 100 * i, 40):
            estimator = random_estimator(rng, **fixed)
            kinds[kind, estimator.ratio.level] = kinds.get((kind, estimator.ratio.level), 0) + 1
            one_split(api, estimator, random_batch(rng), rng)
    assert len(kinds) == 4 + 4 * 4 and min(kinds.values()) >= 3, f"levels that were seen: {kinds}"


def one_split(api: Api, estimator: Estimator, batch: Batches, rng: np.random.Generator) -> None:
    batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
    prepared = api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp, correction=batch.correction)
    bounds = sorted({0, batch.logp.size, *rng.choice(batch.starts, 3).tolist()})
    (whole,) = objectives_of_parts(api, estimator, prepared, batch.logp, [0, batch.logp.size])
    parts = objectives_of_parts(api, estimator, prepared, batch.logp, bounds)
    what = f"of micro-batches {bounds}, {estimator}"
    same(np.concatenate([part.weight for part in parts]), whole.weight, f"weights {what}")
    scale = 1.0 + float(np.abs(whole.weight).sum()) + abs(whole.objective) + abs(whole.kl)
    for name in ("objective", "kl"):
        close(sum(getattr(part, name) for part in parts), getattr(whole, name), f"{name} {what}", EXACT * scale)
    for name in ("clipped", "dual_clipped"):
        same(sum(getattr(part, name) for part in parts), getattr(whole, name), f"{name} {what}")


def check_prepared_apart(api: Api) -> None:
    """Halves that are prepared apart, each with the counts of the whole, give the weights of the whole."""
    for rng in seeds(900, 60):
        halves = first, second = random_batch(rng), random_batch(rng)
        estimator = random_estimator(rng, advantage=lambda rng: CENTRED)
        aggregation = estimator.aggregation
        if aggregation.micro_batch is not None:  # the second half must begin with a micro-batch
            aggregation = replace(aggregation, micro_batch=first.starts.size - 1)
            estimator = replace(estimator, aggregation=aggregation)
        lengths = np.concatenate([np.diff(half.starts) for half in halves])
        empty = aggregation.empty == "count" or aggregation.micro_batch is not None
        counts = {"n_tokens": int(lengths.sum()), "n_rows": int(lengths.size if empty else (lengths > 0).sum())}
        apart = []
        for half in halves:
            rest = {"ref_logp": half.ref_logp, "sampler_logp": half.sampler_logp} | counts
            apart.append(weighed(api, estimator, half, **rest).weight)
        keys = ("rewards", "old_logp", "ref_logp", "sampler_logp", "logp")
        columns = {key: np.concatenate([getattr(half, key) for half in halves]) for key in keys}
        columns["group"] = np.concatenate([first.group, second.group + first.n_groups])
        columns["starts"] = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        logp = columns.pop("logp")
        together = api.objective_and_weights(estimator, api.prepare(estimator, **columns), logp)
        same(np.concatenate(apart), together.weight, f"weights of halves prepared apart, {estimator.aggregation}")


def check_one_token(api: Api) -> None:
    """With one token per response, every mean over responses is the mean over tokens, to the last bit."""
    for rng in seeds(1000, 20):
        n = 2 ** int(rng.integers(0, 6))
        old, group, rewards = -rng.exponential(size=n), rng.integers(0, 3, n), random_rewards(rng, n)
        group[:3] = np.arange(3)[:n]
        pool, weights = api.make_pool(3, (rewards, group)), []
        for kind in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean"):
            estimator = no_kl(Advantage("batch_mean"), aggregation=Aggregation(kind))
            prepared = api.prepare(estimator, rewards, group, np.arange(n + 1), old, pool=pool)
            weights.append(api.objective_and_weights(estimator, prepared, old + 0.05).weight)
            same(weights[-1], weights[0], f"{kind} and token_mean")


def check_shares_add_up(api: Api) -> None:
    """The shares of a mean add up to 1; those of a response do not depend on its length where token means are
    averaged."""
    for rng in seeds(1100, 40):
        starts = random_batch(rng).starts
        lengths = np.diff(starts)
        for kind in ("token_mean", "seq_mean_token_mean"):
            close(api.shares(Aggregation(kind), starts).sum(), 1.0, f"sum of the shares of {kind}", EXACT)
        counted = Aggregation("seq_mean_token_mean", empty="count")
        per_row = [api.shares(counted, starts)[a:b].sum() for a, b in pairwise(starts)]
        close(per_row, np.where(lengths > 0, 1.0 / lengths.size, 0.0), "sum of the shares of each response", EXACT)


def check_kl_in_reward(api: Api) -> None:
    """A KL penalty in the reward is the penalty-free estimator on rewards that are shaped by hand; a length penalty
    too."""
    for rng in seeds(1200, 40):
        batch, estimator = random_batch(rng), replace(PLAIN, kl=KL("k1", 0.3, "reward"))
        d = batch.old_logp - batch.ref_logp
        by_hand = batch.rewards - 0.3 * np.array([d[a:b].sum() for a, b in pairwise(batch.starts)])
        given = batch.rewards.copy()
        shaped = api.shaped_rewards(estimator, batch.rewards, batch.starts, batch.old_logp, batch.ref_logp)
        same(batch.rewards, given, "the rewards that were given")
        close(shaped, by_hand, "shaped rewards", EXACT)
        ours, hand = (
            weighed(api, estimator, batch, ref_logp=batch.ref_logp),
            weighed(api, PLAIN, batch, rewards=by_hand),
        )
        scale = 1.0 + float(np.abs(hand.weight).sum())
        close(ours.weight, hand.weight, "weights of shaped rewards", EXACT * scale)
        close(ours.objective, hand.objective, "objective of shaped rewards", EXACT * scale)


def check_length_penalty(api: Api) -> None:
    """Nothing up to limit - buffer, all from the limit on, and a straight line between (DAPO)."""
    estimator = replace(no_kl(), length=replace(no_kl().length, coef=0.5, limit=8, buffer=4))
    for length, penalty in ((0, 0.0), (3, 0.0), (4, 0.0), (5, 0.125), (6, 0.25), (8, 0.5), (11, 0.5)):
        starts, rewards = np.array([0, length, length + 1]), np.array([1.0, 0.0])
        shaped = api.shaped_rewards(estimator, rewards, starts, np.zeros(length + 1))
        same(shaped, [1.0 - penalty, 0.0], f"rewards of responses with {length} tokens and with one")


def check_kl_in_loss(api: Api) -> None:
    """A KL penalty in the loss subtracts coef share kl from the objective, untouched by the importance correction."""
    for rng in seeds(1300, 40):
        batch, estimator = random_batch(rng), replace(PLAIN, kl=KL("k2", 0.3))
        ours = weighed(api, estimator, batch, ref_logp=batch.ref_logp, correction=batch.correction)
        free = weighed(api, PLAIN, batch, correction=batch.correction)
        d, share = batch.logp - batch.ref_logp, api.shares(PLAIN.aggregation, batch.starts)
        tolerance = EXACT * (1.0 + float(np.abs(free.weight).sum() + np.abs(d).sum())) ** 2
        close(ours.weight, free.weight - 0.3 * share * d, "weights with a KL penalty", tolerance)
        close(ours.objective, free.objective - 0.15 * (share * d * d).sum(), "objective with a KL penalty", tolerance)
        close(ours.kl, (d * d / 2).sum(), "sum of the KL values", tolerance)


def check_weighted_kl(api: Api) -> None:
    """Where the policy has not moved the weight of the penalty is 1, so its value stays; its derivative gains the
    value itself."""
    for rng in seeds(1400, 40):
        batch = random_batch(rng, longest=5)
        for kind in ("k1", "k2", "k3"):
            plain, weighted = (Estimator(CENTRED, Clip(), KL(kind, 0.3, weighted=flag)) for flag in (False, True))
            prepared = api.prepare(plain, **arguments(batch), ref_logp=batch.ref_logp)
            before, after = (api.objective_and_weights(one, prepared, batch.old_logp) for one in (plain, weighted))
            tolerance = EXACT * (1.0 + float(np.abs(before.weight).sum()) + abs(before.objective) + abs(before.kl))
            ends = ([found.objective, found.kl] for found in (after, before))
            close(*ends, f"value of {kind}, weighted, where the policy has not moved", tolerance)
            pairs = zip(batch.old_logp, batch.ref_logp, strict=True)
            gained = prepared.kl_share * np.array([api.kl_penalty(plain.kl, logp, ref)[0] for logp, ref in pairs])
            close(before.weight - after.weight, gained, f"what weighting adds to the slope of {kind}", tolerance)


def check_anchor(api: Api) -> None:
    """Anchored at the old policy, the penalty is the one whose base policy is the old policy, and vanishes where the
    policy has not moved."""
    for rng in seeds(1500, 30):
        batch = random_batch(rng)
        base, old = (Estimator(CENTRED, Clip(), KL("k2", 0.3, anchor=anchor)) for anchor in ("base", "old"))
        ours = weighed(api, old, batch, ref_logp=batch.ref_logp)
        hand = weighed(api, base, batch, ref_logp=batch.old_logp)
        same(ours.weight, hand.weight, "weights with the old policy as anchor")
        still = weighed(api, old, batch, batch.old_logp, ref_logp=batch.ref_logp)
        same(still.kl, 0.0, "KL to the old policy where it has not moved")


def check_correction_ends(api: Api) -> None:
    """Truncation without a bound is a mask that drops nothing; a sampler that is the trainer needs no correction."""
    for rng in seeds(1600, 40):
        batch = random_batch(rng)
        logps = batch.old_logp, batch.sampler_logp
        without = api.prepare(PLAIN, **arguments(batch))._asdict()
        for level in ("token", "sequence", "geometric"):
            ends = [Correction(kind, level, 0.0, math.inf) for kind in ("truncate", "mask")]
            truncated, kept = (api.corrections(spec, batch.starts, *logps) for spec in ends)
            same(truncated, kept, f"weights of each {level}, truncated at infinity and masked beyond infinity")
            for kind in ("none", "truncate", "mask", "ratio"):
                estimator = replace(PLAIN, correction=Correction(kind, level))
                identical = api.prepare(estimator, **arguments(batch), sampler_logp=batch.old_logp)
                for field, column in without.items():
                    same(getattr(identical, field), column, f"{field} with an identical sampler, {kind}")
        single = np.arange(batch.old_logp.size + 1)
        tokens, rows = (
            api.corrections(Correction("truncate", level), single, *logps) for level in ("token", "sequence")
        )
        same(rows, tokens, "weights of responses of one token")


def check_ratio_to_the_sampler(api: Api) -> None:
    """Correction "ratio" takes every ratio to the sampler, as if it were the old policy."""
    for rng in seeds(1700, 40):
        batch, estimator = random_batch(rng), replace(PLAIN, correction=Correction("ratio"))
        ours = weighed(api, estimator, batch, sampler_logp=batch.sampler_logp)
        hand = weighed(api, PLAIN, batch, old_logp=batch.sampler_logp)
        same(ours.weight, hand.weight, "weights with ratios to the sampler")
        anchored = replace(estimator, kl=KL("k2", 0.3, anchor="old"))
        rest = {"ref_logp": batch.ref_logp, "sampler_logp": batch.sampler_logp}
        found = api.prepare(anchored, **arguments(batch), **rest)
        same(found.ref_logp, batch.old_logp, "anchor of the penalty")


CHECKS = {name: check for name, check in dict(globals()).items() if name.startswith("check_")}
