"""Hugging Face's trainers, TRL's among them: what they print, and trainer_state.json.

They print a dictionary an update, `{'loss': 0.01, 'reward': 0.5, 'epoch': 0.02}`, among progress bars and everything
else. No step is printed in them. It is that of the epochs where those tell (transformers prints them with four digits
or more), else that of the progress bar before each, else their number, where the log of a run that ended tells how many
steps there were. A log that went to a file may hold all bars before all dictionaries, because the two are buffered
apart. Since 5.0 transformers prints numbers in quotes. Dictionaries are taken apart by a pattern, never evaluated.
Source: transformers/trainer_callback.py (5.19).

TRL leaves trainer_state.json in every checkpoint, with training_args.bin beside it for the design, and the files of the
model beside them for its name. training_args.bin is a pickle. It is walked with a reader that knows no class and calls
nothing (`frozen_values`), so it cannot run anything.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import FILE, json_object, numbered, path_kind, read_json
from rftlab.studies.readers.designs.config_file import frozen_values
from rftlab.studies.readers.designs.values import as_count, as_word
from rftlab.studies.readers.formats import verl_console
from rftlab.studies.readers.formats.json_records import flatten_record, is_json_lines
from rftlab.studies.readers.run import KnownDesign, RawRun, Series
from rftlab.studies.readers.text import (
    LARGEST_STEP,
    PROGRESS,
    Head,
    encoding_note,
    finite_number,
    once,
    read_lines,
    read_number,
    step_in,
    whole,
)

CONSOLE = "TRL console"
LONGEST_PRINTED = 120
"""Lines over which a dictionary may be broken."""
_OPEN = re.compile(r"\{'[\w/@. -]{1,200}':")
_LABEL = re.compile(r"(?<![a-z])(?:step|rollout|eval)s?[ _]?\d{1,9}[^{]{0,40}: ?$", re.IGNORECASE)
"""The text before the dictionaries of other trainers; Hugging Face's print none."""
_ITEM = re.compile(
    r"\s*'(?P<name>[^'\n]{1,300})':\s*(?:'(?P<quoted>[^'\n]*)'|(?P<bare>[^\s,'\"{}\[\]]{1,60})|\[[^\]\n]*\])\s*(?P<end>[,}])"
)
_OF_UPDATES = ("loss", "grad_norm", "epoch", "learning_rate", "step", "global_step", "eval_loss")
"""Names that a trainer's dictionary has one of. Rewards alone may be a grader's, of one response."""
_BAR = re.compile(r"(?<![\d/])(\d{1,9})/(\d{1,9}) \[\d[\d:]*<")
_END = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")
_OF_TIME = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
OFF = 0.2
"""The part of a step by which an epoch may be off; beyond it, epochs do not give steps."""
EPOCH_DIGIT = 0.01
"""The last digit of an epoch that older trainers round."""
SURE = 0.8
"""Share of the bars that must agree with the epochs before their scale is taken from them."""
STATE, ARGUMENTS = "trainer_state.json", "training_args.bin"
ADAPTER, CONFIG, CARD = "adapter_config.json", "config.json", "README.md"
LARGEST = 1 << 20
"""Bytes of a file of the model that is read."""
SHAPE = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_FRONT = re.compile(r"---\r?\n(.{0,20000}?)\n---", re.DOTALL)
_STATED = {"model_name_or_path": "base_model", "dataset_name": "datasets"}
"""The names of our facts in the front of a model card."""


class _Printed(NamedTuple):
    """One dictionary of the log, without its metrics."""

    place: int
    epoch: float
    """nan where none is printed."""
    stated: int | None
    """Its step, where it has one."""
    bar: tuple[int, int] | None
    """Of the progress bar before it: step, and how many there will be."""
    is_test: bool
    """Whether it is of an evaluation."""


class _Log(NamedTuple):
    """The dictionaries of a log, and where its run ended."""

    printed: list[_Printed]
    steps: int | None
    """Steps of the whole run; None where it has not ended."""
    epochs: float
    """Epochs of the whole run; nan where they are not printed."""


def is_trl_console(head: Head) -> bool:
    """Whether the start holds such dictionaries, more of them than lines of verl's."""
    dictionaries = sum(
        bool(set(values_in(line) or ()) & set(_OF_UPDATES)) for _, line in _joined(enumerate(head.lines, start=1))
    )
    return dictionaries > 0 and dictionaries > verl_console.lines_in(head)


def values_in(line: str) -> dict[str, float] | None:
    """The numbers of the dictionary that a line holds; None where it holds none, one that is cut, or another
    trainer's, with its step before it."""
    opened = _OPEN.search(line)
    if opened is None or _LABEL.search(line[max(0, opened.start() - 80) : opened.start()]):
        return None
    at = opened.start() + 1
    values: dict[str, float] = {}
    while item := _ITEM.match(line, at):
        text = item["quoted"] if item["quoted"] is not None else item["bare"]
        if item["name"] == PROGRESS and text:
            values["global_step"] = step_in(text)
        value = read_number(text) if text and not (text.endswith("%") and item["name"].endswith("step")) else None
        if value is not None:
            once(values, item["name"], value)
        if item["end"] == "}":
            return values
        at = item.end()
    return None


def read_trl_console(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a log. Raises UserError where epochs fall and no bar tells the steps."""
    run = RawRun(head.path.stem, CONSOLE, tool="trl")
    run.notes += encoding_note(head.encoding)
    steps = _steps(head.path, _printed(head, run), run.notes)
    stated = np.array([-1 if step is None else step for step in steps], dtype=np.int32)
    numbered_series, run.series = run.series, {}
    for name, series in numbered_series.items():
        own = stated[np.asarray(series.steps)]
        if np.any(own >= 0):
            parts = (own, np.asarray(series.values), np.asarray(series.places))
            run.series[name] = Series(*(part[own >= 0] for part in parts))
    return [run]


def _printed(head: Head, run: RawRun) -> _Log:
    """Every dictionary of a log. Their metrics go to the run, with the number of the dictionary in the place of a step,
    so that a long log is not kept as it is."""
    dictionaries: list[_Printed] = []
    bar: tuple[int, int] | None = None
    last, steps, ended = (0, 1), None, math.nan
    cut = 0
    for place, line in _joined((place, line) for place, line, _ in read_lines(head)):
        bars = _BAR.findall(line)
        if bars:
            bar = last = int(bars[-1][0]), int(bars[-1][1])
        if "{'" not in line:
            continue
        values = values_in(line)
        if values is None:
            cut += _OPEN.search(line) is not None
        elif not values.keys().isdisjoint(_END):
            steps, ended = last[0] if last[0] == last[1] else None, values.get("epoch", math.nan)
        elif not values.keys().isdisjoint(_OF_UPDATES):
            for name, value in values.items():
                if name not in ("epoch", "step", "global_step") and not name.startswith(_OF_TIME):
                    run.add(name, len(dictionaries), value, place)
            stated = whole(values.get("step", values.get("global_step")))
            is_test = any(name.startswith("eval_") for name in values)
            dictionaries.append(_Printed(place, values.get("epoch", math.nan), stated, bar, is_test))
            bar = None
    run.notes += [f"{cut} dictionaries that are cut or hold more than numbers left out"] if cut else []
    return _Log(dictionaries, steps, ended)


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines with their places; a dictionary that is broken over several, by a terminal or by pprint, in one. A
    dictionary without an end, or with another beginning before it, stays as it is."""
    held: list[tuple[int, str]] = []
    for place, line in lines:
        if held and ("{'" in line or len(held) >= LONGEST_PRINTED):
            yield from held
            held = []
        if held:
            held.append((place, line))
            if "}" in line:
                yield held[0][0], "".join(text.rstrip("\r\n") for _, text in held)
                held = []
        elif _OPEN.search(line) and "}" not in line:
            held = [(place, line)]
        else:
            yield place, line
    yield from held


def _steps(path: Path, log: _Log, notes: list[str]) -> list[int | None]:
    """Return the step of each dictionary; None where one is unknown. An evaluation has the step of the training before
    it where its epoch gives none."""
    train = [one for one in log.printed if not one.is_test]
    epochs = np.array([one.epoch for one in train])
    of_train, bars, part = [one.stated for one in train], _bars(train), None
    if None in of_train:
        part = _part(log, epochs, bars, notes)
        told = _without_epochs(path, log, train, bars, notes) if part is None else np.rint(epochs / part).tolist()
        of_train = [None if step is None else int(step) for step in told]
    train_steps = iter(of_train)
    steps: list[int | None] = []
    last = 0
    for one in log.printed:
        step: int | None
        own = one.epoch / part if part is not None and one.is_test else np.nan
        if not one.is_test:
            step = next(train_steps)
        elif one.stated is not None:
            step = one.stated
        else:
            step = whole(float(np.rint(own))) if np.isfinite(own) and abs(own - np.rint(own)) <= OFF else last
        last = last if step is None else step
        steps.append(step)
    return steps


def _bars(train: list[_Printed]) -> list[int | None]:
    """Steps of the bars of training: those of the usual length, for evaluations and files have bars too."""
    lengths = Counter(one.bar[1] for one in train if one.bar is not None)
    usual = max(lengths, key=lambda length: (lengths[length], length), default=None)
    return [one.bar[0] if one.bar is not None and one.bar[1] == usual else None for one in train]


def _part(log: _Log, epochs: np.ndarray, bars: list[int | None], notes: list[str]) -> float | None:
    """The epoch of one step, where all epochs are multiples of one; None where they are not, as when they were
    rounded."""
    if not np.isfinite(epochs).all() or len(epochs) < 3 or epochs.min() <= 0:
        return None
    apart = np.diff(np.unique(epochs))
    if len(apart) < 2:
        return None
    part, said = float(np.median(apart)), "a dictionary is taken as one update (logging_steps = 1)"
    seen = [(epoch, bar) for epoch, bar in zip(epochs, bars, strict=True) if bar]
    if len(seen) > len(bars) / 2:
        scale = float(np.median([epoch / bar for epoch, bar in seen]))
        if sum(abs(epoch / scale - bar) <= 0.5 for epoch, bar in seen) >= SURE * len(seen):
            part, said = scale, "the progress bars tell the first"
        elif np.array_equal(epochs, np.round(epochs, 2)):
            return None  # of two digits, any such epochs are multiples of 0.01
    elif log.steps and log.epochs >= epochs.max():
        part, said = log.epochs / log.steps, f"the run ended after {log.steps} steps"
    counts = epochs / part
    off = np.abs(counts - np.rint(counts)) > OFF + 1e-3 * counts
    if off.any() or not 0.5 <= counts.min() <= counts.max() <= LARGEST_STEP:
        return None
    notes.append(f"steps are not printed: the epochs tell them; {said}")
    return part


def _without_epochs(
    path: Path, log: _Log, train: list[_Printed], bars: list[int | None], notes: list[str]
) -> list[int | None]:
    """Steps from progress bars; where there are none, the number of each dictionary, times the steps between two of
    them where the log tells. Raises UserError where epochs fall without a bar."""
    epochs = np.array([one.epoch for one in train])
    known = sum(bar is not None for bar in bars)
    if known > len(bars) / 2:
        notes.append("steps are those of the progress bar before each dictionary")
        if known < len(bars):
            notes.append(f"{len(bars) - known} dictionaries without a progress bar before them left out")
        return bars
    falls = np.flatnonzero(np.diff(epochs) < 0) if np.isfinite(epochs).all() else np.empty(0, int)
    for i in falls[:1]:
        raise UserError(
            f"{path}: line {train[i + 1].place}: the epoch goes back from {epochs[i]:g} to {epochs[i + 1]:g} and no "
            "progress bar tells the step; allowed: one run a file, or trainer_state.json"
        )
    steps = log.steps or 0
    every = steps // len(train)
    # a run that was resumed begins late, so that its dictionaries do not divide its steps
    if every and steps // every == len(train) and not epochs[0] > 1.5 * log.epochs / len(train) + EPOCH_DIGIT:
        notes.append(f"steps are not printed: the run ended after {steps} steps, a dictionary every {every}")
        return list(range(every, steps + 1, every))
    notes.append("steps are not printed: dictionaries are counted, one an update (logging_steps = 1)")
    return list(range(1, len(train) + 1))


def is_trainer_state(head: Head) -> bool:
    """Whether it is a JSON object that has a log_history; not lines of objects, the last of which ms-swift gives
    one."""
    return head.text.lstrip("\ufeff \r\n\t").startswith("{") and (
        head.path.name == STATE or ('"log_history"' in head.text and (len(head.lines) < 2 or not is_json_lines(head)))
    )


def find_state(folder: Path) -> Path | None:
    """The state of a folder: its own, or that of its last checkpoint; None where it has none."""
    if path_kind(folder / STATE) == FILE:
        return folder / STATE
    checkpoints = {
        int(number): path
        for path in folder.glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isascii() and number.isdigit() and len(number) < 19
    }
    last = checkpoints[max(checkpoints)] if checkpoints else None
    paths = [path / STATE for path in ([last] if last else []) + numbered(folder)[-1:]]
    return next((path for path in paths if path_kind(path) == FILE), None)


def read_trainer_state(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a state."""
    path = head.path
    try:
        state = read_json(path.resolve(), json_object)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; allowed: a whole trainer_state.json") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise UserError(
            f"{path} has no log_history that is a list; allowed: trainer_state.json as transformers writes it"
        )
    folder = path.resolve().parent
    run = run_from_history(folder.name, history, state.get("logging_steps"))
    for place in (path.parent / ARGUMENTS, path.parent.parent / ARGUMENTS):
        if run.config is None and path_kind(place) == FILE:
            try:
                run.config = frozen_values(place)
            except ValueError as error:
                run.notes.append(f"{ARGUMENTS} beside it cannot be read: {error}")
    facts = model_facts([folder, folder.parent] if folder.name.startswith("checkpoint-") else [folder])
    run.design = KnownDesign(model=facts.get("model_name_or_path"), adapter_rank=facts.get("lora_r"))
    if run.config is not None:
        run.config = facts | run.config  # part of what runs that repeat each other share
    return [run]


def run_from_history(name: str, history: list, every: Any) -> RawRun:
    """A run from the records of a state; every: its logging_steps."""
    run = RawRun(name, STATE, tool="trl", place="record")
    without = 0
    for place, record in enumerate(history, start=1):
        values = flatten_record(record) if isinstance(record, dict) else {}
        step = whole(values.get("step"))
        if step is None:
            without += 1
            continue
        for name, value in values.items():
            if name not in ("step", "epoch", *_END):
                run.add(name, step, value, place)
    run.notes += [f"{without} records without a step left out"] if without else []
    if (finite_number(every) or 0) > 1:
        run.notes.append(f"logging_steps = {every:g}: train values are means over as many updates, at the last of them")
    return run


def model_facts(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the facts in files, by the names of TRL's script arguments: model_name_or_path, dataset_name, lora_r;
    model_shape where no file names the model. Of several folders the first that states a fact decides. A file that
    cannot be read says nothing: it belongs to the model, not to the log."""
    facts: dict[str, Any] = {}
    shapes: list[dict[str, Any]] = []
    for folder in folders:
        adapter, config = (_object(folder / name) for name in (ADAPTER, CONFIG))
        card = _card_facts(folder / CARD)
        names = (adapter.get("base_model_name_or_path"), card.get("model_name_or_path"), config.get("_name_or_path"))
        stated = {
            "model_name_or_path": next((name for name in map(as_word, names) if name), None),
            "dataset_name": as_word(card.get("dataset_name")),
            "lora_r": as_count(adapter.get("r")),
        }
        facts = {name: value for name, value in stated.items() if value} | facts
        shapes += [shape] if (shape := {name: config[name] for name in SHAPE if name in config}) else []
    if "model_name_or_path" not in facts and shapes:
        facts["model_shape"] = shapes[0]
    return facts


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        value = read_json(path) if path_kind(path) == FILE and path.stat().st_size <= LARGEST else None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _card_facts(path: Path) -> dict[str, str]:
    """Of the lines `key: value` before the text of a model card, those of `_STATED`; several data sets as one text."""
    try:
        text = path.read_text("utf-8", "replace") if path_kind(path) == FILE and path.stat().st_size <= LARGEST else ""
    except OSError:
        return {}
    front = _FRONT.match(text)
    values: dict[str, list[str]] = {}
    key = ""
    for line in front[1].splitlines() if front else ():
        if line.startswith(("- ", "  - ")):
            values.setdefault(key, []).append(line.strip()[2:])
        else:
            key, _, value = line.partition(":")
            values[key] = [value] if value.strip() else []
    cleaned = {key: sorted(one.strip().strip("'\"") for one in parts) for key, parts in values.items()}
    return {name: ", ".join(cleaned[key]) for name, key in _STATED.items() if cleaned.get(key)}
