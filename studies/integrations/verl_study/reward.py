"""Compute the task's strict reward in verl's workers, one response at a time, as a `custom_reward_function`."""

from typing import Any

from rftlab.llm.rewards.verify import strictly_right


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """Return the strict reward, 0 or 1, twice: verl trains on `score` and validates by `acc`.

    extra_info: of the row (files.py); its `verifier` names the rule. Raises UserError for an unknown one, never for a
    response.
    """
    right = float(strictly_right((extra_info or {}).get("verifier", ""), solution_str, ground_truth))
    return {"score": right, "acc": right}
