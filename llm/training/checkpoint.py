"""Write and read checkpoints, which hold everything that a run needs to resume exactly. Tensors are stored as
safetensors, the rest as JSON; nothing is pickled.

    checkpoints/000100/{model,optimizer,arrays}.safetensors, state.json, checksums.json
A checkpoint is written atomically, and the one before it is kept. A damaged one is reported, and the one before it is
used. A finished run of a study keeps only `state.json` (`prune`), which has all measurements.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays

from rftlab.llm.config import model_config
from rftlab.llm.policy.tensors import MOMENTS, WEIGHTS, moment_files, restore_moments
from rftlab.llm.stored import STATE, flat_config
from rftlab.llm.training.trainer import Trainer, TrainerState
from rftlab.shared.memory import Windows
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, verify_folder, write_folder
from rftlab.shared.plumbing.folders import entries, folder_below, numbered, read_file, read_json, remove

ARRAYS = "arrays.safetensors"
TENSORS = (WEIGHTS, MOMENTS, ARRAYS)
COUNTS = ("round", "position", "updates", "rollouts", "tokens", "lowest", "highest", "totals")
"""Fields of the trainer's state that are stored in `state.json`."""
_FACTS = {
    "config": dict,
    "state": dict,
    "meter": dict,
    "rows": list,
    "metrics": list,
    "seconds": float,
    "data": str,
    "next": dict,
}
"""Entries of a checkpoint's `state.json`, and their types."""


class Progress(NamedTuple):
    """Measurements of a run so far."""

    rows: list
    """One tuple per evaluation: the fields of `rftlab.shared.curve.Curve` before FLEXIBLE, which are in `metrics`."""
    metrics: list
    """One dictionary of measurements per evaluation."""
    seconds: float


def save(folder: Path, trainer: Trainer, progress: Progress) -> None:
    """Write the checkpoint of the present round, and remove those beyond the number to keep."""
    place = folder_below(folder, "checkpoints")
    target = place / f"{trainer.state.round:06}"
    files = {
        **moment_files(trainer.policy.named_parameters(), trainer.optimizer),
        ARRAYS: lambda path: save_arrays(_arrays(trainer.state), path),
        STATE: json.dumps(_facts(trainer, progress), indent=1).encode(),
    }
    with reported(
        target, "checkpoints that are there stay, run the same command again to go on from the last", SafetensorError
    ):
        write_folder(target, files)  # before an older one is removed, so that there is always a complete one
        for old in numbered(place)[: -trainer.run.checkpoints_kept]:
            remove(old)


def prune(folder: Path) -> None:
    """Keep the measurements of a finished run, and drop the weights and moments of its checkpoints, each three times
    the size of the model."""
    place = folder_below(folder, "checkpoints")
    last = numbered(place)[-1]
    with reported(last, "the run is finished, and kept"):
        write_folder(last, {STATE: read_file(last / STATE)})
        for other in set(entries(place)) - {last}:  # also damaged ones that were renamed
            remove(other)


def _arrays(state: TrainerState) -> dict[str, np.ndarray]:
    windows = {} if state.windows is None else state.windows._asdict()
    rest = {"averages": state.averages, "bonus": state.bonus}
    replays = {} if state.replays is None else state.replays.arrays()
    parts = {"windows": windows, "replays": replays}
    named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
    return named | {name: array for name, array in rest.items() if array is not None}


def _facts(trainer: Trainer, progress: Progress) -> dict:
    state, meter = trainer.state, trainer.meter
    counts = {name: getattr(state, name) for name in COUNTS}
    phases = {"seconds": meter.seconds, "peak": meter.peak}
    identity = {"config": model_config(trainer.run), "data": trainer.data.sha256, "base": trainer.base}
    return {**identity, "next": _next(trainer), "state": counts, "meter": phases, **progress._asdict()}


def _next(trainer: Trainer) -> dict:
    """Return the prompts of the next batch: their numbers, and a checksum of their ids."""
    contexts = trainer.next_contexts()
    ids = [trainer.data.train.prompts[c] for c in contexts]
    return {"prompts": contexts.tolist(), "sha256": hashlib.sha256(json.dumps(ids).encode()).hexdigest()}


def resume(folder: Path, trainer: Trainer, remark: Callable[[str], None]) -> Progress | None:
    """Restore a trainer from the latest good checkpoint and return its progress; None where there is none. The weights
    of a finished run are not restored.

    Raises UserError where a checkpoint has another configuration, data or base model, or where other prompts would
    come next.
    """
    for place in reversed(numbered(folder_below(folder, "checkpoints"))):
        try:
            facts = _read(place, trainer.run.design.rounds)
        except ValueError as damage:
            remark(f"damaged, the checkpoint before it is used: {damage}")
            _put_aside(place)
            continue
        check_config(place, facts["config"], model_config(trainer.run))
        _restore(trainer, place, facts)
        if trainer.state.round < trainer.run.design.rounds:
            _restore_tensors(trainer, place)
        return Progress([tuple(row) for row in facts["rows"]], facts["metrics"], facts["seconds"])
    return None


def recorded(folder: Path) -> dict | None:
    """Return the configuration in the latest readable checkpoint; None where there is none."""
    for place in reversed(numbered(folder_below(folder, "checkpoints"))):
        with suppress(OSError, ValueError):
            facts = read_json(place / STATE)
            if isinstance(facts, dict) and isinstance(facts.get("config"), dict):
                return facts["config"]
    return None


def _read(place: Path, rounds: int) -> dict:
    """Return the contents of a complete checkpoint; tensors are needed only where the run is to go on. Raises
    ValueError where it is incomplete."""
    verify_folder(place, (STATE, *TENSORS) if int(place.name) < rounds else (STATE,))
    facts = read_json(place / STATE)
    if not isinstance(facts, dict) or any(type(facts.get(name)) is not kind for name, kind in _FACTS.items()):
        raise ValueError(f"{place / STATE} is not what a checkpoint says")
    if facts["state"].get("round") != int(place.name):
        raise ValueError(f"{place} belongs to another round than its name says")
    return facts


def _put_aside(place: Path) -> None:
    """Rename a damaged checkpoint, so that the rounds written again do not count as older than it."""
    aside = place.with_name(f"damaged-{place.name}")
    with reported(place):
        remove(aside)
        place.rename(aside)


def check_config(place: Path, there: dict, here: dict) -> None:
    """Raise UserError that names the first different field, unless two configurations are equal."""
    stored, wanted = flat_config(there), flat_config(json.loads(json.dumps(here)))
    for name in sorted(stored.keys() | wanted.keys()):
        if str(stored.get(name)) != str(wanted.get(name)):
            was, now = stored.get(name, "absent"), wanted.get(name, "absent")
            raise UserError(
                f"{place} belongs to another configuration: {name} = {was!r} there, {now!r} here; name another folder"
            )


def _restore(trainer: Trainer, place: Path, facts: dict) -> None:
    for name, value in facts["state"].items():
        setattr(trainer.state, name, value)
    trainer.meter.seconds, trainer.meter.peak = dict(facts["meter"]["seconds"]), dict(facts["meter"]["peak"])
    check(
        facts["data"] == trainer.data.sha256,
        f"{place} was trained on other data; name another folder, or the data that it was trained on",
    )
    check(
        facts.get("base") == trainer.base,
        f"{place} was trained from another base model than model.source has now; name another folder, or that model",
    )
    check(
        facts["next"] == _next(trainer),
        f"{place}: other prompts come next than when it was written; name another folder",
    )


def _restore_tensors(trainer: Trainer, place: Path) -> None:
    state, arrays = trainer.state, load_arrays(place / ARRAYS)
    if state.windows is not None:
        state.windows = Windows(arrays["windows.rewards"], arrays["windows.pushed"])
    if state.averages is not None:
        state.averages = arrays["averages"]
    if state.replays is not None:
        parts = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith("replays.")}
        state.replays.restore(parts)
    if state.bonus is not None:
        state.bonus = arrays["bonus"]
    restore_moments(place, trainer.policy.named_parameters(), trainer.optimizer)
    trainer.engine.sync(trainer.policy)
