"""tinker-cookbook: groups_per_batch prompts (batch_size of the data set builder), group_size responses each,
num_substeps updates.

Advantages are rewards less their group's mean, not divided (rl/data_processing.py). Source:
tinker_cookbook/rl/train.py at 9dfcc3a.
"""

from rftlab.studies.logs.designs.values import at, count, real, word
from rftlab.studies.logs.run import KnownDesign


def recognise(config: dict) -> bool:
    """Whether a configuration is tinker-cookbook's config.json."""
    return "dataset_builder" in config or "groups_per_batch" in config or "num_substeps" in config


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of a configuration."""
    builder = config["dataset_builder"] if isinstance(config.get("dataset_builder"), dict) else config
    substeps, assumed = count(at(config, "num_substeps")), []
    if substeps is None:
        substeps = 1
        assumed.append("updates a round: num_substeps is not stated; tinker-cookbook's default is 1")
    known = KnownDesign(
        prompts=next(
            (found for name in ("groups_per_batch", "batch_size") if (found := count(at(builder, name)))), None
        ),
        rollouts=count(at(builder, "group_size")),
        updates_per_round=substeps,
        learning_rate=real(at(config, "learning_rate")),
        advantage="group_mean",
        loss=word(at(config, "loss_fn")),
        kl_coefficient=real(at(config, "kl_penalty_coef")),
        temperature=real(at(config, "temperature")),
        response_limit=count(at(config, "max_tokens")),
        model=word(at(config, "model_name")),
        assumed=tuple(assumed),
    )
    return known, []
