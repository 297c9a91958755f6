"""Read trainer_state.json, which TRL leaves in every checkpoint, training_args.bin beside it for the design, and the
files of the model beside them for its name. training_args.bin is a pickle. It is read with an unpickler that knows no
class and calls nothing (`frozen_values`), so it cannot run anything.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import FILE, json_object, numbered, path_kind, read_json
from rftlab.studies.readers.designs.config_file import frozen_values, read_yaml
from rftlab.studies.readers.designs.values import as_count, as_word, plain_values
from rftlab.studies.readers.formats.json_records import flatten_record, is_json_lines
from rftlab.studies.readers.formats.trl_console import END
from rftlab.studies.readers.run import KnownDesign, RawRun
from rftlab.studies.readers.text import Head, finite_number, whole

STATE, ARGUMENTS = "trainer_state.json", "training_args.bin"
ADAPTER, CONFIG, CARD = "adapter_config.json", "config.json", "README.md"
_BATCH = "train_batch_size"
"""Batch size of a process in a state: more than that of a device where torch's DataParallel has several."""
LARGEST = 1 << 20
"""Largest size in bytes of a file of the model that is read."""
SHAPE = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_FRONT = re.compile(r"---\r?\n(.{0,20000}?)\n---", re.DOTALL)
_STATED = {"model_name_or_path": "base_model", "dataset_name": "datasets"}
"""Keys in the front matter of a model card, by the names of TRL's script arguments."""


def is_trainer_state(head: Head) -> bool:
    """Whether a file is a JSON object with a log_history. Lines of objects do not count, because ms-swift gives the
    last of them one."""
    return head.text.lstrip("\ufeff \r\n\t").startswith("{") and (
        head.path.name == STATE or ('"log_history"' in head.text and (len(head.lines) < 2 or not is_json_lines(head)))
    )


def find_state(folder: Path) -> Path | None:
    """Return the state of a folder: its own, or that of its last checkpoint that has one, because a run may end while
    it saves; None where it has none."""
    checkpoints = {
        int(number): path
        for path in folder.glob("checkpoint-*")
        if (number := path.name.removeprefix("checkpoint-")).isascii() and number.isdigit() and len(number) < 19
    }
    paths = [folder, *(checkpoints[number] for number in sorted(checkpoints, reverse=True)), *numbered(folder)[-1:]]
    return next((path / STATE for path in paths if path_kind(path / STATE) == FILE), None)


def read_trainer_state(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of a state. Raises UserError where the file is no whole state."""
    path = head.path
    try:
        state = read_json(path.resolve(), json_object)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; allowed: a whole trainer_state.json") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise UserError(
            f"{path} has no log_history that is a list; allowed: trainer_state.json as transformers writes it"
        )
    folder = path.resolve().parent
    of_run = folder.parent if folder.name.startswith("checkpoint-") else folder
    run = run_from_history(of_run.name, history, state.get("logging_steps"))
    for place in (path.parent / ARGUMENTS, path.parent.parent / ARGUMENTS):
        if run.config is None and path_kind(place) == FILE:
            try:
                run.config = frozen_values(place)
            except ValueError as error:
                run.notes.append(f"{ARGUMENTS} beside it cannot be read: {error}")
    facts = model_facts(dict.fromkeys((folder, of_run)))
    run.design = KnownDesign(model=facts.get("model_name_or_path"), adapter_rank=facts.get("lora_r"))
    device, batch = (as_count(it) for it in ((run.config or {}).get("per_device_train_batch_size"), state.get(_BATCH)))
    if run.config is not None and device and batch and batch > device and batch % device == 0:
        run.notes.append(f"{_BATCH} = {batch} of the state: {batch // device} GPUs of one process share each batch")
        run.config |= {"per_device_train_batch_size": batch, "num_processes": 1}
    if run.config is not None:
        run.config = facts | run.config  # repeats of a run share these facts too
    return [run]


def run_from_history(name: str, history: list, every: Any) -> RawRun:
    """Return a run from the records of a state. every: logging_steps of the state."""
    run = RawRun(name, STATE, tool="trl", place="record")
    without = 0
    for place, record in enumerate(history, start=1):
        values = flatten_record(record)[0] if isinstance(record, dict) else {}
        step = whole(values.get("step"))
        if step is None:
            without += 1
            continue
        for name, value in values.items():
            if name not in ("step", "epoch", *END):
                run.add(name, step, value, place)
    run.notes += [f"{without} records without a step left out"] if without else []
    if (finite_number(every) or 0) > 1:
        run.notes.append(f"logging_steps = {every:g}: train values are means over as many updates, at the last of them")
    return run


def model_facts(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the facts in a model's files, by the names of TRL's script arguments: model_name_or_path, dataset_name,
    lora_r; model_shape where no file names the model. The first of several folders that states a fact decides. A file
    that cannot be read says nothing, because it belongs to the model, not to the log."""
    facts: dict[str, Any] = {}
    shapes: list[dict[str, Any]] = []
    for folder in folders:
        adapter, config = (_object(folder / name) for name in (ADAPTER, CONFIG))
        card = _card_facts(folder / CARD)
        names = (adapter.get("base_model_name_or_path"), card.get("model_name_or_path"), config.get("_name_or_path"))
        stated = {
            "model_name_or_path": next((name for name in map(as_word, names) if name), None),
            "dataset_name": as_word(card.get("dataset_name")),
            "lora_r": as_count(adapter.get("r")),
        }
        facts = {name: value for name, value in stated.items() if value} | facts
        shapes += [shape] if (shape := {name: config[name] for name in SHAPE if name in config}) else []
    if "model_name_or_path" not in facts and shapes:
        facts["model_shape"] = shapes[0]
    return facts


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where there is none."""
    try:
        value = read_json(path) if path_kind(path) == FILE and path.stat().st_size <= LARGEST else None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _card_facts(path: Path) -> dict[str, str]:
    """Return the facts of `_STATED` in the YAML before the text of a model card; several data sets make one text."""
    try:
        text = path.read_text("utf-8", "replace") if path_kind(path) == FILE and path.stat().st_size <= LARGEST else ""
        front = _FRONT.match(text)
        card = plain_values(read_yaml(front[1])) if front else {}
    except (OSError, ValueError):
        return {}
    stated = {name: card.get(key) for name, key in _STATED.items()} if isinstance(card, dict) else {}
    parts = {name: value if isinstance(value, list) else [value] for name, value in stated.items() if value}
    return {name: ", ".join(sorted(map(str, part))) for name, part in parts.items()}
