"""Read console logs of Hugging Face's trainers, TRL's among them.

They print a dictionary for each update, `{'loss': 0.01, 'reward': 0.5, 'epoch': 0.02}`, among progress bars and
everything else. The dictionary holds no step. Its step is the one that a callback prints before it, else that of the
epochs where those tell (transformers prints them with four digits or more), else that of the progress bar before it,
else its number. The number of steps by the end of a run is in its bars or its header, or follows from its time and
steps a second, which have few digits. A log that went to a file may hold all bars before all dictionaries, because the
two are buffered apart. In one that was copied from a terminal the bar before a dictionary is a step behind, because
later ones were overwritten. Since 5.0 transformers prints numbers in quotes. Dictionaries are taken apart by a pattern,
never evaluated, and so are the arguments that many scripts print first. Source: transformers/trainer_callback.py
(5.19), training_args.py (`__str__`) and trainer_utils.py (`speed_metrics`), peft/peft_model.py
(`print_trainable_parameters`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.designs.script import Settings
from rftlab.studies.readers.designs.trl import WHOLE
from rftlab.studies.readers.designs.values import as_count, as_word
from rftlab.studies.readers.formats import verl_console
from rftlab.studies.readers.run import RawRun, Series
from rftlab.studies.readers.text import (
    BORDERS,
    LARGEST_STEP,
    PROGRESS,
    Head,
    encoding_note,
    once,
    read_lines,
    read_number,
    step_in,
    whole,
)

CONSOLE = "TRL console"
LONGEST_PRINTED, MOST_ARGUMENTS = 120, 1000
"""Largest numbers of lines over which a dictionary may be broken, and in which arguments may follow their class."""
_OPEN = re.compile(r"\{'[\w/@. -]{1,200}':")
_LABEL = re.compile(r"(?<![a-z])(?:step|iteration)s?[ _:=#]{0,3}(\d{1,9})[^{a-z]{0,20}$", re.IGNORECASE)
"""The step that a callback prints before a dictionary, as in `[metrics] step 60: {..}` or `step 5/60 | {..}`."""
_ITEM = re.compile(
    r"\s*'(?P<name>[^'\n]{1,300})':\s*(?:'(?P<quoted>[^'\n]*)'|(?P<bare>[^\s,'\"{}\[\]]{1,60})|\[[^\]\n]*\])\s*(?P<end>[,}])"
)
_OF_UPDATES = ("loss", "grad_norm", "epoch", "learning_rate", "step", "global_step", "eval_loss")
"""Names of which a trainer's dictionary has at least one; rewards alone may be a grader's, of one response."""
_BAR = re.compile(r"(?<![\d/])(\d{1,9})/(\d{1,9}) \[\d[\d:]*<")
END = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")
_COUNT = r" = (\d{1,3}(?:,\d{3}){1,2}|\d{1,9})\b"
_HEADER = {
    "max_steps": re.compile(r"\bTotal (?:optimization )?steps" + _COUNT),
    "per_device_train_batch_size": re.compile(r"\b[Bb]atch size per device" + _COUNT),
    "gradient_accumulation_steps": re.compile(r"\bGradient [Aa]ccumulation steps" + _COUNT),
    "num_processes": re.compile(r"\bData Parallel GPUs" + _COUNT),
    "train_batch_size": re.compile(r"\bTotal train batch size \([^)\n]{1,60}\)" + _COUNT),
}
"""Sizes that transformers prints before the training, and Unsloth in its place, by the names of TRL's arguments."""
_ARGUMENTS = re.compile(r"\b(\w{0,40}Arguments|\w{0,20}(?:GRPO|RLOO)Config|ModelConfig|LoraConfig)\(")
_ARGUMENT = re.compile(r"(?:^|(?<=[(, ]))(\w{1,80})=('[^'\n]{0,400}'|[^\s,'\"(){}\[\]]{1,400})[,)]")
"""Argument that a script prints: in a line of its own for classes of transformers, in one line with all for others."""
_TRAINED = re.compile(r"rainable param(?:eter)?s(?:: | = )([\d,]{1,19})(?: \|\| all params: |/| of )([\d,]{1,19})")
"""Line of PEFT, or of Unsloth's header, with the number of parameters that are trained."""
_MODEL = re.compile(r"LLM engine \([^()\n]{1,40}\) with config: model='([^'\n]{1,200})'")
"""Line of vLLM that names the model that samples."""
DECIMALS, DIGITS = 3, 4
"""Digits of times and rates at the end of a run: decimals in older trainers, which round, and all digits in newer."""
_OF_TIME = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
OFF, EPOCH_DIGIT = 0.2, 0.01
"""Largest part of a step by which an epoch may be off where epochs give steps, and the last digit of an epoch that
older trainers round."""
CLEARER, SURE = 3, 0.8
"""Factor by which another shift of the bars must fit the epochs better, and share of the bars that must agree with the
epochs before the scale of the epochs is taken from them."""


class _Printed(NamedTuple):
    """Dictionary of the log, without its metrics."""

    place: int
    epoch: float
    """Epoch of the dictionary; nan where none is printed."""
    stated: int | None
    """Step of the dictionary, where it has one."""
    bar: tuple[int, int] | None
    """Step and number of steps of the progress bar before it; None without one."""
    is_test: bool
    """Whether the dictionary is of an evaluation."""


class _Log(NamedTuple):
    """Dictionaries of a log, and where its run ended."""

    printed: list[_Printed]
    steps: range
    """Numbers of steps that the whole run may have had; none where it has not ended."""
    epochs: float
    """Epochs of the whole run; nan where they are not printed."""
    every: int
    """Steps between two dictionaries, as the printed arguments say; 0 where they do not."""


def is_trl_console(head: Head) -> bool:
    """Whether the start of a file holds dictionaries of a trainer, and more of them than lines of verl's."""
    dictionaries = sum(
        bool(set(values_in(line) or ()) & set(_OF_UPDATES)) for _, line in _joined(enumerate(head.lines, start=1))
    )
    return dictionaries > 0 and dictionaries > verl_console.lines_in(head)


def values_in(line: str) -> dict[str, float] | None:
    """Return the numbers of the dictionary in a line, with the step before it; None where there is no dictionary, or it
    is cut."""
    opened = _OPEN.search(line)
    if opened is None:
        return None
    label, at = _LABEL.search(line[max(0, opened.start() - 80) : opened.start()]), opened.start() + 1
    values: dict[str, float] = {}
    while item := _ITEM.match(line, at):
        text = item["quoted"] if item["quoted"] is not None else item["bare"]
        if item["name"] == PROGRESS and text:
            values["global_step"] = step_in(text)
        value = read_number(text) if text and not (text.endswith("%") and item["name"].endswith("step")) else None
        if value is not None:
            once(values, item["name"], value)
        if item["end"] == "}":
            if label is None or values.keys().isdisjoint(_OF_UPDATES):
                return values
            return {"global_step": float(label[1])} | values
        at = item.end()
    return None


def read_trl_console(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of a log. Raises UserError where epochs fall and no bar tells the steps."""
    lines = ((place, line) for place, line, _ in read_lines(head))
    run = read_printed(RawRun(head.path.stem, CONSOLE, tool="trl"), lines, head.path)
    run.notes = encoding_note(head.encoding) + run.notes
    return [run]


def read_printed(run: RawRun, lines: Iterable[tuple[int, str]], path: Path) -> RawRun:
    """Add to a run what lines of a console say, each with its place, and return it. Raises UserError where epochs fall
    and no bar tells the steps."""
    steps = _steps(path, _printed(lines, run), run.notes)
    stated = np.array([-1 if step is None else step for step in steps], dtype=np.int32)
    numbered_series, run.series = run.series, {}
    for name, series in numbered_series.items():
        own = stated[np.asarray(series.steps)]
        if np.any(own >= 0):
            parts = (own, np.asarray(series.values), np.asarray(series.places))
            run.series[name] = Series(*(part[own >= 0] for part in parts))
    return run


def _printed(lines: Iterable[tuple[int, str]], run: RawRun) -> _Log:
    """Return every dictionary of a log. Sizes and arguments go to the run's configuration. Metrics go to the run with
    the number of the dictionary in the place of a step, so that a long log is not kept as it is."""
    dictionaries: list[_Printed] = []
    bar: tuple[int, int] | None = None
    last, header, steps, ended = (0, 0), dict[str, int](), range(0), math.nan
    arguments: dict[str, str | None] = {}
    cut = until = 0
    for place, line in _joined(lines):
        bars = _BAR.findall(line)
        if bars:
            bar = last = int(bars[-1][0]), int(bars[-1][1])
        header |= {name: int(size[1].replace(",", "")) for name, of in _HEADER.items() if (size := of.search(line))}
        if trained := _TRAINED.search(line):
            own, every = (int(number.replace(",", "") or 0) for number in trained.groups())
            if 0 < own <= every:
                run.design = replace(run.design, trained_share=float(f"{own / every:.3g}"))
        if served := _MODEL.search(line):
            run.design = replace(run.design, model=as_word(served[1]))
        opened = _ARGUMENTS.search(line) if "Arguments(" in line or "Config(" in line else None
        if opened:
            until = place + (MOST_ARGUMENTS if line.rstrip().endswith("(") else 1)
        if place < until:
            arguments |= _arguments(line[opened.start() :] if opened else line.strip())
            until = 0 if line.count(")") > line.count("(") or len(arguments) > MOST_ARGUMENTS else until
        if "{'" not in line or line.lstrip().startswith(BORDERS):  # the trainer's tables hold what the model wrote
            continue
        values = values_in(line)
        if values is None:
            cut += any(f"'{name}':" in line for name in _OF_UPDATES)
        elif not values.keys().isdisjoint(END):
            steps, ended = _steps_at_end(last, header.get("max_steps", 0), values), values.get("epoch", math.nan)
        elif not values.keys().isdisjoint(_OF_UPDATES):
            if (steps or ended == ended) and _rewarded(values) and not _rewarded(run.series):
                run.notes.append(f"line {place}: a training without rewards ended before, and is left out")
                run.series, dictionaries, steps, ended = {}, [], range(0), math.nan
            for name, value in values.items():
                if name not in ("epoch", "step", "global_step") and not name.startswith(_OF_TIME):
                    run.add(name, len(dictionaries), value, place)
            stated = whole(values.get("step", values.get("global_step")))
            is_test = any(name.startswith("eval_") for name in values)
            dictionaries.append(_Printed(place, values.get("epoch", math.nan), stated, bar, is_test))
            bar = None
    run.notes += [f"{cut} dictionaries that are cut or hold more than numbers left out"] if cut else []
    sizes = header.get("per_device_train_batch_size", 0) * header.get("gradient_accumulation_steps", 0)
    total = header.pop("train_batch_size", 0)
    header |= {"num_processes": total // sizes} if sizes and total and total % sizes == 0 else {}
    if sizes or arguments:
        hidden = getattr(run.config, "hidden", "" if run.config else "the script that printed the log")
        run.config, run.whole = Settings((run.config or {}) | arguments | (header if sizes else {})), False
        run.config.hidden = "" if WHOLE in arguments else hidden
    by_steps = str(arguments.get("logging_strategy", "steps")).lower().endswith("steps")
    return _Log(dictionaries, steps, ended, (as_count(arguments.get("logging_steps")) or 0) if by_steps else 0)


def _rewarded(names: Iterable[str]) -> bool:
    """Whether one of the metrics is a reward, as in reinforcement learning."""
    return any("reward" in name for name in names)


def _arguments(text: str) -> dict[str, str | None]:
    """Return the arguments of a line as texts; None for None, which outranks a script's. PEFT's r is TRL's lora_r."""
    values = {name: None if value == "None" else value.strip("'") for name, value in _ARGUMENT.findall(text)}
    return {"lora_r": values["r"]} if text.startswith("LoraConfig(") and "r" in values else values


def _steps_at_end(bar: tuple[int, int], header: int, values: dict[str, float]) -> range:
    """Return the numbers of steps that a run may have had. bar: step and length of the last bar. header: number printed
    before the training, or 0. values: dictionary of its end, whose steps a second have few digits."""
    seconds, rate = (values.get(name, math.nan) for name in ("train_runtime", "train_steps_per_second"))
    low, high = ((seconds + sign * _half_digit(seconds)) * (rate + sign * _half_digit(rate)) for sign in (-1, 1))
    told = range(math.ceil(low), math.floor(high) + 1) if 0 < low < high <= LARGEST_STEP else range(0)
    for steps in (header, bar[1]):
        if steps and (steps in told or not told):  # else the bar is one of loading or of tokenizing
            return range(steps, steps + 1) if bar[0] in (0, bar[1]) or steps != bar[1] else range(0)
    return told


def _half_digit(value: float) -> float:
    """Return how far a printed number may be from the one that was rounded."""
    return (
        0.5 * 10.0 ** max(math.floor(math.log10(value)) + 1 - DIGITS, -DECIMALS) if 0 < value < math.inf else math.nan
    )


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield lines with their places; a dictionary that a terminal or pprint broke over several is joined to one. A
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
    of_train, part = [one.stated for one in train], None
    if None in of_train:
        bars = _bars(train, log.every, notes)
        part = _part(log, epochs, bars, notes)
        told = _without_epochs(path, log, train, bars, notes) if part is None else np.rint(epochs / part).tolist()
        of_train = [None if step is None else int(step) for step in told]
    train_steps = iter(of_train)
    steps: list[int | None] = []
    last = 0
    for one in log.printed:
        step = one.stated if one.is_test else next(train_steps)
        if one.is_test and step is None:
            own = np.nan if part is None else one.epoch / part
            step = whole(float(np.rint(own))) if np.isfinite(own) and abs(own - np.rint(own)) <= OFF else last
        last = last if step is None else step
        steps.append(step)
    return steps


def _bars(train: list[_Printed], every: int, notes: list[str]) -> list[int | None]:
    """Return the steps of the bars of training, which have the usual length, unlike those of evaluations and files."""
    lengths = Counter(one.bar[1] for one in train if one.bar is not None)
    usual = max(lengths, key=lambda length: (lengths[length], length), default=None)
    bars = [one.bar[0] if one.bar is not None and one.bar[1] == usual else None for one in train]
    own = np.array([(bar, one.epoch) for bar, one in zip(bars, train, strict=True) if bar is not None])
    behind = _behind(own[:, 0], own[:, 1], every) if len(own) > 3 or (len(own) and every) else 0
    if behind:
        side = "behind" if behind > 0 else "ahead"
        notes.append(f"the progress bar before each dictionary is {abs(behind)} {side}, which is set right")
    return [None if bar is None else bar + behind for bar in bars]


def _behind(bars: np.ndarray, epochs: np.ndarray, every: int) -> int:
    """Return the steps by which bars are behind dictionaries. Moved by these, bars are multiples of the steps between
    two dictionaries, not 0, and proportional to the epochs where those tell. every: those steps; 0 for unknown."""
    every = every or max(1, round(float(np.median(np.diff(bars)))))
    may = (0, 1, -1) if bars[0] > 1 else (0, 1)
    evenly = [behind for behind in may if np.mean((bars + behind) % every == 0) >= SURE] or [0]
    usual = 1 if bars[0] + evenly[0] == 0 and np.all(np.diff(bars[:2]) == every) else evenly[0]
    if not np.isfinite(epochs).all():
        return usual
    ratios = {behind: epochs / np.maximum(bars + behind, 0.5) for behind in (usual, 0, *evenly, every, -every)}
    errors = {behind: float(np.abs(each / max(each.mean(), 1e-12) - 1).mean()) for behind, each in ratios.items()}
    best = min(errors, key=lambda behind: errors[behind])
    return usual if errors[best] > errors[usual] / CLEARER else best


def _part(log: _Log, epochs: np.ndarray, bars: list[int | None], notes: list[str]) -> float | None:
    """Return the part of an epoch that one step is, where all epochs are multiples of one part; None where they are
    not, as when they were rounded."""
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
            return None  # epochs of two digits are always multiples of 0.01
    elif log.every > 1:
        part, said = part / log.every, f"logging_steps = {log.every}"
    elif log.steps and log.epochs >= epochs.max():
        every = {
            every
            for steps in log.steps
            if (every := round(steps * part / log.epochs))
            if round(every * log.epochs / part) in log.steps
        }
        if len(log.steps) == 1:
            part, said = log.epochs / log.steps[0], f"the run ended after {log.steps[0]} steps"
        elif len(every) == 1:
            said = f"the run ended after {round(min(every) * log.epochs / part)} steps, as its steps a second tell"
            part /= min(every)
        else:
            return None
    elif _rounded(epochs):
        return None
    counts = epochs / part
    off = np.abs(counts - np.rint(counts)) > OFF + 1e-3 * counts
    if off.any() or not 0.5 <= counts.min() <= counts.max() <= LARGEST_STEP:
        return None
    notes.append(f"steps are not printed: the epochs tell them; {said}")
    return part


def _rounded(epochs: np.ndarray) -> bool:
    """Whether epochs were rounded to two digits and dictionaries came evenly, so that two sizes of gaps tell no
    steps."""
    number, apart = np.arange(1, len(epochs) + 1), np.diff(epochs)
    low, high = ((epochs + sign * EPOCH_DIGIT / 2) / number for sign in (-1, 1))
    larger = int(np.sum(apart > apart.min() + EPOCH_DIGIT / 2))
    return bool(np.array_equal(epochs, np.round(epochs, 2)) and larger > 1 and low.max() <= high.min() + 1e-9)


def _without_epochs(
    path: Path, log: _Log, train: list[_Printed], bars: list[int | None], notes: list[str]
) -> list[int | None]:
    """Return steps from progress bars. Where there are none, they are the number of each dictionary, times the steps
    between two of them where the log tells. Raises UserError where epochs fall without a bar."""
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
    fits = {steps: every for steps in log.steps if (every := steps // len(train)) and steps // every == len(train)}
    fits = {log.every * len(train): log.every} if log.every else fits
    # a run that was resumed begins late, so that its dictionaries do not divide its steps
    if len(set(fits.values())) == 1 and not epochs[0] > 1.5 * log.epochs / len(train) + EPOCH_DIGIT:
        (steps, every), about = min(fits.items()), "about " * (len(fits) > 1)
        ended = f"logging_steps = {every}" if log.every else f"the run ended after {about}{steps} steps"
        notes.append(f"steps are not printed: {ended}, a dictionary every {every}")
        return list(range(every, every * len(train) + 1, every))
    notes.append("steps are not printed: dictionaries are counted, one an update (logging_steps = 1)")
    return list(range(1, len(train) + 1))
