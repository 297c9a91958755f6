"""OpenRLHF: rollout_batch_size prompts, n_samples_per_prompt responses each, of which an update takes
train_batch_size; max_epochs passes.

Source: openrlhf/cli/train_ppo_ray.py at 021d1b0, trainer/ppo_utils/experience_maker.py.
"""

from rftlab.studies.logs.designs.values import at, count, real, truth, word
from rftlab.studies.logs.run import KnownDesign

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


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of OpenRLHF's arguments."""
    assumed: list[str] = []
    prompts, rollouts, batch, passes = (_size(config, name, assumed) for name in _DEFAULTS)
    updates, notes = None, []
    if prompts and rollouts and batch and passes:
        whole = prompts * rollouts % batch == 0
        updates = prompts * rollouts // batch * passes if whole else None
        notes += [] if whole else [f"train_batch_size = {batch} does not divide {prompts * rollouts} responses a round"]
    if truth(at(config, "dynamic_filtering")):
        notes.append("dynamic filtering: prompts are sampled until as many have signal")
    clip = None if at(config, "eps_clip_low_high") is not None else real(at(config, "eps_clip"))
    known = KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=updates,
        learning_rate=real(at(config, "actor_learning_rate")),
        advantage=_advantage(config),
        loss=None if clip is None else f"clip {clip:g}",
        kl_coefficient=real(at(config, "init_kl_coef")),
        temperature=real(at(config, "temperature")),
        response_limit=count(at(config, "generate_max_len")),
        model=word(at(config, "pretrain")),
        assumed=tuple(assumed),
    )
    return known, notes


def _size(config: dict, name: str, assumed: list[str]) -> int | None:
    """An argument, or OpenRLHF's default of it, which is said; None of one that cannot be read."""
    if at(config, name) is not None:
        return count(at(config, name))
    assumed.append(f"{name} is not stated; OpenRLHF's default is {_DEFAULTS[name]}")
    return _DEFAULTS[name]


def _advantage(config: dict) -> str | None:
    name = word(at(config, "advantage_estimator"))
    if truth(at(config, "no_advantage_std_norm")) and name in ("reinforce", "reinforce_baseline"):
        return {"reinforce": "batch_mean", "reinforce_baseline": "group_mean, batch_mean"}[name]
    return _ADVANTAGES.get(name, name) if name else None
