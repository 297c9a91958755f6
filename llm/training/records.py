"""Every rollout of training on disk: one Parquet file per interval between checkpoints, so that a resumed run loses and
repeats nothing.

    rollouts/000001-000100.parquet     rounds 1 to 100, written before the checkpoint of round 100
A run that was killed in between writes the same file again.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from rftlab.llm.training.samples import Samples
from rftlab.llm.training.trainer import Round
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import file_below

SCHEMA = pyarrow.schema(
    [
        ("round", pyarrow.int64()),
        ("prompt", pyarrow.int64()),
        ("rollout", pyarrow.int64()),
        ("role", pyarrow.string()),
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
"""prompt: its number in the training split, from 0. rollout: its number among the prompt's. role: trained; replayed
(of an earlier round, trained on again); support (for baseline sets); dropped (of a group that dynamic sampling
replaced); greedy (a baseline). logp: of the sampler. reward: after penalties; null for dropped and greedy ones.
advantage: of the first token; null for all that are not trained on. A user's rewards follow, each as `reward_<name>`,
before its weight."""


def rollout_table(done: Round, numbers: Sequence[int]) -> pyarrow.Table:
    """The rows of a round; rounds count from 1. numbers: of the prompts in the training split."""
    own = _table(
        done.number,
        numbers,
        done.samples,
        np.where(done.samples.replayed, "replayed", np.where(done.samples.trained, "trained", "support")),
        done.rewards,
        done.advantages,
    )
    others = [
        _table(done.number, numbers, samples, np.full(len(samples.texts), role), *2 * [samples.strict * np.nan])
        for role, samples in done.others
    ]
    return pyarrow.concat_tables([own, *others])


def _table(
    index: int, numbers: Sequence[int], samples: Samples, role: np.ndarray, rewards: np.ndarray, advantages: np.ndarray
) -> pyarrow.Table:
    responses, n = samples.rollouts.responses, len(samples.texts)
    first = np.searchsorted(samples.group, np.arange(len(samples.contexts)))
    columns = {
        "round": np.full(n, index + 1),
        "prompt": np.asarray(numbers)[samples.contexts][samples.group],
        "rollout": np.arange(n) - first[samples.group],
        "role": pyarrow.array(role, pyarrow.string()),
        "text": pyarrow.array([text.encode("utf-8", "replace").decode() for text in samples.texts], pyarrow.string()),
        "tokens": pyarrow.ListArray.from_arrays(
            pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(responses.tokens)
        ),
        "logp": pyarrow.ListArray.from_arrays(
            pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(samples.rollouts.logp)
        ),
        "finished": samples.rollouts.finished,
        "strict": samples.strict,
        "flexible": samples.flexible,
        "reward": pyarrow.array(rewards, mask=np.isnan(rewards)),
        "advantage": pyarrow.array(advantages, mask=np.isnan(advantages)),
    }
    table = pyarrow.table(columns, schema=SCHEMA)
    for name, own_R in (samples.own.by_name if samples.own else {}).items():
        table = table.append_column(f"reward_{name}", pyarrow.array(own_R))
    return table


def write_rollouts(folder: Path, tables: list[pyarrow.Table], first: int, last: int) -> None:
    """The rollouts of rounds first .. last."""
    write_file(file_below(folder, "rollouts", f"{first:06}-{last:06}.parquet"), parquet(pyarrow.concat_tables(tables)))


def parquet(table: pyarrow.Table) -> bytes:
    """A table as the bytes of a file."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()
