"""Equations between estimators that hold whatever the numbers are."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from shared.estimator import KL, Advantage, Aggregation, Estimator, Surrogate
from shared.presets import PRESETS, name_of, preset
from tests.vectors import REAL, Api, close, no_kl, random_batch, random_estimator, random_rewards, same, seeds

EXACT = 1e-12
UNCLIPPED = Surrogate("clip", low=1.0, high=float("inf"))


def own(api: Api, spec: Advantage, rewards, group, n_groups: int) -> np.ndarray:
    """Advantages of responses that are their own baseline sets."""
    return api.advantages(api.rule_of(no_kl(spec)), rewards, group, api.pool_of(n_groups, (rewards, group)))


def check_shift(api: Api) -> None:
    """A constant added to all rewards leaves every advantage alone that has a baseline."""
    for rng in seeds(0, 50):
        batch, shift = random_batch(rng, fewest=2), float(rng.normal())
        rewards = rng.normal(size=batch.group.size)
        for kind in ("group_mean", "group_zscore", "leave_one_out", "batch_mean"):
            before, after = (own(api, Advantage(kind), r, batch.group, batch.n_groups) for r in (rewards, rewards + shift))
            # the rounding of a reward is divided by the spread of its group
            spread = min(np.std(rewards[batch.group == g], ddof=1) for g in range(batch.n_groups)) if kind == "group_zscore" else 1.0
            close(after, before, f"{kind} after a shift by {shift}", EXACT / min(1.0, spread))
        close(own(api, Advantage("reward"), rewards + shift, batch.group, batch.n_groups), rewards + shift, "the reward itself", EXACT)


def check_scale(api: Api) -> None:
    """Without eps the z-score does not see the scale of the rewards; with ddof 0 its mean square over a group is 1."""
    for rng in seeds(50, 50):
        batch = random_batch(rng, fewest=3)
        rewards = rng.normal(size=batch.group.size)
        spec = Advantage("group_zscore", ddof=0, eps=0.0)
        scores = own(api, spec, rewards, batch.group, batch.n_groups)
        close(own(api, spec, 4.0 * rewards, batch.group, batch.n_groups), scores, "z-score of rewards times 4", EXACT)
        for g in range(batch.n_groups):
            close(np.mean(scores[batch.group == g] ** 2), 1.0, "mean square of z-scores", 1e-10)


def check_leave_one_out(api: Api) -> None:
    """Leave-one-out is group_mean times n/(n-1), and the reward minus the mean of the others."""
    for rng in seeds(100, 50):
        batch = random_batch(rng, fewest=2)
        n = np.bincount(batch.group)[batch.group]
        actual = own(api, Advantage("leave_one_out"), batch.rewards, batch.group, batch.n_groups)
        close(actual, own(api, Advantage("group_mean"), batch.rewards, batch.group, batch.n_groups) * n / (n - 1), "group_mean n/(n-1)", EXACT)
        total = np.bincount(batch.group, batch.rewards)[batch.group]
        close(actual, batch.rewards - (total - batch.rewards) / (n - 1), "reward minus the mean of the others", EXACT)


def check_constant_groups(api: Api) -> None:
    """Equal rewards, whatever they are, carry exactly no signal: eps must not blow up the rounding of a mean."""
    for rng in seeds(150, 50):
        batch = random_batch(rng, fewest=2)
        rewards = rng.normal(size=batch.n_groups)[batch.group]
        for kind in ("group_mean", "group_zscore", "leave_one_out"):
            same(own(api, Advantage(kind), rewards, batch.group, batch.n_groups), np.zeros(rewards.size), f"{kind} of constant groups")


def check_window_of_one(api: Api) -> None:
    """A window of size 1 holds the current reward alone, which gives the rule of the raw reward."""
    for rng in seeds(200, 30):
        n = int(rng.integers(1, 6))
        starts, old = np.arange(n + 1), -rng.exponential(size=n)
        windows, contexts = api.empty_windows(n, 1), rng.permutation(n)
        for _ in range(3):
            rewards = random_rewards(rng, n)
            api.push(windows, contexts, rewards)
            pool = api.window_pool(windows, contexts)
            same(pool.rewards, rewards, "windows of size 1")
            raw = api.prepare(no_kl(Advantage("reward")), rewards, np.arange(n), starts, old)
            for kind in ("group_mean", "leave_one_out"):
                batch = api.prepare(no_kl(Advantage(kind)), rewards, np.arange(n), starts, old, pool=pool)
                same(batch.advantage, raw.advantage, f"{kind} with windows of size 1")
            batch = api.prepare(no_kl(Advantage("group_zscore", eps=1e-6)), rewards, np.arange(n), starts, old, pool=pool)
            close(batch.advantage, raw.advantage / (1.0 + 1e-6), "group_zscore with windows of size 1", EXACT)


def check_window_of_group(api: Api) -> None:
    """Windows of K, with K rewards per context each time, are the on-policy groups."""
    for rng in seeds(300, 30):
        n, k = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        windows, group = api.empty_windows(n, k), np.repeat(np.arange(n), k)
        for _ in range(3):
            rewards = random_rewards(rng, n * k)
            api.push(windows, group, rewards)
            window, fresh = api.window_pool(windows, np.arange(n)), api.pool_of(n, (rewards, group))
            same(window.rewards, fresh.rewards, "windows that hold exactly the current rewards")
            for kind in ("group_mean", "group_zscore", "leave_one_out", "batch_mean"):
                rule = api.rule_of(no_kl(Advantage(kind)))
                same(api.advantages(rule, rewards, group, window), api.advantages(rule, rewards, group, fresh), f"{kind} from windows and from groups")


def check_support(api: Api) -> None:
    """Support rollouts give the advantages of a larger group of which only some are trained."""
    for rng in seeds(400, 50):
        batch = random_batch(rng)
        extra, extra_group = random_rewards(rng, 6), rng.integers(0, batch.n_groups, 6)
        together = np.concatenate([batch.rewards, extra]), np.concatenate([batch.group, extra_group])
        for kind in ("group_mean", "group_zscore", "leave_one_out", "batch_mean"):
            pool = api.pool_of(batch.n_groups, (batch.rewards, batch.group), (extra, extra_group))
            actual = api.advantages(api.rule_of(no_kl(Advantage(kind))), batch.rewards, batch.group, pool)
            same(actual, own(api, Advantage(kind), *together, batch.n_groups)[: batch.rewards.size], f"{kind} with support rollouts")


def check_order(api: Api) -> None:
    """The order of the responses does not matter, nor does which label a group has."""
    for rng in seeds(500, 50):
        batch = random_batch(rng, fewest=2)
        order, label = rng.permutation(batch.group.size), rng.permutation(batch.n_groups)
        for kind in ("group_mean", "group_zscore", "leave_one_out", "batch_mean"):
            rewards = rng.integers(-64, 65, batch.group.size) / 32.0
            moved = own(api, Advantage(kind), rewards[order], label[batch.group[order]], batch.n_groups)
            close(moved, own(api, Advantage(kind), rewards, batch.group, batch.n_groups)[order], f"{kind} in another order", EXACT)


def arguments(batch, rewards=None) -> dict:
    """The arguments of `prepare` for a random batch."""
    return {"rewards": batch.rewards if rewards is None else rewards, "group": batch.group, "starts": batch.starts, "old_logp": batch.old_logp}


def check_unclipped(api: Api) -> None:
    """Clipping between 0 and infinity is importance weighting: the weight is share A ratio, and so is the objective."""
    for rng in seeds(600, 30):
        batch, estimator = random_batch(rng), replace(no_kl(Advantage("reward")), surrogate=UNCLIPPED)
        prepared = api.prepare(estimator, **arguments(batch))
        logp = np.clip(batch.logp, batch.old_logp - 19.0, batch.old_logp + 19.0)
        expected = prepared.share * prepared.advantage * np.exp(logp - batch.old_logp)
        weighed = api.weigh(estimator, prepared, logp)
        close(weighed.weight, expected, "weights without clipping", EXACT)
        close(weighed.objective, expected.sum(), "objective without clipping", EXACT * (1.0 + float(np.abs(expected).sum())))
        same((weighed.clipped, weighed.dual_clipped), (0, 0), "clipped tokens without clipping")


def check_on_policy(api: Api) -> None:
    """Where the policy has not moved, clipping gives exactly the weights of REINFORCE, however tight it is."""
    for rng in seeds(700, 30):
        batch = random_batch(rng)
        for surrogate in (Surrogate("clip"), Surrogate("clip", 0.0, 0.0), Surrogate("clip", dual=1.5), UNCLIPPED):
            clip, reinforce = (no_kl(Advantage("group_mean"), one) for one in (surrogate, Surrogate("reinforce")))
            weights = [api.weigh(one, api.prepare(one, **arguments(batch)), batch.old_logp).weight for one in (clip, reinforce)]
            same(weights[0], weights[1], f"{surrogate} on-policy")
            expected = api.shares(api.rule_of(clip), batch.starts) * np.repeat(
                own(api, Advantage("group_mean"), batch.rewards, batch.group, batch.n_groups), np.diff(batch.starts)
            )
            same(weights[0], expected, f"{surrogate} on-policy: share A")


def check_clip_stops(api: Api) -> None:
    """A token beyond the range has weight 0 where the advantage pushes it further out, and keeps its weight where it pulls it back."""
    estimator = no_kl(Advantage("reward"), Surrogate("clip", low=0.1, high=0.5), Aggregation("token_sum"))
    starts, old, log_ratio = np.arange(5), np.full(4, -2.0), np.log([1.3, 1.6, 0.8, 0.95])
    for sign, free in ((1.0, [True, False, True, True]), (-1.0, [True, True, False, True])):
        batch = api.prepare(estimator, np.full(4, sign), np.arange(4), starts, old)
        weighed = api.weigh(estimator, batch, old + log_ratio)
        close(weighed.weight, np.where(free, sign * np.exp(log_ratio), 0.0), f"weights with advantage {sign}", EXACT)
        same(weighed.clipped, free.count(False), f"clipped tokens with advantage {sign}")


def check_split(api: Api) -> None:
    """Micro-batches, which are slices of every array of a batch, give the same weights to the last bit, and objectives that add up."""
    for rng in seeds(800, 60):
        batch, estimator = random_batch(rng), random_estimator(rng)
        prepared = api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp, correction=batch.correction)
        whole = api.weigh(estimator, prepared, batch.logp)
        cuts = np.sort(rng.integers(0, batch.logp.size + 1, rng.integers(1, 5)))
        bounds = [0, *cuts.tolist(), batch.logp.size]
        parts = [api.weigh(estimator, type(prepared)(*(column[a:b] for column in prepared)), batch.logp[a:b]) for a, b in pairwise(bounds)]
        same(np.concatenate([part.weight for part in parts]), whole.weight, f"weights of micro-batches {bounds}")
        scale = 1.0 + float(np.abs(whole.weight).sum())
        close(sum(part.objective for part in parts), whole.objective, f"objective of micro-batches {bounds}", EXACT * scale)
        close(sum(part.kl for part in parts), whole.kl, f"KL of micro-batches {bounds}", EXACT * scale)
        same(sum(part.clipped for part in parts), whole.clipped, f"clipped tokens of micro-batches {bounds}")
        same(sum(part.dual_clipped for part in parts), whole.dual_clipped, f"dual-clipped tokens of micro-batches {bounds}")


def check_prepared_apart(api: Api) -> None:
    """Halves that are prepared apart, each with the counts of the whole, give the weights of the whole."""
    for rng in seeds(900, 40):
        first, second, estimator = random_batch(rng), random_batch(rng), random_estimator(rng)
        estimator = replace(estimator, advantage=replace(estimator.advantage, kind="group_mean"))
        empty = estimator.aggregation.empty == "count"
        counts = {"n_tokens": 0, "n_rows": 0}
        for half in (first, second):
            lengths = np.diff(half.starts)
            counts = {"n_tokens": counts["n_tokens"] + int(lengths.sum()), "n_rows": counts["n_rows"] + int(lengths.size if empty else (lengths > 0).sum())}
        apart = []
        for half in (first, second):
            prepared = api.prepare(estimator, **arguments(half), ref_logp=half.ref_logp, **counts)
            apart.append(api.weigh(estimator, prepared, half.logp).weight)
        columns = {key: np.concatenate([getattr(half, key) for half in (first, second)]) for key in ("rewards", "old_logp", "ref_logp", "logp")}
        logp = columns.pop("logp")
        group = np.concatenate([first.group, second.group + first.n_groups])
        starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
        together = api.weigh(estimator, api.prepare(estimator, group=group, starts=starts, **columns), logp)
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
            pool = api.pool_of(3, (rewards, group))
            weights.append(api.weigh(estimator, api.prepare(estimator, rewards, group, np.arange(n + 1), old, pool=pool), old + 0.05).weight)
        same(weights[1], weights[0], "seq_mean_token_sum and token_mean")
        same(weights[2], weights[0], "seq_mean_token_mean and token_mean")


def check_shares_add_up(api: Api) -> None:
    """The shares of a mean add up to 1; those of a response do not depend on its length where token means are averaged."""
    for rng in seeds(1100, 40):
        starts = random_batch(rng).starts
        lengths = np.diff(starts)
        for kind in ("token_mean", "seq_mean_token_mean"):
            close(api.shares(api.rule_of(no_kl(Advantage(), aggregation=Aggregation(kind))), starts).sum(), 1.0, f"sum of the shares of {kind}", EXACT)
        per_row = [
            api.shares(api.rule_of(no_kl(Advantage(), aggregation=Aggregation("seq_mean_token_mean", empty="count"))), starts)[a:b].sum()
            for a, b in pairwise(starts)
        ]
        close(per_row, np.where(lengths > 0, 1.0 / lengths.size, 0.0), "sum of the shares of each response", EXACT)


def check_kl_in_reward(api: Api) -> None:
    """A KL penalty in the reward is the penalty-free estimator on rewards that are shaped by hand."""
    for rng in seeds(1200, 40):
        batch = random_batch(rng)
        plain = no_kl(Advantage("group_mean"))
        estimator = replace(plain, kl=KL("k1", 0.3, "reward", straight_through=bool(rng.integers(2))))
        d = batch.old_logp - batch.ref_logp
        by_hand = np.array([reward - 0.3 * d[a:b].sum() for reward, a, b in zip(batch.rewards, batch.starts[:-1], batch.starts[1:], strict=True)])
        given = batch.rewards.copy()
        shaped = api.shaped_rewards(estimator, batch.rewards, batch.starts, batch.old_logp, batch.ref_logp)
        same(batch.rewards, given, "the rewards that were given")
        close(shaped, by_hand, "shaped rewards", EXACT)
        ours = api.weigh(estimator, api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp), batch.logp)
        hand = api.weigh(plain, api.prepare(plain, **arguments(batch, by_hand)), batch.logp)
        scale = 1.0 + float(np.abs(hand.weight).sum())
        close(ours.weight, hand.weight, "weights of shaped rewards", EXACT * scale)
        close(ours.objective, hand.objective, "objective of shaped rewards", EXACT * scale)


def check_kl_in_loss(api: Api) -> None:
    """A KL penalty in the loss subtracts coef share kl from the objective, untouched by the importance correction."""
    for rng in seeds(1300, 40):
        batch = random_batch(rng)
        plain = no_kl(Advantage("group_mean"))
        estimator = replace(plain, kl=KL("k2", 0.3))
        rest = {"correction": batch.correction}
        ours = api.weigh(estimator, api.prepare(estimator, **arguments(batch), ref_logp=batch.ref_logp, **rest), batch.logp)
        free = api.weigh(plain, api.prepare(plain, **arguments(batch), **rest), batch.logp)
        d, share = batch.logp - batch.ref_logp, api.shares(api.rule_of(plain), batch.starts)
        scale = 1.0 + float(np.abs(free.weight).sum() + np.abs(d).sum())
        close(ours.weight, free.weight - 0.3 * share * d, "weights with a KL penalty", EXACT * scale)
        close(ours.objective, free.objective - 0.3 * (share * d * d / 2).sum(), "objective with a KL penalty", EXACT * scale**2)
        close(ours.kl, (d * d / 2).sum(), "sum of the KL values", EXACT * scale**2)


CHECKS = {
    check.__name__: check
    for check in (
        check_shift,
        check_scale,
        check_leave_one_out,
        check_constant_groups,
        check_window_of_one,
        check_window_of_group,
        check_support,
        check_order,
        check_unclipped,
        check_on_policy,
        check_clip_stops,
        check_split,
        check_prepared_apart,
        check_one_token,
        check_shares_add_up,
        check_kl_in_reward,
        check_kl_in_loss,
    )
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_identity(check):
    check(REAL)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_names(name):
    assert name_of(preset(name)) == name
    changed = name_of(replace(preset(name), kl=KL("k2", 0.7)))
    assert changed not in PRESETS and changed.startswith(preset(name).advantage.kind)


def test_presets_are_what_their_papers_say():
    """A preset that is changed by accident would change every table that names it."""
    clip, k3 = Surrogate("clip", 0.2, 0.2), KL("k3", 0.001)
    zscore = Advantage("group_zscore", ddof=1, eps=1e-6, singleton="raw")
    assert {
        "minimalist": Estimator(Advantage("reward"), clip, k3, Aggregation("seq_mean_token_sum")),
        "grpo": Estimator(zscore, clip, KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
        "dr_grpo": Estimator(Advantage("group_mean"), clip, KL("none"), Aggregation("seq_mean_token_sum", length=1024)),
        "rloo": Estimator(Advantage("leave_one_out"), Surrogate("reinforce"), KL("none"), Aggregation("seq_mean_token_sum")),
        "paper_text": Estimator(zscore, clip, k3, Aggregation("seq_mean_token_sum")),
        "paper_code": Estimator(zscore, Surrogate("clip", 0.2, 0.2, 3.0), k3, Aggregation("token_mean")),
    } == PRESETS
