"""prime-rl: orchestrator.batch_size responses a step, orchestrator.group_size of a prompt, one update a step.

group_size was called rollouts_per_example, and before that rollouts_per_prompt. Source:
packages/prime-rl-configs/src/prime_rl/configs at 559b447.
"""

from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign

PRIME = "prime-rl (559b447)"
_GROUPS = ("group_size", "rollouts_per_example", "rollouts_per_prompt")
_ADVANTAGES = {"grpo": "group_mean", "max_rl": "max_rl", "rae": "rae"}


def recognise(config: dict) -> bool:
    """Whether a configuration is prime-rl's: the whole, or the orchestrator's own file."""
    inside = config.get("orchestrator")
    return (
        isinstance(inside, dict)
        or any(name in config for name in _GROUPS[1:])
        or ("group_size" in config and "batch_size" in config)
    )


def known_of(config: Reader, processes: int | None) -> KnownDesign:
    """The design of a configuration."""
    own = "orchestrator." if isinstance(config.config.get("orchestrator"), dict) else ""
    config.notes.append(
        "prime-rl samples asynchronously: responses may come from an older policy than the one they train"
    )
    named = next((name for name in _GROUPS if config.stated(own + name)), None)
    rollouts = config.stated_or("count", own + (named or _GROUPS[0]), 1, PRIME)
    tokens, stated = config.stated(f"{own}token_batch_size"), config.stated(f"{own}batch_size")
    batch = config.count(f"{own}batch_size") if stated else None
    if tokens and batch is None:
        config.notes.append(
            "prompts: a batch is a number of tokens (token_batch_size), so it differs from step to step"
        )
    elif not stated:
        batch = config.stated_or("count", f"{own}batch_size", 128, PRIME)
    whole = bool(batch and rollouts and batch % rollouts == 0)
    if batch and rollouts and not whole:
        config.notes.append(f"batch_size = {batch} is no multiple of the group size {rollouts}; prime-rl refuses that")
    advantage = config.word(f"{own}algo.type")
    return KnownDesign(
        prompts=batch // rollouts if whole and batch and rollouts else None,
        rollouts=rollouts,
        updates_per_round=1,
        learning_rate=config.real("trainer.optim.lr"),
        advantage=_ADVANTAGES.get(advantage or "", advantage),
        loss=config.word("trainer.loss.type"),
        temperature=config.real(f"{own}train.sampling.temperature") or config.real(f"{own}sampling.temperature"),
        response_limit=config.count(f"{own}train.sampling.max_completion_tokens")
        or config.count(f"{own}sampling.max_tokens"),
        model=config.word("model.name") or config.word(f"{own}model.name"),
    )
