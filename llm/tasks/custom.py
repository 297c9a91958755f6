"""Load a user's own data as a task: rows with named columns, a template for prompts, and the kind of the true answers.

Values of columns are put into the template as text, which is not parsed again. A template has columns in braces and
nothing else.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from rftlab.llm.rewards.answers import boxed
from rftlab.llm.rewards.verify import NONE, parse_number
from rftlab.llm.tasks.config import HUB, OWN, OwnData
from rftlab.llm.tasks.files import (
    DatasetRow,
    data_files,
    hub_rows,
    is_missing,
    is_text,
    messages_column,
    read_rows,
    required_column,
    shown_value,
)
from rftlab.llm.tasks.task import Prompt, Split, Task
from rftlab.shared.plumbing.errors import UserError, check

INSTRUCTIONS = {
    "text": "Reply with the answer alone, without any other words.",
    "number": 'Let\'s think step by step and output the final answer after "####".',
    "boxed": "Let's think step by step and output the final answer within \\boxed{}.",
    "choice": "Write the letter of the right choice alone on the last line.",
}
"""Instructions of the default template, by kind of truth."""
VERIFIER = {"boxed": "math"}
"""Verifiers of kinds of truth, where the name differs."""
CHOICES = 26
FILLED = "allowed: text or a number"


def load_custom(source: str, test_source: str | None, own: OwnData) -> Task:
    """Return the task with splits train and test. Where the data have no test split, a part of the questions is chosen
    by their checksums, so that equal ones stay together. Raises UserError for data that cannot be used."""
    rows = {"train": _rows(source, "train")}
    if test_source is not None:
        rows["test"] = _rows(test_source, "test")
    elif not source.startswith(f"{HUB}:") and Path(source).is_dir():
        rows["test"] = _rows(source, "test")
    splits = {name: _read_split(table, own) for name, table in rows.items()}
    if "test" not in splits:
        splits = _parted(splits["train"], own.test_part, source)
    return Task(OWN, VERIFIER.get(own.truth, own.truth) if own.has_truths else NONE, splits)


def _rows(source: str, split: str) -> list[DatasetRow]:
    if source.startswith(f"{HUB}:"):
        _, repository, *configuration = source.split(":")
        check(
            repository.count("/") == 1 and len(configuration) <= 1,
            f"source = {source!r}; allowed: {HUB}:OWNER/NAME or {HUB}:OWNER/NAME:CONFIGURATION",
        )
        return hub_rows(repository, configuration[0] if configuration else None, split)
    return [row for path in data_files(Path(source), split) for row in read_rows(path)]


def _read_split(rows: Sequence[DatasetRow], own: OwnData) -> Split:
    for _, name in _prompt_parts(own.template):  # before any row, so that an error names the template
        check(
            name is None or name in rows[0].columns,
            f"task.own.template = {own.template!r} names {name}, which {rows[0].place} has not; allowed: "
            f"{', '.join(rows[0].columns)}",
        )
    prompts = tuple(_read_prompt(row, own) for row in rows)
    truths = tuple(_read_truth(row, own) if own.has_truths else "" for row in rows)
    solutions = tuple(_worked(row, own, truth) for row, truth in zip(rows, truths, strict=True))
    return Split(prompts, truths, tuple(dict(row.columns) for row in rows), solutions)


def _worked(row: DatasetRow, own: OwnData, truth: str) -> str:
    """Return a right response to a row: its true answer in the format, with the working where the data have it."""
    mark = {"number": "####", "boxed": "\\boxed"}.get(own.truth) if own.has_truths else None
    if mark is None:
        return truth
    said = str(row.columns[own.truth_column])
    return said if mark in said else f"\\boxed{{{truth}}}" if own.truth == "boxed" else f"#### {truth}"


def _parted(split: Split, part: float, source: str) -> dict[str, Split]:
    """Return training and test questions of data without a split."""
    keys = [hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest() for prompt in split.prompts]
    ordered = sorted(set(keys))
    n = math.ceil(part * len(ordered))
    check(n < len(ordered), f"{source} has {len(ordered)} different questions; allowed: more, or a test_source")
    unseen, parts = set(ordered[:n]), {}
    columns: Any = (split.prompts, split.answers, split.rows, split.solutions)
    for name in ("train", "test"):
        rows = [i for i, key in enumerate(keys) if (key in unseen) == (name == "test")]
        parts[name] = Split(*(tuple(column[i] for i in rows) for column in columns))
    return parts


def _prompt_parts(template: str) -> list[tuple[str, str | None]]:
    """Return pairs of text and the column behind it, from the left. Raises UserError for anything but columns in
    braces."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise UserError(
            f"task.own.template = {template!r}: {error}; allowed: columns in braces, {{{{ and }}}} for braces"
        ) from None
    for _, name, form, conversion in parts:
        check(
            not form and not conversion and name != "",
            f"task.own.template = {template!r}: {{{name}}} with more than a name; allowed: the name of a column",
        )
    return [(literal, name) for literal, name, _, _ in parts]


def _read_prompt(row: DatasetRow, own: OwnData) -> Prompt:
    said = row.columns.get(own.prompt_column)
    if isinstance(said, list) and not own.template:
        check(own.chat, f"{row.place}: {own.prompt_column} has chat messages; allowed: task.own.chat with them")
        return _after_system(own, messages_column(row, own.prompt_column))
    parts = _prompt_parts(own.template or _usual(row, own))
    text = "".join(literal + ("" if name is None else _as_text(row, name, own)) for literal, name in parts)
    check(bool(text.strip()), f"{row.place}: the prompt is empty; allowed: one with some text")
    check(is_text(text), f"{row.place}: the prompt has half a character (a surrogate); allowed: whole ones")
    return _after_system(own, [{"role": "user", "content": text}]) if own.chat else own.system + text


def _after_system(own: OwnData, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"role": "system", "content": own.system}, *messages] if own.system else messages


def _usual(row: DatasetRow, own: OwnData) -> str:
    """Return the default template for a row."""
    said = required_column(row, own.prompt_column, "the column that task.own.prompt_column names")
    check(not isinstance(said, str) or bool(said.strip()), f"{row.place}: {own.prompt_column} is empty; {FILLED}")
    names = [own.prompt_column] + [own.choices_column] * (own.truth == "choice" and own.choices_column in row.columns)
    question = "\n".join(f"{{{name}}}" for name in names)
    instruction = INSTRUCTIONS[own.truth].replace("{", "{{").replace("}", "}}")
    return f"{question}{chr(10) if len(names) > 1 else ' '}{instruction}" if own.has_truths else question


def _as_text(row: DatasetRow, name: str, own: OwnData) -> str:
    """Return a value for a prompt as text: choices with letters, one per line; other lists as JSON."""
    value = required_column(row, name, "a column of every row that the template names")
    if own.truth == "choice" and name == own.choices_column:
        return "\n".join(f"{chr(65 + i)}. {choice}" for i, choice in enumerate(_choices(row, own)))
    check(not is_missing(value), f"{row.place}: {name} is empty; {FILLED}")
    check(not isinstance(value, bytes), f"{row.place}: {name} is {shown_value(value)}; {FILLED}")
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _choices(row: DatasetRow, own: OwnData) -> list[Any]:
    choices = row.columns.get(own.choices_column)
    if not isinstance(choices, list) or not 2 <= len(choices) <= CHOICES:
        raise UserError(
            f"{row.place}: {own.choices_column} is {shown_value(choices)}; allowed: a list of 2 to {CHOICES}"
        )
    return choices


def _read_truth(row: DatasetRow, own: OwnData) -> str:
    value = required_column(row, own.truth_column, "the column that task.own.truth_column names, or none")
    if own.truth == "choice":
        return _letter(row, own, value)
    plain = isinstance(value, str | int | float) and not isinstance(value, bool) and not is_missing(value)
    text = str(value).strip() if plain and is_text(str(value)) else ""
    if own.truth == "number":
        text = text.rpartition("####")[2].strip()
        number = parse_number(text)
        if number is None:
            raise _refused(row, own, value, "a number, or a text that ends in #### and a number")
        return text
    if own.truth == "boxed":
        text = (boxed(text) or "").strip() if "\\boxed" in text else text
        if not text or boxed(f"\\boxed{{{text}}}") != text:
            raise _refused(row, own, value, "LaTeX that can stand in \\boxed{}, or a text with \\boxed{} around some")
    if not text:
        raise _refused(row, own, value, "text or a number")
    return text


def _letter(row: DatasetRow, own: OwnData, value: object) -> str:
    """Return the letter of a choice that is given as its letter, as its place from 0, or as its text."""
    choices = _choices(row, own) if own.choices_column in row.columns else None
    most = CHOICES if choices is None else len(choices)
    places = [] if choices is None or isinstance(value, bool) else [i for i, one in enumerate(choices) if one == value]
    if isinstance(value, str) and not places and re.fullmatch("[0-9]{1,2}", value.strip()):
        value = int(value)  # CSV has only text
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most:
        places = sorted({*places, value})
    if len(places) > 1:
        raise _refused(row, own, value, "one that means one choice")
    if places:
        return chr(65 + places[0])
    text = value.strip().strip("().").upper() if isinstance(value, str) else ""
    if len(text) == 1 and "A" <= text <= chr(64 + most):
        return text
    raise _refused(row, own, value, f"a letter from A to {chr(64 + most)}, a place from 0, or one of the choices")


def _refused(row: DatasetRow, own: OwnData, value: object, allowed: str) -> UserError:
    return UserError(f"{row.place}: {own.truth_column} is {shown_value(value)}; allowed: {allowed}")
