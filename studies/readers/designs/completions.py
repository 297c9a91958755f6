"""Read designs from plain training scripts with the names of CS336. A round has rollout_batch_size completions, of
which group_size share a prompt, and epochs_per_rollout_batch passes over them in updates of train_batch_size.
gradient_accumulation_steps divides an update and changes no number here.

Source: problem grpo_train_loop of assignment 5 (alignment) of Stanford's CS336, 2025.
"""

from typing import Any

from rftlab.studies.readers.designs.values import Reader, unwrapped, value_at
from rftlab.studies.readers.run import KnownDesign

CS336 = "CS336's assignment 5"
MARKS = ("group_size", "rollout_batch_size")
NAMES = {
    **{name: (name,) for name in (*MARKS, "train_batch_size", "epochs_per_rollout_batch", "loss_type", "n_grpo_steps")},
    "use_std_normalization": ("use_std_normalization", "normalize_by_std"), "cliprange": ("cliprange", "clip_range"),
    "rate": ("learning_rate", "lr"), "temperature": ("sampling_temperature", "temperature"),
    "limit": ("sampling_max_tokens", "max_tokens"), "model": ("model_name", "model_id", "model_name_or_path"),
}  # fmt: skip
"""Settings of plain training scripts, each with the names that scripts give it."""
_BASELINES = ("reinforce_with_baseline", "grpo_clip", "grpo_no_clip")


def _tables(config: dict) -> dict[str, dict]:
    """Return the configuration and each table in it, by the prefix of the names there."""
    parts = {f"{name}.": unwrapped(value) for name, value in config.items() if len(str(name)) <= 80}
    return {"": config} | {at: part for at, part in parts.items() if isinstance(part, dict)}


def is_script_config(config: dict) -> bool:
    """Whether a configuration is a plain script's, with both `MARKS` in one table. One with n_samples_per_prompt is
    that of OpenRLHF or slime, whose rollout_batch_size counts prompts."""
    return any(part.keys() >= set(MARKS) and "n_samples_per_prompt" not in part for part in _tables(config).values())


def script_design(config: Reader) -> KnownDesign:
    """Return the design of a plain script."""
    tables = _tables(config.config)

    def stated(kind: str, setting: str, default: Any = None) -> Any:
        known = ([at + name for at in tables if config.stated(at + name)] for name in NAMES[setting])
        paths = next(filter(None, known), [])
        values = {str(value_at(config.config, path)): path for path in reversed(paths)}
        if len(values) > 1:
            config.notes.append(f"{' and '.join(list(values.values())[-2:])} differ; which one counts is not known")
        if len(values) == 1:
            return getattr(config, kind)(paths[0])
        return config.stated_or(kind, NAMES[setting][0], default, CS336) if default is not None and not paths else None

    def parts(by: str, size: int | None) -> int | None:
        """Return how many times a size divides the completions of a round; None where it does not."""
        if size and batch and batch % size:
            config.notes.append(f"rollout_batch_size = {batch} is no multiple of {by} = {size}; {CS336} refuses that")
        return batch // size if size and batch and batch % size == 0 else None

    batch, group, size = (stated("count", name) for name in ("rollout_batch_size", "group_size", "train_batch_size"))
    prompts, updates = parts("group_size", group), parts("train_batch_size", size)
    passes = stated("count", "epochs_per_rollout_batch", 1)
    if prompts:
        config.notes.append(f"rollout_batch_size = {batch} counts completions, as in {CS336}; --prompts if it does not")
    if getattr(config.config, "unless", ""):
        config.notes.append("settings count as the script has them; its arguments may say otherwise")
    loss, clip = stated("word", "loss_type", _BASELINES[0]), stated("real", "cliprange")
    scaled = stated("truth", "use_std_normalization", True) if loss in _BASELINES else None
    if loss and loss not in (*_BASELINES, "no_baseline"):
        config.notes.append(f"loss_type is {loss!r}; known: no_baseline, {', '.join(_BASELINES)}")
    return KnownDesign(
        prompts=prompts,
        rollouts=group,
        updates_per_round=passes * updates if passes and updates else None,
        learning_rate=stated("rate", "rate"),
        advantage="raw" if loss == "no_baseline" else {True: "group_zscore", False: "group_mean", None: None}[scaled],
        loss=f"{loss}, clip {clip:g}" if loss == "grpo_clip" and clip is not None else loss,
        temperature=stated("real", "temperature"),
        response_limit=stated("count", "limit"),
        model=stated("word", "model"),
    )
