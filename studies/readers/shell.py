"""Commands and assignments of a shell script, found without running it. Each character is looked at once."""

import re
from typing import NamedTuple

from rftlab.studies.readers.designs.values import Unknown

DEEPEST = 20
"""Expansions inside each other."""
COMPUTED = "which cannot be told without running the script"
_PLAIN, _QUOTED = re.compile(r"[^\s'\"\\$`;&|()<>]+"), re.compile(r"[^\"\\$`}]+")
_NAME, _SPECIAL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9]"), "@*#?$!-"
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z_0-9]*|[0-9]{1,9}|[@*])(?:\[[@*]\])?(:?[-=?+]|(?=\}))")
_SEPARATOR = re.compile(r"&&|\|\||;;|\|&|[\n;&|()]")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\+?=")
_DOCUMENT = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([^\s'\"\\;&|()<>]{1,100})['\"]?")
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


class Array(NamedTuple):
    """NAME=(words), as a word of a command."""

    name: str
    words: list[Word]


class Command(NamedTuple):
    """A simple command; a here-document is one without a name."""

    words: list[Word | Array]
    certain: bool
    """Whether it runs in any case, once, in the script's own shell."""
    changed: tuple[str, ...]
    """Variables that arithmetic in it assigns."""
    document: bool = False


def commands_of(text: str) -> list[Command]:
    """The commands of a script in their order. Raises ValueError for expansions that are too deep."""
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str):
        self.text, self.at, self.depth = text, 0, 0
        self.found: list[Command] = []
        self.words: list[Word | Array] = []
        self.changed: list[str] = []
        self.documents: list[tuple[str, bool, bool]] = []
        self.blocks, self.parentheses, self.chained = 0, 0, False

    def run(self) -> list[Command]:
        while self.at < len(self.text):
            self._step()
        self._finish("\n")
        return self.found

    def _step(self) -> None:
        character = self.text[self.at]
        separator = _SEPARATOR.match(self.text, self.at)
        if character in " \t\r\f\v":
            self.at += 1
        elif character == "\\" and self._continued():
            self.at = self._continued()
        elif character == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif self.text.startswith("((", self.at) and not self.words:
            self._arithmetic(self._enclosed(self.at))
        elif separator:
            self.at = separator.end()
            self._finish(separator[0])
        elif character in "<>" or self.text.startswith("&>", self.at):
            self._redirected()
        else:
            self.words.append(self._word())

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
            self.found.append(Command(words, certain, tuple(self.changed)))
        self.changed = []
        self.chained = separator in ("&&", "||", "|", "|&")
        self.parentheses = max(0, self.parentheses + (separator == "(") - (separator == ")"))
        if separator == "\n":
            self._read_documents()

    def _continued(self) -> int:
        """Where the text goes on after a backslash that ends a line, blanks allowed behind it; 0 of another one."""
        end = self.at + 1
        while end < len(self.text) and self.text[end] in " \t\r":
            end += 1
        return end + 1 if end < len(self.text) and self.text[end] == "\n" else 0

    def _redirected(self) -> None:
        """A redirection; what it names is no argument."""
        document = _DOCUMENT.match(self.text, self.at)
        if document and not self.text.startswith("<<<", self.at):
            self.documents.append((document[3], not document[2], bool(document[1])))
            self.at = document.end()
            return
        while self.at < len(self.text) and self.text[self.at] in "<>&|":
            self.at += 1
        if self.text.startswith("(", self.at):
            self.at = self._enclosed(self.at)
            return
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at < len(self.text) and not self.text[self.at].isspace():
            self._word()

    def _read_documents(self) -> None:
        """Here-documents that the line before announced."""
        waiting, self.documents = self.documents, []
        for name, expanded, indented in waiting:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line, self.at = self.text[self.at : end], end + 1
                if (line.lstrip("\t") if indented else line).rstrip("\r") == name:
                    break
                lines.append(line)
            body = "\n".join(lines)
            inside = _Lexer(body)
            word: Word = inside.quoted("") if expanded else [body]
            self.found.append(Command([word], False, tuple(inside.changed), document=True))

    def _word(self) -> Word | Array:
        """A word: up to a blank or a separator that no quotes hold."""
        parts: Word = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if found := _PLAIN.match(self.text, self.at):
                parts.append(found[0])
                self.at = found.end()
            elif character == "(" and len(parts) == 1 and _ARRAY.fullmatch(plain_word(parts)):
                return Array(plain_word(parts), self._array())
            elif character.isspace() or character in ";&|()<>":
                break
            else:
                parts += self._special(character)
        return parts

    def _array(self) -> list[Word]:
        """The words of an array, and the parenthesis behind them."""
        found: list[Word] = []
        self.at += 1
        self._deeper()
        while self.at < len(self.text) and self.text[self.at] != ")":
            character = self.text[self.at]
            if character.isspace() or character in ";&|(<>":
                self.at += 1
            elif character == "\\" and self._continued():
                self.at = self._continued()
            elif character == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                word = self._word()
                found += [word] if isinstance(word, list) else word.words
        self.at += 1
        self.depth -= 1
        return found

    def _special(self, character: str) -> Word:
        """Quotes, a backslash or an expansion."""
        if character == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            found, self.at = self.text[self.at + 1 : end], end + 1
            return [found]
        if character == '"':
            self.at += 1
            return self.quoted('"')
        if character == "\\":
            end = self._continued()
            found = "" if end else self.text[self.at + 1 : self.at + 2]
            self.at = end or self.at + 2
            return [found]
        return self._expansion(character)

    def quoted(self, close: str) -> Word:
        """What stands up to a closing character, or up to the end of the text."""
        parts: Word = [""]
        while self.at < len(self.text):
            character = self.text[self.at]
            if found := _QUOTED.match(self.text, self.at):
                parts.append(found[0])
                self.at = found.end()
            elif character == close:
                self.at += 1
                break
            elif character in "$`":
                parts += self._expansion(character)
            elif character == "\\" or (character == '"' and close == "}"):
                parts += self._special(character)
            else:
                parts.append(character)
                self.at += 1
        return parts

    def _expansion(self, character: str) -> Word:
        start = self.at
        if character == "`":
            end = self.text.find("`", start + 1)
            self.at = len(self.text) if end < 0 else end + 1
            return [self._computed(start)]
        following = self.text[start + 1 : start + 2]
        if following == "(":
            self._arithmetic(self._enclosed(start + 1))
            return [self._computed(start)]
        if following == "{":
            return [self._parameter(start)]
        if following in ("'", '"') and following:
            self.at += 1
            return []
        name = _NAME.match(self.text, start + 1)
        if not name and not (following and following in _SPECIAL):
            self.at += 1
            return ["$"]
        self.at = name.end() if name else start + 2
        return [Variable(self.text[start + 1 : self.at], "", [], self.text[start : self.at])]

    def _parameter(self, start: int) -> Variable | Unknown:
        self._deeper()
        found = _PARAMETER.match(self.text, start + 2)
        self.at = found.end() if found else start + 2
        word = self.quoted("}")
        self.depth -= 1
        if not found:
            return self._computed(start)
        return Variable(found[1], found[2], word, self.text[start : self.at])

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"expansions inside each other, more than {DEEPEST} deep")

    def _computed(self, start: int) -> Unknown:
        return Unknown(self.text[start : self.at], COMPUTED)

    def _enclosed(self, start: int) -> int:
        """Behind the parenthesis that closes the one at `start`."""
        depth, quote = 0, ""
        for found in _GROUPED.finditer(self.text, start):
            if found[0] in ("'", '"'):
                quote = "" if quote == found[0] else quote or found[0]
            elif not quote and found[0] in ("(", ")"):
                depth += 1 if found[0] == "(" else -1
                if not depth:
                    return found.end()
        return len(self.text)

    def _arithmetic(self, end: int) -> None:
        """Text up to `end`, which is passed over; of arithmetic the variables that it assigns."""
        text = self.text[self.at : end]
        if "((" in text[:3]:
            self.changed += [name for pair in _CHANGED.findall(text) for name in pair if name]
        self.at = end


_GROUPED = re.compile(r"\\.|['\"()]", re.DOTALL)


def plain_word(word: Word | Array) -> str:
    """A word that is plain text; "" of another one."""
    if isinstance(word, Array) or not all(type(part) is str for part in word):
        return ""
    return "".join(part for part in word if isinstance(part, str))
