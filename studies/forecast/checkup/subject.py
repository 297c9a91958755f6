"""The subject of `rftlab check`: a configuration, logs, or both, with the design and the curves of the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.llm.budget.plan import LENGTHS, TAIL, Assumed
from rftlab.llm.budget.shapes import adapted
from rftlab.llm.config import LoRA
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.analysis.diagnose.observed import SILENT, observe
from rftlab.studies.analysis.public.settings import RateAdvice, advise_rate
from rftlab.studies.analysis.source import free_source, is_free
from rftlab.studies.forecast.advise.fleet import FleetPlan, parse_fleet, planned_on
from rftlab.studies.forecast.advise.options import QUESTIONS, advised_run
from rftlab.studies.forecast.models import NamedShape, shape_in, shape_named
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.config_file import ALLOWED, LARGEST, read_config
from rftlab.studies.readers.designs.values import as_count, value_at
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign, merge_designs

CONFIGURATIONS = {".json", ".yaml", ".yml", ".toml", ".py", ".sh", ".bash", ".bin"}
"""Suffixes of files that may hold a configuration."""
_PLANNED = {
    **dict.fromkeys(("trl", "prime-rl"), "max_steps"), "verl": "trainer.total_training_steps", "CS336": "n_grpo_steps",
}  # fmt: skip
USUAL_GPUS, USUAL_RANK = "1xH100", 16
"""GPUs for which hours are estimated where none are named, and the rank of adapters whose rank is not known."""


class Asked(NamedTuple):
    """Flags of `rftlab check` beside the files, which `rftlab check --help` explains."""

    model: str = ""
    gpus: str = ""
    rounds: int | None = None
    processes: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    questions: int | None = None


class Sentence(NamedTuple):
    """Statement with the evidence that it rests on."""

    text: str
    evidence: tuple[str, ...]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 prompt" or "2 prompts"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


class Subject(NamedTuple):
    """Run, or several runs of one design, with a configuration."""

    tool: str
    config: dict[str, Any]
    design: KnownDesign
    notes: tuple[str, ...]
    doubts: tuple[str, ...]
    """Notes that are about the configuration."""
    runs: tuple[ImportedRun, ...]
    asked: Asked
    name: str

    @property
    def responses(self) -> int | None:
        """Responses of a step; None where B or K is not known."""
        return (self.design.prompts or 0) * (self.design.rollouts or 0) or None

    @property
    def planned(self) -> int | None:
        """Planned steps of the run; None where neither the user nor the configuration says."""
        steps = as_count(value_at(self.config, _PLANNED.get(self.tool, "")))
        updates = self.design.updates_per_round if self.tool == "trl" else 1
        return self.asked.rounds or (-(-steps // updates) if steps and updates else None)

    @property
    def rank(self) -> int:
        """Rank of adapters, `USUAL_RANK` where it is not known; 0 where all weights are trained, or it is not known
        what is."""
        return self.design.adapter_rank or USUAL_RANK * self.design.has_adapters

    @property
    def silence(self) -> float | None:
        """Share of zero-variance groups in the last quarter of the first run that logs it at three steps or more."""
        lines = (observe(run).first(SILENT, least=3) for run in self.runs)
        return next((line.end() for line in lines if line), None)

    def lengths(self) -> tuple[Assumed, str]:
        """Return mean tokens of prompts and responses, and in words where they are from."""
        (prompt, response), limit, asked = LENGTHS["gsm8k"], self.design.response_limit, self.asked
        logged = [line for run in self.runs if (line := observe(run).first(("train", "response_length")))]
        said = f"assumed: {prompt} tokens of a prompt and {response} of a response, as on GSM8K"
        if asked.response_tokens:
            response, said = asked.response_tokens, "lengths as given"
        elif logged:
            response, said = round(float(logged[0].tail().values.mean())), "responses: the last quarter of the log"
        elif limit:
            response, said = limit // TAIL, f"assumed: a response has 1/{TAIL} of the limit of {limit} tokens"
        assumed = Assumed(asked.prompt_tokens or prompt, max(1, response), *QUESTIONS)
        return assumed, f"{said}; --prompt-tokens and --response-tokens tell"

    def shape(self) -> NamedShape | None:
        """Return the model's shape, from its name or the size in it; None where no name is given or the name tells no
        size. Raises UserError where --model names no shape that is known, and no size."""
        shape = shape_in(self.asked.model or self.design.model or "")
        return shape_named(self.asked.model) if self.asked.model and shape is None else shape

    def rate_advice(self) -> RateAdvice | None:
        """Return the learning rate that public runs support; None where they support none."""
        shape = self.shape()
        billions = shape.shape.parameters / 1e9 if shape else None
        return advise_rate(billions, self.rank > 0, self.design.precision, self.responses)

    def plan(self) -> FleetPlan | None:
        """Return memory and time of the run on the GPUs that are named; None where the model, B or K is not known."""
        model, (prompts, rollouts) = self.shape(), (self.design.prompts, self.design.rollouts)
        if model is None or not prompts or not rollouts:
            return None
        updates, rounds, lora = self.design.updates_per_round or 1, self.planned or 100, LoRA(rank=self.rank)
        parts = updates if prompts % updates == 0 else 1
        estimator = preset("grpo" if rollouts > 1 else "minimalist")
        design = Design(prompts, rollouts, estimator=estimator, rounds=rounds, eval_every=rounds,
                        epochs=updates // parts, minibatches=parts)  # fmt: skip
        assumed, _ = self.lengths()
        run = advised_run(model.name, design, assumed)
        shape, fleet = adapted(model.shape, lora), parse_fleet(self.asked.gpus or USUAL_GPUS)
        return planned_on(replace(run, lora=lora), shape, fleet, assumed)


def read_subject(paths: tuple[str, ...], results: Path, asked: Asked) -> Subject:
    """Read configurations and logs. Raises UserError for what is neither, and for two configurations."""
    configs, logs, runs = {}, [], []
    for named in paths:
        if is_free(named):
            runs += free_source(named).runs(results)
        elif config := _read_config(Path(named)):
            configs[Path(named)] = config
        else:
            logs.append(Path(named))
    check(len(configs) <= 1, f"{' and '.join(map(str, configs))} are configurations; allowed: one, and logs of its run")
    file, config = next(iter(configs.items()), (None, {}))
    tool = detect_trainer(config) if config else ""
    guessed = parse_fleet(asked.gpus).count if asked.gpus and tool == "trl" and not asked.processes else None
    processes = asked.processes or guessed
    try:
        runs += read_logs(logs, config=file, processes=processes) if logs else []
    except UserError as error:
        for path in logs:
            if path.suffix in CONFIGURATIONS - {".json"} and path.is_file():
                read_config(path)  # its error says what is wrong with the configuration
        maybe = any(path.suffix in CONFIGURATIONS for path in logs)
        raise UserError(f"{error}; or a configuration: {ALLOWED}" if maybe else str(error)) from None
    design, notes = read_design(config, "", processes) if config else (KnownDesign(), [])
    if guessed:
        notes.append(f"processes: {guessed} is a guess, one for each of --gpus {asked.gpus}; --processes tells")
    known = [[value for run in runs if (value := getattr(run.design, fact)) is not None] for fact in FACTS]
    apart = [fact for fact, values in zip(FACTS, known, strict=True) if len(set(values)) > 1]
    apart = [fact for fact in apart if getattr(design, fact) is None]
    for run in runs:
        design = merge_designs(design, run.design)
    if apart:
        design = replace(design, **dict.fromkeys(apart))  # type: ignore[arg-type]
        notes.append(f"runs differ in {', '.join(apart).replace('_', ' ')}; one at a time (#RUN) says more")
    doubts = tuple(notes)
    design = merge_designs(KnownDesign(model=asked.model or None), design)
    notes += [note for run in runs for note in run.notes if note not in notes]
    tool = tool or next((run.tool for run in runs), "")
    name = runs[0].name if runs else Path(paths[0]).name
    return Subject(tool, config, design, tuple(notes), doubts, tuple(runs), asked, name)


def _read_config(path: Path) -> dict[str, Any] | None:
    """Return the configuration of a trainer in a file; None where it holds none."""
    if path.suffix not in CONFIGURATIONS or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    try:
        config = read_config(path)
    except UserError:
        return None
    return config if detect_trainer(config) else None
