"""Episodes of verifiers, a line each, in prime-rl's `rollouts/step_N/train/all/traces.jsonl`: a task, its group, and
the traces of agents, each with named rewards.

Sources: prime_rl/monitors/file.py (559b447), verifiers/v1/episode.py and trace.py (a60a606).
"""

import json
from collections.abc import Iterator
from typing import Any

from rftlab.studies.readers.text import finite


def is_episode(record: dict) -> bool:
    """Whether a record has an episode's fields."""
    return isinstance(record.get("traces"), list) and isinstance(record.get("task"), dict) and "env" in record


def responses(record: dict) -> Iterator[dict]:
    """Its traces that are trained on, have a reward and no error, as records with a group and a reward, which is the
    sum of the named ones times their weights."""
    group = record.get("group")
    task = record["task"]
    name = group.get("id") if isinstance(group, dict) else None
    name = name or task.get("key") or task.get("hash") or json.dumps(task.get("data"))
    for trace in record["traces"]:
        agent = trace.get("agent") if isinstance(trace, dict) else None
        if not isinstance(agent, dict) or agent.get("trainable") is False or trace.get("errors"):
            continue
        rewards = trace.get("rewards")
        values = [_weighted(one) for one in rewards.values()] if isinstance(rewards, dict) else []
        known = [value for value in values if value is not None]
        if known:
            yield {"group_id": [name, agent.get("name")], "reward": sum(known)}


def _weighted(reward: Any) -> float | None:
    score = finite(reward.get("score")) if isinstance(reward, dict) else None
    weight = finite(reward.get("weight", 1.0)) if isinstance(reward, dict) else None
    return None if score is None or weight is None else score * weight
