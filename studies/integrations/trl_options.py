"""Check that the options of TRL's GRPOConfig agree with an estimator."""

from dataclasses import fields
from typing import Any

from rftlab.shared.config.mask import OF_BATCH
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.readers.designs.ours import advantage_name

SAID_BY_ESTIMATOR = (
    "loss_type",
    "scale_rewards",
    "epsilon",
    "epsilon_high",
    "delta",
    "importance_sampling_level",
    "multi_objective_aggregation",
    "sapo_temperature_neg",
    "sapo_temperature_pos",
    "vespo_k_pos",
    "vespo_lambda_pos",
    "vespo_k_neg",
    "vespo_lambda_neg",
    "off_policy_mask_threshold",
    "top_entropy_quantile",
    "use_bias_correction_kl",
    "entropy_coef",
    "use_adaptive_entropy",
    "entropy_target",
    "entropy_coef_delta",
    "entropy_coef_min",
    "entropy_coef_max",
)
"""Options of GRPOConfig that an estimator decides; values other than TRL's default contradict it."""


def design_facts(estimator: Estimator, support: int) -> dict[str, Any]:
    """Return facts about the run for TRL's arguments, as plain values; `rftlab import` reads them."""
    spec = estimator.advantage
    return {
        "rftlab_advantage": advantage_name(spec.baseline, spec.scale),
        "rftlab_loss": f"{type(estimator.surrogate).__name__}, {estimator.aggregation.kind}",
        "rftlab_support": support,
    }


def check_trl_estimator(estimator: Estimator, args: Any) -> None:
    """Raise UserError where an estimator needs inputs that TRL does not have."""
    spec = estimator.advantage
    check(
        not spec.given,
        f"TRL hands over no baseline of kind {spec.baseline}; allowed: an estimator whose baseline is in its group",
    )
    split = args.gradient_accumulation_steps * args.world_size
    check(
        split == 1 or not isinstance(estimator.mask, OF_BATCH),
        f"mask {type(estimator.mask).__name__} compares the tokens of an optimiser batch, and {split} parts are one; "
        "allowed: gradient_accumulation_steps=1 and one process",
    )
    kind = estimator.aggregation.kind
    check(kind != "prompt_mean", f"aggregation {kind}: TRL tells its loss no prompts; allowed: the others")
    check(
        split == 1 or estimator.aggregation.micro_batch is None,
        f"aggregation {kind} takes responses from the beginning of an optimiser batch, and {split} parts are one; "
        "allowed: gradient_accumulation_steps=1 and one process",
    )


def check_options(estimator: Estimator, args: Any) -> None:
    """Raise UserError where an option of TRL contradicts the estimator."""
    defaults = {one.name: one.default for one in fields(args)}
    for name in SAID_BY_ESTIMATOR:
        value, usual = getattr(args, name, None), defaults.get(name)
        same = value == usual or (name == "scale_rewards" and value is True and usual == "group")
        same = same or (name == "epsilon_high" and value == args.epsilon)
        check(same, f"GRPOConfig({name}={value!r}): the estimator decides on that; allowed: TRL's default, {usual!r}")
    coef = estimator.kl.coef if estimator.kl.against_base else 0.0
    message = f"GRPOConfig(beta={args.beta!r}): the estimator's KL penalty has the coefficient {coef:g}"
    check(args.beta in (0.0, coef), message + "; allowed: beta=0.0, and estimator.kl for another coefficient")


def check_sizes(args: Any, support: int, window: int) -> None:
    """Raise UserError where the sizes of groups, support rollouts and micro-batches do not fit together."""
    k, steps, parts = args.num_generations, args.steps_per_generation, args.gradient_accumulation_steps
    check_count("window", window, 0)
    check_count("support", support, 0)
    check(support < k, f"support = {support} of num_generations = {k}; allowed: fewer than that")
    trained = k - support
    check(window == 0 or window >= trained, f"window = {window}; allowed: 0, or at least {trained}, trained each time")
    check(
        steps % parts == 0,
        f"steps_per_generation = {steps}, gradient_accumulation_steps = {parts}; the second must divide the first",
    )
    rows = args.per_device_train_batch_size * steps
    check(
        support == 0 or (rows % k == 0 and rows // k * trained % steps == 0),
        f"support = {support}: a process has {rows} responses, and {trained} of each {k} go into {steps} micro-batches "
        "of one size; allowed: sizes that divide",
    )
