"""What `rftlab check` looks at: a configuration, logs, or both, with what they say of the run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rftlab.llm.budget.duration import LENGTHS, TAIL, Assumed
from rftlab.llm.budget.shapes import adapted
from rftlab.llm.config import LoRA
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import FILE, path_kind
from rftlab.studies.analysis.diagnose.observed import SILENT, ObservedRun, observe
from rftlab.studies.analysis.source import free_source, is_free
from rftlab.studies.forecast.advise.fleet import FleetPlan, parse_fleet, planned_on
from rftlab.studies.forecast.advise.models import NamedShape, shape_named
from rftlab.studies.forecast.advise.options import QUESTIONS, advised_run
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.config_file import ALLOWED, LARGEST, read_config
from rftlab.studies.readers.designs.values import as_count, value_at
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun, KnownDesign, merge_designs

CONFIGURATIONS = {".json", ".yaml", ".yml", ".toml", ".py", ".sh", ".bash", ".bin"}
"""Ends of names of files that may hold a configuration."""
_PLANNED = {"trl": ("max_steps",), "verl": ("trainer.total_training_steps",), "prime-rl": ("max_steps",)}
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?[bB])(?![\w.])")
_RANKS = ("lora_r", "peft_config.r", "actor_rollout_ref.model.lora_rank", "trainer.model.lora.rank", "lora.rank")


class Sentence(NamedTuple):
    """A statement with what it rests on."""

    text: str
    evidence: tuple[str, ...]


class CheckSection(NamedTuple):
    """Sentences under a title."""

    title: str
    sentences: tuple[Sentence, ...]


class Asked(NamedTuple):
    """What a user says beside the files."""

    model: str = ""
    gpus: str = "1xH100"
    rounds: int | None = None
    processes: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    questions: int | None = None


class Subject(NamedTuple):
    """A run, or several of one design."""

    name: str
    tool: str
    config: dict[str, Any]
    design: KnownDesign
    notes: tuple[str, ...]
    runs: tuple[ImportedRun, ...]
    asked: Asked

    @property
    def responses(self) -> int | None:
        """Of a step."""
        design = self.design
        return design.prompts * design.rollouts if design.prompts and design.rollouts else None

    @property
    def planned(self) -> int | None:
        """Steps of the run, where the user or the configuration says."""
        stated = (as_count(value_at(self.config, name)) for name in _PLANNED.get(self.tool, ()))
        steps = next((count for count in stated if count), None)
        updates = self.design.updates_per_round if self.tool == "trl" else 1
        return self.asked.rounds or (-(-steps // updates) if steps and updates else None)

    @property
    def rank(self) -> int:
        """Of adapters; 0 where all weights are trained."""
        return next((rank for name in _RANKS if (rank := as_count(value_at(self.config, name)))), 0)

    def lengths(self) -> tuple[Assumed, str]:
        """Mean tokens of prompts and responses, and where they are from."""
        known, limit, asked = LENGTHS["gsm8k"], self.design.response_limit, self.asked
        logged = [line for seen in map(observe, self.runs) if (line := seen.first(("train", "response_length")))]
        usual, said = known[1], f"assumed: {known[0]} tokens of a prompt and {known[1]} of a response, as on GSM8K"
        if logged:
            usual, said = (
                round(float(np.mean([line.last().mean() for line in logged]))),
                "responses: the log's last part",
            )
        elif limit:
            usual, said = max(1, limit // TAIL), f"assumed: a response has 1/{TAIL} of the limit of {limit} tokens"
        prompt, response = asked.prompt_tokens or known[0], asked.response_tokens or max(1, usual)
        said = "lengths as given" if asked.response_tokens else said
        return Assumed(prompt, response, *QUESTIONS), f"{said}; --prompt-tokens and --response-tokens tell"


def read_subject(paths: tuple[str, ...], results: Path, asked: Asked) -> Subject:
    """Read configurations and logs. Raises UserError for what is neither, and for two configurations."""
    configs, logs, runs = {}, [], []
    for named in paths:
        config = _read_config(Path(named))
        if is_free(named):
            runs += free_source(named).runs(results)
        elif config is not None:
            configs[Path(named)] = config
        else:
            logs.append(Path(named))
    check(len(configs) <= 1, f"{' and '.join(map(str, configs))} are configurations; allowed: one, and logs of its run")
    file, config = next(iter(configs.items()), (None, {}))
    try:
        runs += read_logs(logs, config=file, processes=asked.processes) if logs else []
    except UserError as error:
        maybe = [path for path in logs if path.suffix in CONFIGURATIONS]
        raise UserError(f"{error}; or a configuration: {ALLOWED}" if maybe else str(error)) from None
    design, notes = read_design(config, "", asked.processes) if config else (KnownDesign(), [])
    for run in runs:
        design = merge_designs(design, run.design)
    design = merge_designs(KnownDesign(model=asked.model or None), design)
    notes += [note for run in runs for note in run.notes if note not in notes]
    tool = detect_trainer(config) or (runs[0].tool if runs else "")
    names = [run.name for run in runs] if runs else [Path(paths[0]).name]
    return Subject(", ".join(names[:3]), tool, config, design, tuple(notes), tuple(runs), asked)


def _read_config(path: Path) -> dict[str, Any] | None:
    """The configuration of a trainer in a file; None where it holds none."""
    if path.suffix not in CONFIGURATIONS or path_kind(path) != FILE or path.stat().st_size > LARGEST:
        return None
    try:
        config = read_config(path)
    except UserError:
        return None
    return config if detect_trainer(config) else None


def named_shape(subject: Subject) -> NamedShape | None:
    """The model's shape; None where nobody names it, or where its shape is not known. A name that the user gives
    raises UserError instead."""
    if subject.asked.model:
        return shape_named(subject.asked.model)
    name = subject.design.model or ""
    size = _SIZE.search(name)
    owner = name.partition("-")[0].rstrip(".0123456789")
    for text in (name, f"{owner}/{name}", size[1] if size else ""):
        try:
            return shape_named(text) if text else None
        except UserError:
            continue
    return None


def plan_step(subject: Subject, model: NamedShape) -> FleetPlan | None:
    """Memory and time of the run on the GPUs that are named; None where B or K is not known."""
    design, (assumed, _) = subject.design, subject.lengths()
    if not design.prompts or not design.rollouts:
        return None
    estimator = preset("grpo" if design.rollouts > 1 else "minimalist")
    updates = design.updates_per_round or 1
    parts = updates if design.prompts % updates == 0 else 1
    rounds = subject.planned or 100
    sized = Design(design.prompts, design.rollouts, estimator=estimator, rounds=rounds, eval_every=rounds,
                   epochs=updates // parts, minibatches=parts)  # fmt: skip
    lora = LoRA(rank=subject.rank)
    run = replace(advised_run(model.name, sized, assumed), lora=lora)
    return planned_on(run, adapted(model.shape, lora), parse_fleet(subject.asked.gpus), assumed)


class Silence(NamedTuple):
    """How many groups of a run have zero variance."""

    share: float
    mean: float | None
    """Pass rate of the same part of training."""
    where: str


def measured_silence(subject: Subject) -> Silence | None:
    """The share of zero-variance groups in the last quarter of the first run that logs it."""
    for seen in observed_runs(subject):
        if line := seen.first(SILENT):
            reward = seen.reward()
            mean = None if reward is None else float(np.median(reward.last()))
            return Silence(float(np.median(line.last())), mean, f"median of the last quarter of {seen.name}")
    return None


def observed_runs(subject: Subject) -> Iterator[ObservedRun]:
    """The runs as checks see them."""
    return (observe(run, subject.asked.questions) for run in subject.runs)
