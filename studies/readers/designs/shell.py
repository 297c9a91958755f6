"""Settings of a trainer in the shell script that started it. The script is taken apart, never run.

A variable counts where the script assigns it exactly once, in any case, to plain text and before it is used.
`${N:-16}` of a variable that the script does not assign is 16 unless the environment sets N. Anything else leaves a
setting unknown, with the reason, and no default takes its place.
"""

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from rftlab.studies.readers.designs.script import COMPUTED, TWICE, UNSET, Launch
from rftlab.studies.readers.designs.values import Fallback, Unknown

DEEPEST, LONGEST = 20, 1 << 22
"""Expansions inside each other; characters of everything that is expanded."""
CONDITION = "which the script sets under a condition, in a loop or in a function"
LATER, SOURCED = "which the script sets only afterwards", "which a file that the script reads may set"
_PLAIN, _QUOTED = re.compile(r"[^\s'\"\\$`;&|()<>]+"), re.compile(r"[^\"\\$`}]+")
_CONTINUED = re.compile(r"\\[ \t\r]*\n")
_BLANK = re.compile(r"[ \t\r\f\v]+|\\[ \t\r]*\n|#[^\n]*")
_SEPARATOR = re.compile(r"&&|\|\||;;|\|&|&(?!>)|[\n;|()]")
_REDIRECTED = re.compile(r"&?[<>]+[&|]?[ \t]*")
_DOCUMENT = re.compile(r"<<(?!<)-?[ \t]*['\"\\]?([^\s'\"\\;&|()<>]{1,100})['\"]?")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z_0-9]*|[0-9@*#?$!-])")
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z_0-9]*|[0-9]{1,9}|[@*])(?:\[[@*]\])?(:?[-=?+]|(?=\}))")
_GROUPED = re.compile(r"\\.|['\"()]", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(\[[^\]]{0,80}\])?(\+?)=")
_FILLED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?:\[[^\]]{0,80}\])?(?:[-+*/%&|^]?=.*)?", re.DOTALL)
_CHANGED = re.compile(r"\b([A-Za-z_]\w{0,60}) ?(?:\+\+|--|[-+*/%&|^]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w{0,60})\b")
_OPENS, _CLOSES = {"if", "for", "while", "until", "case", "select", "{"}, {"fi", "done", "esac", "}"}
_BETWEEN = {"then", "do", "else", "elif", "!", "time"}
_DECLARES = {"export", "local", "declare", "typeset", "readonly"}
_FILLS = {"read", "unset", "mapfile", "readarray", "getopts", "for", "select", "printf", "let"}
_SOURCES, _HARMLESS = {"source", ".", "eval"}, ("activate", "conda.sh")
"""Files that set up an environment of packages change no settings."""
_FLAG = re.compile(r"--([A-Za-z][\w.-]{0,100})(?:=(.{0,1000}))?", re.DOTALL)
_FILES = {"config", "config_path", "config_name", "config_dir"}
"""Flags that name files in which further settings stand."""
_MARK = re.compile("\ue000([0-9]{1,9})\ue001")


class Variable(NamedTuple):
    """An expansion: $N, ${N}, ${N:-word}."""

    name: str
    operator: str
    word: "Word"
    text: str


Word = list[str | Variable | Unknown]


class Command(NamedTuple):
    """A simple command."""

    words: list[Word]
    certain: bool
    """Whether it runs in any case, once, in the script's own shell."""
    changed: tuple[str, ...]
    """Variables that arithmetic in it assigns."""


class _Lexer:
    """The commands of a script. Each character is looked at a few times at most; here-documents are passed over."""

    def __init__(self, text: str):
        self.text, self.at, self.depth = text, 0, 0
        self.commands: list[Command] = []
        self.words: list[Word] = []
        self.changed: list[str] = []
        self.documents: list[str] = []
        self.blocks, self.parentheses, self.chained = 0, 0, False

    def run(self) -> list[Command]:
        """Raises ValueError for expansions that are too deep."""
        while self.at < len(self.text):
            if match := _BLANK.match(self.text, self.at):
                self.at = match.end()
            elif self.text.startswith("((", self.at) and not self.words:
                self._pass_over(self.at)
            elif match := _SEPARATOR.match(self.text, self.at):
                self.at = match.end()
                self._finish(match[0])
            elif match := _DOCUMENT.match(self.text, self.at):
                self.at = match.end()
                self.documents.append(match[1])
            elif match := _REDIRECTED.match(self.text, self.at):  # what it names is no argument
                self.at = match.end()
                if self.text.startswith("(", self.at):
                    self._pass_over(self.at)
                else:
                    self._parts("")
            else:
                self.words.append(self._parts(""))
        self._finish("\n")
        return self.commands

    def _finish(self, separator: str) -> None:
        """The end of a command; reserved words at its start open and close what is conditional."""
        words, self.words = self.words, []
        while words and (first := plain_word(words[0])) in _OPENS | _CLOSES | _BETWEEN:
            self.blocks = max(0, self.blocks + (first in _OPENS) - (first in _CLOSES))
            if first in ("for", "select", "case"):
                break
            words = words[1:]
        if words and plain_word(words[0]) == "function":
            self.blocks += plain_word(words[-1]) == "{"
        certain = not (self.chained or self.blocks or self.parentheses or separator in ("|", "|&", "&"))
        if words or self.changed:
            self.commands.append(Command(words, certain, tuple(self.changed)))
        self.changed = []
        self.chained = separator in ("&&", "||", "|", "|&")
        self.parentheses = max(0, self.parentheses + (separator == "(") - (separator == ")"))
        documents, self.documents = (self.documents, []) if separator == "\n" else ([], self.documents)
        for name in documents:
            end = re.compile(rf"^\t*{re.escape(name)}\r?$", re.MULTILINE).search(self.text, self.at)
            self.at = end.end() if end else len(self.text)

    def _parts(self, close: str) -> Word:
        """The parts of a bare word (close ""), or of what stands up to a closing character, which is passed."""
        parts: Word = [""] if close else []
        plain = _QUOTED if close else _PLAIN
        while self.at < len(self.text):
            character = self.text[self.at]
            if match := plain.match(self.text, self.at):
                parts.append(match[0])
                self.at = match.end()
            elif character == close:
                self.at += 1
                break
            elif not close and (character.isspace() or character in ";&|()<>"):
                if character == "(" and len(parts) == 1 and _ASSIGNED.fullmatch(str(parts[0])):
                    parts += self._array()
                break
            elif character == "\\":
                match = _CONTINUED.match(self.text, self.at)
                parts.append("" if match else self.text[self.at + 1 : self.at + 2])
                self.at = match.end() if match else self.at + 2
            elif character in "$`":
                parts.append(self._expansion(character))
            elif character == '"':
                self.at += 1
                parts += self._parts('"')
            elif character == "'" and not close:
                end = self.text.find("'", self.at + 1)
                end = len(self.text) if end < 0 else end
                parts.append(self.text[self.at + 1 : end])
                self.at = end + 1
            else:
                parts.append(character)
                self.at += 1
        return parts

    def _array(self) -> Word:
        """The words of an array with a blank before each, and the parenthesis behind them."""
        parts: Word = [" "]
        self.at += 1
        self._deeper()
        while self.at < len(self.text) and self.text[self.at] != ")":
            if match := _BLANK.match(self.text, self.at):
                self.at = match.end()
            elif self.text[self.at] in "\n;&|(<>":
                self.at += 1
            else:
                parts += [" ", *self._parts("")]
        self.at += 1
        self.depth -= 1
        return parts

    def _expansion(self, character: str) -> str | Variable | Unknown:
        start = self.at
        if character == "`":
            end = self.text.find("`", start + 1)
            self.at = len(self.text) if end < 0 else end + 1
        elif self.text.startswith("(", start + 1):
            self._pass_over(start + 1)
        elif self.text.startswith("{", start + 1):
            self._deeper()
            match = _PARAMETER.match(self.text, start)
            self.at = match.end() if match else start + 2
            word = self._parts("}")
            self.depth -= 1
            if match:
                return Variable(match[1], match[2], word, self.text[start : self.at])
        elif match := _VARIABLE.match(self.text, start):
            self.at = match.end()
            return Variable(match[1], "", [], match[0])
        else:
            self.at += 1
            return "" if self.text[self.at : self.at + 1] in ("'", '"') else "$"
        return Unknown(self.text[start : self.at], COMPUTED)

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"expansions inside each other, more than {DEEPEST} deep")

    def _pass_over(self, start: int) -> None:
        """Go behind the parenthesis that closes the one at `start`; of arithmetic keep the variables it assigns."""
        depth, quote, end = 0, "", len(self.text)
        for match in _GROUPED.finditer(self.text, start):
            if match[0] in ("'", '"'):
                quote = "" if quote == match[0] else quote or match[0]
            elif not quote and match[0] in ("(", ")"):
                depth += 1 if match[0] == "(" else -1
                if not depth:
                    end = match.end()
                    break
        if self.text.startswith("((", start):
            self.changed += [name for pair in _CHANGED.findall(self.text[start:end]) for name in pair if name]
        self.at = end


def plain_word(word: Word) -> str:
    """A word that is plain text; "" of another one."""
    return "".join(map(str, word)) if all(type(part) is str for part in word) else ""


def _assignment(word: Word) -> re.Match | None:
    """NAME= at the start of a word that assigns, where it stands before any command."""
    return _ASSIGNED.match(word[0]) if word and type(word[0]) is str else None


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


class Shell:
    """A script with its variables. A value is text, in which marks stand for what is unknown or may be otherwise.
    Raises ValueError for a script that expands without end."""

    def __init__(self, text: str):
        self.commands = _Lexer(text.replace("\ue000", "").replace("\ue001", "")).run()
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

    def launches(self) -> Iterator[Launch]:
        """The arguments of every command, in the order in which they run."""
        for place, command in enumerate(self.commands):
            self.place, assigned = place, _assigned(command)
            if len(assigned) < len(command.words) and not _declares(command):
                yield self._launch(" ".join(self._rendered(word) for word in command.words))
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
