"""Compute advantages and losses of rftlab's estimators in tinker, for `forward_backward_custom`.

    advantages_P = advantages([group.get_total_rewards() for group in groups], "gspo")
    ...     # a datum has target_tokens, logprobs, advantages and mask, as in the cookbook
    training_client.forward_backward_custom(data, loss("gspo"))

The call sees the whole optimiser batch, so means are over it. The old policy is the one that sampled: `logprobs` of the
datum. `ref_logprobs` there are those of a base policy; tinker keeps such fields on your side. Written after tinker 0.38
and tinker-cookbook 0.6.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from rftlab.llm import losses
from rftlab.llm.losses.inputs import joined, reads_entropy
from rftlab.shared.cards import preset
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check

NEEDED = ("logprobs", "advantages", "mask")


def advantages(rewards: Sequence[Sequence[float]], estimator: str | Estimator) -> list[Any]:
    """Compute the advantages of groups, a tensor (G,) each, from the rewards of their trajectories, as the cookbook's
    `compute_advantages` does. Raises UserError where the estimator needs more than rewards."""
    sizes = [len(group) for group in rewards]
    labels = [place for place, size in enumerate(sizes) for _ in range(size)]
    flat = [float(reward) for group in rewards for reward in group]
    return list(losses.advantages(flat, labels, estimator=estimator).split(sizes))


def loss(estimator: str | Estimator) -> Callable[[list[Any], list[Any]], tuple[Any, dict[str, float]]]:
    """Return the argument of `forward_backward_custom`: a function from data and log-probabilities to a loss and
    metrics.

    Raises UserError, at once for an estimator with an entropy bonus or a correction (tinker hands over neither), and
    when called for a datum without its fields.
    """
    plain = preset(estimator) if isinstance(estimator, str) else estimator
    check(not reads_entropy(plain), "entropy bonus or mask: tinker hands over no entropies; allowed: without them")
    kind = plain.correction.kind
    check(kind in ("none", "ratio"), f"correction {kind}: tinker has no third policy; allowed: none, ratio")

    def of_batch(data: list[Any], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        """Compute the loss of a batch, with its graph, and metrics."""
        fields = [datum.loss_fn_inputs for datum in data]
        missing = sorted({name for field in fields for name in NEEDED if name not in field})
        check(not missing, f"a datum has no {', '.join(missing)} in its loss_fn_inputs; allowed: with these")
        columns = {name: joined([field[name].to_torch() for field in fields]) for name in NEEDED}
        known = all("ref_logprobs" in field for field in fields)
        ref_logp = joined([field["ref_logprobs"].to_torch() for field in fields]) if known else None
        result = losses.objective_and_metrics(
            joined(logprobs),
            columns["logprobs"],
            mask=columns["mask"],
            starts=[0, *accumulate(map(len, logprobs))],
            estimator=plain,
            advantages=columns["advantages"],
            ref_logp=ref_logp,
            sampler_logp=columns["logprobs"] if kind == "ratio" else None,
        )
        return -result.objective, {"clip_fraction": float(result.clip_fraction), "kl": float(result.kl)}

    return of_batch
