"""OpenRLHF: rollout_batch_size prompts, n_samples_per_prompt responses each, of which an update takes
train_batch_size; max_epochs passes.

Source: openrlhf/cli/train_ppo_ray.py at 021d1b0, trainer/ppo_utils/experience_maker.py.
"""

from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign

_DEFAULTS = {"rollout_batch_size": 1024, "n_samples_per_prompt": 1, "train_batch_size": 128, "max_epochs": 1}
_ADVANTAGES = {
    "group_norm": "group_zscore",
    "dr_grpo": "group_mean",
    "rloo": "leave_one_out",
    "reinforce": "batch_zscore",
    "reinforce_baseline": "group_mean, batch_zscore",
}


def recognise(config: dict) -> bool:
    """Whether a configuration has OpenRLHF's arguments."""
    return "n_samples_per_prompt" in config and any(
        name in config for name in ("actor_learning_rate", "train_batch_size", "init_kl_coef", "advantage_estimator")
    )


def known_of(config: Reader, processes: int | None) -> KnownDesign:
    """The design of OpenRLHF's arguments."""
    prompts, rollouts, batch, passes = (
        config.stated_or("count", name, value, "OpenRLHF (021d1b0)") for name, value in _DEFAULTS.items()
    )
    updates = None
    if prompts and rollouts and batch and passes:
        whole = prompts * rollouts % batch == 0
        updates = prompts * rollouts // batch * passes if whole else None
        if not whole:
            config.notes.append(f"train_batch_size = {batch} does not divide {prompts * rollouts} responses a round")
    if config.truth("dynamic_filtering"):
        config.notes.append("dynamic filtering: prompts are sampled until as many have signal")
    clip = None if config.stated("eps_clip_low_high") else config.real("eps_clip")
    return KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=updates,
        learning_rate=config.real("actor_learning_rate"),
        advantage=_advantage(config),
        loss=None if clip is None else f"clip {clip:g}",
        kl_coefficient=config.real("init_kl_coef"),
        temperature=config.real("temperature"),
        response_limit=config.count("generate_max_len"),
        model=config.word("pretrain"),
    )


def _advantage(config: Reader) -> str | None:
    name = config.word("advantage_estimator")
    if name in ("reinforce", "reinforce_baseline") and config.truth("no_advantage_std_norm"):
        return {"reinforce": "batch_mean", "reinforce_baseline": "group_mean, batch_mean"}[name]
    return _ADVANTAGES.get(name, name) if name else None
