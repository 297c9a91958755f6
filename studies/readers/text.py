"""Read text files of other programs: their kind, encoding, lines and numbers. Every read has a limit of size."""

import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import FILE, FOLDER, LINK, path_kind

HEAD, FURTHER = 1 << 18, 1 << 23
"""Bytes of a file from which its format is recognised; the second where printed responses fill the first."""
LARGEST = 4 << 30
"""Largest size in bytes of a log, which is read line by line."""
LONGEST = 1 << 20
"""Largest number of characters in a line."""
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_KINDS = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "compressed (gzip)",
    b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"BZh": "compressed (bzip2)",
    b"%PDF": "a PDF",
    b"\x89PNG": "an image",
    b"\x80\x02": "a Python pickle, which is never loaded",
    b"\x80\x04": "a Python pickle, which is never loaded",
}
_HTML = re.compile(r"<(!doctype\s{1,9}html|html|head|body)\b", re.IGNORECASE)
PROGRESS = "global_step/max_steps"
"""ms-swift's name for the step and the number of steps, such as 31/94."""
BORDERS = ("\u2502", "\u2503", "|")
"""First characters of a line in a printed table, whose texts a model may have written."""
LONGEST_NUMBER = 400
"""Largest number of characters in a number; a longer text is none."""
_GROUPS = re.compile(r"[-+]?[1-9][0-9]{0,2}(\.[0-9]{3})+")
"""Text with points between thousands, or before decimals, which is ambiguous where decimals follow a comma."""
LARGEST_STEP = 10**9 - 1
"""Largest step. Seconds since 1970, which some logs have in the place of steps, are larger."""
ALLOWED = (
    "a console log of verl, TRL or NeMo-RL, a Jupyter notebook, a W&B export or offline run, a project of Trackio, "
    "TensorBoard events, trainer_state.json, JSON, JSON lines, CSV, Parquet, a folder of rftlab train, lines that come "
    "again with a step and a metric, any other with --reader FILE:FUNCTION"
)


class Head(NamedTuple):
    """The start of a file, by which formats recognise it."""

    path: Path
    raw: bytes
    text: str
    """Decoded start; "" where the file is no text."""
    lines: list[str]
    """Lines as `read_lines` divides them, without their ends. The last may be cut, the first only beyond `LONGEST`."""
    encoding: str


def read_head(path: Path, size: int = HEAD) -> Head:
    """Read the start of a file, of `size` bytes. Raises UserError where it is no file, or can hold no log."""
    check_file(path)
    with path.open("rb") as file:
        raw = file.read(size)
        raw += b"" if b"\n" in raw or b"\r" in raw else file.readline(LONGEST)
    encoding = detect_encoding(raw)
    text = raw.decode(encoding, "replace") if encoding else ""
    check(not is_page(text[:4096]), f"{path} is a web page (HTML), not a log; allowed: {ALLOWED}")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    return Head(path, raw, text, lines, encoding)


def is_page(text: str) -> bool:
    """Whether a text begins as a web page, comments aside."""
    text = text.lstrip()
    while text.startswith("<!--"):
        text = text.partition("-->")[2].lstrip()
    return _HTML.match(text) is not None


def check_file(path: Path, allowed: str = ALLOWED) -> None:
    """Raise UserError unless a user's path is a file of a size that can be read; a link that the user named is
    followed."""
    kind = path_kind(path)
    if kind == LINK:
        kind = FOLDER if path.is_dir() else FILE if path.is_file() else kind
    check(kind is not None, f"{path} does not exist; allowed: {allowed}")
    check(kind == FILE, f"{path} is {kind}, not a file; allowed: {allowed}")
    size = path.stat().st_size
    check(size > 0, f"{path} is empty; allowed: {allowed}")  # as are files that are a window on the machine
    check(size <= LARGEST, f"{path} has {size} bytes; allowed: at most {LARGEST}")


def detect_encoding(raw: bytes) -> str:
    """Return the encoding of a text by its start; "" where it is no text."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return name
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros = raw[start::2].count(0)
        if len(raw) > 8 and zeros > 0.4 * len(raw) and raw[1 - start :: 2].count(0) < 0.02 * len(raw):
            return name
    odd = sum(raw.count(code) for code in range(32) if code not in (7, 8, 9, 10, 12, 13, 27))
    if any(raw.startswith(kind) for kind in _KINDS) or odd > 0.05 * len(raw):
        return ""
    try:
        raw[: -4 if len(raw) >= HEAD else None].decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8" if error.start > len(raw) - 4 else "latin-1"
    return "utf-8"


def kind_named(raw: bytes) -> str:
    """Return the kind of a file that is no text, in words."""
    return next((words for start, words in _KINDS.items() if raw.startswith(start)), "binary")


@contextmanager
def opened_text(path: Path, encoding: str, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text to be read line by line. Bytes that cannot be decoded become U+FFFD, which is part of no number."""
    with path.open("rb") as file:
        yield io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=newline)


def read_lines(head: Head) -> Iterator[tuple[int, str, bool]]:
    """Yield for each line of a file its number, its text with the end, and whether it is whole. A line that is too long
    is cut, and counts as not whole."""
    with opened_text(head.path, head.encoding) as stream:
        number = 0
        while line := stream.readline(LONGEST):
            number += 1
            line = shown_nulls(line)
            whole = line.endswith("\n")
            if not whole and len(line) == LONGEST:
                while (rest := stream.readline(LONGEST)) and not rest.endswith("\n"):
                    pass
            yield number, line, whole


def shown_nulls(line: str) -> str:
    """Return a line with U+FFFD, which is part of no number, for zero bytes: holes of a file that was not written
    whole."""
    return line.replace("\0", "\ufffd")


def encoding_note(encoding: str) -> list[str]:
    """Return the note on an encoding that is not UTF-8."""
    return [f"read as {encoding}, not UTF-8"] if encoding.startswith(("latin", "utf-16", "utf-32")) else []


def read_number(text: str, comma: bool = False) -> float | None:
    """Return a number as logs write it, None where a text is none: 12.5, 1e-6, np.float64(0.5), 37 %. comma: whether a
    comma is the decimal sign; 0,5 is a number then, and 1.234 is none, because it may be thousands.

    nan and inf are numbers. Per cent become fractions.
    """
    if len(text) > LONGEST_NUMBER and len(text := text.strip()) > LONGEST_NUMBER:
        return None
    if comma and _GROUPS.fullmatch(text.strip().strip("\"'")):
        return None
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        pass
    text = text.strip().strip("\"'").strip()
    if text.startswith("np.") and text.endswith(")"):
        text = text[text.find("(") + 1 : -1].strip("'\"")
    bare = text.removesuffix("%").strip()
    bare = bare.replace(",", ".") if comma and bare.count(",") == 1 and "." not in bare else bare
    try:
        return float(bare) / (100 if text.endswith("%") else 1) if "_" not in bare else None
    except ValueError:
        return None


def once(values: dict[str, float], name: str, value: float) -> None:
    """Add a named value to those of a record; nan where the record has another value of this name, because it is
    unknown which one is meant."""
    values[name] = value if values.get(name, value) == value else math.nan


def finite_number(value: Any) -> float | None:
    """Return a finite number or truth value of a record as a float; None for anything else."""
    if not isinstance(value, bool | int | float) or abs(value) >= 10**300 or value != value:
        return None
    return float(value)


def step_in(text: str) -> float:
    """Return the step in a text such as "31/94", as ms-swift writes it; nan where there is none."""
    step = text.partition("/")[0].strip()
    return float(step) if step.isascii() and step.isdigit() and len(step) < 11 else math.nan


def read_step(text: str, comma: bool = False) -> int | None:
    """Return the step in a cell; None where it holds none, such as a per cent."""
    return None if text.rstrip("\"' ").endswith("%") else whole(read_number(text, comma))


def whole(value: float | None) -> int | None:
    """Return a number as a step if it is whole and from 0 to `LARGEST_STEP`; else None."""
    return int(value) if value is not None and 0 <= value <= LARGEST_STEP and value == int(value) else None
