"""The step lines of verl's console log, and where one ends: a terminal may have broken it at its width."""

import re

from rftlab.studies.readers.text import number

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")
STEP = re.compile(r"(?:^|\]|\bit/s|\bs/it)\s*step:(\d{1,12}) - (?=[^\s:]{1,200}(?:\([^)\s]{0,40}\))?:)")
LONGEST_STEP = 1 << 16
"""Characters of a step line that may go on."""
_LONE = re.compile(r"[\d.:e)][\w./@:()+-]*")
"""What may be the rest of a number, alone in a line."""


class StepLine:
    """A step line, and what goes on with it where a terminal broke it at its width."""

    def __init__(self, place: int, step: int, text: str, start: int, width: int, whole: bool):
        self.place, self.step, self.text, self.start, self.width, self.whole = place, step, text, start, width, whole
        self.pieces, self.doubtful = 1, False

    def goes_on(self, line: str) -> bool:
        """Take the next line, if it is the rest of this one."""
        if " " in line.partition(" - ")[0].strip().removeprefix("- "):
            return False  # most lines: a prefix or prose, told before anything is searched
        own = CODES.sub("", line.rstrip("\r\n"))
        if not own or len(self.text) > LONGEST_STEP or len(own) > self.width or STEP.search(own):
            return False
        full = len(own) >= self.width - 2
        gap = " " if (self.text.endswith(" -") and own[0] != " ") or own.startswith("- ") else ""
        joined = self.text + gap + own
        if " " not in own and " " not in gap and self.pieces == 1 and _ends(self.text):
            self.doubtful = _LONE.fullmatch(own) is not None  # whether it is the rest of a number cannot be told
            return False
        if not (_parts(own.removeprefix("- ").removesuffix(" -"), full) and (full or _ends(joined))):
            return False
        self.text, self.whole, self.pieces = joined, line.endswith("\n"), self.pieces + 1
        return True


def _parts(text: str, full: bool) -> bool:
    """Whether a text is the end of one part and further ones, the last of which may be cut where it is `full`."""
    first, *rest = text.split(" - ")
    names = rest[:-1] if full else rest
    return not any(" " in part.strip() for part in (first, *rest)) and all(_named(part) for part in names)


def _named(part: str) -> bool:
    """Whether a part has a name such as verl's, and a number."""
    name, _, value = part.strip().rpartition(":")
    return "/" in name and value_of(value) is not None


def _ends(text: str) -> bool:
    """Whether the last part of a step line has a number at its end."""
    value = text.rpartition(" - ")[2].rpartition(":")[2]
    return not value.endswith(".") and value_of(value) is not None


def value_of(text: str) -> float | None:
    """A number, None of what is none; the usual case first, for speed."""
    try:
        return float(text)
    except ValueError:
        return number(text)
