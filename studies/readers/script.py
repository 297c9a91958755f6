"""Settings that a shell script hands to a trainer, as far as its text tells.

A variable is known where the script assigns it exactly once, in any case, to what is known, and before it is used.
`${N:-16}` of a variable that the script does not assign is 16 unless the environment sets N. Anything else leaves a
setting unknown, and the reason is kept.
"""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from rftlab.studies.readers.designs.values import Fallback, Unknown
from rftlab.studies.readers.shell import COMPUTED, Array, Command, Variable, Word, commands_of, plain_word

LONGEST = 1 << 22
"""Characters of everything that is expanded."""
MANY = 100
"""Assignments of one variable that are looked at."""
UNSET, TWICE = "which the script does not set", "which the script sets more than once"
CONDITION = "which the script sets under a condition, in a loop or in a function"
LATER, SOURCED = "which the script sets only afterwards", "which a file that the script reads may set"
_MARK = re.compile("\ue000([0-9]{1,9})\ue001")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(\[[^\]]{0,80}\])?(\+?)=")
_FILLED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?:\[[^\]]{0,80}\])?(?:[-+*/%&|^]?=.*)?", re.DOTALL)
_DECLARES = {"export", "local", "declare", "typeset", "readonly"}
_FILLS = {"read", "unset", "mapfile", "readarray", "getopts", "for", "select", "printf", "let"}
_SOURCES, _HARMLESS = {"source", ".", "eval"}, ("activate", "conda.sh")
"""Files that set up an environment of packages change no settings."""


class _Event(NamedTuple):
    """An assignment, at a place among the commands."""

    place: int
    certain: bool
    words: list[Word] | None
    """None where only running the script would tell."""
    appends: bool = False
    array: bool = False
    fallback: bool = False
    """${N:=16}, which keeps a value that N has."""


class Shell:
    """A script with its variables."""

    def __init__(self, text: str):
        self.commands = commands_of(text.replace("\ue000", "").replace("\ue001", ""))
        self.marks: list[Fallback | Unknown] = []
        self._events: dict[str, list[_Event]] = defaultdict(list)
        self._sources: list[int] = []
        self._values: dict[tuple[str, int], str] = {}
        self._spent = 0
        for place, command in enumerate(self.commands):
            self._note(place, command)
        ordered = [(event.place, name, number) for name, events in self._events.items()
                   for number, event in enumerate(events)]  # fmt: skip
        for place, name, number in sorted(ordered):
            self._values[name, number] = self._assigned(name, self._events[name][number], place)

    def texts(self, documents: bool) -> Iterator[str]:
        """Commands, or here-documents. Marks in them stand for what is no plain text: see `valued`."""
        for place, command in enumerate(self.commands):
            words = [word for word in command.words if isinstance(word, list)]
            if command.document == documents and not (not documents and all(map(_is_assignment, command.words))):
                yield " ".join(self._rendered(word, place) for word in words)

    def assigned(self) -> str:
        """What the script assigns, as NAME=VALUE: a list of settings looks like that."""
        found = []
        for name in self._events:
            value = self._value(Variable(name, "", [], f"${name}"), len(self.commands), "")
            found.append(f"{name}={self._marked(value)}")
        return " ".join(found)

    def mark_of(self, token: str) -> Fallback | Unknown | None:
        """What a token that is a mark stands for; None of another token."""
        found = _MARK.fullmatch(token)
        return self.marks[int(found[1])] if found else None

    def valued(self, raw: str) -> str:
        """A setting: plain text, or text that holds unless something else is said, or unknown text."""
        marks = [self.marks[int(number)] for number in _MARK.findall(raw)]
        text = _MARK.sub(lambda found: str(self.marks[int(found[1])]), raw).strip("\"',")
        unknown = next((mark for mark in marks if isinstance(mark, Unknown)), None)
        if unknown is not None:
            return Unknown(text, unknown.why)
        return Fallback(text, "; ".join(dict.fromkeys(mark.why for mark in marks))) if marks else text

    def _note(self, place: int, command: Command) -> None:
        """Changes of variables by one command."""
        certain = command.certain
        for name in command.changed:
            self._events[name].append(_Event(place, certain, None))
        for variable in _variables(command.words):
            if variable.operator.endswith("="):
                self._events[variable.name].append(_Event(place, certain, [variable.word], fallback=True))
        before = list(takewhile(_is_assignment, command.words))
        rest = command.words[len(before) :]
        first = plain_word(rest[0]) if rest else ""
        if not rest and not command.document:
            self._assign(before, place, certain)
        elif first in _DECLARES:
            self._assign([word for word in rest[1:] if _is_assignment(word)], place, certain)
            if not all(_is_assignment(word) or plain_word(word) for word in rest[1:]):
                self._sources.append(place)
        elif first in _FILLS and (first != "printf" or plain_word(rest[1] if len(rest) > 1 else []) == "-v"):
            filled = rest[1:2] if first in ("for", "select") else rest[1:]
            for word in filled:
                if filling := _FILLED.fullmatch(plain_word(word)):
                    self._events[filling[1]].append(_Event(place, certain, None))
        elif first in _SOURCES and not plain_word(rest[1] if len(rest) > 1 else []).endswith(_HARMLESS):
            self._sources.append(place)

    def _assign(self, words: list[Word | Array], place: int, certain: bool) -> None:
        for word in words:
            text = word.name if isinstance(word, Array) else str(word[0])
            found = _ASSIGNED.match(text)
            assert found is not None
            value = word.words if isinstance(word, Array) else [[text[found.end() :], *word[1:]]]
            own = None if found[2] else value
            array = isinstance(word, Array)
            self._events[found[1]].append(_Event(place, certain, own, appends=bool(found[3]), array=array))

    def _assigned(self, name: str, event: _Event, place: int) -> str:
        text = " ".join(self._rendered(word, place, name) for word in event.words or ())
        return self._marked(self._fallback(name, text, f"${{{name}}}")) if event.fallback else text

    def _rendered(self, word: Word, place: int, own: str = "") -> str:
        """The text of a word. own: the variable whose value it is."""
        parts = [
            part if type(part) is str else self._marked(
                self._value(part, place, own) if isinstance(part, Variable) else part
            )
            for part in word
        ]  # fmt: skip
        found = "".join(map(str, parts))
        self._spent += len(found)
        if self._spent > LONGEST:
            raise ValueError(f"its variables expand to more than {LONGEST} characters")
        return found

    def _marked(self, value: str) -> str:
        if not isinstance(value, Fallback | Unknown):
            return value
        self.marks.append(value)
        return f"\ue000{len(self.marks) - 1}\ue001"

    def _value(self, variable: Variable, place: int, own: str) -> str:
        found, operator = self._looked_up(variable, place, own), variable.operator.lstrip(":")
        if operator == "+" and not isinstance(found, Unknown):
            text = self._rendered(variable.word, place, own)
            return text if found is not None else Unknown(variable.text, UNSET, (text,))
        if found is not None:
            return found
        if operator in ("-", "="):
            return self._fallback(variable.name, self._rendered(variable.word, place, own), variable.text)
        return Unknown(variable.text, UNSET)

    def _fallback(self, name: str, text: str, written: str) -> str:
        """A default that a script gives a variable."""
        value = self.valued(text)
        if isinstance(value, Unknown):
            return Unknown(written, value.why, (text,))
        what = f"the script's argument {name} is given" if name.isdigit() else f"{name} is set in the environment"
        more = f", and {value.why}" if isinstance(value, Fallback) else ""
        return Fallback(value, f"unless {what}{more}")

    def _looked_up(self, variable: Variable, place: int, own: str) -> str | None:
        """The value of a variable at a place; None where the script leaves it to the environment."""
        name, written = variable.name, variable.text
        if name in "#?$!-":
            return Unknown(written, COMPUTED)
        if name.isdigit() and place < len(self.commands) and not self.commands[place].certain:
            return Unknown(written, CONDITION)  # of a function perhaps
        events = self._events.get(name, [])
        if len(events) > MANY:
            return Unknown(written, TWICE)
        numbered = [(number, event) for number, event in enumerate(events)
                    if event.place != place or not (own == name or event.fallback)]  # fmt: skip
        plain = {event.place for _, event in numbered if not event.fallback}
        numbered = [pair for pair in numbered if not (pair[1].fallback and pair[1].place in plain)]  # N=${N:=16}
        if not numbered:
            sourced = self._sources[:1] and self._sources[0] < place and name not in "@*"
            return Unknown(written, SOURCED) if sourced else None
        maybe = tuple(text for number, _ in numbered if (text := self._values.get((name, number))))
        first = [event for _, event in numbered if not event.appends]
        if not all(event.certain and event.words is not None for _, event in numbered):
            return Unknown(written, CONDITION if all(e.words is not None for _, e in numbered) else COMPUTED, maybe)
        if len(first) != 1:
            return Unknown(written, TWICE if first else UNSET, maybe)
        if first[0].place >= place:
            return Unknown(written, LATER, maybe)
        if bisect(self._sources, first[0].place) < bisect(self._sources, place - 1):
            return Unknown(written, SOURCED, maybe)
        text = ""
        for number, event in numbered:
            if event.place < place:
                text += " " * (event.array and bool(text)) + self._values.get((name, number), "")
        mark = self.mark_of(text)
        if isinstance(mark, Unknown):
            return Unknown(written, mark.why, mark.maybe)
        return mark if mark is not None else text


def _is_assignment(word: Word | Array) -> bool:
    """Whether a word assigns, where it stands before any command."""
    if isinstance(word, Array):
        return True
    return bool(word) and type(word[0]) is str and _ASSIGNED.match(word[0]) is not None


def _variables(words: list) -> Iterator[Variable]:
    """All expansions in words, those inside others among them."""
    for part in words:
        if isinstance(part, Variable):
            yield part
            yield from _variables(part.word)
        elif isinstance(part, Array):
            yield from _variables(part.words)
        elif isinstance(part, list):
            yield from _variables(part)
