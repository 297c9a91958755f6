"""The checks of tests/estimators/test_naive_objective.py."""

from collections.abc import Callable

import numpy as np

from rftlab import KL, Aggregation, Estimator, Ratio
from rftlab.shared.config.advantage import PER_TOKEN, Advantage
from rftlab.shared.config.mask import Divergence, Drift, KLCov, Unmasked
from rftlab.shared.config.surrogate import GeometricMean, Surrogate
from tests.support.estimators.random_batches import (
    Batches,
    baseline_for,
    binary,
    random_aggregation,
    random_batch,
    random_correction,
    random_estimator,
    random_kl,
    random_ratio,
    random_rewards,
    random_surrogate,
)
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, same, seeds
from tests.support.naive import estimators
from tests.support.naive import objective as naive_objective


def check_shares(api: Api) -> None:
    """The aggregated objective is linear, so the share of a token is what the twin makes of a batch that is 1 there
    and 0 elsewhere."""
    for rng in seeds(2000, 200):
        spec, starts = random_aggregation(rng), random_batch(rng).starts
        counts = {"n_tokens": int(rng.integers(40, 90)), "n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        expected = [
            naive_objective.aggregate(spec, estimators.rows_of(unit, starts), **counts) for unit in np.eye(starts[-1])
        ]
        close(api.shares(spec, starts, **counts), expected, f"{spec}, {counts}", EXACT)


def check_prompt_means(api: Api) -> None:
    """Means over prompts need to be told which response is whose; a prepared batch has these shares."""
    for rng in seeds(2200, 100):
        batch, empty = random_batch(rng), ("skip", "count")[int(rng.integers(2))]
        spec = Aggregation("prompt_mean", eps=float(rng.choice([0.0, 1e-8, 0.5])), empty=empty)
        counts = {"n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        units = [estimators.rows_of(unit, batch.starts) for unit in np.eye(batch.starts[-1])]
        expected = [naive_objective.aggregate(spec, rows, group=batch.group.tolist(), **counts) for rows in units]
        found = api.shares(spec, batch.starts, group=batch.group, **counts)
        close(found, expected, f"{spec}, {counts}", EXACT)
        columns = batch.rewards, batch.group, batch.starts, batch.old_logp
        prepared = api.prepare(no_kl(Advantage("none"), aggregation=spec), *columns, **counts)
        close(prepared.share, expected, f"shares of a batch, {spec}, {counts}", EXACT)


def check_corrections(api: Api) -> None:
    """Truncated and masked importance weights of tokens and responses."""
    for rng in seeds(2300, 200):
        spec, batch = random_correction(rng), random_batch(rng)
        arguments = spec, batch.starts, batch.old_logp, batch.sampler_logp
        close(api.corrections(*arguments), naive_objective.corrections(*arguments), f"{spec}", EXACT)


def check_token_surrogate(
    api: Api, spec: Surrogate, ratio: Ratio, advantage: float, logp: float, old_logp: float
) -> None:
    """Value, slope and both flags of one token."""
    value, slope, clipped, dual = api.surrogate(spec, ratio, advantage, logp, logp - old_logp)
    expected, is_clipped, is_dual = naive_objective.surrogate(spec, ratio, advantage, logp, logp - old_logp)
    what = f"{spec}, {ratio}, advantage {advantage!r}, logp {logp!r}, old_logp {old_logp!r}"
    close(value, expected.real, f"value of {what}", EXACT)
    along = estimators.derivative(lambda x: naive_objective.surrogate(spec, ratio, advantage, x, x - old_logp)[0], logp)
    close(slope, along, f"slope of {what}", EXACT)
    same((bool(clipped), bool(dual)), (is_clipped, is_dual), f"flags of {what}")


def check_surrogates(api: Api) -> None:
    """Tokens of every spread: on-policy, clipped on either side, dual-clipped, and beyond the bounds of the
    log-ratio."""
    for rng in seeds(3000, 900):
        old = -float(rng.exponential(3.0))
        logp = old + float(rng.choice([0.0, 0.1, 1.0, 15.0])) * float(rng.normal())
        spec, advantage = random_surrogate(rng), float(rng.choice([0.0, 1.0, -1.0])) * float(rng.exponential())
        if not isinstance(spec, GeometricMean):
            check_token_surrogate(api, spec, random_ratio(rng), advantage, logp, old)


def check_token_kl(api: Api, spec: KL, logp: float, ref_logp: float) -> None:
    value, slope = api.kl_penalty(spec, logp, ref_logp)
    what = f"{spec}, logp {logp!r}, ref_logp {ref_logp!r}"
    close(value, naive_objective.penalty(spec, complex(logp), ref_logp).real, f"value of {what}", EXACT)
    expected = estimators.derivative(lambda x: naive_objective.penalty(spec, x, ref_logp), logp)
    close(slope, expected, f"slope of {what}", EXACT)


def check_kls(api: Api) -> None:
    for rng in seeds(4000, 600):
        ref = -float(rng.exponential(3.0))
        check_token_kl(api, random_kl(rng), ref + float(rng.choice([0.0, 0.1, 2.0, 15.0])) * float(rng.normal()), ref)


def is_tied(estimator: Estimator, advantage, logp) -> bool:
    """Whether rounding decides which covariance is the larger."""
    if not isinstance(estimator.mask, KLCov) or len(logp) < 2:
        return False
    ordered = np.sort(naive_objective.covariances(advantage, logp))
    return bool(np.diff(ordered).min() < 1e-9 * max(1.0, np.abs(ordered).max()))


def compare(api: Api, estimator: Estimator, batch: Batches, frozen, advantage, **rest) -> None:
    """Mask and weigh a batch that is frozen already, and the same by the twins."""
    old, starts, logp = frozen.old_logp, batch.starts.tolist(), batch.logp
    kept = naive_objective.masks(estimator, advantage, starts, old, logp, batch.keys)
    masked = api.apply_mask(estimator, frozen, logp, batch.keys)
    same(masked.share != 0.0, kept[0] & (frozen.share != 0.0), f"tokens that {estimator.mask} keeps")
    same(masked.kl_share != 0.0, kept[1] & (frozen.kl_share != 0.0), f"penalties that {estimator.mask} keeps")
    found = api.objective_and_weights(estimator, masked, logp)
    reference = batch.old_logp if estimator.kl.anchor == "old" else batch.ref_logp
    arguments = {"old_logp": old, "ref_logp": reference, "logp": logp, "kept": kept, **rest}
    objective, clipped, dual_clipped, kl = naive_objective.objective(estimator, advantage, starts, **arguments)
    weights = np.array(naive_objective.weights(estimator, advantage, starts, **arguments))
    # a sum is as exact as its largest terms
    scale = 1.0 + float(np.abs(weights).sum()) + abs(kl)
    close(found.weight, weights, f"weights of {estimator}", EXACT * scale)
    close(found.objective, objective.real, f"objective of {estimator}", EXACT * (scale + abs(objective.real)))
    close(found.kl, kl, f"KL of {estimator}", EXACT * (1.0 + abs(kl) + np.abs(logp - reference).sum()))
    same((found.clipped, found.dual_clipped), (clipped, dual_clipped), f"clipped tokens of {estimator}")


def check_objectives(api: Api) -> None:
    """Advantages that vary by token, everything else random too: batch_from_advantages, apply_mask,
    objective_and_weights."""
    for rng in seeds(5000, 1000):
        estimator, batch = random_estimator(rng), random_batch(rng, longest=5)
        advantage = batch.values
        if isinstance(estimator.mask, Drift):  # looks at the one advantage of a response
            advantage = np.repeat(np.cos(np.arange(batch.group.size)), np.diff(batch.starts))
        if isinstance(estimator.mask, Divergence):  # looks at probabilities
            batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
        if is_tied(estimator, advantage, batch.logp):
            continue
        rest = {"correction": batch.correction} if rng.integers(2) else {}
        counts = {"n_tokens": int(rng.integers(40, 90)), "n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        columns = advantage, batch.starts, batch.old_logp, batch.ref_logp
        frozen = api.batch_from_advantages(estimator, *columns, **rest, **counts)
        compare(api, estimator, batch, frozen, advantage, **rest, **counts)


def baseline_sets(api: Api, rng: np.random.Generator, batch: Batches, rewards: np.ndarray):
    """Baseline sets of the rewards and their twins: of the batch itself, with support rollouts, or from windows."""
    source = rng.integers(3)
    if source == 1:
        support = random_rewards(rng, batch.n_groups), rng.permutation(batch.n_groups)
        parts = (rewards, batch.group), support
        return api.make_pool(batch.n_groups, *parts), estimators.pools(batch.n_groups, *parts)
    if source == 2:
        windows, deques = api.empty_windows(batch.n_groups + 2, 6), estimators.Windows(batch.n_groups + 2, 6)
        contexts = rng.permutation(batch.n_groups + 2)[: batch.n_groups]
        for pushed in (random_rewards(rng, batch.group.size), rewards):
            api.push(windows, contexts[batch.group], pushed)
            deques.push(contexts[batch.group], pushed)
        return api.window_pool(windows, contexts), deques.pools(contexts)
    return None, estimators.pools(batch.n_groups, (rewards, batch.group))


def keeps_places(spec: Advantage, token_rewards) -> bool:
    """Whether rewards at tokens keep their place; where advantages belong to responses they add up."""
    allowed = (spec.credit, spec.scale) == ("reward", "none") and spec.whiten != "responses"
    allowed = allowed and (spec.given or spec.baseline == "none")
    return spec.baseline in PER_TOKEN or spec.gamma < 1 or (token_rewards is not None and allowed)


def expected_advantages(estimator: Estimator, batch: Batches, rewards, token_rewards, sets) -> list[float]:
    """Advantages per token."""
    spec, baseline = estimator.advantage, baseline_for(estimator.advantage, batch)
    rows = estimators.rows_of([0.0] * int(batch.starts[-1]) if token_rewards is None else token_rewards, batch.starts)
    if keeps_places(spec, token_rewards):
        at_end = [
            value + (reward if i == len(row) - 1 else 0.0)
            for row, reward in zip(rows, rewards, strict=True)
            for i, value in enumerate(row)
        ]
        if baseline is not None and spec.baseline not in PER_TOKEN:
            baseline = estimators.per_token(baseline, batch.starts)
        return estimators.token_advantages(spec, at_end, batch.starts, baseline)
    total = [reward + sum(row) for reward, row in zip(rewards, rows, strict=True)]
    sets = estimators.pools(batch.n_groups, (total, batch.group)) if sets is None else sets
    found = estimators.advantages(spec, total, batch.group, sets, np.diff(batch.starts), baseline)
    return estimators.per_token(found, batch.starts)


def is_unclear(spec: Advantage, batch: Batches, token_rewards) -> bool:
    """One token cannot be whitened; and where there are as many tokens as responses, an optimal baseline may belong
    to either."""
    one = spec.whiten == "tokens" and batch.logp.size == 1 and keeps_places(spec, token_rewards)
    either = spec.baseline == "optimal" and batch.logp.size == batch.group.size
    return one or either


def check_pipeline(api: Api) -> None:
    """Penalties on the reward, baseline sets, every advantage, rewards at tokens, sampler and trainer apart:
    prepare, apply_mask, objective_and_weights."""
    for rng in seeds(6000, 1200):
        estimator = random_estimator(rng, mask=lambda rng: Unmasked())
        spec = estimator.advantage
        batch = random_batch(rng, fewest=spec.k)
        batch = binary(batch, rng) if spec.credit == "pass_at_k" else batch
        tokens = {"starts": batch.starts, "old_logp": batch.old_logp, "ref_logp": batch.ref_logp}
        given = batch.rewards.copy()
        rewards = api.shaped_rewards(estimator, batch.rewards, **tokens)
        same(batch.rewards, given, "the rewards that were given")
        shaped = naive_objective.shaped_rewards(estimator.kl, estimator.length, batch.rewards, **tokens)
        close(rewards, shaped, f"shaped rewards of {estimator}", EXACT * (1.0 + np.abs(shaped).max()))
        token_rewards = batch.values if spec.credit != "pass_at_k" and rng.integers(3) == 0 else None
        alone = spec.credit == "pass_at_k" or token_rewards is not None
        pool, sets = (None, None) if alone else baseline_sets(api, rng, batch, rewards)
        if is_unclear(spec, batch, token_rewards):
            continue
        rest = [{}, {"correction": batch.correction}, {"sampler_logp": batch.sampler_logp}][rng.integers(3)]
        rest |= {"n_tokens": int(rng.integers(40, 90)), "n_rows": int(rng.integers(20, 40))} if rng.integers(2) else {}
        given = {"baseline": baseline_for(spec, batch), "token_rewards": token_rewards, "pool": pool}
        prepared = api.prepare(estimator, batch.rewards, batch.group, **tokens, **given, **rest)
        advantage = expected_advantages(estimator, batch, rewards, token_rewards, sets)
        tolerance = 1e-10 if spec.whiten != "none" or spec.scale != "none" else EXACT
        close(prepared.advantage, advantage, f"advantages of {estimator}", tolerance)
        sampler = rest.pop("sampler_logp", None)
        if sampler is not None and estimator.correction.kind == "ratio":
            same(prepared.old_logp, sampler, "the policy that the ratio is taken to")
        elif sampler is not None:
            columns = batch.starts, batch.old_logp, sampler
            rest["correction"] = naive_objective.corrections(estimator.correction, *columns)
            same(prepared.old_logp, batch.old_logp, "the policy that the ratio is taken to")
        compare(api, estimator, batch, prepared, prepared.advantage, **rest)


CHECKS: dict[str, Callable[[Api], None]] = {
    name: check
    for name, check in dict(globals()).items()
    if name.startswith("check_") and not name.startswith("check_token")
}
