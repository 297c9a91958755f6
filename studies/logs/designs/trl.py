"""TRL's GRPO: responses of a generation batch = per_device_train_batch_size x processes x steps_per_generation, of
which num_generations share a prompt.

steps_per_generation is gradient_accumulation_steps unless set; generation_batch_size may be set instead. An update
takes
gradient_accumulation_steps of those micro-batches, and the batch is used num_iterations times, so a round has
steps_per_generation x num_iterations / gradient_accumulation_steps updates. Source: trl/trainer/grpo_config.py
(`__post_init__`) and
grpo_trainer.py (`_prepare_inputs`) of TRL 1.16; issues trl 3020, 3061, 3443 ask for just this.

Arguments of our own trainer (`studies/adapters/trl.py`) have entries `rftlab_...`, which say what its estimator does.
"""

from rftlab.studies.logs.designs.values import at, count, real, word
from rftlab.studies.logs.run import KnownDesign

_SCALES = {
    "group": "group_zscore",
    "true": "group_zscore",
    "batch": "batch_zscore",
    "none": "group_mean",
    "false": "group_mean",
}
_MARKS = (
    "num_generations",
    "per_device_train_batch_size",
    "steps_per_generation",
    "generation_batch_size",
    "scale_rewards",
)
_DEFAULTS = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
}
_SIZES = ("generation_batch_size", "steps_per_generation")


def recognise(config: dict) -> bool:
    """Whether a configuration has TRL's arguments."""
    return any(name in config for name in _MARKS)


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of TRL's arguments. processes: the world size, which no argument holds."""
    unread = [name for name in (*_DEFAULTS, *_SIZES) if at(config, name) is not None and not count(at(config, name))]
    notes = [f"{name} is {at(config, name)!r}, which is no number that can be read here" for name in unread]
    assumed: list[str] = []
    sizes = {name: _stated(config, name, assumed) for name in _DEFAULTS if name not in unread}
    batch, updates = (
        (None, None) if unread else _sizes(config, processes or count(at(config, "num_processes")), sizes, notes)
    )
    generations = sizes.get("num_generations")
    known = KnownDesign(
        prompts=_divided(batch, generations, "the generation batch", notes) if batch and generations else None,
        rollouts=generations - (count(at(config, "rftlab_support")) or 0) if generations else None,
        updates_per_round=updates,
        learning_rate=_rate(config, assumed),
        advantage=word(at(config, "rftlab_advantage")) or _advantage(config, assumed),
        loss=word(at(config, "rftlab_loss")) or _loss(config),
        kl_coefficient=real(at(config, "beta")),
        temperature=real(at(config, "temperature")),
        response_limit=count(at(config, "max_completion_length")),
        model=word(at(config, "model_name_or_path")),
        assumed=tuple(assumed),
    )
    return known, notes


def _sizes(
    config: dict, processes: int | None, sizes: dict[str, int], notes: list[str]
) -> tuple[int | None, int | None]:
    """Responses of a generation batch, and updates a round."""
    device, accumulated, generations, iterations = (sizes[name] for name in _DEFAULTS)
    batch, steps = (count(at(config, name)) for name in _SIZES)
    processes, more = _processes(device, steps, batch, processes)
    notes += more
    if steps is None and batch is None:
        steps = accumulated
    if batch is None and processes is not None and steps is not None:
        batch = device * processes * steps
    if steps is None and batch is not None and processes is not None:
        steps = _divided(batch, device * processes, "generation_batch_size", notes)
    if batch is None and steps is not None:
        each = device * steps
        prompts = f"{each // generations}" if each % generations == 0 else f"{each}/{generations}"
        notes.append(
            f"prompts: {prompts} x the number of processes ({each} responses a process and round); --processes "
            "tells (the world size)"
        )
    of = "steps_per_generation x num_iterations"
    return batch, _divided(steps * iterations, accumulated, of, notes) if steps else None


def _stated(config: dict, name: str, assumed: list[str]) -> int:
    """An argument, or TRL's default of it, which is said."""
    found = count(at(config, name))
    if found is None:
        found = _DEFAULTS[name]
        assumed.append(f"{name} is not stated; TRL's default is {found}")
    return found


def _processes(device: int, steps: int | None, batch: int | None, given: int | None) -> tuple[int | None, list[str]]:
    """The world size: told, or worked out where arguments were written after TRL filled both sizes in."""
    if not steps or not batch or batch % (device * steps):
        return given, []
    found = batch // (device * steps)
    return found, [] if given in (None, found) else [f"--processes {given}: the arguments say {found}, which is taken"]


def _divided(total: int, by: int, name: str, notes: list[str]) -> int | None:
    if total % by:
        notes.append(f"{name} = {total} is no multiple of {by}; TRL refuses that")
        return None
    return total // by


def _advantage(config: dict, assumed: list[str]) -> str | None:
    """What rewards are divided by says it, for TRL always takes the group's mean off."""
    scale = at(config, "scale_rewards")
    if scale is None:
        assumed.append("scale_rewards is not stated; TRL's default is to divide by the group's deviation")
    return _SCALES.get("group" if scale is None else str(scale).lower())


def _rate(config: dict, assumed: list[str]) -> float | None:
    if at(config, "learning_rate") is not None:
        return real(at(config, "learning_rate"))
    assumed.append("learning_rate is not stated; the default of TRL's GRPO is 1e-6")
    return 1e-6


def _loss(config: dict) -> str | None:
    """loss_type, its clip and the level of its ratio; the parts that are stated."""
    low, high = real(at(config, "epsilon")), real(at(config, "epsilon_high"))
    clip = None if low is None else f"clip {low:g}/{high:g}" if high is not None else f"clip {low:g}"
    level = word(at(config, "importance_sampling_level"))
    return (
        ", ".join(part for part in (word(at(config, "loss_type")), clip, level and f"ratio of a {level}") if part)
        or None
    )
