"""Read designs from arguments of TRL's GRPO.

A generation batch has per_device_train_batch_size x processes x steps_per_generation responses, of which
num_generations share a prompt. steps_per_generation is gradient_accumulation_steps unless set; generation_batch_size
may be set instead. An update takes gradient_accumulation_steps of those micro-batches, and the batch is used
num_iterations times, so a round has steps_per_generation x num_iterations / gradient_accumulation_steps updates. Where
that is below 1, an update takes several batches, which are a round together. Source: trl/trainer/grpo_config.py
(`__post_init__`) and grpo_trainer.py (`_prepare_inputs`) of TRL 1.16; issues trl 3020, 3061, 3443 ask for just this. In
TRL 0.14, the first with GRPO, per_device_train_batch_size counts prompts (`num_return_sequences` there).

Arguments of rftlab's trainer (`studies/integrations/trl.py`) have entries `rftlab_...`, which say what its estimator
does.
"""

import re
from typing import Any

from rftlab.studies.readers.designs.values import Reader, value_at, weight_precision
from rftlab.studies.readers.run import KnownDesign

LIBRARY = "TRL 1.16"
DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": None,
    "num_generations": 8, "num_iterations": 1, "max_completion_length": 512, "max_steps": -1, "temperature": 1.0,
    "top_p": 1.0, "top_k": 0, "learning_rate": 1e-6, "lr_scheduler_type": "linear", "warmup_steps": 0,
    "weight_decay": 0.0, "max_grad_norm": 1.0, "bf16": True, "loss_type": "dapo", "importance_sampling_level": "token",
    "scale_rewards": "group", "epsilon": 0.2, "epsilon_high": None, "delta": None, "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0, "beta": 0.0, "use_bias_correction_kl": True, "entropy_coef": 0.0,
    "use_adaptive_entropy": False, "entropy_coef_min": 0.0, "entropy_coef_max": 1.0, "entropy_coef_delta": 0.005,
    "entropy_target": 0.2,
    "mask_truncated_completions": False, "off_policy_mask_threshold": None, "top_entropy_quantile": 1.0,
    "vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0, "vllm_importance_sampling_clip_min": None, "use_vllm": False,
    "vllm_enable_sleep_mode": False, "vllm_tensor_parallel_size": 1, "gradient_checkpointing": True,
    "vllm_mode": "colocate",
}  # fmt: skip
"""The defaults of TRL where an argument is not stated."""
_SCALES = {
    "group": "group_zscore",
    "true": "group_zscore",
    "batch": "batch_zscore",
    "none": "group_mean",
    "false": "group_mean",
}
"""Advantage for each value of scale_rewards; TRL always subtracts the group's mean."""
_MARKS = (
    "num_generations",
    "per_device_train_batch_size",
    "steps_per_generation",
    "generation_batch_size",
    "scale_rewards",
)
_OF_OTHERS = {"num_samples_per_prompt_rollout", "n_samples_per_prompt"}
"""Names of K in trainers that share some of TRL's arguments: open-instruct, OpenRLHF."""
_OF_GRPO = (*_MARKS[:1], *_MARKS[2:], "num_iterations", "max_completion_length", "beta", "epsilon", "loss_type")
WHOLE = "logging_nan_inf_filter"
"""Argument that nobody sets, so that where it is stated all arguments are."""
_COUNTED = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "num_iterations")
_OWN = {
    "per_device_train_batch_size": r"(?!auto_|eval_|val_|test_|per_device_eval_|generation_).*batch_size",
    "gradient_accumulation_steps": r"(?!eval_).*accum.*",
    "learning_rate": r"(?:\w+_)?lr",
}
"""Other names that people give to settings of TRL, as patterns."""
_SIZES = ("generation_batch_size", "steps_per_generation")
_TYPES = ("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype", "dtype", "torch_dtype")
"""Names of the precision of weights in TRL's arguments and in the model's configuration beside them."""


def is_trl_config(config: dict) -> bool:
    """Whether a configuration has TRL's arguments."""
    return any(name in config for name in _MARKS) and not _OF_OTHERS & config.keys()


def trl_design(config: Reader) -> KnownDesign:
    """Return the design that TRL's arguments state."""
    of_grpo = any(map(config.stated, _OF_GRPO))
    another = config.stated(WHOLE) and not config.stated("num_generations")
    if another or (not of_grpo and config.stated("adam_beta1")):  # all arguments are stated, and none is GRPO's
        config.notes.append("these arguments are of another trainer than GRPO's: B, K and the advantage are unknown")
        return KnownDesign(
            learning_rate=config.rate("learning_rate"), adapter_rank=config.count("lora_r", 0), model=_model(config)
        )
    of_first = config.stated("adam_beta1") and config.stated("vllm_device") and "reward_weights" not in config.config
    if of_first:  # all arguments are stated, and none that TRL 0.15 added
        config.notes.append("these are arguments of TRL 0.14: per_device_train_batch_size counts prompts")
    sizes = {name: _or_default("count", name, config) for name in _COUNTED}
    if of_first and sizes[_COUNTED[0]] and sizes["num_generations"]:
        sizes[_COUNTED[0]] *= sizes["num_generations"]
    batch, updates = _sizes(config, sizes)
    generations = sizes["num_generations"]
    world = config.processes or config.count("num_processes") or 0
    if config.stated("vllm_device") and not of_first and world * (sizes[_COUNTED[0]] or 0) % (generations or 1):
        config.notes.append("per_device_train_batch_size: TRL 0.14 counts prompts, and 0.17 responses; --prompts tells")
        batch = None
    if batch and not generations:
        config.notes.append(f"prompts: {batch} / K, for a round has {batch} responses; --prompts and --rollouts tell")
    support = config.count("rftlab_support", 0) or 0
    if not of_grpo and not getattr(config.config, "hidden", ""):
        config.notes.append("no argument here is one of GRPO alone: if it is GRPO, K and the rest are TRL's defaults")
    return KnownDesign(
        prompts=_divided(batch, generations, "the generation batch", config) if batch and generations else None,
        rollouts=generations - support if generations else None,
        updates_per_round=updates,
        learning_rate=_or_default("rate", "learning_rate", config),
        advantage=config.word("rftlab_advantage")
        or _SCALES.get((config.stated_or("word", "scale_rewards", DEFAULTS["scale_rewards"], LIBRARY) or "").lower()),
        loss=config.word("rftlab_loss") or _loss(config),
        kl_coefficient=config.real("beta"),
        temperature=config.real("temperature"),
        response_limit=config.count("max_completion_length"),
        precision=next((kind for name in _TYPES if (kind := weight_precision(config.word(name)))), None),
        adapter_rank=0 if config.truth("use_peft") is False else config.count("lora_r", 0),
        model=_model(config),
    )


def _or_default(kind: str, name: str, config: Reader) -> Any:
    """Return a setting, or TRL's default; None where another name may state it, as in the settings of a script."""
    pattern = _OWN.get(name)
    own = next((key for key in config.config if pattern and re.fullmatch(pattern, str(key))), None)
    if own is None or config.stated(name):
        return config.stated_or(kind, name, DEFAULTS[name], LIBRARY)
    config.notes.append(f"{name} is not stated, but {own} may state it")
    return None


def _model(config: Reader) -> str | None:
    """Return the model: an argument of TRL's scripts, or the name in the model's configuration, which transformers logs
    beside the arguments and leaves empty for a model that was made from nothing."""
    names = ("model_name_or_path", "_name_or_path")
    return next((model for name in names if value_at(config.config, name) and (model := config.word(name))), None)


def _sizes(config: Reader, sizes: dict[str, int | None]) -> tuple[int | None, int | None]:
    """Return the responses of a round, and its updates."""
    device, accumulated, generations, iterations = (sizes[name] for name in _COUNTED)
    batch, steps = (config.count(name) for name in _SIZES)
    unread = any(config.stated(name) and not config.count(name) for name in _SIZES)
    processes = _processes(device, steps, batch, config)
    if steps is None and batch is None and not unread:
        steps = accumulated
    if batch is None and not unread and device and processes and steps:
        batch = device * processes * steps
    if steps is None and not unread and batch and device and processes:
        steps = _divided(batch, device * processes, "generation_batch_size", config)
    used = (steps or 0) * (iterations or 0)
    batches = accumulated // used if used and accumulated and accumulated % used == 0 else 1
    if batch is None and not unread and steps and device and generations:
        each = device * steps * batches
        prompts = f"{each // generations}" if each % generations == 0 else f"{each}/{generations}"
        config.notes.append(
            f"prompts: {prompts} x the number of processes ({each} responses a process and round); --processes "
            "tells (the world size)"
        )
    if not (used and accumulated):
        return batch, None
    name = "steps_per_generation x num_iterations"
    return batch and batch * batches, _divided(used * batches, accumulated, name, config, "a round ends in an update")


def _processes(device: int | None, steps: int | None, batch: int | None, config: Reader) -> int | None:
    """Return the world size: the one that is given, or one worked out where TRL had filled in both sizes before the
    arguments were written."""
    given = config.processes or config.count("num_processes")
    if not device or not steps or not batch or batch % (device * steps):
        return given
    world = batch // (device * steps)
    if given not in (None, world):
        config.notes.append(f"--processes {given}: the arguments say {world}, which is taken")
    return world


def _divided(total: int, by: int, name: str, config: Reader, then: str = "TRL refuses that") -> int | None:
    if total % by:
        config.notes.append(f"{name} = {total} is no multiple of {by}; {then}")
        return None
    return total // by


def _loss(config: Reader) -> str | None:
    """Return loss_type, its clip and the level of its ratio, as far as they are stated."""
    low, high = config.real("epsilon"), config.real("epsilon_high")
    clip = None if low is None else f"clip {low:g}/{high:g}" if high is not None else f"clip {low:g}"
    level = config.word("importance_sampling_level")
    return ", ".join(part for part in (config.word("loss_type"), clip, level and f"ratio of a {level}") if part) or None
