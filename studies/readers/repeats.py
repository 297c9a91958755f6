"""Which runs repeat each other: as their configurations or columns say, or the user; and what to tell of the others."""

import hashlib
import json
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from rftlab.shared.plumbing.errors import check
from rftlab.studies.readers.designs import detect_trainer
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign, RawRun

_APART = (
    *("run_name", "exp_name", "experiment_name", "project", "project_name", "entity", "run_id"),
    *("output_dir", "logging_dir", "log_dir", "log_path", "save_dir", "save_path", "default_local_dir", "ckpt_path"),
    *("rollout_data_dir", "validation_data_dir", "resume_from_path", "wandb_name", "wandb_run_name", "wandb_run_id"),
    *("wandb_project", "wandb_group", "hub_model_id", "save", "load"),
)
"""Settings that say how a run is called and where it writes; they and seeds are no part of what repeats share."""
_NAMES = ("name", "id", "group")
"""And so do these at the top of a configuration or below one of `_OF_RUNS`. Elsewhere they name a model, a data set, an
environment, an optimiser, which repeats share."""
_OF_RUNS = (
    *("", "config", "cfg", "args", "params", "hparams", "run", "experiment", "exp", "trainer", "project", "job"),
    *("wandb", "trackio", "swanlab", "mlflow", "tensorboard", "comet", "neptune", "tracker", "tracking", "monitor"),
    *("log", "logger", "logging"),
)


def repeats_mark(raw: RawRun, design: KnownDesign) -> str:
    """The mark of runs that repeat each other: a checksum of all that their own configurations say, or their columns
    where B and K are known, but for seeds and names; "" where neither is there. Names of runs say nothing."""
    sized = design.prompts is not None and design.rollouts is not None
    known = raw.config if raw.config and raw.whole and (sized or detect_trainer(raw.config)) else None
    known = raw.stated if known is None and sized else known
    if raw.repeats or known is None:
        return raw.repeats
    text = json.dumps([raw.tool, _without_seed(known)], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_seed(settings: Any, above: str = "") -> Any:
    """Settings without those of `_is_apart`, at every depth. above: the name of the part that holds them."""
    if not isinstance(settings, dict):
        return settings
    kept = {}
    for name, value in settings.items():
        parent, _, last = str(name).replace("/", ".").lower().rpartition(".")
        if not _is_apart(last, parent.rpartition(".")[2] or above):
            kept[str(name)] = _without_seed(value, last)
    return kept


def _is_apart(name: str, above: str) -> bool:
    """Whether a setting is a seed or says how a run is called. above: the name of the part that holds it."""
    return "seed" in name or name in _APART or (name in _NAMES and above in _OF_RUNS)


def mark_repeats(runs: list[ImportedRun], patterns: tuple[str, ...]) -> list[ImportedRun]:
    """Runs whose names a pattern meets repeat each other. Raises UserError where it meets fewer than two, one that
    another has met, or two of which designs are known to differ."""
    marks: dict[str, str] = {}
    for pattern in patterns:
        own = [run for run in runs if fnmatchcase(run.name, pattern)]
        names = ", ".join(run.name for run in runs[:8])
        check(len(own) > 1, f"repeats = {pattern!r} meets {len(own)} runs; allowed: two or more of {names}")
        twice = next((run.name for run in own if run.name in marks), "")
        check(not twice, f"repeats = {pattern!r} meets {twice}, as one before it; allowed: each run once")
        for fact in FACTS:
            values = sorted({str(value) for run in own if (value := getattr(run.design, fact)) is not None})
            check(
                len(values) < 2,
                f"repeats = {pattern!r} meets runs of which {fact} differs ({', '.join(values[:3])}): "
                "no repeats; allowed: runs of one design",
            )
        marks |= dict.fromkeys((run.name for run in own), pattern)
    return [replace(run, repeats=marks.get(run.name, run.repeats)) for run in runs]


def describe_unmarked(runs: list[ImportedRun]) -> str:
    """Return the note on runs that may or may not repeat each other; "" where there are no two."""
    names = [run.name for run in runs if not run.repeats]
    if len(names) < 2:
        return ""
    return (
        f"{len(names)} runs ({', '.join(names[:3])}{', ..' * (len(names) > 3)}) stay apart: without their "
        "configurations nothing says which repeat each other; --repeats 'NAME*' does"
    )
