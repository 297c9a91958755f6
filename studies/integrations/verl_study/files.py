"""Write the cells of a pair as folders for verl, which any cluster can run.

    verl/PAIR/README.md              the three commands, and the cells that are left out
              data/                  once for all cells, Parquet with a row for each question:
                train.parquet        questions to train on
                test.parquet         unseen questions of the evaluations
                training-questions.parquet  training questions of the evaluations
                reward.py            the task's strict reward
                data.json            the sources of the data
              POINT/verl.yaml        what differs from verl's own configuration
                    run.sh           the command; writes run.log and checkpoints/ beside it
                    design.json      the design in rftlab's terms, and the whole configuration of the run

Writing them again changes nothing, and files that a run has written stay.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from rftlab.llm.config import LLMRun, model_config
from rftlab.llm.random import subset
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Split, Task
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, verify_folder, write_file, write_folder
from rftlab.shared.plumbing.folders import file_below, folder_below, path_kind, read_file
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.integrations.cluster import Cluster
from rftlab.studies.integrations.verl_study.settings import VERL, refused, verl_config
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.formats.verl_console import TRAINING

PLACE, DATA = "verl", "data"
SETTINGS, COMMAND, DESIGN, README, LOG = "verl.yaml", "run.sh", "design.json", "README.md", "run.log"
TRAIN, TEST, SEEN = "train.parquet", "test.parquet", "training-questions.parquet"
REWARD, ABOUT = "reward.py", "data.json"
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
"""Columns of verl's data (examples/data_preprocess of 0.9.1); `verifier` is ours."""
REWARD_FILE = '''"""The reward of these data: rftlab's own verifier, one response at a time."""

from rftlab.studies.integrations.verl_study.reward import compute_score

__all__ = ["compute_score"]
'''
_HEAD = f"""# What differs from verl's own ppo_trainer.yaml (read in verl {VERL}). run.sh adds the places of files.
defaults:
  - ppo_trainer
  - _self_
hydra:
  searchpath:
    - pkg://verl.trainer.config
"""
_RUN = """#!/usr/bin/env bash
# {name}. Run it again to go on from the last checkpoint. More of verl's settings may follow as arguments.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$(cd "$here/../data" && pwd)
case "$here" in *"'"*) echo "$here: allowed: a folder without ' in its name" >&2; exit 2 ;; esac
cd "$here"
python3 -m verl.trainer.main_ppo --config-path "$here" --config-name verl \\
    "data.train_files='$data/train.parquet'" \\
    "data.val_files=['$data/test.parquet','$data/training-questions.parquet']" \\
    "reward.custom_reward_function.path='$data/reward.py'" \\
    "trainer.default_local_dir='$here/checkpoints'" \\
    "$@" 2>&1 | tee -a run.log
"""


def write_pair(root: Path, points: list[RunSpec], cluster: Cluster) -> tuple[Path, dict[str, str]]:
    """Write the folders of a pair's runs. Returns the folder of all, and the cells without one with the reason. Raises
    UserError for a model or data that verl cannot take, where other data exist already, and where nothing can be
    written. points: of one pair, with the cluster's model and data."""
    run, pair = points[0].llm_run, points[0].pair
    source = run.model.source
    check(
        "/" in source,
        f"model.source = {source!r} is no folder and no name on the hub; allowed: --verl.model with a folder of the "
        "cluster, or a name on the hub",
    )
    task = load_task(run.task)
    left_out = find_left_out(points, cluster, len(task["train"]))
    kept = [point for point in points if point.cell not in left_out]
    folder = folder_below(root, PLACE, pair)
    with reported(folder):
        _write_data(root, points[0], task)
        for point in kept:
            for name, text in point_files(point, cluster).items():
                _write(file_below(root, PLACE, pair, point.id, name), text.encode())
        _write(file_below(root, PLACE, pair, README), readme(pair, left_out).encode())
    return folder, left_out


def find_left_out(points: list[RunSpec], cluster: Cluster, questions: int) -> dict[str, str]:
    """Return the cells that verl cannot run as intended, with the reason. questions: number to train on."""
    left_out = {}
    for point in points:
        run, size = point.llm_run, point.run.design.batch_size
        short = f"batch_size = {size} of {questions} questions: verl takes whole batches" if size > questions else ""
        reason = refused(run, cluster) or short
        if reason:
            left_out[point.cell] = reason
    return left_out


def point_files(point: RunSpec, cluster: Cluster) -> dict[str, str]:
    """Return the files of a run, by name."""
    return {
        SETTINGS: _HEAD + yaml_text(verl_config(point.llm_run, point.id, cluster)),
        COMMAND: _RUN.format(name=point.name),
        DESIGN: json.dumps(describe_design(point), indent=1, sort_keys=True) + "\n",
    }


def describe_design(point: RunSpec) -> dict[str, Any]:
    """Return a run as plain values: its identity, its design in the terms of imported runs, its whole configuration."""
    config = model_config(point.llm_run)
    known, _ = read_design(config, "rftlab", None)
    what = {"pair": point.pair, "cell": point.cell, "seed": point.run.seed, "id": point.id, "verl": VERL}
    return what | {"design": asdict(known), "config": config}


def yaml_text(settings: dict[str, Any], depth: int = 0) -> str:
    """Return nested settings as YAML; texts are quoted."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, dict):
            lines.append(f"{'  ' * depth}{name}:\n{yaml_text(value, depth + 1)}")
        else:
            lines.append(f"{'  ' * depth}{name}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    """Return a value as text that YAML 1.1 and 1.2 read alike: numbers with a point, texts in quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, float):
        text = ".inf" if math.isinf(value) else repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return json.dumps(value)


def readme(pair: str, left_out: dict[str, str]) -> str:
    """Return the README of a pair: the three commands, and the cells that are left out."""
    missing = "".join(f"* {line}\n" for line in reasons(left_out)) or "None.\n"
    return f"""# {pair} in verl

On a cluster whose machines all see this folder:

    pip install ~/rftlab "verl=={VERL}"          # where verl runs; ~/rftlab is the folder of rftlab
    for run in */run.sh; do bash "$run"; done    # or one of them
    rftlab import */run.log --name verl-{pair}   # wherever rftlab is

`rftlab compare imported:verl-{pair} llm:{pair}` then compares them.

Cells that are left out:

{missing}"""


def reasons(left_out: dict[str, str]) -> list[str]:
    """Return each reason with the cells that it leaves out."""
    return [
        f"{', '.join(cell for cell, why in left_out.items() if why == reason)}: {reason}"
        for reason in dict.fromkeys(left_out.values())
    ]


def _write_data(root: Path, point: RunSpec, task: Task) -> None:
    """Write the folder of data, unless the same data are there. Raises UserError where other data are."""
    folder = folder_below(root, PLACE, point.pair, DATA)
    if path_kind(folder) is not None:
        try:
            verify_folder(folder, (ABOUT, TRAIN, TEST, SEEN, REWARD))
            same = read_file(folder / ABOUT) == describe_data(point.llm_run, task)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} cannot be trusted: {error}; remove it and run the same command again") from None
        check(same, f"{folder} holds other data; allowed: another --results, or remove verl/{point.pair}")
        return
    write_folder(folder, pair_files(point.llm_run, task))


def _write(path: Path, content: bytes) -> None:
    """Write a file, unless it exists with this content."""
    if path_kind(path) is None or read_file(path) != content:
        write_file(path, content)


def pair_files(run: LLMRun, task: Task) -> dict[str, bytes]:
    """Return the data files of a pair, by name. Raises UserError where its prompts are not chat messages.

    No tokenizer is used: prompts that are too long are included, and verl leaves them out itself. Questions of the
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
        ABOUT: describe_data(run, task),
    }


def describe_data(run: LLMRun, task: Task) -> bytes:
    """Return a description of the sources of the files as bytes, which are equal where the files would be."""
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
