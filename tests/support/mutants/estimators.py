"""Wrong variants of the estimators, as functions that make an `Api`: how to change every estimator, batch or
outcome, and slips in advantages."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rftlab import Length, UserError
from rftlab.shared.config.mask import KLCov
from tests.support.estimators.vectors import REAL, Api

OF_ESTIMATOR = ("batch_from_advantages", "prepare", "shaped_rewards", "apply_mask", "objective_and_weights")
OF_PART = {
    "advantage": ("advantages", "combined_advantages", "token_advantages", "whiten"),
    "aggregation": ("shares",),
    "correction": ("corrections",),
    "surrogate": ("surrogate",),
    "kl": ("kl_penalty",),
}
"""Functions that take a part of an estimator instead of the whole."""


def changed(value, **fields):
    """The value with other fields; as it was where the package refuses that."""
    try:
        return replace(value, **fields)
    except UserError:
        return value


def with_estimator(change: Callable) -> Api:
    """Every function that takes an estimator takes `change(estimator)` instead."""

    def on_first(function: Callable) -> Callable:
        return lambda estimator, *args, **kwargs: function(change(estimator), *args, **kwargs)

    return replace(REAL, **{name: on_first(getattr(REAL, name)) for name in OF_ESTIMATOR})


def on(part: str, change: Callable) -> Api:
    """Every estimator has `change(its part)` for that part, and so has every function that takes the part alone."""

    def on_first(function: Callable) -> Callable:
        return lambda spec, *args, **kwargs: function(change(spec), *args, **kwargs)

    api = with_estimator(lambda estimator: changed(estimator, **{part: change(getattr(estimator, part))}))
    api = replace(api, **{name: on_first(getattr(REAL, name)) for name in OF_PART.get(part, ())})
    if part == "ratio":
        api = replace(api, surrogate=lambda spec, ratio, *token: REAL.surrogate(spec, change(ratio), *token))
    return api


def swap(part: str, field: str, old, new, **rest) -> Callable[[], Api]:
    """Wherever the field of the part is `old`, it is `new`."""
    return lambda: on(part, lambda spec: changed(spec, **{field: new}, **rest) if getattr(spec, field) == old else spec)


def put(part: str, **fields) -> Callable[[], Api]:
    """Fields of the part have these values, where the part has them."""
    return lambda: on(
        part, lambda spec: changed(spec, **{name: value for name, value in fields.items() if hasattr(spec, name)})
    )


def every(kind: type, change: Callable) -> Callable[[], Api]:
    """Each part of that kind is changed."""
    part = "length" if kind is Length else kind.__module__.rsplit(".", 1)[-1]
    return lambda: on(part, lambda spec: change(spec) if isinstance(spec, kind) else spec)


def wrap(**names: Callable) -> Callable[[], Api]:
    """Functions are replaced by `wrapper(the right one, *args, **kwargs)`."""

    def around(name: str, wrapper: Callable) -> Callable:
        return lambda *args, **kwargs: wrapper(getattr(REAL, name), *args, **kwargs)

    return lambda: replace(REAL, **{name: around(name, wrapper) for name, wrapper in names.items()})


def dropping(*names: str) -> Callable:
    """A wrapper that ignores these arguments."""
    return lambda right, *args, **more: right(*args, **{key: more[key] for key in more if key not in names})


def changing(name: str, change: Callable) -> Callable:
    """A wrapper that changes an argument where it is given."""

    def wrapper(right, *args, **more):
        return right(*args, **more | ({name: change(np.asarray(more[name]))} if more.get(name) is not None else {}))

    return wrapper


def with_batch(change: Callable) -> Callable[[], Api]:
    """Every batch is changed after `prepare` or `batch_from_advantages` made it."""
    return wrap(
        prepare=lambda right, *args, **kwargs: change(right(*args, **kwargs)),
        batch_from_advantages=lambda right, *args, **kwargs: change(right(*args, **kwargs)),
    )


def with_objective(change: Callable) -> Callable[[], Api]:
    """The outcome of `objective_and_weights` is changed by change(outcome, estimator, batch, logp)."""
    return wrap(objective_and_weights=lambda right, *args: change(right(*args), *args))


# --- signs ---


def token_outcome(change: Callable) -> Callable:
    """A wrapper of `surrogate` that changes value and slope."""

    def wrapper(right, *args):
        value, slope, *flags = right(*args)
        return (*change(value, slope), *flags)

    return wrapper


def weight_sign_flipped() -> Api:
    wrong = with_objective(lambda found, *_: found._replace(weight=-found.weight))()
    return replace(wrong, surrogate=wrap(surrogate=token_outcome(lambda value, slope: (value, -slope)))().surrogate)


def objective_sign_flipped() -> Api:
    wrong = with_objective(lambda found, *_: found._replace(objective=-found.objective))()
    return replace(wrong, surrogate=wrap(surrogate=token_outcome(lambda value, slope: (-value, slope)))().surrogate)


def advantage_sign_flipped() -> Api:
    def negative(right, *args, **kwargs):
        return -right(*args, **kwargs)

    wrong = with_batch(lambda batch: batch._replace(advantage=-batch.advantage))()
    names = ("advantages", "combined_advantages", "token_advantages")
    others = wrap(**dict.fromkeys(names, negative))()
    return replace(wrong, **{name: getattr(others, name) for name in names})


def kl_sign_flipped() -> Api:
    def shaped(right, estimator, rewards, *args, **kwargs):
        return 2.0 * np.asarray(rewards) - right(estimator, rewards, *args, **kwargs)

    def penalty(right, *args):
        value, slope = right(*args)
        return -value, -slope

    others = wrap(shaped_rewards=shaped, kl_penalty=penalty)()
    wrong = with_batch(lambda batch: batch._replace(kl_share=-batch.kl_share))()
    return replace(wrong, shaped_rewards=others.shaped_rewards, kl_penalty=others.kl_penalty)


# --- advantages ---


def given_baseline(change: Callable) -> Callable[[], Api]:
    """Baselines that come from elsewhere are changed."""

    def tokens(right, spec, rewards, starts, baseline=None):
        return right(spec, rewards, starts, None if baseline is None else change(np.asarray(baseline)))

    wrapper = changing("baseline", change)
    return wrap(advantages=wrapper, prepare=wrapper, token_advantages=tokens)


def of_advantages(change: Callable) -> Callable[[], Api]:
    """Advantages of responses are change(spec, rewards, advantages), by `advantages` and by `prepare`."""

    def advantages(right, spec, rewards, *args, **kwargs):
        return change(spec, np.asarray(rewards, dtype=np.float64), right(spec, rewards, *args, **kwargs))

    def prepare(right, estimator, rewards, group, starts, *args, **kwargs):
        batch, lengths = right(estimator, rewards, group, starts, *args, **kwargs), np.diff(starts)
        if (lengths == 0).any() or estimator.advantage.by_token or kwargs.get("token_rewards") is not None:
            return batch
        own, rewards = batch.advantage[np.asarray(starts)[:-1]], np.asarray(rewards, dtype=np.float64)
        return batch._replace(advantage=np.repeat(change(estimator.advantage, rewards, own), lengths))

    return wrap(advantages=advantages, prepare=prepare)


def nonzero_advantages(spec, rewards: np.ndarray, values: np.ndarray) -> np.ndarray:
    factor = max(1, np.count_nonzero(rewards)) / max(1, np.count_nonzero(values))
    return values * factor if spec.scale == "nonzero" else values


def whitening_counts_responses(right, spec, rewards, group, pool, *, starts=None, baseline=None):
    """Whitening over tokens counts each response once."""
    return right(spec, rewards, group, pool, starts=None if spec.whiten == "tokens" else starts, baseline=baseline)


def whitened_with_ddof_0(right, spec, values, weights):
    out, n = right(spec, values, weights), np.sum(weights)
    return out * math.sqrt(n / (n - 1)) if spec.whiten == "tokens" and n > 1 else out


def population_deviation(right, spec, *args, **kwargs):
    """Whitening over tokens divides by the population deviation."""
    out = right(spec, *args, **kwargs)
    n = out.size if kwargs.get("starts") is None else kwargs["starts"][-1]
    return out * math.sqrt(n / (n - 1)) if spec.whiten == "tokens" and n > 1 else out


def one_long_response(right, spec, rewards, starts, *args):
    """What follows a response flows into it."""
    return right(spec, rewards, np.array([0, starts[-1]]), *args)


def rewards_so_far(right, spec, rewards, starts, *args):
    """Rewards before a token instead of after it."""
    spec = changed(spec, whiten="none")  # which a response of one token refuses
    rows = [[part[a:b][::-1] for part in (rewards, *args)] for a, b in pairwise(starts)]
    return np.concatenate([right(spec, row[0], np.array([0, len(row[0])]), *row[1:])[::-1] for row in rows] or [[]])


def alone_with_itself(right, returns, old_logp, squares, starts, group, **rest):
    """A response that is alone has its own return as baseline."""
    alone = np.repeat(np.bincount(group)[group] == 1, np.diff(starts))
    return np.where(alone, returns, right(returns, old_logp, squares, starts, group, **rest))


# --- windows, averages, sampling ---


def window_read_before_push() -> Api:
    waiting: list[tuple] = []

    def window_pool(windows, contexts):
        before = REAL.window_pool(windows, contexts)
        for pushed in waiting:
            REAL.push(*pushed)
        waiting.clear()
        return before

    def empty_windows(*args):
        waiting.clear()
        return REAL.empty_windows(*args)

    return replace(REAL, empty_windows=empty_windows, push=lambda *args: waiting.append(args), window_pool=window_pool)


def oldest_kept(right, windows, contexts, rewards):
    """A full window refuses new rewards."""
    for context, reward in zip(contexts, rewards, strict=True):
        if windows.pushed[context] < windows.rewards.shape[1]:
            right(windows, [context], [reward])


def unbounded_bonus(right, bonus, target, step, entropy):
    coefficient = bonus[0]
    right(bonus, target, step, entropy)
    bonus[0] = coefficient + (step if entropy <= target else -step) * (target > 0)


def by_variance(right, p, mean):
    """In proportion to p (1-p) instead of its root."""
    p = np.asarray(p, dtype=np.float64)
    return right((1.0 - np.sqrt(1.0 - 4.0 * (p * (1.0 - p)) ** 2)) / 2.0, mean)


# --- batches ---


def normalised_by_micro_batch(right, estimator, batch, logp):
    """Shares are divided by their sum over what `objective_and_weights` sees."""
    total = batch.share.sum() or 1.0
    return right(estimator, batch._replace(share=batch.share / total, kl_share=batch.kl_share / total), logp)


def cut_in_two(right, estimator, batch, logp):
    """Every token of the second half of the batch is the next response's."""
    return right(estimator, batch._replace(row=batch.row + (np.arange(logp.size) >= logp.size // 2)), logp)


def correction_on_kl(right, *args, correction=None, **kwargs):
    """The importance correction multiplies the KL penalty too."""
    batch = right(*args, correction=correction, **kwargs)
    return batch if correction is None else batch._replace(kl_share=batch.kl_share * correction)


def kl_cov_uncorrected(right, estimator, *args, correction=None, **kwargs):
    batch = right(estimator, *args, correction=correction, **kwargs)
    corrects = correction is not None and isinstance(estimator.mask, KLCov)
    return batch._replace(kl_share=batch.kl_share / correction) if corrects else batch


def anchored_at_base(right, estimator, *args, **kwargs):
    """A penalty that is anchored at the old policy compares with the base policy, where that is given."""
    batch, there = right(estimator, *args, **kwargs), right is REAL.batch_from_advantages and len(args) > 3
    base = kwargs.get("ref_logp", args[3] if there else None)
    return batch._replace(ref_logp=np.asarray(base)) if estimator.kl.anchor == "old" and base is not None else batch
