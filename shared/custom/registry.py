"""Custom functions by kind and name. A configuration holds the name and the identity that the function had, so what ran
with one function is never taken for what another one does. Nothing here is compiled."""

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from rftlab.shared.custom.identity import source_sha256
from rftlab.shared.custom.plugins import load_known
from rftlab.shared.plumbing.errors import check


class CustomPart(Protocol):
    """A part of an estimator that is a custom function, as a configuration has it."""

    kind: ClassVar[str]
    """advantage or surrogate."""

    @property
    def name(self) -> str:
        """Name under which the function was registered."""

    @property
    def source(self) -> str:
        """Identity of the function; empty where it was not asked for yet."""


class CustomFunction(NamedTuple):
    """A registered function."""

    kind: str
    """advantage or surrogate."""
    name: str
    function: Callable
    address: int
    """Of what compiled code calls."""
    entry: Any
    """The callback at the address; kept, so that it stays there."""
    batched: bool = False
    """Whether it takes stacked groups."""
    of_batch: bool = False
    """Whether a group's advantages may depend on the other groups."""


_functions: dict[tuple[str, str], CustomFunction] = {}
_identities: dict[tuple[str, str], str] = {}
"""As they were taken last."""


def add(custom: CustomFunction) -> None:
    """Make a function known; another one of its kind and name goes."""
    _functions[custom.kind, custom.name] = custom
    _identities.pop((custom.kind, custom.name), None)


def registered(part: CustomPart) -> CustomFunction:
    """The function of that name. Raises UserError where there is none."""
    if (part.kind, part.name) not in _functions:
        load_known()  # a process of its own has not read the files yet
    known = _functions.get((part.kind, part.name))
    check(
        known is not None, f"{part.kind} {part.name!r} is not there; allowed: with --plugins and the file that has it"
    )
    assert known is not None
    return known


def current_identity(part: CustomPart) -> str:
    """The identity that the function of that name has now. It is taken when an estimator is asked for and not under the
    decorator, where what stands below it in a file is not known yet."""
    known = registered(part)
    source = source_sha256(known.function, f"{known.kind} {known.name}")
    if known.batched:  # the same source says something else then
        source = hashlib.sha256(f"batched {source}".encode()).hexdigest()
    _identities[known.kind, known.name] = source[:16]
    return source[:16]


def configured(part: CustomPart) -> CustomFunction:
    """The function of a configuration. Raises UserError where it is not there, or is another one by now."""
    known = registered(part)
    same = part.source == _identities.get((known.kind, known.name)) or part.source == current_identity(part)
    check(same, f"{known.kind} {part.name!r} is another function than the configuration's")
    return known
