"""The bridge between the estimators of `shared` and autograd. The objective is maximised; the trainer negates it."""

import numpy as np
import torch

from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import ObjectiveAndWeights, objective_and_weights
from rftlab.shared.prepare import Batch


class PolicyObjective(torch.autograd.Function):
    """The objective of tokens as a function of their log-probabilities: its derivative are the weights that
    `objective_and_weights` found."""

    @staticmethod
    def forward(ctx, logp: torch.Tensor, weighed: ObjectiveAndWeights) -> torch.Tensor:
        """logp (T,), weighed at these log-probabilities; returns a float64 scalar."""
        ctx.save_for_backward(torch.from_numpy(weighed.weight).to(logp))
        return torch.tensor(weighed.objective, dtype=torch.float64)

    @staticmethod
    def backward(ctx, slope: torch.Tensor):
        """dJ/dlogp, in the number type of logp."""
        (weight,) = ctx.saved_tensors
        return weight * slope.to(weight), None


def objective(estimator: Estimator, batch: Batch, logp: torch.Tensor) -> tuple[torch.Tensor, ObjectiveAndWeights]:
    """J of a frozen batch, or of a slice of one, at logp (T,) of any number type and device; and what it was found
    from."""
    weighed = objective_and_weights(estimator, batch, logp.detach().to("cpu", torch.float64).numpy())
    return PolicyObjective.apply(logp, weighed), weighed


def part_of(batch: Batch, tokens: np.ndarray) -> Batch:
    """The slice of a frozen batch that a micro-batch sees; tokens (n,) are those of whole responses."""
    return Batch(*(column[tokens] for column in batch))
