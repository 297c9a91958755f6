"""Objectives of named estimators on tensors, for any training loop: `rftlab.losses`.

    J = rl.losses.objective(logp, old_logp, rewards, mask, group, estimator="gspo")
    (-J).backward()

The same functions as in `rftlab.llm.losses`, which take an `Estimator`; these take a name of `rftlab estimators` too.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rftlab.llm.losses import objective as tensors
from rftlab.shared.cards import preset

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


def _with_names(function: Callable[Arguments, Found]) -> Callable[Arguments, Found]:
    """The function with an argument `estimator` that may be a name."""

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Found:
        given = named.get("estimator")
        if isinstance(given, str):
            named["estimator"] = preset(given)
        return function(*arguments, **named)

    return call


objective = _with_names(tensors.objective)
objective_and_metrics = _with_names(tensors.objective_and_metrics)
advantages = _with_names(tensors.advantages)
