"""Read designs from settings of verl. A round has data.train_batch_size prompts with rollout.n responses each, an
update takes ppo_mini_batch_size prompts (verl multiplies it by n), and there are ppo_epochs passes. data.gen_batch_size
prompts are sampled at a time. A round trains on all of them, or, where algorithm.filter_groups leaves out groups
without a signal, on train_batch_size of those that are kept. Estimators `rftlab_NAME` are rftlab's cards
(studies/integrations/verl.py).

Source: verl/trainer/ppo/ray_trainer.py, verl/trainer/config/actor/actor.yaml and docs/algo/grpo.md at b178a3c;
recipe/dapo/dapo_ray_trainer.py at 004c888.
"""

from dataclasses import asdict
from typing import Any

from rftlab.shared.cards import SHIPPED
from rftlab.studies.readers.designs.ours import own_design
from rftlab.studies.readers.designs.values import Reader, weight_precision
from rftlab.studies.readers.run import KnownDesign

LIBRARY = "verl 0.9.1"
ACTOR, ROLLOUT, LOSS = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.actor.policy_loss"
DEFAULTS: dict[str, Any] = {
    "algorithm.adv_estimator": "gae", "algorithm.norm_adv_by_std_in_grpo": True, "algorithm.use_kl_in_reward": False,
    "data.train_batch_size": 1024, "data.max_prompt_length": 512, "data.max_response_length": 512,
    f"{ROLLOUT}.n": 1, f"{ROLLOUT}.temperature": 1.0, f"{ROLLOUT}.tensor_model_parallel_size": 2,
    f"{ACTOR}.ppo_mini_batch_size": 256, f"{ACTOR}.ppo_epochs": 1, f"{ACTOR}.use_dynamic_bsz": False,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 16384, f"{ACTOR}.clip_ratio_low": 0.2, f"{ACTOR}.clip_ratio_high": 0.2,
    f"{ACTOR}.clip_ratio_c": 3.0, f"{ACTOR}.loss_agg_mode": "token-mean", f"{ACTOR}.entropy_coeff": 0,
    f"{ACTOR}.use_kl_loss": False, f"{ACTOR}.kl_loss_coef": 0.001, f"{ACTOR}.kl_loss_type": "low_var_kl",
    f"{LOSS}.loss_mode": "vanilla", f"{ACTOR}.optim.lr": 1e-6, f"{ACTOR}.optim.lr_scheduler_type": "constant",
    f"{ACTOR}.optim.lr_warmup_steps": -1, f"{ACTOR}.optim.weight_decay": 0.01, f"{ACTOR}.optim.clip_grad": 1.0,
    f"{ACTOR}.optim.betas": [0.9, 0.999], f"{ACTOR}.fsdp_config.fsdp_size": -1,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True, "trainer.nnodes": 1, "trainer.n_gpus_per_node": 8,
    "trainer.total_epochs": 30, "trainer.total_training_steps": None,
}  # fmt: skip
"""The defaults of verl where a setting is not stated."""
_CARD, _SUPPORT = "rftlab_", "algorithm.rftlab.support"
_FILTER, _SAMPLED = "algorithm.filter_groups.enable", "data.gen_batch_size"
_ADVANTAGES = {
    "gae": "gae",
    "grpo": "group_zscore",
    "reinforce_plus_plus": "batch_zscore",
    "rloo": "leave_one_out",
    "rloo_vectorized": "leave_one_out",
}


def is_verl_config(config: dict) -> bool:
    """Whether a configuration is verl's."""
    marks = ("actor_rollout_ref.", "data.train_batch_size")
    return "actor_rollout_ref" in config or any(str(key).startswith(marks) for key in config)


def verl_design(config: Reader) -> KnownDesign:
    """Return the design that a configuration states; it need not be whole."""
    prompts, rollouts = _prompts(config), _usual(config, "count", f"{ROLLOUT}.n")
    return KnownDesign(
        prompts=prompts,
        rollouts=_without_support(config, rollouts),
        updates_per_round=_updates(config, prompts),
        learning_rate=_usual(config, "rate", f"{ACTOR}.optim.lr"),
        advantage=_advantage(config),
        loss=_loss(config),
        kl_coefficient=_kl(config),
        temperature=_usual(config, "real", f"{ROLLOUT}.temperature"),
        response_limit=config.count(f"{ROLLOUT}.response_length")
        or _usual(config, "count", "data.max_response_length"),
        precision=weight_precision(config.word(f"{ACTOR}.fsdp_config.model_dtype")),
        adapter_rank=config.count("actor_rollout_ref.model.lora_rank", 0),
        model=config.word("actor_rollout_ref.model.path"),
    )


def _usual(config: Reader, kind: str, name: str) -> Any:
    """Return a setting, or verl's default where it is not stated, which is noted."""
    return config.stated_or(kind, name, DEFAULTS[name], LIBRARY)


def _prompts(config: Reader) -> int | None:
    """Return the prompts that a round trains on; where it samples others, a note says how many."""
    trained = _usual(config, "count", "data.train_batch_size")
    filtered, sampled = config.truth(_FILTER), config.count(_SAMPLED)
    unread = config.stated(_SAMPLED) and sampled is None
    if filtered and trained is not None:
        each = "a number that could not be read" if unread else sampled or trained
        config.notes.append(
            f"{_FILTER}: a round trains on train_batch_size = {trained} prompts whose responses differ in reward, and "
            f"samples batches of {each} (gen_batch_size) until it has them; how many that took is not known"
        )
    if filtered or trained is None or not config.stated(_SAMPLED) or sampled == trained:
        return trained
    if config.stated(_FILTER) and filtered is None:
        config.notes.append(f"prompts: train_batch_size or gen_batch_size, which {_FILTER} decides")
        return None
    if sampled is not None:
        config.notes.append(
            f"without filter_groups a round trains on all of gen_batch_size = {sampled} prompts, not on "
            f"train_batch_size = {trained}"
        )
    return sampled


def _updates(config: Reader, prompts: int | None) -> int | None:
    """Return the updates of a round: mini-batches of prompts, the last of which may be smaller, times passes."""
    mini = _usual(config, "count", f"{ACTOR}.ppo_mini_batch_size")
    if mini is None or prompts is None:
        return None
    epochs = _usual(config, "count", f"{ACTOR}.ppo_epochs")
    if prompts % mini:
        config.notes.append(
            f"ppo_mini_batch_size = {mini} does not divide the {prompts} prompts of a round: updates rounded up"
        )
    return None if epochs is None else -(-prompts // mini) * epochs


def _without_support(config: Reader, rollouts: int | None) -> int | None:
    """Return the responses to a prompt that are trained on."""
    support = config.count(_SUPPORT)
    if rollouts is None or support is None or support >= rollouts:
        return rollouts
    config.notes.append(f"{support} of {rollouts} responses to each prompt are support rollouts: in its baseline alone")
    return rollouts - support


def _card(config: Reader, name: str | None) -> KnownDesign | None:
    """Return the design facts of the card of rftlab that a setting names; None for another name."""
    card = SHIPPED.get((name or "").removeprefix(_CARD)) if (name or "").startswith(_CARD) else None
    if card is None or card.estimator is None:
        return None
    support = config.count(_SUPPORT) or 0
    groups = {"rollouts": (config.count(f"{ROLLOUT}.n") or 1) - support, "support_rollouts": support}
    kinds = {"surrogate": type(card.estimator.surrogate).__name__}
    return own_design(Reader({"kinds": kinds, "design": groups | {"estimator": asdict(card.estimator)}}))


def _advantage(config: Reader) -> str | None:
    name = _usual(config, "word", "algorithm.adv_estimator")
    card = _card(config, name)
    if card is not None:
        return card.advantage
    if name in ("grpo", "grpo_vectorized"):
        scaled = _usual(config, "truth", "algorithm.norm_adv_by_std_in_grpo")
        return {True: "group_zscore", False: "group_mean", None: None}[scaled]
    return _ADVANTAGES.get(name, name) if name else None


def _loss(config: Reader) -> str | None:
    """Return the surrogate, its clip and the aggregation, as far as they are stated."""
    mode = config.word(f"{ACTOR}.policy_loss.loss_mode")
    card = _card(config, mode)
    if card is not None:
        return card.loss
    low, high, both = (config.real(f"{ACTOR}.{name}") for name in ("clip_ratio_low", "clip_ratio_high", "clip_ratio"))
    widths = [both] if low is None or high is None else [low, high]
    clip = None if None in widths else f"clip {'/'.join(f'{width:g}' for width in widths)}"
    return ", ".join(part for part in (mode, clip, config.word(f"{ACTOR}.loss_agg_mode")) if part) or None


def _kl(config: Reader) -> float | None:
    """Return the KL coefficient in force: that of the loss, else of the reward, or 0 where both are off."""
    switches = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"
    if any(config.stated(name) and config.truth(name) is None for name in switches):
        return None
    in_loss, in_reward = map(config.truth, switches)
    if in_loss:
        return config.real(f"{ACTOR}.kl_loss_coef")
    coefficient = config.real("algorithm.kl_ctrl.kl_coef")
    if in_reward or (in_reward is None and coefficient is not None):
        return coefficient  # before the switch existed, the coefficient alone decided
    return 0.0 if in_loss is False and in_reward is False else None
