"""Settings of a trainer in the shell script that started it. The script is taken apart, never run.

A variable counts where the script assigns it exactly once, in any case, to plain text and before it is used.
`${N:-16}` of a variable that the script does not assign is 16 unless the environment sets N. Anything else leaves a
setting unknown, with the reason, and no default takes its place.
"""

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from rftlab.studies.readers.designs.lexer import ASSIGNED, Command, Lexer, Variable, Word, plain_word
from rftlab.studies.readers.designs.script import COMPUTED, TWICE, UNSET, VERL, Launch, Settings, agreed_settings
from rftlab.studies.readers.designs.values import Fallback, Unknown

LONGEST = 1 << 22
"""Characters of everything that is expanded."""
CONDITION = "which the script sets under a condition, in a loop or in a function"
LATER, SOURCED = "which the script sets only afterwards", "which a file that the script reads may set"
_FILLED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?:\[[^\]]{0,80}\])?(?:[-+*/%&|^]?=.*)?", re.DOTALL)
_DECLARES = {"export", "local", "declare", "typeset", "readonly"}
_FILLS = {"read", "unset", "mapfile", "readarray", "getopts", "for", "select", "printf", "let"}
_SOURCES, _HARMLESS = {"source", ".", "eval"}, ("activate", "conda.sh")
"""Files that set up an environment of packages change no settings."""
_FLAG = re.compile(r"--([A-Za-z][\w.-]{0,100})(?:=(.{0,1000}))?", re.DOTALL)
_FILES = {"config", "config_path", "config_name", "config_dir"}
"""Flags that name files in which further settings stand."""
_MARK = re.compile("\ue000([0-9]{1,9})\ue001")


def _assignment(word: Word) -> re.Match | None:
    """NAME= at the start of a word that assigns, where it stands before any command."""
    return ASSIGNED.match(word[0]) if word and type(word[0]) is str else None


def _declares(command: Command) -> bool:
    return bool(command.words) and plain_word(command.words[0]) in _DECLARES


def _assigned(command: Command) -> list[Word]:
    """The words of a command that assign variables of the script."""
    words = [word for word in command.words if _assignment(word)]
    return words if _declares(command) or len(words) == len(command.words) else []


def _variables(word: Word) -> Iterator[Variable]:
    """All expansions in a word, those inside others among them."""
    for part in word:
        if isinstance(part, Variable):
            yield part
            yield from _variables(part.word)


class _Shell:
    """A script with its variables. A value is text, in which marks stand for what is unknown or may be otherwise.
    Raises ValueError for a script that expands without end."""

    def __init__(self, text: str):
        self.commands = Lexer(text.replace("\ue000", "").replace("\ue001", "")).run()
        self.marks: list[Fallback | Unknown] = []
        self.times: Counter[str] = Counter()
        self.doubt: dict[str, str] = {}
        """Why a variable's value is not known anywhere."""
        self.sources: list[int] = []
        self.values: dict[str, tuple[int, str]] = {}
        """Place of the assignment and text."""
        self.place, self._spent = 0, 0
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for place, command in enumerate(self.commands):
            self._note(place, command, texts)
        twice = (name for name, times in self.times.items() if times > 1 and name not in self.doubt)
        self.maybe = " ".join(text for name in (*self.doubt, *twice) for text in texts[name])
        """Texts that arguments may stand for."""
        self.maybe_names = {name.strip("-+").replace("-", "_") for name in re.findall(r"[\w.+-]+", self.maybe)}

    def launches(self) -> list[Launch]:
        """The arguments of every command, in the order in which they run; a line that holds arguments alone belongs to
        the one before. Last what the script assigns, for a list of settings looks like that."""
        texts: list[list[str]] = []
        for place, command in enumerate(self.commands):
            self.place, assigned = place, _assigned(command)
            if len(assigned) < len(command.words) and not _declares(command):
                text = " ".join(self._rendered(word) for word in command.words)
                if texts and (text.startswith("--") or VERL.match(text.lstrip("+"))):
                    texts[-1].append(text)
                else:
                    texts.append([text])
                continue
            for word in assigned:
                match = _assignment(word)
                assert match is not None
                name = match[1]
                text = self._rendered([match.string[match.end() :], *word[1:]], name)
                if match[3]:
                    before = self.values.get(name)
                    text = (before[1] if before else self._marked(Unknown(f"${name}", UNSET))) + text
                self.values[name] = self.place, text
        self.place = len(self.commands)
        settings = {
            name: self._setting(self._marked(self._value(Variable(name, "", [], f"${name}"), "")))
            for name in self.times
        }
        return [*(self._launch(" ".join(parts)) for parts in texts), Launch(settings, [])]

    def _note(self, place: int, command: Command, texts: dict[str, list[str]]) -> None:
        """Count what a command assigns, and why that may not hold."""
        words, names = command.words, []
        for word in _assigned(command):
            match = _assignment(word)
            assert match is not None
            names.append(match[1])
            self.times[match[1]] += not match[3]
            texts[match[1]].append("".join(part.text if isinstance(part, Variable) else part for part in word))
            if match[2]:
                self.doubt[match[1]] = COMPUTED
        defaults = {one.name for word in words for one in _variables(word) if one.operator.endswith("=")} - {*names}
        self.times.update(defaults)
        for name in () if command.certain else (*names, *defaults):
            self.doubt.setdefault(name, CONDITION)
        filled = [*command.changed]
        first, second = (plain_word(words[i]) if len(words) > i else "" for i in (0, 1))
        if first in _FILLS and (first != "printf" or second == "-v"):
            targets = words[1:2] if first in ("for", "select") else words[1:]
            filled += [match[1] for word in targets if (match := _FILLED.fullmatch(plain_word(word)))]
        self.doubt |= dict.fromkeys(filled, COMPUTED)
        exported = _declares(command) and not all(_assignment(word) or plain_word(word) for word in words[1:])
        if exported or (first in _SOURCES and not second.endswith(_HARMLESS)):
            self.sources.append(place)

    def _rendered(self, word: Word, own: str = "") -> str:
        """The text of a word. own: the variable whose value it is."""
        parts = [self._value(part, own) if isinstance(part, Variable) else part for part in word]
        text = "".join(map(self._marked, parts))
        self._spent += len(text)
        if self._spent > LONGEST:
            raise ValueError(f"its variables expand to more than {LONGEST} characters")
        return text

    def _marked(self, value: str) -> str:
        if not isinstance(value, Fallback | Unknown):
            return value
        self.marks.append(value)
        return f"\ue000{len(self.marks) - 1}\ue001"

    def _setting(self, raw: str) -> str:
        """A setting: plain text, or text that holds unless something else is said, or unknown text."""
        marks = [self.marks[int(number)] for number in _MARK.findall(raw)]
        text = _MARK.sub(lambda match: str(self.marks[int(match[1])]), raw).strip("\"', ")
        unknown = next((mark for mark in marks if isinstance(mark, Unknown)), None)
        if unknown is not None:
            return Unknown(text, unknown.why)
        return Fallback(text, "; ".join(dict.fromkeys(mark.why for mark in marks))) if marks else text

    def _value(self, variable: Variable, own: str) -> str:
        operator, written = variable.operator.lstrip(":"), variable.text
        known = Unknown(written, COMPUTED) if operator == "+" else self._known(variable, own)
        if known is not None:
            return known
        if operator not in ("-", "="):
            return Unknown(written, UNSET)
        name, value = variable.name, self._setting(self._rendered(variable.word, own))
        if isinstance(value, Unknown):
            value = Unknown(written, value.why)
        else:
            what = f"the script's argument {name} is given" if name.isdigit() else f"{name} is set in the environment"
            value = Fallback(value, f"unless {what}" + (f", and {value.why}" if isinstance(value, Fallback) else ""))
        if operator == "=":
            self.values[name] = self.place, self._marked(value)
        return value

    def _known(self, variable: Variable, own: str) -> str | None:
        """The value of a variable; None where the script leaves it to the environment."""
        name, written = variable.name, variable.text
        place, text = self.values.get(name, (-1, ""))
        if name in "#?$!-" or name in self.doubt:
            return Unknown(written, self.doubt.get(name, COMPUTED))
        if name.isdigit() and not self.commands[self.place].certain:
            return Unknown(written, CONDITION)  # of a function perhaps
        if self.times[name] > 1:
            return Unknown(written, TWICE)
        sourced = bisect(self.sources, self.place - 1) > bisect(self.sources, place)
        if sourced and name not in "@*":
            return Unknown(written, SOURCED)
        if place >= 0:
            whole = self._setting(text) if _MARK.fullmatch(text) else text
            return Unknown(written, whole.why) if isinstance(whole, Unknown) else whole
        later = self.times[name] and own != name and not variable.operator.endswith("=")
        return Unknown(written, LATER) if later else None

    def _launch(self, text: str) -> Launch:
        """The arguments of a command. Where some are hidden, what they may state again is unknown."""
        settings: dict[str, Any] = {}
        hidden: list[str] = []
        tokens, started = iter(text.split()), False
        token = next(tokens, None)
        while token is not None:
            token, following = token.strip("\"'"), next(tokens, None)
            flag, known = _FLAG.fullmatch(token), self._setting(token)
            if flag:
                name, value = flag[1].replace("-", "_"), flag[2]
                if value is None and following is not None and not following.startswith("--"):
                    value = following
                    if "--" in self.maybe and isinstance(self._setting(value), Unknown):
                        hidden.append(str(self._setting(value)))
                    following = next(tokens, None)
                settings[name] = "true" if value is None else self._setting(value)
                if name in _FILES:
                    hidden.append(f"--{flag[1]} {settings[name]}")
            elif "=" in token:
                name, value = token.split("=", 1)
                settings[name.lstrip("+~")] = self._setting(value)
            elif isinstance(known, Unknown) and started:
                hidden.append(known.strip('"{}').replace("${", "$"))
            started = started or token.endswith(".py") or token == "-m" or bool(settings)
            token = following
        for name in self.maybe_names & settings.keys() if hidden else ():
            settings[name] = Unknown(settings[name], f"which {hidden[0]} may state again")
        return Launch(settings, hidden)


def shell_settings(text: str) -> Settings:
    """Settings of a shell script; none where it starts no known trainer. Raises ValueError for one that expands
    without end."""
    *launches, assigned = _Shell(text).launches()
    return agreed_settings(launches) or agreed_settings([assigned])
