"""Translate a run into verl's settings where they differ from its `ppo_trainer.yaml`, or say why verl cannot run it.

Names and rules are from verl 0.9.1: trainer/config/*.yaml, trainer/ppo/v1/trainer_base.py (batches, validation, steps),
trainer/ppo/core_algos.py (KL, aggregation), workers/engine/fsdp/transformer_impl.py (optimiser and its schedule).
"""

from typing import Any

from rftlab.llm.config import LLMRun
from rftlab.shared.cards import SHIPPED, estimator_name
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.surrogate import Dro
from rftlab.shared.estimator import Estimator
from rftlab.studies.integrations.cluster import Cluster

VERL, PREFIX, PROJECT = "0.9.1", "rftlab_", "rftlab"
MAX_TOKENS = 16384
"""Largest number of tokens of a micro-batch on a GPU, as in verl; more where one sequence may be longer."""
COMPUTE_SCORE = "compute_score"
"""Name of the function in the reward's file."""


def refused(run: LLMRun, cluster: Cluster, native: bool = False) -> str:
    """Return why verl cannot run a design as intended; "" where it can. native: advantages and loss are verl's own."""
    design, estimator = run.design, run.design.estimator
    name, each = estimator_name(estimator), design.batch_size // design.minibatches * sampled_responses(run)
    reasons = {
        f"replay_window = {design.replay_window}: verl hands a plug-in no prompts and no earlier rewards": (
            design.replay_window > 0
        ),
        "sampling: verl's own filter_groups is another rule": design.sampling != Sampling(),
        f"estimator {name} is no card that comes with rftlab: verl knows those alone": not native
        and name not in SHIPPED,
        f"baseline {estimator.advantage.baseline}: verl hands it to no plug-in": estimator.advantage.given,
        "support rollouts: Dro is not in proportion to its advantage": (
            design.support_rollouts > 0 and isinstance(estimator.surrogate, Dro)
        ),
        "rewards of your own: the data carry the task's strict reward alone": bool(run.rewards),
        f"{each} responses an update on {cluster.gpus} GPUs: verl pads what they do not divide, and a padded update "
        "is another": each % cluster.gpus > 0,
        **_refused_estimator(estimator),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _refused_estimator(estimator: Estimator) -> dict[str, bool]:
    """Return penalties and corrections that verl lacks, and whether the estimator has each."""
    kl, correction, aggregation = estimator.kl, estimator.correction, estimator.aggregation
    terms = kl.against_base or estimator.entropy > 0
    return {
        "entropy_target: verl's entropy bonus has a fixed coefficient": estimator.entropy_target > 0,
        "kl.weighted: verl's KL penalty is not": kl.against_base and kl.weighted,
        "kl.bounded = False: verl holds k3 at 10 or less": kl.against_base and kl.kind == "k3" and not kl.bounded,
        f"correction {correction.kind} of a {correction.level}: verl weighs by token or sequence, truncated": (
            correction.kind != "none"
            and (correction.kind != "truncate" or correction.level not in ("token", "sequence"))
        ),
        f"aggregation {aggregation.kind}: verl averages over the tokens of a whole mini-batch": (
            aggregation.micro_batch is not None or aggregation.kind == "prompt_mean"
        ),
        "mask TopEntropy: verl hands the loss no entropies": isinstance(estimator.mask, TopEntropy),
        "aggregation token_sum with a length: verl's KL and entropy have none": (
            terms and aggregation.kind == "token_sum" and aggregation.length is not None
        ),
        f"aggregation.length = {aggregation.length}: verl's KL and entropy take a whole number": (
            terms and aggregation.length is not None and aggregation.length != int(aggregation.length)
        ),
    }


def sampled_responses(run: LLMRun) -> int:
    """Return the number of responses to each prompt, including support rollouts."""
    return run.design.rollouts + run.design.support_rollouts


def verl_config(run: LLMRun, name: str, cluster: Cluster) -> dict[str, Any]:
    """Return verl's settings of a run, nested as in its configuration. name: of the run, verl's `experiment_name`."""
    design, model, lora = run.design, run.model, run.lora
    adapters = {"lora_rank": lora.rank, "lora_alpha": lora.alpha} if lora.rank else {}
    targets = {"target_modules": list(lora.targets)} if lora.targets else {}
    return {
        "algorithm": _algorithm(run),
        "data": {
            "train_batch_size": design.batch_size,
            "max_prompt_length": model.max_prompt_length,
            "max_response_length": model.max_response_length,
            "filter_overlong_prompts": True,
            "shuffle": True,
            "seed": run.seed,
        },
        "actor_rollout_ref": {
            "model": {
                "path": model.source,
                "enable_gradient_checkpointing": run.compute.gradient_checkpointing,
                **adapters,
                **targets,
            },
            "actor": _actor(run),
            "rollout": {
                "name": "vllm",
                "n": sampled_responses(run),
                "temperature": run.temperature,
                "seed": run.seed,
                "tensor_model_parallel_size": cluster.tensor_parallel,
                "val_kwargs": {
                    "n": run.evaluation.samples,
                    "temperature": run.temperature,
                    "do_sample": True,
                    "top_p": 1.0,
                    "top_k": -1,
                },
            },
        },
        "critic": {"enable": False},
        "reward": {"custom_reward_function": {"name": COMPUTE_SCORE}},
        "trainer": {
            "nnodes": cluster.nodes,
            "n_gpus_per_node": cluster.gpus_per_node,
            "total_training_steps": design.rounds,
            "total_epochs": design.rounds,  # no limit: a round takes at least one batch of an epoch
            "test_freq": design.eval_every,
            "val_before_train": True,
            "save_freq": run.interval,
            "max_actor_ckpt_to_keep": 1,
            "logger": ["console"],
            "project_name": PROJECT,
            "experiment_name": name,
        },
    }


def _algorithm(run: LLMRun) -> dict[str, Any]:
    estimator, support = run.design.estimator, run.design.support_rollouts
    kl, correction = estimator.kl, estimator.correction
    settings: dict[str, Any] = {"adv_estimator": PREFIX + estimator_name(estimator)}
    if support:
        settings["rftlab"] = {"support": support}
    in_reward = kl.against_base and kl.place == "reward"
    settings["use_kl_in_reward"] = in_reward
    if in_reward:
        settings |= {"kl_penalty": _kl_type(estimator), "kl_ctrl": {"type": "fixed", "kl_coef": kl.coef}}
    if correction.kind != "none":
        settings["rollout_correction"] = {"rollout_is": correction.level, "rollout_is_threshold": correction.high}
    return settings


def _kl_type(estimator: Estimator) -> str:
    return estimator.kl.kind + "+" * estimator.kl.straight_through


def _actor(run: LLMRun) -> dict[str, Any]:
    """Return verl's settings of the actor; verl counts ppo_mini_batch_size in prompts, and multiplies it by n."""
    design, estimator = run.design, run.design.estimator
    aggregation, kl = estimator.aggregation, estimator.kl
    scaled = aggregation.kind == "seq_mean_token_sum" and aggregation.length is not None
    in_loss = kl.against_base and kl.place == "loss"
    settings: dict[str, Any] = {
        "policy_loss": {"loss_mode": PREFIX + estimator_name(estimator)},
        "ppo_mini_batch_size": design.batch_size // design.minibatches,
        "ppo_epochs": design.epochs,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": max(MAX_TOKENS, run.model.max_prompt_length + run.model.max_response_length),
        "loss_agg_mode": aggregation.kind.replace("_", "-") + "-norm" * scaled,
        "entropy_coeff": estimator.entropy,
        "use_kl_loss": in_loss,
        "data_loader_seed": run.seed,
        "fsdp_config": {"seed": run.seed},
        "optim": _optimizer(run),
    }
    if scaled and aggregation.length is not None:
        settings["loss_scale_factor"] = int(aggregation.length)
    if in_loss:
        settings |= {"kl_loss_type": _kl_type(estimator), "kl_loss_coef": kl.coef}
    return settings


def _optimizer(run: LLMRun) -> dict[str, Any]:
    """Return verl's settings of the optimizer. Its schedule takes one step a round, rftlab's one an update."""
    own, updates = run.optimizer, run.design.epochs * run.design.minibatches
    settings: dict[str, Any] = {
        "lr": own.learning_rate,
        "weight_decay": own.weight_decay,
        "betas": [own.beta1, own.beta2],
        "clip_grad": own.max_grad_norm,
        "lr_scheduler_type": "constant",
        "lr_warmup_steps": -(-own.warmup_steps // updates),
    }
    return settings | ({"override_optimizer_config": {"eps": own.eps}} if own.eps != 1e-8 else {})
