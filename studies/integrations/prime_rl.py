"""Compute the losses of rftlab's estimators in prime-rl, which imports them by their path.

    [trainer.loss]
    type = "custom"
    import_path = "rftlab.studies.integrations.prime_rl.loss"

    [trainer.loss.kwargs]
    estimator = "dapo"

prime-rl hands over one response at a time, adds the losses up and divides them by the tokens of the optimiser batch.
The average is therefore over tokens. An estimator with another average raises an error, unless `over_tokens = true` in
the same table accepts the average over tokens. Advantages are prime-rl's. The old policy is the one that sampled.

Written after `LossInputs` and `LossOutputs` of prime-rl 559b447; it is in no package registry, and has not been run.
"""

from dataclasses import replace
from typing import Any

from rftlab.llm import losses
from rftlab.shared.cards import preset
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.mask import OF_BATCH
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check


def loss(inputs: Any, estimator: str | Estimator = "dapo", over_tokens: bool = False) -> Any:
    """Compute the loss of a response as prime-rl's LossOutputs: minus the sum over its tokens, and two metrics.

    inputs: prime-rl's LossInputs, tensors (T,). Raises UserError where the estimator cannot be computed from it.
    """
    from prime_rl.trainer.rl.loss import LossOutputs

    plain = averaged_over_tokens(preset(estimator) if isinstance(estimator, str) else estimator, over_tokens)
    pieces = (inputs.advantages, inputs.ref_logprobs, inputs.loss_weights)
    advantages, ref_logp, weights = (None if piece is None else piece[None] for piece in pieces)
    result = losses.objective_and_metrics(
        inputs.trainer_logprobs[None],
        inputs.inference_logprobs[None],
        mask=inputs.loss_mask[None],
        estimator=plain,
        advantages=advantages,
        ref_logp=ref_logp,
        correction=weights,
        n_tokens=1,
    )
    metrics = {"clip_fraction": result.clip_fraction, "dual_clip_fraction": result.dual_clip_fraction}
    return LossOutputs(loss=-result.objective, metrics=metrics)


def averaged_over_tokens(estimator: Estimator, over_tokens: bool) -> Estimator:
    """Return the estimator with prime-rl's average over tokens. Raises UserError where it averages otherwise, or needs
    more than one response or policy."""
    kind, correction, mask = estimator.aggregation.kind, estimator.correction.kind, estimator.mask
    check(
        over_tokens or kind == "token_mean",
        f"aggregation {kind}: prime-rl averages over the tokens of a batch; allowed: token_mean, or over_tokens = true",
    )
    check(
        correction in ("none", "ratio"),
        f"correction {correction}: prime-rl has no policy besides those that sampled and learn; allowed: none, ratio",
    )
    whole = isinstance(mask, OF_BATCH)
    check(not whole, f"mask {type(mask).__name__} compares the tokens of a batch, and prime-rl shows one response")
    check(not estimator.has_bonus, "entropy bonus: prime-rl hands over no entropies; allowed: entropy 0")
    return replace(estimator, aggregation=Aggregation("token_mean"), correction=Correction())
