"""Load a user's reward functions, named on a command line or given by a caller, with names, checksums and weights.

A function gets the arguments that its parameters name, as lists with one entry for each response:

    responses        texts
    truths           true answers; "" where the data have none
    prompts          chat messages, or text
    completions      responses as TRL hands them over: chat messages after chat prompts, else texts
    completion_ids   ids of the tokens of each response, the end's included
    pieces           text of each token, one by one
    any column of the data

With `**others` it gets all but `pieces`, so that a function written for TRL's GRPOTrainer works unchanged.
"""

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Any

from rftlab.shared.config.checked import config
from rftlab.shared.custom.identity import source_sha256
from rftlab.shared.custom.plugins import run_file
from rftlab.shared.plumbing.errors import UserError, blaming, check, check_finite, shown

RESERVED = ("strict", "flexible")
"""Names of the rewards of verifiers."""
SECONDS = 60.0
"""Seconds that a call may take, unless a run sets another limit."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@config
class NamedReward:
    """A reward in a configuration: its name, the checksum of its source (shared/custom/identity.py), and its weight."""

    name: str
    sha256: str
    weight: float = 1.0

    def __post_init__(self):
        check(
            _NAME.fullmatch(self.name) is not None and self.name not in RESERVED,
            f"reward name {self.name!r}; allowed: up to 40 letters, digits, - and _, a letter first, and not "
            f"{' or '.join(RESERVED)}; a dictionary from names to functions names them",
        )
        check_finite(f"weight of the reward {self.name}", self.weight)


def check_names(rewards: tuple[NamedReward, ...]) -> None:
    """Raise UserError where two rewards have the same name."""
    kinds = isinstance(rewards, tuple) and all(isinstance(reward, NamedReward) for reward in rewards)
    check(kinds, f"rewards = {shown(rewards)}; allowed: a tuple of NamedReward")
    names = [reward.name for reward in rewards]
    twice = sorted({name for name in names if names.count(name) > 1})
    check(not twice, f"two rewards are called {', '.join(twice)}; allowed: names of their own")


def rewards_config(rewards: tuple[NamedReward, ...]) -> dict:
    """Return the rewards as plain values by name."""
    return {reward.name: {"sha256": reward.sha256, "weight": reward.weight} for reward in rewards}


Function = Callable[..., Any]
Given = Function | Sequence[Function] | Mapping[str, Function]
"""Reward functions as a caller gives them: one, several, or several by name."""
PIECES = "pieces"
VARIABLE = "RFTLAB_REWARDS"
"""Environment variable that holds the functions named on the command line, as JSON, for processes started from here."""
OFFERED = ("responses", "truths", "prompts", "completions", "completion_ids", PIECES)
"""Arguments of a reward besides the columns of the data. These names have priority over a column's."""


def loaded(given: Given, weights: Sequence[float] | None = None) -> dict[NamedReward, Function]:
    """Return rewards from functions, with weights in their order, 1 by default. Raises UserError for an object that is
    no function, has no name or no source, and for another number of weights."""
    by_name = _by_name(given)
    check(
        weights is None or len(weights) == len(by_name),
        f"{len(weights or ())} reward weights for {len(by_name)} rewards; allowed: one for each, or none at all",
    )
    check(bool(by_name), "reward names no function; allowed: one or more")
    named = []
    for (name, function), weight in zip(by_name, weights or [1.0] * len(by_name), strict=True):
        check(
            callable(function) and not inspect.iscoroutinefunction(function),
            f"reward {name}: {type(function).__name__}; allowed: a function that is not async",
        )
        named.append(NamedReward(name, source_sha256(function, f"reward {name}"), float(weight)))
    check_names(tuple(named))
    return dict(zip(named, (function for _, function in by_name), strict=True))


def _by_name(given: Given) -> list[tuple[str, Function]]:
    if isinstance(given, Mapping):
        return list(given.items())
    functions = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    inner = [getattr(function, "func", function) for function in functions]  # func: of a partial
    names = [str(getattr(each, "__name__", type(each).__name__)) for each in inner]
    return list(zip(names, functions, strict=True))


def function_at(place: str) -> Function:
    """Return the function that a command line names: `folder/file.py:function`, or `package.module:function`. The file
    is the user's own program, and is run as a script is.

    Raises UserError where the file, its program or the function fails.
    """
    where, colon, name = place.rpartition(":")
    check(
        bool(colon and where and name.isidentifier()),
        f"reward = {place!r}; allowed: FILE.py:FUNCTION or MODULE:FUNCTION",
    )
    check(
        not where.endswith(".py") or Path(where).is_file(),
        f"reward = {where!r} is no file; allowed: a file with a function",
    )
    with blaming(f"reward = {place!r}: {where} does not load: "), chdir("."):
        by_file = where.endswith(".py")
        module = run_file(Path(where), f"rftlab_reward_{Path(where).stem}") if by_file else import_module(where)
    check(hasattr(module, name), f"reward = {place!r}: {where} has no {name}; allowed: {_functions(module)}")
    return getattr(module, name)


def name_rewards(places: Sequence[str]) -> list[Function]:
    """Return the functions that a command line names, and make them known to processes that are started from here.
    Raises UserError as `function_at` does."""
    functions = [function_at(place) for place in places]
    parts = [place.rpartition(":") for place in places]
    full = [str(Path(where).absolute()) if where.endswith(".py") else where for where, _, _ in parts]
    os.environ[VARIABLE] = json.dumps([f"{where}:{name}" for where, (_, _, name) in zip(full, parts, strict=True)])
    return functions


def rewards_named(rewards: tuple[NamedReward, ...]) -> dict[str, Any]:
    """Return the keywords of `rftlab.llm.train.train` for the rewards of a run, whose functions the environment names;
    {} without rewards. Raises UserError where functions are missing or have changed."""
    if not rewards:
        return {}
    places = json.loads(os.environ.get(VARIABLE) or "[]")
    known = loaded([function_at(place) for place in places], [each.weight for each in rewards]) if places else {}
    names = ", ".join(each.name for each in rewards)
    check(bool(known), f"rewards {names} are not there; allowed: on the machine that names them with --reward")
    check(tuple(known) == rewards, f"rewards {names} are others by now; run the command again")
    return {"reward": [*known.values()], "reward_weights": [each.weight for each in rewards]}


def _functions(module: Any) -> str:
    own = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
    return ", ".join(own) or "a file with a function"


def asked_for(name: str, function: Function, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the arguments of a function. Raises UserError for a parameter that nothing can fill."""
    known = (*OFFERED, *(column for column in columns if column not in OFFERED))
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        raise UserError(f"reward {name} does not say what its parameters are; allowed: a function of Python") from None
    wanted: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            wanted += [each for each in known if each not in (*wanted, PIECES)]
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name in known:
            wanted.append(parameter.name)
        else:
            check(
                parameter.kind is parameter.VAR_POSITIONAL or parameter.default is not parameter.empty,
                f"reward {name} asks for {parameter.name}; allowed: {', '.join(known)}",
            )
    return tuple(dict.fromkeys(wanted))
