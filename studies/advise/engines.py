"""A design in the words of trainers for several GPUs: verl, TRL, prime-rl, slime.

The estimator is the grid's: clip, KL against the base policy (k3), sums over tokens. Names read in their code:
verl/trainer/config/_generated_ppo_trainer.yaml (verl), trl/trainer/grpo_config.py (TRL),
packages/prime-rl-configs/src/prime_rl/configs (prime-rl), scripts/run-qwen3-4B.sh and docs/en/get_started/usage.md
(slime).
"""

from math import gcd
from typing import Literal, NamedTuple

from rftlab.shared.config.surrogate import Clip
from rftlab.shared.design import Design
from rftlab.shared.errors import UserError

EngineChoice = Literal["verl", "trl", "prime-rl", "slime"]
MICRO = 4
"""Responses that TRL computes at a time on a GPU, at most; assumed."""
Flags = dict[str, str | int | float]


class EngineSettings(NamedTuple):
    """What an engine is told."""

    design: Design
    model: str
    gpus: int
    prompt: int
    """Most tokens of a prompt."""
    response: int
    """Most tokens of a response."""
    learning_rate: float
    tensor_parallel: int


class EngineFlags(NamedTuple):
    """How an engine is told."""

    flags: Flags
    notes: tuple[str, ...]
    refused: str
    """Why the engine cannot do it; "" where it can."""


def engine_flags(engine: EngineChoice, wanted: EngineSettings) -> EngineFlags:
    """The flags of an engine for a design."""
    refused = _refused(engine, wanted)
    return EngineFlags({}, (), refused) if refused else _WRITERS[engine](wanted)


def _refused(engine: EngineChoice, wanted: EngineSettings) -> str:
    design = wanted.design
    if design.support_rollouts or design.replay_window:
        return "none of these engines has support rollouts or a replay window for baselines; `rftlab train` has both"
    if design.rollouts == 1 and engine != "verl":
        return (
            f"a group of one teaches nothing in {engine}; verl lets it keep its raw reward, and so does `rftlab train`"
        )
    if engine in ("verl", "trl") and (design.batch_size * design.rollouts) % wanted.gpus:
        return f"{engine} wants B x K = {design.batch_size * design.rollouts} to be a multiple of {wanted.gpus} GPUs"
    if engine == "prime-rl" and wanted.gpus < 2:
        return "prime-rl samples and trains on different GPUs: two or more"
    return ""


def _verl(wanted: EngineSettings) -> EngineFlags:
    design, actor, rollout = wanted.design, "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    flags: Flags = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": design.batch_size,
        f"{rollout}.n": design.rollouts,
        f"{actor}.ppo_mini_batch_size": design.batch_size // design.minibatches,
        f"{actor}.ppo_epochs": design.epochs,
        f"{actor}.optim.lr": wanted.learning_rate,
        f"{actor}.clip_ratio": _clip(design),
        f"{actor}.loss_agg_mode": design.estimator.aggregation.kind.replace("_", "-"),
        f"{actor}.use_kl_loss": str(_kl(design) > 0),
        f"{actor}.kl_loss_coef": _kl(design),
        f"{actor}.use_dynamic_bsz": "True",
        f"{actor}.fsdp_config.fsdp_size": -1,
        "data.max_prompt_length": wanted.prompt,
        "data.max_response_length": wanted.response,
        "actor_rollout_ref.model.path": wanted.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": "True",
        f"{rollout}.name": "vllm",
        f"{rollout}.tensor_model_parallel_size": wanted.tensor_parallel,
        "trainer.total_training_steps": design.rounds,
    }
    nodes, each = _nodes(wanted.gpus)
    flags |= {"trainer.nnodes": nodes, "trainer.n_gpus_per_node": each}
    notes: tuple[str, ...] = ("python3 -m verl.trainer.main_ppo, and data.train_files, data.val_files",)
    if design.rollouts == 1:
        notes += ("a group of one keeps its raw reward in verl's grpo",)
    return EngineFlags(flags, notes, "")


def _trl(wanted: EngineSettings) -> EngineFlags:
    """B x K responses = per_device_train_batch_size x processes x gradient_accumulation_steps, for one update."""
    design = wanted.design
    responses = design.batch_size * design.rollouts // wanted.gpus
    micro = gcd(responses, MICRO)
    flags: Flags = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": max(1, responses // micro // design.minibatches),
        "steps_per_generation": responses // micro,
        "num_generations": design.rollouts,
        "num_iterations": design.epochs,
        "loss_type": "dr_grpo",
        "epsilon": _clip(design),
        "beta": _kl(design),
        "learning_rate": wanted.learning_rate,
        "max_completion_length": wanted.response,
        "max_steps": design.rounds * design.epochs * design.minibatches,
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
        "dr_grpo sums over tokens and divides by a constant: the design's sum, but for a factor that Adam does not see",
    )
    return EngineFlags(flags, notes, "")


def _prime(wanted: EngineSettings) -> EngineFlags:
    """Half of the GPUs train, half sample."""
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
    return EngineFlags(flags, notes, "")


def _slime(wanted: EngineSettings) -> EngineFlags:
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
    return EngineFlags(flags, notes, "")


def _clip(design: Design) -> float:
    """The lower clip range. Raises UserError for another surrogate, which these flags do not name."""
    surrogate = design.estimator.surrogate
    if not isinstance(surrogate, Clip):
        raise UserError(f"surrogate = {type(surrogate).__name__}; allowed: Clip, which is what an engine is told")
    return surrogate.low


def _kl(design: Design) -> float:
    """Coefficient of the penalty against the base policy."""
    return design.estimator.kl.coef if design.estimator.kl.kind != "none" else 0.0


def _nodes(gpus: int) -> tuple[int, int]:
    """Machines, and GPUs of each: eight where that divides them, otherwise all in one."""
    return (gpus // 8, 8) if gpus > 8 and gpus % 8 == 0 else (1, gpus)


_WRITERS = {"verl": _verl, "trl": _trl, "prime-rl": _prime, "slime": _slime}
