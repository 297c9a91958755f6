"""prime-rl: orchestrator.batch_size responses a step, orchestrator.group_size of a prompt, one update a step.

group_size was called rollouts_per_example, and before that rollouts_per_prompt. Source:
packages/prime-rl-configs/src/prime_rl/configs at 559b447.
"""

from rftlab.studies.logs.designs.values import at, count, real, word
from rftlab.studies.logs.run import KnownDesign

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


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of a configuration."""
    own = config["orchestrator"] if isinstance(config.get("orchestrator"), dict) else config
    assumed, notes = (
        [],
        ["prime-rl samples asynchronously: responses may come from an older policy than the one they train"],
    )
    rollouts = next((found for name in _GROUPS if (found := count(at(own, name)))), None)
    if rollouts is None:
        rollouts = 1
        assumed.append("rollouts: group_size is not stated; prime-rl's default is 1")
    batch = count(at(own, "batch_size"))
    if batch is None and at(own, "token_batch_size") is None:
        batch = 128
        assumed.append("prompts: batch_size is not stated; prime-rl's default is 128 responses")
    if batch is None:
        notes.append("prompts: a batch is a number of tokens (token_batch_size), so it differs from step to step")
    elif batch % rollouts:
        notes.append(f"batch_size = {batch} is no multiple of the group size {rollouts}; prime-rl refuses that")
    known = KnownDesign(
        prompts=batch // rollouts if batch and batch % rollouts == 0 else None,
        rollouts=rollouts,
        updates_per_round=1,
        learning_rate=real(at(config, "trainer.optim.lr")),
        advantage=_ADVANTAGES.get(word(at(own, "algo.type")) or "", word(at(own, "algo.type"))),
        loss=word(at(config, "trainer.loss.type")),
        temperature=real(at(own, "train.sampling.temperature")) or real(at(own, "sampling.temperature")),
        response_limit=count(at(own, "train.sampling.max_completion_tokens")) or count(at(own, "sampling.max_tokens")),
        model=word(at(config, "model.name")) or word(at(own, "model.name")),
        assumed=tuple(assumed),
    )
    return known, notes
