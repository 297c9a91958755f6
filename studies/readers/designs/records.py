"""What a log itself tells of the design: columns that hold one number in every round."""

from typing import Any

import numpy as np

from rftlab.studies.readers.designs.values import count
from rftlab.studies.readers.run import KnownDesign
from rftlab.studies.readers.steps import Points

_COLUMNS = {
    "prompts": ("num_questions", "num_prompts", "prompts_per_batch", "prompts_per_round", "groups_per_batch"),
    "rollouts": ("group_size", "num_generations", "rollouts_per_prompt", "responses_per_prompt"),
    "updates_per_round": ("optimizer_updates_per_rollout_batch", "updates_per_round", "updates_per_batch"),
}
_RATES = ("learning_rate", "lr", "actor/lr")


def from_records(points: dict[str, Points], tool: str) -> KnownDesign:
    """The facts of constant columns, under any prefix (train/group_size); each is said in a sentence."""
    facts: dict[str, Any] = {}
    assumed = []
    for field, names in _COLUMNS.items():
        found = [(name, part) for name, part in points.items() if name.rsplit("/", 1)[-1] in names]
        values = {float(value) for _, part in found for value in np.unique(part.values)}
        fact = count(values.pop()) if len(values) == 1 else None
        if fact is not None:
            facts[field] = fact
            assumed.append(f"{field}: {fact} in every {found[0][0]} of the log")
    rate = _rate(points)
    if rate is not None:
        facts["learning_rate"], said = rate
        assumed.append(said)
    return KnownDesign(**facts, assumed=tuple(assumed))


def _rate(points: dict[str, Points]) -> tuple[float, str] | None:
    """The learning rate that was logged; the highest of a schedule."""
    for name, part in points.items():
        if name in _RATES or name.removeprefix("train/") in _RATES:
            highest = float(part.values.max())
            if highest > 0:
                kind = "the" if np.all(part.values == part.values[0]) else "the highest"
                return highest, f"learning_rate: {kind} {name} of the log"
    return None
