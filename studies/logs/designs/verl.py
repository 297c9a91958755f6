"""verl: data.train_batch_size prompts, rollout.n responses each, ppo_mini_batch_size prompts an update (verl
multiplies it by n), ppo_epochs passes. Estimators `rftlab_NAME` are our cards (studies/adapters/verl.py).

Source: verl/trainer/ppo/ray_trainer.py, verl/trainer/config/actor/actor.yaml and docs/algo/grpo.md at b178a3c.
"""

from dataclasses import asdict

from rftlab.studies.cards import SHIPPED
from rftlab.studies.logs.designs import ours
from rftlab.studies.logs.designs.values import Reader
from rftlab.studies.logs.run import KnownDesign

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_CARD, _SUPPORT = "rftlab_", "algorithm.rftlab.support"
VERL = "verl 0.9.1"
_ADVANTAGES = {
    "gae": "gae",
    "grpo": "group_zscore",
    "reinforce_plus_plus": "batch_zscore",
    "rloo": "leave_one_out",
    "rloo_vectorized": "leave_one_out",
}


def recognise(config: dict) -> bool:
    """Whether a configuration is verl's."""
    marks = ("actor_rollout_ref.", "data.train_batch_size")
    return "actor_rollout_ref" in config or any(str(key).startswith(marks) for key in config)


def known_of(config: Reader, processes: int | None) -> KnownDesign:
    """The design of a configuration; it need not be whole."""
    prompts = config.count("data.train_batch_size")
    rollouts = config.stated_or("count", f"{_ROLLOUT}.n", 1, VERL)
    return KnownDesign(
        prompts=prompts,
        rollouts=_without_support(config, rollouts),
        updates_per_round=_updates(config, prompts),
        learning_rate=config.real(f"{_ACTOR}.optim.lr"),
        advantage=_advantage(config),
        loss=_loss(config),
        kl_coefficient=_kl(config),
        temperature=config.real(f"{_ROLLOUT}.temperature"),
        response_limit=config.count("data.max_response_length") or config.count(f"{_ROLLOUT}.response_length"),
        model=config.word("actor_rollout_ref.model.path"),
    )


def _updates(config: Reader, prompts: int | None) -> int | None:
    """Updates a round: mini-batches of prompts, the last of which may be smaller, times passes."""
    mini = config.count(f"{_ACTOR}.ppo_mini_batch_size")
    if mini is None or prompts is None:
        return None
    epochs = config.stated_or("count", f"{_ACTOR}.ppo_epochs", 1, VERL)
    if prompts % mini:
        config.notes.append(
            f"ppo_mini_batch_size = {mini} does not divide train_batch_size = {prompts}: updates a round rounded up"
        )
    return None if epochs is None else -(-prompts // mini) * epochs


def _without_support(config: Reader, rollouts: int | None) -> int | None:
    """Responses to a prompt that are trained on."""
    support = config.count(_SUPPORT)
    if rollouts is None or support is None or support >= rollouts:
        return rollouts
    config.notes.append(f"{support} of {rollouts} responses to each prompt are support rollouts: in its baseline alone")
    return rollouts - support


def _card(config: Reader, name: str | None) -> KnownDesign | None:
    """What a card of ours is in the words of our own runs; None of another name."""
    card = SHIPPED.get((name or "").removeprefix(_CARD)) if (name or "").startswith(_CARD) else None
    if card is None or card.estimator is None:
        return None
    support = config.count(_SUPPORT) or 0
    groups = {"rollouts": (config.count(f"{_ROLLOUT}.n") or 1) - support, "support_rollouts": support}
    kinds = {"surrogate": type(card.estimator.surrogate).__name__}
    return ours.design({"kinds": kinds, "design": groups | {"estimator": asdict(card.estimator)}})[0]


def _advantage(config: Reader) -> str | None:
    name = config.word("algorithm.adv_estimator")
    card = _card(config, name)
    if card is not None:
        return card.advantage
    if name in ("grpo", "grpo_vectorized"):
        scaled = config.stated_or("truth", "algorithm.norm_adv_by_std_in_grpo", True, VERL)
        return {True: "group_zscore", False: "group_mean", None: None}[scaled]
    return _ADVANTAGES.get(name, name) if name else None


def _loss(config: Reader) -> str | None:
    """The surrogate, its clip and the aggregation; the parts that are stated."""
    mode = config.word(f"{_ACTOR}.policy_loss.loss_mode")
    card = _card(config, mode)
    if card is not None:
        return card.loss
    low, high, both = (config.real(f"{_ACTOR}.{name}") for name in ("clip_ratio_low", "clip_ratio_high", "clip_ratio"))
    clip = (
        f"clip {low:g}/{high:g}"
        if low is not None and high is not None
        else f"clip {both:g}"
        if both is not None
        else None
    )
    return ", ".join(part for part in (mode, clip, config.word(f"{_ACTOR}.loss_agg_mode")) if part) or None


def _kl(config: Reader) -> float | None:
    """The coefficient that is in force: of the loss, of the reward, or 0 where both are off."""
    switches = f"{_ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"
    if any(config.stated(name) and config.truth(name) is None for name in switches):
        return None
    in_loss, in_reward = map(config.truth, switches)
    if in_loss:
        return config.real(f"{_ACTOR}.kl_loss_coef")
    coefficient = config.real("algorithm.kl_ctrl.kl_coef")
    if in_reward or (in_reward is None and coefficient is not None):
        return coefficient  # before the switch existed, the coefficient alone decided
    return 0.0 if in_loss is False and in_reward is False else None
