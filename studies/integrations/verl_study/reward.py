"""The task's strict reward, as verl calls a `custom_reward_function`: one response at a time, in its workers."""

from typing import Any

from rftlab.llm.rewards.verify import strictly_right


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """`score` is what verl trains on, `acc` what it validates by; both are the strict reward, 0 or 1.

    extra_info: of the row (files.py); its `verifier` names the rule. Raises UserError for an unknown one, never
    for a response.
    """
    right = float(strictly_right((extra_info or {}).get("verifier", ""), solution_str, ground_truth))
    return {"score": right, "acc": right}
