"""Checks of tests/estimators/test_identities.py: equations of advantages."""

from itertools import product

import numpy as np

from rftlab.shared.config.advantage import Advantage
from tests.support.estimators.random_batches import random_batch, random_rewards
from tests.support.estimators.vectors import EXACT, Api, close, no_kl, same, seeds, starts_of

GRPO = Advantage("group_mean", "group_std")
CENTRED = (Advantage("group_mean"), GRPO, Advantage("leave_one_out"), Advantage("batch_mean"))
SHIFTED = (
    *CENTRED,
    Advantage("group_mean", "batch_std"),
    Advantage("leave_one_out", "group_std"),
    Advantage("length_weighted"),
    Advantage("second_best"),
    Advantage("second_best", "group_std"),
    Advantage("none", whiten="responses"),
)


def own(api: Api, spec: Advantage, rewards, group, starts=None) -> np.ndarray:
    """Advantages of responses that are their own baseline sets."""
    return api.advantages(spec, rewards, group, api.make_pool(int(max(group)) + 1, (rewards, group)), starts=starts)


def check_shift(api: Api) -> None:
    """A constant added to all rewards leaves every advantage alone that has a baseline of the group or the batch."""
    for rng in seeds(0, 50):
        batch, shift = random_batch(rng, shortest=1, fewest=2), float(rng.normal())
        rewards, group = rng.normal(size=batch.group.size), batch.group
        deviations = [np.std(rewards[group == g], ddof=1) for g in range(batch.n_groups)]
        for spec in SHIFTED:
            before, after = (own(api, spec, r, group, batch.starts) for r in (rewards, rewards + shift))
            # the rounding of a reward is divided by the spread of its group
            spread = min(deviations) if spec.scale == "group_std" else 0.1
            close(after, before, f"{spec} after a shift by {shift}", EXACT / min(1.0, spread))
        close(own(api, Advantage("none"), rewards + shift, group), rewards + shift, "the reward itself", EXACT)


def check_scale(api: Api) -> None:
    """Without eps the z-score does not see the scale of the rewards; with ddof 0 its mean square over a group is 1."""
    for rng in seeds(50, 50):
        group = random_batch(rng, fewest=3).group
        rewards = rng.normal(size=group.size)
        for scale in ("batch_std", "group_std"):
            spec = Advantage("group_mean", scale, ddof=0, eps=0.0)
            scores = own(api, spec, rewards, group)
            close(own(api, spec, 4.0 * rewards, group), scores, "z-score of rewards times 4", EXACT)
        means = np.bincount(group, scores**2) / np.bincount(group)
        close(means, np.ones(means.size), "mean square of z-scores", 1e-10)


def check_leave_one_out(api: Api) -> None:
    """Leave-one-out is group_mean times n/(n-1), and the reward minus the mean of the others."""
    for rng in seeds(100, 50):
        batch = random_batch(rng, fewest=2)
        n, total = (np.bincount(batch.group, weights)[batch.group] for weights in (None, batch.rewards))
        actual, centred = (
            own(api, Advantage(name), batch.rewards, batch.group) for name in ("leave_one_out", "group_mean")
        )
        close(actual, centred * n / (n - 1), "group_mean n/(n-1)", EXACT)
        close(actual, batch.rewards - (total - batch.rewards) / (n - 1), "reward minus the mean of the others", EXACT)


def check_constant_groups(api: Api) -> None:
    """Equal rewards, whatever they are, carry exactly no signal: eps must not blow up the rounding of a mean."""
    specs = [Advantage(name) for name in ("group_mean", "leave_one_out")]
    specs += [GRPO, Advantage("second_best", "group_std"), Advantage("group_mean", "batch_std")]
    for rng in seeds(150, 50):
        batch = random_batch(rng, fewest=2)
        rewards = rng.normal(size=batch.n_groups)[batch.group]
        for spec in specs:
            same(own(api, spec, rewards, batch.group), np.zeros(rewards.size), f"{spec} of constant groups")


def check_window_of_one(api: Api) -> None:
    """A window of size 1 holds the current reward alone, which gives the rule of the raw reward."""
    for rng in seeds(200, 30):
        n = int(rng.integers(1, 6))
        rest, old = (np.arange(n), np.arange(n + 1)), -rng.exponential(size=n)
        windows, contexts = api.empty_windows(n, 1), rng.permutation(n)
        for _ in range(3):
            rewards = random_rewards(rng, n)
            api.push(windows, contexts, rewards)
            pool = api.window_pool(windows, contexts)
            same(pool.rewards, rewards, "windows of size 1")
            raw = api.prepare(no_kl(), rewards, *rest, old).advantage
            for baseline in ("group_mean", "leave_one_out", "second_best"):
                found = api.prepare(no_kl(Advantage(baseline)), rewards, *rest, old, pool=pool).advantage
                same(found, raw, f"{baseline} with windows of size 1")
            scores = api.prepare(no_kl(Advantage("group_mean", "group_std", eps=1e-6)), rewards, *rest, old, pool=pool)
            close(scores.advantage, raw / (1.0 + 1e-6), "z-scores with windows of size 1", EXACT)


def check_window_of_group(api: Api) -> None:
    """Windows of K, with K rewards per context each time, are the on-policy groups."""
    for rng in seeds(300, 30):
        n, k = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        windows, group = api.empty_windows(n, k), np.repeat(np.arange(n), k)
        for _ in range(3):
            rewards = random_rewards(rng, n * k)
            api.push(windows, group, rewards)
            pools = api.window_pool(windows, np.arange(n)), api.make_pool(n, (rewards, group))
            same(pools[0].rewards, pools[1].rewards, "windows that hold exactly the current rewards")
            for spec in SHIFTED:
                window, fresh = (api.advantages(spec, rewards, group, pool) for pool in pools)
                same(window, fresh, f"{spec} from windows and from groups")


def check_support(api: Api) -> None:
    """Support rollouts give the advantages of a larger group of which only some are trained."""
    for rng in seeds(400, 50):
        batch = random_batch(rng)
        extra, extra_group = random_rewards(rng, 6), rng.integers(0, batch.n_groups, 6)
        together = np.concatenate([batch.rewards, extra]), np.concatenate([batch.group, extra_group])
        pool = api.make_pool(batch.n_groups, (batch.rewards, batch.group), (extra, extra_group))
        for spec in (*CENTRED, Advantage("second_best"), Advantage("none", credit="set_mean")):
            actual = api.advantages(spec, batch.rewards, batch.group, pool)
            same(actual, own(api, spec, *together)[: actual.size], f"{spec} with support rollouts")


def check_order(api: Api) -> None:
    """The order of the responses does not matter, nor does which label a group has."""
    for rng in seeds(500, 50):
        batch = random_batch(rng, fewest=2)
        order, label = rng.permutation(batch.group.size), rng.permutation(batch.n_groups)
        starts, rewards = starts_of(np.diff(batch.starts)[order]), rng.integers(-64, 65, batch.group.size) / 32.0
        for spec in (*SHIFTED, Advantage("group_mean", "nonzero"), Advantage("none", whiten="tokens")):
            there = own(api, spec, rewards, batch.group, batch.starts)[order]
            moved = own(api, spec, rewards[order], label[batch.group[order]], starts)
            # whitening divides the rounding of a sum by a deviation of 1e-4 or more
            close(moved, there, f"{spec} in another order", 1e-10)


def check_equal_spreads(api: Api) -> None:
    """Scaling by the batch (LitePPO) is scaling by the group (GRPO) where groups hold the same rewards in another
    order."""
    for rng in seeds(600, 30):
        rewards, n_groups = rng.normal(size=int(rng.integers(2, 6))), int(rng.integers(2, 5))
        shuffled = np.concatenate([rng.permutation(rewards) for _ in range(n_groups)])
        group = np.repeat(np.arange(n_groups), rewards.size)
        specs = (Advantage("group_mean", scale, ddof=0) for scale in ("batch_std", "group_std"))
        close(*(own(api, spec, shuffled, group) for spec in specs), "scaled by the batch and by the group", 1e-10)


def check_equal_lengths(api: Api) -> None:
    """Where all responses are equally long, OPO's baseline is the group's mean."""
    for rng in seeds(650, 30):
        batch = random_batch(rng, fewest=2)
        rest = batch.rewards, batch.group, int(rng.integers(1, 4)) * np.arange(batch.group.size + 1)
        weighted, plain = (own(api, Advantage(name), *rest) for name in ("length_weighted", "group_mean"))
        close(weighted, plain, "length-weighted baseline of equal lengths", EXACT)


def check_whitening(api: Api) -> None:
    """After whitening, tokens (or responses) have mean 0 and variance 1 up to the 1e-8 of the libraries."""
    for rng in seeds(700, 40):
        batch, spec = random_batch(rng, shortest=1, fewest=3), Advantage("none", whiten="tokens")
        rewards, lengths = rng.normal(size=batch.group.size), np.diff(batch.starts)
        tokens = api.prepare(no_kl(spec), rewards, batch.group, batch.starts, batch.old_logp).advantage
        close([tokens.mean(), tokens.var(ddof=1)], [0.0, 1.0], "mean and variance of whitened tokens", 1e-6)
        same(tokens, np.repeat(own(api, spec, rewards, batch.group, batch.starts), lengths), "tokens of a response")
        scores = own(api, Advantage("none", whiten="responses", ddof=0, eps=0.0), rewards, batch.group)
        close([scores.mean(), scores.var()], [0.0, 1.0], "mean and variance of whitened responses", EXACT)


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
                total += probability * float(np.mean(own(api, spec, rewards, group) * scores))
            close(total, k * (1 - p) ** (k - 1), f"gradient of pass@{k} from {n} responses, {baseline}", EXACT)


def check_pass_at_k_ends(api: Api) -> None:
    """k = 1 is the raw reward. k = n: every response of a solved group counts n; after the baseline, only the one
    that solves it alone."""
    for n in range(1, 7):
        for correct in range(n + 1):
            rewards, what = np.repeat([1.0, 0.0], [correct, n - correct]), f"of {correct} of {n}"
            first, last = (
                [
                    own(api, Advantage(name, credit="pass_at_k", k=k), rewards, np.zeros(n, dtype=np.int64))
                    for name in ("none", "leave_one_out")
                ]
                for k in (1, n)
            )
            for found in first:
                same(found, rewards, f"pass@1 {what}")
            if n > 1:
                close(last[0], np.full(n, float(n * (correct > 0))), f"pass@n {what}", EXACT)
                close(last[1], rewards * n * (correct == 1), f"pass@n {what} after the baseline", EXACT)


def check_outcome_rewards(api: Api) -> None:
    """One reward at the end, no discount: every advantage of a response is that reward minus its baseline, by
    whichever way it comes."""
    for rng in seeds(800, 30):
        batch = random_batch(rng, shortest=1)
        lengths, at_end = np.diff(batch.starts), np.zeros(batch.values.size)
        at_end[batch.starts[1:] - 1] = batch.rewards
        spread, rest = np.repeat(batch.rewards, lengths), (batch.group, batch.starts, batch.old_logp)
        gae = api.token_advantages(Advantage("value"), at_end, batch.starts, batch.values)
        close(gae, spread - batch.values, "GAE, gamma = lam = 1", EXACT)
        same(api.prepare(no_kl(), batch.rewards, *rest).advantage, spread, "raw rewards")
        tokens = api.prepare(no_kl(), 0.0 * batch.rewards, *rest, token_rewards=at_end).advantage
        close(tokens, spread, "rewards at the last token", EXACT)
        given = rng.normal(size=batch.group.size)
        greedy = api.prepare(no_kl(Advantage("greedy")), batch.rewards, *rest, baseline=given).advantage
        close(greedy, spread - np.repeat(given, lengths), "reward minus the greedy response's", EXACT)


def check_gae_ends(api: Api) -> None:
    """lam = 0 is the TD error; a critic that knows nothing and lam = 1 leave the discounted rewards to go."""
    for rng in seeds(850, 30):
        batch, gamma = random_batch(rng, longest=6), float(rng.choice([1.0, 0.9, 0.0]))
        rewards, values = random_rewards(rng, batch.values.size), batch.values
        following = np.append(values[1:], 0.0)
        following[batch.starts[1:][np.diff(batch.starts) > 0] - 1] = 0.0
        found = api.token_advantages(Advantage("value", gamma=gamma, lam=0.0), rewards, batch.starts, values)
        close(found, rewards + gamma * following - values, "TD errors", EXACT)
        to_go = api.token_advantages(Advantage("none", gamma=gamma), rewards, batch.starts)
        found = api.token_advantages(Advantage("value", gamma=gamma), rewards, batch.starts, 0.0 * values)
        close(found, to_go, "rewards to go", EXACT)


def check_optimal_shift(api: Api) -> None:
    """The optimal baseline moves with its returns, lies between a group's smallest and largest, and is 0 for a
    response that is alone."""
    for rng in seeds(900, 30):
        batch = random_batch(rng, longest=5)
        p = np.exp(batch.old_logp - 0.1)
        squares = p**2 + rng.random(p.size) * (1 - p) ** 2  # of the other outcomes together at most (1-p)^2
        rest = batch.old_logp - 0.1, squares, batch.starts, batch.group
        returns = 0.0 * batch.values, batch.values, batch.values + 5.0
        zeros, plain, moved = (api.optimal_token_baseline(one, *rest) for one in returns)
        owner = np.repeat(batch.group, np.diff(batch.starts))
        alone = (np.bincount(batch.group) == 1)[owner]
        same(zeros, np.zeros(batch.values.size), "baseline of returns 0")
        same(plain[alone], np.zeros(int(alone.sum())), "baseline of a response that is alone")
        close((moved - plain)[~alone], np.full(int((~alone).sum()), 5.0), "baseline of returns that are 5 larger", 1e-5)
        for g in np.unique(owner[~alone]):
            ends = np.append(batch.values[owner == g], 0.0)
            held = np.clip(plain[owner == g], ends.min(), ends.max())
            close(plain[owner == g], held, "baseline between the smallest and largest return", 1e-9)


def check_averages_ends(api: Api) -> None:
    """decay 1 is the mean of everything, decay 0 that of the last visit; a context that was never seen takes the
    mean of all."""
    for rng in seeds(950, 20):
        visits = [rng.normal(size=(1, rng.integers(1, 5))) for _ in range(4)]
        for decay, kept in ((1.0, visits), (0.0, visits[-1:])):
            sums = api.empty_averages(2)
            same(api.read_averages(sums, [0, 1]), [0.0, 0.0], "averages before any reward")
            for visit in visits:
                api.add(sums, [0], visit, decay)
            expected = np.concatenate(kept, axis=1).mean()
            close(api.read_averages(sums, [0, 1]), [expected, expected], f"average with decay {decay}", EXACT)
            same(api.estimated_pass_rate(sums, 1), 0.5, "difficulty of a context that was never seen")


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


def check_equal_budgets(api: Api) -> None:
    """Equal pass rates get equal rollouts; keeping as many responses as there are keeps all, keeping one keeps the
    shortest."""
    for rng in seeds(970, 20):
        n, mean, p = int(rng.integers(1, 9)), int(rng.integers(1, 9)), float(rng.random())
        same(api.allocate(np.full(n, p), mean), np.full(n, mean), f"rollouts of {n} equal contexts")
        lengths, first = rng.permutation(20)[:n], starts_of([n])
        same(api.keep_shortest(lengths, first, n), np.ones(n, dtype=bool), "all responses")
        same(np.flatnonzero(api.keep_shortest(lengths, first, 1)), [int(np.argmin(lengths))], "the shortest response")


CHECKS = {name: check for name, check in dict(globals()).items() if name.startswith("check_")}
