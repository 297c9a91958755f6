"""The checks of tests/estimators/test_identities.py: what holds to the last bit, or has no twin."""

import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.mask import Divergence, Drift
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, Sapo, Vespo
from rftlab.shared.estimator import Estimator
from tests.support.estimators.random_batches import SURROGATES, Batches, drawn, random_batch, random_estimator
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, part_of, same, seeds

CENTRED = Advantage("group_mean")
ZSCORE = Advantage("group_mean", "group_std", ddof=0, eps=0.0)


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
    by_itself, parts = isinstance(estimator.mask, (Divergence, Drift)), []
    whole = prepared if by_itself else api.apply_mask(estimator, prepared, logp, np.cos(np.arange(logp.size)))
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
        lengths = np.concatenate([np.diff(half.starts) for half in (first, second)])
        counts = {"n_tokens": int(lengths.sum()), "n_rows": int(lengths.size if empty else (lengths > 0).sum())}
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


def check_length_penalty(api: Api) -> None:
    """Nothing up to limit - buffer, all from the limit on, and a straight line between (DAPO)."""
    estimator = replace(no_kl(), length=replace(no_kl().length, coef=0.5, limit=8, buffer=4))
    for length, penalty in ((0, 0.0), (3, 0.0), (4, 0.0), (5, 0.125), (6, 0.25), (8, 0.5), (11, 0.5)):
        shaped = api.shaped_rewards(
            estimator, np.array([1.0, 0.0]), np.array([0, length, length + 1]), np.zeros(length + 1)
        )
        same(shaped, [1.0 - penalty, 0.0], f"rewards of responses with {length} tokens and with one")


def own(api: Api, spec: Advantage, rewards, group, n_groups: int, starts=None) -> np.ndarray:
    """Advantages of responses that are their own baseline sets."""
    return api.advantages(spec, rewards, group, api.make_pool(n_groups, (rewards, group)), starts=starts)


def check_scale(api: Api) -> None:
    """Without eps the z-score does not see the scale of the rewards; with ddof 0 its mean square over a group is 1."""
    for rng in seeds(50, 50):
        batch = random_batch(rng, fewest=3)
        rewards, rest = rng.normal(size=batch.group.size), (batch.group, batch.n_groups)
        scores = own(api, ZSCORE, rewards, *rest)
        for spec in (ZSCORE, replace(ZSCORE, scale="batch_std")):
            larger, plain = (own(api, spec, times * rewards, *rest) for times in (4.0, 1.0))
            close(larger, plain, "z-score of rewards times 4", EXACT)
        squares = np.bincount(batch.group, scores**2) / np.bincount(batch.group)
        close(squares, np.ones(batch.n_groups), "mean square of z-scores", 1e-10)


def check_constant_groups(api: Api) -> None:
    """Equal rewards, whatever they are, carry exactly no signal: eps must not blow up the rounding of a mean."""
    kinds = (("group_mean",), ("group_mean", "group_std"), ("group_mean", "batch_std"))
    for rng, kind in product(seeds(150, 50), (*kinds, ("leave_one_out",), ("second_best", "group_std"))):
        batch = random_batch(rng, fewest=2)
        rewards = rng.normal(size=batch.n_groups)[batch.group]
        found = own(api, Advantage(*kind), rewards, batch.group, batch.n_groups)
        same(found, np.zeros(rewards.size), f"{kind} of constant groups")


def bernoulli_outcomes(n: int, p: float):
    """Every 0/1 outcome of n draws with its probability and the scores d log P / dp."""
    for outcome in product((0.0, 1.0), repeat=n):
        rewards = np.array(outcome)
        yield rewards, float(np.prod(np.where(rewards > 0, p, 1 - p))), np.where(rewards > 0, 1 / p, -1 / (1 - p))


def check_pass_at_k_unbiased(api: Api) -> None:
    """The mean of credit x score over all outcomes is d/dp (1 - (1-p)^k), exactly, with the baseline and without
    (PKPO)."""
    for n, p, baseline in product(range(1, 7), (0.1, 0.5, 0.8), ("none", "leave_one_out")):
        group = np.zeros(n, dtype=np.int64)
        for k in range(1, n + 1):
            spec, total = Advantage(baseline, credit="pass_at_k", k=k), 0.0
            for rewards, probability, scores in bernoulli_outcomes(n, p):
                total += probability * float(np.mean(own(api, spec, rewards, group, 1) * scores))
            close(total, k * (1 - p) ** (k - 1), f"gradient of pass@{k} from {n} responses, {baseline}", EXACT)


def check_moving_bonus(api: Api) -> None:
    """An update at or below the target raises the coefficient of an entropy bonus by one step, any other lowers it,
    between 0 and 1. The next update has a bonus only after one at or below the target. Without a target nothing
    changes."""
    for rng in seeds(960, 20):
        entropies, target, step = rng.random(50), float(rng.random()), 0.01 + 0.1 * float(rng.random())
        bonus, fixed = api.empty_bonus(0.1, target), api.empty_bonus(0.1, 0.0)
        expected = 0.1
        same(bonus, [0.1, 0.0], "a bonus before the first update")
        for entropy in (*entropies, target):
            api.move_bonus(bonus, target, step, entropy)
            api.move_bonus(fixed, 0.0, step, entropy)
            expected = min(1.0, max(0.0, expected + (step if entropy <= target else -step)))
            close(bonus, [expected, float(entropy <= target)], f"bonus after an update at {entropy}", EXACT)
        same(fixed, [0.1, 1.0], "a bonus without a target")


def check_on_policy(api: Api) -> None:
    """Where the policy has not moved, every surrogate gives the weights of REINFORCE, however tight its clip is."""
    tight = (Clip(0.0, 0.0), Clip(dual=1.5), Clip(1.0, math.inf), Cispo(0.0, 0.0), Sapo(3.0, 0.5), Dro(2.0))
    for rng in seeds(700, 30):
        batch = random_batch(rng)
        for surrogate in (*(kind() for kind, _ in SURROGATES), *tight):
            estimator = no_kl(CENTRED, surrogate, ratio=Ratio("product" if isinstance(surrogate, Vespo) else "token"))
            prepared = api.prepare(estimator, **arguments(batch))
            weights = api.objective_and_weights(estimator, prepared, batch.old_logp).weight
            close(weights, prepared.share * prepared.advantage, f"{surrogate} on-policy: share A", EXACT)


CHECKS = {
    name: check for name, check in dict(globals()).items() if name.startswith("check_") and name != "check_one_split"
}
