"""Objectives of estimators on tensors, for any training loop: on the tensors' own device, ready for autograd.

    J = rl.losses.objective(logp, old_logp, rewards, mask, group, estimator="gspo")
    (-J).backward()

An estimator is named as `rftlab estimators` names it, or is an `Estimator`.
"""

from rftlab.llm.losses.objectives import advantages, objective, objective_and_metrics

__all__ = ["advantages", "objective", "objective_and_metrics"]
