"""tinker-cookbook: groups_per_batch prompts (batch_size of the data set builder), group_size responses each,
num_substeps updates.

Advantages are rewards less their group's mean, not divided (rl/data_processing.py). Source:
tinker_cookbook/rl/train.py at 9dfcc3a.
"""

from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign


def recognise(config: dict) -> bool:
    """Whether a configuration is tinker-cookbook's config.json."""
    return "dataset_builder" in config or "groups_per_batch" in config or "num_substeps" in config


def known_of(config: Reader, processes: int | None) -> KnownDesign:
    """The design of a configuration."""
    builder = "dataset_builder." if isinstance(config.config.get("dataset_builder"), dict) else ""
    return KnownDesign(
        prompts=config.count(f"{builder}groups_per_batch") or config.count(f"{builder}batch_size"),
        rollouts=config.count(f"{builder}group_size"),
        updates_per_round=config.stated_or("count", "num_substeps", 1, "tinker-cookbook (9dfcc3a)"),
        learning_rate=config.real("learning_rate"),
        advantage="group_mean",
        loss=config.word("loss_fn"),
        kl_coefficient=config.real("kl_penalty_coef"),
        temperature=config.real("temperature"),
        response_limit=config.count("max_tokens"),
        model=config.word("model_name"),
    )
