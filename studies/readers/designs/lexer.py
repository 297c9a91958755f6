"""Commands and assignments of a shell script, found without running it. Each character is looked at a few times at
most; here-documents are passed over."""

import re
from typing import NamedTuple

from rftlab.studies.readers.designs.script import COMPUTED
from rftlab.studies.readers.designs.values import Unknown

DEEPEST = 20
"""Expansions inside each other."""
_PLAIN, _QUOTED = re.compile(r"[^\s'\"\\$`;&|()<>]+"), re.compile(r"[^\"\\$`}]+")
_CONTINUED = re.compile(r"\\[ \t\r]*\n")
_BLANK = re.compile(r"[ \t\r\f\v]+|\\[ \t\r]*\n|#[^\n]*")
_SEPARATOR = re.compile(r"&&|\|\||;;|\|&|&(?!>)|[\n;|()]")
_REDIRECTED = re.compile(r"&?[<>]+[&|]?[ \t]*")
_DOCUMENT = re.compile(r"<<(?!<)-?[ \t]*['\"\\]?([^\s'\"\\;&|()<>]{1,100})['\"]?")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z_0-9]*|[0-9@*#?$!-])")
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z_0-9]*|[0-9]{1,9}|[@*])(?:\[[@*]\])?(:?[-=?+]|(?=\}))")
_GROUPED = re.compile(r"\\.|['\"()]", re.DOTALL)
ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(\[[^\]]{0,80}\])?(\+?)=")
_CHANGED = re.compile(r"\b([A-Za-z_]\w{0,60}) ?(?:\+\+|--|[-+*/%&|^]?=(?!=))|(?:\+\+|--)([A-Za-z_]\w{0,60})\b")
_OPENS, _CLOSES = {"if", "for", "while", "until", "case", "select", "{"}, {"fi", "done", "esac", "}"}
_BETWEEN = {"then", "do", "else", "elif", "!", "time"}


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


class Lexer:
    """A script, of which `run` gives the commands."""

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
                if character == "(" and len(parts) == 1 and ASSIGNED.fullmatch(str(parts[0])):
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
