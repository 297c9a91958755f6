"""Reading what people have: files and folders of any format to runs in our terms."""

import importlib.util
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError, blaming, check
from rftlab.shared.plumbing.files import sha256_of
from rftlab.shared.plumbing.folders import FILE, kind_of, real
from rftlab.studies.readers.assemble import assemble
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.formats import FORMATS, parquet, rollouts, tensorboard, trl_state
from rftlab.studies.readers.names import METRICS, is_metric
from rftlab.studies.readers.run import ImportedRun, KnownDesign, RawRun
from rftlab.studies.readers.text import ALLOWED, kind_named, read_head

Reader = Callable[[Path], RawRun | list[RawRun]]
MAX_RUNS = 2000


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
    columns, settings = columns or {}, read_config(config) if config else None
    unknown = [what for what in columns if what not in ("step", "run") and not is_metric(what)]
    allowed = f"step, run, {', '.join(METRICS)}; test. or train. before one"
    check(not unknown, f"columns: {unknown[:1]} is no metric; allowed: {allowed}")
    read_runs: list[tuple[RawRun, Path, list[Path]]] = []
    seen: set[tuple[str, ...]] = set()
    checksum = cache(_sum)  # of a file with many runs once
    for path in map(Path, paths):
        runs, files = ([*_listed(reader(path))], [path]) if reader else _read(path, columns)
        sums = tuple(map(checksum, files))
        if sums not in seen:
            read_runs += [(run, path, files) for run in runs]
        seen.add(sums)
    check(len(read_runs) <= MAX_RUNS, f"{len(read_runs)} runs; allowed: at most {MAX_RUNS}")
    given = given or KnownDesign()
    return [
        _assembled(run, path, _named(files, checksum), _aliases(columns), settings, given, processes)
        for run, path, files in _joined(read_runs)
    ]


def _listed(runs: RawRun | list[RawRun]) -> list[RawRun]:
    return runs if isinstance(runs, list) else [runs]


def _sum(path: Path) -> str:
    return sha256_of(real(path)) if path.is_file() else str(real(path))


def _read(path: Path, columns: dict[str, str]) -> tuple[list[RawRun], list[Path]]:
    """The runs of a file or folder, and the files they came from."""
    if path.is_dir():
        return _read_folder(path, columns)
    head = read_head(path)
    form = next((form for form in FORMATS if form.recognise(head)), None)
    if form is None:
        what = "no log of a kind that is known" if head.encoding else f"{kind_named(head.raw)}, no log"
        raise UserError(f"{path} is {what}; allowed: {ALLOWED}")
    runs = form.read(path, head, columns)
    check(
        any(run.series or run.pieces for run in runs),
        f"{path} ({form.name}) holds no numbers with steps; allowed: {ALLOWED}",
    )
    return [run for run in runs if run.series or run.pieces], form.find_files(path) if form.find_files else [path]


def _read_folder(folder: Path, columns: dict[str, str]) -> tuple[list[RawRun], list[Path]]:
    """The runs of a folder: our own, a checkpoint of transformers, metrics.jsonl, an offline run of W&B, rollouts,
    TensorBoard's events."""
    if parquet.find_own_files(folder / parquet.CURVE):
        return _read(folder / parquet.CURVE, columns)
    rows = rollouts.find_rollouts(folder)
    if state := trl_state.find_state(folder):
        return _with_outcomes(*_read(state, columns), folder, rows)
    for path in (folder / "metrics.jsonl", *sorted(folder.glob("*.wandb"))):
        if kind_of(path) == FILE:
            return _read(path, columns)
    if rows:
        rows, notes = rollouts.sampled(rows)
        (run,) = rollouts.read_rollout_files(folder, rows)
        run.notes += notes
        return [run], rows
    events = tensorboard.find_event_files(folder)
    check(bool(events), f"{folder} holds no log that is known; allowed: {ALLOWED}")
    runs = [run for run in tensorboard.read_event_folder(folder, events) if run.series]
    check(bool(runs), f"{folder} has TensorBoard events, but none with numbers; allowed: events with scalars")
    return runs, events


def _with_outcomes(
    runs: list[RawRun], files: list[Path], folder: Path, rows: list[Path]
) -> tuple[list[RawRun], list[Path]]:
    """The metrics of TRL's run with the right responses of its groups, which lie in a folder below, counted by the
    same steps."""
    evaluated = {step for name, own in runs[0].series.items() if name.startswith("eval_") for step in own.steps}
    rows, notes = rollouts.sampled(rows, evaluated)
    (rollout_run,) = rollouts.read_rollout_files(folder, rows) if rows else [RawRun("", "")]
    if rollout_run.tool != "trl":
        return runs, files
    runs[0].outcomes, runs[0].notes = rollout_run.outcomes, runs[0].notes + notes + rollout_run.notes
    return runs, [*files, *rows]


def _aliases(columns: dict[str, str]) -> dict[str, str]:
    """From a source's name to ours, of the metrics that the user named."""
    return {source: what for what, source in columns.items() if what not in ("step", "run")}


def _joined(parts: list[tuple[RawRun, Path, list[Path]]]) -> list[tuple[RawRun, Path, list[Path]]]:
    """Parts of one run that lie in several files of a folder, as exports of one metric each, become one, which is
    noted; other runs get names that differ."""
    runs: dict[str, tuple[RawRun, Path, list[Path]]] = {}
    for run, path, files in parts:
        named, run.name = bool(run.name), run.name or (path.resolve().name if path.is_dir() else path.stem)
        there = runs.get(run.name)
        if (
            there
            and named
            and not run.pieces
            and there[0].format == run.format
            and there[1].resolve().parent == path.resolve().parent
            and not set(there[0].series) & set(run.series)
            and _meet(there[0], run)
        ):
            run.notes.append(f"its metrics lie in several files ({there[1].name}, {path.name}), joined by its name")
            there[0].series |= run.series
            there[0].one_track = False
            there[0].notes += [note for note in run.notes if note not in there[0].notes]
            runs[run.name] = (there[0], there[1], there[2] + files)
            continue
        name, number = run.name, 1
        while run.name in runs:
            number += 1
            run.name = f"{name} ({number})"
        runs[run.name] = (run, path, files)
    return list(runs.values())


def _meet(first: RawRun, second: RawRun) -> bool:
    """Whether the ranges of their steps meet, as those of one run's metrics do."""
    (low, high), (least, most) = (
        (min(min(own.steps) for own in run.series.values()), max(max(own.steps) for own in run.series.values()))
        for run in (first, second)
    )
    return bool(low <= most and least <= high)


def _named(files: list[Path], checksum: Callable[[Path], str]) -> tuple[tuple[str, str], ...]:
    """Names and checksums of the files of a run."""
    return tuple((file.name, checksum(file)) for file in files if file.is_file())


def _assembled(
    run: RawRun,
    path: Path,
    sources: tuple[tuple[str, str], ...],
    aliases: dict[str, str],
    settings: dict | None,
    given: KnownDesign,
    processes: int | None,
):
    """A run in our terms; what is wrong with it is told with the path."""
    missing = [source for source in aliases if source not in run.series]
    check(not missing, f"{path}: no column {missing[:1]} with numbers; allowed: {', '.join(sorted(run.series)[:12])}")
    run.aliases |= aliases
    if settings is not None:
        run.config, run.whole = settings, False
    try:
        return assemble(run, sources, given, processes)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def load_reader(named: str) -> Reader:
    """A user's own importer, the function FILE.py:FUNCTION; naming it is what allows that file to be run. Raises
    UserError where there is none."""
    place, _, name = named.rpartition(":")
    path = Path(place)
    check(
        path.suffix == ".py" and path.is_file() and name.isidentifier(),
        f"reader = {named!r}; allowed: FILE.py:FUNCTION, a function in a file that exists",
    )
    spec = importlib.util.spec_from_file_location(f"rftlab_reader_{path.stem}", path)
    assert spec and spec.loader  # there are for any file named .py
    module = importlib.util.module_from_spec(spec)
    with blaming(f"{path} cannot be imported: "):
        spec.loader.exec_module(module)
    function: Any = getattr(module, name, None)
    check(
        callable(function),
        f"{path} has no function {name}; allowed: "
        f"{', '.join(n for n in vars(module) if callable(getattr(module, n)))[:200] or 'none'}",
    )

    def read(path: Path) -> RawRun | list[RawRun]:
        with blaming(f"reader {named} on {path}: "):
            runs = function(path)
        listed = runs if isinstance(runs, list) else [runs]
        check(
            all(isinstance(run, RawRun) for run in listed),
            f"reader {named} on {path}: it returns {type(runs).__name__}; allowed: a RawRun, or a list of them",
        )
        return runs

    return read
