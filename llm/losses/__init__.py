"""Compute objectives of estimators on tensors for any training loop, on the tensors' own device and ready for autograd.

    J = rl.losses.objective(logp, old_logp, rewards, mask, group, estimator="gspo")
    (-J).backward()

An estimator is given by its name in `rftlab estimators`, or as an `Estimator`.
"""

from rftlab.llm.losses.objectives import advantages, objective, objective_and_metrics

__all__ = ["advantages", "objective", "objective_and_metrics"]
