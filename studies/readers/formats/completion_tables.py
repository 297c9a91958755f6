"""TRL's `log_completions`: `completions/completions_00010.parquet`, a row a response, as records such as JSON lines
give to studies/readers/formats/rollout_records.py.

Columns are step, prompt, completion, one for each reward function, what those functions logged, and advantage. A table
holds what was generated last, so between two samplings the same responses are written again, and where TRL evaluates
those of the evaluation. Source: trl/trainer/grpo_trainer.py (`log`), 1.16.
"""

import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rftlab.studies.readers.formats import parquet
from rftlab.studies.readers.names import named

if TYPE_CHECKING:
    import pandas as pd

START = b"PAR1"
_OWN = ("step", "prompt", "completion", "advantage")
_NAME = re.compile(r"completions_(\d{1,9})\.parquet")
MAX_ROWS = 1_000_000


def is_table(path: Path) -> bool:
    """Whether a Parquet file has TRL's columns."""
    import pyarrow
    from pyarrow.parquet import read_schema

    try:
        return set(_OWN) <= set(read_schema(path).names)
    except (pyarrow.ArrowException, OSError, ValueError):
        return False


def sampled(files: list[Path], evaluated: Collection[int] = ()) -> tuple[list[Path], list[str]]:
    """Of files by step those that hold a batch that was sampled for training, each batch once, and what to note.
    evaluated: steps whose table an evaluation's has overwritten. Other files are left as they are."""
    kept: list[Path] = []
    before: list[str] = []
    for path in files:
        found = _NAME.fullmatch(path.name)
        if found is None or int(found[1]) in evaluated:
            kept += [path] * (found is None)
            continue
        frame = read_table(path)
        now = [*frame["prompt"], *frame["completion"]]
        kept += [path] * (now != before)
        before = now
    left = len(files) - len(kept)
    note = f"{left} of {len(files)} tables of completions left out: an evaluation's, or a batch that was there already"
    return kept, [note] if left else []


def read_table(path: Path) -> "pd.DataFrame":
    """A row a response: step, prompt and completion as texts, rewards as numbers. Raises UserError for a file that
    cannot be read."""
    table = parquet.read_table(path, MAX_ROWS)
    with parquet.reading(path):
        columns = {name: table[name].to_pylist() for name in _OWN[:3]}
        frame = table.drop_columns(list(_OWN)).to_pandas().select_dtypes("number")
    frame.insert(0, "step", columns["step"])
    for name in ("prompt", "completion"):
        frame[name] = [repr(value) for value in columns[name]]
    return frame


def records(frame: "pd.DataFrame", notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number of the row and the record of each response: step, prompt, completion, the reward, and accuracy where a
    reward is named for it. Rewards of several functions are added up, as TRL does with weights of 1; that is noted."""
    rewards = [name for name in frame.columns if name not in _OWN]
    right = next((name for name in rewards if _is_accuracy(name)), None)
    note = f"the reward is the sum of {', '.join(rewards)}, each with weight 1"
    if len(rewards) > 1 and note not in notes:
        notes.append(note)
    for place, row in enumerate(frame.to_dict("records"), start=1):
        values = [value for name in rewards if math.isfinite(value := float(row[name]))]
        record = {name: row[name] for name in _OWN[:3]} | ({"reward": sum(values)} if values else {})
        yield place, record | ({"accuracy": float(row[right])} if right else {})


def _is_accuracy(name: str) -> bool:
    """As a metric of that name is understood."""
    known = named(f"rewards/{name}/mean")
    return known is not None and known.metric == "pass_at_1"
