"""The estimators on tensors as an `Api`, so that every check of the compiled ones is theirs too; packed, or padded with
holes whose hidden places are nan."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from rftlab.llm.losses.credit import (
    response_advantages,
    several_advantages,
    shaped,
    tells_tokens_apart,
    tensor_advantages,
)
from rftlab.llm.losses.credit import token_advantages as credit_tokens
from rftlab.llm.losses.formulas import formulas
from rftlab.llm.losses.inputs import Given
from rftlab.llm.losses.layout import Layout, make_layout
from rftlab.llm.losses.weights import FrozenBatch, freeze, masked, tensor_weights, token_corrections, token_shares
from rftlab.shared.config.advantage import PER_TOKEN
from rftlab.shared.config.kl import kl_rule
from rftlab.shared.config.ratio import ratio_rule
from rftlab.shared.config.surrogate import surrogate_rule
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.objective import ObjectiveAndWeights
from rftlab.shared.prepare import Batch
from tests.support.estimators.random_batches import Batches, baseline_for
from tests.support.estimators.vectors import REAL, Api, starts_of

torch.set_num_threads(1)


class Place:
    """Packed tokens of responses as tensors, and back."""

    def __init__(self, starts, padded: bool):
        starts = np.asarray(starts, dtype=np.int64)
        self.row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        self.at: tuple = (np.arange(starts[-1]),)
        shape: tuple[int, ...] = (int(starts[-1]),)
        if padded:  # every third place is hidden, and the last one
            index = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
            self.at = (self.row, index + index // 2)
            shape = (starts.size - 1, 2 + int(self.at[1].max(initial=0)))
        mask = np.zeros(shape, dtype=bool)
        mask[self.at] = True
        self.shape = shape
        ends = None if padded else torch.from_numpy(starts)
        self.layout: Layout = make_layout(shape, torch.device("cpu"), torch.from_numpy(mask) if padded else None, ends)

    def tensor(self, values, dtype=torch.float64) -> torch.Tensor:
        out = np.full(self.shape, np.nan)
        out[self.at] = np.asarray(values, dtype=np.float64)
        return torch.from_numpy(out).to(dtype)

    def maybe(self, values) -> torch.Tensor | None:
        return None if values is None else self.tensor(values)

    def numbers(self, values) -> np.ndarray:
        """Packed numbers of what broadcasts to the tokens."""
        return torch.as_tensor(values).to(torch.float64).expand(self.shape).numpy()[self.at].copy()


def column(values) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))


def labels(values) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.int64))


def of_pool(pool) -> tuple[torch.Tensor, torch.Tensor]:
    return column(pool.rewards), labels(np.repeat(np.arange(pool.starts.size - 1), np.diff(pool.starts)))


def batch_of(place: Place, frozen: FrozenBatch) -> Batch:
    columns = (frozen.advantage, frozen.share, frozen.kl_share, frozen.old_logp, frozen.ref_logp)
    return Batch._make([*map(place.numbers, columns), place.row])


def frozen_of(place: Place, batch: Batch) -> FrozenBatch:
    advantage, share, kl_share, old, ref = (place.tensor(part) for part in batch[:-1])
    return FrozenBatch(advantage, share, kl_share, share, old, ref)


def place_of(batch: Batch, padded: bool) -> Place:
    """The place of a batch that may be a slice."""
    return Place(starts_of(np.unique(batch.row, return_counts=True)[1]), padded)


def advantages(padded, spec, rewards, group, pool, *, starts=None, baseline=None):
    REAL.advantages(spec, np.asarray(rewards, dtype=np.float64), group, pool, starts=starts, baseline=baseline)
    place = Place(np.arange(len(rewards) + 1) if starts is None else starts, padded)
    given, values = Given(group=labels(group), pool=of_pool(pool)), None if baseline is None else column(baseline)
    return response_advantages(spec, place.layout, column(rewards), given, values).numpy()


def token_advantages(padded, spec, rewards, starts, baseline=None):
    place = Place(starts, padded)
    at_tokens = (place.tensor(rewards), place.maybe(baseline))
    return place.numbers(credit_tokens(spec, place.layout, torch.zeros(len(starts) - 1), *at_tokens))


def shares(padded, spec, starts, n_tokens=None, n_rows=None, group=None):
    place, group = Place(starts, padded), None if group is None else labels(group)
    like = place.tensor(np.zeros(starts[-1]))
    return place.numbers(token_shares(spec, place.layout, like, n_tokens, n_rows, group))


def corrections(padded, spec, starts, old_logp, sampler_logp):
    place = Place(starts, padded)
    found = token_corrections(spec, place.layout, place.tensor(old_logp), place.tensor(sampler_logp))
    return place.numbers(found)


def shaped_rewards(padded, estimator, rewards, starts, old_logp, ref_logp=None):
    place = Place(starts, padded)
    return shaped(estimator, place.layout, column(rewards), place.tensor(old_logp), place.maybe(ref_logp)).numpy()


def batch_from_advantages(
    padded,
    estimator,
    advantage,
    starts,
    old_logp,
    ref_logp=None,
    *,
    sampler_logp=None,
    correction=None,
    group=None,
    **counts,
):
    place = Place(starts, padded)
    columns = (place.tensor(advantage), place.tensor(old_logp), place.maybe(ref_logp))
    counts |= {} if group is None else {"group": torch.as_tensor(group)}
    rest = {"sampler_logp": place.maybe(sampler_logp), "correction": place.maybe(correction), **counts}
    return batch_of(place, freeze(estimator, place.layout, *columns, **rest))


def prepare(
    padded,
    estimator,
    rewards,
    group,
    starts,
    old_logp,
    ref_logp=None,
    *,
    pool=None,
    baseline=None,
    token_rewards=None,
    several=None,
    **rest,
):
    place, spec = Place(starts, padded), estimator.advantage
    by_token = tells_tokens_apart(spec, token_rewards)
    shaped_R = column(shaped_rewards(padded, estimator, rewards, starts, old_logp, ref_logp))
    if baseline is not None:
        of_rows = len(baseline) == len(rewards) and spec.baseline not in PER_TOKEN
        baseline = column(baseline) if of_rows else place.tensor(baseline)
    sets = None if pool is None else of_pool(pool)
    given = Given(rewards, labels(group), pool=sets, baseline=baseline, token_rewards=place.maybe(token_rewards))
    if several is None:
        found = tensor_advantages(Estimator(spec), place.layout, given._replace(rewards=shaped_R), None, None)
    else:
        columns, weights = (torch.as_tensor(part) for part in several)
        found = several_advantages(spec, place.layout, list(columns), weights, given)
    found = found if by_token else place.layout.spread(found)
    return batch_from_advantages(
        padded, estimator, place.numbers(found), starts, old_logp, ref_logp, group=labels(group), **rest
    )


def apply_mask(padded, estimator, batch, logp, keys=None):
    place = place_of(batch, padded)
    frozen = masked(as_rule(estimator), place.layout, frozen_of(place, batch), place.tensor(logp), place.maybe(keys))
    return batch._replace(share=place.numbers(frozen.share), kl_share=place.numbers(frozen.kl_share))


def objective_and_weights(padded, estimator, batch, logp):
    place = place_of(batch, padded)
    found = tensor_weights(as_rule(estimator), place.layout, frozen_of(place, batch), place.tensor(logp))
    flags = (int(place.numbers(flag).sum()) for flag in (found.clipped, found.dual_clipped))
    weight, kl = place.numbers(found.weight), float(place.numbers(found.kl).sum())
    return ObjectiveAndWeights(float(found.objective), weight, *flags, kl)


def surrogate(spec, ratio, advantage, logp, log_ratio):
    numbers = (torch.tensor(number, dtype=torch.float64) for number in (advantage, logp, log_ratio))
    return tuple(map(float, formulas(torch.float64).surrogate(surrogate_rule(spec), ratio_rule(ratio), *numbers)))


def kl_penalty(spec, logp, ref_logp):
    numbers = (torch.tensor(number, dtype=torch.float64) for number in (logp, ref_logp))
    return tuple(map(float, formulas(torch.float64).kl_penalty(kl_rule(spec), *numbers)))


def tensor_api(padded: bool) -> Api:
    """The functions under test, on tensors."""
    laid_out = (
        advantages,
        token_advantages,
        shares,
        corrections,
        shaped_rewards,
        batch_from_advantages,
        prepare,
        apply_mask,
        objective_and_weights,
    )
    made = {function.__name__: partial(function, padded) for function in laid_out}
    return replace(REAL, surrogate=surrogate, kl_penalty=kl_penalty, **made)


def needed(estimator: Estimator, batch: Batches, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What `objective` and `prepare` need for an estimator besides rewards, of tokens or responses, in float64."""
    found = {} if estimator.kl.kind == "none" else {"ref_logp": batch.ref_logp}
    baseline = baseline_for(estimator.advantage, batch)
    found |= {} if baseline is None else {"baseline": baseline}
    if estimator.correction.kind != "none":
        found["sampler_logp"] = batch.sampler_logp
    return found


def compiled(estimator: Estimator, batch: Batches, logp, given: dict, **rest):
    """Objective and weights of the compiled path."""
    frozen = REAL.prepare(estimator, batch.rewards, batch.group, batch.starts, batch.old_logp, **given, **rest)
    return REAL.objective_and_weights(estimator, REAL.apply_mask(estimator, frozen, logp, batch.keys), logp)


def laid_out(batch: Batches, given: dict, padded: bool, dtype: torch.dtype) -> tuple[Place, dict]:
    """Arguments of `objective` for a batch; logp is a leaf."""
    place = Place(batch.starts, padded)
    per_response = ("rewards", "group", "baseline")
    arguments = {
        name: value if name in per_response and len(value) == len(batch.rewards) else place.tensor(value, dtype)
        for name, value in given.items()
    }
    arguments |= {name: place.tensor(getattr(batch, name), dtype) for name in ("logp", "old_logp")}
    arguments["logp"].requires_grad_()
    where = {"mask": place.layout.shown} if padded else {"starts": batch.starts}
    return place, arguments | where | {"rewards": batch.rewards, "group": batch.group, "keys": place.tensor(batch.keys)}


def rounded(batch: Batches, given: dict, dtype: torch.dtype) -> tuple[Batches, dict]:
    """What is left of numbers of tokens in a number type, as float64."""

    def cut(values):
        return torch.from_numpy(np.asarray(values)).to(dtype).to(torch.float64).numpy()

    tokens = {name: cut(getattr(batch, name)) for name in ("logp", "old_logp", "ref_logp", "sampler_logp")}
    short = {name: cut(values) for name, values in given.items() if len(values) == len(batch.logp)}
    return batch._replace(**tokens), given | short
