"""Read the common parts of text tables: separators, decimal commas, cut rows, and columns that the user names."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.readers.text import LONGEST, Head, encoding_note, opened_text, read_number, shown_nulls

FORMAT, SEPARATORS = "table", {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MISSING = ("", "nan", "na", "none", "null")
"""Texts of a cell without a value."""
MAX_COLUMNS = 20000
STEPS = (
    "step",
    "_step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "round",
    "rounds",
    "iteration",
    "iter",
    "training_step",
    "train_step",
    "rollout_step",
    "grpo_step",
    "progress/batch",
    "batch",
    "i_batch",
    "update",
    "epoch_step",
    "current_steps",
    "system/step",
)
"""Names of the column that counts steps, of which the first that is there is taken."""
CALLS = "_step"
"""W&B's count of log calls, which is the trainer's step only where each step is logged once, from 0."""
COUNTS_CALLS = "steps are W&B's _step, which counts its log calls: rounds are fewer where a round logs more than once"
OF_TRANSFORMERS = "train/global_step"
OF_TRAINERS = tuple(name for name in STEPS if "global_step" in name)
KINDS = ("type", "kind", "event", "phase", "mode", "split")
"""Names of columns that say what a row describes, such as training or an evaluation."""
RUNS = ("run", "run_name", "run_id", "run name", "experiment", "exp_name", "arm", "condition", "algo")
"""Names of the column that tells runs apart."""
INDEX = "Unnamed: 0"
"""Name that pandas gives to a first column without one, which is the index that it writes."""
_COMMA, _POINT = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?(?: ?%)?"), re.compile(r"-?\d+\.\d+")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
_DECIMAL = re.compile(r"[-+]?\d+[.,](\d+)%?")
_TOLD = re.compile(r"[^:=]{1,60}[:=] {0,12}[-+]?\d[\d.eE+-]{0,24}%?")
"""Name with its number, as in lines that a loop prints with bars between them; no header has it."""
_RULE = re.compile(r"[\s:|-]{3,4000}")
"""Line below the header of a table in Markdown."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
"""Date and time with which a console's line begins; names of later columns in a table may hold those of a run."""
ROWS_SEEN = 21
"""Number of lines that show whether a file is a table or a console's output."""
MAX_SHORT = 10
"""Largest number of rows with more or fewer cells than the header; a file with more is no table."""


@dataclass
class DelimitedText:
    """Text table whose columns and separator are known."""

    path: Path
    separator: str
    header: list[str]
    comma: bool
    """Whether decimals follow a comma."""
    encoding: str
    notes: list[str] = field(default_factory=list)


def _without_frame(line: str) -> str:
    """Return a row of a Markdown table without the bars at its ends."""
    bare = line.strip()
    return bare[1:-1] if len(bare) > 2 and bare[0] == bare[-1] == "|" else line


def find_separator(line: str) -> str:
    """Return the separator that a header has most often; "" where it has none."""
    bare = re.sub(r'"[^"]*"', "", line)
    best = max(SEPARATORS, key=bare.count)
    return best if bare.count(best) else ""


def read_header(head: Head) -> list[str]:
    """Return the names of the columns; [] where the file does not begin with any, where the next line has no second
    column, or where most lines have another number of them, as those of a console have."""
    lines = [_without_frame(line) for line in head.lines if line.strip()][:ROWS_SEEN]
    separator = find_separator(lines[0]) if lines else ""
    if not separator or separator not in (lines[1:2] or [separator])[0]:
        return []
    try:
        with long_cells():
            names, *rows = ([name.strip() for name in row] for row in csv.reader(lines, delimiter=separator))
    except (csv.Error, ValueError):
        return []
    fit = sum(len(row) == len(names) for row in rows)
    if 2 * fit < len(rows) or _TIME.search(names[0]) or any("\x1b" in name for name in names):
        return []
    if 2 * sum(bool(_TOLD.fullmatch(name)) for name in names) > len(names):
        return []
    names = [INDEX, *names[1:]] if names[0] == "" else names
    return names if all(name and read_number(name) is None for name in names) and len(set(names)) > 1 else []


def has_numbers(head: Head) -> bool:
    """Whether a header is followed by a row with a cell that is a number alone, which no printed line of a loop has."""
    lines = [_without_frame(line) for line in head.lines if line.strip() and not _RULE.fullmatch(line)]
    first, *rows = lines[:2] or [""]
    cells = rows[0].split(find_separator(first)) if rows and len(read_header(head)) > 1 else []
    return any(read_number(cell.strip(' "')) is not None for cell in cells)


def open_table(head: Head) -> DelimitedText:
    """Return a table with its columns, separator and decimal sign. Raises UserError where these are ambiguous."""
    first = _without_frame(next(line for line in head.lines if line.strip()))
    header, separator = read_header(head), find_separator(first)
    check(
        len(header) <= MAX_COLUMNS, f"{head.path} has more than {MAX_COLUMNS} columns; allowed: at most {MAX_COLUMNS}"
    )
    check(
        len(head.lines) > 1 or len(first) < LONGEST,
        f"{head.path}: line 1 has more than {LONGEST} characters; allowed: at most {LONGEST}",
    )
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    check(not twice, f"{head.path}: line 1: the column {twice[:1]} is there twice; allowed: columns of different names")
    comma = separator != "," and _decimal_commas(head, separator)
    notes = encoding_note(head.encoding) + (["decimal commas"] if comma else [])
    notes += [f"{SEPARATORS[separator]} between columns"] if separator != "," else []
    return DelimitedText(head.path, separator, header, comma, head.encoding, notes)


def _decimal_commas(head: Head, separator: str) -> bool:
    """Whether decimals follow a comma, as the first rows tell. Raises UserError where a comma may be either."""
    body = [cell.strip().strip('"') for line in head.lines[1:200] for cell in line.split(separator)]
    commas = [cell for cell in body if _COMMA.fullmatch(cell)]
    check(
        not commas or not any(map(_POINT.fullmatch, body)),
        f"{head.path}: numbers with decimal comma and with decimal point; allowed: one of them",
    )
    check(
        not commas or not all(map(_THOUSANDS.fullmatch, commas)),
        f"{head.path}: {commas[:1]} may be thousands or have decimals; allowed: thousands without a comma, decimals "
        "with a point",
    )
    return bool(commas)


@contextmanager
def iterate_rows(table: DelimitedText) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Give an iterator over the line number and the cells of each row after the header. A last row that is cut loses
    what may be cut, which is noted."""
    with opened_text(table.path, table.encoding, newline="") as stream, long_cells():
        yield _rows(table, stream)


@contextmanager
def long_cells() -> Iterator[None]:
    """Let Python's csv take cells of LONGEST characters, and set its limit, the whole process's, back afterwards."""
    limit = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _rows(table: DelimitedText, stream) -> Iterator[tuple[int, list[str]]]:
    last, cut, long = "", False, False

    def lines() -> Iterator[str]:
        nonlocal last, cut, long
        while line := stream.readline(LONGEST):
            cut = not line.endswith(("\n", "\r"))
            long = cut and len(line) == LONGEST
            if long:
                raise csv.Error("it is too long")
            last = shown_nulls(line)
            if table.separator == "|":
                last = _without_frame(last)
            yield "" if table.separator == "|" and _RULE.fullmatch(last) else last

    decimals: set[int] = set()
    reader = csv.reader(lines(), delimiter=table.separator)
    seen = short = read = 0
    try:
        for cells in reader:
            first, read = read + 1, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            seen += 1
            if seen == 1:
                continue
            if len(cells) != len(table.header):
                short += 1
                check(
                    short <= MAX_SHORT,
                    f"{table.path}: line {first}: {len(cells)} cells; allowed: {len(table.header)}, as in the header",
                )
                table.notes.append(_left_out(first, read, len(cells), len(table.header)))
                continue
            if cut and not _surely_whole(cells[-1].strip(), last, decimals):
                table.notes.append(
                    f"line {reader.line_num} has no end: its last cell may be cut and is left out "
                    f"({table.header[-1]} = {cells[-1]})"
                )
                cells[-1] = ""
            decimals.add(_decimals(cells[-1].strip()))
            yield reader.line_num, cells
    except csv.Error as error:
        raise UserError(
            f"{table.path}: line {reader.line_num + long}: {error}; allowed: cells and lines of at most {LONGEST} "
            "characters"
        ) from None


def _left_out(first: int, last: int, cells: int, wanted: int) -> str:
    """Return the note on a row with another number of cells than the header; a quote without an end swallows lines."""
    at = f"line {first}" if first == last else f"lines {first} to {last}, from an opening quote on,"
    return f"{at} {'has' if first == last else 'are a row with'} {cells} cells where the header has {wanted}: left out"


def _surely_whole(cell: str, line: str, decimals: set[int]) -> bool:
    """Whether the last cell of a file without a final newline was surely not cut: it is empty, or quoted, or has as
    many decimals as all cells before it."""
    return not cell or line.rstrip().endswith('"') or (_decimals(cell) > 0 and decimals - {0} == {_decimals(cell)})


def _decimals(cell: str) -> int:
    """Return the number of digits after the point; 0 for an empty cell, -1 where there is no point."""
    match = _DECIMAL.fullmatch(cell)
    return len(match[1]) if match else -1 if cell else 0


def trainers_step(rows: list[dict[str, float]], counted: str) -> str:
    """Return the name of the trainer's own step, if most rows have it and it differs from one that may count log calls,
    W&B's `_step` or Trackio's `step`. Otherwise return `counted`, the latter."""
    for name in {CALLS: OF_TRAINERS, "step": (OF_TRANSFORMERS,)}.get(counted, ()):
        both = [(row[name], row[counted]) for row in rows if name in row and counted in row]
        if 2 * len(both) > len(rows) and any(own != calls for own, calls in both):
            return name
    return counted


def numbers(texts: list[str], comma: bool) -> list[float | None]:
    """Return the numbers of cells, None where one holds none."""
    joined = "".join(texts)
    try:
        if "_" not in joined and not (comma and "." in joined):
            return list(map(float, texts))
    except ValueError:
        pass
    return [read_number(text, comma) if text and not text.isspace() else None for text in texts]


def pick_column(
    names: list[str], columns: dict[str, str], wanted: str, usual: tuple[str, ...], path: Path
) -> str | None:
    """Return the column that the user named as `wanted`, else the first usual one that is there. Raises UserError where
    the named one is missing."""
    named = columns.get(wanted)
    if named is not None:
        there = ", ".join(names[:12]) + (", .." if len(names) > 12 else "")
        check(named in names, f"{path} has no column {named!r} (--columns {wanted}={named}); allowed: {there}")
        return named
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in usual if name in lower), None)


def step_and_run(names: list[str], columns: dict[str, str], path: Path) -> tuple[str, str | None]:
    """Return the columns of steps and of run names. Raises UserError where no column counts steps."""
    step, run = pick_column(names, columns, "step", STEPS, path), pick_column(names, columns, "run", RUNS, path)
    if step is None:
        raise UserError(
            f"{path}: no column counts steps ({', '.join(names[:12])}); allowed: one of "
            f"{', '.join(STEPS[:6])}, or --columns step=NAME"
        )
    return step, run
