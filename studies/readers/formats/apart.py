"""Tell runs apart that lie in one file, and read what columns state of a run and its seed.

Names of runs decide nothing: runs repeat each other where the columns that hold one value throughout are equal but for
the seed, and their seeds differ.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rftlab.shared.plumbing.errors import check, plain
from rftlab.studies.readers.names import split_of, translate_metric
from rftlab.studies.readers.run import RawRun, Series

MAX_RUNS, MAX_VALUES = 2000, 1000
"""Largest number of runs in a file, and of different texts in a column; one with more describes rows, not runs."""
_TELLING = ("run", "run_name", "run_id", "trial", "replicate", "replica", "repeat")
_SETS = ("split", "dataset", "data_set", "data_source", "task", "benchmark", "eval_set", "test_set")
"""Last parts of the names of columns that hold the data set on which a row was measured."""
Key = tuple[str, ...]
"""Key of a run: its cells in the columns that tell runs apart."""
Column = tuple[np.ndarray, np.ndarray]
"""Values of the rows of a column, and which of the rows have one."""


def _last(name: str) -> str:
    """Return the last part of a column's name: run_id of config/run_id, config.run_id and "Run ID"."""
    return name.lower().replace(".", "/").rpartition("/")[2].strip().replace(" ", "_").replace("-", "_")


def is_seed(name: str) -> bool:
    """Whether a column holds seeds."""
    return "seed" in _last(name).split("_")


class RunsByKey:
    """Runs of one file, by their cells in the columns that tell runs apart. Columns of texts are watched: which text a
    run has throughout, and in which columns rows of one step differ."""

    def __init__(self, path: Path, names: Iterable[str], run_name: str | None, form: str, **more: Any):
        """Find the columns that tell runs apart. run_name: that of run names, if any. form, more: fields of each
        RawRun."""
        others = [name for name in names if name != run_name and (is_seed(name) or _last(name).endswith(_TELLING))]
        self.columns = [] if run_name is None else [run_name, *others]
        self._path, self._form, self._more = path, form, more
        self._runs: dict[Key, RawRun] = {}
        self._before: dict[Key, tuple[int, dict[str, set[str]]]] = {}
        """Step of the last row of each run, and the texts of each column at that step."""
        self._throughout: dict[Key, dict[str, str | None]] = {}
        self._steps: dict[str, dict[str, int]] = {}
        """Step at which a text of a column is there; -1 where there are several."""
        self._apart: dict[str, set[str]] = {}
        self._partly: set[str] = set()
        """Columns of texts that some rows leave empty."""

    def run(self, key: Key) -> RawRun:
        """Return the run with these cells, which is new where there is none."""
        return self._runs.get(key) or self._runs.setdefault(key, RawRun("", self._form, **self._more))

    def watch(self, key: Key, step: int, texts: dict[str, str]) -> None:
        """Take note of the texts of a row."""
        self._partly |= self._throughout.get(key, texts).keys() ^ texts.keys()
        throughout = self._throughout.setdefault(key, dict(texts))
        before, here = self._before.get(key, (-1, {}))
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
        self._before[key] = step, here

    def add_rows(
        self, owners: Sequence[tuple[Key, str]], steps: np.ndarray, places: np.ndarray, columns: dict[str, Column]
    ) -> None:
        """Add rows of any runs. owners: for each row, its run and the prefix of the names of its metrics. Columns
        without a gap share their steps and places, which are half of the memory that a dense table takes."""
        codes = {owner: code for code, owner in enumerate(dict.fromkeys(owners))}
        parts: list[Any] = [slice(None)]
        if len(codes) > 1:
            of_rows = np.array([codes[owner] for owner in owners])
            parts = np.split(np.argsort(of_rows, kind="stable"), np.cumsum(np.bincount(of_rows))[:-1])
        for (key, prefix), rows in zip(codes, parts, strict=False):
            run, own = self.run(key), (steps[rows], places[rows])
            for name, (values, there) in columns.items():
                kept = there[rows]
                if kept.all():
                    run.series[prefix + name] = Series(own[0], values[rows], own[1])
                elif kept.any():
                    run.series[prefix + name] = Series(own[0][kept], values[rows][kept], own[1][kept])

    def told_apart(self) -> list[RawRun]:
        """Return the runs, named by the first column. Parts of one name are one run where no step is in two of them, as
        where a run went on; else the cells in which they differ become part of their names. Raises UserError where the
        rows of one run seem to be of several."""
        self._check_texts()
        runs: list[tuple[Key, RawRun]] = []
        for name in dict.fromkeys(key[:1] for key in self._runs):
            parts = [(key, run) for key, run in self._runs.items() if key[:1] == name]
            if len(parts) > 1 and _share_no_step([run for _, run in parts]):
                parts = [(parts[0][0], _rejoined([run for _, run in parts]))]
            differ = [i for i in range(1, len(self.columns)) if len({key[i] for key, _ in parts}) > 1]
            for key, run in parts:
                run.name = " ".join([*key[:1], *(f"{_last(self.columns[i])}={key[i]}" for i in differ)])
            runs += parts
        check(len(runs) <= MAX_RUNS, f"{self._path} has more than {MAX_RUNS} runs; allowed: at most {MAX_RUNS}")
        self._state(runs)
        return [run for _, run in runs]

    def _check_texts(self) -> None:
        """Raise UserError where rows of one step differ in a text that other steps have too, like a run's name, and
        where rows of one run are of several data sets."""
        several = {name for texts in self._throughout.values() for name, text in texts.items() if text is None}
        for name in sorted(several | self._partly):
            there = list(self._steps[name])
            check(
                (_last(name) not in _SETS or name not in several) and "test" not in map(split_of, there),
                f"{self._path}: rows differ in {plain(name)!r} ({', '.join(map(ascii, there[:3]))}); allowed: "
                f"--columns run={plain(name)}, a column of its own for each, or one of them a file",
            )
        for name, texts in self._apart.items():
            known = self._steps[name]
            again = sorted(text for text in texts if known.get(text) == -1)
            check(
                len(again) < 2 or len(known) >= MAX_VALUES,
                f"{self._path}: rows of one step differ in {plain(name)!r} ({', '.join(map(ascii, again[:3]))}), as "
                f"where several runs or sets are in one table; allowed: --columns run={plain(name)}, or one of them a "
                "file",
            )

    def _state(self, runs: list[tuple[Key, RawRun]]) -> None:
        """Give each run what its columns state but for its seed, where seeds are known. Its name is no part of this,
        unless runs would be equal in their seeds too: then names hold something that no column states."""
        seeds = [i for i, column in enumerate(self.columns) if is_seed(column)]
        seen: dict[str, list[tuple[Key, RawRun]]] = {}
        for key, run in runs if seeds else ():
            texts = {name: text for name, text in self._throughout.get(key, {}).items() if text is not None}
            run.stated = _constants(run) | {name: text for name, text in texts.items() if name not in self.columns}
            seen.setdefault(repr(sorted(run.stated.items())), []).append((key, run))
        for alike in seen.values():
            if len({tuple(key[i] for i in seeds) for key, _ in alike}) < len(alike):
                for key, run in alike:
                    run.stated = (run.stated or {}) | {"run": key[0]}


def _share_no_step(runs: list[RawRun]) -> bool:
    steps = [
        np.unique(np.concatenate([np.empty(0, int), *(series.steps for series in run.series.values())])) for run in runs
    ]
    return len(np.unique(np.concatenate(steps))) == sum(map(len, steps))


def _rejoined(runs: list[RawRun]) -> RawRun:
    """Return parts of a run as one, in the order of the file."""
    whole = runs[0]
    for name in dict.fromkeys(name for run in runs for name in run.series):
        parts = [run.series[name] for run in runs if name in run.series]
        columns = [np.concatenate([getattr(part, kind) for part in parts]) for kind in ("steps", "values", "places")]
        order = np.argsort(columns[2], kind="stable")
        whole.series[name] = Series(*(column[order] for column in columns))
    return whole


def _constants(run: RawRun) -> dict[str, Any]:
    """Return the metrics that have one value throughout and are no results."""
    constants = {}
    for name, series in run.series.items():
        known, values = translate_metric(name), np.asarray(series.values)
        if (known is None or known.metric == "learning_rate") and len(values) and np.all(values == values[0]):
            constants[name] = float(values[0])
    return constants
