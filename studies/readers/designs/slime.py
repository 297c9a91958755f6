"""slime: rollout_batch_size prompts, n_samples_per_prompt responses each, of which an update takes global_batch_size.

Source: slime/utils/arguments.py (num_steps_per_rollout sets the global batch) and docs/en/get_started/usage.md.
"""

from rftlab.studies.readers.designs.values import Reader, undashed
from rftlab.studies.readers.run import KnownDesign

SLIME = "slime (624b824)"
_ADVANTAGES = {
    "gspo": "group_zscore",
    "reinforce_plus_plus": "batch_zscore",
    "reinforce_plus_plus_baseline": "group_mean, batch_zscore",
    "ppo": "gae",
}


def recognise(config: dict) -> bool:
    """Whether a configuration has slime's arguments."""
    return {"rollout_batch_size", "n_samples_per_prompt"} <= set(undashed(config))


def known_of(config: Reader, processes: int | None) -> KnownDesign:
    """The design of slime's arguments."""
    config.config = undashed(config.config)
    prompts, rollouts = config.count("rollout_batch_size"), config.count("n_samples_per_prompt")
    low = config.real("eps_clip")
    high = None if low is None else config.real("eps_clip_high")
    clip = None if low is None else f"clip {low:g}" if high is None else f"clip {low:g}/{high:g}"
    by_token = config.truth("calculate_per_token_loss")
    return KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=_updates(config, prompts, rollouts),
        learning_rate=config.real("lr"),
        advantage=_advantage(config),
        loss=", ".join(filter(None, (clip, "mean over tokens" if by_token else None))) or None,
        kl_coefficient=_kl(config),
        temperature=config.real("rollout_temperature"),
        response_limit=config.count("rollout_max_response_len"),
        model=config.word("hf_checkpoint"),
    )


def _updates(config: Reader, prompts: int | None, rollouts: int | None) -> int | None:
    """Updates a round: as told, or responses by those of an update."""
    if config.stated("num_steps_per_rollout"):
        return config.count("num_steps_per_rollout")
    batch = config.count("global_batch_size")
    if batch is None or prompts is None or rollouts is None:
        return None
    if prompts * rollouts % batch:
        config.notes.append(f"global_batch_size = {batch} does not divide {prompts * rollouts} responses of a round")
        return None
    return prompts * rollouts // batch


def _advantage(config: Reader) -> str | None:
    name = config.stated_or("word", "advantage_estimator", "grpo", SLIME)
    if name == "grpo":
        scaled = config.truth("grpo_std_normalization")
        known = scaled is not None or not config.stated("grpo_std_normalization")
        off = scaled is False or config.truth("disable_grpo_std_normalization")
        return "group_mean" if off else "group_zscore" if known else None
    return _ADVANTAGES.get(name, name) if name else None


def _kl(config: Reader) -> float | None:
    """The coefficient that is in force: of the loss, or of the reward."""
    in_loss = config.truth("use_kl_loss")
    if in_loss is None and config.stated("use_kl_loss"):
        return None
    return config.real("kl_loss_coef" if in_loss else "kl_coef")
