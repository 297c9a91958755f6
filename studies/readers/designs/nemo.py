"""NeMo-RL's GRPO: grpo.num_prompts_per_step prompts a step, of grpo.num_generations_per_prompt responses each.

An update takes policy.train_global_batch_size responses. Source: examples/configs/grpo_math_1B.yaml and
nemo_rl/algorithms/grpo.py of NeMo-RL, and the configuration that a public log of it prints.
"""

from rftlab.studies.readers.designs.values import Reader, value_at
from rftlab.studies.readers.run import KnownDesign

PROMPTS, ROLLOUTS = "grpo.num_prompts_per_step", "grpo.num_generations_per_prompt"
_ADVANTAGES = {
    (True, True): "leave_one_out_zscore", (True, False): "leave_one_out",
    (False, True): "group_zscore", (False, False): "group_mean",
}  # fmt: skip
"""By whether the baseline leaves one out, and whether rewards are normalized."""


def is_nemo_config(config: dict) -> bool:
    """Whether a configuration is NeMo-RL's."""
    return value_at(config, PROMPTS) is not None


def nemo_design(config: Reader) -> KnownDesign:
    """The design of a configuration."""
    prompts, rollouts, size = map(config.count, (PROMPTS, ROLLOUTS, "policy.train_global_batch_size"))
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
