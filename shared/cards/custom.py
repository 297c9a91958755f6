"""Decorators that register a custom function as an estimator with a card, which then works like any other.

@rl.advantage("median_mad")
def median_mad(rewards, pool):
    middle = np.median(pool)
    return (rewards - middle) / (np.median(np.abs(pool - middle)) + 0.5)
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args

from rftlab.shared.cards import CARDS, PRESETS, SHIPPED, custom_part
from rftlab.shared.cards.card import Card
from rftlab.shared.config.advantage import CustomAdvantage
from rftlab.shared.config.surrogate import CustomSurrogate
from rftlab.shared.custom.functions import is_compiled, positional, register
from rftlab.shared.custom.identity import python_function
from rftlab.shared.custom.plugins import is_loading
from rftlab.shared.custom.registry import registered
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check, check_choice

Function = TypeVar("Function", bound=Callable)
FAMILY = "Your own"
Scope = Literal["group", "batch"]
"""Whether a group's advantages may depend on the other groups of the round: "group" for no, "batch" for yes."""


def advantage(name: str, *, batched: bool = False, scope: Scope = "group", **choices) -> Callable[[Function], Function]:
    """Register a function of a group's rewards as the estimator `name`.

    The function gets `rewards` (K,) of the responses that are trained on and, where its second parameter is called pool
    or has no default, `pool` (n,), the group's baseline set: those rewards, support rollouts, the replay window. Both
    are float64, and cannot be written to. It returns advantages (K,), finite float64. Equal arguments must give equal
    results, because results are kept. A function that numba compiled is called from compiled code.

    batched: the function takes all groups of a size at once, `rewards` (G, K) and `pool` (G, n), and returns (G, K); a
    group's advantages must not depend on the other groups. scope: "batch" for a function that takes such arrays too,
    and may use all groups of a round, as James-Stein and whitening do. choices: fields of `Estimator` that differ from
    their defaults (surrogate, kl, aggregation ...). Raises UserError for a batched function that numba compiled, and
    for a name that is invalid, or taken by a shipped estimator or by another function of the files that are being
    loaded.
    """
    _check_name(name)

    def taken(function: Function) -> Function:
        _check_function(name, function, (1, 2), "rewards, or rewards and pool")
        _check_choices(name, choices, "advantage")
        check_choice(f"{name}: scope", scope, get_args(Scope))
        together = batched or scope == "batch"
        check(not (together and is_compiled(function)), f"{name}: batched; allowed: where numba did not compile it")
        register("advantage", name, function, together, scope == "batch")
        _add(name, function, Estimator(CustomAdvantage(name=name), **choices))
        return function

    return taken


def surrogate(name: str, **choices) -> Callable[[Function], Function]:
    """Register a function of tokens as the estimator `name`, with GRPO's advantages unless `choices` has others.

    The function gets advantage, logp and old_logp (T,), float64, which cannot be written to. It returns a pair of
    finite float64 arrays (T,): the objective of each token, and its derivative with respect to logp. choices: fields of
    `Estimator`. Raises UserError as `advantage` does.
    """
    _check_name(name)

    def taken(function: Function) -> Function:
        _check_function(name, function, (3,), "advantage, logp, old_logp")
        _check_choices(name, choices, "surrogate")
        register("surrogate", name, function)
        _add(name, function, Estimator(surrogate=CustomSurrogate(name), **choices))
        return function

    return taken


def card_of(function: Callable) -> str | None:
    """Return the name of a function's card, or None where it has none."""
    for name, card in CARDS.items():
        part = None if card.estimator is None else custom_part(card.estimator)
        if part is not None and python_function(registered(part).function) is python_function(function):
            return name
    return None


def _check_name(name: Any) -> None:
    check(not callable(name), 'the decorator has no name; allowed: @rl.advantage("name"), @rl.surrogate("name")')
    fits = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is not None
    check(fits, f"name = {name!r} of an estimator; allowed: up to 40 small letters, digits and _, a letter first")
    check(name not in SHIPPED, f"estimator {name!r} is shipped with rftlab; allowed: another name")


def _check_function(name: str, function: Callable, counts: tuple[int, ...], said: str) -> None:
    check(not (is_loading() and name in PRESETS), f"two functions are called {name}; allowed: names of their own")
    later = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    check(not later, f"{name}: the function is async, or yields; allowed: one that returns")
    check(_needed(function) in counts, f"{name}: the function takes other arguments than {said}")


def _needed(function: Callable) -> int:
    """Return the number of arguments that must be given by position; -1 where others are needed too, or none is
    known."""
    try:
        parameters = inspect.signature(python_function(function)).parameters.values()
    except (ValueError, TypeError):
        return -1
    needed = [one for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    return len(needed) if needed == [one for one in positional(function) if one.default is one.empty] else -1


def _check_choices(name: str, choices: dict[str, Any], mine: str) -> None:
    allowed = tuple(field.name for field in fields(Estimator) if field.name != mine)
    for choice in choices:
        check_choice(f"{name}: a field of the estimator", choice, allowed)


def _add(name: str, function: Callable, estimator: Estimator) -> None:
    python = python_function(getattr(function, "func", function))  # func: of a partial
    about = (inspect.getdoc(python) or "").strip()
    first, _, rest = about.partition("\n")
    PRESETS[name] = estimator
    CARDS[name] = Card(
        name=name,
        title=first or name,
        family=FAMILY,
        source=f"{python.__module__}.{getattr(python, '__qualname__', type(python).__qualname__)}",
        estimator=estimator,
        formula=" ".join(rest.split()),
        bias="Not known: rl.check_estimator measures it.",
    )
