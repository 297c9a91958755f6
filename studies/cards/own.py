"""Estimators of the user's: a function under a decorator becomes a card, and all that a card can do.

@rl.advantage("median_mad")
def median_mad(rewards, pool):
    middle = np.median(pool)
    return (rewards - middle) / (np.median(np.abs(pool - middle)) + 0.5)
"""

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

from rftlab.shared.config.own import OwnAdvantage
from rftlab.shared.config.surrogate import OwnSurrogate
from rftlab.shared.errors import check
from rftlab.shared.estimator import Estimator
from rftlab.shared.own.functions import is_compiled, register
from rftlab.shared.source import python_of
from rftlab.studies.cards import CARDS, PRESETS, SHIPPED
from rftlab.studies.cards.card import Card

Function = TypeVar("Function", bound=Callable)
FAMILY = "Your own"


def advantage(name: str, *, batched: bool = False, **choices) -> Callable[[Function], Function]:
    """Make a function of a group's rewards an estimator of that name.

    The function gets `rewards` (K,) of the responses that are trained on and, where it takes a second argument, `pool`
    (n,), the group's baseline set: those rewards, support rollouts, the replay window. Both are float64, and cannot be
    written to. It returns advantages (K,), finite float64. Equal arguments must give equal results: they are kept. A
    function that numba compiled is called from compiled code.

    batched: the function takes all groups of a size at once, `rewards` (G, K) and `pool` (G, n), and returns (G, K);
    a group's advantages must not depend on the other groups. choices: fields of `Estimator` that differ from their
    defaults (surrogate, kl, aggregation ...). Raises UserError for a batched function that numba compiled, and for a
    name that a shipped estimator has, or that is none.
    """

    def taken(function: Function) -> Function:
        _check_function(name, function, (1, 2), "rewards, or rewards and pool")
        check(not (batched and is_compiled(function)), f"{name}: batched; allowed: where numba did not compile it")
        source = register("advantage", name, function, batched).source
        _add(name, function, Estimator(OwnAdvantage(name=name, source=source), **choices))
        return function

    return taken


def surrogate(name: str, **choices) -> Callable[[Function], Function]:
    """Make a function of tokens an estimator of that name, with the advantages of GRPO unless `choices` has others.

    The function gets advantage, logp and old_logp (T,), float64, which cannot be written to. It returns a pair of
    finite float64 arrays (T,): the objective of each token, and its derivative with respect to logp. choices: fields of
    `Estimator`. Raises UserError as `advantage` does.
    """

    def taken(function: Function) -> Function:
        _check_function(name, function, (3,), "advantage, logp, old_logp")
        source = register("surrogate", name, function).source
        _add(name, function, Estimator(**{"surrogate": OwnSurrogate(name, source), **choices}))
        return function

    return taken


def _check_function(name: str, function: Callable, counts: tuple[int, ...], said: str) -> None:
    fits = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is not None
    check(fits, f"name = {name!r} of an estimator; allowed: up to 40 small letters, digits and _, a letter first")
    check(name not in SHIPPED, f"estimator {name!r} is shipped with rftlab; allowed: another name")
    later = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    check(not later, f"{name}: the function is async, or yields; allowed: one that returns")
    code = getattr(python_of(function), "__code__", None)
    check(code is not None and code.co_argcount in counts, f"{name}: the function takes other arguments than {said}")


def _add(name: str, function: Callable, estimator: Estimator) -> None:
    about = (inspect.getdoc(python_of(function)) or "").strip()
    first, _, rest = about.partition("\n")
    PRESETS[name] = estimator
    CARDS[name] = Card(
        name=name,
        title=first or name,
        family=FAMILY,
        source=f"{python_of(function).__module__}.{python_of(function).__qualname__}",
        estimator=estimator,
        formula=" ".join(rest.split()),
        bias="Not known: rl.check_estimator measures it.",
    )
