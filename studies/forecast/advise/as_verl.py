"""Translate a design into settings of verl, and back.

Settings, and what verl cannot do, are from `studies/integrations/verl_study/settings.py`. GRPO and estimators like it
need no plug-in, and other cards need rftlab's (docs/engines.md). Names and formulas were read in verl 0.9.1:
trainer/config/*.yaml, trainer/ppo/core_algos.py (`compute_grpo_outcome_advantage`, `compute_policy_loss_vanilla`). verl
reads clip_ratio only where clip_ratio_low and clip_ratio_high are null, and holds negative advantages at clip_ratio_c
times the advantage.
"""

import math
from collections.abc import Callable
from typing import Any

from rftlab.llm.config import AdamW, LLMRun, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.cards import PRESETS, SHIPPED
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Unmasked
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.shaping import Length
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check
from rftlab.studies.integrations.cluster import Cluster
from rftlab.studies.integrations.verl_study.settings import PREFIX, refused, verl_config
from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.designs.verl import ACTOR, DEFAULTS, LIBRARY, LOSS, ROLLOUT

NO_DUAL = 1e9
"""clip_ratio_c of a design without a dual clip; an infinite one would make NaN of advantages that are 0."""
_UNTOLD = ("data.seed", "data.shuffle", "data.filter", f"{ACTOR}.data_loader_seed", f"{ACTOR}.fsdp_config.seed",
           f"{ROLLOUT}.seed", f"{ROLLOUT}.val_kwargs", "critic.", "reward.", "trainer.logger", "trainer.project",
           "trainer.experiment", "trainer.test_freq", "trainer.val_", "trainer.save", "trainer.max_")  # fmt: skip
"""Settings of a run that are no part of its design."""


def native(estimator: Estimator, rollouts: int) -> dict[str, Any] | None:
    """Return verl's own settings of an estimator's advantage and loss; None where it needs rftlab's plug-in."""
    spec, clip = estimator.advantage, estimator.surrogate
    alone = spec == Advantage("none") and rollouts == 1
    scaled = spec == Advantage("group_mean", "group_std")
    known = alone or scaled or spec in (Advantage("group_mean"), Advantage("leave_one_out"))
    plain = estimator.ratio == Ratio() and estimator.mask == Unmasked() and estimator.length == Length()
    if not (known and plain and isinstance(clip, Clip) and math.isfinite(clip.high)):
        return None
    name = "rloo" if spec.baseline == "leave_one_out" else "grpo"
    return {
        "algorithm.adv_estimator": name,
        **({"algorithm.norm_adv_by_std_in_grpo": scaled} if name == "grpo" else {}),
        f"{LOSS}.loss_mode": "vanilla",
        f"{ACTOR}.clip_ratio_low": clip.low,
        f"{ACTOR}.clip_ratio_high": clip.high,
        f"{ACTOR}.clip_ratio_c": min(clip.dual, NO_DUAL),
    }


def verl_settings(design: Design, model: Model, rate: float, temperature: float, cluster: Cluster) -> dict[str, Any]:
    """Return verl's settings for a design by dotted name. Raises UserError for what verl cannot do."""
    run = LLMRun(TaskConfig("gsm8k"), model, design, optimizer=AdamW(learning_rate=rate), temperature=temperature)
    own = native(design.estimator, design.rollouts) if not design.support_rollouts else None
    reason = refused(run, cluster, native=own is not None)
    check(not reason, reason)
    settings = flat_settings(verl_config(run, "design", cluster)) | (own or {})
    return {name: value for name, value in settings.items() if not name.startswith(_UNTOLD)}


def flat_settings(nested: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names."""
    settings: dict[str, Any] = {}
    for name, value in nested.items():
        settings |= flat_settings(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return settings


def read_verl_estimator(config: Reader) -> Estimator:
    """Return the estimator of verl's settings, with verl's defaults for those that are not stated. Raises UserError
    where it is unknown, or rftlab does not have it."""

    def setting(name: str, kind: str = "real") -> Any:
        value = config.stated_or(kind, name, DEFAULTS[name], LIBRARY)
        check(value is not None, f"{name} is not known; allowed: a configuration that says it")
        return value

    advantage, mode = setting("algorithm.adv_estimator", "word"), setting(f"{LOSS}.loss_mode", "word")
    if advantage.startswith(PREFIX) or mode.startswith(PREFIX):
        name = advantage.removeprefix(PREFIX)
        card = advantage == mode and name in SHIPPED and name in PRESETS
        check(card, f"adv_estimator = {advantage}, loss_mode = {mode}; allowed: one card of rftlab for both")
        return PRESETS[name]
    grpo = advantage in ("grpo", "grpo_vectorized")
    check(grpo or advantage.startswith("rloo"), f"adv_estimator = {advantage}; allowed: grpo, rloo, {PREFIX}NAME")
    check(mode == "vanilla", f"loss_mode = {mode}; allowed: vanilla, {PREFIX}NAME")
    scaled = grpo and setting("algorithm.norm_adv_by_std_in_grpo", "truth")
    dual, agg = setting(f"{ACTOR}.clip_ratio_c"), setting(f"{ACTOR}.loss_agg_mode", "word")
    norm = agg.removesuffix("-norm") != agg
    length = config.real(f"{ACTOR}.loss_scale_factor") if norm else None
    if norm and length is None:
        length = float(setting("data.max_response_length", "count"))
    baseline = "group_mean" if grpo else "leave_one_out"
    low, high = setting(f"{ACTOR}.clip_ratio_low"), setting(f"{ACTOR}.clip_ratio_high")
    return Estimator(
        Advantage(baseline, "group_std" if scaled else "none"),  # type: ignore[arg-type]
        Clip(low, high, dual if dual < NO_DUAL else math.inf),
        _kl(config, setting),
        Aggregation(agg.removesuffix("-norm").replace("-", "_"), length),
        correction=_correction(config),
        entropy=setting(f"{ACTOR}.entropy_coeff"),
    )


def _kl(config: Reader, setting: Callable[..., Any]) -> KL:
    kinds = {"low_var_kl": "k3", "kl": "k1", "mse": "k2"}
    if setting(f"{ACTOR}.use_kl_loss", "truth"):
        place, coef, name = "loss", setting(f"{ACTOR}.kl_loss_coef"), setting(f"{ACTOR}.kl_loss_type", "word")
    elif setting("algorithm.use_kl_in_reward", "truth"):
        place, coef = "reward", config.real("algorithm.kl_ctrl.kl_coef") or 0.001
        name = config.word("algorithm.kl_penalty") or "kl"
    else:
        return KL()
    kind = kinds.get(name.removesuffix("+"), name.removesuffix("+"))
    return KL(kind, coef, place, straight_through=name.endswith("+"))  # type: ignore[arg-type]


def _correction(config: Reader) -> Correction:
    level = config.word("algorithm.rollout_correction.rollout_is")
    if level is None or level.lower() in ("none", "null"):
        return Correction()
    high = config.real("algorithm.rollout_correction.rollout_is_threshold")
    check(level in ("token", "sequence"), f"rollout_is = {level}; allowed: token, sequence")
    return Correction("truncate", level, high=2.0 if high is None else high)  # type: ignore[arg-type]
