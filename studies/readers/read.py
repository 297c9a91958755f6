"""Read files and folders of any log format as imported runs."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.custom.plugins import run_file
from rftlab.shared.plumbing.errors import UserError, blaming, check, plain, said_by
from rftlab.shared.plumbing.files import file_sha256
from rftlab.shared.plumbing.folders import FILE, path_kind, real
from rftlab.studies.readers.assemble import assemble
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.formats import (
    json_records,
    notebook,
    parquet,
    printed,
    published,
    rollouts,
    stores,
    tables,
    tidy,
    trl,
    trl_console,
    verl_console,
)
from rftlab.studies.readers.names import LONGEST_NAME, METRICS, is_metric, translate_metric
from rftlab.studies.readers.run import ImportedRun, KnownDesign, RawRun
from rftlab.studies.readers.steps import split_runs
from rftlab.studies.readers.text import ALLOWED, FURTHER, HEAD, Head, kind_named, read_head

Reader = Callable[[Path], RawRun | list[RawRun]]
MAX_RUNS = 2000


class Format(NamedTuple):
    """Format of logs: how a file of it is recognised and read."""

    name: str
    recognise: Callable[[Head], bool]
    """Function that tells from the start of a file whether it has this format."""
    read: Callable[[Head, dict[str, str]], list[RawRun]]
    """Function that returns the runs of a file; its last argument has the names of columns that the user gave."""
    find_files: Callable[[Path], list[Path]] | None = None
    """Function that returns all files of a run, where a run may consist of several."""


FORMATS = (
    Format(stores.OFFLINE, stores.is_offline_run, stores.read_offline_run),
    Format(stores.EVENTS, stores.is_event_file, stores.read_event_file),
    Format(stores.TRACKIO, stores.is_database, stores.read_database),
    Format(parquet.OWN, parquet.is_own_run, parquet.read_own_run, parquet.find_own_files),
    Format(trl.STATE, trl.is_trainer_state, trl.read_trainer_state),
    Format(rollouts.FORMAT, rollouts.is_rollouts, rollouts.read_rollouts),
    Format(notebook.NOTEBOOK, notebook.is_notebook, notebook.read_notebook),
    Format(json_records.LINES, json_records.is_json_lines, json_records.read_json_lines),
    Format(trl_console.CONSOLE, trl_console.is_trl_console, trl_console.read_trl_console),
    Format(verl_console.FORMAT, verl_console.is_verl_console, verl_console.read_verl_console),
    Format(json_records.DOCUMENT, json_records.is_json_document, json_records.read_json_document),
    Format(published.FORMAT, published.is_long_form, published.read_long_form, published.files_beside),
    Format(tidy.EXPORT, tidy.is_export, tidy.read_export),
    Format(printed.FORMAT, printed.is_printed, printed.read_printed_lines),
    Format(tables.FORMAT, tidy.is_tidy_table, tidy.read_tidy_table),
)
"""Formats in the order in which a file is tested for them."""


class _Part(NamedTuple):
    """A run, the path that the user gave for it, and the files that it was read from."""

    run: RawRun
    path: Path
    files: list[Path]


def read_logs(
    paths: Iterable[Path | str],
    columns: dict[str, str] | None = None,
    reader: Reader | None = None,
    given: KnownDesign | None = None,
    config: Path | None = None,
    processes: int | None = None,
) -> list[ImportedRun]:
    """Read logs of any format, recognised by content.

    columns: names of columns by what they hold: "step", "run", or [test.|train.]METRIC of ours (docs/import.md).
    reader: reads a path in place of the formats that come with us; it returns one RawRun or several.
    given: facts of the design, which outrank those of a configuration. config: a file with the configuration, for
    every run.
    processes: the world size, on which TRL's batch depends.
    Raises UserError: for what is no log, what cannot be read without a guess, a package that is missing; the
    message names file and place.
    """
    columns, given, settings = columns or {}, given or KnownDesign(), read_config(config) if config else None
    unknown = [what for what in columns if what not in ("step", "run") and not is_metric(what)]
    allowed = f"step, run, {', '.join(METRICS)}; test. or train. before one"
    check(not unknown, f"columns: {unknown[:1]} is no metric; allowed: {allowed}")
    parts: list[_Part] = []
    seen: set[tuple[str, ...]] = set()
    checksum = cache(lambda path: file_sha256(real(path)) if path.is_file() else str(real(path)))
    for path in map(Path, paths):
        if reader:
            with blaming(f"reader {getattr(reader, '__name__', reader)} on {path}: "):
                answer, files = reader(path), [path]
                runs = [*answer] if isinstance(answer, list) else [answer]
                for run in runs:
                    _check_returned(run)
        else:
            runs, files = _read(path, columns)
        sums = tuple(map(checksum, files))
        parts += [_Part(one, path, files) for run in runs for one in _split(run)] if sums not in seen else []
        seen.add(sums)
    check(len(parts) <= MAX_RUNS, f"{len(parts)} runs; allowed: at most {MAX_RUNS}")
    aliases = {source: what for what, source in columns.items() if what not in ("step", "run")}
    imported = []
    for run, path, files in _joined(parts):
        there = ", ".join(sorted(run.series)[:12])
        missing = [source for source in aliases if source not in run.series]
        check(not missing, f"{path}: no column {missing[:1]} with numbers; allowed: {there}")
        run.aliases |= aliases
        if settings is not None:
            run.config, run.whole = settings, False
        sources = tuple((file.name, checksum(file)) for file in files if file.is_file())
        try:
            imported.append(assemble(run, sources, given, processes))
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:
            if reader is None:
                raise
            raise UserError(f"{path}: what the reader returned is no run: {said_by(error)}") from None
    return imported


def _split(run: RawRun) -> list[RawRun]:
    """Return the runs that stand one after another in a file."""
    named = ((source, translate_metric(source)) for source in run.series)
    return split_runs(run, {source for source, name in named if name and name.metric in ("reward_mean", "score")})


def _read(path: Path, columns: dict[str, str]) -> tuple[list[RawRun], list[Path]]:
    """Return the runs of a file or folder, and the files that they were read from."""
    if path.is_dir():
        return _read_folder(path, columns)
    head = read_head(path)
    form = next((form for form in FORMATS if form.recognise(head)), None)
    if form in (None, *FORMATS[-2:]) and head.encoding and len(head.raw) >= HEAD:  # prose with commas looks like it
        further = read_head(path, FURTHER)
        if late := next((form for form in FORMATS[: -1 if form is None else -2] if form.recognise(further)), None):
            head, form = further, late
    if form is None:
        what = "no log of a kind that is known" if head.encoding else f"{kind_named(head.raw)}, no log"
        raise UserError(f"{path} is {what}; allowed: {ALLOWED}")
    runs = [run for run in form.read(head, columns) if run.series or run.pieces]
    check(bool(runs), f"{path} ({form.name}) holds no numbers with steps; allowed: {ALLOWED}")
    return runs, form.find_files(path) if form.find_files else [path]


def _read_folder(folder: Path, columns: dict[str, str]) -> tuple[list[RawRun], list[Path]]:
    """Return the runs of a folder, and the files that they were read from. It may be one of `rftlab train`, or hold a
    checkpoint of transformers, metrics.jsonl, offline runs of W&B, rollouts or TensorBoard's events."""
    if parquet.find_own_files(folder / parquet.CURVE):
        return _read(folder / parquet.CURVE, columns)
    rows = rollouts.find_rollouts(folder)
    if state := trl.find_state(folder):
        return _with_outcomes(*_read(state, columns), folder, rows)
    for path in (folder / "metrics.jsonl", *sorted(folder.glob("*.wandb"))):
        if path_kind(path) == FILE:
            return _read(path, columns)
    if offline := [path for path in sorted(folder.glob("*run-*/run-*.wandb")) if path_kind(path) == FILE]:
        runs = [run for path in offline for run in stores.read_offline_run(read_head(path), columns) if run.series]
        check(bool(runs), f"{folder} has {len(offline)} runs of W&B, but none with numbers; allowed: {ALLOWED}")
        return runs, offline
    if rows:
        rows, notes = rollouts.keep_sampled(rows)
        run = rollouts.read_rollout_files(folder, rows)
        run.notes += notes
        return [run], rows
    events = stores.find_event_files(folder)
    check(bool(events), f"{folder} holds no log that is known; allowed: {ALLOWED}")
    runs = [run for run in stores.read_event_folder(folder, events) if run.series]
    check(bool(runs), f"{folder} has TensorBoard events, but none with numbers; allowed: events with scalars")
    return runs, events


def _with_outcomes(
    runs: list[RawRun], files: list[Path], folder: Path, rows: list[Path]
) -> tuple[list[RawRun], list[Path]]:
    """Return TRL's run and its files, with counts of right responses by group added from a folder below. Metrics and
    counts have the same steps."""
    evaluated = {step for name, own in runs[0].series.items() if name.startswith("eval_") for step in own.steps}
    rows, notes = rollouts.keep_sampled(rows, evaluated)
    rollout_run = rollouts.read_rollout_files(folder, rows) if rows else None
    if rollout_run is None or rollout_run.tool != "trl":
        return runs, files
    runs[0].outcomes, runs[0].notes = rollout_run.outcomes, runs[0].notes + notes + rollout_run.notes
    return runs, [*files, *rows]


def _joined(parts: list[_Part]) -> list[_Part]:
    """Join parts of one run that lie in several files of a folder, such as exports of one metric each; this is noted.
    Other runs of one name get a number behind it."""
    runs: dict[str, _Part] = {}
    for run, path, files in parts:
        named, place = bool(run.name), path.resolve().name if path.is_dir() else path.stem
        run.name = plain(run.name or place)[:LONGEST_NAME]  # before names are compared, since they are stored so
        there = runs.get(run.name)
        beside = named and not run.pieces and there and there.path.resolve().parent == path.resolve().parent
        if there and beside and there.run.format == run.format and _fit(there.run, run):
            run.notes.append(f"its metrics lie in several files ({there.path.name}, {path.name}), joined by its name")
            there.run.series |= run.series
            there.run.one_track = False
            there.run.notes += [note for note in run.notes if note not in there.run.notes]
            there.files.extend(files)
            continue
        name, number = run.name, 1
        while run.name in runs:
            number += 1
            run.name = f"{name} ({number})"
        runs[run.name] = _Part(run, path, list(files))
    return list(runs.values())


def _fit(first: RawRun, second: RawRun) -> bool:
    """Whether two parts may be of one run: their metrics differ, and the ranges of their steps overlap."""
    (low, high), (least, most) = (
        (min(min(own.steps) for own in run.series.values()), max(max(own.steps) for own in run.series.values()))
        for run in (first, second)
    )
    return not set(first.series) & set(second.series) and bool(low <= most and least <= high)


def load_reader(named: str) -> Reader:
    """Return a user's own importer, FILE.py:FUNCTION. Naming it is what allows that file to be run. Raises UserError
    where it does not exist."""
    place, _, name = named.rpartition(":")
    path = Path(place)
    check(
        path.suffix == ".py" and path.is_file() and name.isidentifier(),
        f"reader = {named!r}; allowed: FILE.py:FUNCTION, a function in a file that exists",
    )
    with blaming(f"{path} cannot be imported: "):
        module = run_file(path, f"rftlab_reader_{path.stem}")
    function: Any = getattr(module, name, None)
    check(
        callable(function),
        f"{path} has no function {name}; allowed: "
        f"{', '.join(n for n in vars(module) if callable(getattr(module, n)))[:200] or 'none'}",
    )

    def read(path: Path) -> RawRun | list[RawRun]:
        return function(path)

    read.__name__ = named  # messages name it where it fails
    return read


def _check_returned(run: RawRun) -> None:
    """Raise UserError, or what numpy raises, unless a user's reader returned a run whose names and notes are texts and
    whose numbers each have a whole step."""
    check(isinstance(run, RawRun), f"it returns {type(run).__name__}; allowed: a RawRun, or a list of them")
    texts = (run.name, run.format, run.tool, run.place, run.repeats, *run.notes, *run.series, *run.aliases)
    check(all(isinstance(text, str) for text in texts), "names or notes that are no texts; allowed: texts")
    columns = [(name, (one.steps, one.values, one.places)) for name, one in run.series.items()]
    columns += [(piece.metric, (piece.rounds, piece.values, piece.steps)) for piece in run.pieces]
    for name, parts in columns:
        steps, values, places = (np.asarray(part).astype(float, casting="same_kind") for part in parts)
        fits = steps.ndim == 1 and steps.shape == values.shape == places.shape
        whole = fits and bool(((steps == np.floor(steps)) & (steps >= 0) & (steps < 2**31)).all())
        check(whole, f"{name} has other steps; allowed: for each number one from 0 to 2^31 - 1, and its place")
