"""prime-rl: orchestrator.batch_size samples a step, orchestrator.group_size (once rollouts_per_example) of which share
a prompt; one update of the optimizer a step. The trainer does not wait for its sampler, so samples may be of weights
that are up to max_off_policy_steps old.

Source: packages/prime-rl-configs/src/prime_rl/configs/orchestrator.py (`OrchestratorConfig`) of prime-rl 004274e.
"""

from typing import Any

from rftlab.studies.readers.designs.values import Reader, value_at
from rftlab.studies.readers.run import KnownDesign

LIBRARY = "prime-rl 004274e"
_GROUP = ("orchestrator.group_size", "orchestrator.rollouts_per_example", "group_size", "rollouts_per_example")
_BATCH = ("orchestrator.batch_size", "batch_size")
_RATE = ("trainer.optim.lr", "orchestrator.optim.lr", "optim.lr")
_LIMIT = tuple(f"orchestrator.{name}" for name in ("train.sampling.max_completion_tokens", "sampling.max_tokens",
               "train.sampling.max_tokens", "sampling.max_completion_tokens"))  # fmt: skip
_TEMPERATURE = ("orchestrator.train.sampling.temperature", "orchestrator.sampling.temperature")
_MODEL = ("model.name", "orchestrator.model.name", "trainer.model.name")
_FILTER = "orchestrator.post_batch_filters"


def is_prime_config(config: dict) -> bool:
    """Whether a configuration is prime-rl's: an orchestrator, and samples or groups of a batch."""
    return "orchestrator" in config and any(value_at(config, name) is not None for name in (*_GROUP, *_BATCH))


def prime_design(config: Reader, processes: int | None) -> KnownDesign:
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
        learning_rate=stated("real", _RATE),
        advantage="group_mean",
        response_limit=stated("count", _LIMIT),
        temperature=stated("real", _TEMPERATURE),
        model=stated("word", _MODEL),
    )
