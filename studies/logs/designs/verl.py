"""verl: data.train_batch_size prompts, rollout.n responses each, ppo_mini_batch_size prompts an update (verl
multiplies it by n), ppo_epochs passes. Estimators `rftlab_NAME` are our cards (studies/adapters/verl.py).

Source: verl/trainer/ppo/ray_trainer.py, verl/trainer/config/actor/actor.yaml and docs/algo/grpo.md at b178a3c.
"""

from dataclasses import asdict

from rftlab.studies.cards import SHIPPED
from rftlab.studies.logs.designs import ours
from rftlab.studies.logs.designs.values import at, count, real, truth, word
from rftlab.studies.logs.run import KnownDesign

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_CARD, _SUPPORT = "rftlab_", "algorithm.rftlab.support"
_ADVANTAGES = {
    "gae": "gae",
    "grpo": "group_zscore",
    "reinforce_plus_plus": "batch_zscore",
    "rloo": "leave_one_out",
    "rloo_vectorized": "leave_one_out",
}


def recognise(config: dict) -> bool:
    """Whether a configuration is verl's."""
    return "actor_rollout_ref" in config or any(str(key).startswith("actor_rollout_ref.") for key in config)


def design(config: dict, processes: int | None) -> tuple[KnownDesign, list[str]]:
    """The design of a configuration; it need not be whole."""
    assumed: list[str] = []
    prompts, rollouts = count(at(config, "data.train_batch_size")), count(at(config, f"{_ROLLOUT}.n"))
    if rollouts is None and at(config, f"{_ROLLOUT}.n") is None:
        rollouts = 1
        assumed.append("rollouts: actor_rollout_ref.rollout.n is not stated; verl's default is 1")
    updates, notes = _updates(config, prompts, assumed)
    rollouts = _without_support(config, rollouts, notes)
    known = KnownDesign(
        prompts=prompts,
        rollouts=rollouts,
        updates_per_round=updates,
        learning_rate=real(at(config, f"{_ACTOR}.optim.lr")),
        advantage=_advantage(config),
        loss=_loss(config),
        kl_coefficient=_kl(config),
        temperature=real(at(config, f"{_ROLLOUT}.temperature")),
        response_limit=count(at(config, "data.max_response_length"))
        or count(at(config, f"{_ROLLOUT}.response_length")),
        model=word(at(config, "actor_rollout_ref.model.path")),
        assumed=tuple(assumed),
    )
    return known, notes


def _updates(config: dict, prompts: int | None, assumed: list[str]) -> tuple[int | None, list[str]]:
    """Updates a round: mini-batches of prompts, the last of which may be smaller, times passes."""
    mini, epochs = count(at(config, f"{_ACTOR}.ppo_mini_batch_size")), count(at(config, f"{_ACTOR}.ppo_epochs"))
    stated = at(config, f"{_ACTOR}.ppo_epochs") is not None
    if mini is None or prompts is None or (stated and epochs is None):
        return None, []
    if epochs is None:
        epochs = 1
        assumed.append("updates a round: ppo_epochs is not stated; verl's default is 1")
    notes = (
        []
        if prompts % mini == 0
        else [f"ppo_mini_batch_size = {mini} does not divide train_batch_size = {prompts}: updates a round rounded up"]
    )
    return -(-prompts // mini) * epochs, notes


def _without_support(config: dict, rollouts: int | None, notes: list[str]) -> int | None:
    """Responses to a prompt that are trained on."""
    support = count(at(config, _SUPPORT))
    if rollouts is None or support is None or support >= rollouts:
        return rollouts
    notes.append(f"{support} of {rollouts} responses to each prompt are support rollouts: in its baseline alone")
    return rollouts - support


def _card(config: dict, name: str | None) -> KnownDesign | None:
    """What a card of ours is in the words of our own runs; None of another name."""
    card = SHIPPED.get((name or "").removeprefix(_CARD)) if (name or "").startswith(_CARD) else None
    if card is None or card.estimator is None:
        return None
    support = count(at(config, _SUPPORT)) or 0
    groups = {"rollouts": (count(at(config, f"{_ROLLOUT}.n")) or 1) - support, "support_rollouts": support}
    kinds = {"surrogate": type(card.estimator.surrogate).__name__}
    return ours.design({"kinds": kinds, "design": groups | {"estimator": asdict(card.estimator)}}, None)[0]


def _advantage(config: dict) -> str | None:
    name = word(at(config, "algorithm.adv_estimator"))
    card = _card(config, name)
    if card is not None:
        return card.advantage
    if name in ("grpo", "grpo_vectorized"):
        return "group_mean" if truth(at(config, "algorithm.norm_adv_by_std_in_grpo")) is False else "group_zscore"
    return _ADVANTAGES.get(name, name) if name else None


def _loss(config: dict) -> str | None:
    """The surrogate, its clip and the aggregation; the parts that are stated."""
    mode = word(at(config, f"{_ACTOR}.policy_loss.loss_mode"))
    card = _card(config, mode)
    if card is not None:
        return card.loss
    low, high, both = (
        real(at(config, f"{_ACTOR}.{name}")) for name in ("clip_ratio_low", "clip_ratio_high", "clip_ratio")
    )
    clip = (
        f"clip {low:g}/{high:g}"
        if low is not None and high is not None
        else f"clip {both:g}"
        if both is not None
        else None
    )
    return ", ".join(part for part in (mode, clip, word(at(config, f"{_ACTOR}.loss_agg_mode"))) if part) or None


def _kl(config: dict) -> float | None:
    """The coefficient that is in force: of the loss, of the reward, or 0 where both are off."""
    in_loss, in_reward = truth(at(config, f"{_ACTOR}.use_kl_loss")), truth(at(config, "algorithm.use_kl_in_reward"))
    if in_loss:
        return real(at(config, f"{_ACTOR}.kl_loss_coef"))
    coefficient = real(at(config, "algorithm.kl_ctrl.kl_coef"))
    if in_reward or (in_reward is None and coefficient is not None):
        return coefficient  # before the switch existed, the coefficient alone decided
    return 0.0 if in_loss is False and in_reward is False else None
