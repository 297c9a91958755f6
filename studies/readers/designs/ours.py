"""Describe runs of rftlab like those of other trainers, by config.json of `rftlab train`, or by a design."""

from dataclasses import asdict

from rftlab.shared.design import Design
from rftlab.studies.readers.designs.values import Reader
from rftlab.studies.readers.run import KnownDesign

_RATIOS = {"sequence": "ratio of a sequence", "sequence_token": "ratio of a sequence"}
"""Level of the ratio in the words of TRL's designs, which leave out the ratio of a token."""


def is_own_config(config: dict) -> bool:
    """Whether a configuration is rftlab's."""
    return config.get("level") in ("llm", "sim") and isinstance(config.get("design"), dict)


def own_design(config: Reader) -> KnownDesign:
    """Return the design that a configuration of rftlab states."""
    epochs, parts = (config.count(f"design.{name}") or 1 for name in ("epochs", "minibatches"))
    rates = map(config.rate, ("optimizer.learning_rate", "optimizer.rate"))
    loss = (
        config.word("kinds.surrogate"),
        config.word("design.estimator.aggregation.kind"),
        _RATIOS.get(config.word("design.estimator.ratio.level") or ""),
    )
    rollouts = config.count("design.rollouts")
    kinds = (config.word(f"design.estimator.advantage.{name}") for name in ("baseline", "scale"))
    more = (config.count(f"design.{name}", 0) or 0 for name in ("support_rollouts", "replay_window"))
    return KnownDesign(
        prompts=config.count("design.batch_size"),
        rollouts=rollouts,
        updates_per_round=epochs * parts,
        learning_rate=next((rate for rate in rates if rate is not None), None),
        advantage=_advantage(advantage_name(*kinds), rollouts, *more),
        loss=", ".join(filter(None, loss)) or None,
        kl_coefficient=0.0
        if config.word("design.estimator.kl.kind") == "none"
        else config.real("design.estimator.kl.coef"),
        temperature=config.real("temperature"),
        response_limit=config.count("model.max_response_length"),
        precision="fp32",
        adapter_rank=config.count("lora.rank", 0),
        model=config.word("model.source"),
    )


def known_design(design: Design, model: str | None = None) -> KnownDesign:
    """Return the known part of a design of rftlab, which holds neither optimizer nor sampling."""
    own = own_design(Reader({"design": asdict(design)}))
    return KnownDesign(own.prompts, own.rollouts, own.updates_per_round, advantage=own.advantage, model=model)


def _advantage(kind: str | None, rollouts: int | None, support: int, window: int) -> str | None:
    """Return the kind of an advantage, with support and replay behind it. Other trainers have no words for these, so it
    matches none of theirs."""
    if kind is None:
        return None
    alone = rollouts == 1 and not support and not window
    more = f" with {support} support rollouts" if support else ""
    return ("raw" if alone or kind == "none" else kind) + more + (f" with a window of {window}" if window else "")


def advantage_name(baseline: str | None, scale: str | None) -> str | None:
    """Return the name of rftlab's advantage in the words of `KnownDesign`."""
    if baseline == "group_mean" and scale == "group_std":
        return "group_zscore"
    return baseline if scale in (None, "none") else f"{baseline} / {scale}"
