"""Pieces of a run as a long table, and back; for pandas, and for Parquet a part at a time."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow

from rftlab.studies.readers.run import COLUMNS, MetricSeries

LABELS = ("split", "task", "metric", "source")
_TEXT = pyarrow.dictionary(pyarrow.int16(), pyarrow.string())
_KINDS = {"round": pyarrow.int32(), "value": pyarrow.float64(), "n": pyarrow.float32(), "source_step": pyarrow.int32()}
SCHEMA = pyarrow.schema([(name, _KINDS.get(name, _TEXT)) for name in COLUMNS])
"""Labels are dictionaries, so that a value costs a few bytes."""


def make_frame(run: str, pieces: tuple[MetricSeries, ...]) -> pd.DataFrame:
    """The long form (`COLUMNS`) of a run, a piece after the other."""
    table = _table(run, list(pieces))
    frame = table.to_pandas(types_mapper={pyarrow.int32(): pd.Int32Dtype()}.get, use_threads=False)
    return frame.astype({"round": np.int32})


def make_tables(run: str, pieces: tuple[MetricSeries, ...], rows: int) -> Iterator[pyarrow.Table]:
    """The same as tables of about so many rows, of `SCHEMA`."""
    batch: list[MetricSeries] = []
    for piece in pieces:
        batch.append(piece)
        if sum(len(one.rounds) for one in batch) >= rows:
            yield _table(run, batch)
            batch = []
    if batch:
        yield _table(run, batch)


def _table(run: str, pieces: list[MetricSeries]) -> pyarrow.Table:
    lengths = [len(piece.rounds) for piece in pieces]

    def labels(values: list[str]) -> pyarrow.DictionaryArray:
        kinds, codes = _coded(values)
        return pyarrow.DictionaryArray.from_arrays(np.repeat(codes.astype(np.int16), lengths), kinds)

    steps = _joined([piece.steps for piece in pieces], np.int32)
    columns = {
        "run": labels([run] * len(pieces)),
        "round": pyarrow.array(_joined([piece.rounds for piece in pieces], np.int32)),
        "value": pyarrow.array(_joined([piece.values for piece in pieces], float)),
        "n": pyarrow.array(_joined([_behind(piece) for piece in pieces], np.float32), from_pandas=True),
        "source_step": pyarrow.array(steps, mask=steps < 0),
    }
    columns |= {name: labels([getattr(piece, name) for piece in pieces]) for name in LABELS}
    return pyarrow.table([columns[name] for name in COLUMNS], schema=SCHEMA)


def split_pieces(table: pyarrow.Table) -> dict[str, tuple[MetricSeries, ...]]:
    """The pieces of each run of a table that `make_tables` gave; views, not copies."""
    codes = [table[name].unify_dictionaries().combine_chunks() for name in ("run", *LABELS)]
    codes = [part.combine_chunks() if isinstance(part, pyarrow.ChunkedArray) else part for part in codes]
    marks = np.stack([part.indices.to_numpy() for part in codes])
    starts = [0, *(np.flatnonzero((np.diff(marks) != 0).any(axis=0)) + 1).tolist()] if marks.size else []
    rounds, values = table["round"].to_numpy(), table["value"].to_numpy()
    n, steps = table["n"].to_numpy(), table["source_step"].fill_null(-1).to_numpy()
    by_run: dict[str, list[MetricSeries]] = {}
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        run, split, task, metric, source = (
            part.dictionary[int(code)].as_py() for part, code in zip(codes, marks[:, start], strict=True)
        )
        own = slice(start, end)
        known = None if np.isnan(n[own]).all() else n[own]
        by_run.setdefault(run, []).append(
            MetricSeries(split, task, metric, source, rounds[own], values[own], known, steps[own])
        )
    return {run: tuple(pieces) for run, pieces in by_run.items()}


def _coded(values: list[str]) -> tuple[list[str], np.ndarray]:
    """Kinds of labels in order, and the place of each among them."""
    kinds = sorted(set(values))
    places = {kind: i for i, kind in enumerate(kinds)}
    return kinds, np.array([places[value] for value in values], dtype=np.int64)


def _behind(piece: MetricSeries) -> np.ndarray:
    return np.full(len(piece.rounds), np.nan, np.float32) if piece.n is None else piece.n


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate([np.asarray(part).astype(kind, copy=False) for part in parts]) if parts else np.empty(0, kind)
