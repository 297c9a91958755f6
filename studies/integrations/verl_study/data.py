"""A task as verl reads it: Parquet with a row for each question, and the file of its reward.

data/train.parquet                 questions to train on
     test.parquet                  unseen questions of the evaluations
     training-questions.parquet    training questions of the evaluations
     reward.py                     the task's strict reward
     data.json                     what they were made from
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from rftlab.llm.config import LLMRun
from rftlab.llm.random import subset
from rftlab.llm.tasks.task import Split, Task
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers.formats.verl_console import TRAINING

TRAIN, TEST, SEEN, REWARD, ABOUT = (
    "train.parquet",
    "test.parquet",
    "training-questions.parquet",
    "reward.py",
    "data.json",
)
_MESSAGE = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
SCHEMA = pyarrow.schema(
    [
        ("data_source", pyarrow.string()),
        ("prompt", pyarrow.list_(_MESSAGE)),
        ("reward_model", pyarrow.struct([("style", pyarrow.string()), ("ground_truth", pyarrow.string())])),
        (
            "extra_info",
            pyarrow.struct([("index", pyarrow.int64()), ("split", pyarrow.string()), ("verifier", pyarrow.string())]),
        ),
    ]
)
"""verl's columns (examples/data_preprocess of 0.9.1); `verifier` is ours."""
REWARD_FILE = '''"""The reward of these data: rftlab's own verifier, one response at a time."""

from rftlab.studies.integrations.verl_study.reward import compute_score

__all__ = ["compute_score"]
'''


def data_files(run: LLMRun, task: Task) -> dict[str, bytes]:
    """The files of a pair, by name. Raises UserError where its prompts are no chat messages.

    No tokenizer is asked: prompts that are too long are in them, and verl leaves those out itself. Questions of the
    evaluations are those of `rftlab train` where none is too long.
    """
    unseen = task[run.evaluation.split]
    seen, test = (
        subset(len(split), size or len(split))
        for split, size in (
            (task["train"], run.evaluation.train_subset),
            (unseen, run.evaluation.test_subset),
        )
    )
    return {
        TRAIN: _table(task, "train", range(len(task["train"])), task.name),
        TEST: _table(task, run.evaluation.split, test, task.name),
        SEEN: _table(task, "train", seen, task.name + TRAINING),
        REWARD: REWARD_FILE.encode(),
        ABOUT: about(run, task),
    }


def about(run: LLMRun, task: Task) -> bytes:
    """What the files are made from: equal where they would be."""
    evaluation = run.evaluation
    sizes = {"train": evaluation.train_subset, evaluation.split: evaluation.test_subset}
    return json.dumps({"task": task.name, "sha256": task.sha256, "evaluated": sizes}, indent=1).encode()


def _table(task: Task, split: str, chosen: Sequence[int] | np.ndarray, source: str) -> bytes:
    rows = [_row(task, task[split], split, int(i), source) for i in chosen]
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _row(task: Task, questions: Split, split: str, i: int, source: str) -> dict[str, Any]:
    prompt = questions.prompts[i]
    if isinstance(prompt, str):
        raise UserError(f"prompts of {task.name} are text; verl reads chat messages; allowed: a task with those")
    return {
        "data_source": source,
        "prompt": prompt,
        "reward_model": {"style": "rule", "ground_truth": questions.answers[i]},
        "extra_info": {"index": i, "split": split, "verifier": task.verifier},
    }
