"""Compute rewards and losses of rftlab's estimators in slime, by two function paths and a file of settings.

    --custom-reward-post-process-path rftlab.studies.integrations.slime.rewards
    --loss-type custom_loss --custom-loss-function-path rftlab.studies.integrations.slime.loss
    --advantage-estimator grpo --custom-config-path rftlab.yaml        # with the line   rftlab_estimator: gspo

Advantages are computed where slime has the rewards of all responses of a rollout, and its estimator `grpo` spreads them
over tokens. (`--custom-advantage-function-path` sees those of one data-parallel rank.) slime sums a loss over responses
and divides by the responses of the batch; with `--calculate-per-token-loss` by its tokens. An estimator with another
average raises an error.

Written after slime 624b824; it needs Megatron and is in no package registry, and has not been run.
"""

from itertools import accumulate
from typing import Any

from rftlab.llm import losses
from rftlab.llm.losses.inputs import joined
from rftlab.shared.cards import preset
from rftlab.shared.config.mask import OF_BATCH
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check


def named_estimator(args: Any) -> Estimator:
    """Return the estimator that the settings name. Raises UserError without a name, or where slime cannot compute
    it."""
    name = getattr(args, "rftlab_estimator", None)
    check(
        isinstance(name, str), f"rftlab_estimator = {name!r}; allowed: a name of rftlab estimators, in your YAML file"
    )
    estimator = preset(str(name))
    kind, per_token = estimator.aggregation.kind, bool(args.calculate_per_token_loss)
    check(
        kind == "token_mean" if per_token else kind.startswith("seq_mean"),
        f"aggregation {kind}; allowed: {'token_mean' if per_token else 'seq_mean_...'} with --calculate-per-token-loss "
        f"{'on' if per_token else 'off'}",
    )
    check(not isinstance(estimator.mask, OF_BATCH), f"{name}: its mask compares the tokens of a whole batch")
    check(not estimator.advantage.by_token, f"{name}: advantages that differ from token to token; slime takes one each")
    check(estimator.entropy_target == 0, f"{name}: the coefficient of its entropy bonus moves, which slime cannot keep")
    check(
        estimator.kl.kind == "none" or estimator.kl.place == "loss", f"{name}: KL in the reward; allowed: in the loss"
    )
    return estimator


def rewards(args: Any, samples: list) -> tuple[list[float], list[float]]:
    """Return rewards unchanged, and the advantages to use. samples: slime's, each with its group_index."""
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    masks = [sample.loss_mask or [1] * sample.response_length for sample in samples]
    longest = max(map(len, masks))
    mask: Any = [row + [0] * (longest - len(row)) for row in masks]
    group = [sample.group_index for sample in samples]
    return raw, losses.advantages(raw, group, mask, estimator=named_estimator(args)).tolist()


def loss(args: Any, batch: dict, logits: Any, sum_of_sample_mean: Any) -> tuple[Any, dict[str, Any]]:
    """Compute slime's loss of a micro-batch, and its log. Raises UserError where inputs are missing."""
    from slime.backends.megatron_utils.loss import get_log_probs_and_entropy

    check(args.context_parallel_size == 1, "context parallelism splits responses; allowed: --context-parallel-size 1")
    estimator = named_estimator(args)
    given = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
    _, computed = get_log_probs_and_entropy(logits, args=args, with_entropy=True, **given)
    names = ("log_probs", "ref_log_probs", "rollout_log_probs")
    old, ref, sampler = (joined(batch[name]) if batch.get(name) else None for name in names)
    objective = losses.objective(
        joined(computed["log_probs"]),
        old,
        mask=joined(batch["loss_masks"]),
        starts=[0, *accumulate(batch["response_lengths"])],
        estimator=estimator,
        advantages=joined(batch["advantages"]),
        entropy=joined(computed["entropy"]) if estimator.entropy else None,
        ref_logp=ref,
        sampler_logp=sampler,
        n_tokens=1,
        n_rows=1,
    )
    return -objective, {"loss": -objective.detach()}
