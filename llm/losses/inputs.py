"""Convert arguments of the public functions to tensors on one device, and check them without waiting for the device."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from rftlab.llm.losses.layout import Layout, wide
from rftlab.shared.config.advantage import PER_TOKEN, CustomAdvantage
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check, check_finite, check_type

Column: TypeAlias = torch.Tensor | np.ndarray | Sequence[float]
Labels: TypeAlias = torch.Tensor | np.ndarray | Sequence[Any]
Sets: TypeAlias = tuple[Column, Labels]
"""Rewards (n,) of baseline sets and the labels (n,) of their groups."""
PER_RESPONSE = ("greedy", "moving_average")
"""Baselines that have one number for each response, also where rewards are at tokens."""
without_graph, joined = torch.no_grad, torch.cat
"""torch's functions under other names, for adapters that have only methods of tensors."""


class Given(NamedTuple):
    """Arguments of `objective` from which advantages are computed, besides tokens and mask."""

    rewards: Column | None = None
    group: Labels | None = None
    advantages: Column | None = None
    ref_logp: Column | None = None
    sampler_logp: Column | None = None
    correction: Column | None = None
    pool: Sets | None = None
    support: Sets | None = None
    baseline: Column | None = None
    token_rewards: Column | None = None
    entropy: torch.Tensor | None = None
    bonus: float | None = None


def real_tensor(name: str, values: Any) -> torch.Tensor:
    """Return real numbers as a tensor without a graph. Raises UserError that names other values."""
    try:
        tensor = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{name} is a {type(values).__name__} of something else; allowed: numbers, a tensor") from None
    check(not tensor.is_complex(), f"{name} of type {tensor.dtype}; allowed: real numbers")
    return tensor


def finite(name: str, values: torch.Tensor) -> torch.Tensor:
    """Return the values. Raises UserError where one is not finite, if they are on the CPU."""
    known = values.device.type == "cpu"
    check(not known or bool(values.isfinite().all()), f"{name} has numbers that are not finite; allowed: finite ones")
    return values


def column(
    name: str,
    values: Column,
    shape: tuple[int, ...],
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return values of a shape as a tensor, on a device and in a number type; by default on their own device and in its
    widest type."""
    tensor = real_tensor(name, values)
    tensor = tensor.to(device or tensor.device, dtype or wide(tensor.device))
    what = f"must have one entry per {'token' if len(shape) > 1 else 'response or token'} {shape}"
    check(tuple(tensor.shape) == shape, f"{name} {tuple(tensor.shape)} {what}")
    return tensor


def at_tokens(name: str, values: Column | None, layout: Layout, dtype: torch.dtype) -> torch.Tensor | None:
    """Return a column of tokens, or None where there is none."""
    shape, device = tuple(layout.shown.shape), layout.shown.device
    return None if values is None else column(name, values, shape, device, dtype)


def label_numbers(*columns: Labels) -> list[torch.Tensor]:
    """Return labels as whole numbers. Labels that are no tensor (verl's are texts) are numbered in order of
    appearance."""
    if all(isinstance(labels, torch.Tensor) for labels in columns):
        for labels in columns:
            whole = isinstance(labels, torch.Tensor) and not labels.is_floating_point()
            check(whole, f"group of type {getattr(labels, 'dtype', None)}; allowed: whole numbers or texts")
        return [torch.as_tensor(labels).to(torch.int64) for labels in columns]
    seen: dict[Any, int] = {}
    lists = [labels.tolist() if isinstance(labels, torch.Tensor | np.ndarray) else list(labels) for labels in columns]
    for label in (label for labels in lists for label in labels if not isinstance(label, str | int | np.integer)):
        raise UserError(f"group has the label {label!r:.40}; allowed: whole numbers or texts")
    return [
        torch.tensor([seen.setdefault(label, len(seen)) for label in labels], dtype=torch.int64) for labels in lists
    ]


def _check(given: Given, *needs: tuple[str, bool, str]) -> None:
    for name, required, why in needs:
        check(not required or getattr(given, name) is not None, f"this estimator needs {name} ({why})")


def check_rewards(estimator: Estimator, given: Given) -> None:
    """Raise UserError that names what advantages need and was not given."""
    spec = estimator.advantage
    _check(
        given,
        ("rewards", True, "one for each response, or advantages"),
        (
            "group",
            spec.of_group or spec.credit != "reward" or isinstance(spec, CustomAdvantage),
            "a label for each response: those of one prompt share it",
        ),
        ("baseline", spec.given, f"its baseline {spec.baseline} comes from elsewhere"),
        ("ref_logp", in_reward(estimator), "its KL penalty in the reward compares with the base policy"),
    )


def in_reward(estimator: Estimator) -> bool:
    """Whether a KL penalty is subtracted from rewards."""
    return estimator.kl.kind != "none" and estimator.kl.place == "reward"


def reads_entropy(estimator: Estimator) -> bool:
    """Whether the estimator needs the entropies of tokens' distributions."""
    return estimator.has_bonus or isinstance(estimator.mask, TopEntropy)


def check_tokens(estimator: Estimator, given: Given) -> None:
    """Raise UserError that names what the estimator needs at tokens and was not given."""
    kl = estimator.kl
    corrected = estimator.correction.kind != "none" and given.correction is None
    _check(
        given,
        (
            "ref_logp",
            kl.against_base and kl.place == "loss",
            f"its KL penalty {kl.kind} compares with the base policy",
        ),
        ("entropy", reads_entropy(estimator), "the entropy at each token, for its bonus or its mask"),
        (
            "bonus",
            estimator.entropy_target > 0,
            "the coefficient of its entropy bonus, which moves from update to update",
        ),
        ("sampler_logp", corrected, "its importance weights compare with the policy that sampled"),
    )
    if given.bonus is not None:
        check(estimator.entropy_target > 0, "bonus: allowed with an estimator that has an entropy_target")
        check_type("bonus", given.bonus, Real, "a real number")
        check_finite("bonus", given.bonus, 0)


def check_baseline(estimator: Estimator, layout: Layout, given: Given) -> torch.Tensor | None:
    """Return the baseline as a tensor, or None. Raises UserError where it is not needed, or has another shape."""
    spec, tokens, baseline = estimator.advantage, tuple(layout.shown.shape), given.baseline
    if baseline is None:
        return None
    check(spec.given, f"advantage.baseline {spec.baseline}: a baseline is not read")
    tensor = real_tensor("baseline", baseline)
    of_tokens = (spec.by_token or given.token_rewards is not None) and spec.baseline not in PER_RESPONSE
    shapes = [tokens] * of_tokens + [(layout.n_rows,)] * (spec.baseline not in PER_TOKEN)
    allowed = " or ".join(map(str, shapes))
    check(tuple(tensor.shape) in shapes, f"baseline {tuple(tensor.shape)}; allowed: {allowed}")
    return (tensor if tuple(tensor.shape) == tokens else finite("baseline", tensor)).to(wide(tensor.device))


def group_labels(given: Given, n: int) -> list[torch.Tensor]:
    """Return labels of the responses (n,), and of the other members of their baseline sets, as whole numbers."""
    parts = [part for part in (given.pool, given.support) if part is not None]
    pairs = all(isinstance(part, tuple | list) and len(part) == 2 for part in parts)
    check(pairs, "pool or support is no pair; allowed: (rewards, labels)")
    if given.group is None:
        check(not parts, "pool or support without group; allowed: with group")
        return [torch.zeros(n, dtype=torch.int64)]
    number, *others = label_numbers(given.group, *(labels for _, labels in parts))
    check(tuple(number.shape) == (n,), f"group {tuple(number.shape)} must have one entry per response {(n,)}")
    return [number, *others]


def set_rewards(given: Given, shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """Return the rewards of a pool and of support responses, in the shapes of their labels."""
    parts = [part for part in (given.pool, given.support) if part is not None]
    return [column("pool or support", values, tuple(shape)) for (values, _), shape in zip(parts, shapes, strict=True)]
