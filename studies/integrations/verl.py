"""Register rftlab's estimators in verl: every card that can be trained, as advantage estimator and as policy loss.

verl finds this module by the entry-point group `verl.plugins` and loads it wherever verl is imported, so a run of verl
needs two flags:

    algorithm.adv_estimator=rftlab_gspo actor_rollout_ref.actor.policy_loss.loss_mode=rftlab_gspo

Advantages are those of `rftlab.losses.advantages`, computed for whole groups in the process that drives the run. A loss
is that of `rftlab.losses.objective` for a micro-batch, on its device, divided by the counts of the optimiser batch that
verl hands over. It uses the estimator's own aggregation and ignores `loss_agg_mode`. verl itself adds other terms, so
they are removed here: a KL penalty against the base policy (`actor.use_kl_loss`, or `algorithm.use_kl_in_reward`), an
entropy bonus (`actor.entropy_coeff`), importance weights of the sampler (`algorithm.rollout_correction`).

    +algorithm.rftlab.support=4     the last four responses to each prompt only enter its baseline
    +algorithm.rftlab.measure=mine  rewards and lengths of the first 256 prompts go to results/pilot/mine/run.json
                                    (+algorithm.rftlab.results=FOLDER for another results folder)
    +algorithm.rftlab.alarms=True   the alarms of `rftlab diagnose` are printed while the run goes on, and their number
                                    is logged as rftlab/alarms to every tracker of trainer.logger

A plug-in of verl sees neither the prompt nor other rounds. Replay windows, moving averages, critics and greedy
baselines (verl samples those for its own `remax` alone) are therefore not available. Such a card raises an error that
says so, at the first batch. verl reports nothing where a plug-in cannot be imported; import this module to see why.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss
from verl.utils.tracking import Tracking

from rftlab.llm import losses
from rftlab.shared.cards import CARDS
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.config.surrogate import Dro, GeometricMean
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.integrations.alarms import watch_tracking
from rftlab.studies.integrations.noise import keep_rewards

PREFIX = "rftlab_"


def without_what_verl_adds(estimator: Estimator) -> Estimator:
    """Return the estimator without KL penalty against the base policy, entropy bonus and correction of the sampler."""
    kl = estimator.kl if estimator.kl.anchor == "old" else KL()
    return replace(estimator, kl=kl, entropy=0.0, entropy_target=0.0, correction=Correction())


def _our_flags(config: Any) -> Any:
    """Return the settings below `algorithm.rftlab`."""
    said = config.get("rftlab", None) if isinstance(config, Mapping) or hasattr(config, "get") else None
    return {} if said is None else said


def read_support(config: Any) -> int:
    """Return the number of untrained responses of each group. Raises UserError where the flag is no count."""
    value = _our_flags(config).get("support", 0)
    check(isinstance(value, int) and value >= 0, f"algorithm.rftlab.support = {value!r}; allowed: 0 or more")
    return value


def trained_rows(group: list, support: int) -> list[bool]:
    """Return which responses are trained on: all but the last `support` of a group. Raises UserError if none is
    left."""
    left = {label: group.count(label) - support for label in set(group)}
    for label in group:
        size = left[label] + support
        check(left[label] > 0, f"algorithm.rftlab.support = {support} of {size} responses; allowed: fewer than that")
    rows = []
    for label in group:
        rows.append(left[label] > 0)
        left[label] -= 1
    return rows


def without_support(estimator: Estimator, advantages: Any, mask: Any, trained: list[bool]) -> Any:
    """Return advantages (R, L), 0 for support, others scaled up, because verl's counts of a batch include support."""
    if all(trained):
        return advantages
    message = f"algorithm.rftlab.support: {type(estimator.surrogate).__name__} is not in proportion to its advantage"
    check(not isinstance(estimator.surrogate, Dro), message + "; allowed: other estimators, or support=0")
    _check_micro_batches(estimator, "with support rollouts")
    keep = advantages.new_tensor([float(row) for row in trained])[:, None]
    counted = mask.to(advantages.dtype) if estimator.aggregation.kind == "token_mean" else keep * 0 + 1
    return advantages * keep * (counted.sum() / (counted * keep).sum())


def _check_micro_batches(estimator: Estimator, where: str) -> None:
    kind, size = estimator.aggregation.kind, estimator.aggregation.micro_batch
    check(size is None, f"aggregation {kind} {where}: verl's micro-batches must hold {size} responses, or a multiple")


def advantage_estimator(name: str, estimator: Estimator):
    """Return the function that verl calls for the advantages and returns of an estimator, both (R, L)."""
    plain = without_what_verl_adds(estimator)

    def compute(token_level_rewards, response_mask, config=None, index=None, reward_baselines=None, **_):
        mask, rewards = response_mask, (token_level_rewards * response_mask).sum(-1)
        group = list(range(len(rewards))) if index is None else [str(label) for label in index]
        said = _our_flags(config)
        if said.get("measure") is not None:
            place = str(said.get("results", "results"))
            keep_rewards(str(said.get("measure")), place, rewards.tolist(), mask.sum(-1).tolist(), group)
        check(
            plain.advantage.combine == "rewards",
            f"{PREFIX}{name}: verl hands a plug-in the sum of rewards; allowed: its own algorithm.adv_estimator=gdpo",
        )
        by_token = {"token_rewards": token_level_rewards * mask} if plain.advantage.by_token else {}
        if plain.advantage.given and reward_baselines is None:
            raise UserError(
                f"{PREFIX}{name}: verl hands no baseline of kind {plain.advantage.baseline} to plug-ins; allowed: an "
                "estimator whose baseline is in its group"
            )
        given = {"baseline": reward_baselines} if plain.advantage.given else {}
        rewards = rewards * 0 if by_token else rewards
        advantages = losses.advantages(rewards, group, mask, estimator=plain, **by_token, **given)
        advantages = (advantages if advantages.ndim == 2 else advantages[:, None]) * mask
        advantages = without_support(plain, advantages, mask, trained_rows(group, read_support(config)))
        return advantages, advantages

    compute.__name__ = PREFIX + name
    return compute


def policy_loss(name: str, estimator: Estimator):
    """Return the function that verl calls for an estimator's loss of a micro-batch and its metrics."""
    plain = without_what_verl_adds(estimator)
    if isinstance(plain.surrogate, GeometricMean):  # verl's geo_mean divides by all rows, those without tokens too
        plain = replace(plain, aggregation=replace(plain.aggregation, empty="count"))

    def compute(
        old_log_prob,
        log_prob,
        advantages,
        response_mask,
        loss_agg_mode="token-mean",
        config=None,
        rollout_is_weights=None,
    ):
        hidden = (isinstance(plain.mask, TopEntropy) and "entropies") or (
            plain.aggregation.kind == "prompt_mean" and "prompts"
        )
        fixed = f"{PREFIX}{name}: verl's entropy bonus has a fixed coefficient; allowed: entropy_target 0"
        check(estimator.entropy_target == 0, fixed)
        check(not hidden, f"{PREFIX}{name}: verl hands a loss no {hidden}; allowed: an estimator that asks for none")
        batch = getattr(config, "global_batch_info", None) or {}
        if getattr(config, "use_dynamic_bsz", False):
            _check_micro_batches(plain, "with use_dynamic_bsz")
        result = losses.objective_and_metrics(
            log_prob,
            old_log_prob,
            mask=response_mask,
            estimator=plain,
            advantages=advantages,
            correction=rollout_is_weights,
            n_tokens=batch.get("batch_num_tokens"),
            n_rows=batch.get("global_batch_size"),
        )
        mask = response_mask.to(log_prob.dtype)
        moved = (((old_log_prob - log_prob).detach() * mask).sum() / mask.sum().clamp(min=1)).item()
        metrics = {
            "actor/pg_clipfrac": result.clip_fraction.item(),
            "actor/ppo_kl": moved,
            "actor/pg_clipfrac_lower": result.dual_clip_fraction.item(),
        }
        return -result.objective * (batch.get("dp_size") or 1), metrics

    compute.__name__ = PREFIX + name
    return compute


def register() -> list[str]:
    """Register every card that can be trained in verl's two registries. Returns their names there."""
    cards = {name: card.estimator for name, card in CARDS.items() if card.estimator is not None}
    for name, estimator in cards.items():
        register_adv_est(PREFIX + name)(advantage_estimator(name, estimator))
        register_policy_loss(PREFIX + name)(policy_loss(name, estimator))
    return [PREFIX + name for name in cards]


NAMES = register()
watch_tracking(Tracking)
