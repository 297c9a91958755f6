"""Runs that lie in one file: columns that tell them apart, and what columns state of a run and its seed.

A name decides nothing: runs repeat each other where the columns that hold one value throughout are equal but for the
seed, and their seeds differ.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rftlab.shared.plumbing.errors import check, plain
from rftlab.studies.readers.names import translate_metric
from rftlab.studies.readers.run import RawRun, Series

MAX_RUNS, MAX_VALUES = 2000, 1000
"""Runs of a file; and texts of a column, beyond which it describes rows, not runs."""
_TELLING = ("run", "run_name", "run_id", "trial", "replicate", "replica", "repeat")
Key = tuple[str, ...]
"""Of a run: the cells of the columns that tell runs apart."""


def _last(name: str) -> str:
    """The last part of a column's name: run_id of config/run_id, config.run_id and "Run ID"."""
    return name.lower().replace(".", "/").rpartition("/")[2].strip().replace(" ", "_").replace("-", "_")


def is_seed(name: str) -> bool:
    """Whether a column holds seeds."""
    return "seed" in _last(name).split("_")


def telling(names: Iterable[str], run: str | None) -> list[str]:
    """The columns that tell runs apart: that of run names, then those of seeds and other names; [] without the
    first."""
    if run is None:
        return []
    others = [name for name in names if name != run and (is_seed(name) or _last(name).endswith(_TELLING))]
    return [run, *others]


class Texts:
    """Columns that hold texts: what each run has throughout, and which of them tell rows of one step apart."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[int, dict[str, set[str]]]] = {}
        self._throughout: dict[Key, dict[str, str | None]] = {}
        self._steps: dict[str, dict[str, int]] = {}
        """By column and text: the step at which it is there, -1 where there are several."""
        self._apart: dict[str, set[str]] = {}

    def add(self, run: Key, step: int, texts: dict[str, str]) -> None:
        """The texts of a row."""
        throughout = self._throughout.setdefault(run, dict(texts))
        before, here = self._last.get(run, (-1, {}))
        here = here if before == step else {}
        for name, text in texts.items():
            if throughout.setdefault(name, text) != text:
                throughout[name] = None
            known = self._steps.setdefault(name, {})
            if len(known) < MAX_VALUES:
                known[text] = step if known.get(text, step) == step else -1
            own = here.setdefault(name, set())
            if len(own) < MAX_VALUES:
                own.add(text)
            if len(own) > 1:
                self._apart.setdefault(name, set()).update(own)
        self._last[run] = step, here

    def of(self, run: Key) -> dict[str, str]:
        """Texts that a run has in all of its rows."""
        return {name: text for name, text in self._throughout.get(run, {}).items() if text is not None}

    def check(self, path: Path) -> None:
        """Raise UserError where rows of one step differ in a text that comes again at other steps, as a run's does."""
        for name, texts in self._apart.items():
            known = self._steps[name]
            again = sorted(text for text in texts if known.get(text) == -1)
            check(
                len(again) < 2 or len(known) >= MAX_VALUES,
                f"{path}: rows of one step differ in {plain(name)!r} ({', '.join(map(ascii, again[:3]))}), as where "
                f"several runs or sets are in one table; allowed: --columns run={plain(name)}, or one of them a file",
            )


def told_apart(runs_by_key: dict[Key, RawRun], columns: list[str], texts: Texts, path: Path) -> list[RawRun]:
    """The runs of a file by their cells in `columns`, the first of which names them. Those of one name are one where
    no step is in two of them, as where a run went on; else the cells in which they differ are part of their names."""
    runs: list[tuple[Key, RawRun]] = []
    for name in dict.fromkeys(key[:1] for key in runs_by_key):
        parts = [(key, run) for key, run in runs_by_key.items() if key[:1] == name]
        if len(parts) > 1 and _one(parts):
            parts = [(parts[0][0], _rejoined([run for _, run in parts]))]
        differ = [i for i in range(1, len(columns)) if len({key[i] for key, _ in parts}) > 1]
        for key, run in parts:
            run.name = " ".join([*key[:1], *(f"{_last(columns[i])}={key[i]}" for i in differ)])
        runs += parts
    check(len(runs) <= MAX_RUNS, f"{path} has more than {MAX_RUNS} runs; allowed: at most {MAX_RUNS}")
    seeds = [i for i, column in enumerate(columns) if is_seed(column)]
    if seeds:
        _state(runs, columns, seeds, texts)
    return [run for _, run in runs]


def _one(parts: list[tuple[Key, RawRun]]) -> bool:
    """Whether no two parts share a step."""
    empty = np.empty(0, int)
    steps = [
        np.unique(np.concatenate([empty, *(np.asarray(series.steps) for series in run.series.values())]))
        for _, run in parts
    ]
    return len(np.unique(np.concatenate(steps))) == sum(map(len, steps))


def _rejoined(runs: list[RawRun]) -> RawRun:
    """Parts of a run as one, in the order of the file."""
    whole = runs[0]
    for name in dict.fromkeys(name for run in runs for name in run.series):
        parts = [run.series[name] for run in runs if name in run.series]
        joined = Series()
        order = np.argsort(np.concatenate([np.asarray(part.places) for part in parts]), kind="stable")
        for field in Series.__slots__:
            values = np.concatenate([np.asarray(getattr(part, field)) for part in parts])[order]
            getattr(joined, field).frombytes(values.tobytes())
        whole.series[name] = joined
    return whole


def _state(runs: list[tuple[Key, RawRun]], columns: list[str], seeds: list[int], texts: Texts) -> None:
    """Give each run what its columns state but for its seed. Names are no part of it, unless runs would be equal in
    their seeds too: then something that no column states is in their names."""
    seen: dict[str, list[tuple[Key, RawRun]]] = {}
    for key, run in runs:
        run.stated = _constants(run) | {name: text for name, text in texts.of(key).items() if name not in columns}
        seen.setdefault(repr(sorted(run.stated.items())), []).append((key, run))
    for alike in seen.values():
        if len({tuple(key[i] for i in seeds) for key, _ in alike}) < len(alike):
            for key, run in alike:
                run.stated = (run.stated or {}) | {"run": key[0]}


def _constants(run: RawRun) -> dict[str, Any]:
    """Numbers that are the same throughout and no results."""
    constants = {}
    for name, series in run.series.items():
        known, values = translate_metric(name), np.asarray(series.values)
        if (known is None or known.metric == "learning_rate") and len(values) and np.all(values == values[0]):
            constants[name] = float(values[0])
    return constants
