"""slime: rollout_batch_size prompts, n_samples_per_prompt responses each, of which an update takes global_batch_size.

Source: slime/utils/arguments.py (num_steps_per_rollout sets the global batch) and docs/en/get_started/usage.md.
"""

from typing import Any

from rftlab.studies.logs.designs.values import at, count, real, truth, word
from rftlab.studies.logs.run import KnownDesign

_ADVANTAGES = {
    "gspo": "group_zscore",
    "reinforce_plus_plus": "batch_zscore",
    "reinforce_plus_plus_baseline": "group_mean, batch_zscore",
    "ppo": "gae",
}


def recognise(config: dict) -> bool:
    """Whether a configuration has slime's arguments."""
    return "rollout_batch_size" in _plain(config) and "n_samples_per_prompt" in _plain(config)


def _plain(config: dict) -> dict[str, Any]:
    """Arguments by the names that slime's own object has: --lr is lr, --eps-clip is eps_clip."""
    return {str(name).lstrip("-").replace("-", "_"): value for name, value in config.items()}


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of slime's arguments."""
    config, assumed = _plain(config), list[str]()
    prompts, rollouts = count(at(config, "rollout_batch_size")), count(at(config, "n_samples_per_prompt"))
    updates, notes = _updates(config, prompts, rollouts)
    low, high = real(at(config, "eps_clip")), real(at(config, "eps_clip_high"))
    clip = None if low is None else f"clip {low:g}" if high is None else f"clip {low:g}/{high:g}"
    by_token = truth(at(config, "calculate_per_token_loss"))
    known = KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=updates,
        learning_rate=real(at(config, "lr")),
        advantage=_advantage(config, assumed),
        loss=", ".join(filter(None, (clip, "mean over tokens" if by_token else None))) or None,
        kl_coefficient=_kl(config),
        temperature=real(at(config, "rollout_temperature")),
        response_limit=count(at(config, "rollout_max_response_len")),
        model=word(at(config, "hf_checkpoint")),
        assumed=tuple(assumed),
    )
    return known, notes


def _updates(config: dict, prompts: int | None, rollouts: int | None) -> tuple[int | None, list[str]]:
    """Updates a round: as told, or responses by those of an update."""
    given, batch = count(at(config, "num_steps_per_rollout")), count(at(config, "global_batch_size"))
    if given is not None or batch is None or prompts is None or rollouts is None:
        return given, []
    if prompts * rollouts % batch:
        return None, [f"global_batch_size = {batch} does not divide {prompts * rollouts} responses of a round"]
    return prompts * rollouts // batch, []


def _advantage(config: dict, assumed: list[str]) -> str:
    name = word(at(config, "advantage_estimator"))
    if name is None:
        assumed.append("advantage_estimator is not stated; slime's default is grpo")
    if name in (None, "grpo"):
        scaled = truth(at(config, "grpo_std_normalization"))
        off = truth(at(config, "disable_grpo_std_normalization"))
        return "group_mean" if scaled is False or off else "group_zscore"
    return _ADVANTAGES.get(name, name)


def _kl(config: dict) -> float | None:
    """The coefficient that is in force: of the loss, or of the reward."""
    if truth(at(config, "use_kl_loss")):
        return real(at(config, "kl_loss_coef"))
    return real(at(config, "kl_coef"))
