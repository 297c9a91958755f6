"""Registry of custom functions by kind and name. A configuration holds a function's name and its identity at that time,
so results of one function are never used for another. Nothing here is compiled."""

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from rftlab.shared.custom.identity import source_sha256
from rftlab.shared.custom.plugins import load_known
from rftlab.shared.plumbing.errors import check


class CustomPart(Protocol):
    """A part of an estimator's configuration that stands for a custom function."""

    kind: ClassVar[str]
    """Kind of the part: "advantage" or "surrogate"."""

    @property
    def name(self) -> str:
        """Name under which the function was registered."""

    @property
    def source(self) -> str:
        """Identity of the function; empty before it is computed."""


class CustomFunction(NamedTuple):
    """A registered function."""

    kind: str
    """Kind of the function: "advantage" or "surrogate"."""
    name: str
    function: Callable
    address: int
    """Address of the callback that compiled code calls."""
    entry: Any
    """The callback at the address. The reference keeps it alive."""
    batched: bool = False
    """Whether the function takes stacked groups."""
    of_batch: bool = False
    """Whether a group's advantages may depend on the other groups."""


_functions: dict[tuple[str, str], CustomFunction] = {}
_identities: dict[tuple[str, str], str] = {}
"""Identities of the functions when they were last computed."""


def add(custom: CustomFunction) -> None:
    """Register a custom function, in the place of any earlier one of its kind and name."""
    _functions[custom.kind, custom.name] = custom
    _identities.pop((custom.kind, custom.name), None)


def registered(part: CustomPart) -> CustomFunction:
    """Return the registered function of a configuration's kind and name. Raises UserError where there is none."""
    if (part.kind, part.name) not in _functions:
        load_known()  # a new process has not loaded the files yet
    known = _functions.get((part.kind, part.name))
    check(
        known is not None, f"{part.kind} {part.name!r} is not there; allowed: with --plugins and the file that has it"
    )
    assert known is not None
    return known


def current_identity(part: CustomPart) -> str:
    """Return the present identity of a registered function. It is computed when an estimator is requested, because the
    decorator runs before the names below it in a file exist."""
    known = registered(part)
    source = source_sha256(known.function, f"{known.kind} {known.name}")
    if known.batched:  # the same source computes something else when it is batched
        source = hashlib.sha256(f"batched {source}".encode()).hexdigest()
    _identities[known.kind, known.name] = source[:16]
    return source[:16]


def configured(part: CustomPart) -> CustomFunction:
    """Return the function of a configuration. Raises UserError where it is missing, or has changed since."""
    known = registered(part)
    same = part.source == _identities.get((known.kind, known.name)) or part.source == current_identity(part)
    check(same, f"{known.kind} {part.name!r} is another function than the configuration's")
    return known
