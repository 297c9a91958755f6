"""The checks of tests/estimators/test_identities.py."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Divergence, Drift
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.estimator import Estimator
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


def arguments(batch: Batches, rewards=None) -> dict:
    """The arguments of `prepare` for a random batch."""
    return {
        "rewards": batch.rewards if rewards is None else rewards,
        "group": batch.group,
        "starts": batch.starts,
        "old_logp": batch.old_logp,
    }


def objectives_of_parts(api: Api, estimator: Estimator, prepared, logp: np.ndarray, bounds: list[int]) -> list:
    """What mask and weigh make of the micro-batches between `bounds`; a mask that compares tokens sees the whole
    batch first."""
    by_itself = isinstance(estimator.mask, (Divergence, Drift))
    whole = prepared if by_itself else api.apply_mask(estimator, prepared, logp, np.cos(np.arange(logp.size)))
    parts = []
    for a, b in pairwise(bounds):
        part = part_of(whole, a, b)
        parts.append(
            api.objective_and_weights(
                estimator, api.apply_mask(estimator, part, logp[a:b]) if by_itself else part, logp[a:b]
            )
        )
    return parts


def check_split(api: Api) -> None:
    """Micro-batches, cut between responses, give the same weights to the last bit, and objectives that add up: every
    surrogate, level and mask."""
    kinds = {}
    for i, (kind, choices) in enumerate(SURROGATES):
        for rng in seeds(800 + 100 * i, 40):
            estimator = random_estimator(
                rng,
                surrogate=lambda rng, kind=kind, choices=choices: drawn(rng, kind, **choices),
                advantage=lambda rng: CENTRED,
            )
            kinds[kind, estimator.ratio.level] = kinds.get((kind, estimator.ratio.level), 0) + 1
            check_one_split(api, estimator, random_batch(rng), rng)
    assert len(kinds) == 4 + 4 * 4 and min(kinds.values()) >= 3, f"levels that were seen: {kinds}"


def check_one_split(api: Api, estimator: Estimator, batch: Batches, rng: np.random.Generator) -> None:
    batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
    prepared = api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp, correction=batch.correction)
    size = batch.logp.size
    whole = objectives_of_parts(api, estimator, prepared, batch.logp, [0, size])[0]
    bounds = sorted({0, size, *rng.choice(batch.starts, 3).tolist()})
    parts = objectives_of_parts(api, estimator, prepared, batch.logp, bounds)
    same(
        np.concatenate([part.weight for part in parts]), whole.weight, f"weights of micro-batches {bounds}, {estimator}"
    )
    scale = 1.0 + float(np.abs(whole.weight).sum()) + abs(whole.objective) + abs(whole.kl)
    close(sum(part.objective for part in parts), whole.objective, f"objective of micro-batches {bounds}", EXACT * scale)
    close(sum(part.kl for part in parts), whole.kl, f"KL of micro-batches {bounds}", EXACT * scale)
    same(sum(part.clipped for part in parts), whole.clipped, f"clipped tokens of micro-batches {bounds}")
    same(sum(part.dual_clipped for part in parts), whole.dual_clipped, f"dual-clipped tokens of micro-batches {bounds}")


def check_prepared_apart(api: Api) -> None:
    """Halves that are prepared apart, each with the counts of the whole, give the weights of the whole."""
    for rng in seeds(900, 60):
        first, second = random_batch(rng), random_batch(rng)
        estimator = random_estimator(rng, advantage=lambda rng: CENTRED)
        aggregation = estimator.aggregation
        if aggregation.micro_batch is not None:  # the second half must begin with a micro-batch
            aggregation = replace(aggregation, micro_batch=first.starts.size - 1)
            estimator = replace(estimator, aggregation=aggregation)
        empty = aggregation.empty == "count" or aggregation.micro_batch is not None
        counts = {"n_tokens": 0, "n_rows": 0}
        for half in (first, second):
            lengths = np.diff(half.starts)
            counts = {
                "n_tokens": counts["n_tokens"] + int(lengths.sum()),
                "n_rows": counts["n_rows"] + int(lengths.size if empty else (lengths > 0).sum()),
            }
        apart = []
        for half in (first, second):
            prepared = api.prepare(
                estimator, **arguments(half), ref_logp=half.ref_logp, sampler_logp=half.sampler_logp, **counts
            )
            apart.append(api.objective_and_weights(estimator, prepared, half.logp).weight)
        keys = ("rewards", "old_logp", "ref_logp", "sampler_logp", "logp")
        columns = {key: np.concatenate([getattr(half, key) for half in (first, second)]) for key in keys}
        logp = columns.pop("logp")
        group = np.concatenate([first.group, second.group + first.n_groups])
        starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        together = api.objective_and_weights(
            estimator, api.prepare(estimator, group=group, starts=starts, **columns), logp
        )
        same(np.concatenate(apart), together.weight, f"weights of halves prepared apart, {estimator.aggregation}")


def check_one_token(api: Api) -> None:
    """With one token per response, every mean over responses is the mean over tokens, to the last bit."""
    for rng in seeds(1000, 20):
        n = 2 ** int(rng.integers(0, 6))
        old, group, rewards = -rng.exponential(size=n), rng.integers(0, 3, n), random_rewards(rng, n)
        group[:3] = np.arange(3)[:n]
        weights = []
        for kind in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean"):
            estimator = no_kl(Advantage("batch_mean"), aggregation=Aggregation(kind))
            pool = api.make_pool(3, (rewards, group))
            weights.append(
                api.objective_and_weights(
                    estimator, api.prepare(estimator, rewards, group, np.arange(n + 1), old, pool=pool), old + 0.05
                ).weight
            )
        same(weights[1], weights[0], "seq_mean_token_sum and token_mean")
        same(weights[2], weights[0], "seq_mean_token_mean and token_mean")


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
        batch, plain = random_batch(rng), no_kl(CENTRED)
        estimator = replace(plain, kl=KL("k1", 0.3, "reward"))
        d = batch.old_logp - batch.ref_logp
        by_hand = np.array(
            [
                reward - 0.3 * d[a:b].sum()
                for reward, a, b in zip(batch.rewards, batch.starts[:-1], batch.starts[1:], strict=True)
            ]
        )
        given = batch.rewards.copy()
        shaped = api.shaped_rewards(estimator, batch.rewards, batch.starts, batch.old_logp, batch.ref_logp)
        same(batch.rewards, given, "the rewards that were given")
        close(shaped, by_hand, "shaped rewards", EXACT)
        ours = api.objective_and_weights(
            estimator, api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp), batch.logp
        )
        hand = api.objective_and_weights(plain, api.prepare(plain, **arguments(batch, by_hand)), batch.logp)
        scale = 1.0 + float(np.abs(hand.weight).sum())
        close(ours.weight, hand.weight, "weights of shaped rewards", EXACT * scale)
        close(ours.objective, hand.objective, "objective of shaped rewards", EXACT * scale)


def check_length_penalty(api: Api) -> None:
    """Nothing up to limit - buffer, all from the limit on, and a straight line between (DAPO)."""
    estimator = replace(no_kl(), length=replace(no_kl().length, coef=0.5, limit=8, buffer=4))
    for length, penalty in ((0, 0.0), (3, 0.0), (4, 0.0), (5, 0.125), (6, 0.25), (8, 0.5), (11, 0.5)):
        shaped = api.shaped_rewards(
            estimator, np.array([1.0, 0.0]), np.array([0, length, length + 1]), np.zeros(length + 1)
        )
        same(shaped, [1.0 - penalty, 0.0], f"rewards of responses with {length} tokens and with one")


def check_kl_in_loss(api: Api) -> None:
    """A KL penalty in the loss subtracts coef share kl from the objective, untouched by the importance correction."""
    for rng in seeds(1300, 40):
        batch, plain = random_batch(rng), no_kl(CENTRED)
        estimator = replace(plain, kl=KL("k2", 0.3))
        rest = {"correction": batch.correction}
        ours = api.objective_and_weights(
            estimator, api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp, **rest), batch.logp
        )
        free = api.objective_and_weights(plain, api.prepare(plain, **arguments(batch), **rest), batch.logp)
        d, share = batch.logp - batch.ref_logp, api.shares(plain.aggregation, batch.starts)
        scale = 1.0 + float(np.abs(free.weight).sum() + np.abs(d).sum())
        close(ours.weight, free.weight - 0.3 * share * d, "weights with a KL penalty", EXACT * scale)
        close(
            ours.objective,
            free.objective - 0.3 * (share * d * d / 2).sum(),
            "objective with a KL penalty",
            EXACT * scale**2,
        )
        close(ours.kl, (d * d / 2).sum(), "sum of the KL values", EXACT * scale**2)


def check_weighted_kl(api: Api) -> None:
    """Where the policy has not moved the weight of the penalty is 1, so its value stays; its derivative gains the
    value itself."""
    for rng in seeds(1400, 40):
        batch = random_batch(rng, longest=5)
        for kind in ("k1", "k2", "k3"):
            plain, weighted = (Estimator(CENTRED, Clip(), KL(kind, 0.3, weighted=flag)) for flag in (False, True))
            prepared = api.prepare(plain, **arguments(batch), ref_logp=batch.ref_logp)
            before, after = (
                api.objective_and_weights(estimator, prepared, batch.old_logp) for estimator in (plain, weighted)
            )
            scale = 1.0 + float(np.abs(before.weight).sum()) + abs(before.objective) + abs(before.kl)
            close(
                [after.objective, after.kl],
                [before.objective, before.kl],
                f"value of {kind}, weighted, where the policy has not moved",
                EXACT * scale,
            )
            values = [
                api.kl_penalty(plain.kl, logp, ref)[0] for logp, ref in zip(batch.old_logp, batch.ref_logp, strict=True)
            ]
            close(
                before.weight - after.weight,
                prepared.kl_share * np.array(values),
                f"what weighting adds to the derivative of {kind}",
                EXACT * scale,
            )


def check_anchor(api: Api) -> None:
    """Anchored at the old policy, the penalty is the one whose base policy is the old policy, and vanishes where the
    policy has not moved."""
    for rng in seeds(1500, 30):
        batch = random_batch(rng)
        base, old = (Estimator(CENTRED, Clip(), KL("k2", 0.3, anchor=anchor)) for anchor in ("base", "old"))
        ours = api.prepare(old, **arguments(batch), ref_logp=batch.ref_logp)
        hand = api.prepare(base, **arguments(batch), ref_logp=batch.old_logp)
        same(
            api.objective_and_weights(old, ours, batch.logp).weight,
            api.objective_and_weights(base, hand, batch.logp).weight,
            "weights with the old policy as anchor",
        )
        same(
            api.objective_and_weights(old, ours, batch.old_logp).kl, 0.0, "KL to the old policy where it has not moved"
        )


def check_correction_ends(api: Api) -> None:
    """Truncation without a bound is a mask that drops nothing; a sampler that is the trainer needs no correction."""
    for rng in seeds(1600, 40):
        batch = random_batch(rng)
        for level in ("token", "sequence", "geometric"):
            truncated, kept = (
                api.corrections(
                    Correction(kind, level, 0.0, math.inf), batch.starts, batch.old_logp, batch.sampler_logp
                )
                for kind in ("truncate", "mask")
            )
            same(truncated, kept, f"weights of each {level}, truncated at infinity and masked beyond infinity")
            for kind in ("none", "truncate", "mask", "ratio"):
                estimator = replace(no_kl(CENTRED), correction=Correction(kind, level))
                identical = api.prepare(estimator, **arguments(batch), sampler_logp=batch.old_logp)
                for field, column in api.prepare(no_kl(CENTRED), **arguments(batch))._asdict().items():
                    same(getattr(identical, field), column, f"{field} with an identical sampler, {kind}")
        single = np.arange(batch.old_logp.size + 1)
        tokens, rows = (
            api.corrections(Correction("truncate", level), single, batch.old_logp, batch.sampler_logp)
            for level in ("token", "sequence")
        )
        same(rows, tokens, "weights of responses of one token")


def check_ratio_to_the_sampler(api: Api) -> None:
    """Correction "ratio" takes every ratio to the sampler, as if it were the old policy."""
    for rng in seeds(1700, 40):
        batch = random_batch(rng)
        estimator = replace(no_kl(CENTRED), correction=Correction("ratio"))
        ours = api.prepare(estimator, **arguments(batch), sampler_logp=batch.sampler_logp)
        hand = api.prepare(no_kl(CENTRED), **arguments(batch) | {"old_logp": batch.sampler_logp})
        same(
            api.objective_and_weights(estimator, ours, batch.logp).weight,
            api.objective_and_weights(no_kl(CENTRED), hand, batch.logp).weight,
            "weights with ratios to the sampler",
        )
        anchored = replace(estimator, kl=KL("k2", 0.3, anchor="old"))
        same(
            api.prepare(
                anchored, **arguments(batch), ref_logp=batch.ref_logp, sampler_logp=batch.sampler_logp
            ).ref_logp,
            batch.old_logp,
            "anchor of the penalty",
        )


CHECKS = {
    name: check for name, check in dict(globals()).items() if name.startswith("check_") and name != "check_one_split"
}
