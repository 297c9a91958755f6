"""Read settings of a trainer from the shell script that started it. The script is parsed, never run.

A variable counts where the script assigns it exactly once, under no condition, to plain text and before it is used.
`${N:-16}` of a variable that the script does not assign is 16 unless the environment sets N. Anything else leaves a
setting unknown, with the reason, and no default takes its place.
"""

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from rftlab.studies.readers.designs.script import COMPUTED, TWICE, UNSET, VERL, Launch, Settings, agreed_settings
from rftlab.studies.readers.designs.values import Fallback, Unknown

LONGEST, DEEPEST = 1 << 16, 20
"""Largest number of characters in a word with its variables, and of expansions inside each other."""
CONDITION = "which the script sets under a condition, in a loop or in a function"
LATER, SOURCED = "which the script sets only afterwards", "which a file that the script reads may set"
_DECLARES = {"export", "local", "declare", "typeset", "readonly"}
_FILLS = {"read", "unset", "mapfile", "readarray", "getopts", "for", "select", "printf", "let"}
_SOURCES, _HARMLESS = {"source", ".", "eval"}, ("activate", "conda.sh")
"""Commands that read other files, and ends of the names of files that only set up an environment of packages."""
_OPENS, _CLOSES = {"if", "for", "while", "until", "case", "select", "{"}, {"fi", "done", "esac", "}"}
_BETWEEN = {"then", "do", "else", "elif", "!", "time"}
_INSIDE = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
"""Pattern of parentheses, which may have others in them."""
_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\f\v]+|\\[ \t\r]*\n|#[^\n]*)"
    rf"|(?P<arithmetic>\({_INSIDE}\))"
    r"|<<(?!<)-?[ \t]*['\"\\]?(?P<document>[^\s'\"\\;&|()<>]{1,100})['\"]?"
    rf"|(?P<redirect>&?[<>]+[&|]?[ \t]*(?:{_INSIDE}|[^\s;&|()<>]*))"
    r"|(?P<end>&&|\|\||;;|\|&|[\n;|()&])"
    rf"|(?P<word>(?:'[^']*'?|\"(?:\\.|[^\"\\])*\"?|\\.|\${_INSIDE}|\${{[^{{}}\n]*}}|`[^`]*`?|[^\s;&|()<>'\"\\])+|.)",
    re.DOTALL,
)
_QUOTED = re.compile(r"'([^']*)'?|\\(.?)|\"", re.DOTALL)
_VARIABLE = re.compile(
    rf"\$(?:{_INSIDE}|([A-Za-z_]\w*|[0-9@*#?$!-])|"
    r"\{([A-Za-z_]\w*|[0-9]{1,9}|[@*])(?:\[[@*]\])?(?:(:?[-=?+])([^{}$`]*))?\}|\{[^{}$`]*\})|`[^`]*`?"
)
_KEPT = re.compile(r"\$\{([A-Za-z_]\w*):?=")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^\]]{0,80}\])?(\+?)=")
_CHANGED = re.compile(r"\b([A-Za-z_]\w{0,60}) ?(?:\+\+|--|[-+*/%&|^]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w{0,60})\b")
_FILLED = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]{0,80}\])?(?:[-+*/%&|^]?=.*)?", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w.-]{0,100})(?:=(.{0,1000}))?", re.DOTALL)
_FILES = {"config", "config_path", "config_name", "config_dir"}
"""Flags that name files in which further settings stand."""
_MARK, _DOLLAR = re.compile("\ue000([0-9]{1,9})\ue001"), "\ue002"
"""Replacements for a value that is not plain, and for a dollar that begins no variable."""


class _Command(NamedTuple):
    """Simple command of a shell script."""

    words: list[str]
    """Words as they are written, with their quotes; an array is one word, NAME= with its parts."""
    certain: bool
    """Whether it always runs, once, and in the script's own shell."""
    changed: list[str]
    """Variables that arithmetic in it assigns."""

    @property
    def declares(self) -> bool:
        """Whether it declares variables, as export does."""
        return bool(self.words) and self.words[0] in _DECLARES

    @property
    def assigned(self) -> list[re.Match[str]]:
        """Beginnings of words that assign variables of the script."""
        matches = [match for word in self.words if (match := _ASSIGNED.match(word))]
        return matches if self.declares or len(matches) == len(self.words) else []


def _commands(text: str) -> Iterator[_Command]:
    """Yield the commands of a script in their order, without here-documents."""
    words: list[str] = []
    changed: list[str] = []
    documents: list[str] = []
    at, last, blocks, parentheses, chained, array = 0, -1, 0, 0, False, False
    text += "\n"
    while at < len(text) and (match := _TOKEN.match(text, at)):
        kind, token, start, at = match.lastgroup, match[0], at, match.end()
        if kind == "document":
            documents.append(match["document"])
        elif kind == "arithmetic" and not words:
            changed += _names(token)
        elif array and kind in ("word", "end"):
            array = token != ")"
            words[-1] += f" {token}" if kind == "word" else ""
        elif kind == "word":
            words.append(token)
            changed += _names(token) if "$((" in token else []
            last = at
        elif token == "(" and start == last and _ASSIGNED.fullmatch(words[-1]):
            array = True
        elif kind in ("end", "arithmetic"):
            while words and (first := words[0]) in _OPENS | _CLOSES | _BETWEEN:
                blocks = max(0, blocks + (first in _OPENS) - (first in _CLOSES))
                if first in ("for", "select", "case"):
                    break
                del words[0]
            blocks += bool(words) and words[0] == "function" and words[-1] == "{"
            if words or changed:
                alone = chained or blocks or parentheses or token in ("|", "|&", "&")
                yield _Command(words, not alone, changed)
            words, changed, chained = [], [], token in ("&&", "||", "|", "|&")
            parentheses = max(0, parentheses + (token == "(") - (token == ")"))
            if token == "\n":
                for name in documents:
                    end = re.compile(rf"^\t*{re.escape(name)}\r?$", re.MULTILINE).search(text, at)
                    at = end.end() if end else len(text)
                documents = []


def _names(text: str) -> list[str]:
    return [name for pair in _CHANGED.findall(text) for name in pair if name]


def _unquoted(word: str) -> str:
    """Return a word without its quotes; a quoted dollar is replaced, because it begins no variable."""

    def plain(match: re.Match) -> str:
        text = match[1] if match[1] is not None else match[2] or ""
        return text.replace("\n", "" if match[2] else "\n").replace("$", _DOLLAR)

    return _QUOTED.sub(plain, word)


class _Shell:
    """Shell script with its variables. Marks in the text of a value stand for what is unknown or may be otherwise."""

    def __init__(self, text: str):
        self.commands = list(_commands(re.sub("[\ue000-\ue002]", "", text)))
        self.marks: list[Fallback | Unknown] = []
        self.times: Counter[str] = Counter()
        self.doubt: dict[str, str] = {}
        """Reasons why the value of a variable is known nowhere."""
        self.sources: list[int] = []
        self.values: dict[str, tuple[int, str]] = {}
        """Place of the assignment to a variable, and its text."""
        self.place = 0
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for place, command in enumerate(self.commands):
            self._note(place, command, texts)
        twice = (name for name, times in self.times.items() if times > 1 and name not in self.doubt)
        self.maybe = " ".join(text for name in (*self.doubt, *twice) for text in texts[name])
        """Texts of variables whose value is uncertain, which arguments may stand for."""
        self.maybe_names = {name.strip("-+").replace("-", "_") for name in re.findall(r"[\w.+-]+", self.maybe)}

    def launches(self) -> list[Launch]:
        """Return the arguments of every command, in the order in which they run, and last what the script assigns,
        since a list of settings looks like that. A line that holds arguments alone belongs to the command before."""
        texts: list[list[str]] = []
        for place, command in enumerate(self.commands):
            self.place, assigned = place, command.assigned
            if len(assigned) < len(command.words) and not command.declares:
                text = " ".join(map(self._rendered, command.words))
                if texts and (text.startswith("--") or VERL.match(text.lstrip("+"))):
                    texts[-1].append(text)
                else:
                    texts.append([text])
                continue
            for match in assigned:
                name, text = match[1], self._rendered(match.string[match.end() :], match[1])
                if match[3]:
                    before = self.values.get(name)
                    text = (before[1] if before else self._marked(Unknown(f"${name}", UNSET))) + text
                self.values[name] = self.place, text
        self.place = len(self.commands)
        settings = {name: self._setting(self._rendered(f"${name}")) for name in self.times}
        return [*(self._launch(" ".join(parts)) for parts in texts), (settings, [])]

    def _note(self, place: int, command: _Command, texts: dict[str, list[str]]) -> None:
        """Count the variables that a command assigns, and note why their values may not hold."""
        words, names = command.words, []
        for match in command.assigned:
            names.append(match[1])
            self.times[match[1]] += not match[3]
            texts[match[1]].append(match.string[match.end() :])
            if match[2]:
                self.doubt[match[1]] = COMPUTED
        defaults = {name for word in words for name in _KEPT.findall(word)} - {*names}
        self.times.update(defaults)
        for name in () if command.certain else (*names, *defaults):
            self.doubt.setdefault(name, CONDITION)
        filled = [*command.changed]
        first, second = (words[i] if len(words) > i else "" for i in (0, 1))
        if first in _FILLS and (first != "printf" or second == "-v"):
            targets = words[1:2] if first in ("for", "select") else words[1:]
            filled += [target[1] for word in targets if (target := _FILLED.fullmatch(word))]
        self.doubt |= dict.fromkeys(filled, COMPUTED)
        exported = command.declares and any("$" in word and not _ASSIGNED.match(word) for word in words)
        if exported or (first in _SOURCES and not _unquoted(second).endswith(_HARMLESS)):
            self.sources.append(place)

    def _rendered(self, word: str, own: str = "") -> str:
        """Return the text of a word with its variables expanded. own: the variable whose value it is."""
        text = _unquoted(word)
        for _ in range(DEEPEST):
            text, count = _VARIABLE.subn(lambda match: self._marked(self._value(match, own)), text)
            if len(text) > LONGEST:
                return self._marked(Unknown(word, COMPUTED))
            if not count:
                return text.replace(_DOLLAR, "$")
        return self._marked(Unknown(word, COMPUTED))

    def _marked(self, value: str) -> str:
        if not isinstance(value, Fallback | Unknown):
            return value
        self.marks.append(value)
        return f"\ue000{len(self.marks) - 1}\ue001"

    def _setting(self, raw: str) -> str:
        """Return a setting: plain text, text that holds unless something else is said, or unknown text."""
        marks = [self.marks[int(number)] for number in _MARK.findall(raw)]
        text = _MARK.sub(lambda match: str(self.marks[int(match[1])]), raw).strip("\"', ")
        unknown = next((mark for mark in marks if isinstance(mark, Unknown)), None)
        if unknown is not None:
            return Unknown(text, unknown.why)
        return Fallback(text, "; ".join(dict.fromkeys(mark.why for mark in marks))) if marks else text

    def _value(self, match: re.Match, own: str) -> str:
        name, written, operator = match[1] or match[2], match[0], (match[3] or "").lstrip(":")
        if not name or operator == "+":
            return Unknown(written, COMPUTED)
        known = self._known(name, written, own, operator)
        if known is not None:
            return known
        if operator not in ("-", "="):
            return Unknown(written, UNSET)
        value = self._setting(match[4])
        if isinstance(value, Unknown):
            value = Unknown(written, value.why)
        else:
            what = f"the script's argument {name} is given" if name.isdigit() else f"{name} is set in the environment"
            value = Fallback(value, f"unless {what}" + (f", and {value.why}" if isinstance(value, Fallback) else ""))
        if operator == "=":
            self.values[name] = self.place, self._marked(value)
        return value

    def _known(self, name: str, written: str, own: str, operator: str) -> str | None:
        """Return the value of a variable; None where the script leaves it to the environment."""
        place, text = self.values.get(name, (-1, ""))
        if name in "#?$!-" or name in self.doubt:
            return Unknown(written, self.doubt.get(name, COMPUTED))
        if name.isdigit() and not self.commands[self.place].certain:
            return Unknown(written, CONDITION)  # perhaps a function's argument
        if self.times[name] > 1:
            return Unknown(written, TWICE)
        sourced = bisect(self.sources, self.place - 1) > bisect(self.sources, place)
        if sourced and name not in "@*":
            return Unknown(written, SOURCED)
        if place >= 0:
            whole = self._setting(text) if _MARK.fullmatch(text) else text
            return Unknown(written, whole.why) if isinstance(whole, Unknown) else whole
        later = self.times[name] and own != name and operator != "="
        return Unknown(written, LATER) if later else None

    def _launch(self, text: str) -> Launch:
        """Return the settings of a command, and its arguments that hide others. A setting that these may repeat is
        unknown."""
        settings: dict[str, Any] = {}
        hidden: list[str] = []
        tokens, started = iter(text.split()), False
        token = next(tokens, None)
        while token is not None:
            token, following = token.strip("\"'"), next(tokens, None)
            flag, known = _FLAG.fullmatch(token), self._setting(token)
            if flag:
                name, value = flag[1].replace("-", "_"), flag[2]
                setting = following and VERL.fullmatch(following.lstrip("+~\"'").partition("=")[0])
                if value is None and following is not None and not following.startswith("--") and not setting:
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
        return settings, hidden


def shell_settings(text: str) -> Settings:
    """Return the settings of a shell script; none where it starts no known trainer."""
    *launches, assigned = _Shell(text).launches()
    return agreed_settings(launches) or agreed_settings([assigned])
