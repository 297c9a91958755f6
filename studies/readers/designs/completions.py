"""Trainers that count a batch in completions, of which group_size share a prompt; and NeMo-RL, which counts prompts.

prime-rl: orchestrator.batch_size samples a step, orchestrator.group_size (once rollouts_per_example) a prompt; one
update of the optimizer a step. The trainer does not wait for its sampler, so samples may be of weights that are up to
max_off_policy_steps old. Source: packages/prime-rl-configs/src/prime_rl/configs/orchestrator.py (`OrchestratorConfig`)
of prime-rl 004274e.

Plain training scripts with the names of CS336: rollout_batch_size completions a round, epochs_per_rollout_batch passes
over them in updates of train_batch_size. gradient_accumulation_steps divides an update and changes no number here.
Source: problem grpo_train_loop of assignment 5 (alignment) of Stanford's CS336, 2025.

NeMo-RL: grpo.num_prompts_per_step prompts a step, of grpo.num_generations_per_prompt responses each; an update takes
policy.train_global_batch_size responses. Source: examples/configs/grpo_math_1B.yaml and nemo_rl/algorithms/grpo.py of
NeMo-RL, and the configuration that a public log of it prints.
"""

from typing import Any

from rftlab.studies.readers.designs.values import Reader, unwrapped, value_at
from rftlab.studies.readers.run import KnownDesign

LIBRARY, CS336 = "prime-rl 004274e", "CS336's assignment 5"
_GROUP = ("orchestrator.group_size", "orchestrator.rollouts_per_example", "group_size", "rollouts_per_example")
_BATCH = ("orchestrator.batch_size", "batch_size")
_RATE = ("trainer.optim.lr", "orchestrator.optim.lr", "optim.lr")
_LIMIT = tuple(f"orchestrator.{name}" for name in ("train.sampling.max_completion_tokens", "sampling.max_tokens",
               "train.sampling.max_tokens", "sampling.max_completion_tokens"))  # fmt: skip
_TEMPERATURE = ("orchestrator.train.sampling.temperature", "orchestrator.sampling.temperature")
_MODEL = ("model.name", "orchestrator.model.name", "trainer.model.name")
_FILTER = "orchestrator.post_batch_filters"
MARKS = ("group_size", "rollout_batch_size")
NAMES = {
    **{name: (name,) for name in (*MARKS, "train_batch_size", "epochs_per_rollout_batch", "loss_type", "n_grpo_steps")},
    "use_std_normalization": ("use_std_normalization", "normalize_by_std"), "cliprange": ("cliprange", "clip_range"),
    "rate": ("learning_rate", "lr"), "temperature": ("sampling_temperature", "temperature"),
    "limit": ("sampling_max_tokens", "max_tokens"), "model": ("model_name", "model_id", "model_name_or_path"),
}  # fmt: skip
"""Settings of plain training scripts, and the names that they go by."""
_BASELINES = ("reinforce_with_baseline", "grpo_clip", "grpo_no_clip")


def is_prime_config(config: dict) -> bool:
    """Whether a configuration is prime-rl's: an orchestrator, and samples or groups of a batch."""
    return "orchestrator" in config and any(value_at(config, name) is not None for name in (*_GROUP, *_BATCH))


def prime_design(config: Reader) -> KnownDesign:
    """The design of a configuration."""

    def stated(kind: str, names: tuple[str, ...]) -> Any:
        return next((getattr(config, kind)(name) for name in names if config.stated(name)), None)

    samples = stated("count", _BATCH)
    group = stated("count", _GROUP) or config.stated_or("count", _GROUP[0], 1, LIBRARY)
    if samples and group and samples % group:
        config.notes.append(f"batch_size = {samples} is no multiple of group_size = {group}: groups may be split")
    if not config.stated(_FILTER):
        config.notes.append("samples whose advantage is 0 are dropped after a batch is full, so fewer are trained on")
    return KnownDesign(
        prompts=samples // group if samples and group and samples % group == 0 else None,
        rollouts=group,
        updates_per_round=1,
        learning_rate=stated("rate", _RATE),
        advantage="group_mean",
        response_limit=stated("count", _LIMIT),
        temperature=stated("real", _TEMPERATURE),
        adapter_rank=config.count("trainer.model.lora.rank", 0),
        model=stated("word", _MODEL),
    )


def _tables(config: dict) -> dict[str, dict]:
    """The configuration and each table in it, by what stands before the names there."""
    parts = {f"{name}.": unwrapped(value) for name, value in config.items() if len(str(name)) <= 80}
    return {"": config} | {at: part for at, part in parts.items() if isinstance(part, dict)}


def is_script_config(config: dict) -> bool:
    """Whether a configuration is a plain script's: both marks in one table. With n_samples_per_prompt it is that of
    OpenRLHF or slime, whose rollout_batch_size counts prompts."""
    return any(part.keys() >= set(MARKS) and "n_samples_per_prompt" not in part for part in _tables(config).values())


def script_design(config: Reader) -> KnownDesign:
    """The design of a plain script."""
    tables = _tables(config.config)

    def stated(kind: str, setting: str, default: Any = None) -> Any:
        known = ([at + name for at in tables if config.stated(at + name)] for name in NAMES[setting])
        paths = next(filter(None, known), [])
        values = {str(value_at(config.config, path)): path for path in reversed(paths)}
        if len(values) > 1:
            config.notes.append(f"{' and '.join(list(values.values())[-2:])} differ; which one counts is not known")
        if len(values) == 1:
            return getattr(config, kind)(paths[0])
        return config.stated_or(kind, NAMES[setting][0], default, CS336) if default is not None and not paths else None

    def parts(by: str, size: int | None) -> int | None:
        """How many times a size divides the completions of a round."""
        if size and batch and batch % size:
            config.notes.append(f"rollout_batch_size = {batch} is no multiple of {by} = {size}; {CS336} refuses that")
        return batch // size if size and batch and batch % size == 0 else None

    batch, group, size = (stated("count", name) for name in ("rollout_batch_size", "group_size", "train_batch_size"))
    prompts, updates = parts("group_size", group), parts("train_batch_size", size)
    passes = stated("count", "epochs_per_rollout_batch", 1)
    if prompts:
        config.notes.append(f"rollout_batch_size = {batch} counts completions, as in {CS336}; --prompts if it does not")
    if getattr(config.config, "unless", ""):
        config.notes.append("settings count as the script has them; its arguments may say otherwise")
    loss, clip = stated("word", "loss_type", _BASELINES[0]), stated("real", "cliprange")
    scaled = stated("truth", "use_std_normalization", True) if loss in _BASELINES else None
    if loss and loss not in (*_BASELINES, "no_baseline"):
        config.notes.append(f"loss_type is {loss!r}; known: no_baseline, {', '.join(_BASELINES)}")
    return KnownDesign(
        prompts=prompts,
        rollouts=group,
        updates_per_round=passes * updates if passes and updates else None,
        learning_rate=stated("rate", "rate"),
        advantage="raw" if loss == "no_baseline" else {True: "group_zscore", False: "group_mean", None: None}[scaled],
        loss=f"{loss}, clip {clip:g}" if loss == "grpo_clip" and clip is not None else loss,
        temperature=stated("real", "temperature"),
        response_limit=stated("count", "limit"),
        model=stated("word", "model"),
    )


_PROMPTS, _ROLLOUTS = "grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"
_ADVANTAGES = {
    (True, True): "leave_one_out_zscore", (True, False): "leave_one_out",
    (False, True): "group_zscore", (False, False): "group_mean",
}  # fmt: skip
"""By whether the baseline leaves one out, and whether rewards are normalized."""


def is_nemo_config(config: dict) -> bool:
    """Whether a configuration is NeMo-RL's."""
    return value_at(config, _PROMPTS) is not None


def nemo_design(config: Reader) -> KnownDesign:
    """The design of a configuration."""
    prompts, rollouts, size = map(config.count, (_PROMPTS, _ROLLOUTS, "policy.train_global_batch_size"))
    left_out, scaled = map(config.truth, ("grpo.use_leave_one_out_baseline", "grpo.normalize_rewards"))
    batch = prompts * rollouts if prompts and rollouts else 0
    if size and batch % size:
        config.notes.append(f"{batch} responses of a step are no multiple of train_global_batch_size = {size}")
    adapters = config.truth("policy.dtensor_cfg.lora_cfg.enabled")
    return KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=batch // size if batch and size and batch % size == 0 else None,
        learning_rate=config.rate("policy.optimizer.kwargs.lr"),
        advantage=None if left_out is None or scaled is None else _ADVANTAGES[left_out, scaled],
        kl_coefficient=config.real("loss_fn.reference_policy_kl_penalty"),
        temperature=config.real("policy.generation.temperature"),
        response_limit=config.count("policy.generation.max_new_tokens"),
        adapter_rank={True: config.count("policy.dtensor_cfg.lora_cfg.dim"), False: 0, None: None}[adapters],
        model=config.word("policy.model_name"),
    )
