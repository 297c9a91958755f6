"""Objectives of estimators on tensors, for any training loop: on the tensors' own device, ready for autograd.

J = rl.losses.objective(logp, old_logp, rewards, mask, group, estimator="gspo")
(-J).backward()
"""

from rftlab.llm.losses.objectives import advantages, objective, objective_and_metrics

__all__ = ["advantages", "objective", "objective_and_metrics"]
