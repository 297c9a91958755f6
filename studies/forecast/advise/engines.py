"""Write a design as settings of trainers for several GPUs: verl (as_verl.py), TRL (as_trl.py), prime-rl and slime. Read
a user's own configuration of TRL or verl as the starting point of advice, with what a design changes in it.

For prime-rl and slime the sizes, rates, clip and KL are set; notes say what else their losses do. Names were read in
packages/prime-rl-configs/src/prime_rl/configs (prime-rl), scripts/run-qwen3-4B.sh and docs/en/get_started/usage.md
(slime).
"""

from collections.abc import Callable
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from rftlab.llm.config import Model
from rftlab.shared.cards import SHIPPED, estimator_name
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.forecast.advise import as_trl, as_verl
from rftlab.studies.forecast.advise.as_trl import differences, estimator_options
from rftlab.studies.forecast.advise.as_verl import PREFIX, native, verl_settings
from rftlab.studies.integrations.cluster import Cluster, EngineChoice
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.config_file import read_config
from rftlab.studies.readers.designs.values import Fallback, Reader, Unknown, value_at
from rftlab.studies.readers.run import KnownDesign

MICRO = 4
"""Largest number of responses that TRL computes at a time on a GPU; assumed."""
Flags = dict[str, str | int | float]


class EngineSettings(NamedTuple):
    """Design, model and sizes for which an engine's settings are written."""

    design: Design
    model: str
    gpus: int
    prompt: int
    """Largest number of tokens in a prompt."""
    response: int
    """Largest number of tokens in a response."""
    learning_rate: float
    tensor_parallel: int
    temperature: float = 1.0


Told = tuple[Flags, tuple[str, ...]]
"""Settings for an engine, as flags of a command or lines of a file, and notes."""


def engine_flags(engine: EngineChoice, wanted: EngineSettings) -> Told:
    """Return the settings of an engine for a design, and notes. Raises UserError where the engine cannot run it."""
    design, responses = wanted.design, wanted.design.batch_size * wanted.design.rollouts
    own = design.support_rollouts == design.replay_window == 0
    check(own, "none of these engines has support rollouts or a replay window for baselines; `rftlab train` has both")
    check(
        design.sampling == Sampling(),
        "none of these engines samples groups again, replays responses or leaves some out; `rftlab train` does",
    )
    check(
        design.rollouts > 1 or engine == "verl",
        f"a group of one teaches nothing in {engine}; verl lets it keep its raw reward, and so does `rftlab train`",
    )
    check(
        engine not in ("verl", "trl") or responses % wanted.gpus == 0,
        f"{engine} wants B x K = {responses} to be a multiple of {wanted.gpus} GPUs",
    )
    check(engine != "prime-rl" or wanted.gpus > 1, "prime-rl samples and trains on different GPUs: two or more")
    return _WRITERS[engine](wanted)


def _verl(wanted: EngineSettings) -> Told:
    design, (nodes, each) = wanted.design, _nodes(wanted.gpus)
    model = Model("OWNER/MODEL", max_prompt_length=wanted.prompt, max_response_length=wanted.response)
    cluster = Cluster(nodes, each, wanted.tensor_parallel)
    if native(design.estimator, design.rollouts) is None and estimator_name(design.estimator) not in SHIPPED:
        _clip(design)
    flags = verl_settings(design, model, wanted.learning_rate, wanted.temperature, cluster)
    notes = ["python3 -m verl.trainer.main_ppo, and data.train_files, data.val_files"]
    if str(flags["algorithm.adv_estimator"]).startswith(PREFIX):
        notes.append("rftlab must be installed where verl runs: see docs/engines.md")
    if design.rollouts == 1:
        notes.append("a group of one keeps its raw reward in verl's grpo")
    model_flags = {"path": wanted.model, "enable_gradient_checkpointing": "True"}
    told = {name: _verl_text(value) for name, value in flags.items()}
    told |= {f"actor_rollout_ref.model.{name}": value for name, value in model_flags.items()}
    return told, tuple(notes)


def _verl_text(value: Any) -> str | int | float:
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _trl(wanted: EngineSettings) -> Told:
    """Return TRL's settings. B x K responses are per_device_train_batch_size x processes x steps_per_generation, which
    `minibatches` updates share."""
    design = wanted.design
    responses, parts = design.batch_size * design.rollouts // wanted.gpus, design.minibatches
    whole = responses % parts == 0
    check(whole, f"TRL: {responses} responses of a GPU are no multiple of {parts} mini-batches")
    micro, estimator = gcd(responses // parts, MICRO), estimator_options(design.estimator)
    flags: Flags = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": responses // micro // parts,
        "steps_per_generation": responses // micro,
        "num_generations": design.rollouts,
        "num_iterations": design.epochs,
        "max_steps": design.rounds * design.epochs * parts,
        "max_completion_length": wanted.response,
        "temperature": wanted.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": wanted.learning_rate,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "bf16": "True",
        **{name: str(value) if isinstance(value, bool) else value for name, value in estimator.items()},
        "model_name_or_path": wanted.model,
        "gradient_checkpointing": "True",
        "use_vllm": "True",
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": "True",
        "vllm_tensor_parallel_size": wanted.tensor_parallel,
    }
    notes = (
        f"accelerate launch --num_processes {wanted.gpus} --config_file deepspeed_zero3.yaml or fsdp2.yaml (in TRL's "
        "examples/accelerate_configs)",
        *differences(design.estimator, wanted.response, parts),
    )
    return flags, notes


def _prime(wanted: EngineSettings) -> Told:
    """Return prime-rl's settings. Half of the GPUs train, half sample."""
    design = wanted.design
    nodes, each = _nodes(wanted.gpus)
    flags: Flags = {
        "orchestrator.batch_size": design.batch_size * design.rollouts,
        "orchestrator.group_size": design.rollouts,
        "max_steps": design.rounds,
        "model.name": wanted.model,
        "seq_len": wanted.prompt + wanted.response,
        "trainer.optim.lr": wanted.learning_rate,
        "trainer.model.dp_replicate": 1,
        "trainer.model.ac.mode": "full",
    }
    if nodes == 1:
        flags |= {"deployment.num_train_gpus": each - each // 2, "deployment.num_infer_gpus": each // 2}
    notes = (
        "uv run rl @ rl.toml with these keys, and an environment; several machines need its SLURM deployment",
        "it samples while it trains: responses may be of an older policy, and memory is not that of shared GPUs",
        "advantages are rewards less their group's mean, not divided; clip and KL are its own loss's",
    )
    return flags, notes


def _slime(wanted: EngineSettings) -> Told:
    design = wanted.design
    nodes, each = _nodes(wanted.gpus)
    responses = design.batch_size * design.rollouts
    flags: Flags = {
        "--advantage-estimator": "grpo",
        "--rollout-batch-size": design.batch_size,
        "--n-samples-per-prompt": design.rollouts,
        "--global-batch-size": responses // design.minibatches,
        "--num-rollout": design.rounds,
        "--lr": wanted.learning_rate,
        "--eps-clip": _clip(design),
        "--use-kl-loss": "",
        "--kl-loss-coef": _kl(design),
        "--kl-loss-type": "low_var_kl",
        "--rollout-max-response-len": wanted.response,
        "--hf-checkpoint": wanted.model,
        "--actor-num-nodes": nodes,
        "--actor-num-gpus-per-node": each,
        "--colocate": "",
        "--rollout-num-gpus-per-engine": wanted.tensor_parallel,
        "--tensor-model-parallel-size": wanted.tensor_parallel,
        "--recompute-granularity": "full",
        "--recompute-method": "uniform",
        "--recompute-num-layers": 1,
    }
    notes = (
        "python3 train.py, the model's arguments of scripts/models, --prompt-data; Megatron shards by its own rules",
        "it samples with SGLang, not vLLM; its loss is a mean over each response's tokens, not their sum",
    )
    return flags, notes


def _clip(design: Design) -> float:
    """Return the lower clip range. Raises UserError for a surrogate other than Clip, which these flags cannot name."""
    surrogate = design.estimator.surrogate
    if not isinstance(surrogate, Clip):
        raise UserError(f"surrogate = {type(surrogate).__name__}; allowed: Clip, which is what an engine is told")
    return surrogate.low


def _kl(design: Design) -> float:
    """Return the coefficient of the KL penalty against the base policy."""
    return design.estimator.kl.coef if design.estimator.kl.kind != "none" else 0.0


def _nodes(gpus: int) -> tuple[int, int]:
    """Return the number of machines and of GPUs in each: eight where that divides them, else all in one machine."""
    return (gpus // 8, 8) if gpus > 8 and gpus % 8 == 0 else (1, gpus)


_WRITERS = {"verl": _verl, "trl": _trl, "prime-rl": _prime, "slime": _slime}


_WORDS: dict[str, tuple[Any, Callable[[Reader], Estimator]]] = {
    "trl": (as_trl, as_trl.read_trl_estimator),
    "verl": (as_verl, as_verl.read_verl_estimator),
}
"""Module with each trainer's defaults, and the function that reads its estimator."""
_REPLACED = {
    "trl": ("generation_batch_size",),
    "verl": (f"{as_verl.ACTOR}.ppo_micro_batch_size", "data.gen_batch_size"),
}
"""Settings that contradict those by which a design is written."""


class Start(NamedTuple):
    """User's configuration of TRL or verl from which advice starts."""

    tool: Any
    config: dict[str, Any]
    known: KnownDesign
    notes: tuple[str, ...]
    """Sentences on values that could not be read, and on assumptions."""
    estimator: Estimator
    epochs: int
    minibatches: int

    def changed(self, design: Design) -> Design:
        """Return a design with the estimator and the updates of the configuration. With groups of one it keeps its own
        estimator."""
        parts = self.minibatches if design.batch_size % self.minibatches == 0 else 1
        estimator = self.estimator if design.rollouts > 1 else design.estimator
        return replace(design, estimator=estimator, epochs=self.epochs, minibatches=parts)


def read_start(path: Path, processes: int) -> Start:
    """Read the starting point of advice from a file. processes: GPUs, where the file does not say how many. Raises
    UserError where it is of neither trainer, or its estimator is unknown or not in rftlab."""
    config = read_config(path)
    tool = detect_trainer(config)
    check(tool in _WORDS, f"{path} is of {tool or 'no trainer that is known'}; allowed: TRL's or verl's configuration")
    words, read = _WORDS[tool]
    known, notes = read_design(config, "", processes)
    reader = Reader(config)
    estimator = read(reader)
    name = "num_iterations" if tool == "trl" else f"{as_verl.ACTOR}.ppo_epochs"
    epochs = reader.stated_or("count", name, 1, words.LIBRARY) or 1
    updates = known.updates_per_round or epochs
    said = dict.fromkeys((*notes, *reader.notes, *(f"assumed: {text}" for text in (*known.assumed, *reader.assumed))))
    return Start(tool, config, known, tuple(said), estimator, epochs, max(1, updates // epochs))


def list_changes(start: Start, flags: Flags) -> list[tuple[str, str, str]]:
    """Return the changes of a design to a configuration, in the order of its settings: name, old and new value. A
    setting that is not stated has its trainer's default."""
    words, _ = _WORDS[start.tool]
    changes = []
    for name, new in flags.items():
        value = value_at(start.config, name)
        old = words.DEFAULTS.get(name) if value is None else value
        if isinstance(value, Unknown | Fallback) or not _same(old, new):
            default = "" if old is None else f", {words.LIBRARY} has {old}"
            changes.append((name, f"not stated{default}" if value is None else str(value), str(new)))
    stated = (name for name in _REPLACED[start.tool] if value_at(start.config, name) is not None)
    return changes + [(name, str(value_at(start.config, name)), "not stated") for name in stated]


def _same(old: Any, new: Any) -> bool:
    """Whether two values are equal, however they are written."""
    try:
        return float(old) == float(new)
    except (TypeError, ValueError):
        return "".join(str(old).split()).lower() == "".join(str(new).split()).lower()
