"""Every rollout of training on disk: one Parquet file per interval between checkpoints, so that a resumed run loses and repeats nothing.

    rollouts/000001-000100.parquet     rounds 1 to 100, written before the checkpoint of round 100
A run that was killed in between writes the same file again.
"""

import io
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from llm.trainer import Round
from llm.writing import write_file

SCHEMA = pyarrow.schema(
    [
        ("round", pyarrow.int64()),
        ("prompt", pyarrow.int64()),
        ("rollout", pyarrow.int64()),
        ("trained", pyarrow.bool_()),
        ("text", pyarrow.string()),
        ("tokens", pyarrow.list_(pyarrow.int64())),
        ("logp", pyarrow.list_(pyarrow.float64())),
        ("finished", pyarrow.bool_()),
        ("strict", pyarrow.float64()),
        ("flexible", pyarrow.float64()),
        ("reward", pyarrow.float64()),
        ("advantage", pyarrow.float64()),
    ]
)
"""prompt: its number in the training split. rollout: its number among the prompt's. logp: of the sampler. advantage: of the first token; null for
support rollouts."""


def table_of(done: Round) -> pyarrow.Table:
    """The rows of a round; rounds count from 1."""
    samples, responses = done.samples, done.samples.rollouts.responses
    n = len(samples.texts)
    first = np.searchsorted(samples.group, np.arange(len(samples.contexts)))
    columns = {
        "round": np.full(n, done.index + 1),
        "prompt": samples.contexts[samples.group],
        "rollout": np.arange(n) - first[samples.group],
        "trained": samples.trained,
        "text": [text.encode("utf-8", "replace").decode() for text in samples.texts],
        "tokens": pyarrow.ListArray.from_arrays(pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(responses.tokens)),
        "logp": pyarrow.ListArray.from_arrays(pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(samples.rollouts.logp)),
        "finished": samples.rollouts.finished,
        "strict": samples.strict,
        "flexible": samples.flexible,
        "reward": done.rewards,
        "advantage": pyarrow.array(done.advantages, mask=np.isnan(done.advantages)),
    }
    return pyarrow.table(columns, schema=SCHEMA)


def write_rollouts(folder: Path, tables: list[pyarrow.Table], first: int, last: int) -> None:
    """The rollouts of rounds first .. last."""
    write_file(folder / "rollouts" / f"{first:06}-{last:06}.parquet", parquet(pyarrow.concat_tables(tables)))


def parquet(table: pyarrow.Table) -> bytes:
    """A table as the bytes of a file."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()
